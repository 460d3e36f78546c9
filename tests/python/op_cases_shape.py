"""Rows of the op table: reductions, shapes, joining, indexing, padding.

Main entry: ROWS.
"""

import numpy as np
import op_reference as reference
from op_dtypes import ALL, NUMBERS
from op_table import Row, ints, num

ROWS = []


def add(expr, ref, **fields):
    ROWS.append(Row(expr, ref, **fields))


def row(expr, ref, *shape, **fields):
    """A function of one tensor x of the given shape."""
    options = {key: fields.pop(key) for key in ("low", "high", "avoid") if key in fields}
    for key in ("shapes", "large", "empty"):  # shapes of x alone
        fields[key] = tuple({"x": s} if isinstance(s, tuple) else s for s in fields.get(key, ()))
    add(expr, ref, x=num(*shape, **options), **fields)


# --- Reductions -----------------------------------------------------------------------------------------------------

EMPTY = ((0, 4, 5), (3, 0, 5), (3, 4, 0))
LARGE = ((2, 130, 3), (7, 33, 70), (1, 2000, 1))


def reduction(name, ref, options="", empty=EMPTY, large=LARGE, **fields):
    """Over all, one and several dims; `ref` takes axis and keepdims as NumPy does."""
    for dims, axis, keep in (("", None, False), ("dim=1", 1, False), ("dim=(0, -1), keepdim=True", (0, 2), True)):
        arguments = ", ".join(a for a in ("x", dims, options) if a)
        row(
            f"{name}({arguments})",
            lambda x, a=axis, k=keep: ref(x, axis=a, keepdims=k),
            3,
            4,
            5,
            shapes=((1, 1, 1), (2, 3, 1)),
            large=large,
            empty=empty if dims != "dim=1" or len(empty) == 3 else ((3, 4, 0), (0, 4, 5)),
            **fields,
        )


def mean_ref(x, **where):
    return np.mean(x, dtype=np.float64, **where)


SUMS = {"terms": True, "dtypes": ALL}
# An extreme over nothing raises; over no dim that is empty there is one.
reduction("sum", np.sum, result="sum", **SUMS)
reduction("mean", mean_ref, result="float", kernels=("sum",), **SUMS)
reduction(
    "prod", np.prod, low=0.5, high=1.5, result="sum", dtypes=ALL, large=((2, 40, 3),), loose=20, grad_loose=4
)  # 60 factors
reduction("amax", np.max, dtypes=ALL, empty=(), kernels=("max",))
reduction("amin", np.min, dtypes=ALL, empty=(), kernels=("min",))
reduction("any", np.any, dtypes=ALL, result="bool", grad=())
reduction("all", np.all, dtypes=ALL, result="bool", grad=())
reduction("logsumexp", reference.logsumexp, dtypes=ALL, result="float", terms=lambda x: 8.0)
reduction("norm", reference.norm, dtypes=ALL, result="float", terms=None, loose=4)
for name, ref in (("var", np.var), ("std", np.std)):
    spread = {
        "dtypes": NUMBERS,
        "result": "float",
        "low": 1,
        "high": 4,
        "terms": lambda x: 16.0,
        "kernels": ("centered_squares",),
    }
    one = {"empty": (), "large": ((2, 130, 3), (7, 33, 70))}
    row(f"{name}(x)", lambda x, f=ref: f(x, ddof=1), 3, 4, 5, **spread, **one)
    row(f"{name}(x, dim=1, correction=0)", lambda x, f=ref: f(x, axis=1), 3, 4, 5, **spread, **one)
    row(
        f"{name}(x, dim=(0, -1), keepdim=True)",
        lambda x, f=ref: f(x, axis=(0, 2), ddof=1, keepdims=True),
        3,
        4,
        5,
        **spread,
        **one,
    )
row(
    "sum(x, dim=-1, keepdim=True)",
    lambda x: x.sum(-1, keepdims=True),
    3,
    4,
    dtypes=ALL,
    result="sum",
    terms=True,
    shapes=((5,),),
)
row("sum(x)", np.sum, dtypes=ALL, result="sum", note="a scalar")
row("mean(x, dim=0)", lambda x: x * 1.0, dtypes=NUMBERS, result="float", note="a scalar")
row("amax(x, dim=1)", lambda x: x.max(1), 3, 4, dtypes=ALL, empty=((0, 4),), note="nothing to reduce")
row("amin(x, dim=1)", lambda x: x.min(1), 3, 4, dtypes=ALL, empty=((0, 4),), note="nothing to reduce")
row("max(x)", np.max, 3, 4, dtypes=ALL)
row("min(x)", np.min, 3, 4, dtypes=ALL)
PAIR = {"dtypes": ALL, "result": ("same", "int64"), "large": ((5, 130), (130, 67)), "empty": ((0, 4),)}
row("max(x, dim=1)", lambda x: (x.max(1), x.argmax(1)), 3, 4, **PAIR)
row("min(x, dim=1)", lambda x: (x.min(1), x.argmin(1)), 3, 4, **PAIR)
row(
    "max(x, 0, keepdim=True)",
    lambda x: (x.max(0, keepdims=True), x.argmax(0)[None]),
    3,
    4,
    dtypes=ALL,
    result=("same", "int64"),
)
WHERE = {"dtypes": ALL, "result": "int64", "grad": ()}
for name, ref in (("argmax", np.argmax), ("argmin", np.argmin)):
    row(f"{name}(x)", lambda x, f=ref: f(x), 3, 4, **WHERE, large=((130, 67),))
    row(f"{name}(x, dim=0)", lambda x, f=ref: f(x, 0), 3, 4, 2, **WHERE, large=((67, 3, 41),), empty=((3, 0, 2),))
    row(
        f"{name}(x, dim=-1, keepdim=True)",
        lambda x, f=ref: np.expand_dims(f(x, -1), -1),
        3,
        4,
        **WHERE,
        large=((3, 1000),),
    )
for name, ref in (("softmax", reference.softmax), ("log_softmax", reference.log_softmax)):
    lines = {"low": -4, "high": 4, "terms": (lambda x: 1.0) if name == "softmax" else (lambda x: 8.0)}
    for dim in (0, 1, -1):
        row(
            f"{name}(x, {dim})",
            lambda x, f=ref, d=dim: f(x, d),
            3,
            4,
            2,
            **lines,
            shapes=((1, 1, 1), (2, 5, 1)),
            large=((3, 130, 33), (37, 3, 257)),
            empty=((0, 4, 2), (3, 0, 2), (3, 4, 0)),
        )

# --- Shapes: values are moved, never changed ------------------------------------------------------------------------

MOVES = {"dtypes": ALL}
row("reshape(x, 4, -1)", lambda x: x.reshape(4, -1), 2, 3, 4, **MOVES, empty=((2, 0, 4),))
row("reshape(x, (3, 1, 8))", lambda x: x.reshape(3, 1, 8), 2, 3, 4, **MOVES)
row("x.T.reshape(6)", lambda x: x.T.reshape(6), 2, 3, **MOVES, note="copies")
row("view(x, 2, 3)", lambda x: x.reshape(2, 3), 6, **MOVES)
row("reshape(x, ())", lambda x: x.reshape(()), 1, 1, **MOVES)
row("flatten(x)", np.ravel, 2, 3, 4, **MOVES, shapes=((),), empty=((2, 0, 3),))
row("flatten(x, 1)", lambda x: x.reshape(len(x), -1), 2, 3, 4, **MOVES)
row("flatten(x, -3, -2)", lambda x: x.reshape(2, 12, 2), 2, 3, 4, 2, **MOVES)
row("transpose(x, 0, -1)", lambda x: np.swapaxes(x, 0, -1), 2, 3, 4, **MOVES, empty=((0, 2),))
row("t(x)", np.transpose, 2, 3, **MOVES, shapes=((4,), ()))
row("x.T", np.transpose, 2, 3, **MOVES)
row("permute(x, 2, 0, 1)", lambda x: x.transpose(2, 0, 1), 2, 3, 4, **MOVES, empty=((0, 2, 3),), large=((33, 5, 70),))
row("permute(x, (1, -1, 0))", lambda x: x.transpose(1, 2, 0), 2, 3, 4, **MOVES)
row("broadcast_to(x, (4, 2, 3))", lambda x: np.broadcast_to(x, (4, 2, 3)), 2, 1, **MOVES)
row("expand(x, 4, -1, 3)", lambda x: np.broadcast_to(x, (4, 2, 3)), 2, 1, **MOVES)
row("broadcast_to(x, 0, 3)", lambda x: np.broadcast_to(x, (0, 3)), 3, **MOVES)
row("squeeze(x)", np.squeeze, 1, 3, 1, **MOVES, shapes=((2, 3), ()))
row("squeeze(x, -1)", lambda x: x.squeeze(-1), 1, 3, 1, **MOVES, empty=((0, 1),))
row("squeeze(x, 0)", lambda x: x, 2, 3, **MOVES)
row("unsqueeze(x, 1)", lambda x: np.expand_dims(x, 1), 2, 3, **MOVES, empty=((0, 2),))
row("unsqueeze(x, -1)", lambda x: np.expand_dims(x, -1), 2, 3, **MOVES, shapes=((),))
row("flip(x, 0)", lambda x: np.flip(x, 0), 2, 3, **MOVES, empty=((0, 3),))
row("flip(x, (0, -1))", lambda x: np.flip(x, (0, -1)), 2, 3, 4, **MOVES)
row("contiguous(x.T)", np.transpose, 2, 3, **MOVES, large=((70, 41),), kernels=("copy",))
row("clone(x)", np.copy, 2, 3, **MOVES, shapes=((),), empty=((0,),), large=((3000,),), kernels=("copy",))

add(
    "cat((x, y, x), 1)",
    lambda x, y: np.concatenate((x, y, x), 1),
    x=num(2, 3),
    y=num(2, 1),
    dtypes=ALL,
    shapes=({"x": (2, 3, 2), "y": (2, 4, 2)},),
    empty=({"x": (2, 0), "y": (2, 3)}, {"x": (0, 3), "y": (0, 2)}, {"x": (2, 0), "y": (2, 0)}),
)
add("cat([x, y], dim=-2)", lambda x, y: np.concatenate((x, y), -2), x=num(2, 3), y=num(4, 3), dtypes=ALL)
add(
    "stack((x, y), -1)",
    lambda x, y: np.stack((x, y), -1),
    x=num(2, 3),
    y=num(2, 3),
    dtypes=ALL,
    shapes=({"x": (), "y": ()},),
    empty=({"x": (0,), "y": (0,)},),
)
add("stack([x, x])", lambda x: np.stack((x, x)), x=num(2, 3), dtypes=ALL)
row("split(x, 2, -1)", lambda x: [x[:, :2], x[:, 2:4], x[:, 4:]], 2, 5, **MOVES, empty=((0, 5),))
row("split(x, [1, 3, 0], 1)", lambda x: [x[:, :1], x[:, 1:], x[:, 4:]], 2, 4, **MOVES)
row("chunk(x, 2)", lambda x: [x[:3], x[3:]], 5, 2, **MOVES)
row("chunk(x, 4, dim=1)", lambda x: [x[:, :2], x[:, 2:4], x[:, 4:]], 1, 5, **MOVES)
row("unbind(x, 1)", lambda x: [x[:, 0], x[:, 1]], 3, 2, **MOVES, empty=((0, 2),))

# --- Indexing -------------------------------------------------------------------------------------------------------

row("select(x, 1, -2)", lambda x: x[:, -2], 2, 3, **MOVES, empty=((0, 3),))
row("slice(x, 0, 1, 6, 2)", lambda x: x[1:6:2], 7, 2, **MOVES, shapes=((2,), (1, 3)), empty=((0, 3),))
row("slice(x, -1, -3, 100)", lambda x: x[..., -3:100], 2, 5, **MOVES)
row("narrow(x, 1, 1, 2)", lambda x: x[:, 1:3], 2, 4, **MOVES)
row("narrow(x, 0, -2, 1)", lambda x: x[-2:-1], 3, 2, **MOVES)
for key, shape in {
    "1": (3, 2),
    "-1": (3, 2),
    "1:": (3, 2),
    "::2": (5, 2),
    "5:2": (4, 2),
    "-100:100:3": (8,),
    "..., 0": (2, 3, 4),
    "1, ..., ::3": (2, 3, 7),
    "None": (2, 3),
    ":, None, 1": (2, 3),
    "...": (),
    "0, 1, 2": (2, 3, 4),
    "...,": (2,),
    "1:1, 0": (3, 2),
}.items():
    row(f"x[{key}]", eval(f"lambda x: x[{key}]"), *shape, **MOVES)
row("x[0:0]", lambda x: x[0:0], 3, 2, **MOVES, empty=((0, 2),))
row("x[[2, 0, -1]]", lambda x: x[[2, 0, -1]], 3, 2, **MOVES, kernels=("index_select", "scatter_add"))
row("x[:, [0, 0, 1]]", lambda x: x[:, [0, 0, 1]], 3, 2, **MOVES)
ROWS.append(
    Row(
        "x[i]",
        lambda x, i: x[i],
        x=num(4, 2),
        i=ints(2, 3, low=-4, high=4),
        dtypes=ALL,
        empty=({"i": (0,)}, {"i": (2, 0)}),
    )
)
ROWS.append(
    Row("x[i, j]", lambda x, i, j: x[i, j], x=num(4, 3), i=ints(2, 1, low=-4, high=4), j=ints(5, high=3), dtypes=ALL)
)
row("x[x > 0.5]", lambda x: x[x > 0.5], 3, 4, dtypes=NUMBERS, avoid=[0.5], note="mask")
row("x[tensor([True, False, True])]", lambda x: x[[0, 2]], 3, 2, **MOVES)

add(
    "index_select(x, 1, i)",
    lambda x, i: x[:, i],
    x=num(2, 5, 3),
    i=ints(4, low=-5, high=5),
    dtypes=ALL,
    shapes=({"i": (1,)},),
    large=({"x": (3, 5, 130), "i": (70,)},),
    empty=({"i": (0,)}, {"x": (0, 5, 3)}, {"x": (2, 5, 0)}),
)
add(
    "gather(x, 0, i)",
    lambda x, i: reference.gather(x, 0, i),
    x=num(4, 3),
    i=ints(2, 3, high=4),
    dtypes=ALL,
    shapes=({"i": (5, 2)}, {"i": (1, 1)}),
    large=({"x": (4, 130), "i": (70, 129)},),
    empty=({"i": (0, 3)}, {"i": (2, 0)}),
    kernels=("scatter_add",),
)
ROWS.append(
    Row(
        "gather(x, -1, i)", lambda x, i: reference.gather(x, -1, i), x=num(2, 3, 4), i=ints(2, 3, 5, high=4), dtypes=ALL
    )
)
add(
    "scatter_add(x, 1, i, 4)",
    lambda x, i: reference.scatter_add(x, 1, i, 4),
    x=num(2, 5),
    i=ints(2, 5, high=4),
    dtypes=NUMBERS,
    terms=lambda x, i: reference.scatter_add(np.abs(x), 1, i, 4),
    large=({"x": (3, 130), "i": (3, 130)},),
    empty=({"x": (2, 0), "i": (2, 0)}, {"x": (0, 5), "i": (0, 5)}),
    kernels=("gather",),
)
add(
    "scatter_add(x, 0, i, 3)",
    lambda x, i: reference.scatter_add(x, 0, i, 3),
    x=num(4, 3),
    i=ints(4, 3, high=3),
    dtypes=NUMBERS,
    terms=lambda x, i: reference.scatter_add(np.abs(x), 0, i, 3),
)
row("one_hot(argmax(x, 1), 4)", lambda x: np.eye(4)[x.argmax(1)], 3, 4, dtypes=ALL, result="float32", grad=())

add(
    "put(clone(x), at[1:, ::2], y)",
    lambda x, y: reference.put(x, np.s_[1:, ::2], y),
    x=num(3, 4),
    y=num(2, 2),
    dtypes=ALL,
    shapes=({"y": ()}, {"y": (2, 1)}),
)
add("put(clone(x), -1, y)", lambda x, y: reference.put(x, -1, y), x=num(3, 2), y=num(2), dtypes=ALL)
row("put(clone(x), at[..., 1], 1)", lambda x: reference.put(x, np.s_[..., 1], 1), 3, 2, dtypes=ALL)
row("put(clone(x), x > 0.5, 1)", lambda x: np.where(x > 0.5, x * 0 + 1, x), 3, 4, dtypes=NUMBERS, avoid=[0.5])
row("put(clone(x), at[1:1], 5)", np.copy, 3, 2, dtypes=NUMBERS)

# --- Padding --------------------------------------------------------------------------------------------------------

for padding in ((1, 2), (0, 1, 2, 0), (-1, 2), (-1, -1, 0, -2), (0, 0), (2, 1, 0, 3, 1, 1)):
    row(f"pad(x, {padding})", lambda x, p=padding: reference.pad(x, p), 2, 3, 4, dtypes=ALL)
row("pad(x, (1, 1), value=1.5)", lambda x: reference.pad(x, (1, 1), value=1.5), 2, 3, empty=((0, 3), (2, 0)))
for mode in ("reflect", "replicate", "circular"):
    for padding in ((1, 2), (2, 0, 1, 2), (0, 0)):
        row(
            f"pad(x, {padding}, mode='{mode}')",
            lambda x, p=padding, m=mode: reference.pad(x, p, m),
            2,
            3,
            4,
            dtypes=ALL,
            empty=((0, 3, 4),),
        )

"""Rows of the op table: linear algebra, convolution, pooling, normalisation, losses, fused optimizers.

Main entry: ROWS.
"""

import numpy as np
import op_reference as reference
from op_table import NUMBERS, Row, ints, num, stat

ROWS = []

# --- Matrix products -------------------------------------------------------------------------------------------------------


def product(expr, a, b, note="", **fields):
    ROWS.append(
        Row(expr, lambda a, b: np.matmul(a, b), a=num(*a), b=num(*b), terms=True, bits=False, note=note, **fields)
    )


product("matmul(a, b)", (3, 4), (4, 2),
        shapes=({"a": (1, 1), "b": (1, 1)}, {"a": (5, 1), "b": (1, 3)}, {"a": (1, 7), "b": (7, 1)}),
        large=({"a": (17, 33), "b": (33, 9)}, {"a": (70, 130), "b": (130, 67)}, {"a": (1, 300), "b": (300, 65)}, {"a": (129, 5), "b": (5, 1)}),
        empty=({"a": (0, 4)}, {"b": (4, 0)}, {"a": (3, 0), "b": (0, 2)}))  # fmt: skip
product("a @ b", (4,), (4,), note="dot", empty=({"a": (0,), "b": (0,)},), large=({"a": (1000,), "b": (1000,)},))
product("a @ b", (4,), (4, 3), note="row", large=({"a": (130,), "b": (130, 67)},))
product("a @ b", (3, 4), (4,), note="column", large=({"a": (67, 130), "b": (130,)},))
product("a @ b", (2, 3, 4), (4, 2), note="one matrix for a batch", empty=({"a": (0, 3, 4)}, {"a": (2, 0, 4)}))
product("a @ b", (3, 4), (2, 4, 2), note="one matrix, a batch on the right")
product("a @ b", (2, 1, 3, 4), (3, 4, 2), note="batches broadcast", empty=({"a": (0, 1, 3, 4)}, {"b": (0, 4, 2)}),
        large=({"a": (3, 1, 17, 33), "b": (5, 33, 9)},))  # fmt: skip
product("a @ b", (2, 3, 4), (4,), note="batch and vector")
ROWS.append(
    Row(
        "a.T @ b.T",
        lambda a, b: a.T @ b.T,
        a=num(4, 3),
        b=num(2, 4),
        terms=True,
        bits=False,
        large=({"a": (70, 33), "b": (41, 70)},),
    )
)
LINEAR_LARGE = (
    {"x": (37, 130), "w": (67, 130), "b": (67,)},
    {"x": (3, 5, 64), "w": (33, 64), "b": (33,)},
    {"x": (128, 256), "w": (10, 256), "b": (10,)},
)
ROWS.append(Row("linear(x, w, b)", lambda x, w, b: x @ w.T + b, x=num(3, 4), w=num(2, 4), b=num(2), terms=True, bits=False,
                shapes=({"x": (4,)}, {"x": (2, 3, 4)}, {"x": (1, 1), "w": (1, 1), "b": (1,)}), large=LINEAR_LARGE, kernels=("matmul", "column_sum"),
                empty=({"x": (0, 4)}, {"w": (0, 4), "b": (0,)}, {"x": (3, 0), "w": (2, 0)})))  # fmt: skip
ROWS.append(Row("linear(x, w)", lambda x, w: x @ w.T, x=num(2, 3, 4), w=num(2, 4), terms=True, bits=False))

# --- Convolution and its adjoints --------------------------------------------------------------------------------------------

# options, x, weight: small ones, for numeric gradients.
CONVOLUTIONS = (
    ({}, (2, 4, 5, 2), (3, 3, 2, 2)),
    ({"padding": 1}, (1, 4, 3, 2), (2, 3, 3, 2)),
    ({"stride": 2, "padding": 1}, (2, 5, 4, 1), (2, 3, 3, 1)),
    ({"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)}, (1, 5, 6, 2), (2, 2, 3, 2)),
    ({"groups": 2, "padding": 1}, (2, 3, 3, 4), (4, 3, 3, 2)),
    ({"groups": 3}, (1, 4, 4, 3), (6, 2, 2, 1)),
    ({"stride": 3}, (2, 4, 4, 3), (2, 1, 1, 3)),
    ({"dilation": 2, "padding": (2, 1)}, (1, 3, 5, 2), (1, 2, 2, 2)),
)
# Sizes that take the kernels' fast paths, with rests in every dim.
LARGE_CONVOLUTIONS = (
    ({"padding": 1}, (2, 9, 11, 16), (24, 3, 3, 16)),
    ({"padding": 1}, (1, 8, 8, 3), (33, 3, 3, 3)),
    ({"padding": 1}, (3, 7, 5, 65), (70, 3, 3, 65)),
    ({"stride": 2, "padding": 3}, (2, 15, 14, 3), (20, 7, 7, 3)),
    ({"stride": 2}, (2, 9, 9, 32), (64, 1, 1, 32)),
    ({"padding": 1, "groups": 32}, (2, 9, 7, 32), (32, 3, 3, 1)),
    ({"stride": 2, "padding": 1, "groups": 19}, (1, 9, 9, 19), (38, 3, 3, 1)),
    ({"padding": 2, "dilation": 2, "groups": 4}, (1, 9, 9, 32), (24, 3, 3, 8)),
    ({}, (2, 4, 4, 40), (10, 4, 4, 40)),
)


def option_text(options):
    return "".join(f", {key}={value}" for key, value in options.items())


def convolution(options, x, w, small):
    """Rows for the product and both adjoints at one size; the large ones without numeric gradients."""
    text, (o, _, _, _) = option_text(options), w
    out_h, out_w, _ = reference.conv_taps(
        x, w, *(options.get(k, d) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    )
    y, common = (x[0], out_h, out_w, o), {"terms": True, "numeric": small, "second": small, "note": f"{x} with {w}"}
    ROWS.append(Row(f"conv2d(x, w, b{text})", lambda x, w, b: reference.conv2d(x, w, b, **options), x=num(*x), w=num(*w), b=num(o),
                    kernels=("column_sum",), **common))  # fmt: skip
    ROWS.append(Row(f"conv2d_input_grad(y, w, {x}{text})", lambda y, w: reference.conv2d_input_grad(y, w, x, **options),
                    y=num(*y), w=num(*w), **common))  # fmt: skip
    ROWS.append(Row(f"conv2d_weight_grad(y, x, {w}{text})", lambda y, x: reference.conv2d_weight_grad(y, x, w, **options),
                    y=num(*y), x=num(*x), **common))  # fmt: skip


for options, x_shape, w_shape in CONVOLUTIONS:
    convolution(options, x_shape, w_shape, small=True)
for options, x_shape, w_shape in LARGE_CONVOLUTIONS:
    convolution(options, x_shape, w_shape, small=False)
ROWS.append(Row("conv2d(x, w, padding=1)", lambda x, w: reference.conv2d(x, w, padding=1), x=num(1, 3, 3, 2), w=num(2, 3, 3, 2), terms=True,
                empty=({"x": (0, 3, 3, 2)}, {"w": (0, 3, 3, 2)}, {"x": (1, 0, 3, 2), "w": (2, 1, 1, 2)}, {"x": (1, 3, 3, 0), "w": (2, 3, 3, 0)})))  # fmt: skip

# --- Pooling -----------------------------------------------------------------------------------------------------------------

POOLS = (
    "2", "2, stride=1", "3, stride=2, padding=1", "(2, 3), stride=(1, 2), padding=(1, 0)", "3, stride=3, ceil_mode=True",
    "2, stride=2, padding=1, ceil_mode=True", "1", "3, stride=1, padding=1",
)  # fmt: skip
POOL_SHAPES = {
    "shapes": ({"x": (1, 3, 3, 1)},),
    "large": ({"x": (2, 9, 11, 35)}, {"x": (3, 8, 8, 64)}),
    "empty": ({"x": (0, 4, 5, 2)}, {"x": (2, 4, 5, 0)}),
}
for arguments in POOLS:
    ROWS.append(Row(f"max_pool2d(x, {arguments})", eval(f"lambda x: reference.max_pool2d(x, {arguments})", {"reference": reference}),
                    x=num(2, 4, 5, 2), dtypes=NUMBERS, kernels=("max_pool2d_gather", "max_pool2d_scatter"), **POOL_SHAPES))  # fmt: skip
    ROWS.append(Row(f"avg_pool2d(x, {arguments})", eval(f"lambda x: reference.avg_pool2d(x, {arguments})", {"reference": reference}),
                    x=num(2, 4, 5, 2), terms=True, **POOL_SHAPES))  # fmt: skip
ROWS.append(Row("avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)",
                lambda x: reference.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x=num(2, 4, 5, 2), terms=True, **POOL_SHAPES))  # fmt: skip
ROWS.append(Row("max_pool1d(x, 2)", lambda x: reference.max_pool1d(x, 2), x=num(2, 5, 3)))
ROWS.append(Row("max_pool1d(x, 3, stride=2, padding=1, ceil_mode=True)", lambda x: reference.max_pool1d(x, 3, 2, 1, True), x=num(2, 6, 2),
                empty=({"x": (0, 6, 2)},), kernels=("max_pool2d",)))  # fmt: skip
ROWS.append(Row("global_avg_pool2d(x)", lambda x: x.mean((1, 2)), x=num(2, 3, 4, 2), terms=True, kernels=("sum",),
                large=({"x": (3, 8, 8, 70)},), empty=({"x": (0, 3, 4, 2)}, {"x": (2, 3, 4, 0)})))  # fmt: skip

# --- Normalisation, dropout -----------------------------------------------------------------------------------------------------

TRAIN_SHAPES = {
    "shapes": ({"x": (5, 3)}, {"x": (5, 1, 3)}),
    "large": ({"x": (4, 7, 5, 3)}, {"x": (3, 9, 9, 67), "w": (67,), "b": (67,)}),
}
ROWS.append(Row("batch_norm(x, None, None, w, b, training=True)", lambda x, w, b: reference.batch_norm(x, weight=w, bias=b, training=True),
                x=num(2, 2, 2, 3), w=stat(3), b=stat(3), terms=lambda x, w, b: 8.0, **TRAIN_SHAPES,
                empty=({"x": (0, 2, 2, 3)}, {"x": (2, 2, 2, 0), "w": (0,), "b": (0,)})))  # fmt: skip
ROWS.append(Row("batch_norm(x, None, None, training=True, eps=0.1)", lambda x: reference.batch_norm(x, training=True, eps=0.1),
                x=num(4, 3), terms=lambda x: 8.0))  # fmt: skip
ROWS.append(Row("batch_norm(x, None, None, w, training=True)", lambda x, w: reference.batch_norm(x, weight=w, training=True),
                x=num(4, 3), w=stat(3), terms=lambda x, w: 8.0))  # fmt: skip
ROWS.append(Row("batch_norm(x, m, v, w, b)", reference.batch_norm, x=num(2, 2, 2, 3), m=stat(3), v=stat(3, low=0.5, high=2), w=stat(3), b=stat(3),
                grad=("x", "w", "b"), terms=lambda x, m, v, w, b: 16.0, shapes=({"x": (1, 3)}, {"x": (3,)}), empty=({"x": (0, 3)},)))  # fmt: skip
ROWS.append(Row("batch_norm(x, m, v)", reference.batch_norm, x=num(2, 3), m=stat(3), v=stat(3, low=0.5, high=2), grad=("x",),
                terms=lambda x, m, v: 8.0))  # fmt: skip
ROWS.append(Row("dropout(x, 0.5, training=False)", np.copy, x=num(2, 3), vector=True))
ROWS.append(Row("dropout(x, 0)", np.copy, x=num(2, 3), vector=True))
ROWS.append(Row("dropout(x, 1)", np.zeros_like, x=num(2, 3), vector=True))

# --- Losses ------------------------------------------------------------------------------------------------------------------------

LOGITS = {
    "x": num(4, 3, low=-3, high=3),
    "i": ints(4, high=3),
    "terms": lambda x, i, w=1: 16.0 * max(1, len(np.atleast_1d(i))),
}
LOSS_LARGE = ({"x": (37, 10), "i": (37,)}, {"x": (3, 1000), "i": (3,)}, {"x": (2, 5, 3), "i": (2, 5)})
for arguments in (
    "", "reduction='sum'", "reduction='none'", "label_smoothing=0.1", "label_smoothing=0.2, reduction='sum'",
    "ignore_index=1", "ignore_index=1, label_smoothing=0.1, reduction='none'",
):  # fmt: skip
    options = eval(f"dict({arguments})")
    text = f", {arguments}" if arguments else ""
    ROWS.append(Row(f"cross_entropy(x, i{text})", lambda x, i, o=options: reference.cross_entropy(x, i, **o), **LOGITS,
                    large=LOSS_LARGE, empty=({"x": (0, 3), "i": (0,)},)))  # fmt: skip
WEIGHTED = {**LOGITS, "w": stat(3, low=0.2, high=2), "grad": ("x",)}
for arguments in ("", "label_smoothing=0.1", "ignore_index=2, label_smoothing=0.3", "reduction='none'"):
    options = eval(f"dict({arguments})")
    text = f", {arguments}" if arguments else ""
    ROWS.append(
        Row(
            f"cross_entropy(x, i, w{text})",
            lambda x, i, w, o=options: reference.cross_entropy(x, i, w, **o),
            **WEIGHTED,
        )
    )
PROBABILITIES = {"x": num(4, 3, low=-3, high=3), "t": num(4, 3, low=0.05, high=0.95), "terms": lambda x, t: 64.0}
ROWS.append(
    Row("cross_entropy(x, t)", reference.cross_entropy, **PROBABILITIES, large=({"x": (33, 10), "t": (33, 10)},))
)
ROWS.append(Row("cross_entropy(x, t, label_smoothing=0.1, reduction='none')",
                lambda x, t: reference.cross_entropy(x, t, label_smoothing=0.1, reduction="none"), **PROBABILITIES))  # fmt: skip
LOG_P = {**LOGITS, "x": num(4, 3, low=-3, high=-0.1)}
for arguments in ("", "reduction='none'", "ignore_index=0, reduction='sum'"):
    options = eval(f"dict({arguments})")
    text = f", {arguments}" if arguments else ""
    ROWS.append(Row(f"nll_loss(x, i{text})", lambda x, i, o=options: reference.nll_loss(x, i, **o), **LOG_P,
                    large=LOSS_LARGE[:2], kernels=("cross_entropy",)))  # fmt: skip
ROWS.append(Row("nll_loss(x, i, w)", reference.nll_loss, **{**LOG_P, "w": stat(3, low=0.2, high=2), "grad": ("x",)}))

REDUCE = {"mean": np.mean, "sum": np.sum, "none": lambda each: each}
for name, each in {
    "mse_loss": lambda x, t: (x - t) ** 2,
    "l1_loss": lambda x, t: np.abs(x - t),
    "binary_cross_entropy_with_logits": reference.bce_with_logits,
}.items():
    for reduction, reduce in REDUCE.items():
        t = num(3, 4, low=0.05, high=0.95) if name.startswith("binary") else num(3, 4)
        ROWS.append(Row(f"{name}(x, t, reduction='{reduction}')", lambda x, t, e=each, r=reduce: r(e(x, t)), x=num(3, 4), t=t,
                        terms=lambda x, t, r=reduction: 16.0 * (x.size if r == "sum" else 1), large=({"x": (37, 41), "t": (37, 41)},),
                        empty=({"x": (0, 4), "t": (0, 4)},) if reduction != "mean" else ()))  # fmt: skip

# --- Fused optimizers: parameters after two steps -----------------------------------------------------------------------------------


def sgd(p, g, h):
    """lr 0.1, momentum 0.9, weight_decay 0.01 (Sutskever et al. 2013)."""
    v = g + 0.01 * p
    p = p - 0.1 * v
    return p - 0.1 * (0.9 * v + h + 0.01 * p)


def adam(p, g, h, decay=0.01, decoupled=True):
    """lr 0.1, betas 0.9 and 0.999, eps 1e-8 (arXiv 1412.6980, 1711.05101)."""
    m = v = 0
    for step, grad in enumerate((g, h), 1):
        if decoupled:
            p = p * (1 - 0.1 * decay)
        else:
            grad = grad + decay * p
        m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        p = p - 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return p


STEPS = {
    "p": num(3, 5),
    "g": num(3, 5),
    "h": num(3, 5),
    "grad": (),
    "large": (dict.fromkeys("pgh", (1033,)),),
    "empty": (dict.fromkeys("pgh", (0,)),),
}
# Each step rounds the parameter.
SIZE = {"terms": lambda p, g, h: np.abs(p) + 0.2, "rounds": 2}
ROWS.append(
    Row(
        "stepped(lambda q: optim.SGD(q, lr=0.1, momentum=0.9, weight_decay=0.01), p, g, h)",
        sgd,
        kernels=("sgd",),
        **STEPS,
        **SIZE,
    )
)
ROWS.append(
    Row(
        "stepped(lambda q: optim.AdamW(q, lr=0.1, weight_decay=0.01), p, g, h)",
        adam,
        kernels=("adam",),
        **STEPS,
        **SIZE,
    )
)
ROWS.append(
    Row(
        "stepped(lambda q: optim.Adam(q, lr=0.1, weight_decay=0.01), p, g, h)",
        lambda p, g, h: adam(p, g, h, decoupled=False),
        **STEPS,
        **SIZE,
    )
)

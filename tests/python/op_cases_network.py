"""Rows of the op table: linear algebra, convolution, pooling, normalisation.

Main entry: ROWS.
"""

import numpy as np
import op_reference as reference
from op_dtypes import NUMBERS
from op_table import Row, num, stat

ROWS = []


def add(expr, ref, **fields):
    ROWS.append(Row(expr, ref, **fields))


# --- Matrix products ------------------------------------------------------------------------------------------------


def product(expr, a, b, note="", **fields):
    ROWS.append(
        Row(expr, lambda a, b: np.matmul(a, b), a=num(*a), b=num(*b), terms=True, bits=False, note=note, **fields)
    )


product(
    "matmul(a, b)",
    (3, 4),
    (4, 2),
    shapes=({"a": (1, 1), "b": (1, 1)}, {"a": (5, 1), "b": (1, 3)}, {"a": (1, 7), "b": (7, 1)}),
    large=(
        {"a": (17, 33), "b": (33, 9)},
        {"a": (70, 130), "b": (130, 67)},
        {"a": (1, 300), "b": (300, 65)},
        {"a": (129, 5), "b": (5, 1)},
    ),
    empty=({"a": (0, 4)}, {"b": (4, 0)}, {"a": (3, 0), "b": (0, 2)}),
)
product("a @ b", (4,), (4,), note="dot", empty=({"a": (0,), "b": (0,)},), large=({"a": (1000,), "b": (1000,)},))
product("a @ b", (4,), (4, 3), note="row", large=({"a": (130,), "b": (130, 67)},))
product("a @ b", (3, 4), (4,), note="column", large=({"a": (67, 130), "b": (130,)},))
product("a @ b", (2, 3, 4), (4, 2), note="one matrix for a batch", empty=({"a": (0, 3, 4)}, {"a": (2, 0, 4)}))
product("a @ b", (3, 4), (2, 4, 2), note="one matrix, a batch on the right")
product(
    "a @ b",
    (2, 1, 3, 4),
    (3, 4, 2),
    note="batches broadcast",
    empty=({"a": (0, 1, 3, 4)}, {"b": (0, 4, 2)}),
    large=({"a": (3, 1, 17, 33), "b": (5, 33, 9)},),
)
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
add(
    "linear(x, w, b)",
    lambda x, w, b: x @ w.T + b,
    x=num(3, 4),
    w=num(2, 4),
    b=num(2),
    terms=True,
    bits=False,
    shapes=({"x": (4,)}, {"x": (2, 3, 4)}, {"x": (1, 1), "w": (1, 1), "b": (1,)}),
    large=LINEAR_LARGE,
    kernels=("matmul", "column_sum"),
    empty=({"x": (0, 4)}, {"w": (0, 4), "b": (0,)}, {"x": (3, 0), "w": (2, 0)}),
)
add("linear(x, w)", lambda x, w: x @ w.T, x=num(2, 3, 4), w=num(2, 4), terms=True, bits=False)

# --- Convolution and its adjoints -----------------------------------------------------------------------------------

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


def convolution(options, x, w, small, loose=1):
    """Rows for the product and both adjoints at one size; the large ones without numeric gradients."""
    text, o = option_text(options), w[0]
    out_h, out_w, _ = reference.conv_taps(
        x, w, *(options.get(k, d) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    )
    y, common = (x[0], out_h, out_w, o), {"terms": True, "numeric": small, "second": small, "note": f"{x} with {w}"}
    common["loose"] = loose
    add(
        f"conv2d(x, w, b{text})",
        lambda x, w, b: reference.conv2d(x, w, b, **options),
        x=num(*x),
        w=num(*w),
        b=num(o),
        kernels=("column_sum",),
        **common,
    )
    add(
        f"conv2d_input_grad(y, w, {x}{text})",
        lambda y, w: reference.conv2d_input_grad(y, w, x, **options),
        y=num(*y),
        w=num(*w),
        **common,
    )
    add(
        f"conv2d_weight_grad(y, x, {w}{text})",
        lambda y, x: reference.conv2d_weight_grad(y, x, w, **options),
        y=num(*y),
        x=num(*x),
        **common,
    )


for options, x_shape, w_shape in CONVOLUTIONS:
    convolution(options, x_shape, w_shape, small=True)
for options, x_shape, w_shape in LARGE_CONVOLUTIONS:
    # 3x3 of stride 1 and many channels: outputs of a 4x4 tile come from one transform, so that the error of the largest
    # is that of all (core/cpu/winograd.h), also of those at a border, which sum fewer products.
    tiled = w_shape[1:3] == (3, 3) and options == {"padding": 1} and min(w_shape[0], w_shape[3]) >= 16
    convolution(options, x_shape, w_shape, small=False, loose=4 if tiled else 1)
add(
    "conv2d(x, w, padding=1)",
    lambda x, w: reference.conv2d(x, w, padding=1),
    x=num(1, 3, 3, 2),
    w=num(2, 3, 3, 2),
    terms=True,
    empty=(
        {"x": (0, 3, 3, 2)},
        {"w": (0, 3, 3, 2)},
        {"x": (1, 0, 3, 2), "w": (2, 1, 1, 2)},
        {"x": (1, 3, 3, 0), "w": (2, 3, 3, 0)},
    ),
)

# --- Pooling --------------------------------------------------------------------------------------------------------

POOLS = (
    "2",
    "2, stride=1",
    "3, stride=2, padding=1",
    "(2, 3), stride=(1, 2), padding=(1, 0)",
    "3, stride=3, ceil_mode=True",
    "2, stride=2, padding=1, ceil_mode=True",
    "1",
    "3, stride=1, padding=1",
)
POOL_SHAPES = {
    "shapes": ({"x": (1, 3, 3, 1)},),
    "large": ({"x": (2, 9, 11, 35)}, {"x": (3, 8, 8, 64)}),
    "empty": ({"x": (0, 4, 5, 2)}, {"x": (2, 4, 5, 0)}),
}
for arguments in POOLS:
    add(
        f"max_pool2d(x, {arguments})",
        eval(f"lambda x: reference.max_pool2d(x, {arguments})", {"reference": reference}),
        x=num(2, 4, 5, 2),
        dtypes=NUMBERS,
        kernels=("max_pool2d_gather", "max_pool2d_scatter"),
        **POOL_SHAPES,
    )
    add(
        f"avg_pool2d(x, {arguments})",
        eval(f"lambda x: reference.avg_pool2d(x, {arguments})", {"reference": reference}),
        x=num(2, 4, 5, 2),
        terms=True,
        **POOL_SHAPES,
    )
add(
    "avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)",
    lambda x: reference.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    x=num(2, 4, 5, 2),
    terms=True,
    **POOL_SHAPES,
)
add("max_pool1d(x, 2)", lambda x: reference.max_pool1d(x, 2), x=num(2, 5, 3))
add(
    "max_pool1d(x, 3, stride=2, padding=1, ceil_mode=True)",
    lambda x: reference.max_pool1d(x, 3, 2, 1, True),
    x=num(2, 6, 2),
    empty=({"x": (0, 6, 2)},),
    kernels=("max_pool2d",),
)
add(
    "global_avg_pool2d(x)",
    lambda x: x.mean((1, 2)),
    x=num(2, 3, 4, 2),
    terms=True,
    kernels=("sum",),
    large=({"x": (3, 8, 8, 70)},),
    empty=({"x": (0, 3, 4, 2)}, {"x": (2, 3, 4, 0)}),
)

# --- Normalisation, dropout -----------------------------------------------------------------------------------------

TRAIN_SHAPES = {
    "shapes": ({"x": (5, 3)}, {"x": (5, 1, 3)}),
    "large": ({"x": (4, 7, 5, 3)}, {"x": (3, 9, 9, 67), "w": (67,), "b": (67,)}),
}
add(
    "batch_norm(x, None, None, w, b, training=True)",
    lambda x, w, b: reference.batch_norm(x, weight=w, bias=b, training=True),
    x=num(2, 2, 2, 3),
    w=stat(3),
    b=stat(3),
    terms=lambda x, w, b: 8.0,
    **TRAIN_SHAPES,
    empty=({"x": (0, 2, 2, 3)}, {"x": (2, 2, 2, 0), "w": (0,), "b": (0,)}),
)
add(
    "batch_norm(x, None, None, training=True, eps=0.1)",
    lambda x: reference.batch_norm(x, training=True, eps=0.1),
    x=num(4, 3),
    terms=lambda x: 8.0,
)
add(
    "batch_norm(x, None, None, w, training=True)",
    lambda x, w: reference.batch_norm(x, weight=w, training=True),
    x=num(4, 3),
    w=stat(3),
    terms=lambda x, w: 8.0,
)
add(
    "batch_norm(x, m, v, w, b)",
    reference.batch_norm,
    x=num(2, 2, 2, 3),
    m=stat(3),
    v=stat(3, low=0.5, high=2),
    w=stat(3),
    b=stat(3),
    grad=("x", "w", "b"),
    terms=lambda x, m, v, w, b: 16.0,
    shapes=({"x": (1, 3)}, {"x": (3,)}),
    empty=({"x": (0, 3)},),
)
add(
    "batch_norm(x, m, v)",
    reference.batch_norm,
    x=num(2, 3),
    m=stat(3),
    v=stat(3, low=0.5, high=2),
    grad=("x",),
    terms=lambda x, m, v: 8.0,
)
add("dropout(x, 0.5, training=False)", np.copy, x=num(2, 3), vector=True)
add("dropout(x, 0)", np.copy, x=num(2, 3), vector=True)
add("dropout(x, 1)", np.zeros_like, x=num(2, 3), vector=True)

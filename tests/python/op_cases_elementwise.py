"""Rows of the op table: elementwise functions, comparisons, selection, casts, in-place changes, creation.

Main entry: ROWS.
"""

import numpy as np
import op_reference as reference
from op_dtypes import ALL, FLOATS, INTS, NUMBERS
from op_table import Row, bools, ints, num

ROWS = []


def add(expr, ref, **fields):
    ROWS.append(Row(expr, ref, **fields))


# Shapes of two operands that broadcast, and such with a 0 among the sizes.
BROADCAST = (
    {"x": (3, 1, 4), "y": (2, 1)},
    {"x": (3,), "y": ()},
    {"x": (), "y": (2, 3)},
    {"x": (1, 7), "y": (3, 1)},
    {"x": (2, 1, 1, 3), "y": (2, 3, 1)},
)
BROADCAST_LARGE = ({"x": (3, 1, 37), "y": (5, 1)}, {"x": (130,), "y": (3, 1)}, {"x": (67, 1), "y": (67, 41)})
BROADCAST_EMPTY = ({"x": (0,), "y": (1,)}, {"x": (2, 0, 3), "y": (3,)}, {"x": (0, 1), "y": (1, 4)})
INTO = ({"x": (2, 3, 4), "y": (3, 1)}, {"x": (5,), "y": ()}, {"x": (2, 33), "y": (1, 33)})  # y broadcasts to x
INTO_EMPTY = ({"x": (0, 3), "y": (3,)},)


def unary(expr, ref, low=-2.0, high=2.0, avoid=(), **fields):
    """A function of one tensor, elementwise."""
    add(expr, ref, x=num(2, 3, low=low, high=high, avoid=avoid), vector=True, **fields)


def binary(expr, ref, low=-2.0, high=2.0, avoid=(), y=None, **fields):
    """A function of two tensors, elementwise with broadcasting."""
    x = num(2, 3, low=low, high=high, avoid=avoid)
    shapes = {"shapes": BROADCAST, "large": BROADCAST_LARGE, "empty": BROADCAST_EMPTY}
    add(expr, ref, x=x, y=y or x, vector=True, **{**shapes, **fields})


# --- One operand ----------------------------------------------------------------------------------------------------

REAL = {"dtypes": ALL, "result": "float"}  # integers become float32

unary("neg(x)", np.negative, dtypes=NUMBERS)
unary("-x", np.negative, dtypes=NUMBERS, kernels=("neg",))
unary("+x", np.positive, dtypes=NUMBERS)
unary("abs(x)", np.abs, avoid=[0], dtypes=NUMBERS)
unary("x.__abs__()", np.abs, avoid=[0], dtypes=NUMBERS, kernels=("abs",))
unary("sign(x)", np.sign, avoid=[0], dtypes=NUMBERS)
unary("square(x)", np.square, dtypes=NUMBERS)
unary("floor(x)", np.floor, avoid=[-1, 0, 1], dtypes=NUMBERS)
unary("ceil(x)", np.ceil, avoid=[-1, 0, 1], dtypes=NUMBERS)
unary("round(x)", np.round, avoid=[-1.5, -0.5, 0.5, 1.5], dtypes=NUMBERS)
unary("exp(x)", np.exp, **REAL)
unary("expm1(x)", np.expm1, **REAL)
unary("log(x)", np.log, low=0.1, high=4, **REAL)
unary("log1p(x)", np.log1p, low=-0.8, high=3, **REAL)
unary("sqrt(x)", np.sqrt, low=0.1, high=4, **REAL)
unary("rsqrt(x)", lambda x: 1 / np.sqrt(x), low=0.1, high=4, dtypes=NUMBERS, result="float", note="from 0.1")
unary("reciprocal(x)", lambda x: 1 / x, avoid=[0], dtypes=NUMBERS, result="float")
unary("sin(x)", np.sin, low=-7, high=7, terms=np.abs, **REAL)
unary("cos(x)", np.cos, low=-7, high=7, terms=np.abs, **REAL)
unary("tanh(x)", np.tanh, **REAL)
unary("erf(x)", reference.erf, **REAL)
unary("sigmoid(x)", reference.sigmoid, low=-4, high=4, **REAL)
unary("relu(x)", lambda x: np.maximum(x, 0), avoid=[0], dtypes=NUMBERS)
unary("leaky_relu(x)", lambda x: np.where(x > 0, x, 0.01 * x), avoid=[0], **REAL)
unary("leaky_relu(x, 0.2)", lambda x: np.where(x > 0, x, 0.2 * x), avoid=[0], **REAL)
unary("elu(x)", reference.elu, avoid=[0], **REAL)
unary("elu(x, alpha=0.7)", lambda x: reference.elu(x, 0.7), avoid=[0], **REAL)
# 1 + erf cancels for negative x: the error is relative to x, not to the result.
unary("gelu(x)", reference.gelu, low=-4, high=4, terms=np.abs, **REAL)
unary("gelu(x, approximate='tanh')", reference.gelu_tanh, low=-4, high=4, terms=np.abs, kernels=("gelu_tanh",), **REAL)
unary("silu(x)", lambda x: x * reference.sigmoid(x), low=-4, high=4, **REAL)
unary("softplus(x)", reference.softplus, low=-4, high=4, **REAL)
unary(
    "softplus(x, beta=3)", lambda x: reference.softplus(x, 3), low=-3, high=3, loose=2, **REAL
)  # 3 x is rounded before exp
unary("clamp(x, -1, 1)", lambda x: np.clip(x, -1, 1), avoid=[-1, 1], dtypes=NUMBERS)
unary("clamp(x, min=0.25)", lambda x: np.maximum(x, 0.25), avoid=[0.25])
unary("clamp(x, max=0.25)", lambda x: np.minimum(x, 0.25), avoid=[0.25])
unary("isinf(x)", np.isinf, dtypes=ALL, result="bool", grad=())
unary("isfinite(x)", np.isfinite, dtypes=ALL, result="bool", grad=())
unary("isnan(x)", np.isnan, dtypes=ALL, result="bool", grad=())
unary("logical_not(x)", np.logical_not, dtypes=ALL, result="bool", grad=())
unary("~x", np.logical_not, dtypes=("bool",), result="bool", kernels=("logical_not",))

# --- Two operands: tensors, or a number on one side -----------------------------------------------------------------

SUM = {"terms": lambda x, y: np.abs(x) + np.abs(y)}
ADD_KERNEL = {"kernels": ("add",)}
binary("add(x, y)", np.add, dtypes=ALL, **SUM)
binary("add(x, y, alpha=0.5)", lambda x, y: x + 0.5 * y, **SUM)
binary("x + y", np.add, dtypes=ALL, **SUM, **ADD_KERNEL)
binary("sub(x, y)", np.subtract, dtypes=NUMBERS, **SUM, **ADD_KERNEL)
binary("sub(x, y, alpha=2)", lambda x, y: x - 2 * y, terms=lambda x, y: np.abs(x) + 2 * np.abs(y))
binary("x - y", np.subtract, dtypes=NUMBERS, **SUM)
binary("mul(x, y)", np.multiply, dtypes=ALL)
binary("x * y", np.multiply, dtypes=ALL, kernels=("mul",))
binary("div(x, y)", np.divide, avoid=[0], dtypes=NUMBERS, result="float")
binary("x / y", np.divide, avoid=[0], dtypes=NUMBERS, result="float")
binary("floor_divide(x, y)", np.floor_divide, avoid=[0], dtypes=NUMBERS)
binary("x // y", np.floor_divide, avoid=[0], dtypes=NUMBERS)
binary("remainder(x, y)", np.remainder, avoid=[0], dtypes=NUMBERS, terms=lambda x, y: np.abs(y))
binary("x % y", np.remainder, avoid=[0], dtypes=NUMBERS, terms=lambda x, y: np.abs(y))
binary("pow(x, y)", np.power, low=0.2, high=2, kernels=("pow",))
binary("pow(x, y)", np.power, low=0, high=3, dtypes=INTS, note="integers")
binary("x ** y", np.power, low=0.2, high=2)
binary("maximum(x, y)", np.maximum, dtypes=ALL)
binary("minimum(x, y)", np.minimum, dtypes=ALL)
binary("max(x, y)", np.maximum, dtypes=ALL)
binary("min(x, y)", np.minimum, dtypes=ALL)

INTEGER = {"dtypes": ALL, "result": "int"}  # with an integer: bool becomes int64
NUMBER = {"dtypes": NUMBERS, "result": "same"}
ABS_SUM = {"terms": lambda x: np.abs(x) + 3}
unary("x + 3", lambda x: x * 1 + 3, **INTEGER, **ABS_SUM)
unary("x + 0.3", lambda x: x + 0.3, **REAL, **ABS_SUM)
unary("0.3 + x", lambda x: x + 0.3, **REAL, **ABS_SUM)
unary("add(x, 2, alpha=0.5)", lambda x: x + 1, **ABS_SUM)
unary("x - 2", lambda x: x - 2, **NUMBER, **ABS_SUM)
unary("x - 0.3", lambda x: x - 0.3, dtypes=NUMBERS, result="float", **ABS_SUM)
unary("2 - x", lambda x: 2 - x, **NUMBER, **ABS_SUM)
unary("0.3 - x", lambda x: 0.3 - x, dtypes=NUMBERS, result="float", **ABS_SUM)
unary("x * 3", lambda x: x * 3, **INTEGER)
unary("0.3 * x", lambda x: x * 0.3, **REAL)
unary("x / 3", lambda x: x / 3, **REAL)
unary("x / 0.3", lambda x: x / 0.3, **REAL)
unary("2 / x", lambda x: 2 / x, avoid=[0], dtypes=NUMBERS, result="float")
unary("x // 2", lambda x: x // 2, **NUMBER, avoid=[0])
unary("7 // x", lambda x: 7 // x, **NUMBER, avoid=[0], extreme=FLOATS)
unary("x % 3", lambda x: x % 3, **NUMBER, avoid=[0], **ABS_SUM)
unary("x % 0.75", lambda x: x % 0.75, dtypes=NUMBERS, result="float", avoid=[-1.5, -0.75, 0, 0.75, 1.5], **ABS_SUM)
unary("7 % x", lambda x: 7 % x, **NUMBER, avoid=[0], **ABS_SUM, extreme=FLOATS)
unary("x ** 2", lambda x: x**2, dtypes=NUMBERS, kernels=("pow_scalar",))
unary("x ** 3", lambda x: x**3, dtypes=NUMBERS)
unary("x ** 0", lambda x: x**0, dtypes=NUMBERS)
unary("x ** -1", lambda x: x**-1.0, avoid=[0])
unary("x ** 0.5", lambda x: np.power(x, np.full_like(x, 0.5)), low=0.1)
unary("pow(x, 2.5)", lambda x: x**2.5, low=0.1, dtypes=NUMBERS, result="float")
unary("2 ** x", lambda x: 2**x, low=0, high=3, dtypes=NUMBERS, extreme=FLOATS)
unary("0.5 ** x", lambda x: 0.5**x, dtypes=NUMBERS, result="float")
unary("maximum(x, 1)", lambda x: np.maximum(x, 1), avoid=[1], **INTEGER)
unary("maximum(x, 0.5)", lambda x: np.maximum(x, 0.5), avoid=[0.5], **REAL)
unary("minimum(x, 0.5)", lambda x: np.minimum(x, 0.5), avoid=[0.5], **REAL)

BOOL = {"dtypes": ALL, "result": "bool", "grad": ()}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
NUMPY_NAMES = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
for name, symbol in COMPARISONS.items():
    ref = getattr(np, NUMPY_NAMES[name])
    binary(f"{name}(x, y)", ref, **BOOL)
    binary(f"x {symbol} y", ref, **BOOL)
    unary(f"x {symbol} 1", lambda x, ref=ref: ref(x, 1), **BOOL)
    unary(f"{name}(x, 0.5)", lambda x, ref=ref: ref(x, 0.5), **BOOL)
for name, symbol in {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}.items():
    binary(f"{name}(x, y)", getattr(np, name), **BOOL)
    binary(f"x {symbol} y", getattr(np, name), **{**BOOL, "dtypes": ("bool",)})

# --- Selection ------------------------------------------------------------------------------------------------------

CHOICE = {"c": bools(2, 3), "x": num(2, 3), "dtypes": ALL}
WHERE_SHAPES = (
    {"c": (3, 1), "x": (4,), "y": (2, 1, 1)},
    {"c": (), "x": (3,), "y": (1,)},
    {"c": (2, 3, 4), "x": (), "y": ()},
    {"c": (1,), "x": (5, 1), "y": (7,)},
)
ROWS.append(
    Row(
        "where(c, x, y)",
        np.where,
        **CHOICE,
        y=num(2, 3),
        shapes=WHERE_SHAPES,
        vector=True,
        large=({"c": (5, 1), "x": (130,), "y": ()},),
        empty=({"c": (0,), "x": (1,), "y": ()}, {"c": (2, 1), "x": (0,), "y": (1,)}),
    )
)
add("where(c, x, 2)", lambda c, x: np.where(c, x, 2), **CHOICE, result="int", vector=True)
add("where(c, 0.5, x)", lambda c, x: np.where(c, 0.5, x), **CHOICE, result="float", vector=True)
ROWS.append(
    Row("masked_fill(x, c, 3)", lambda c, x: np.where(c, x * 0 + 3, x), **{**CHOICE, "dtypes": NUMBERS}, vector=True)
)

# --- Casts: float to integer truncates, anything to bool is != 0 ----------------------------------------------------

for target in ALL:
    ROWS.append(
        Row(
            f"cast(x, {'bool' if target == 'bool' else target})",
            (lambda x, t=target: reference.saturated(x, t))
            if target in INTS
            else (lambda x: x != 0)
            if target == "bool"
            else (lambda x: x * 1.0),
            x=num(2, 3, low=0 if target == "uint8" else -100, high=100),
            vector=True,
            kernels=("copy",),
            dtypes=ALL,
            result=target,
            numeric=False,
            second=False,
            grad=None if target in FLOATS else (),
        )
    )
METHODS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "byte": "uint8",
    "bool": "bool",
}
for method, target in METHODS.items():
    ROWS.append(
        Row(
            f"x.{method}()",
            (lambda x: x != 0)
            if target == "bool"
            else (lambda x, t=target: reference.saturated(x, t))
            if target in INTS
            else (lambda x: x * 1.0),
            x=num(2, 3, low=0 if target == "uint8" else -50, high=50),
            dtypes=ALL,
            result=target,
            numeric=False,
            second=False,
            grad=None if target in FLOATS else (),
            vector=True,
        )
    )
ROWS.append(
    Row("x.to(float32)", lambda x: x * 1.0, x=num(2, 3), dtypes=ALL, result="float32", numeric=False, second=False)
)
add("x.cpu()", lambda x: x, x=num(2, 3), dtypes=ALL, vector=True)
add("x.to('cpu')", lambda x: x, x=num(2, 3), dtypes=ALL, vector=True)

# --- In place, on a copy so that the input keeps its values ---------------------------------------------------------

IN_PLACE = {"x": num(2, 3, avoid=[0]), "y": num(2, 3, avoid=[0]), "shapes": INTO, "empty": INTO_EMPTY}
for name, ref, dtypes in (
    ("add", np.add, ALL),
    ("sub", np.subtract, NUMBERS),
    ("mul", np.multiply, ALL),
    ("div", np.divide, FLOATS),
):
    operator = "itruediv" if name == "div" else f"i{name}"
    scale = SUM if name in ("add", "sub") else {}
    add(f"clone(x).{name}_(y)", ref, dtypes=dtypes, **IN_PLACE, **scale)
    add(f"{operator}(clone(x), y)", ref, dtypes=dtypes, **IN_PLACE, **scale)
    unary(
        f"clone(x).{name}_(2)",
        lambda x, ref=ref: ref(x, 2),
        dtypes=FLOATS if name == "div" else NUMBERS,
        **(ABS_SUM if scale else {}),
    )
    unary(f"{operator}(clone(x), 0.3)", lambda x, ref=ref: ref(x, 0.3), **(ABS_SUM if scale else {}))
add("clone(x).add_(y, alpha=0.5)", lambda x, y: x + 0.5 * y, **IN_PLACE, **SUM)
add("clone(x).copy_(y)", lambda x, y: np.broadcast_to(y, x.shape), **IN_PLACE, dtypes=ALL, grad=("y",))
unary("clone(x).fill_(3)", lambda x: np.full_like(x, 3), dtypes=NUMBERS, grad=(), kernels=("fill",))
unary("clone(x).zero_()", np.zeros_like, dtypes=NUMBERS, grad=())
unary("clone(x).mul_(x)", np.square, dtypes=NUMBERS)

# --- Creation: there is nothing to differentiate --------------------------------------------------------------------

for expr, ref in {
    "zeros(2, 3, dtype=dtype)": lambda: np.zeros((2, 3)),
    "ones((2, 3), dtype=dtype)": lambda: np.ones((2, 3)),
    "zeros(3, 0, dtype=dtype)": lambda: np.zeros((3, 0)),
    "full((2, 3), 1, dtype=dtype)": lambda: np.ones((2, 3)),
    "eye(3, dtype=dtype)": lambda: np.eye(3),
    "eye(2, 4, dtype=dtype)": lambda: np.eye(2, 4),
    "zeros_like(ones(2, 3, dtype=dtype))": lambda: np.zeros((2, 3)),
    "ones_like(zeros(2, 3, dtype=dtype))": lambda: np.ones((2, 3)),
    "full_like(zeros(2, dtype=dtype), 1)": lambda: np.ones(2),
    "empty(2, 3, dtype=dtype).fill_(1)": lambda: np.ones((2, 3)),
    "empty_like(zeros(2, dtype=dtype)).fill_(0)": lambda: np.zeros(2),
}.items():
    add(expr, ref, dtypes=ALL, kernels=("fill",))
for expr, ref in {
    "arange(5, dtype=dtype)": lambda: np.arange(5),
    "arange(2, 11, 3, dtype=dtype)": lambda: np.arange(2, 11, 3),
    "arange(3, 3, dtype=dtype)": lambda: np.zeros(0),
    "arange(9, 2, -2, dtype=dtype)": lambda: np.arange(9, 2, -2),
}.items():
    add(expr, ref, dtypes=NUMBERS, kernels=("arange",))
add("arange(0, 2, 0.3, dtype=dtype)", lambda: np.arange(7) * 0.3)
add("linspace(-1, 1, 6, dtype=dtype)", lambda: np.linspace(-1, 1, 6), terms=lambda: 1.0)
ROWS.append(
    Row(
        "one_hot(i, 4, dtype=dtype)",
        lambda i: np.eye(4)[i],
        i=ints(2, 3, high=4),
        dtypes=ALL,
        empty=({"i": (0,)}, {"i": (2, 0)}),
    )
)

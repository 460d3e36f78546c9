"""Element types in the op table: rounding, conversion between tensors and arrays, and how near is near enough.

Main entry: TOLERANCE, round_to(), check_close().
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64", "uint8")
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, "bool")


# --- dtypes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tolerance:
    """How far a result of a dtype may lie from the exact one: `rounding` of the result (half a unit in the last place,
    relative), plus `compute` (relative) for what is lost on the way, plus `tiny` where numbers have no full precision.
    16-bit floats are computed in float32 and rounded once."""

    rounding: float
    compute: float
    tiny: float


# The named tolerances. compute: 8 units of the dtype that is computed in (float64: of the reference too).
TOLERANCE = {
    "float64": Tolerance(2.0**-53, 16 * 2.0**-53, 2.3e-308),
    "float32": Tolerance(2.0**-24, 8 * 2.0**-24, 1.2e-38),
    "float16": Tolerance(2.0**-11, 8 * 2.0**-24, 2.0**-25),
    "bfloat16": Tolerance(2.0**-8, 8 * 2.0**-24, 1.2e-38),
}
# Gradients pass through several functions, and under 16-bit floats each rounds what it hands on.
GRAD_UNITS = {"float64": 64, "float32": 64, "float16": 6, "bfloat16": 6}


def round_to(array: np.ndarray, dtype: str) -> np.ndarray:
    """float64 values rounded to nearest (ties to even) in a float dtype, back in float64. Overflow gives infinity."""
    array = np.asarray(array, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return array.astype(dtype).astype(np.float64)
        _, exponent = np.frexp(array)
        unit = np.ldexp(1.0, np.maximum(exponent, -125) - 8)  # 8 significant bits; subnormals below 2^-126
        rounded = np.where(np.isfinite(array), np.rint(array / unit) * unit, array)
        return np.where(np.abs(rounded) > 3.3895313892515355e38, np.copysign(np.inf, array), rounded)


def cast_reference(value: Any, dtype: str) -> np.ndarray:
    """A reference result in the form check_close() wants: float64 for floats, else an array of the dtype, wrapped."""
    value = np.asarray(value)
    return value.astype(np.float64) if dtype in FLOATS else value.astype(dtype)


def make_tensor(array: np.ndarray, dtype: str):
    """A contiguous tensor; the values must be representable."""
    import anello

    if dtype == "bfloat16":
        return anello.tensor(np.array(array, np.float32)).cast(anello.bfloat16)
    return anello.tensor(np.array(array, dtype))


def to_array(tensor) -> np.ndarray:
    """Values of a tensor: float64 for floats (exact), else its own dtype. Always a copy."""
    import anello

    tensor = tensor.detach()
    return np.array((tensor.cast(anello.float64) if tensor.dtype.is_floating_point else tensor).numpy())


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal values, equal signs of zeros, NaN at equal places."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype != np.float64:
        return bool(np.array_equal(a, b))
    numbers = ~np.isnan(a)
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[numbers]), np.signbit(b[numbers])))


def check_close(
    actual: np.ndarray, exact: np.ndarray, dtype: str, scale=0.0, loose: float = 1.0, rounds: int = 1, label: str = ""
):
    """`actual` must be `exact` up to the dtype's tolerance; `scale` is the size of what was added up on the way."""
    assert actual.shape == exact.shape, f"{label}: shape {actual.shape}, expected {exact.shape}"
    if dtype not in FLOATS:
        wrong = np.argwhere(actual != exact)
        assert not len(wrong), (
            f"{label}: {actual[tuple(wrong[0])]} at {tuple(wrong[0])}, expected {exact[tuple(wrong[0])]}"
        )
        return
    rounded, tolerance = round_to(exact, dtype), TOLERANCE[dtype]
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.where(np.isfinite(exact), np.abs(exact), 0)
        allowed = (
            tolerance.rounding * (size + (rounds - 1) * (size + scale))
            + loose * tolerance.compute * (size + scale)
            + tolerance.tiny
        )
        same = (np.isnan(actual) & np.isnan(exact)) | (actual == rounded)
        near = np.isfinite(actual) & np.isfinite(exact) & (np.abs(actual - exact) <= allowed)
    wrong = np.argwhere(~(same | near))
    if len(wrong):
        at = tuple(wrong[0])
        limit = np.broadcast_to(allowed, actual.shape)[at]
        raise AssertionError(
            f"{label}: {len(wrong)} of {actual.size} elements of {dtype} are off, the first at {tuple(map(int, at))}: "
            f"{actual[at]!r}, exact {exact[at]!r}, difference {abs(actual[at] - exact[at]):.3g}, allowed {limit:.3g}"
        )

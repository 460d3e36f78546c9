"""Wrong calls fail with the right exception and a message of the form "[op] what is wrong, with both values".

Main entry: the tests; the calls are in op_errors.py.
"""

import ast
import re

import pytest
from op_errors import ERRORS
from op_table import namespace
from public_names import functions

import anello

BUILTIN = {
    "ShapeError": ValueError,
    "ValueError": ValueError,
    "IndexError": IndexError,
    "DTypeError": TypeError,
    "DeviceError": RuntimeError,
    "OutOfMemoryError": MemoryError,
    "Error": RuntimeError,
}


def leading_function(expr):
    match = re.match(r"(\w+)\(", expr)
    return match.group(1) if match else None


@pytest.mark.parametrize("expr, kind, words", ERRORS, ids=[expr for expr, _, _ in ERRORS])
def test_wrong_calls(expr, kind, words):
    with pytest.raises(Exception) as caught:
        eval(expr, namespace())
    error, message = caught.value, str(caught.value)
    assert type(error) is getattr(anello, kind), f"{type(error).__name__}: {message}"
    assert isinstance(error, BUILTIN[kind]) and isinstance(error, anello.Error)
    assert re.match(r"\[[^\]]+\] \S", message), message
    if not words[0].startswith("["):
        assert f"{leading_function(expr)}]" in message, message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("name", functions())
def test_an_argument_that_is_no_tensor(name):
    """TypeError that names the function, whatever the function is."""
    with pytest.raises(TypeError, match=rf"\b{name}\b"):
        getattr(anello, name)(object(), object(), object())


def test_every_function_has_a_wrong_call():
    calls = [node.func for expr, _, _ in ERRORS for node in ast.walk(ast.parse(expr)) if isinstance(node, ast.Call)]
    tried = {function.id for function in calls if isinstance(function, ast.Name)}
    assert sorted(set(functions()) - tried - TAKES_ANY_TENSOR) == []


# Functions of one tensor that is never wrong: any shape, any dtype.
TAKES_ANY_TENSOR = {
    "abs",
    "ceil",
    "clone",
    "contiguous",
    "cos",
    "elu",
    "empty_like",
    "erf",
    "exp",
    "expm1",
    "floor",
    "full_like",
    "isfinite",
    "isinf",
    "isnan",
    "leaky_relu",
    "log",
    "log1p",
    "logical_not",
    "neg",
    "ones_like",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "square",
    "tanh",
    "zeros_like",
}

"""Nothing is left out of the op table: each public function, method, operator and kernel has a row, docstring, stub.

Main entry: the tests; what counts as public is in public_names.py.
"""

import ast
from pathlib import Path

import pytest
from op_cases import ROWS
from public_names import (
    NOT_OPERATION_METHODS,
    NOT_OPERATIONS,
    OPERATORS,
    RANDOM,
    RANDOM_METHODS,
    functions,
    is_function,
    methods,
)

import anello

COVERED = set().union(*(row.functions for row in ROWS))
# Kernels that no public function of numbers runs: tests of their own check them.
KERNELS_ELSEWHERE = {
    "combine": "what ranks add up: tests/cpp/test_combine.cpp",
    "dropout": "test_random.py: by its statistics and its own mask",
    "random_integers": "test_random.py",
    "random_normal": "test_random.py",
    "random_uniform": "test_random.py",
    "lerp": "weight averaging: tests/cpp/test_optim.cpp",
    "sum_squares": "gradient clipping: tests/cpp/test_optim.cpp",
    "scale": "gradient clipping: tests/cpp/test_optim.cpp",
}


def test_row_names_are_unique():
    names = [row.id for row in ROWS]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_function_has_a_row():
    assert [name for name in functions() if name not in COVERED] == []


def test_every_method_has_a_row():
    """A method that is a function of the module too is one callable; the others need rows of their own."""
    assert [name for name in methods() if f"Tensor.{name}" not in COVERED] == []


def test_every_operator_has_a_row():
    assert sorted(name for name in OPERATORS if f"Tensor.{name}" not in COVERED) == []


def test_functional_has_the_same_functions():
    functional = anello.nn.functional
    assert [name for name in functional.__all__ if getattr(functional, name) is not getattr(anello, name, None)] == []


def test_every_kernel_has_a_row_in_each_of_its_dtypes():
    rows = {}
    for row in ROWS:
        for kernel in row.kernel_names:
            rows.setdefault(kernel, set()).update(row.dtypes)
    missing = {}
    for kernel, devices in anello.registered_kernels().items():
        if kernel not in KERNELS_ELSEWHERE:
            left = {dtype.name for dtype in devices["cpu"]} - rows.get(kernel, set())
            if left:
                missing[kernel] = sorted(left)
    assert missing == {}


def test_no_row_names_a_kernel_that_is_not_there():
    registered = set(anello.registered_kernels())
    assert {k for row in ROWS for k in row.kernels} - registered == set()
    assert set(KERNELS_ELSEWHERE) - registered == set()


def public_callables():
    names = sorted(NOT_OPERATIONS | RANDOM | set(functions()) | {"grad", "no_grad", "enable_grad"})
    yield from ((name, getattr(anello, name)) for name in names)
    for name in sorted(set(methods()) | NOT_OPERATION_METHODS | RANDOM_METHODS):
        yield f"Tensor.{name}", getattr(anello.Tensor, name)


@pytest.mark.parametrize(
    "name, thing", list(public_callables()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_docstring(name, thing):
    doc = thing.__doc__ or ""
    assert doc.strip(), f"{name} has no docstring"
    if is_function(thing):
        assert ">>>" in doc, f"the docstring of {name} has no example"


def test_every_function_has_a_stub():
    defined = set()
    for path in sorted(Path(anello.__file__).resolve().parent.rglob("*.pyi")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                defined.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                defined.add(node.target.id)
            elif isinstance(node, ast.Assign):
                defined.update(t.id for t in node.targets if isinstance(t, ast.Name))
    wanted = (
        set(functions()) | set(methods()) | NOT_OPERATIONS | RANDOM | NOT_OPERATION_METHODS | RANDOM_METHODS | OPERATORS
    )
    wanted -= {"cmake_dir"}  # written in Python: its source is its stub
    assert sorted(wanted - defined) == []

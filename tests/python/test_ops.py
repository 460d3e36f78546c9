"""The op table: every public function against its NumPy formula, in every dtype, and its gradients against numbers.

Main entry: the tests; rows are in op_cases*.py, the checks in op_checks.py. ANELLO_CPU=avx2 picks other kernels.
"""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("anello") is None:
    pytest.skip(
        "the op table needs the anello package, which is not installed. Hint: ./dev build", allow_module_level=True
    )

import op_checks as checks
from op_cases import ROWS
from op_dtypes import FLOATS
from op_edges import SLOPES, VALUES
from op_table import namespace

import anello

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, about means of nothing


def rows(condition=lambda row: True):
    chosen = [row for row in ROWS if condition(row)]
    return pytest.mark.parametrize("row", chosen, ids=[row.id for row in chosen])


def float_dtypes(row):
    return [dtype for dtype in row.dtypes if dtype in FLOATS]


@rows()
def test_forward(row):
    cases = [(dtype, None) for dtype in row.dtypes]
    cases += [(dtype, shapes) for dtype in row.dtypes for shapes in row.shapes]
    cases += [(dtype, shapes) for dtype in row.dtypes for shapes in row.large]
    checks.each(cases, lambda case: checks.check_forward(row, *case))


@rows(lambda row: row.empty)
def test_empty(row):
    cases = [(dtype, shapes) for dtype in row.dtypes for shapes in row.empty]
    checks.each(cases, lambda case: checks.check_forward(row, *case))
    if row.differentiable and float_dtypes(row):
        checks.each(row.empty, lambda shapes: checks.check_gradients(row, float_dtypes(row)[0], shapes))


@rows(lambda row: row.vector and row.inputs)
def test_any_size(row):
    """Elementwise functions on sizes around those of registers and tiles, on a scalar, and on nothing."""
    shapes = [checks.vector_shapes(row, n) for n in (0, 1, 3, 7, 8, 9, 16, 17, 33, 65, 127, 1031)]
    shapes.append(dict.fromkeys(row.inputs, ()))
    checks.each([(d, s) for d in row.dtypes for s in shapes], lambda case: checks.check_forward(row, *case))


@rows(lambda row: row.vector and len(row.inputs) == 1)
def test_special_values(row):
    checks.each([dtype for dtype in row.dtypes if dtype in row.extreme], lambda dtype: checks.check_special(row, dtype))


@rows(lambda row: row.differentiable and float_dtypes(row))
def test_gradients(row):
    cases = [(dtype, shapes) for dtype in float_dtypes(row) for shapes in (None, *row.shapes, *row.large)]
    checks.each(cases, lambda case: checks.check_gradients(row, *case))


@rows(lambda row: row.differentiable and row.numeric and "float64" in row.dtypes)
def test_numeric_gradients(row):
    checks.each((None, *row.shapes), lambda shapes: checks.check_numeric_gradients(row, shapes))


@rows(lambda row: row.differentiable and row.numeric and row.second and "float64" in row.dtypes)
def test_numeric_second_gradients(row):
    checks.check_numeric_gradients(row, second=True)


@rows(lambda row: row.grad == ())
def test_no_gradient(row):
    checks.each(float_dtypes(row), lambda dtype: checks.check_no_gradient(row, dtype))


@rows(lambda row: row.inputs)
def test_layouts(row):
    cases = [(dtype, shapes) for dtype in row.dtypes for shapes in (None, *row.shapes[:1])]
    cases += [(dtype, shapes) for dtype in ("float32", "bfloat16") if dtype in row.dtypes for shapes in row.large[:1]]
    checks.each(cases, lambda case: checks.check_layouts(row, *case))
    checks.each(row.dtypes, lambda dtype: checks.check_repeated(row, dtype))


@pytest.mark.parametrize("expr, expected", VALUES, ids=[expr for expr, _ in VALUES])
def test_values_at_the_edge(expr, expected):
    result = checks.to_array(eval(expr, namespace()))
    np.testing.assert_allclose(result, np.array(expected, result.dtype), rtol=2e-7, atol=0, strict=True)


@pytest.mark.parametrize("case", SLOPES, ids=[f"{case[0]} at {case[1]}" for case in SLOPES])
def test_slopes_at_the_edge(case):
    expr, *numbers = case
    inputs, slopes = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    function = eval(f"lambda x, y, dtype: {expr}", namespace())
    for dtype in FLOATS:
        x, y = (checks.make_tensor(np.array(v), dtype).requires_grad_() for v in (inputs * 2)[:2])
        tensors = [x, y][: len(inputs)]
        gradients = anello.grad(function(x, y, getattr(anello, dtype)).sum(), tensors)
        for gradient, slope in zip(gradients, slopes):
            tolerance = 1e-6 + 2 * checks.TOLERANCE[dtype].rounding
            np.testing.assert_allclose(checks.to_array(gradient), slope, rtol=tolerance, atol=1e-30, err_msg=dtype)

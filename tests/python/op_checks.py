"""What a row of the op table is put through; test_ops.py runs these on every row.

Main entry: check_forward(), check_gradients(), check_numeric_gradients(), check_layouts().
"""

import math

import numpy as np
from op_dtypes import FLOATS, GRAD_UNITS, TOLERANCE, check_close, make_tensor, round_to, same_bits, to_array
from op_table import as_list

import anello


def each(items, check):
    """Runs check(item) for all items and reports every failure, not only the first."""
    failures = []
    for item in items:
        try:
            check(item)
        except (AssertionError, anello.Error, RuntimeError, TypeError, ValueError, IndexError) as error:
            failures.append(f"{item}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


def weights(shape, output=0):
    """Upstream gradients that every float dtype represents."""
    rng = np.random.default_rng([output, *shape])
    return round_to(round_to(rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape), "bfloat16"), "float16")


# --- Forward --------------------------------------------------------------------------------------------------------


def check_forward(row, dtype, shapes=None, values=None):
    """Values, shape and dtype of the result against the reference; the inputs stay as they were."""
    values = row.sample(dtype, shapes) if values is None else values
    tensors = row.tensors(values, dtype)
    before = [to_array(t) for t in tensors.values()]
    results, expected = row.run(tensors, dtype), row.expected(values, dtype)
    assert len(results) == len(expected), f"{len(results)} results, expected {len(expected)}"
    for i, (result, exact) in enumerate(zip(results, expected)):
        wanted = row.result_dtype(dtype, i)
        assert result.dtype.name == wanted, f"{dtype}: the result is {result.dtype}, expected {wanted}"
        label = f"{dtype} {shapes or ''}"
        check_close(to_array(result), exact, wanted, row.scale(values, i), row.loose, row.rounds, label)
    for name, old, tensor in zip(tensors, before, tensors.values()):
        assert same_bits(old, to_array(tensor)), f"{dtype}: the call changed its input {name}"


# --- Gradients ------------------------------------------------------------------------------------------------------


def gradients(row, values, dtype, wanted=None, layout=None):
    """(results, gradient of each wanted input) of the results weighted by weights()."""
    tensors = row.tensors(values, dtype)
    if layout:
        tensors = {name: layout(t) for name, t in tensors.items()}
    wanted = row.differentiable if wanted is None else wanted
    for name in wanted:
        tensors[name].requires_grad_()
    results = row.run(tensors, dtype)
    outputs = [(i, r) for i, r in enumerate(results) if r.dtype.is_floating_point]
    for _, r in outputs:
        assert r.requires_grad, f"{dtype}: the result does not require a gradient"
    upstream = [make_tensor(weights(r.shape, i), r.dtype.name) for i, r in outputs]
    upstream = [layout(u) if layout else u for u in upstream]
    grads = anello.grad([r for _, r in outputs], [tensors[name] for name in wanted], upstream)
    for name, g in zip(wanted, grads):
        assert g.dtype == tensors[name].dtype, f"{dtype}: the gradient of {name} is {g.dtype}"
        assert g.shape == tensors[name].shape, (
            f"{dtype}: the gradient of {name} has shape {g.shape}, not {tensors[name].shape}"
        )
    return results, list(grads)


def check_gradients(row, dtype, shapes=None):
    """Gradients of a dtype against those of float64 on the same inputs, of all inputs at once and of each alone."""
    values = row.sample(dtype, shapes)
    _, grads = gradients(row, values, dtype)
    if len(row.differentiable) > 1:
        for name, together in zip(row.differentiable, grads):
            _, (alone,) = gradients(row, values, dtype, wanted=(name,))
            check_gradient(
                f"{dtype} gradient of {name} alone", to_array(alone), to_array(together), dtype, row.grad_loose
            )
    if dtype == "float64":
        return
    wide = {name: v.astype(np.float64) if v.dtype.kind == "f" else v for name, v in values.items()}
    _, exact = gradients(row, wide, "float64")
    for name, grad, reference in zip(row.differentiable, grads, exact):
        # An input's own dtype rounds last, but what reaches it passed through the dtype under test.
        check_gradient(
            f"{dtype} {shapes or ''} gradient of {name}", to_array(grad), to_array(reference), dtype, row.grad_loose
        )


def check_gradient(label, grad, exact, dtype, loose):
    size = float(np.max(np.abs(exact), initial=0))
    unit, tiny = TOLERANCE[dtype].rounding, TOLERANCE[dtype].tiny
    allowed = loose * GRAD_UNITS[dtype] * unit * (np.abs(exact) + size) + tiny * 4
    wrong = np.argwhere(~(np.abs(grad - exact) <= allowed))
    if len(wrong):
        at = tuple(wrong[0])
        raise AssertionError(
            f"{label}: {len(wrong)} of {grad.size} off, the first at {tuple(map(int, at))}: {grad[at]!r}, "
            f"exact {exact[at]!r}, the largest {size:.3g}"
        )


def check_numeric_gradients(row, shapes=None, second=False):
    """Central differences in float64; `second` also of the gradient."""
    tensors = row.tensors(row.sample("float64", shapes), "float64")
    for name in row.differentiable:
        tensors[name].requires_grad_()

    def outputs(*inputs):
        return [r for r in row.run(dict(zip(tensors, inputs)), "float64") if r.dtype.is_floating_point]

    check = anello.autograd.gradgradcheck if second else anello.autograd.gradcheck
    assert check(outputs, list(tensors.values()))


def check_no_gradient(row, dtype, shapes=None):
    """Integer and bool results carry no gradient, whatever the inputs ask for."""
    tensors = row.tensors(row.sample(dtype, shapes), dtype)
    for tensor in tensors.values():
        if tensor.dtype.is_floating_point:
            tensor.requires_grad_()
    for result in row.run(tensors, dtype):
        assert not result.requires_grad or result.dtype.is_floating_point


# --- Layouts: the same numbers elsewhere in memory give the same bits -----------------------------------------------


def transposed(x):
    """Memory in the opposite order of dims."""
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).clone().permute(order).detach()


def spaced(x):
    """Every second element of a larger tensor, off its start."""
    if x.dim() == 0:
        return anello.stack([x, x, x])[1].detach()
    big = anello.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=x.dtype)
    big[..., 1::2] = x
    return big[..., 1::2].detach()


def framed(x):
    """A window inside a larger tensor: rows apart, not aligned."""
    if x.dim() == 0:
        return spaced(x)
    big = (
        anello.zeros(x.shape[0] + 2, *x.shape[1:-1], x.shape[-1] + 3, dtype=x.dtype)
        if x.dim() > 1
        else anello.zeros(x.shape[0] + 3, dtype=x.dtype)
    )
    window = (slice(1, -1), Ellipsis, slice(1, -2)) if x.dim() > 1 else (slice(1, -2),)
    big[window] = x
    return big[window].detach()


LAYOUTS = (transposed, spaced, framed)


def check_layouts(row, dtype, shapes=None):
    values, wanted = row.sample(dtype, shapes), row.differentiable if dtype in FLOATS else ()

    def run(layout):
        if wanted:
            return gradients(row, values, dtype, layout=layout)
        return row.run({name: layout(t) for name, t in row.tensors(values, dtype).items()}, dtype), []

    results, grads = run(lambda x: x)
    for layout in LAYOUTS:
        other_results, other_grads = run(layout)
        for i, (a, b) in enumerate(zip(results, other_results)):
            check_same(row, f"result {i}", f"{layout.__name__} inputs", to_array(a), to_array(b), a.dtype.name)
        for name, a, b in zip(wanted, grads, other_grads):
            check_same(row, f"gradient of {name}", f"{layout.__name__} inputs", to_array(a), to_array(b), a.dtype.name)


def check_same(row, what, layout: str, expected, actual, dtype):
    label = f"{dtype} {what} for {layout}"
    if row.bits:
        assert same_bits(expected, actual), f"{label}: other bits"
    else:
        check_gradient(label, actual, expected, dtype, 1.0)


def check_repeated(row, dtype):
    """Inputs of stride 0 (expanded from one element a row) against their contiguous copies."""
    tensors = row.tensors(row.sample(dtype), dtype)
    flat = {n: t[..., :1].expand(*t.shape) if t.dim() and t.shape[-1] else t for n, t in tensors.items()}
    repeated = row.run(flat, dtype)
    copied = row.run({n: t.contiguous() for n, t in flat.items()}, dtype)
    for i, (a, b) in enumerate(zip(repeated, copied)):
        check_same(row, f"result {i}", "inputs of stride 0", to_array(b), to_array(a), a.dtype.name)


# --- Special values -------------------------------------------------------------------------------------------------


def special_floats(dtype):
    """What arithmetic goes wrong on: NaN, infinities, zeros of both signs, the ends of the range, subnormals."""
    largest = {
        "float64": 1.7976931348623157e308,
        "float32": 3.4028234663852886e38,
        "float16": 65504.0,
        "bfloat16": 3.3895313892515355e38,
    }[dtype]
    smallest = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}[dtype]
    values = [
        math.nan,
        math.inf,
        0.0,
        largest,
        largest / 2,
        smallest,
        smallest / 4,
        1.0,
        1e-3,
        20.0,
        100.0,
        1000.0,
        0.5,
        1.5,
    ]
    return round_to(np.array(values + [-v for v in values[1:]]), dtype)


def special_integers(dtype):
    if dtype == "bool":
        return np.array([False, True])
    info = np.iinfo(dtype)
    return np.unique(
        np.array([info.min, info.min + 1, max(info.min, -3), 1, 2, 3, info.max - 1, info.max], np.int64)
    ).astype(dtype)


def check_special(row, dtype):
    (name,) = row.inputs
    check_forward(row, dtype, values={name: special_floats(dtype) if dtype in FLOATS else special_integers(dtype)})


def vector_shapes(row, n):
    return dict.fromkeys(row.inputs, (n,))


def outputs_of(row, values, dtype):
    return [to_array(r) for r in as_list(row.run(row.tensors(values, dtype), dtype))]

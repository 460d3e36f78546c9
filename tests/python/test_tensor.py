"""Tensors as Python sees them: creation, attributes, operators, values, copying, pickling.
Main entry: pytest."""

import copy
import gc
import operator
import pickle
import weakref

import numpy as np
import pytest

import anello

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


# --- Creation ---


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1.5, "float32", ()),
        (3, "int64", ()),
        (True, "bool", ()),
        ([1, 2, 3], "int64", (3,)),
        ([[1, 2.5], [3, 4]], "float32", (2, 2)),
        ([True, 2], "int64", (2,)),
        ((1.0, 2.0), "float32", (2,)),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        (np.float32(2), "float32", ()),
        (np.arange(3, dtype=np.int16), "int16", (3,)),
        (np.zeros((2, 2)), "float64", (2, 2)),
        ([np.zeros(2), np.ones(2)], "float64", (2, 2)),
    ],
)
def test_tensor_infers_dtype_and_shape(data, dtype, shape):
    x = anello.tensor(data)
    assert x.dtype is getattr(anello, dtype)
    assert x.shape == shape


def test_tensor_stacks_tensors():
    x = anello.tensor([anello.tensor([1, 2]), anello.tensor([3, 4])])
    assert x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("data", [[[1, 2], [3]], [1, [2]], [[1], 2], [[], 3], [[1, 2], 3]])
def test_ragged_data_is_a_shape_error(data):
    with pytest.raises(anello.ShapeError, match=r"\[tensor\]"):
        anello.tensor(data)


@pytest.mark.parametrize("data", ["text", [None], [object()], {1: 2}, ["a"], b"bytes", 1j])
def test_data_that_is_no_number_is_a_type_error(data):
    with pytest.raises(TypeError, match=r"\[tensor\]"):
        anello.tensor(data)


def test_tensor_copies_and_as_tensor_shares():
    array = np.zeros(3, np.float32)
    copied, shared = anello.tensor(array), anello.as_tensor(array)
    array[0] = 7
    assert copied.tolist() == [0, 0, 0]
    assert shared.tolist() == [7, 0, 0]


def test_large_integers_keep_every_bit():
    value = 2**62 + 1
    assert anello.tensor([value]).item() == value
    with pytest.raises(anello.ValueError, match="64 bits"):
        anello.tensor([2**70])


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_can_be_made_and_read(name):
    dtype = getattr(anello, name)
    x = anello.tensor([0, 1], dtype=dtype)
    assert x.dtype is dtype
    assert repr(dtype) == f"anello.{name}"
    assert x.tolist() == ([False, True] if name == "bool" else [0, 1])
    assert x.itemsize == dtype.itemsize
    assert pickle.loads(pickle.dumps(dtype)) is dtype


def test_creation_functions():
    assert anello.zeros(2, 3).shape == (2, 3)
    assert anello.zeros((2, 3)).shape == (2, 3)
    assert anello.zeros(()).shape == ()
    assert anello.ones([4], dtype=anello.int8).tolist() == [1, 1, 1, 1]
    assert anello.full((2,), 2.5).tolist() == [2.5, 2.5]
    assert anello.full((1,), True).dtype is anello.bool
    assert anello.arange(3).dtype is anello.int64
    assert anello.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    assert anello.arange(5, dtype="float32").dtype is anello.float32
    assert anello.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert anello.zeros_like(anello.arange(2)).dtype is anello.int64
    assert anello.zeros(2, requires_grad=True).requires_grad


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: anello.zeros(-1), anello.ShapeError),
        (lambda: anello.zeros(1.5), TypeError),
        (lambda: anello.zeros(2, dtype="floaty"), anello.DTypeError),
        (lambda: anello.zeros(2, device="gpu"), anello.DeviceError),
        (lambda: anello.zeros(2, device="cuda"), anello.DeviceError),
        (lambda: anello.arange(0, 1, 0), anello.ValueError),
        (lambda: anello.arange(3, requires_grad=True), anello.DTypeError),
        (lambda: anello.zeros(*[1] * 13), anello.ShapeError),
    ],
)
def test_creation_errors(call, error):
    with pytest.raises(error):
        call()


def test_dtype_error_names_the_nearest():
    with pytest.raises(anello.DTypeError, match="float32"):
        anello.zeros(1, dtype="float3")


def test_same_seed_same_numbers():
    anello.manual_seed(3)
    first = anello.randn(5).tolist()
    anello.manual_seed(3)
    assert anello.randn(5).tolist() == first
    assert anello.randn(5).tolist() != first


# --- Errors ---


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ValueError", ValueError),
        ("ShapeError", ValueError),
        ("IndexError", IndexError),
        ("DTypeError", TypeError),
        ("DeviceError", RuntimeError),
        ("DistError", RuntimeError),
        ("IoError", OSError),
        ("OutOfMemoryError", MemoryError),
    ],
)
def test_errors_are_both_ours_and_the_builtin(name, builtin):
    error = getattr(anello, name)
    assert issubclass(error, anello.Error)
    assert issubclass(error, builtin)
    assert issubclass(anello.Error, RuntimeError)


def test_shape_error_has_the_form():
    with pytest.raises(anello.ShapeError, match=r"^\[matmul\].*\(8, 3\).*\(4, 2\)"):
        anello.zeros(8, 3) @ anello.zeros(4, 2)


def test_out_of_memory_is_a_memory_error():
    with pytest.raises(MemoryError):
        anello.zeros(2**45, 2**10)
    assert anello.zeros(2).tolist() == [0, 0]


# --- Attributes ---


def test_attributes():
    x = anello.zeros(2, 3, dtype=anello.float64)
    assert (x.shape, x.ndim, x.numel(), x.nbytes) == ((2, 3), 2, 6, 48)
    assert x.device == anello.device("cpu")
    assert str(x.device) == "cpu"
    assert x.is_leaf
    assert x.grad is None
    assert x.grad_fn is None
    assert x.T.shape == (3, 2)
    assert x.size(0) == 2
    assert x.size() == (2, 3)
    assert x.stride() == (3, 1)
    assert len(x) == 2


def test_there_is_one_object_a_tensor():
    x = anello.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is x.grad
    assert len({x, x}) == 1
    reference = weakref.ref(x)
    assert reference() is x
    del x
    gc.collect()
    assert reference() is None


def test_unknown_attributes_are_refused():
    with pytest.raises(AttributeError):
        anello.zeros(1).color = "red"


def test_repr():
    assert repr(anello.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert repr(anello.tensor([1, 2])) == "tensor([1, 2], dtype=int64)"
    assert "requires_grad=True" in repr(anello.zeros(1, requires_grad=True))
    assert repr(anello.nn.Parameter(anello.zeros(1))).startswith("Parameter containing:\ntensor(")


# --- Operators ---

NUMBERS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]


@pytest.mark.parametrize("op", NUMBERS + COMPARISONS)
def test_operators_agree_with_numpy(op):
    a = np.array([[1.5, 2.0, 3.0], [2.0, 0.5, 4.0]])
    b = np.array([2.0, 1.0, 3.0])
    x, y = anello.tensor(a), anello.tensor(b)
    np.testing.assert_allclose(op(x, y).numpy(), op(a, b), rtol=1e-15)
    np.testing.assert_allclose(op(x, 2).numpy(), op(a, 2), rtol=1e-15)
    np.testing.assert_allclose(op(2, x).numpy(), op(2, a), rtol=1e-15)
    np.testing.assert_allclose(op(x, np.float64(2.5)).numpy(), op(a, 2.5), rtol=1e-15)
    np.testing.assert_allclose(op(np.float32(2.5), x).numpy(), op(2.5, a), rtol=1e-15)


def test_unary_operators():
    x = anello.tensor([-1.5, 2.0])
    assert (-x).tolist() == [1.5, -2.0]
    assert (+x) is x
    assert abs(x).tolist() == [1.5, 2.0]
    assert (~anello.tensor([True, False])).tolist() == [False, True]


def test_matmul_operator():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal((anello.tensor(a) @ anello.tensor(b)).numpy(), a @ b)


def test_logic_operators_take_bools_only():
    t, f = anello.tensor([True]), anello.tensor([False])
    assert (t & f).item() is False
    assert (t | f).item() is True
    assert (t ^ True).item() is False
    with pytest.raises(TypeError, match="bool"):
        anello.tensor([1]) & anello.tensor([2])
    with pytest.raises(TypeError, match="bool"):
        ~anello.tensor([1])


@pytest.mark.parametrize(
    "op",
    [
        operator.iadd,
        operator.isub,
        operator.imul,
        operator.itruediv,
        operator.ifloordiv,
        operator.imod,
        operator.ipow,
    ],
)
def test_in_place_operators_keep_the_tensor(op):
    a = np.array([1.0, 2.0])
    x = anello.tensor(a)
    y = op(x, 4.0)
    assert y is x
    np.testing.assert_allclose(x.numpy(), op(a.copy(), 4.0))
    op(x, anello.tensor([2.0, 3.0]))
    np.testing.assert_allclose(x.numpy(), op(op(a.copy(), 4.0), np.array([2.0, 3.0])))


@pytest.mark.parametrize("op", [operator.ifloordiv, operator.imod, operator.ipow])
def test_in_place_operators_of_integers(op):
    a = np.array([7, -5], dtype=np.int32)
    x = anello.tensor(a)
    alias = x
    x = op(x, 3)
    assert alias is x
    assert x.dtype is anello.int32
    np.testing.assert_array_equal(x.numpy(), op(a.copy(), 3))
    with pytest.raises(TypeError, match="int32"):
        op(x, 0.5)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        op(x, anello.tensor([1, 2, 3]))
    assert alias is x


def test_in_place_power_and_remainder_have_gradients():
    w = anello.tensor([2.0, 3.0], dtype=anello.float64, requires_grad=True)
    x = w * 1
    x **= 3
    x.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 3 * np.array([2.0, 3.0]) ** 2)
    w.grad = None
    x = w * 1
    x **= w  # d w^w = w^w (log w + 1)
    x.sum().backward()
    values = np.array([2.0, 3.0])
    np.testing.assert_allclose(w.grad.numpy(), values**values * (np.log(values) + 1))
    w.grad = None
    x = w * 2
    x %= 1.5
    x.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), [2, 2])


def test_integers_that_do_not_fit_are_refused():
    x = anello.zeros(2, dtype=anello.uint8)
    for change in (
        lambda: x.fill_(300),
        lambda: x.__setitem__(0, 300),
        lambda: x.__setitem__(0, -1),
        lambda: anello.full((2,), 256, dtype=anello.uint8),
    ):
        with pytest.raises(ValueError, match="does not fit in uint8"):
            change()
    assert x.tolist() == [0, 0]


def test_sizes_that_64_bits_do_not_count_are_refused():
    x = anello.zeros(1)
    for make in (
        lambda: x.expand(2**62, 8),
        lambda: x.expand(2**61),
        lambda: anello.zeros(0, 2**40, 2**40),
        lambda: anello.zeros(2**40, 2**40),
    ):
        with pytest.raises(ValueError, match="more bytes than 64 bits count"):
            make()
    assert "shape=(1099511627776, 0)" in repr(anello.zeros(2**40, 0))
    for make in (lambda: x.expand(-2), lambda: x.broadcast_to(-1), lambda: anello.zeros(1, 1).expand(-1, -3)):
        with pytest.raises(ValueError, match="negative size"):
            make()
    for start, length in ((2**62, 2**62), (0, 2**63 - 1), (-1, 2), (2, 0)):
        with pytest.raises(IndexError, match="not inside a dim of size 1"):
            x.narrow(0, start, length)
    assert x.narrow(0, 1, 0).shape == (0,)


@pytest.mark.parametrize("amount", [2**62, 2**63 - 1, -(2**63), 2**50])
def test_paddings_that_nothing_can_hold_are_refused(amount):
    F = anello.nn.functional
    image, weight = anello.ones(1, 4, 4, 1), anello.ones(1, 3, 3, 1)
    with pytest.raises(ValueError, match=r"\[pad\]"):
        F.pad(image, (0, 0, amount, amount))
    with pytest.raises(ValueError, match=r"\[pad\]"):
        F.pad(image, (0, 0, amount, 0), mode="replicate")
    for option in ("stride", "padding", "dilation"):
        with pytest.raises(ValueError, match=rf"\[conv2d\] {option} is"):
            F.conv2d(image, weight, **{option: amount})
    with pytest.raises(ValueError, match=r"\[max_pool2d\]"):
        F.max_pool2d(image, amount, padding=abs(amount) // 4)


def test_numbers_are_weak():
    half = anello.ones(2, dtype=anello.float16)
    assert (half * 2.5).dtype is anello.float16
    assert (half * np.float64(2.5)).dtype is anello.float16
    assert (anello.tensor([1]) * 2.5).dtype is anello.float32
    assert (anello.tensor([1]) / 2).dtype is anello.float32
    assert (anello.tensor([True]) + 1).dtype is anello.int64
    assert (anello.tensor([3]) ** 2).tolist() == [9]
    assert (2 ** anello.tensor([3.0])).tolist() == [8]


def test_arrays_do_not_mix_silently():
    x = anello.zeros(3)
    for call in (lambda: x + np.zeros(3), lambda: np.zeros(3) + x, lambda: x < np.zeros(3), lambda: x @ np.zeros(3)):
        with pytest.raises(TypeError, match="from_numpy"):
            call()
    for other in ("text", None, [1, 2, 3]):
        with pytest.raises(TypeError):
            x + other


def test_comparison_with_other_things():
    x = anello.zeros(2)
    assert (x == None) is False  # noqa: E711
    assert x != "text"


def test_truth_of_many_is_refused():
    assert bool(anello.tensor([1]))
    assert not anello.tensor(0.0)
    with pytest.raises(anello.ShapeError, match="any"):
        bool(anello.zeros(2))
    with pytest.raises(anello.ShapeError):
        bool(anello.zeros(0))


def test_conversion_to_python():
    assert int(anello.tensor(3.7)) == 3
    assert float(anello.tensor(3)) == 3.0
    assert [10, 20][anello.tensor(1)] == 20
    assert f"{anello.tensor(3.14159):.2f}" == "3.14"
    assert anello.tensor(True).item() is True
    with pytest.raises(TypeError):
        operator.index(anello.tensor(1.0))
    with pytest.raises(anello.ShapeError):
        anello.zeros(2).item()
    with pytest.raises(TypeError):
        len(anello.tensor(1))


def test_iteration_and_membership():
    x = anello.tensor([[1, 2], [3, 4]])
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert 3 in x
    assert 9 not in x
    with pytest.raises(TypeError):
        iter(anello.tensor(1))


# --- Conversion, copying, pickling ---


def test_to():
    x = anello.tensor([1.5])
    assert x.to(anello.float32) is x
    assert x.to("int32").dtype is anello.int32
    assert x.to("cpu", anello.float64).dtype is anello.float64
    assert x.to(anello.zeros(1, dtype=anello.int8)).dtype is anello.int8
    assert x.to(device="cpu", dtype=anello.float16).dtype is anello.float16
    assert (x.double().dtype, x.half().dtype, x.long().dtype) == (anello.float64, anello.float16, anello.int64)
    assert (x.bfloat16().dtype, x.int().dtype, x.bool().dtype) == (anello.bfloat16, anello.int32, anello.bool)
    with pytest.raises(anello.DeviceError):
        x.to("cuda")
    with pytest.raises(TypeError, match="copy"):
        x.to(copy=True)


@pytest.mark.parametrize("name", DTYPES)
def test_pickle_and_deepcopy(name):
    x = anello.tensor([[0, 1], [1, 0]], dtype=getattr(anello, name)).T
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.dtype is x.dtype
        assert y.tolist() == x.tolist()
        assert y.data_ptr() != x.data_ptr()


def test_parameters_stay_parameters():
    p = anello.nn.Parameter(anello.tensor([1.0, 2.0]))
    (p * p).sum().backward()
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(q) is anello.nn.Parameter
        assert q.requires_grad
        assert q.tolist() == [1, 2]
    assert copy.deepcopy(p).grad.tolist() == [2, 4]
    twice = copy.deepcopy([p, p])
    assert twice[0] is twice[1]
    shallow = copy.copy(p)
    assert type(shallow) is anello.nn.Parameter
    assert shallow.data_ptr() == p.data_ptr()


def test_a_graph_is_not_pickled():
    y = anello.ones(1, requires_grad=True) * 2
    for call in (copy.deepcopy, pickle.dumps):
        with pytest.raises(anello.Error, match="detach"):
            call(y)


class Tagged(anello.Tensor):
    pass


def test_subclasses():
    x = Tagged(anello.zeros(2))
    x.tag = "a"
    assert isinstance(x, anello.Tensor)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is Tagged
        assert y.tag == "a"


def test_methods_and_functions_are_the_same():
    x = anello.tensor([[1.0, 4.0]])
    assert x.sqrt().tolist() == anello.sqrt(x).tolist()
    assert x.sum(dim=1, keepdim=True).tolist() == anello.sum(x, dim=1, keepdim=True).tolist() == [[5]]
    assert x.sum((0, 1)).item() == 5
    assert x.reshape(2, -1).shape == x.reshape((2, -1)).shape == (2, 1)
    assert x.max().item() == 4
    values, indices = x.max(dim=1)
    assert (values.item(), indices.item()) == (4, 1)
    assert x.max(anello.tensor([2.0])).tolist() == [[2, 4]]
    assert [part.shape for part in anello.zeros(5, 2).split([2, 3])] == [(2, 2), (3, 2)]
    assert x.expand(3, -1).shape == (3, 2)


def test_view_never_copies():
    x = anello.arange(6).reshape(2, 3)
    assert x.view(6).data_ptr() == x.data_ptr()
    with pytest.raises(anello.Error, match="reshape"):
        x.T.view(6)


def test_random_in_place_is_refused_while_recording():
    w = anello.zeros(2, requires_grad=True)
    with pytest.raises(anello.Error, match="no_grad"):
        w.uniform_()
    with anello.no_grad():
        assert w.uniform_(1, 1) is w


def test_equal_and_allclose_answer_in_bool():
    a = anello.tensor([1.0, 2.0])
    assert a.equal(anello.tensor([1.0, 2.0])) is True
    assert anello.equal(a, anello.tensor([1.0, 2.5])) is False
    assert anello.allclose(a, a + 1e-9) is True
    assert a.allclose(a + 0.1) is False

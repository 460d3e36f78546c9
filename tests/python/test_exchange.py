"""Memory shared with NumPy and through DLPack.
Main entry: pytest."""

import gc
import weakref

import numpy as np
import pytest

import anello

SHARED = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("name", SHARED)
def test_numpy_both_ways_without_a_copy(name):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype("bool" if name == "bool" else name)
    x = anello.from_numpy(array)
    assert x.dtype is getattr(anello, name)
    assert x.data_ptr() == array.ctypes.data
    back = x.numpy()
    assert back.dtype == array.dtype
    assert back.ctypes.data == array.ctypes.data
    array[0, 0] = 1
    assert x[0, 0].item() == 1
    assert np.asarray(x).ctypes.data == array.ctypes.data


def test_strided_arrays_are_shared():
    array = np.arange(24.0).reshape(4, 6)[1:3, ::2].T
    x = anello.from_numpy(array)
    assert x.tolist() == array.tolist()
    assert not x.is_contiguous()
    view = anello.arange(6).reshape(2, 3).T.numpy()
    assert view.strides == (8, 24)


def test_empty_and_zero_dims():
    assert anello.from_numpy(np.zeros((0, 3))).shape == (0, 3)
    assert anello.from_numpy(np.array(3.5)).item() == 3.5
    assert anello.zeros(0, 3).numpy().shape == (0, 3)
    assert anello.tensor(2).numpy().shape == ()


def test_the_array_lives_as_long_as_the_tensor():
    class Array(np.ndarray):
        pass

    array = np.zeros(4).view(Array)
    gone = weakref.ref(array)
    x = anello.from_numpy(array)[1:]
    del array
    gc.collect()
    assert gone() is not None
    del x
    gc.collect()
    assert gone() is None


def test_the_tensor_lives_as_long_as_the_array():
    array = anello.full((1000,), 3.0).numpy()
    gc.collect()
    anello.zeros(1000)
    assert (array == 3).all()


def test_read_only_arrays_stay_read_only():
    array = np.arange(3.0)
    array.flags.writeable = False
    x = anello.from_numpy(array)
    assert (x + 1).tolist() == [1, 2, 3]
    for change in (lambda: x.add_(1), lambda: x.fill_(0), lambda: x.__setitem__(0, 1.0), lambda: x.uniform_()):
        with pytest.raises(anello.Error, match="read-only"):
            change()
    assert array.tolist() == [0, 1, 2]
    assert not x.numpy().flags.writeable


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.arange(3, dtype=">f4"), TypeError),
        (np.arange(3, dtype=">i8"), TypeError),
        (np.zeros(2, np.complex64), TypeError),
        (np.array(["a"]), TypeError),
        (np.array([object()]), TypeError),
        (np.zeros(2, np.uint16), TypeError),
        (np.zeros(2, np.uint64), TypeError),
        (np.zeros(2, "datetime64[s]"), TypeError),
        (np.zeros(2, [("a", "f4")]), TypeError),
        (np.zeros(2, np.longdouble), TypeError),
        (np.arange(3.0)[::-1], ValueError),
        (np.zeros(4, np.dtype({"names": ["a"], "formats": ["f8"], "offsets": [0], "itemsize": 12}))["a"], ValueError),
        (np.frombuffer(b"\0" * 9, np.uint8)[1:].view(np.float64), ValueError),
        ([1, 2], TypeError),
        (3, TypeError),
    ],
    ids=repr,
)
def test_what_cannot_be_shared(array, error):
    with pytest.raises(error, match=r"\[from_numpy\]"):
        anello.from_numpy(array)


def test_bfloat16_has_no_array():
    x = anello.ones(2, dtype=anello.bfloat16)
    for call in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"float\(\)"):
            call()
    assert x.float().numpy().tolist() == [1, 1]


def test_a_tensor_with_gradient_has_no_array():
    x = anello.ones(2, requires_grad=True)
    for call in (x.numpy, lambda: np.asarray(x), lambda: memoryview(x), lambda: np.from_dlpack(x)):
        with pytest.raises((anello.Error, BufferError), match="detach"):
            call()
    assert x.detach().numpy().tolist() == [1, 1]


def test_array_protocol_converts():
    x = anello.arange(3)
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    assert np.array(x).ctypes.data != x.data_ptr()
    assert np.sum(np.asarray(x)) == 3


def test_memoryview():
    x = anello.arange(4, dtype=anello.int32)
    view = memoryview(x)
    assert (view.format, view.shape, view.readonly) == ("i", (4,), False)
    view[0] = 9
    assert x.tolist() == [9, 1, 2, 3]


@pytest.mark.parametrize("name", SHARED)
def test_dlpack_both_ways(name):
    array = np.array([[0, 1], [1, 1]]).astype(name)
    x = anello.from_dlpack(array)
    assert x.dtype is getattr(anello, name)
    assert x.data_ptr() == array.ctypes.data
    back = np.from_dlpack(x.T)
    assert back.ctypes.data == array.ctypes.data
    assert back.tolist() == array.T.tolist()


def test_dlpack_of_bfloat16_and_device():
    x = anello.ones(3, dtype=anello.bfloat16)
    assert anello.from_dlpack(x).dtype is anello.bfloat16
    assert x.__dlpack_device__() == (1, 0)
    assert anello.from_dlpack(x.__dlpack__()).tolist() == [1, 1, 1]  # the capsule of before versions


def test_dlpack_keeps_read_only():
    array = np.arange(3.0)
    array.flags.writeable = False
    x = anello.from_dlpack(array)
    with pytest.raises(anello.Error, match="read-only"):
        x.add_(1)
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()
    assert not np.from_dlpack(x).flags.writeable


def test_dlpack_capsules_are_used_once():
    capsule = anello.ones(2).__dlpack__(max_version=(1, 0))
    assert anello.from_dlpack(capsule).tolist() == [1, 1]
    with pytest.raises(anello.ValueError, match="before"):
        anello.from_dlpack(capsule)
    anello.ones(2).__dlpack__()  # dropped unused: freed


def test_dlpack_errors():
    with pytest.raises(TypeError, match="__dlpack__"):
        anello.from_dlpack([1])
    with pytest.raises(TypeError, match=r"\[from_dlpack\]"):
        anello.from_dlpack(np.zeros(2, np.complex64))
    with pytest.raises(anello.ValueError, match="negative"):
        anello.from_dlpack(np.arange(3.0)[::-1])
    with pytest.raises(BufferError):
        anello.ones(1).__dlpack__(dl_device=(2, 0))

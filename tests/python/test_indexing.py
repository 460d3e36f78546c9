"""x[key] and x[key] = value against NumPy.
Main entry: pytest."""

import numpy as np
import pytest

import anello

ARRAY = np.arange(2 * 3 * 4).reshape(2, 3, 4)
BASIC = [
    0,
    -1,
    np.int64(1),
    slice(None),
    slice(1, None),
    slice(-1, None),
    slice(0, 100),
    slice(5, 2),
    (0, 1),
    (0, 1, 2),
    (Ellipsis, 1),
    (0, Ellipsis),
    (Ellipsis,),
    None,
    (None, 0, None),
    (slice(None), slice(0, 3, 2)),
    (slice(None), 1, slice(1, 4, 2)),
    (Ellipsis, None, slice(1, 2)),
    (),
]
PICKS = [
    [1, 0, 1],
    (slice(None), [2, -1]),
    (0, [0, 2]),
    np.array([[0, 1], [1, 1]]),
    (np.array([0, 1]), np.array([2, -3])),
    (slice(None), np.array([0, 1]), np.array([3, 2])),
    (np.array([[0], [1]]), np.array([0, 1, 2])),
    (Ellipsis, [0, 3]),
    (None, [1]),
    [],
    ARRAY % 3 == 0,
    np.array([False, True]),
    (0, np.array([True, False, True])),
    (slice(None), ARRAY[0] % 2 == 0),
]


@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_basic_keys_are_views(key):
    x = anello.tensor(ARRAY)
    np.testing.assert_array_equal(x[key].numpy(), ARRAY[key])
    part = x[key]
    if part.numel() > 0:
        part.fill_(-7)
        expected = ARRAY.copy()
        expected[key] = -7
        np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("key", PICKS, ids=repr)
def test_index_tensors_pick(key):
    numpy_key = np.array([], dtype=int) if isinstance(key, list) and not key else key
    np.testing.assert_array_equal(anello.tensor(ARRAY)[key].numpy(), ARRAY[numpy_key])


def test_tensors_are_keys():
    x = anello.tensor(ARRAY)
    assert x[anello.tensor(1)].tolist() == ARRAY[1].tolist()
    assert x[anello.tensor([1, 0])].tolist() == ARRAY[[1, 0]].tolist()
    assert x[x > 20].tolist() == [21, 22, 23]
    logits = anello.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert logits[anello.arange(2), anello.tensor([1, 0])].tolist() == [2, 3]


@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_assignment(key):
    expected = ARRAY.astype(np.float32)
    x = anello.tensor(expected)
    expected[key] = 5
    x[key] = 5
    np.testing.assert_array_equal(x.numpy(), expected)
    value = np.arange(expected[key].size, dtype=np.float32).reshape(expected[key].shape)
    expected[key] = value
    x[key] = anello.tensor(value)
    np.testing.assert_array_equal(x.numpy(), expected)
    expected[key] = value + 1
    x[key] = value + 1
    np.testing.assert_array_equal(x.numpy(), expected)


def test_assignment_through_a_mask():
    x = anello.tensor(ARRAY)
    x[x > 20] = 0
    assert x.max().item() == 20
    x[anello.tensor([True, False])] = -1
    assert (x[0] == -1).all()


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (2, IndexError),
        (-3, IndexError),
        ((0, 0, 0, 0), IndexError),
        ((Ellipsis, Ellipsis), IndexError),
        (slice(None, None, -1), IndexError),
        (slice(None, None, 0), IndexError),
        (1.5, IndexError),
        ("a", IndexError),
        (True, IndexError),
        ([0.5], IndexError),
        ([2], IndexError),
        ([-3], IndexError),
        (np.array([True, False, True]), IndexError),
        ((np.array([0]), slice(None), np.array([0])), IndexError),
        ((np.array([True, False]), np.array([0])), IndexError),
    ],
    ids=repr,
)
def test_bad_keys(key, error):
    with pytest.raises(error, match=r"\["):
        anello.tensor(ARRAY)[key]


def test_bad_assignments():
    x = anello.zeros(2, 3)
    with pytest.raises(anello.ShapeError):
        x[0] = anello.zeros(2)
    with pytest.raises(IndexError, match="where"):
        x[[0, 1]] = 1
    with pytest.raises(TypeError):
        x[0] = None
    with pytest.raises(TypeError):
        del x[0]
    assert x.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_gradients_flow_through_indexing():
    x = anello.zeros(2, 3, requires_grad=True)
    (x[0, 1:] * 2).sum().backward()
    assert x.grad.tolist() == [[0, 2, 2], [0, 0, 0]]
    x.zero_grad()
    x[[1, 1]].sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [2, 2, 2]]
    x.zero_grad()
    x[anello.tensor([[True, False, False], [False, False, True]])].sum().backward()
    assert x.grad.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_assignment_is_recorded():
    x = anello.ones(3, requires_grad=True)
    v = anello.tensor(5.0, requires_grad=True)
    y = x * 2
    y[1] = v
    (y * y).sum().backward()
    assert x.grad.tolist() == [8, 0, 8]
    assert v.grad.item() == 10


def test_a_leaf_is_not_overwritten_while_recording():
    x = anello.zeros(2, requires_grad=True)
    with pytest.raises(anello.Error, match="no_grad"):
        x[0] = 1.0
    with anello.no_grad():
        x[0] = 1.0
    assert x.tolist() == [1, 0]

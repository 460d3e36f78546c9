"""Wrong calls of classes are answered by name: unknown options, what cannot be copied, numbers that do not fit.
Main entry: pytest."""

import copy
import pickle

import pytest

import anello
from anello import data, nn, optim


def parameters():
    return nn.Linear(2, 3).parameters()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optim.SGD(parameters(), lr=0.1, momentun=0.9), r"\[SGD\] unknown option 'momentun'.*'momentum'"),
        (lambda: optim.AdamW(parameters(), beta=(0.9, 0.99)), r"\[AdamW\] unknown option 'beta'.*'betas'"),
        (lambda: nn.Conv2d(3, 4, 3, strid=2), r"\[Conv2d\] unknown option 'strid'.*'stride'"),
        (lambda: nn.BatchNorm2d(3, epsilon=1), r"\[BatchNorm2d\] unknown option 'epsilon'.*'eps'"),
        (lambda: data.Augmentation(crop_pading=4), r"\[Augmentation\] unknown option 'crop_pading'.*'crop_padding'"),
        (lambda: data.DataLoader([], batchsize=2), r"\[DataLoader\] unknown option 'batchsize'.*'batch_size'"),
        (lambda: nn.Linear("two", 3), "incompatible constructor arguments"),
    ],
)
def test_an_unknown_option_names_the_nearest(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_class_of_the_user_answers_for_itself():
    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(2, width)

    with pytest.raises(TypeError, match="unexpected keyword argument 'widht'"):
        Net(widht=3)
    assert Net(width=3).fc.weight.shape == (3, 2)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickle.dumps])
def test_modules_and_optimizers_say_how_to_copy_them(copied):
    for thing in (nn.Linear(2, 3), nn.Sequential(nn.ReLU()), optim.SGD(parameters())):
        with pytest.raises(TypeError, match=rf"\[{type(thing).__name__}\].*state_dict"):
            copied(thing)


def test_tensors_are_copied_and_pickled():
    leaf = anello.ones(3, requires_grad=True)
    for twin in (copy.deepcopy(leaf), pickle.loads(pickle.dumps(leaf))):
        assert twin.tolist() == [1, 1, 1] and twin.requires_grad and twin.data_ptr() != leaf.data_ptr()


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("uint8", 0, 255),
        ("int8", -128, 127),
        ("int16", -32768, 32767),
        ("int32", -(2**31), 2**31 - 1),
        ("int64", -(2**63), 2**63 - 1),
    ],
)
def test_an_integer_that_does_not_fit_is_refused(dtype, low, high):
    assert anello.tensor([low, high], dtype=dtype).tolist() == [low, high]
    assert anello.tensor(high, dtype=dtype).item() == high
    for wrong in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"{wrong} does not fit"):
            anello.tensor(wrong, dtype=dtype)
        with pytest.raises(ValueError, match=f"{wrong} does not fit"):
            anello.tensor([0, wrong], dtype=dtype)


def test_seeds():
    anello.manual_seed(-1)
    first = anello.rand(3).tolist()
    anello.manual_seed(2**64 - 1)
    assert anello.rand(3).tolist() == first
    with pytest.raises(ValueError, match="64 bits"):
        anello.manual_seed(2**64)

"""Wrong calls of classes are answered by name: unknown options, what cannot be copied, numbers that do not fit.
Main entry: pytest."""

import copy
import pickle

import pytest

import anello
from anello import data, nn, optim
from anello.nn import functional as F

X = anello.full((2, 3), 1.25)


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
        (lambda: anello.softmax(X, dmi=1), r"^\[softmax\] unknown option 'dmi'.*'dim'"),
        (lambda: X.sum(dimm=1), r"^\[sum\] unknown option 'dimm'.*'dim'"),
        (lambda: anello.zeros(2, dtpe=anello.float32), r"^\[zeros\] unknown option 'dtpe'.*'dtype'"),
        (lambda: anello.arange(3, stp=1), r"^\[arange\] unknown option 'stp'.*'step'"),
        (lambda: F.conv2d(X, X, strid=1), r"^\[conv2d\] unknown option 'strid'.*'stride'"),
        (lambda: X.backward(retain_grap=True), r"^\[backward\] unknown option 'retain_grap'.*'retain_graph'"),
        (lambda: X.to(dtyp=1), r"^\[to\] unknown option 'dtyp'"),
        (lambda: anello.Tensor([1], requires=1), r"^\[Tensor\] unknown option 'requires'.*'requires_grad'"),
        (lambda: nn.Linear(2, 3).load_state_dict({}, strikt=False), r"unknown option 'strikt'.*'strict'"),
        (lambda: anello.dist.all_reduce(X, opp="sum"), r"unknown option 'opp'|unexpected keyword"),
    ],
)
def test_an_unknown_option_names_the_nearest(call, words):
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nn.Linear("two", 3), r"^\[Linear\] argument 'in_features' must be int, got the str 'two'"),
        (lambda: nn.Linear(2), r"^\[Linear\] argument 'out_features' is missing"),
        (lambda: nn.Linear(2, 3, True, 4), r"^\[Linear\] takes at most 3 arguments by place, got 4"),
        (lambda: nn.Linear(2, in_features=2), r"^\[Linear\] argument 'in_features' is given twice"),
        (lambda: nn.Linear(2, 3)(X, X), r"^\[Linear.forward\] takes at most 1 argument by place, got 2"),
        (lambda: nn.Linear(2, 3)([1.0]), r"^\[Linear.forward\] argument 'input' must be anello.Tensor, got a list"),
        (lambda: anello.softmax("x"), r"^\[softmax\] argument 'input' must be anello.Tensor, got the str 'x'"),
        (lambda: anello.matmul(X), r"^\[matmul\] argument 'other' is missing"),
        (lambda: X.mean(dim="a"), r"^\[mean\] argument 'dim' must be int \| .*, got the str 'a'"),
        (lambda: X.transpose(0.5, 1), r"^\[transpose\] argument 'dim0' must be int, got the float 0.5"),
        (lambda: anello.manual_seed("a"), r"^\[manual_seed\] argument 'seed' must be int, got the str 'a'"),
        (lambda: anello.arange("a"), r"^\[arange\] cannot be called with \(the str 'a'\)"),
        (lambda: anello.set_rng_state(5), r"^\[set_rng_state\] argument 'state' must be tuple.*, got the int 5"),
        (
            lambda: optim.LinearLR(5),
            r"^\[LinearLR\] argument 'optimizer' must be anello.optim.Optimizer, got the",
        ),
        (lambda: anello.exp("\udcff"), r"^\[exp\] argument 'input' must be anello.Tensor, got the str '\\udcff'"),
        (lambda: anello.stack("ab"), r"^\[stack\] "),
    ],
)
def test_a_wrong_argument_is_named(call, words):
    with pytest.raises(TypeError, match=words) as caught:
        call()
    assert isinstance(caught.value, anello.Error)


def test_a_wrong_call_prints_no_tensor():
    for call in (lambda: anello.softmax(X, dmi=1), lambda: X.sum("a"), lambda: nn.ReLU()(X, X), lambda: F.linear(X, 3)):
        with pytest.raises(TypeError) as caught:
            call()
        text = str(caught.value)
        assert "1.25" not in text and "tensor(" not in text and "incompatible" not in text and "_C" not in text


def test_every_function_answers_that_way():
    """None prints pybind11's text: an option that no function has is unknown to all."""
    for module in (anello, F, nn.init, nn.utils, data, optim, anello.autograd):
        for name, function in vars(module).items():
            if type(function).__name__ != "builtin_function_or_method" or name.startswith("_"):
                continue
            with pytest.raises(TypeError, match=r"\[\w+\]"):
                function(no_such_option=1)
    for name, method in vars(anello.Tensor).items():
        if type(method).__name__ == "instancemethod" and not name.startswith("__"):
            with pytest.raises(TypeError, match=r"\[\w+\] unknown (option|argument)|\[\w+\] "):
                getattr(X, name)(no_such_option=1)


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

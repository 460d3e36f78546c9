"""Values that cannot be: names and texts that are no UTF-8, objects of another kind inside lists and dicts, states of
something else, lists that hold themselves. Each is one error of the framework's form, and nothing of C++ shows.
Main entry: pytest."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import anello
from anello import data, nn, optim

X = anello.ones(2, 3)


def parameters():
    return [nn.Parameter(anello.ones(2))]


def refused(call, kind, words):
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, anello.Error)
    assert re.match(r"\[[\w.]+\] ", str(caught.value)), str(caught.value)


# --- Bytes that are no UTF-8, NUL ---


@pytest.mark.parametrize("name", [b"/proc/nowhere/\xff", "/proc/nowhere/\udcff"])
def test_a_path_of_any_bytes_is_named(name):
    for read in (anello.load, anello.load_checkpoint, data.load_cifar10):
        refused(lambda read=read: read(name), OSError, r"/proc/nowhere/\\xff")
    refused(lambda: anello.save({"x": X}, name), OSError, r"/proc/nowhere/\\xff")


def test_a_file_of_any_name_is_written_and_read(tmp_path):
    for name in (os.fsencode(tmp_path) + b"/\xff", f"{tmp_path}/\udcfe", tmp_path / "plain"):
        anello.save({"x": X}, name)
        assert anello.load(name)["x"].tolist() == X.tolist()
    assert set(os.listdir(os.fsencode(tmp_path))) == {b"\xff", b"\xfe", b"plain"}


def test_content_of_any_bytes_is_told(tmp_path):
    header = b'{"\xff":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}'
    path = tmp_path / "bad.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    refused(lambda: anello.load(path), OSError, "bad.safetensors")


def test_a_name_with_a_NUL_is_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    name = f"{tmp_path}/x\0.safetensors"
    refused(lambda: anello.save({"x": X}, name), ValueError, "NUL")
    refused(lambda: anello.save_checkpoint(name, {"x": 1}), ValueError, "NUL")
    for read in (anello.load, anello.load_checkpoint, data.load_cifar10):
        refused(lambda read=read: read(name), ValueError, "NUL")
    assert (tmp_path / "x").read_text() == "mine"


def test_a_path_is_a_path():
    for wrong in (5, None, [], X):
        refused(lambda wrong=wrong: anello.load(wrong), TypeError, "file")
    refused(lambda: anello.load(pathlib.Path("/proc/nowhere/x")), OSError, "/proc/nowhere/x")


# --- Objects of another kind ---


class Returns(nn.Module):
    def forward(self, x):
        return [x]


def named(value):
    tensor = anello.ones(1)
    tensor.name = value


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: nn.Linear(2, 3).load_state_dict({5: X}), TypeError, "name is a string, got the int 5"),
        (lambda: optim.LambdaLR(optim.SGD(parameters()), lambda step: "a").step(), TypeError, "got the str 'a'"),
        (lambda: optim.LambdaLR(optim.SGD(parameters()), 5), TypeError, "function.*the int 5"),
        (lambda: optim.LambdaLR(optim.SGD(parameters()), [5]), TypeError, "function.*the int 5"),
        (lambda: anello.save({"a": X}, "/proc/n/x", metadata={"a": 1}), TypeError, "metadata.* got the int 1"),
        (lambda: anello.save({"a": X}, "/proc/n/x", metadata={1: "a"}), TypeError, "metadata.* got the int 1"),
        (lambda: anello.save({"\udcff": X}, "/proc/nowhere/x"), ValueError, r"UTF-8: the str '\\udcff'"),
        (lambda: anello.save({"a": "\udcff"}, "/proc/nowhere/x"), ValueError, "'a' cannot be written as UTF-8"),
        (lambda: anello.save({5: X}, "/proc/nowhere/x"), TypeError, "name is a string, got the int 5"),
        (lambda: nn.Sequential({5: nn.ReLU()}), TypeError, "name is a string, got the int 5"),
        (lambda: nn.Sequential({"a": 5}), TypeError, "takes modules, got the int 5"),
        (lambda: nn.Sequential(5), TypeError, "takes modules.*got the int 5"),
        (lambda: nn.ModuleList(5), TypeError, "takes modules.*got the int 5"),
        (lambda: nn.ModuleList([nn.ReLU()])["a"], TypeError, "index.*the str 'a'"),
        (lambda: nn.Sequential(Returns())(X), TypeError, "type list"),
        (lambda: optim.SGD(5), TypeError, "got the int 5"),
        (lambda: optim.SGD([{"params": 5}]), TypeError, "got the int 5"),
        (lambda: optim.SGD([{"params": parameters(), 5: 3}]), TypeError, "option is a string, got the int 5"),
        (lambda: optim.Adam([{"params": parameters(), "betas": 3}]), TypeError, "betas takes 2 numbers, got the int 3"),
        (lambda: optim.Adam([{"params": parameters(), "betas": "ab"}]), TypeError, "betas.* got the str 'a'"),
        (lambda: optim.OneCycleLR(optim.SGD(parameters()), max_lr="a", total_steps=4), TypeError, "the str 'a'"),
        (lambda: optim.WeightAverage(5), TypeError, "takes a Module.*the int 5"),
        (lambda: optim.WeightAverage([5]), TypeError, "takes a Module.*the int 5"),
        (lambda: optim.WeightAverage([("a", 5)]), TypeError, "takes a Module.*the int 5"),
        (lambda: named("\udcff"), ValueError, "UTF-8"),
        (lambda: named(5), TypeError, "name is a string, got the int 5"),
        (lambda: X.to("\udcff"), ValueError, "UTF-8"),
        (lambda: nn.Linear(2, 3).to("\udcff"), ValueError, "UTF-8"),
        (lambda: anello.zeros(2, dtype="\udcff"), ValueError, "UTF-8"),
        (lambda: anello.zeros(2, device="\udcff"), ValueError, "UTF-8"),
        (lambda: nn.Conv2d(1, 2, 3, padding="\udcff"), ValueError, "UTF-8"),
        (lambda: nn.Conv2d(1, 2, 3, padding=1.5), TypeError, "padding.*the float 1.5"),
        (lambda: nn.init.zeros_(5), TypeError, "int"),
        (lambda: setattr(nn.Module(), "\udcff", nn.Parameter(X)), ValueError, "UTF-8"),
        (lambda: data.DataLoader([1], seed="a"), TypeError, "'seed' must be int, got the str 'a'"),
        (lambda: data.DataLoader([1], seed=2**64), ValueError, "64 bits"),
    ],
)  # fmt: skip
def test_another_kind_of_object_is_named(call, kind, words):
    refused(call, kind, words)


def test_a_name_that_is_no_UTF8_is_no_attribute():
    assert not hasattr(nn.Linear(2, 3), "\udcff")


# --- States ---


@pytest.mark.parametrize(
    ("thing", "entry"),
    [
        (lambda: optim.SGD(parameters()), "kind"),
        (lambda: optim.CosineAnnealingLR(optim.SGD(parameters()), 3), "kind"),
        (lambda: optim.WeightAverage(nn.Linear(2, 3)), "update_count"),
        (lambda: data.DataLoader([1]), "seed"),
    ],
)
def test_a_state_of_nothing_says_what_it_lacks(thing, entry):
    made = thing()
    words = rf"^\[{type(made).__name__}.load_state_dict\].*'{entry}'.*Hint"
    refused(lambda: made.load_state_dict({}), ValueError, words)


def test_a_loader_refuses_a_state_that_cannot_be():
    loader = data.DataLoader([1, 2])
    good = loader.state_dict()
    refused(lambda: loader.load_state_dict({**good, "seed": "a"}), TypeError, "'seed' is an integer, got the str 'a'")
    for name, wrong in (("epoch", -1), ("position", 2**64), ("position", 3), ("count", 5)):
        refused(lambda name=name, wrong=wrong: loader.load_state_dict({**good, name: wrong}), ValueError, str(wrong))
    assert loader.state_dict() == good


def test_seeds_are_64_bits_everywhere():
    images = data.synthetic(2, 1, seed=-1).train.images
    assert (images == data.synthetic(2, 1, seed=2**64 - 1).train.images).all().item()
    assert data.DataLoader([1], seed=-1).state_dict()["seed"] == 2**64 - 1
    refused(lambda: data.synthetic(2, 1, seed=2**64), ValueError, "64 bits")


# --- What Python must not show ---


def test_no_words_of_cpp():
    assert repr(nn.Module()) == "Module()"
    with pytest.raises(ValueError, match="strict=False"):
        nn.Linear(2, 3).load_state_dict({})
    layer = nn.Linear(2, 3)
    layer.weight = None
    with pytest.raises(anello.Error, match="None"):
        layer(X)
    with pytest.raises(ValueError) as caught:
        nn.functional.batch_norm(anello.ones(1, 1, 1, 3), None, None, training=False)
    assert "=true" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("zeros", lambda **o: anello.zeros(-1, **o)),
        ("ones", lambda **o: anello.ones(-1, **o)),
        ("empty", lambda **o: anello.empty(-1, **o)),
        ("full", lambda **o: anello.full((-1,), 2, **o)),
        ("rand", lambda **o: anello.rand(-1, **o)),
        ("randn", lambda **o: anello.randn(-1, **o)),
        ("randint", lambda **o: anello.randint(3, (-1,), **o)),
        ("eye", lambda **o: anello.eye(-1, **o)),
    ],
)
def test_errors_bear_the_name_of_the_function(name, call):
    refused(call, anello.ShapeError, rf"^\[{name}\] .*-1")


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "rand", "randn", "eye", "arange"])
def test_errors_of_devices_bear_the_name_of_the_function(name):
    refused(lambda: getattr(anello, name)(3, device="cuda:99"), anello.DeviceError, rf"^\[{name}\] device cuda:99")


# --- Options that cannot be ---


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0])
@pytest.mark.parametrize("name", ["lr", "weight_decay"])
@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW, optim.Muon])
def test_rates_are_finite(kind, name, value):
    weight = [nn.Parameter(anello.ones(2, 2))]
    refused(lambda: kind(weight, **{name: value}), ValueError, rf"^\[{kind.__name__}\] {name} is ")


def test_a_parameter_does_not_take_the_name_of_a_buffer():
    net = nn.Module()
    net.register_buffer("count", anello.ones(1))
    refused(lambda: net.register_parameter("count", nn.Parameter(X)), ValueError, "'count' is a buffer")
    norm = nn.BatchNorm2d(2)
    refused(lambda: norm.register_parameter("running_mean", nn.Parameter(anello.ones(2))), ValueError, "is a buffer")
    assert [name for name, _ in norm.named_parameters()] == ["weight", "bias"]


def test_workers_have_one_name_at_a_time():
    refused(lambda: data.DataLoader([1], workers=1, num_workers=2), ValueError, "workers is 1 and num_workers 2")
    for options in ({"workers": 0}, {"num_workers": 0}, {}):
        assert [len(x) for x, _ in data.DataLoader([(1, 2)] * 3, batch_size=2, **options)] == [2, 1]


@pytest.mark.parametrize("name", ["crop_padding", "cutout"])
def test_augmentation_refuses_negative_sizes_at_once(name):
    refused(lambda: data.Augmentation(**{name: -1}), ValueError, f"{name} is -1")


@pytest.mark.parametrize("text", ["abc", "-1", "0", "1e9", "1000000000", "2 ", "99999999999999999999"])
def test_a_wrong_number_of_threads_is_told(text):
    code = "import anello\ntry:\n    anello.ones(3) + 1\nexcept ValueError as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ANELLO_NUM_THREADS": text},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "[threads] ANELLO_NUM_THREADS is '" + text + "'" in done.stdout and "Hint" in done.stdout, done.stderr


# --- Lists ---


def test_a_list_that_holds_itself_is_refused():
    own = []
    own.append(own)
    refused(lambda: anello.tensor(own), anello.ShapeError, "dims|sequences")
    mixed = [anello.ones(1)]
    mixed.append(mixed)
    refused(lambda: anello.tensor(mixed), anello.ShapeError, "sequences|shape")
    pair = ([],)
    pair[0].append(pair)
    refused(lambda: anello.tensor(pair), anello.ShapeError, "dims|sequences")


def test_a_list_that_an_element_changes_is_read_as_it_was():
    class Clears:
        def __float__(self):
            rows.clear()
            inner.clear()
            return 7.0

    inner = [Clears(), 1.0, float("1.5")]
    rows = [inner, [2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]
    assert anello.tensor(rows).tolist() == [[7, 1, 1.5], [2, 3, 4], [5, 6, 7]]


def test_ctrl_c_stops_synthetic():
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        data.synthetic(400_000, 400_000)
        data.synthetic(400_000, 400_000)
    timer.join()
    assert time.perf_counter() - started < 2.5

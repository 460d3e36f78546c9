"""train.py of the CIFAR-10 example: it resumes bit for bit, also what the C++ program saved; reports; wrong options.

Main entry: the tests. They run it on a few synthetic images.
"""

import json
import re

import pytest
from cifar10_programs import NET, PROGRAM, SMALL, cpp, python, tensors, values

needs_cpp = pytest.mark.skipif(not PROGRAM.exists(), reason="build/bin/cifar10_train is not built")

NETS = [
    pytest.param(NET, id="resnet20"),
    pytest.param(["--batch-size", "32"], id="airbench", marks=pytest.mark.slow),
]


def require_same(a, b):
    assert tensors(a) == tensors(b)
    assert values(a) == values(b)


@pytest.mark.parametrize("net", NETS)
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(tmp_path, net):
    python(tmp_path, *SMALL, *net, "--epochs", 3, "--save", "whole.ckpt", "--threads", 1)
    python(tmp_path, *SMALL, *net, "--epochs", 3, "--save", "part.ckpt", "--stop-after", 2, "--threads", 2)
    printed = python(tmp_path, *SMALL, "--resume", "part.ckpt", "--save", "part.ckpt", "--workers", 2)
    assert "epoch   3" in printed and "epoch   2" not in printed
    require_same(tmp_path / "whole.ckpt", tmp_path / "part.ckpt")
    assert values(tmp_path / "whole.ckpt")["history.epoch"] == [1, 2, 3]


@needs_cpp
@pytest.mark.parametrize(("first", "second"), [(python, cpp), (cpp, python)], ids=["python to C++", "C++ to Python"])
@pytest.mark.parametrize("net", NETS)
def test_one_language_goes_on_with_what_the_other_saved(tmp_path, first, second, net):
    first(tmp_path, *SMALL, *net, "--epochs", 3, "--save", "whole.ckpt")
    first(tmp_path, *SMALL, *net, "--epochs", 3, "--save", "part.ckpt", "--stop-after", 2)
    second(tmp_path, *SMALL, "--resume", "part.ckpt", "--save", "part.ckpt")
    require_same(tmp_path / "whole.ckpt", tmp_path / "part.ckpt")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [("sgd", "constant"), ("adam", "cosine"), ("adamw", "multistep"), ("muon", "linear"), ("muon", "onecycle")],
)
def test_every_optimizer_and_schedule_resumes(tmp_path, optimizer, schedule):
    options = [*SMALL, *NET, "--optimizer", optimizer, "--schedule", schedule, "--epochs", 2]
    python(tmp_path, *options, "--save", "whole.ckpt")
    python(tmp_path, *options, "--save", "part.ckpt", "--stop-after", 1)
    python(tmp_path, *SMALL, "--resume", "part.ckpt", "--save", "part.ckpt")
    require_same(tmp_path / "whole.ckpt", tmp_path / "part.ckpt")


def test_a_truncated_checkpoint_is_refused(tmp_path):
    python(tmp_path, *SMALL, *NET, "--epochs", 2, "--stop-after", 1, "--save", "a.ckpt")
    whole = (tmp_path / "a.ckpt").read_bytes()
    (tmp_path / "b.ckpt").write_bytes(whole[:-100])
    assert "b.ckpt" in python(tmp_path, *SMALL, "--resume", "b.ckpt", status=1)
    assert "--epochs 2, not 5" in python(tmp_path, *SMALL, "--resume", "a.ckpt", "--epochs", 5, status=1)


def test_the_report(tmp_path):
    printed = python(tmp_path, *SMALL, "--batch-size", 48, "--epochs", 1, "--report", "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report.keys() == {"model", "seed", "test_accuracy", "images_per_second", "train_seconds", "peak_rss_bytes",
                             "parameters", "ranks", "threads", "device", "precision"}  # fmt: skip
    assert report["model"] == "airbench" and 0 <= report["test_accuracy"] <= 1 and report["images_per_second"] > 0
    assert f"{100 * report['test_accuracy']:.2f} %" in printed
    assert "matplotlib" in printed or (tmp_path / "cifar10.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epoch", "3"], r"unknown option --epoch\b.*--epochs"),
        (["--model", "resnet19"], r"--model knows no 'resnet19'.*'resnet18'"),
        (["--optimizer=adan"], r"'adan'.*'adam'"),
        (["--epochs", "0"], r"^\[train\] .*--epochs: 0 is not"),
        (["--epochs", "3x"], r"^\[train\] .*--epochs: .*'3x'"),
        (["--lr", "nan"], r"^\[train\] .*--lr: nan is not"),
        (["--lr", "inf"], r"^\[train\] .*--lr: inf is not"),
        (["--save"], r"^\[train\] .*--save: expected one argument"),
    ],
)
def test_wrong_options_are_answered(tmp_path, options, message):
    assert re.search(message, python(tmp_path, *options, status=2), re.DOTALL)


@pytest.mark.parametrize("option", ["--save", "--report"])
def test_a_file_that_cannot_be_written_is_told_before_training(tmp_path, option):
    printed = python(tmp_path, *SMALL, *NET, "--epochs", 1, option, "/proc/nowhere/x", status=1)
    assert "/proc/nowhere/x" in printed and "parameters)" not in printed
    assert "that is a folder" in python(tmp_path, *SMALL, *NET, "--epochs", 1, option, tmp_path, status=1)


def test_missing_files_are_named(tmp_path):
    assert "no/such/folder" in python(tmp_path, "--data", "no/such/folder", status=1)
    assert "no.ckpt" in python(tmp_path, "--resume", "no.ckpt", status=1)


def test_offline_without_data_it_says_so_and_trains_on_made_up_images(tmp_path, monkeypatch):
    monkeypatch.setenv("ANELLO_CIFAR10_URL", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    printed = python(tmp_path, *NET, "--epochs", 1, "--train-size", 64, "--test-size", 16, "--quiet")
    assert "could not be downloaded" in printed and "--data DIR" in printed and "synthetic" in printed

"""The C++ program of the CIFAR-10 example: resumes bit for bit, reports, and answers wrong options.

Main entry: the tests. They run build/bin/cifar10_train on a few synthetic images.
"""

import json
import os
import re

import pytest
from cifar10_programs import NET, PROGRAM, SMALL, tensors, values
from cifar10_programs import cpp as train

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/bin/cifar10_train is not built")


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(tmp_path):
    train(tmp_path, *SMALL, *NET, "--epochs", 3, "--save", "whole.ckpt", "--threads", 1)
    train(tmp_path, *SMALL, *NET, "--epochs", 3, "--save", "part.ckpt", "--stop-after", 2, "--threads", 2)
    printed = train(tmp_path, *SMALL, "--resume", "part.ckpt", "--save", "part.ckpt", "--workers", 2)
    assert "epoch   3" in printed and "epoch   2" not in printed
    whole, resumed = tensors(tmp_path / "whole.ckpt"), tensors(tmp_path / "part.ckpt")
    assert whole == resumed
    assert values(tmp_path / "whole.ckpt") == values(tmp_path / "part.ckpt")
    assert values(tmp_path / "whole.ckpt")["history.epoch"] == [1, 2, 3]


def test_the_state_has_the_names_that_others_use(tmp_path):
    train(tmp_path, *SMALL, *NET, "--epochs", 1, "--save", "a.ckpt")
    names = {name.removeprefix("model.") for name in tensors(tmp_path / "a.ckpt") if name.startswith("model.")}
    assert {"conv1.weight", "bn1.running_var", "fc.weight", "fc.bias"} <= names
    assert {"layer1.0.conv1.weight", "layer1.0.bn2.bias", "layer3.2.conv2.weight"} <= names
    assert {"layer2.0.shortcut.0.weight", "layer2.0.shortcut.1.num_batches_tracked"} <= names
    assert "layer1.0.shortcut.0.weight" not in names


def test_the_report_and_the_curves(tmp_path):
    train(tmp_path, *SMALL, "--batch-size", 48, "--epochs", 1, "--report", "report.json", "--plot", "curves.svg")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report.keys() == {"model", "seed", "test_accuracy", "images_per_second", "train_seconds", "peak_rss_bytes",
                             "parameters", "ranks", "threads", "device", "precision"}  # fmt: skip
    assert report["model"] == "airbench" and 0 <= report["test_accuracy"] <= 1 and report["images_per_second"] > 0
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epoch", "3"], r"unknown option '--epoch'.*'--epochs'"),
        (["--model", "resnet19"], r"--model knows no 'resnet19'.*'resnet18'"),
        (["--optimizer=adan"], r"'adan'.*'adam'"),
        (["--epochs", "0"], r"--epochs is '0'"),
        (["--epochs", "3x"], r"--epochs is '3x'"),
        (["--lr", "nan"], r"--lr is 'nan'"),
        (["--save"], r"--save needs a value"),
    ],
)
def test_wrong_options_are_answered(tmp_path, options, message):
    assert re.search(message, train(tmp_path, *options, status=2), re.DOTALL)


@pytest.mark.parametrize("option", ["--save", "--report"])
def test_a_file_that_cannot_be_written_is_told_before_training(tmp_path, option):
    printed = train(tmp_path, *SMALL, *NET, "--epochs", 1, option, "/proc/nowhere/x", status=1)
    assert "/proc/nowhere/x" in printed and "parameters)" not in printed
    assert "not a regular file" in train(tmp_path, *SMALL, *NET, "--epochs", 1, option, tmp_path, status=1)


def test_missing_files_are_named(tmp_path):
    assert "no/such/folder" in train(tmp_path, "--data", "no/such/folder", status=1)
    assert "no.ckpt" in train(tmp_path, "--resume", "no.ckpt", status=1)


def test_a_resumed_run_refuses_other_options(tmp_path):
    train(tmp_path, *SMALL, *NET, "--epochs", 2, "--stop-after", 1, "--save", "a.ckpt")
    assert "--epochs 2, not 5" in train(tmp_path, *SMALL, "--resume", "a.ckpt", "--epochs", 5, status=2)


def test_offline_without_data_it_says_so_and_trains_on_made_up_images(tmp_path):
    environment = {"ANELLO_CIFAR10_URL": "http://127.0.0.1:9/cifar-10-binary.tar.gz"}
    os.environ.update(environment)
    try:
        printed = train(tmp_path, *NET, "--epochs", 1, "--train-size", 64, "--test-size", 16, "--quiet")
    finally:
        del os.environ["ANELLO_CIFAR10_URL"]
    assert "could not be downloaded" in printed and "--data DIR" in printed and "synthetic" in printed

"""The two programs of the CIFAR-10 example, run as a user runs them, and what is in their checkpoints.

Main entry: python(folder, *options), cpp(folder, *options), tensors(path), values(path).
"""

import json
import os
import struct
import subprocess
import sys

import packages

PROGRAM = packages.BUILD / "bin/cifar10_train"
SCRIPT = packages.ROOT / "examples/cifar10/train.py"
SMALL = ["--data", "synthetic", "--train-size", "96", "--test-size", "32", "--quiet"]
NET = ["--model", "resnet20", "--batch-size", "32"]


def _train(command, folder, options, status):
    environment = {**os.environ, "ANELLO_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [*command, *map(str, options)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def cpp(folder, *options, status=0):
    """Runs the C++ program; returns what it printed (standard output and error)."""
    return _train([PROGRAM], folder, options, status)


def python(folder, *options, status=0):
    """Runs train.py; returns what it printed (standard output and error)."""
    return _train([sys.executable, SCRIPT], folder, options, status)


def tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__")
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = (entry["dtype"], entry["shape"], data[start + begin : start + end])
    return found


def values(path):
    """The numbers beside the tensors of a checkpoint, without how long it took."""
    found = json.loads(path.with_name(path.name + ".json").read_text())
    found.pop("history.seconds")
    return found

"""The same seed gives the same bits for any number of threads: training of small nets, and large single operations.

Main entry: the tests. Run as a script, it prints the digest of a training: python test_threads.py float32 Adam.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from op_dtypes import to_array

import anello
from anello import nn
from anello.nn import functional as F

THREADS = (1, 2, 3)
STEPS = 100


class Net(nn.Module):
    """Convolution, batch norm, pooling, dropout, linear: what a training of images is made of."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24)
        self.fc = nn.Linear(24, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.gelu(self.bn2(self.conv2(x)))
        x = F.dropout(x.mean(dim=(1, 2)), 0.2, training=self.training)
        return self.fc(x)


OPTIMIZERS = {
    "Adam": lambda parameters: anello.optim.Adam(parameters, lr=1e-3),
    "SGD": lambda parameters: anello.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4),
}


def train(dtype, optimizer, steps=STEPS):
    """Bytes of every parameter and buffer after `steps` steps on random images."""
    anello.manual_seed(7)
    net = Net().to(getattr(anello, dtype))
    optimizer = OPTIMIZERS[optimizer](net.parameters())
    for _ in range(steps):
        x = anello.randn(16, 12, 12, 3).to(getattr(anello, dtype))
        labels = anello.randint(10, (16,))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), labels, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    state = net.state_dict()
    assert all(np.isfinite(to_array(value)).all() for value in state.values())
    return {name: to_array(value).tobytes() for name, value in state.items()}


def digest(state):
    return hashlib.sha256(b"".join(name.encode() + value for name, value in sorted(state.items()))).hexdigest()


@pytest.fixture
def threads():
    """Calls f() with 1, 2 and 3 threads; the number of before comes back."""
    before = anello.get_num_threads()

    def with_each(f):
        results = []
        for count in THREADS:
            anello.set_num_threads(count)
            assert anello.get_num_threads() == count
            results.append(f())
        return results

    yield with_each
    anello.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parameters_after_100_steps(threads, dtype, optimizer):
    first, *others = threads(lambda: train(dtype, optimizer))
    for count, other in zip(THREADS[1:], others):
        differ = [name for name, value in first.items() if other[name] != value]
        assert not differ, f"{count} threads give other bits in {differ}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype, optimizer", [("float32", "Adam"), ("bfloat16", "SGD")])
def test_parameters_of_processes_with_ANELLO_NUM_THREADS(dtype, optimizer):
    def run(count):
        # sys.path as a whole: the package may come from a build tree that only this process was told of.
        env = {**os.environ, "ANELLO_NUM_THREADS": str(count), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, __file__, dtype, optimizer]
        done = subprocess.run(
            command, env=env, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        number, value = done.stdout.split()
        assert number == str(count)
        return value

    assert {run(count) for count in THREADS} == {digest(train(dtype, optimizer))}


# --- Large single operations, forward and backward ---


def normal(*shape):
    return np.random.default_rng(list(shape)).normal(size=shape).astype(np.float32)


# name: (function, inputs). Large enough that each splits its work.
LARGE = {
    "sum": (lambda x: x.sum(), normal(300_001)),
    "sum of columns": (lambda x: x.sum(dim=0), normal(3001, 67)),
    "sum of rows": (lambda x: x.sum(dim=1), normal(67, 3001)),
    "mean of the middle": (lambda x: x.mean(dim=1), normal(33, 200, 31)),
    "var": (lambda x: x.var(dim=0), normal(2000, 50)),
    "norm": (lambda x: x.norm(), normal(200_000)),
    "logsumexp": (lambda x: x.logsumexp(dim=1), normal(300, 500)),
    "prod": (lambda x: (x * 0.01 + 1).prod(dim=0), normal(500, 200)),
    "amax": (lambda x: x.amax(dim=0), normal(1000, 200)),
    "exp": (lambda x: x.exp(), normal(300_000)),
    "broadcast": (lambda x, y: x * y + y, normal(400, 300), normal(300)),
    "transposed": (lambda x: x.T * 2, normal(700, 300)),
    "matmul": (lambda x, y: x @ y, normal(257, 300), normal(300, 190)),
    "matmul, long": (lambda x, y: x @ y, normal(16, 20_000), normal(20_000, 16)),
    "matmul, one row": (lambda x, y: x @ y, normal(3000), normal(3000, 200)),
    "batched matmul": (lambda x, y: x @ y, normal(20, 40, 50), normal(20, 50, 60)),
    "linear": (lambda x, w, b: F.linear(x, w, b), normal(200, 300), normal(100, 300), normal(100)),
    "conv": (lambda x, w, b: F.conv2d(x, w, b, padding=1), normal(8, 20, 20, 16), normal(32, 3, 3, 16), normal(32)),
    "strided conv": (lambda x, w: F.conv2d(x, w, stride=2, padding=3), normal(4, 33, 33, 3), normal(33, 7, 7, 3)),
    "1x1 conv": (lambda x, w: F.conv2d(x, w), normal(8, 16, 16, 64), normal(48, 1, 1, 64)),
    "depthwise conv": (lambda x, w: F.conv2d(x, w, padding=1, groups=64), normal(8, 16, 16, 64), normal(64, 3, 3, 1)),
    "max pool": (lambda x: F.max_pool2d(x, 3, stride=2, padding=1), normal(8, 32, 32, 32)),
    "average pool": (lambda x: F.avg_pool2d(x, 2), normal(8, 32, 32, 32)),
    "batch norm": (lambda x, w: F.batch_norm(x, None, None, w, training=True), normal(16, 20, 20, 32), normal(32)),
    "softmax": (lambda x: x.softmax(dim=1), normal(300, 400)),
    "log softmax, other dim": (lambda x: x.log_softmax(dim=0), normal(300, 400)),
    "cross entropy": (lambda x: F.cross_entropy(x, anello.arange(3000) % 40), normal(3000, 40)),
    "mse": (lambda x, y: F.mse_loss(x, y), normal(500, 400), normal(500, 400)),
    "gather": (lambda x: x.gather(0, anello.arange(60_000).reshape(300, 200) % 300), normal(300, 200)),
    "scatter_add": (lambda x: x.scatter_add(0, anello.arange(60_000).reshape(300, 200) % 7, 7), normal(300, 200)),
    "index_select": (lambda x: x[anello.arange(50_000) % 11], normal(11, 5)),
    "pad": (lambda x: F.pad(x, (0, 0, 2, 2, 2, 2), mode="reflect"), normal(8, 30, 30, 16)),
    "cat": (lambda x, y: anello.cat([x, y], dim=1), normal(400, 200), normal(400, 100)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LARGE)
def test_large_operations(threads, name, dtype):
    function, *arrays = LARGE[name]

    def run():
        inputs = [anello.tensor(array).to(getattr(anello, dtype)).requires_grad_() for array in arrays]
        out = function(*inputs)
        upstream = anello.linspace(-1, 1, out.numel()).to(out.dtype).reshape(*out.shape)
        return [to_array(t) for t in (out, *anello.grad(out, inputs, upstream))]

    first, *others = threads(run)
    for count, other in zip(THREADS[1:], others):
        for i, (a, b) in enumerate(zip(first, other)):
            what = "the result" if i == 0 else f"gradient {i - 1}"
            assert a.tobytes() == b.tobytes(), f"{count} threads: other bits in {what}"


if __name__ == "__main__":
    print(anello.get_num_threads(), digest(train(*sys.argv[1:3])))

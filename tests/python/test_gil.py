"""The GIL and C++ threads: given away in long work, never waited for to let something go; Ctrl-C is heard, exits are
clean.
Main entry: pytest."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import anello

LIMIT = 60  # seconds; a deadlock would take for ever


def run_python(code, **options):
    """Runs code in a fresh interpreter, which must end by itself."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, env={**os.environ}, **options
    )


def progress_of_another_thread(work):
    """How often another Python thread got to run while work() did."""
    count, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = count[0]
    started = time.perf_counter()
    while time.perf_counter() - started < 0.3:
        work()
    ticks = count[0] - before
    stop.set()
    thread.join()
    return ticks


def test_the_gil_is_given_away():
    a = anello.randn(700, 700)
    assert progress_of_another_thread(lambda: a @ a) > 10
    x = anello.randn(700, 700, requires_grad=True)

    def forward_backward():
        (x @ a @ a).sum().backward()

    assert progress_of_another_thread(forward_backward) > 10


def test_threads_compute_at_once():
    results = [None] * 4

    def work(i):
        anello.manual_seed(0)
        x = anello.ones(50, 50, requires_grad=True)
        for _ in range(20):
            (x @ x * i).sum().backward()
        results[i] = x.grad.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert results == [20 * 2 * 50**3 * i for i in range(4)]


def test_arrays_are_let_go_without_the_gil():
    class Watched(np.ndarray):
        gone = 0

        def __del__(self):
            Watched.gone += 1

    def make():
        return anello.from_numpy(np.zeros(100_000, np.float32).view(Watched))

    for _ in range(50):
        x = make().detach()
        x.requires_grad_()
        y = (x * make()).sum()  # the graph holds the second array; backward lets it go without the GIL
        y.backward()
        del x, y
    deadline = time.time() + 5
    while Watched.gone < 80 and time.time() < deadline:
        time.sleep(0.01)
    assert Watched.gone >= 80


INTERRUPTED = """
import anello, sys, time
{setup}
print("ready", flush=True)
try:
    {loop}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("setup", "loop"),
    [
        (
            "x = y = anello.ones(1000, 200, requires_grad=True)\nfor _ in range(3000): y = (y * 1.0001).sin()",
            "while True: y.backward(anello.ones(1000, 200), retain_graph=True)",
        ),
        (
            "class Slow:\n  def __len__(self): return 1000\n  def __getitem__(self, i): time.sleep(1); return 1, 1",
            "next(iter(anello.data.DataLoader(Slow(), batch_size=1000, workers=2)))",
        ),
    ],
    ids=["backward", "loader"],
)
def test_ctrl_c_stops_soon(setup, loop):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(setup=setup, loop=loop)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        started = time.perf_counter()
        line = process.stdout.readline()
        assert line == "interrupted\n"
        assert time.perf_counter() - started < 5
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    "code",
    [
        # Tensors on arrays, graphs with Python functions and hooks are still there at exit.
        """
        import numpy as np
        class F(anello.autograd.Function):
            forward = staticmethod(lambda ctx, x: x * 2)
            backward = staticmethod(lambda ctx, g: g * 2)
        x = anello.from_numpy(np.ones(100000, np.float32)).requires_grad_()
        x.on_grad_ready(lambda t: None)
        y = F.apply(x).sum()
        anello.autograd.on_backward_end(lambda s: None)
        keep = [x, y]
        """,
        # A loader whose workers run Python is still going.
        """
        import time
        class D:
            def __len__(self): return 100
            def __getitem__(self, i): time.sleep(0.01); return 1.0, i
        loop = iter(anello.data.DataLoader(D(), batch_size=4, workers=3, prefetch=8))
        next(loop)
        """,
        # A daemon thread computes.
        """
        import threading, time
        def work():
            while True: anello.randn(300, 300) @ anello.randn(300, 300)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        """,
        # A module that Python subclasses, held by a C++ one.
        """
        class M(anello.nn.Module):
            def forward(self, x): return x
        net = anello.nn.Sequential(M())
        net.me = [net]
        net(anello.ones(1))
        """,
        """
        s = anello.optim.SGD([anello.ones(1, requires_grad=True)])
        l = anello.optim.LambdaLR(s, lambda t: 1.0)
        """,
    ],
    ids=["tensors", "loader", "daemon", "module", "schedule"],
)
def test_the_interpreter_exits_clean(code):
    import textwrap

    result = run_python("import anello\n" + textwrap.dedent(code) + "\nprint('done')")
    assert result.stdout.endswith("done\n"), result.stderr
    assert result.returncode == 0, result.stderr
    assert "rror" not in result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork() here")
def test_the_pool_works_after_fork():
    code = """
import os, anello
a = anello.randn(400, 400)
expected = (a @ a).sum().item()
pid = os.fork()
if pid == 0:
    os._exit(0 if (a @ a).sum().item() == expected else 1)
assert os.waitpid(pid, 0)[1] == 0
assert (a @ a).sum().item() == expected
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr


def test_set_num_threads_keeps_the_bits():
    before = anello.get_num_threads()
    a = anello.randn(300, 300)
    results = []
    for count in (1, 2, 3):
        anello.set_num_threads(count)
        assert anello.get_num_threads() == count
        results.append((a @ a).sum().item())
    anello.set_num_threads(before)
    assert len(set(results)) == 1
    with pytest.raises(ValueError):
        anello.set_num_threads(0)

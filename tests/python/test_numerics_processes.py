"""Numeric traps of processes and threads (15 and 16): fork after the pool started, tensors that go in any thread.

Main entry: the tests, numbered as the traps are.
"""

import gc
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import anello


def run_python(code, timeout=120):
    """Runs code in a process of its own; a deadlock becomes a failure."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- 15: fork after the pool started ----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
def test_15_the_pool_works_in_a_forked_child():
    out = run_python(
        """
        import os, sys
        import anello
        anello.set_num_threads(3)
        x = anello.ones(700, 700)
        expected = (x @ x).sum().item()
        for generation in range(3):
            child = os.fork()
            if child == 0:
                y = anello.ones(700, 700, requires_grad=True)
                total = (y @ y).sum()
                total.backward()
                assert total.item() == expected and y.grad.sum().item() == 2 * 700 ** 3
                if generation < 2:
                    continue  # a child forks a child
                print("deep", flush=True)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            assert status == 0, status
            assert (x @ x).sum().item() == expected
            if generation > 0:
                os._exit(0)
            break
        print("done", flush=True)
        """
    )
    assert out.split() == ["deep", "done"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
def test_15_fork_while_another_thread_computes():
    run_python(
        """
        import os, threading
        import anello
        anello.set_num_threads(2)
        stop = threading.Event()
        def busy():
            x = anello.ones(300, 300)
            while not stop.is_set():
                (x @ x).sum().item()
        worker = threading.Thread(target=busy)
        worker.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                x = anello.ones(300, 300)
                os._exit(0 if (x @ x).sum().item() == 300 ** 3 else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        worker.join()
        """
    )


# --- 16: tensors go, and the pool is joined, while Python holds its lock ----------------------------------------------


def test_16_tensors_on_arrays_go_in_any_thread():
    """Each tensor holds an array; its end calls into Python, from threads that do not hold the lock too."""

    def churn():
        for _ in range(200):
            x = anello.from_numpy(np.ones((40, 40), np.float32))
            y = (x @ x).reshape(-1)
            del x
            y.sum()

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    gc.collect()


def test_16_hooks_and_custom_functions_in_backward_while_others_hold_the_lock():
    class Double(anello.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    fired = []

    def work():
        for _ in range(50):
            x = anello.ones(30, 30, requires_grad=True)
            x.on_grad_ready(lambda t: fired.append(t.shape))
            Double.apply(x @ x).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    assert len(fired) == 200


def test_16_the_pool_is_joined_while_python_holds_its_lock():
    run_python(
        """
        import gc, threading
        import numpy as np
        import anello
        def work():
            for i in range(100):
                x = anello.from_numpy(np.ones((64, 64), np.float32))
                (x @ x).sum().item()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads: t.start()
        for i in range(60):
            anello.set_num_threads(1 + i % 3)
            gc.collect()
        for t in threads: t.join()
        kept = [anello.from_numpy(np.ones(1000, np.float32)) for _ in range(100)]
        # The interpreter ends with tensors alive and the pool running.
        """
    )


def test_16_the_interpreter_ends_while_a_loader_works():
    run_python(
        """
        import anello
        train, _ = anello.data.synthetic(200, 10)
        loop = iter(anello.data.DataLoader(train, batch_size=8, shuffle=True, workers=3))
        next(loop)
        # Ends in the middle of an epoch, its workers waiting.
        """
    )

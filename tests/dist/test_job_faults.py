"""Jobs whose ranks are killed, stopped, interrupted: always ended in time, the rank named, nothing left (row 2).

Main entry: the tests. ANELLO_KILL_TRIALS=50 does as many SIGKILL trials as it says (CI: 6)."""

import os
import random
import signal
import time

import pytest
from jobs import MPI_LOOP, Job, needs_mpi, script

pytestmark = needs_mpi
FOREVER = "1000000000"
TRIALS = int(os.environ.get("ANELLO_KILL_TRIALS", "6"))
LIMIT = 5.0  # seconds from the fault to the end of the job


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_killed_rank_is_named_and_the_job_ends(trial):
    random.seed(trial)
    ranks = 2 + trial % 3
    job = Job(["-n", str(ranks)], MPI_LOOP, [FOREVER])
    pids = job.wait_for_ranks(ranks)
    if trial % 2 == 0:  # in the middle of an all-reduce, else at any moment of the start
        job.read_until("first sum")
    time.sleep(random.uniform(0, 0.5))
    victim = random.randrange(ranks)
    os.kill(pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    code, _, err = job.finish()
    took = time.monotonic() - killed
    print(f"killed rank {victim} of {ranks}, ended after {took:.2f} s")
    assert took < LIMIT
    assert code == 128 + signal.SIGKILL
    assert f"rank {victim} was killed by SIGKILL" in err
    assert f"rank {victim} failed first" in err.splitlines()[-1]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_everything(number, code):
    job = Job(["-n", "3"], MPI_LOOP, [FOREVER])
    job.read_until("first sum")
    job.process.send_signal(number)
    sent = time.monotonic()
    got, _, err = job.finish()
    assert time.monotonic() - sent < LIMIT
    assert got == code
    assert f"stopped by {number.name}" in err


def test_a_program_that_ignores_sigterm_ends_too(tmp_path):
    path = script(
        tmp_path, "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\ntime.sleep(600)"
    )
    job = Job(["-n", "2"], path)
    job.read_until("up")
    job.process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert job.finish()[0] == 130
    assert time.monotonic() - sent < LIMIT


def test_what_a_rank_started_itself_ends_with_the_job(tmp_path):
    path = script(
        tmp_path,
        "import subprocess, sys, time\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]\n"
        "subprocess.Popen(sleep, start_new_session=True)\n"
        "print('up')\ntime.sleep(600)",
    )
    job = Job(["-n", "2"], path)
    job.read_until("up")
    os.kill(job.wait_for_ranks(2)[1], signal.SIGKILL)
    assert job.finish()[0] == 128 + signal.SIGKILL


def test_a_killed_launcher_takes_its_job_along():
    job = Job(["-n", "2"], MPI_LOOP, [FOREVER])
    job.read_until("first sum")
    job.process.kill()
    job.process.communicate(timeout=20)
    until = time.monotonic() + LIMIT
    while job.ranks() and time.monotonic() < until:
        time.sleep(0.1)
    assert not job.ranks()
    while job.leftovers() and time.monotonic() < until:
        time.sleep(0.1)
    assert not job.leftovers()


def test_a_stopped_rank_is_named_and_ended():
    job = Job(["-n", "3", "--stall-timeout", "1"], MPI_LOOP, [FOREVER])
    job.read_until("first sum")
    os.kill(job.wait_for_ranks(3)[2], signal.SIGSTOP)
    stopped = time.monotonic()
    code, _, err = job.finish()
    assert time.monotonic() - stopped < LIMIT
    assert code == 128 + signal.SIGSTOP
    assert "rank 2 (process" in err and "was stopped by a signal" in err
    assert "rank 2 failed first: it stayed stopped (SIGSTOP) for 1 s" in err


def test_a_stopped_rank_that_goes_on_does_no_harm():
    job = Job(["-n", "2"], MPI_LOOP, ["300"])
    pids = job.wait_for_ranks(2)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(0.7)
    os.kill(pids[1], signal.SIGCONT)
    code, _, err = job.finish()
    assert code == 0, err
    assert "rank 1 (process" in err

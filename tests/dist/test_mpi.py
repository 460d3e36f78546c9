"""The MPI transport: the C++ tests of every collective, run by real mpirun, over one host and two; what is refused.

Main entry: the tests; ANELLO_MPIRUN names another mpirun than the one on PATH."""

import os
import re
import subprocess
import sys

import pytest
from jobs import ROOT, clean_environment, needs_mpi

from anello.launcher import find_mpirun

PROGRAM = ROOT / "build/bin/anello_tests"
pytestmark = [needs_mpi, pytest.mark.skipif(not PROGRAM.exists(), reason="build/bin/anello_tests is not built")]


def run(ranks, *arguments, **env):
    mpirun = find_mpirun(os.environ.get("ANELLO_MPIRUN"))
    many = ["--map-by", ":oversubscribe"] if mpirun.version[0] == 5 else ["--oversubscribe"]
    command = [mpirun.path, "--allow-run-as-root", *many, "--bind-to", "none", "-n", str(ranks), PROGRAM, *arguments]
    environment = clean_environment(ANELLO_NUM_THREADS="1", **env)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_collective_over_processes(ranks):
    code, printed = run(ranks, "[dist]~[faults]")
    assert code == 0, printed
    assert printed.count("All tests passed") == ranks, printed


def test_messages_in_many_pieces():
    """MPI counts bytes in an int: what is longer goes in pieces, here of 1000 bytes."""
    code, printed = run(2, "[dist]~[faults]", ANELLO_MPI_PIECE="1000")
    assert code == 0 and printed.count("All tests passed") == 2, printed


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "another MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "ANELLO_MPI_LIBRARY": "/nowhere"}, "/nowhere"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "started 2 ranks, but .* sees 1"),
    ],
)
def test_what_cannot_work_is_one_clear_error(variables, words):
    code = "import anello\ntry:\n anello.dist.world()\nexcept anello.DistError as e:\n print(e)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.search(words, done.stdout), done.stdout + done.stderr
    assert "Traceback" not in done.stderr

"""`anello run` with real mpirun: options, output, exit codes, what it says when something is missing.

Main entry: the tests. Numbers of rows are those of the table of situations in docs/dist.md."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import MPI_LOOP, clean_environment, needs_mpi, run, script

from anello import launcher
from anello.launcher import _mpirun, _network, _options

SHOW = """
import json, os, sys
print(json.dumps({"rank": os.environ.get("OMPI_COMM_WORLD_RANK"), "threads": os.environ.get("ANELLO_NUM_THREADS"),
                  "affinity": len(os.sched_getaffinity(0)), "arguments": sys.argv[1:-1]}))
"""


def rows(out):
    """What SHOW printed, by rank; each line has its rank in front."""
    found = {}
    for line in out.splitlines():
        prefix, _, text = line.partition("] ")
        row = json.loads(text)
        assert int(prefix.strip("[ ")) == int(row["rank"])
        found[int(row["rank"])] = row
    return found


def refused(*words, **env):
    done = subprocess.run(
        [sys.executable, "-m", "anello", "run", *map(str, words)],
        capture_output=True, text=True, timeout=60, check=False, env=clean_environment(**env),
    )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("[run] ")
    return done.stderr


# --- Rows 9 and 10: as root, fewer cores than ranks, threads and binding ---


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_rank_runs_unbound_with_its_share_of_the_cores(tmp_path, ranks):
    code, out, err = run(["-n", str(ranks)], script(tmp_path, SHOW), "--lr", "1")
    assert code == 0, err
    found = rows(out)
    assert sorted(found) == list(range(ranks))
    cores = len(os.sched_getaffinity(0))
    for row in found.values():
        assert row["affinity"] == cores
        assert 1 <= int(row["threads"]) <= max(1, cores // ranks)
        assert row["arguments"] == ["--lr", "1"]


@needs_mpi
def test_threads_are_as_many_as_asked_for(tmp_path):
    code, out, err = run(["-n", "2", "--threads=3"], script(tmp_path, SHOW))
    assert code == 0, err
    assert {row["threads"] for row in rows(out).values()} == {"3"}


@needs_mpi
def test_ranks_find_each_other_through_mpi():
    code, out, err = run(["-n", "3"], MPI_LOOP, "3")
    assert code == 0, err
    assert out.count("first sum 3.0") == 3


@needs_mpi
@pytest.mark.skipif("ANELLO_OTHER_MPIRUN" not in os.environ, reason="ANELLO_OTHER_MPIRUN names no second mpirun")
def test_a_second_installation_brings_its_own_library():
    code, out, err = run(["-n", "2", "--mpirun", os.environ["ANELLO_OTHER_MPIRUN"]], MPI_LOOP, "3")
    assert code == 0, err
    assert out.count("first sum 2.0") == 2


@needs_mpi
def test_a_small_shared_memory_folder_is_left_alone(tmp_path):
    """A 64 MB /dev/shm: MPI's files go elsewhere, the job runs, the fix is printed."""
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("a mount namespace is not permitted here")
    job = f"{sys.executable} -m anello run -n 2 {MPI_LOOP} 3"
    command = f"mount -t tmpfs -o size=16m tmpfs /dev/shm && {job}"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", command], capture_output=True, text=True, timeout=60, check=False,
        env=clean_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("first sum 2.0") == 2
    assert "/dev/shm has less than" in done.stderr and "--shm-size" in done.stderr


def test_one_rank_needs_no_mpi(tmp_path):
    path = script(tmp_path, "print('alone')")
    code, out, _ = run(["-n", "1"], path, ANELLO_MPIRUN="/nowhere/mpirun")
    assert (code, out) == (0, "alone\n")


# --- Failures: who was first, with which words and which exit code ---


@needs_mpi
def test_the_first_traceback_comes_last_and_its_exit_code_is_returned(tmp_path):
    path = script(
        tmp_path,
        "import os, sys, time, atexit\n"
        "rank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n"
        "time.sleep(0.3 + 0.2 * (rank != 1))\n"
        "if rank == 1: atexit.register(time.sleep, 0.6)\n"  # raises first, ends last
        "raise ValueError(f'bad input on {rank}') if rank < 2 else SystemExit(0)\n",
    )
    code, _, err = run(["-n", "3"], path)
    assert code == 1
    last = err.splitlines()
    assert "rank 1 failed first" in last[-1]
    assert last[-2].endswith("ValueError: bad input on 1")


@needs_mpi
@pytest.mark.parametrize("code", [3, 77])
def test_exit_codes_are_handed_on(tmp_path, code):
    path = script(
        tmp_path, "import os, sys\nsys.exit(int(sys.argv[1]) if os.environ['OMPI_COMM_WORLD_RANK'] == '1' else 0)"
    )
    assert run(["-n", "2"], path, str(code))[0] == code


@needs_mpi
def test_another_anello_on_a_rank_is_refused_before_the_start(tmp_path):
    """As on a host with another wheel: the library there is not the launcher's."""
    package = tmp_path / "anello"
    (package / "launcher").mkdir(parents=True)
    (package / "lib").mkdir()
    (package / "lib" / "libanello.so").write_bytes(b"another one")
    worker = package / "launcher" / "_worker.py"
    worker.write_text(Path(launcher._job._worker.__file__).read_text())
    options = _options.parse(["-n", "2", str(script(tmp_path, "print('ran')"))])
    settings = launcher._job.Job(options).settings()
    done = subprocess.run(
        [sys.executable, str(worker), settings], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 1
    assert "has another anello" in done.stdout and "same wheel on every host" in done.stdout


# --- Row 1: no MPI, another MPI, an unexpected version ---


def fake_mpirun(folder, says):
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_without_mpi_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_mpirun, "USUAL", (str(tmp_path),))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("ANELLO_MPIRUN", raising=False)
    with pytest.raises(
        launcher.LaunchError, match=r"no mpirun was found; looked at .*PATH.*apt-get install openmpi-bin"
    ):
        launcher.find_mpirun()


@pytest.mark.parametrize(
    "says, answer",
    [
        ("HYDRA build details: Version: 4.1", "MPICH"),
        ("mpirun (Open MPI) 3.1.6", "is Open MPI 3.1"),
        ("something else", "not Open MPI"),
    ],
)
def test_another_mpi_is_one_clear_line(tmp_path, says, answer):
    text = refused("-n", "2", "--mpirun", fake_mpirun(tmp_path, says), script(tmp_path, ""))
    assert answer in text and "Hint: apt-get install openmpi-bin" in text


@pytest.mark.parametrize(
    "version, words",
    [
        (
            (4, 1, 4),
            ["--map-by slot --oversubscribe", "--mca plm_rsh_agent ssh2", "--mca oob_tcp_if_include 10.0.0.0/8"],
        ),
        (
            (5, 0, 8),
            ["--map-by slot:OVERSUBSCRIBE", "--prtemca plm_ssh_agent ssh2", "--prtemca prte_if_include 10.0.0.0/8"],
        ),
    ],
)
def test_each_version_gets_its_own_spelling(version, words):
    mpirun = _mpirun.Mpirun("/usr/bin/mpirun", version)
    made = " ".join(_mpirun.command(mpirun, 3, [("a", 1), ("b", 2)], "10.0.0.0/8", "ssh2"))
    for word in [*words, "--bind-to none", "-H a:1,b:2", "-n 3"]:
        assert word in made


def test_doctor_has_a_row_for_mpi_and_nccl():
    done = subprocess.run(
        [sys.executable, "-m", "anello", "doctor"], capture_output=True, text=True, check=True, timeout=60,
        env=clean_environment(ANELLO_MPIRUN="/nowhere/mpirun"),
    )  # fmt: skip
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "/nowhere/mpirun (ANELLO_MPIRUN)" in lines["mpi"] and "Hint" in lines["mpi"]
    assert "found" in lines["nccl"]


# --- Options ---


@pytest.mark.parametrize(
    "words, answer",
    [
        (["-n", "2", "--thraeds", "1", "x.py"], "did you mean --threads?"),
        (["-n", "0", sys.executable], "-n 0: not a number from 1 up"),
        (["-n", "two", sys.executable], "-n two: not a number"),
        (["-n"], "-n needs a value"),
        ([sys.executable], "how many ranks?"),
        (["-n", "2"], "which program?"),
        (["-n", "5", "-H", "a:2,b:2", sys.executable], "-n 5, but the hosts take 4"),
        (["-H", "a:x", sys.executable], "'a:x' is not HOST or HOST:SLOTS"),
        (["-H", "a", "--hostfile", "f", sys.executable], "both name hosts"),
        (["--hostfile", "/nowhere", sys.executable], "--hostfile /nowhere: No such file"),
        (["-n", "2", "--trace", "/nowhere/t.json", sys.executable], "cannot write there"),
        (["-n", "2", "--stall-timeout", "-1", sys.executable], "--stall-timeout -1"),
    ],
)
def test_wrong_options_are_one_line(words, answer):
    assert answer in refused(*words)


def test_a_program_that_is_not_there_names_the_nearest(tmp_path):
    script(tmp_path, "", "train.py")
    assert f"did you mean {tmp_path}/train.py?" in refused("-n", "2", tmp_path / "tran.py")


def test_hostfiles(tmp_path):
    path = script(tmp_path, "# two machines\nhost1 slots=2\nhost2:3  # big\n\nhost3\n", "hosts")
    assert _options.read_hosts(str(path)) == [("host1", 2), ("host2", 3), ("host3", 1)]
    options = _options.parse(["--hostfile", str(path), sys.executable, "-n", "7"])
    assert options.ranks == 6 and options.program == [sys.executable, "-n", "7"]


def test_networks():
    assert _network.choose_network(["localhost"], None) is None
    assert _network.choose_network([], "10.9.1.7/16") == "10.9.0.0/16"
    with pytest.raises(launcher.LaunchError, match="no such interface"):
        _network.choose_network([], "eht0")
    assert _network.choose_network([], "lo") == "127.0.0.0/8"

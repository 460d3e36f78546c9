"""examples/cifar10 under `anello run`, and a full disk at a checkpoint (row 7).

Main entry: the tests."""

import json
import subprocess
import sys

import pytest
from jobs import ROOT, clean_environment, needs_mpi, run, script

import anello

TRAIN = ROOT / "examples/cifar10/train.py"
TWIN = ROOT / "build/bin/cifar10_train"
SMALL = ["--model", "resnet20", "--epochs", "1", "--batch-size", "16", "--data", "synthetic"]
SMALL += ["--train-size", "32", "--test-size", "16", "--quiet"]

SAVER = """
import os, sys, anello
path, rank = sys.argv[1], int(os.environ["OMPI_COMM_WORLD_RANK"])
if rank == 0:
    anello.save_checkpoint(path, {"x": anello.ones(1000)})
    anello.save_checkpoint(path, {"x": anello.ones(16 << 20)})
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [TRAIN, TWIN], ids=["python", "cpp"])
def test_one_rank_trains_and_reports(program, tmp_path):
    if not program.exists():
        pytest.skip(f"{program} is not built")
    report = tmp_path / "report.json"
    # The token of the job would be an unknown option: train.py is told everything by name.
    command = [sys.executable, "-m", "anello", "run", "-n", "1", str(program), *SMALL, "--report", str(report)]
    command += ["--plot", str(tmp_path / "curves")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=clean_environment())
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["ranks"] == 1


def train(ranks, program, folder, *options):
    """A run on several ranks: its report, and the last checkpoint's weights."""
    if not program.exists():
        pytest.skip(f"{program} is not built")
    folder.mkdir()
    command = [sys.executable, "-m", "anello", "run", "-n", str(ranks), str(program), *SMALL, *options]
    command += ["--report", "report.json", "--save", "saved", "--plot", "curves"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=clean_environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "report.json").read_text()), anello.load_checkpoint(folder / "saved")["model"]


@needs_mpi
@pytest.mark.parametrize("program", [TRAIN, TWIN], ids=["python", "cpp"])
def test_several_ranks_train_the_net_that_one_trains(program, tmp_path):
    """Two steps at a small rate, so that float32 does not drift apart: the same samples in the same global batches."""
    small_steps = ["--lr", "1e-3", "--schedule", "constant"]
    _, alone = train(1, program, tmp_path / "1", *small_steps)
    for ranks in (2, 3):
        size = [] if ranks == 2 else ["--batch-size", "15"]
        report, weights = train(ranks, program, tmp_path / str(ranks), *small_steps, *size)
        assert report["ranks"] == ranks
        if ranks == 2:
            for name, one in alone.items():
                assert (weights[name].double() - one.double()).abs().max().item() < 1e-4, name


@needs_mpi
def test_a_full_disk_at_a_checkpoint_loses_nothing(tmp_path):
    """The second checkpoint does not fit: rank 0 is named, the first one still loads."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a mount namespace is not permitted here")
    disk, program = tmp_path / "disk", script(tmp_path, SAVER)
    disk.mkdir()
    check = f"import anello; x = anello.load_checkpoint('{disk}/saved')['x']; print('still there', x.sum().item())"
    command = (
        f"mount -t tmpfs -o size=8m tmpfs {disk} || exit 99; "
        f"{sys.executable} -m anello run -n 2 {program} {disk}/saved;"
        f' code=$?; {sys.executable} -c "{check}"; ls {disk}; exit $code'
    )
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", command], capture_output=True, text=True, timeout=120, check=False,
        env=clean_environment(),
    )  # fmt: skip
    if done.returncode == 99:
        pytest.skip("tmpfs may not be mounted here")
    assert done.returncode == 1, done.stderr
    assert "still there 1000.0" in done.stdout
    names = done.stdout.partition("still there 1000.0\n")[2].split()
    assert set(names) <= {"saved", "saved.json", "saved.safetensors"}, names  # nothing half-written beside them
    assert "No space left" in done.stderr and "rank 0 failed first" in done.stderr.splitlines()[-1]


def test_one_rank_hands_on_its_exit_code(tmp_path):
    assert run(["-n", "1"], script(tmp_path, "import sys; sys.exit(5)"))[0] == 5

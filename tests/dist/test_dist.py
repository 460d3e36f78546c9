"""anello.dist between processes under mpirun: collective operations, training, uneven loops, shards, Ctrl-C.

Main entry: run(case, ranks); the cases are functions of dist_program.py.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from jobs import clean_environment, needs_mpi

PROGRAM = Path(__file__).with_name("dist_program.py")


def run(case, ranks, ends_well=True):
    """What each rank found."""
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*(mpirun if ranks > 1 else []), sys.executable, str(PROGRAM), case, folder],
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment(ANELLO_NUM_THREADS="1"),
        )
        assert done.returncode == 0 or not ends_well, done.stdout + done.stderr
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]


@needs_mpi
def test_losses_of_1_2_and_4_ranks_agree():
    alone = run("losses", 1)[0]
    assert alone[-1] < alone[0]
    for ranks in (2, 4):
        found = run("losses", ranks)
        assert all(losses == found[0] for losses in found)
        assert max(abs(a - b) for a, b in zip(found[0], alone)) <= 1e-8


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_collective_operations(ranks):
    for rank, found in enumerate(run("collectives", ranks)):
        ramp = sum(range(ranks))
        assert found["sum"] == [ranks * i + ramp for i in range(4)]
        assert found["max"] == [i + ranks - 1 for i in range(4)]
        assert found["broadcast"] == found["max"]
        assert found["gathered"] == [r for r in range(ranks) for _ in range(r + 1)]
        assert found["scattered"] == [[ranks, ranks]]
        assert found["exchanged"] == list(range(ranks))
        assert found["gather"] == ([[i + r for i in range(4)] for r in range(ranks)] if rank == 0 else [])
        assert found["scatter"] == [i + rank for i in range(4)]
        assert found["object"] == {"from": ranks - 1}
        assert found["objects"] == [["rank", r] for r in range(ranks)]
        assert found["async"] == list(range(ranks))
        assert found.get("received") == ([1.0] * 3 if rank == ranks - 1 else None)
        assert found["group"] == [rank // 2, len(range(rank % 2, ranks, 2))]
        assert found["gradient"] == [ramp + ranks] * 2


@needs_mpi
def test_uneven_steps_and_batches():
    for found in run("uneven", 3):
        # Ranks have 1, 2, 3 samples of value 1, 2, 3, in 2, 3, 4 steps.
        wanted = [(1 + 4 + 9) / 6] * 2 + [(4 + 9) / 5, 3.0]
        assert found == pytest.approx(wanted, rel=1e-12)


@needs_mpi
def test_arguments_of_any_form():
    for found in run("forms", 2):
        assert found["state"] == found["names"] == ["fc.weight", "fc.bias", "spare.weight", "spare.bias"]
        assert found["samples"] == [4, 4]
        assert found["unused"] == ["spare.weight", "spare.bias"] and found["spare"]
        assert found["grad"] == [[3.0, 3.0]]


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
def test_shards(ranks):
    found = run("shards", ranks)
    orders = []
    for epoch in range(2):
        batches = [rank["epochs"][epoch] for rank in found]
        assert len({len(rank) for rank in batches}) == 1
        together = [y for step in zip(*batches) for part in step for y in part]
        assert sorted(together) == list(range(23))
        orders.append(together)
    assert orders[0] != orders[1]
    seen = [y for batch in found[0]["first"] for y in batch]
    seen += [y for step in zip(*(rank["rest"] for rank in found)) for part in step for y in part]
    assert seen == orders[0]  # the order of the epoch does not depend on the number of ranks


@needs_mpi
def test_a_waiting_rank_lets_other_threads_run():
    assert run("nothing_blocks", 2)[1] > 20


@needs_mpi
def test_ctrl_c_ends_a_wait():
    assert run("interrupted", 2, ends_well=False) == ["interrupted", "slept"]


@needs_mpi
def test_dropout_differs_by_rank():
    masks = run("dropout", 3)
    assert len({tuple(mask) for mask in masks}) == 3
    assert masks[0] == run("dropout", 1)[0]

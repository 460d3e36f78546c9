"""The merged trace and the report at the end of a job.

Main entry: the tests."""

import base64
import json
import zlib

import pytest
from jobs import Job, needs_mpi, run, script

from anello.launcher import _report

PROGRAM = """
import os, sys, time
from anello import timeline
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
for step in range(3):
    with timeline.span("forward"):
        time.sleep(0.02)
    with timeline.span("bucket 0", "wait"):
        time.sleep(0.01 + 0.03 * (rank == 0))
    timeline.step(samples=10)
    if len(sys.argv) > 2 and rank == 1 and step == 1:
        os.kill(os.getpid(), 9)
time.sleep(0.2)
"""


def packed(events):
    """As a rank sends them."""
    text = "\n".join(map(json.dumps, events)).encode()
    return [base64.b64encode(zlib.compress(text)).decode()]


@needs_mpi
def test_one_file_has_the_events_of_all_ranks(tmp_path):
    trace = tmp_path / "trace.json"
    code, out, err = run(["-n", "3", "--trace", str(trace)], script(tmp_path, PROGRAM))
    assert code == 0, err
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    for rank in range(3):
        mine = [e["name"] for e in spans if e["pid"] == rank]
        assert mine.count("forward") == 3 and mine.count("bucket 0") == 3 and "step 3" in mine
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"rank 0", "rank 1", "rank 2"}
    assert all(e["dur"] >= 0 for e in spans)
    last = out.splitlines()[-1]
    assert "3 ranks" in last and "images/s" in last and "scaling efficiency" in last and "exposed communication" in last


@needs_mpi
def test_a_killed_rank_leaves_its_part_of_the_trace(tmp_path):
    trace = tmp_path / "trace.json"
    job = Job(["-n", "2", "--trace", str(trace)], script(tmp_path, PROGRAM), ["kill"])
    assert job.finish()[0] == 137
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["name"] for e in events if e["pid"] == 1 and e["ph"] == "X"} >= {"step 1", "step 2"}


def test_the_report_counts_images_waits_and_the_slowest_rank(capsys):
    def events(wait):
        step = {"ph": "X", "cat": "step", "name": "step 1", "tid": 0, "ts": 0.0, "dur": 2e6, "args": {"samples": 100}}
        return packed([step, {"ph": "X", "cat": "wait", "name": "bucket 0", "tid": 2, "ts": 1e6, "dur": wait}])

    _report.print_summary({0: events(4e5), 1: events(0.0)}, 2, 2.5)
    # 200 images in 2 s; 0.4 of 4 rank-seconds waited; rank 1 never waits: the other waits for it
    text = capsys.readouterr().out
    assert "2 ranks, 2.5 s: 100 images/s, scaling efficiency 90.0 %" in text
    assert "exposed communication 10.0 % (0.20 s a rank), slowest rank 1" in text


@pytest.mark.parametrize("pieces", [["no base64!"], [base64.b64encode(b"no zlib").decode()], []])
def test_a_damaged_piece_is_left_out(pieces, tmp_path):
    _report.write_trace(str(tmp_path / "t.json"), {0: pieces, 1: packed([{"ph": "X", "name": "a", "ts": 0, "dur": 1}])})
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["a"]

# What a job leaves behind: the merged trace of all ranks, and the report at the end that is computed from it.
# Main entry: write_trace(), print_summary().
from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
import zlib

from ._mpirun import LaunchError

TRACKS = {0: "compute", 1: "communication", 2: "wait"}


def check_writable(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK) or os.path.isdir(path):
        raise LaunchError(f"--trace {path}: cannot write there.")


def events_of(pieces: list[str]) -> list[dict]:
    """A rank's events (dist/timeline.h says their form); a line that was cut when the rank ended is left out."""
    try:
        text = zlib.decompress(base64.b64decode("".join(pieces))).decode(errors="replace")
    except (zlib.error, binascii.Error):
        return []
    events = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "name" in event:
            events.append(event)
    return events


def write_trace(path: str, traces: dict[int, list[str]]) -> None:
    """One file for chrome://tracing: a process for each rank, a row for each track. Complete or not there."""
    merged = []
    for rank, pieces in sorted(traces.items()):
        merged.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        merged += [
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": name}}
            for tid, name in TRACKS.items()
        ]
        merged += [dict(event, pid=rank) for event in events_of(pieces)]
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump({"traceEvents": merged, "displayTimeUnit": "ms"}, file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def summary(traces: dict[int, list[str]]) -> list[dict]:
    """For each rank: images, seconds of its steps, seconds in which communication was waited for."""
    rows = []
    for rank, pieces in sorted(traces.items()):
        events = events_of(pieces)
        steps = [e for e in events if e.get("cat") == "step"]
        if not steps:
            continue
        begun, ended = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
        waits = sum(e["dur"] for e in events if e.get("tid") == 2)
        images = sum(e.get("args", {}).get("samples", 0) for e in steps)
        busy = sum(e["dur"] for e in steps)
        seconds = (ended - begun) / 1e6
        rows.append({"rank": rank, "images": images, "seconds": seconds, "busy": busy / 1e6, "wait": waits / 1e6})
    return rows


def print_summary(traces: dict[int, list[str]], ranks: int, seconds: float) -> None:
    """The scaling efficiency compares with ranks that never had to wait: 1 - waited / stepped. The slowest rank is the
    one that waited least, as the others wait for it."""
    rows = summary(traces)
    if not rows:
        return
    rate = sum(row["images"] for row in rows) / max(max(row["seconds"] for row in rows), 1e-9)
    busy, waited = sum(row["busy"] for row in rows), sum(row["wait"] for row in rows)
    slowest = min(rows, key=lambda row: row["wait"])
    share = waited / busy if busy else 0.0
    parts = [
        f"[anello] {ranks} ranks, {seconds:.1f} s: {rate:,.0f} images/s",
        f"scaling efficiency {100 * (1 - share):.1f} %",
        f"exposed communication {100 * share:.1f} % ({waited / len(rows):.2f} s a rank)",
        f"slowest rank {slowest['rank']}",
    ]
    print(", ".join(parts), flush=True)

# What a rank did when, from Python: lines in the same file that dist/timeline.h writes to.
# Main entry: span(), step().
"""Events for the trace and the report of `anello run --trace FILE`; without a trace nothing happens.

>>> from anello import timeline
>>> with timeline.span("augment"):
...     pass
>>> timeline.step(samples=128)
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Optional

__all__ = ["enabled", "record", "span", "step"]

_TRACKS = {"compute": 0, "communication": 1, "wait": 2}
_file: Optional[int] = None
_step_begin = time.time()
_steps = 0


def _open() -> Optional[int]:
    path = os.environ.get("ANELLO_TRACE")
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if path else None
    except OSError:
        return None


def enabled() -> bool:
    """Whether this process was started with a trace (`anello run --trace FILE`)."""
    return _file is not None


def _write(name: str, category: str, track: int, begin: float, end: float, **arguments: int) -> None:
    event = {"ph": "X", "name": name, "cat": category, "tid": track, "ts": begin * 1e6, "dur": (end - begin) * 1e6}
    if arguments:
        event["args"] = arguments
    with contextlib.suppress(OSError):  # a full disk costs the trace, not the training
        os.write(_file, (json.dumps(event) + "\n").encode())


def record(name: str, begin: float, end: float, track: str = "compute") -> None:
    """An event from begin to end (`time.time()`). Tracks: "compute", "communication", "wait" (for communication)."""
    if track not in _TRACKS:
        raise ValueError(f"[timeline] there is no track '{track}'. Hint: {', '.join(_TRACKS)}.")
    if _file is not None:
        _write(name, track, _TRACKS[track], begin, end)


@contextlib.contextmanager
def span(name: str, track: str = "compute") -> Iterator[None]:
    """Records the time of a with block."""
    begin = time.time()
    try:
        yield
    finally:
        record(name, begin, time.time(), track)


def step(samples: int) -> None:
    """Ends a training step of so many samples on this rank; the next one begins here. The first began at the import."""
    global _step_begin, _steps
    _steps += 1
    if _file is not None:
        now = time.time()
        _write(f"step {_steps}", "step", 0, _step_begin, now, samples=samples)
        _step_begin = now


_file = _open()

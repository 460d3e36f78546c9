# One job from start to end: mpirun is started, its lines are sorted, failures are told in the order they happened.
# Main entry: run().
from __future__ import annotations

import base64
import contextlib
import ctypes
import glob
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Optional

from . import _mpirun, _network, _options, _report, _worker
from ._mpirun import LaunchError

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE = 1.5  # seconds that the other ranks get to tell their side once one has failed
KEPT = 200  # lines of a rank's errors that may be told again


def run(argv: list[str]) -> int:
    """The exit code of the job: 0, or that of the rank that failed first."""
    try:
        options = _options.parse(argv)
        if options.help:
            print(_options.USAGE, end="")
            return 0
        if options.trace:
            _report.check_writable(options.trace)
        return Job(options).run()
    except LaunchError as error:
        print(f"[run] {error}", file=sys.stderr)
        return 2


class Job:
    def __init__(self, options: _options.Options) -> None:
        self.options = options
        self.name = os.environ.get("ANELLO_JOB") or secrets.token_hex(6)  # in the names of its temporary files
        self.failures: list[dict] = []
        self.errors: dict[int, list[str]] = {}  # the last lines each rank wrote to stderr
        self.traces: dict[int, list[str]] = {}
        self.started: dict[int, dict] = {}
        self.signal = 0
        self.first_failure = 0.0
        self.noise: list[str] = []  # what mpirun itself says

    # --- Start ---

    def settings(self, libmpi: str = "") -> str:
        program = list(self.options.program)
        if program[0].endswith(".py"):
            program.insert(0, sys.executable)
        elif os.path.isfile(program[0]):
            program[0] = os.path.abspath(program[0])
        package = os.path.dirname(os.path.dirname(os.path.abspath(_worker.__file__)))
        timeout = self.options.stall_timeout
        made = {
            "job": self.name,
            "program": program,
            "threads": self.options.threads,
            "trace": bool(self.options.trace),
            "prefix": self.options.ranks > 1 and not self.options.no_prefix,
            "digest": _worker.library_digest(package),
            "stop_limit": stall_timeout() if timeout is None else timeout,
            # A remote shell hands on no environment: what is ours goes along.
            "env": {
                name: value
                for name, value in os.environ.items()
                if name.startswith(("ANELLO_", "PYTHONPATH")) and name != "ANELLO_HOST"  # which each host has its own
            },
        }
        if libmpi:
            made["env"].setdefault("ANELLO_MPI_LIBRARY", libmpi)
        if timeout is not None:
            made["env"]["ANELLO_STALL_TIMEOUT"] = f"{timeout:g}"
        return base64.b64encode(json.dumps(made).encode()).decode()

    def command(self) -> list[str]:
        worker = [sys.executable, os.path.abspath(_worker.__file__)]
        hosts = self.options.hosts
        if self.options.ranks == 1 and not hosts:
            return [*worker, self.settings()]  # one rank needs no MPI
        mpirun = _mpirun.find_mpirun(self.options.mpirun)
        worker.append(self.settings(_mpirun.library_of(mpirun)))
        cidr = _network.choose_network([name for name, _ in hosts], self.options.interface)
        return _mpirun.command(mpirun, self.options.ranks, hosts, cidr, self.options.rsh_agent) + worker

    def run(self) -> int:
        command = self.command()
        if self.options.dry_run:
            print(shlex.join(command))
            return 0
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # whatever is orphaned comes to us, and is ended below
        parent = os.getpid()

        def prepare() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.stop)
        begun = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=prepare,
        )
        pairs = ((self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr))
        readers = [threading.Thread(target=self.read, args=pair, daemon=True) for pair in pairs]
        for reader in readers:
            reader.start()
        self.wait()
        for reader in readers:
            reader.join(1.0)
        self.clean()
        return self.close(self.process.returncode, time.monotonic() - begun)

    # --- While it runs ---

    def read(self, source, target) -> None:
        for raw in iter(source.readline, b""):
            line = raw.decode(errors="replace")
            at = line.find(_worker.MARK)
            if at >= 0:
                try:
                    self.event(json.loads(line[at + len(_worker.MARK) :]))
                    continue
                except ValueError:
                    pass
            rank = self.rank_of(line)
            if target is sys.stderr:
                self.errors.setdefault(-1 if rank is None else rank, []).append(line)
                del self.errors[-1 if rank is None else rank][:-KEPT]
            if target is sys.stderr and rank is None and self.options.ranks > 1 and not self.options.no_prefix:
                self.noise.append(line)  # mpirun's own words: shown at the end, and only where they explain something
                del self.noise[:-KEPT]
                continue
            with contextlib.suppress(OSError):
                target.write(line)
                target.flush()

    def rank_of(self, line: str) -> Optional[int]:
        if line.startswith("["):
            number = line[1:].partition("]")[0].strip()
            if number.isdigit() and int(number) < self.options.ranks:
                return int(number)
        return None

    def event(self, event: dict) -> None:
        rank = event["rank"]
        if "trace" in event:
            self.traces.setdefault(rank, []).append(event["trace"])
        elif "started" in event:
            self.started[rank] = event
        elif "notice" in event:
            print(f"[anello] {event['notice']}", file=sys.stderr, flush=True)
        elif "failed" in event:
            self.failures.append(event)
            self.first_failure = self.first_failure or time.monotonic()
            print(f"[anello] rank {rank} {event['failed']}", file=sys.stderr, flush=True)

    def stop(self, number, frame) -> None:
        """Ctrl-C and its relatives; a second one does not wait."""
        again, self.signal = self.signal != 0, number
        self.signal_at = time.monotonic()
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL if again else signal.SIGTERM)

    def wait(self) -> None:
        """Until mpirun ends. It ends the others when one fails; where it does not in time, this does."""
        killed_at = 0.0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
                return
            now = time.monotonic()
            since = self.signal_at if self.signal else self.first_failure
            if since and not killed_at and now - since > GRACE:
                killed_at = now
                with contextlib.suppress(OSError):
                    os.killpg(self.process.pid, signal.SIGTERM)
            elif killed_at and now - killed_at > GRACE:
                for pid in descendants(os.getpid()):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)

    # --- End ---

    def clean(self) -> None:
        """Nothing stays: no process, no file of shared memory."""
        until = time.monotonic() + 2.0
        while (left := descendants(os.getpid())) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.01)
        for folder in ("/dev/shm", tempfile.gettempdir()):
            for path in glob.glob(os.path.join(folder, f"anello.{os.getuid()}.{self.name}*")):
                shutil.rmtree(path, ignore_errors=True)

    def close(self, code: int, seconds: float) -> int:
        if self.options.trace:
            _report.write_trace(self.options.trace, self.traces)
        if self.signal:
            print(f"[anello] stopped by {signal.Signals(self.signal).name}; all ranks have ended", file=sys.stderr)
            return 128 + self.signal
        if self.failures:
            return self.tell_failures()
        if code != 0:
            sys.stderr.writelines(self.noise)
            silent = sorted(set(range(self.options.ranks)) - set(self.started))
            what = f"before rank {', '.join(map(str, silent))} had started" if silent else "without a rank's failure"
            print(f"[anello] mpirun ended with exit code {code}, {what}", file=sys.stderr)
            return code if code > 0 else 128 - code
        _report.print_summary(self.traces, self.options.ranks, seconds)
        return 0

    def tell_failures(self) -> int:
        """All of them in a line each, the first one's own words last."""
        ordered = sorted(self.failures, key=lambda failure: failure["at"])
        first = ordered[0]
        rank = first["rank"]
        for other in ordered[1:]:
            print(f"[anello] later: rank {other['rank']} {other['failed']}", file=sys.stderr)
        words = self.errors.get(rank, [])
        starts = [at for at, line in enumerate(words) if "Traceback (most recent call last)" in line]
        if starts and len(ordered) > 1:
            sys.stderr.writelines(words[starts[-1] :])
        where = self.started.get(rank, {}).get("host")
        on = f" on {where}" if where and self.options.hosts else ""
        print(f"[anello] rank {rank}{on} failed first: it {first['failed']}. All ranks have ended.", file=sys.stderr)
        return int(first["code"])


def stall_timeout() -> float:
    """What the environment says, as the ranks will read it too."""
    text = os.environ.get("ANELLO_STALL_TIMEOUT", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise LaunchError(f"ANELLO_STALL_TIMEOUT is '{text}', not a number of seconds. Hint: 0 waits for ever.")
    return seconds


def descendants(root: int) -> list[int]:
    """Every process below this one."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat") as file:
                parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found

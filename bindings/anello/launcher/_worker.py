# What mpirun starts for each rank: it starts the program, hands its lines on with the rank in front, says how it ended.
# Main entry: main(). A script by itself, of the standard library alone: it also runs on the other hosts.
from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib

MARK = "\x1eanello "  # starts a line that is for the launcher, not for the user
KILL_AFTER = 0.5  # seconds between SIGTERM and SIGKILL
PR_SET_PDEATHSIG = 1


def environment(name: str, otherwise: int = 0) -> int:
    return int(os.environ.get(name, otherwise))


def library_digest(folder: str) -> str:
    """Of the libanello.so that belongs to this package; "" where there is none."""
    try:
        with open(os.path.join(folder, "lib", "libanello.so"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    except OSError:
        return ""


def usable_cores() -> int:
    """min(affinity, container quota)."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return cores


class Worker:
    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.rank, self.size = environment("OMPI_COMM_WORLD_RANK"), environment("OMPI_COMM_WORLD_SIZE", 1)
        self.local_rank = environment("OMPI_COMM_WORLD_LOCAL_RANK")
        self.local_size = environment("OMPI_COMM_WORLD_LOCAL_SIZE", 1)
        self.lock = threading.RLock()  # a signal may come while it is held
        self.failed_at = 0.0  # when a traceback began
        self.ending = False  # told to end: what the program still says is no news

    def write(self, stream, line: str) -> None:
        with self.lock:
            try:
                stream.write(line)
                stream.flush()
            except (OSError, ValueError, RuntimeError):  # mpirun is gone; the job ends, and this rank with it
                self.ending = True

    def tell(self, **event) -> None:
        event["rank"] = self.rank
        self.write(sys.stdout, f"{MARK}{json.dumps(event)}\n")

    def mpi_files(self) -> str:
        """A folder for MPI's shared memory files, removed at the end whatever happens. /dev/shm is small in containers,
        and running over it is a bus error."""
        folder = "/dev/shm"
        needed = 16 * 2**20 * self.local_size
        try:
            room = os.statvfs(folder)
            if room.f_bavail * room.f_frsize < needed or not os.access(folder, os.W_OK):
                folder = tempfile.gettempdir()
        except OSError:
            folder = tempfile.gettempdir()
        # The daemon that started this host's ranks is in the name: hosts that are containers may share /dev/shm and a
        # hostname, and Open MPI's own file names tell them apart by the hostname alone.
        path = os.path.join(folder, f"anello.{os.getuid()}.{self.settings['job']}.{os.getppid()}")
        os.makedirs(path, mode=0o700, exist_ok=True)
        if folder != "/dev/shm" and self.local_rank == 0:
            self.tell(notice=f"/dev/shm has less than {needed >> 20} MiB free; MPI's shared memory lies in {folder}. "
                      "Hint: docker run --shm-size=1g")  # fmt: skip
        return path

    def child_environment(self, files: str) -> dict:
        made = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1", ANELLO_LAUNCHED="1")
        made.setdefault("OMPI_MCA_btl_vader_backing_directory", files)  # Open MPI 4.1
        made.setdefault("OMPI_MCA_btl_sm_backing_directory", files)  # Open MPI 5
        if self.local_size > usable_cores():
            made.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
        made.update(self.settings["env"])
        threads = self.settings["threads"] or max(1, usable_cores() // self.local_size)
        if self.settings["threads"] or "ANELLO_NUM_THREADS" not in os.environ:
            made["ANELLO_NUM_THREADS"] = str(threads)
        if self.settings["trace"]:
            own = os.path.join(tempfile.gettempdir(), f"anello.{os.getuid()}.{self.settings['job']}.{self.rank}")
            os.makedirs(own, mode=0o700, exist_ok=True)
            made["ANELLO_TRACE"] = os.path.join(own, "trace")
        return made

    def forward(self, source, target) -> None:
        prefix = f"[{self.rank:>{len(str(self.size - 1))}}] " if self.settings["prefix"] else ""
        for raw in iter(source.readline, b""):
            line = raw.decode(errors="replace")
            if line.startswith("Traceback (most recent call last)"):
                self.failed_at = time.time()
            if not self.ending:
                self.write(target, prefix + line + ("" if line.endswith("\n") else "\n"))

    def end_child(self, child) -> None:
        """SIGTERM, then SIGKILL, to the program and what it started."""
        for number, seconds in ((signal.SIGTERM, KILL_AFTER), (signal.SIGKILL, 1.0)):
            try:
                os.killpg(child.pid, signal.SIGCONT)
                os.killpg(child.pid, number)
            except OSError:
                return
            until = time.monotonic() + seconds
            while child.poll() is None and time.monotonic() < until:
                time.sleep(0.02)

    def watch_stop(self, child) -> None:
        """Says when the program is stopped (SIGSTOP), and ends it when it stays so: the others wait for it."""
        limit, since = self.settings["stop_limit"], None
        while child.returncode is None and not self.ending:
            try:
                with open(f"/proc/{child.pid}/stat") as file:
                    state = file.read().rpartition(")")[2].split()[0]
            except OSError:
                return
            if state != "T":
                since = None
            elif since is None:
                since = time.monotonic()
                self.tell(notice=f"rank {self.rank} (process {child.pid}) was stopped by a signal; the others wait")
            elif limit and time.monotonic() - since > limit:
                self.tell(failed=f"stayed stopped (SIGSTOP) for {limit:g} s", code=128 + signal.SIGSTOP, at=time.time())
                self.ending = True
                os.killpg(child.pid, signal.SIGKILL)
                return
            time.sleep(0.25)

    def send_trace(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                data = base64.b64encode(zlib.compress(file.read())).decode()
        except OSError:
            return
        finally:
            if path:
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        step = 3000  # a line short enough that mpirun does not cut it
        for at in range(0, len(data), step):
            self.tell(trace=data[at : at + step])

    def run(self) -> int:
        program = self.settings["program"]
        files = self.mpi_files()
        if self.local_rank == 0:
            remove_after(files, os.getppid())
        code = 1
        try:
            code = self.supervise(program, files)
            return code
        finally:
            # The other ranks of this host use it too: the last one to end well finds it empty.
            if code == 0 and not self.ending:
                with contextlib.suppress(OSError):
                    os.rmdir(files)
            else:
                shutil.rmtree(files, ignore_errors=True)

    def supervise(self, program: list, files: str) -> int:
        child_environment = self.child_environment(files)
        libc = ctypes.CDLL(None, use_errno=True)
        parent = os.getpid()

        def prepare() -> None:  # the program never outlives this process
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        try:
            child = subprocess.Popen(
                program,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child_environment,
                start_new_session=True,
                preexec_fn=prepare,
            )
        except OSError as error:
            self.tell(failed=f"could not start {program[0]}: {error.strerror}", code=127, at=time.time())
            return 127

        def told(number, frame) -> None:
            # It may have raised before the one that ends the job, and be slower to exit.
            if not self.ending and time.time() - self.failed_at < 3:
                self.tell(failed="raised an exception", code=1, at=self.failed_at)
            self.ending = True
            self.end_child(child)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, told)
        self.tell(started=child.pid, host=os.uname().nodename, digest=self.settings["digest"])
        readers = [
            threading.Thread(target=self.forward, args=pair, daemon=True)
            for pair in ((child.stdout, sys.stdout), (child.stderr, sys.stderr))
        ]
        watcher = threading.Thread(target=self.watch_stop, args=(child,), daemon=True)
        for thread in (*readers, watcher):
            thread.start()
        code = child.wait()
        for thread in readers:  # what the program left behind may hold the pipes open
            thread.join(0.5)
        if code != 0 and not self.ending:
            self.tell(failed=describe(code), code=code if code > 0 else 128 - code, at=self.failed_at or time.time())
        self.send_trace(child_environment.get("ANELLO_TRACE", ""))
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # no orphan
        return code if code >= 0 else 128 - code


def remove_after(folder: str, pid: int) -> None:
    """Removes a folder once a process, this host's MPI daemon, has gone: workers may be killed before they can."""
    wait_and_remove = 'while kill -0 "$1" 2>/dev/null; do sleep 0.2; done; rm -rf "$2"'
    nowhere = subprocess.DEVNULL
    command = ["/bin/sh", "-c", wait_and_remove, "anello", str(pid), folder]
    subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def describe(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def main() -> int:
    settings = json.loads(base64.b64decode(sys.argv[1]))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # ends with the mpirun daemon that started it
    worker = Worker(settings)
    here = library_digest(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if here != settings["digest"]:
        host = os.uname().nodename
        worker.tell(failed=f"on {host} has another anello ({here or 'none'}) than the launcher ({settings['digest']}). "
                    "Hint: install the same wheel on every host", code=1, at=time.time())  # fmt: skip
        return 1
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())

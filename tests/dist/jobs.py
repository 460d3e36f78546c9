"""What the tests of real jobs share: starting `anello run`, finding its processes, and what must not be left behind.

Main entry: start(), finish(), Job; needs_mpi, needs_namespaces."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MPI_LOOP = HERE / "mpi_loop.py"

needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="mpirun is not installed. Hint: apt-get install openmpi-bin"
)


def clean_environment(**more):
    """Without what a surrounding job or an earlier setting would hand on."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "ANELLO_"))}
    return {**kept, **more}


class Job:
    """A job under way. `token` stands in the command line of each of its ranks."""

    def __init__(self, options, program, arguments=(), prefix=(), **env):
        self.token = f"token-{uuid.uuid4().hex}"
        self.program = str(program).encode()
        self.name = uuid.uuid4().hex[:12]
        self.shm = set(os.listdir("/dev/shm"))
        command = [*prefix, sys.executable, "-m", "anello", "run", *options, str(program), *arguments, self.token]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(ANELLO_JOB=self.name, **env),
        )
        self.out = self.err = ""
        self.mpi_job = None

    def ranks(self):
        """{rank: pid} of the programs that run now."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.program in words and self.token.encode() in words and b"ANELLO_LAUNCHED=1" in variables:
                values = dict(v.partition(b"=")[::2] for v in variables)
                if (space := values.get(b"PMIX_NAMESPACE", b"")).isdigit():
                    self.mpi_job = f".{int(space):x}."  # as Open MPI 4.1 writes it in the names of its files
                found[int(values.get(b"OMPI_COMM_WORLD_RANK", b"0"))] = int(pid)
        return found

    def wait_for_ranks(self, count, seconds=20):
        until = time.monotonic() + seconds
        while len(found := self.ranks()) < count:
            assert self.process.poll() is None and time.monotonic() < until, self.text()
            time.sleep(0.05)
        return found

    def read_until(self, text, lines=500):
        """Reads standard output up to a line with this text."""
        for _ in range(lines):
            line = self.process.stdout.readline()
            self.out += line
            if text in line or not line:
                break
        assert text in self.out, self.text()

    def finish(self, timeout=30):
        """(exit code, stdout, stderr); nothing may be left of the job."""
        try:
            out, self.err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            out, self.err = self.process.communicate(timeout=20)
            raise AssertionError(f"the job did not end in {timeout} s\n{out}\n{self.err}") from None
        self.out += out
        assert not self.leftovers(), self.leftovers()
        return self.process.returncode, self.out, self.err

    def leftovers(self):
        """Processes of the job and new files in /dev/shm."""
        pids = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.token.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    pids.append(int(pid))
            except OSError:
                continue
        return pids + sorted(name for name in set(os.listdir("/dev/shm")) - self.shm if self.is_ours(name))

    def is_ours(self, name):
        """Other jobs may run at the same time: a name that tells its job counts for that one only."""
        if name.startswith("anello."):
            return self.name in name
        if name.startswith(("vader_segment.", "sm_segment.")):
            return self.mpi_job is not None and self.mpi_job in name
        return True

    def text(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=20)
        return f"{self.out}{out}\n{err}"


def run(options, program, *arguments, timeout=60, **env):
    return Job(options, program, arguments, **env).finish(timeout)


def script(folder, text, name="program.py"):
    path = folder / name
    path.write_text(text)
    return path

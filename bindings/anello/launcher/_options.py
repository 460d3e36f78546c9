# The command line of `anello run`, and the hosts it names.
# Main entry: parse(), read_hosts().
from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from typing import Optional

from ._mpirun import LaunchError

USAGE = """usage: anello run -n RANKS [options] PROGRAM [ARGUMENTS]

Starts PROGRAM (a Python script or an executable) as RANKS processes through Open MPI. It also runs alone.

  -n RANKS                number of ranks; may be left out with -H or --hostfile, whose slots then count
  -H HOST:SLOTS,...       the hosts and how many ranks each takes
  --hostfile FILE         the same, a host a line: `host1 slots=2` or `host1:2`
  --threads N             threads a rank (default: cores this process may use / ranks on the host)
  --trace FILE            write what all ranks did, as a Chrome trace (chrome://tracing, ui.perfetto.dev)
  --interface NAME|CIDR   the network between hosts (default: the one that leads to them)
  --mpirun PATH           the mpirun to use (default: ANELLO_MPIRUN, beside this Python, PATH, the usual places)
  --rsh-agent COMMAND     what starts a process on another host (default: ssh)
  --stall-timeout SECONDS after which a rank that waits reports the absent ones (default: 60; 0: never)
  --no-prefix             leave out the rank before each line
  --dry-run               print the mpirun command and end
  -h, --help              show this
"""
WITH_VALUE = {
    "-n": "ranks",
    "-H": "hosts",
    "--hostfile": "hostfile",
    "--threads": "threads",
    "--trace": "trace",
    "--interface": "interface",
    "--mpirun": "mpirun",
    "--rsh-agent": "rsh_agent",
    "--stall-timeout": "stall_timeout",
}
FLAGS = {"--no-prefix": "no_prefix", "--dry-run": "dry_run", "-h": "help", "--help": "help"}
# How mpirun itself spells them.
SAME = {"-np": "-n", "--np": "-n", "--ranks": "-n", "--host": "-H", "--hosts": "-H", "-hostfile": "--hostfile"}


@dataclass
class Options:
    ranks: int = 0
    hosts: list[tuple[str, int]] = field(default_factory=list)
    threads: int = 0
    trace: Optional[str] = None
    interface: Optional[str] = None
    mpirun: Optional[str] = None
    rsh_agent: Optional[str] = None
    stall_timeout: Optional[float] = None
    no_prefix: bool = False
    dry_run: bool = False
    help: bool = False
    program: list[str] = field(default_factory=list)


def parse(argv: list[str]) -> Options:
    """Everything after the first word that is no option belongs to the program."""
    given: dict[str, str] = {}
    at = 0
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "--":
        word, equals, value = argv[at].partition("=")
        at += 1
        word = SAME.get(word, word)
        if word in FLAGS and not equals:
            given[FLAGS[word]] = "yes"
        elif word in WITH_VALUE:
            if not equals:
                if at == len(argv):
                    raise LaunchError(f"{word} needs a value. Hint: anello run --help")
                value, at = argv[at], at + 1
            given[WITH_VALUE[word]] = value
        else:
            near = difflib.get_close_matches(word, [*WITH_VALUE, *FLAGS, *SAME], n=1, cutoff=0.0)[0]
            near = SAME.get(near, near)
            raise LaunchError(f"unknown option {word}. Hint: did you mean {near}? The program's own options follow it.")
    if at < len(argv) and argv[at] == "--":
        at += 1
    options = Options(program=argv[at:])
    for name in ("trace", "interface", "mpirun", "rsh_agent"):
        setattr(options, name, given.get(name))
    for name in ("no_prefix", "dry_run", "help"):
        setattr(options, name, name in given)
    if options.help:
        return options
    options.threads = number(given, "threads", "--threads", 1)
    if "stall_timeout" in given:
        options.stall_timeout = number(given, "stall_timeout", "--stall-timeout", 0, float)
    if "hosts" in given and "hostfile" in given:
        raise LaunchError("-H and --hostfile both name hosts. Hint: give one of them.")
    if "hosts" in given:
        options.hosts = [host_of(word, "-H") for word in given["hosts"].split(",")]
    elif "hostfile" in given:
        options.hosts = read_hosts(given["hostfile"])
    check_ranks(options, number(given, "ranks", "-n", 1))
    check_program(options.program)
    return options


def number(given: dict, name: str, option: str, low: float, kind: type = int):
    if name not in given:
        return 0
    try:
        value = kind(given[name])
        if low <= value < float("inf"):
            return value
    except ValueError:
        pass
    raise LaunchError(f"{option} {given[name]}: not a number from {low} up.")


def host_of(word: str, where: str) -> tuple[str, int]:
    name, colon, slots = word.strip().partition(":")
    if not name or (colon and not (slots.isdigit() and int(slots) > 0)):
        raise LaunchError(f"{where}: '{word}' is not HOST or HOST:SLOTS. Hint: {where} host1:2,host2:2")
    return name, int(slots) if colon else 1


def read_hosts(path: str) -> list[tuple[str, int]]:
    """`host slots=2`, `host:2` or `host` a line; # starts a comment."""
    try:
        with open(path) as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise LaunchError(f"--hostfile {path}: {error.strerror}.") from None
    hosts = []
    for count, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        slots = [word.partition("=")[2] for word in words[1:] if word.startswith("slots=")]
        hosts.append(host_of(f"{words[0]}:{slots[0]}" if slots else words[0], f"{path}:{count}"))
    if not hosts:
        raise LaunchError(f"--hostfile {path} names no host.")
    return hosts


def check_ranks(options: Options, ranks: int) -> None:
    slots = sum(count for _, count in options.hosts)
    if not ranks and not slots:
        raise LaunchError("how many ranks? Hint: anello run -n 2 train.py")
    if slots and ranks > slots:
        name, count = options.hosts[0]
        raise LaunchError(f"-n {ranks}, but the hosts take {slots}. Hint: raise the slots, as in {name}:{count + 1}.")
    options.ranks = ranks or slots


def check_program(program: list[str]) -> None:
    if not program:
        raise LaunchError("which program? Hint: anello run -n 2 train.py")
    path = program[0]
    if os.path.isfile(path) or (os.sep not in path and not path.endswith(".py") and on_path(path)):
        return
    folder = os.path.dirname(path) or "."
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    near = difflib.get_close_matches(os.path.basename(path), names, n=1)
    hint = f" Hint: did you mean {os.path.join(os.path.dirname(path), near[0])}?" if near else ""
    raise LaunchError(f"there is no program {path}.{hint}")


def on_path(name: str) -> bool:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)

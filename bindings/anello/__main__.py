# `python -m anello` and the command `anello`: several ranks, what was found here, and where CMake finds the package.
# Main entry: main().
from __future__ import annotations

import argparse
import ctypes
import difflib
import os
import platform
import sys


def doctor() -> int:
    """Says what this anello is made of and what it found: one line a thing."""
    import anello

    rows = [
        ("anello", f"{anello.__version__} in {os.path.dirname(os.path.abspath(anello.__file__))}"),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("processor", processor()),
        ("cpu kernels", anello.cpu_isa()),
        ("threads", f"{anello.get_num_threads()} (cores: {os.cpu_count()}; ANELLO_NUM_THREADS sets it)"),
    ]
    rows += [(library, state) for library, state in anello.plugin_report()]
    for module in ("numpy", "matplotlib"):
        rows.append((module, module_version(module)))
    rows += [("mpi", mpi_state()), ("nccl", nccl_state())]
    rows.append(("data cache", anello.data.cache_dir()))
    rows.append(("cmake", anello.cmake_dir()))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")
    return check()


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def module_version(name: str) -> str:
    try:
        return str(__import__(name).__version__)
    except ImportError:
        return f"not installed. Hint: pip install {name}"


def mpi_state() -> str:
    """The mpirun that `anello run` would take, or where it was looked for."""
    from anello import launcher

    try:
        return str(launcher.find_mpirun())
    except launcher.LaunchError as error:
        return f"not found or not usable: {error}"


def nccl_state() -> str:
    """NCCL serves GPUs, which this version does not use yet; the row says what a later one would find."""
    looked = ["libnccl.so.2 (the loader's path)"]
    folders = [os.environ.get("NCCL_HOME", ""), *(os.path.join(p, "nvidia", "nccl") for p in sys.path if p)]
    for path in ["libnccl.so.2", *(os.path.join(f, "lib", "libnccl.so.2") for f in folders if f and os.path.isdir(f))]:
        try:
            ctypes.CDLL(path)
            return f"found, {path}; not used yet"
        except OSError:
            looked += [path] if os.sep in path else []
    looked += ["NCCL_HOME", "site-packages/nvidia/nccl"]
    return f"not found; looked at {', '.join(looked)}. Hint: not needed without a GPU"


def check() -> int:
    """Trains one step, as a proof that kernels and gradients work."""
    import anello

    net = anello.nn.Linear(4, 2)
    net(anello.ones(3, 4)).square().mean().backward()
    anello.optim.SGD(net.parameters(), lr=0.1).step()
    print("a training step works")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        words = ["run", "doctor", "--cmake-dir", "--version", "--help"]
        wrong = next((word.strip("',") for word in message.split() if word.startswith(("'", "-"))), "")
        wrong = message.split("arguments:", 1)[1].split()[0] if "arguments:" in message else wrong
        near = difflib.get_close_matches(wrong, words, n=1, cutoff=0.0)[0]
        self.exit(2, f"[anello] {message}. Hint: did you mean {near}? Valid: {', '.join(words)}.\n")


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["run"]:  # its options are its own, and what follows the program is the program's
        from anello import launcher

        return launcher.run(words[1:])
    parser = _Parser(prog="anello", description="The anello framework's command.", allow_abbrev=False)
    parser.add_argument("--cmake-dir", action="store_true", help="print the folder for find_package(anello)")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("run", help="start a program as several ranks: anello run -n 2 train.py", add_help=False)
    commands.add_parser("doctor", help="say what was found: kernels, threads, libraries")
    args = parser.parse_args(argv)
    if args.cmake_dir or args.version:
        import anello

        print(anello.cmake_dir() if args.cmake_dir else anello.__version__)
        return 0
    if args.command == "doctor":
        return doctor()
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())

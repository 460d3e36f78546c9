# `python -m anello` and the command `anello`: what was found on this machine, and where CMake finds the package.
# Main entry: main().
from __future__ import annotations

import argparse
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
        words = ["doctor", "--cmake-dir", "--version", "--help"]
        wrong = next((word.strip("',") for word in message.split() if word.startswith(("'", "-"))), "")
        wrong = message.split("arguments:", 1)[1].split()[0] if "arguments:" in message else wrong
        near = difflib.get_close_matches(wrong, words, n=1, cutoff=0.0)[0]
        self.exit(2, f"[anello] {message}. Hint: did you mean {near}? Valid: {', '.join(words)}.\n")


def main(argv: list[str] | None = None) -> int:
    parser = _Parser(prog="anello", description="The anello framework's command.", allow_abbrev=False)
    parser.add_argument("--cmake-dir", action="store_true", help="print the folder for find_package(anello)")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
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

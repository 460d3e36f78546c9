"""Runs every kind of test, one step after the other, and closes with a summary.

Main entry: main(); called by ./dev test, which has built the project before. Each step gives counts of passed, failed
and skipped tests; a step that cannot run says why.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
RESULTS = BUILD / "test-results"

# What a variant needs from the CPU, as /proc/cpuinfo spells it.
VARIANT_NEEDS = {
    "x86_64_v2": {"sse4_2", "popcnt"},
    "avx2": {"avx2", "fma", "f16c", "bmi2"},
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "avx512bf16": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_bf16"},
    "generic": set(),
}
# The C++ tests worth a run under ThreadSanitizer: pool, engine and loader.
THREAD_TAGS = "[parallel],[engine],[loader]"


@dataclass
class Result:
    """What a step came to: counts, and the reason when it did not run or broke down."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


def run(command: list[str], timeout: int, **env: str) -> int:
    """Runs a command with its output shown; a step that hangs is ended and counts as failed (124)."""
    print(f"\n==> {' '.join(command)}" + "".join(f"  {k}={v}" for k, v in env.items()), flush=True)
    try:
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, timeout=timeout, check=False).returncode
    except subprocess.TimeoutExpired:
        return 124


def count(result: Result, report: Path, code: int) -> Result:
    """Adds the counts of a JUnit report; a run that failed or left no report is a failure by itself."""
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            result.failed += 1
            result.notes.append(f"failed: {case.get('name')}")
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            result.skipped += 1
        else:
            result.passed += 1
    if code != 0 and result.failed == 0:
        result.failed += 1
        result.notes.append("ran past its time limit" if code == 124 else f"ended with exit code {code}")
    return result


def find_cifar10() -> None:
    """Sets ANELLO_CIFAR10, for the tests on real images, where a copy with an `unpack` script lies at hand."""
    unpack = ROOT.parent / "shared/cifar-10/unpack"
    if "ANELLO_CIFAR10" in os.environ or not unpack.exists():
        return
    found = subprocess.run([str(unpack), str(BUILD / "cifar-10")], check=False, capture_output=True, text=True)
    if found.returncode == 0:
        os.environ["ANELLO_CIFAR10"] = found.stdout.strip()
    else:
        print(f"{unpack} failed, the tests on real images are left out: {found.stderr.strip()}", flush=True)


def step_lint(args: argparse.Namespace) -> Result:
    code = run([str(ROOT / "dev"), "lint"], 300)
    return Result("lint", passed=int(code == 0), failed=int(code != 0))


def ctest(name: str, folder: Path, extra: list[str]) -> Result:
    report = RESULTS / f"{folder.name}-cpp.xml"
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error"]
    return count(Result(name), report, run([*command, "--output-junit", str(report), *extra], 1800))


def pytest(name: str, label: str, arguments: list[str], timeout: int = 3600, **env: str) -> Result:
    report = RESULTS / f"pytest-{label}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
    code = run(command, timeout, **env)
    result = count(Result(name), report, 0 if code == 5 else code)
    if code == 5:  # pytest: nothing was collected
        result.notes.append("no test was selected")
    return result


def step_cpp(args: argparse.Namespace) -> Result:
    extra = []
    if args.k:
        extra = ["-R", args.k, "--no-tests=ignore"]
    return ctest("C++ tests", BUILD, extra)


def step_python(args: argparse.Namespace) -> Result:
    selection = ["-k", args.k] if args.k else []
    return pytest("Python tests", "all", [*selection, f"--tier={args.tier}", *args.pytest_args])


def variants_to_run() -> tuple[list[str], list[str]]:
    """The built CPU variants this machine can run, and a line for each one it cannot."""
    flags: set[str] = set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = set(next((ln for ln in cpuinfo.read_text().splitlines() if ln.startswith("flags")), "").split())
    able, unable = [], []
    for library in sorted((BUILD / "lib").glob("libanello_cpu_*.so")):
        isa = library.stem.replace("libanello_cpu_", "")
        missing = VARIANT_NEEDS.get(isa, set()) - flags
        if missing:
            unable.append(f"{isa}: not run, this CPU has no {', '.join(sorted(missing))}")
        else:
            able.append(isa)
    return able, unable


def steps_variants(args: argparse.Namespace) -> list[Result]:
    """The op table once for each CPU variant; the Python step has run it with the one that is picked by itself."""
    table = ROOT / "tests/python/test_ops.py"
    able, unable = variants_to_run()
    results = []
    for isa in able:
        files = [str(table), str(ROOT / "tests/python/test_variants.py")]
        results.append(timed(lambda isa=isa, files=files: pytest(f"op table on {isa}", isa, files, ANELLO_CPU=isa)))
    results += [Result("op table", skipped=1, notes=[line]) for line in unable]
    return results


def step_asan(args: argparse.Namespace) -> Result:
    if run([str(ROOT / "dev"), "build", "asan"], 3600) != 0:
        return Result("ASan and UBSan", failed=1, notes=["the build failed"])
    return ctest("ASan and UBSan", ROOT / "build-asan", [])


def step_tsan(args: argparse.Namespace) -> Result:
    if run([str(ROOT / "dev"), "build", "tsan"], 3600) != 0:
        return Result("TSan", failed=1, notes=["the build failed"])
    report = RESULTS / "tsan.xml"
    report.unlink(missing_ok=True)
    command = [str(ROOT / "build-tsan/bin/anello_tests"), THREAD_TAGS, "-r", "junit", "-o", str(report)]
    # The sanitizer's memory map and a kernel with many random address bits do not go together.
    no_randomization = ["setarch", platform.machine(), "-R"]
    if subprocess.run([*no_randomization, "true"], check=False, capture_output=True).returncode == 0:
        command = no_randomization + command
    code = run(command, 1800, TSAN_OPTIONS="halt_on_error=0:exitcode=66")
    return count(Result("TSan (pool, engine, loader)"), report, code)


def timed(step) -> Result:
    start = time.monotonic()
    result = step()
    result.seconds = time.monotonic() - start
    return result


def summary(results: list[Result]) -> int:
    print("\n" + "-" * 78)
    for r in results:
        word = "FAILED" if r.failed else "ok" if r.passed else "skipped"
        kinds = ((r.passed, "passed"), (r.failed, "failed"), (r.skipped, "skipped"))
        counts = ", ".join(f"{number} {kind}" for number, kind in kinds if number)
        print(f"  {r.name:<30} {word:<8} {counts:<34} {r.seconds:6.1f} s")
        for note in r.notes[:20]:
            print(f"      {note}")
        if len(r.notes) > 20:
            print(f"      and {len(r.notes) - 20} more")
    print("-" * 78)
    passed, failed, skipped = (sum(getattr(r, what) for r in results) for what in ("passed", "failed", "skipped"))
    if not passed and not failed:
        print("No test ran.")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test", description="Runs the tests.", allow_abbrev=False)
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--fast", dest="tier", action="store_const", const="fast", help="leave out the slow ones")
    tier.add_argument("--all", dest="tier", action="store_const", const="all", help="add the sdist and wheel builds")
    tier.add_argument("--ci", dest="tier", action="store_const", const="ci", help="add lint and the sanitizer runs too")
    parser.add_argument("-k", metavar="EXPR", help="only C++ and Python tests whose name matches")
    args, args.pytest_args = parser.parse_known_args()
    args.tier = args.tier or "default"
    paths = [a for a in args.pytest_args if not a.startswith("-")]
    selected = bool(args.k or paths)

    RESULTS.mkdir(parents=True, exist_ok=True)
    find_cifar10()
    results = []
    if args.tier == "ci" and not selected:
        results.append(timed(lambda: step_lint(args)))
    if not paths:
        results.append(timed(lambda: step_cpp(args)))
    results.append(timed(lambda: step_python(args)))
    if not selected and args.tier != "fast":
        results += steps_variants(args)
    if args.tier == "ci" and not selected:
        results += [timed(lambda: step_asan(args)), timed(lambda: step_tsan(args))]
    return summary(results)


if __name__ == "__main__":
    sys.exit(main())

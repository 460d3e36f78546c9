"""Helpers of the packaging and embedding tests: run a command, build a CMake project that uses anello.

Main entry: run(), build_consumer().
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"


def version():
    """The one place that says the version."""
    return re.search(r"project\(anello VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def run(*command, cwd=None, env=None, timeout=900):
    """Runs a command and returns its standard output; a failure shows all it printed. PYTHONPATH does not leak in."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ANELLO_CPU")}
    done = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env={**clean, **(env or {})},
        timeout=timeout,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_consumer(source, work, prefix=None, cmake_dir=None):
    """Copies a CMake project to `work`, configures and builds it. Returns the build folder."""
    copy = work / "source"
    shutil.copytree(source, copy)
    where = [f"-DCMAKE_PREFIX_PATH={prefix}"] if prefix else [f"-Danello_DIR={cmake_dir}"]
    run("cmake", "-S", copy, "-B", work / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *where)
    run("cmake", "--build", work / "build")
    return work / "build"


def write_all_headers(include, target):
    """Writes a header that includes every header below the folder `include`, in the installed form."""
    headers = sorted(p.relative_to(include).as_posix() for p in (include / "anello").rglob("*.h"))
    assert "anello/anello.h" in headers and "anello/core/tensor.h" in headers
    target.write_text("".join(f"#include <{h}>\n" for h in headers))
    return headers

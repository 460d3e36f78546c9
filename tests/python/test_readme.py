"""The two programs of README.md run as they stand there.
Main entry: the tests."""

import re
import subprocess
import sys

import packages
import pytest

README = (packages.ROOT / "README.md").read_text()


def block(language):
    (text,) = re.findall(rf"```{language}\n(.*?)```", README, re.S)
    return text


def losses(output):
    """The numbers of the lines "epoch 1: loss 0.521"."""
    return [float(x) for x in re.findall(r"epoch \d+: loss ([0-9.]+)", output)]


@pytest.mark.slow
def test_the_python_loop_learns():
    done = subprocess.run(
        [sys.executable, "-c", block("python")], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = losses(done.stdout)
    assert second < first < 2.0  # ten classes: chance is 2.3


def test_the_loop_is_as_short_as_promised():
    code = [line for line in block("python").splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) <= 15


@pytest.mark.slow
def test_the_cpp_program_learns(tmp_path):
    source = tmp_path / "program"
    source.mkdir()
    (source / "main.cpp").write_text(block("cpp"))
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(my_program CXX)\nadd_executable(my_program main.cpp)\n"
        + block("cmake")
    )
    build = packages.build_consumer(source, tmp_path, prefix=packages.BUILD)
    first, second = losses(packages.run(build / "my_program", timeout=600))
    assert second < first < 2.0

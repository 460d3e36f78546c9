"""The sdist, the wheel made from it, and what a user has after pip install: Python package, C++ headers, find_package.

Main entry: the tests, which build both for real (minutes; ./dev test --all and CI run them).
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import packages
import pytest

ROOT = packages.ROOT
SOURCE_FOLDERS = ("core", "autograd", "layers", "optim", "dist", "datasets", "bindings", "cmake")

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The sdist of the working tree, unpacked."""
    out = tmp_path_factory.mktemp("sdist")
    packages.run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, ROOT)
    (archive,) = out.glob("*.tar.gz")
    assert archive.name == f"anello-{packages.version()}.tar.gz"
    assert archive.stat().st_size < 20e6
    with tarfile.open(archive) as tar:
        tar.extractall(out)
    return out / archive.name[: -len(".tar.gz")]


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, sdist]
    strict = {"ANELLO_WERROR": "ON"} if os.environ.get("CI") == "true" else {}
    packages.run(*command, timeout=3000, env=strict)
    (archive,) = out.glob("*.whl")
    return archive


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The interpreter of a new virtual environment with nothing but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("user")
    packages.run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv/bin/python"
    packages.run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    return python


def tracked(*folders):
    listing = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if listing.returncode != 0:
        pytest.skip("no git checkout, so there is no list of the sources to compare with")
    return listing.stdout.split()


def test_the_sdist_holds_every_source(sdist):
    missing = [file for file in tracked(*SOURCE_FOLDERS) if not (sdist / file).exists()]
    assert not missing
    assert (sdist / "dist/CMakeLists.txt").exists(), "a stock ignore rule has dropped dist/"
    for file in ("LICENSE", "CMakeLists.txt", "anello.h", "pyproject.toml"):
        assert (sdist / file).exists()


def test_the_sdist_holds_nothing_that_was_built(sdist):
    assert not [p for p in sdist.iterdir() if p.name.startswith(("build", ".venv", "wheelhouse"))]
    assert not [p for p in sdist.rglob("*") if p.is_symlink() or p.suffix in (".so", ".o", ".pyc")]


def test_the_wheel_holds_the_package_and_the_cpp_side(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {"__init__.py", "lib/libanello.so", "include/anello/anello.h", "include/anello/core/tensor.h"}
    expected |= {"lib/cmake/anello/anelloConfig.cmake"}
    assert not {f"anello/{name}" for name in expected} - names
    assert any(name.startswith("anello/_C.") for name in names)
    assert any(name.startswith("anello/lib/libanello_cpu_") for name in names)
    assert all(name.startswith(("anello/", "anello-")) for name in names)


def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < 12e6, f"{wheel.stat().st_size / 1e6:.1f} MB"


def test_the_installed_package_works(installed, tmp_path):
    script = (
        "import anello, os; assert os.getcwd() not in anello.__file__; x = anello.ones((2, 3), requires_grad=True);"
        "(x * x).sum().backward(); print(anello.__version__, x.grad.numpy().sum())"
    )
    assert packages.run(installed, "-c", script, cwd=tmp_path).split() == [packages.version(), "12.0"]


def test_find_package_from_the_installed_wheel(installed, tmp_path):
    cmake_dir = packages.run(installed, "-m", "anello", "--cmake-dir", cwd=tmp_path).strip()
    source = tmp_path / "consumer"
    shutil.copytree(ROOT / "tests/embed/consumer", source)
    include = next((installed.parent.parent / "lib").glob("python*/site-packages/anello/include"))
    packages.write_all_headers(include, source / "all_headers.h")
    build = packages.build_consumer(source, tmp_path, cmake_dir=cmake_dir)
    assert packages.run(build / "consumer", cwd=tmp_path).split() == ["consumer", "ok", packages.version()]

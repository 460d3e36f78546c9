"""Anello inside another project: find_package(anello) from an install tree and from the build tree.

Main entry: the tests; the wheel as a source of find_package is in tests/python/test_packaging.py.
"""

import shutil

import packages
import pytest

CONSUMER = packages.ROOT / "tests/embed/consumer"
EXAMPLE = packages.ROOT / "examples/embedding"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def install_tree(tmp_path_factory):
    """An install tree that was moved after installation: nothing in it may know where it was."""
    first = tmp_path_factory.mktemp("first") / "prefix"
    packages.run("cmake", "--install", packages.BUILD, "--prefix", first)
    moved = tmp_path_factory.mktemp("moved") / "prefix"
    shutil.move(first, moved)
    return moved


def test_the_install_tree_has_one_folder_for_all_libraries(install_tree):
    names = {p.name for p in (install_tree / "lib").iterdir()}
    built = {p.name for p in (packages.BUILD / "lib").glob("*.so")}
    assert "libanello.so" in names and built <= names
    text = (install_tree / "lib/cmake/anello/anelloTargets.cmake").read_text()
    assert str(packages.ROOT) not in text


def test_no_private_header_is_installed(install_tree):
    folders = {p.parent.relative_to(install_tree / "include").as_posix() for p in install_tree.rglob("*.h")}
    layers = ("core", "core/kernels", "autograd", "layers", "optim", "dist", "datasets")
    assert folders <= {"anello", *(f"anello/{layer}" for layer in layers)}


@pytest.mark.parametrize("tree", ["install", "build"])
def test_a_consumer_outside_the_repository(tree, install_tree, tmp_path):
    source = tmp_path / "consumer"
    shutil.copytree(CONSUMER, source)
    packages.write_all_headers(install_tree / "include", source / "all_headers.h")
    prefix = install_tree if tree == "install" else packages.BUILD
    build = packages.build_consumer(source, tmp_path, prefix=prefix)
    assert packages.run(build / "consumer", cwd=tmp_path).split() == ["consumer", "ok", packages.version()]


def test_another_version_is_refused(install_tree, tmp_path):
    source = tmp_path / "consumer"
    shutil.copytree(CONSUMER, source)
    lists = source / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("find_package(anello 0.1 ", "find_package(anello 99.0 "))
    with pytest.raises(AssertionError, match=r"compatible\s+with\s+requested\s+version"):
        packages.build_consumer(source, tmp_path, prefix=install_tree)


@pytest.mark.skipif(not EXAMPLE.exists(), reason="examples/embedding is not in this tree")
def test_the_embedding_example_trains_saves_loads_and_predicts(install_tree, tmp_path):
    build = packages.build_consumer(EXAMPLE, tmp_path, prefix=install_tree)
    programs = [p for p in build.iterdir() if p.is_file() and p.stat().st_mode & 0o111 and not p.suffix]
    assert len(programs) == 1, f"one program expected, found {programs}"
    packages.run(programs[0], cwd=tmp_path)

"""The CPU variants: what the libraries export, which one is in use, and what a wrong choice is answered with.

Main entry: the tests. ./dev test runs this file and the op table once for each variant, forced by ANELLO_CPU.
"""

import os
import subprocess
import sys

import packages
import pytest

import anello

LIBRARIES = sorted((packages.BUILD / "lib").glob("libanello_cpu_*.so"))


def test_there_is_a_variant():
    assert LIBRARIES, f"no libanello_cpu_*.so in {packages.BUILD / 'lib'}"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda p: p.stem)
def test_a_variant_exports_one_symbol(library):
    """More would let code of one instruction set be bound to by another library."""
    listing = packages.run("nm", "-D", "--defined-only", "--format=posix", library)
    assert [line.split()[0] for line in listing.splitlines()] == ["anello_plugin"]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda p: p.stem)
def test_a_variant_needs_nothing_of_libanello(library):
    listing = packages.run("nm", "-DC", "--undefined-only", library)
    assert "anello" not in listing


def test_the_variant_in_use_is_the_one_asked_for():
    asked = os.environ.get("ANELLO_CPU")
    if asked is None:
        pytest.skip("ANELLO_CPU is not set. Hint: ./dev test runs this file once for each variant")
    assert anello.cpu_isa() == asked


def test_the_report_names_every_library_and_one_in_use():
    report = dict(anello.plugin_report())
    for library in LIBRARIES:
        assert library.name in report
    assert [name for name, state in report.items() if state == "in use"] == [f"libanello_cpu_{anello.cpu_isa()}.so"]


def test_an_unknown_variant_is_an_error_that_lists_those_present():
    code = "import anello; (anello.ones(3) + 1).tolist()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ANELLO_CPU": "avx3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "ValueError" in last and "avx3" in last and anello.cpu_isa() in last

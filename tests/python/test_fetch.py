"""The package's fetcher against a server, and the exit status of curl that the library counts on.

Main entry: pytest tests/python/test_fetch.py.
"""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from file_server import serve

OWN = [sys.executable, "-I", str(Path(__file__).parents[2] / "bindings/anello/data/_fetch.py")]
CONTENT = random.Random(0).getrandbits(8 * 700_000).to_bytes(700_000, "little")


def fetch(url, path):
    return subprocess.run([*OWN, url, str(path)], capture_output=True, text=True, timeout=60, check=False)


def test_whole_file(tmp_path):
    with serve(CONTENT) as server:
        result = fetch(server.url, tmp_path / "file")
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [None]


def test_resumes_after_a_broken_connection(tmp_path):
    with serve(CONTENT) as server:
        server.cut_after = 300_000
        result = fetch(server.url, tmp_path / "file")
        assert result.returncode == 1
        assert "300000 of 700000" in result.stderr
        assert fetch(server.url, tmp_path / "file").returncode == 0
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-"]


def test_server_without_ranges(tmp_path):
    (tmp_path / "file").write_bytes(CONTENT[:1000])
    with serve(CONTENT) as server:
        server.ranges = False
        assert fetch(server.url, tmp_path / "file").returncode == 33
    assert (tmp_path / "file").read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("status", [404, 503])
def test_refusal(tmp_path, status):
    with serve(CONTENT) as server:
        server.status = status
        result = fetch(server.url, tmp_path / "file")
    assert result.returncode == 22
    assert str(status) in result.stderr
    assert not (tmp_path / "file").exists()


def test_nobody_answers(tmp_path):
    result = fetch("http://127.0.0.1:9/file", tmp_path / "file")
    assert result.returncode == 1
    assert "refused" in result.stderr.lower()
    result = fetch("nonsense", tmp_path / "file")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr


def test_file_url(tmp_path):
    (tmp_path / "source").write_bytes(CONTENT)
    (tmp_path / "file").write_bytes(CONTENT[:5000])
    assert fetch((tmp_path / "source").as_uri(), tmp_path / "file").returncode == 0
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_says_what_the_library_expects(tmp_path):
    """Exit status 33 for a server without ranges, 22 for a range past the end: both mean once more from the start."""
    command = ["curl", "--fail", "--silent", "--continue-at", "-", "--output", str(tmp_path / "file"), "--url"]
    (tmp_path / "file").write_bytes(CONTENT)
    with serve(CONTENT) as server:
        assert subprocess.run([*command, server.url], timeout=60, check=False).returncode in (0, 22)
        (tmp_path / "file").write_bytes(CONTENT[:1000])
        server.ranges = False
        assert subprocess.run([*command, server.url], timeout=60, check=False).returncode == 33

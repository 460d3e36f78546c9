"""Fetches one file with Python's own library, for machines that have neither curl nor wget.

Main entry: `python _fetch.py URL FILE`. Appends to FILE what it lacks. Exit status 0: FILE is whole; 33: the server
cannot go on from the middle; 22: the server refuses; 1: anything else, with the reason on standard error.
"""

import os
import sys
import urllib.error
import urllib.request

REFUSED, CANNOT_RESUME = 22, 33
PIECE = 1 << 18


def fetch(url: str, path: str) -> int:
    have = os.path.getsize(path) if os.path.exists(path) else 0
    request = urllib.request.Request(url, headers={"User-Agent": "anello"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=30) as answer:
        status = getattr(answer, "status", None)
        if have and status is not None and status != 206:
            print("the server sends the file from its start only", file=sys.stderr)
            return CANNOT_RESUME
        if have and status is None:  # file: knows no ranges
            answer.seek(have)
        expected = answer.headers.get("Content-Length") if status is not None else None
        got = 0
        with open(path, "ab") as file:
            while piece := answer.read(PIECE):
                file.write(piece)
                got += len(piece)
    # read() does not raise when the connection ends early.
    if expected is not None and got < int(expected):
        print(f"the connection ended after {got} of {expected} bytes", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    url, path = sys.argv[1:3]
    try:
        return fetch(url, path)
    except urllib.error.HTTPError as error:
        print(f"the server answers {error.code} {error.reason}", file=sys.stderr)
        return REFUSED
    except (OSError, ValueError) as error:
        print(getattr(error, "reason", error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

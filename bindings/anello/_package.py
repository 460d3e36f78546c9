# Where the package's files are, and under which names its compiled parts appear.
# Main entry: cmake_dir(), publish().
from __future__ import annotations

import contextlib
from pathlib import Path
from types import ModuleType


def cmake_dir() -> str:
    """The folder for CMake's find_package(anello): `cmake -DCMAKE_PREFIX_PATH=$(python -m anello --cmake-dir) ...`.

    >>> import anello
    >>> anello.cmake_dir().endswith("anello")
    True
    """
    # Not resolved: in a build tree this file is a link, and the libraries are beside the link.
    return str(Path(__file__).absolute().parent / "lib" / "cmake" / "anello")


def publish(name: str, *parts: ModuleType) -> None:
    """Lets what compiled modules define say where it is public: in the module `name`."""
    for part in parts:
        for key, value in vars(part).items():
            if key.startswith("__"):
                continue
            with contextlib.suppress(AttributeError, TypeError):
                value.__module__ = name

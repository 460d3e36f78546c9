# CIFAR-10 as PyTorch users ask for it, and its download with a progress bar.
# Main entry: CIFAR10(), download_cifar10().
from __future__ import annotations

import os
import shutil
import sys
from typing import Callable

from .._C import _data


class _Bar:
    """A bar on standard error, where that is a terminal; nothing elsewhere."""

    def __init__(self, title: str) -> None:
        self.title, self.shown, self.drawn = title, sys.stderr.isatty(), False

    def __call__(self, done: int, total: int) -> None:
        if not self.shown:
            return
        self.drawn = True
        right = f" {done / 2**20:.0f} MiB" + (f" of {total / 2**20:.0f}" if total else "")
        room = max(shutil.get_terminal_size().columns - len(self.title) - len(right) - 4, 5)
        filled = room * min(done, total) // total if total else 0
        sys.stderr.write(f"\r{self.title} [{'=' * filled}{' ' * (room - filled)}]{right}")
        sys.stderr.flush()

    def close(self) -> None:
        if self.drawn:
            sys.stderr.write("\n")


def download_cifar10(
    cache_dir: str | os.PathLike | None = None,
    progress: bool | Callable[[int, int], None] = True,
    fetcher: list[str] | None = None,
) -> str:
    """Downloads cifar-10-binary.tar.gz (162 MiB) into a cache unless it is there; returns its path for load_cifar10().

    An interrupted download goes on where it stopped; size and SHA-256 are checked before the file is put into place.
    progress: a bar on standard error (on a terminal), False for none, or a function (bytes there, bytes in all).
    fetcher: the program that fetches (default: curl, wget, or Python). ANELLO_CIFAR10_URL names another place to get it
    from. Raises IoError that names the URL and the reason.

    >>> import anello
    >>> try:
    ...     anello.data.download_cifar10("/proc/nowhere", progress=False)
    ... except OSError as error:
    ...     print("no such place")
    no such place
    """
    bar = progress if callable(progress) else _Bar("CIFAR-10") if progress else None
    if fetcher is None and not shutil.which("curl") and not shutil.which("wget"):
        fetcher = [sys.executable, os.path.join(os.path.dirname(__file__), "_fetch.py")]
    try:
        return _data._download_cifar10(os.fspath(cache_dir or ""), bar, fetcher or [])
    finally:
        if isinstance(bar, _Bar):
            bar.close()


def CIFAR10(root: str | os.PathLike | None = None, train: bool = True, download: bool = False) -> _data.ImageDataset:
    """The training or test images of CIFAR-10. root: a folder or archive as load_cifar10() takes it (default: the
    cache); download: get the archive into the cache first when it is not there.

    >>> import anello
    >>> try:
    ...     anello.data.CIFAR10("/nowhere")
    ... except OSError as error:
    ...     print("/nowhere" in str(error))
    True
    """
    path = download_cifar10(root) if download else root or _data.cache_dir()
    splits = _data.load_cifar10(path)
    return splits.train if train else splits.test

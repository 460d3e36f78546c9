# Data sets, augmentation, the loader, and getting CIFAR-10.
# Main entry: DataLoader, CIFAR10(), synthetic().
"""Data sets and the loader.

>>> import anello
>>> train, test = anello.data.synthetic(64, 16)
>>> for x, y in anello.data.DataLoader(train, batch_size=32, shuffle=True):
...     print(x.shape, y.shape)
(32, 32, 32, 3) (32,)
(32, 32, 32, 3) (32,)
"""

from .._C import _data
from .._C._data import *
from .._package import publish
from ._cifar10 import CIFAR10, download_cifar10

publish(__name__, _data)
__all__ = sorted({name for name in vars(_data) if not name.startswith("_")} | {"CIFAR10", "download_cifar10"})

# Layers, losses and containers, all of them C++ modules that Python can subclass.
# Main entry: Module, Linear, Conv2d, Sequential, CrossEntropyLoss.
"""Layers, losses and containers. Images are channels last: [N, H, W, C].

>>> import anello
>>> from anello import nn
>>> net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.GlobalAvgPool2d(), nn.Linear(8, 10))
>>> net(anello.zeros(2, 32, 32, 3)).shape
(2, 10)
"""

from .._C import Parameter, _nn
from .._C._nn import *
from .._package import publish
from . import functional, init, utils

publish(__name__, _nn)

_OWN = {"Parameter", "functional", "init", "utils"}
__all__ = sorted({name for name in vars(_nn) if not name.startswith("_")} | _OWN)

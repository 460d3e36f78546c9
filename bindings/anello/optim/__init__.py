# Optimizers, learning-rate schedules, averages of weights.
# Main entry: SGD, Adam, AdamW, Muon, OneCycleLR.
"""Optimizers and learning-rate schedules.

>>> import anello
>>> net = anello.nn.Linear(2, 1)
>>> sgd = anello.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
>>> net(anello.ones(4, 2)).sum().backward()
>>> sgd.step()
>>> sgd.zero_grad()
"""

from .._C import _optim
from .._C._optim import *
from .._package import publish
from . import lr_scheduler

publish(__name__, _optim)
__all__ = sorted({name for name in vars(_optim) if not name.startswith("_")} | {"lr_scheduler"})

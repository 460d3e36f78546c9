# Starting values of parameters, written in place and never recorded by autograd.
# Main entry: kaiming_normal_(), xavier_uniform_(), dirac_().
"""Starting values of parameters, in place.

>>> import anello
>>> w = anello.nn.Parameter(anello.empty(4, 3))
>>> anello.nn.init.zeros_(w).abs().sum().item()
0.0
"""

from .._C import _init
from .._C._init import *
from .._package import publish

publish(__name__, _init)
__all__ = sorted(name for name in vars(_init) if not name.startswith("_"))

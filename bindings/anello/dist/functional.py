# Collective operations that autograd records.
# Main entry: all_reduce(), all_gather(), broadcast(), reduce_scatter(), all_to_all().
"""Collective operations with gradients: each returns a new tensor, and backward is collective too. What is
differentiated is the sum of the losses of all ranks, each rank calling backward() on its own.

>>> import anello
>>> from anello.dist import functional
>>> x = anello.ones(2, requires_grad=True)
>>> functional.all_reduce(x, "average").sum().backward()
>>> x.grad.tolist()
[1.0, 1.0]
"""

from .._C import _dist_functional
from .._C._dist_functional import *
from .._package import publish

publish(__name__, _dist_functional)
__all__ = sorted(name for name in vars(_dist_functional) if not name.startswith("_"))

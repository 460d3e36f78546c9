# Several ranks: groups and their collective operations, data-parallel training.
# Main entry: DataParallel, world(), rank(), size(), all_reduce(), SyncBatchNorm.
"""Training on several processes. A script written with this package runs the same on one process and on N.

>>> import anello
>>> from anello import dist, nn
>>> net = dist.DataParallel(nn.Linear(4, 2))
>>> anello.manual_seed(dist.rank())
>>> x = anello.randn(8, 4)
>>> (net(x) ** 2).mean().backward()
>>> net.module.weight.grad.shape
(2, 4)
"""

from .._C import _dist
from .._C._dist import *
from .._package import publish
from . import functional
from ._data_parallel import DataParallel
from ._objects import all_gather_object, broadcast_object
from ._training import even_batches, scale_lr
from ._world import all_gather, all_reduce, all_to_all, barrier, broadcast, gather, recv, reduce_scatter, scatter, send

publish(__name__, _dist)

_OWN = {"DataParallel", "all_gather", "all_gather_object", "all_reduce", "all_to_all", "barrier", "broadcast"}
_OWN |= {"broadcast_object", "even_batches", "functional", "gather", "recv", "reduce_scatter", "scale_lr", "scatter"}
_OWN |= {"send"}
__all__ = sorted({name for name in vars(_dist) if not name.startswith("_")} | _OWN)

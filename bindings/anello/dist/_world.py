# The collective operations of the group of all ranks, as functions.
# Main entry: all_reduce(), broadcast(), all_gather(), barrier().
from __future__ import annotations

from collections.abc import Sequence

from .._C import Tensor, _dist


def all_reduce(
    tensor: Tensor, op: str = "sum", *, name: str = "", prescale: float = 1.0, postscale: float = 1.0
) -> Tensor:
    """Reduces a tensor over all ranks, in place, and returns it. See Communicator.all_reduce.

    >>> import anello
    >>> anello.dist.all_reduce(anello.ones(2), "average").tolist()
    [1.0, 1.0]
    """
    _dist.world().all_reduce(tensor, op, name=name, prescale=prescale, postscale=postscale)
    return tensor


def broadcast(tensor: Tensor, root: int = 0, *, name: str = "") -> Tensor:
    """Gives root's values to every rank's tensor, in place, and returns it.

    >>> import anello
    >>> anello.dist.broadcast(anello.arange(3)).tolist()
    [0, 1, 2]
    """
    _dist.world().broadcast(tensor, root, name=name)
    return tensor


def reduce_scatter(tensor: Tensor, op: str = "sum", *, name: str = "") -> Tensor:
    """This rank's rows of the reduction over all ranks.

    >>> import anello
    >>> anello.dist.reduce_scatter(anello.ones(4, 2)).shape[1]
    2
    """
    return _dist.world().reduce_scatter(tensor, op, name=name)


def all_gather(tensor: Tensor, *, name: str = "") -> Tensor:
    """The tensors of all ranks, concatenated along dim 0, whose size may differ.

    >>> import anello
    >>> anello.dist.all_gather(anello.ones(1, 2)).shape == (anello.dist.size(), 2)
    True
    """
    return _dist.world().all_gather(tensor, name=name)


def all_to_all(tensor: Tensor, counts: Sequence[int] = (), *, name: str = "") -> Tensor:
    """Blocks of rows to the ranks in order: counts[r] to rank r, evenly without counts.

    >>> import anello
    >>> anello.dist.all_to_all(anello.zeros(anello.dist.size(), 2)).shape[1]
    2
    """
    return _dist.world().all_to_all(tensor, list(counts), name=name)


def gather(tensor: Tensor, root: int = 0, *, name: str = "") -> list[Tensor]:
    """On root a list of the tensors of all ranks, elsewhere an empty one.

    >>> import anello
    >>> len(anello.dist.gather(anello.ones(2))) in (0, anello.dist.size())
    True
    """
    return _dist.world().gather(tensor, root, name=name)


def scatter(tensors: Sequence[Tensor], root: int = 0, *, name: str = "") -> Tensor:
    """Root's tensors[r] arrives at rank r; elsewhere `tensors` is empty.

    >>> import anello
    >>> from anello import dist
    >>> dist.scatter([anello.ones(2)] * dist.size() if dist.rank() == 0 else []).tolist()
    [1.0, 1.0]
    """
    return _dist.world().scatter(list(tensors), root, name=name)


def send(tensor: Tensor, to: int, tag: int = 0) -> None:
    """Sends a tensor to a rank that calls recv() with the same shape, dtype and tag.

    >>> import anello
    >>> if anello.dist.size() > 1 and anello.dist.rank() == 0:
    ...     anello.dist.send(anello.ones(2), to=1)
    """
    _dist.world().send(tensor, to, tag)


def recv(into: Tensor, from_: int, tag: int = 0) -> Tensor:
    """Receives what rank from_ sends, in place, and returns the tensor.

    >>> import anello
    >>> if anello.dist.rank() == 1:
    ...     anello.dist.recv(anello.empty(2), from_=0)
    """
    _dist.world().recv(into, from_, tag)
    return into


def barrier() -> None:
    """Returns when every rank has called it.

    >>> import anello
    >>> anello.dist.barrier()
    """
    _dist.world().barrier()

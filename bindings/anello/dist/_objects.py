# Python objects between ranks, by pickle.
# Main entry: broadcast_object(), all_gather_object().
from __future__ import annotations

import pickle
from typing import Any

from .._C import _dist


def broadcast_object(value: Any = None, root: int = 0, communicator: _dist.Communicator | None = None) -> Any:
    """Root's object, on every rank. It is pickled: only between processes that trust each other.

    >>> import anello
    >>> anello.dist.broadcast_object({"lr": 0.1})
    {'lr': 0.1}
    """
    group = communicator or _dist.world()
    mine = pickle.dumps(value) if group.rank() == root else b""
    got = group._broadcast_bytes(mine, root)
    return value if group.rank() == root else pickle.loads(got)


def all_gather_object(value: Any, communicator: _dist.Communicator | None = None) -> list[Any]:
    """The objects of all ranks, in their order. They are pickled: only between processes that trust each other.

    >>> import anello
    >>> anello.dist.all_gather_object(anello.dist.rank()) == list(range(anello.dist.size()))
    True
    """
    group = communicator or _dist.world()
    return [pickle.loads(one) for one in group._all_gather_bytes(pickle.dumps(value))]

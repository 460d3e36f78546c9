# Batches and learning rates for several ranks.
# Main entry: even_batches(), scale_lr().
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .. import _C
from .._C import Tensor, _dist, _optim, empty, tensor
from ._data_parallel import _map
from ._objects import all_gather_object


def even_batches(batches: Iterable[Any], communicator: _dist.Communicator | None = None) -> Iterator[Any]:
    """The batches, and after this rank's last one empty ones until the last rank has no more: every rank makes the same
    number of steps, and DataParallel leaves out the ranks without samples. A batch is a tensor or a tuple, list or dict
    of them; an empty one has size 0 in dim 0 of each. (A DataLoader with rank and size is even by itself.)

    >>> import anello
    >>> [x.shape[0] for x in anello.dist.even_batches([anello.ones(4, 2), anello.ones(3, 2)])]
    [4, 3]
    """
    group = communicator or _dist.world()
    iterator, template = iter(batches), None
    nothing = object()
    first = True
    while True:
        batch = next(iterator, nothing)
        has_one = batch is not nothing
        if first:
            # A rank that never has a batch learns from the others what one looks like.
            made = all_gather_object(_describe(batch) if has_one else None, group)
            template = next((one for one in made if one is not None), None)
            anyone = template is not None
            first = False
        else:
            flag = _number(int(has_one))
            group.all_reduce(flag, "max")
            anyone = flag.item() != 0
        if not anyone:
            return
        yield batch if has_one else _empty_like(template)


def _number(value: int) -> Tensor:
    return tensor([value])


class _Rows:
    """What stands for a tensor in the description of a batch."""

    def __init__(self, shape: tuple[int, ...], dtype: str):
        self.shape, self.dtype = shape, dtype


def _describe(batch: Any) -> Any:
    return _map(lambda x: _Rows(tuple(x.shape[1:]), x.dtype.name), batch)


def _empty_like(template: Any) -> Any:
    if isinstance(template, _Rows):
        return empty(0, *template.shape, dtype=getattr(_C, template.dtype))
    if isinstance(template, tuple) and hasattr(template, "_fields"):
        return type(template)(*(_empty_like(v) for v in template))
    if isinstance(template, (list, tuple)):
        return type(template)(_empty_like(v) for v in template)
    if isinstance(template, dict):
        return type(template)((key, _empty_like(v)) for key, v in template.items())
    return template


def scale_lr(
    optimizer: _optim.Optimizer, warmup_steps: int = 0, scaling: str = "linear", ranks: int | None = None
) -> dict[str, Any]:
    """Multiplies the lr of every group for the larger batch that the ranks make together: by their number ('linear',
    arXiv 1706.02677) or its square root ('sqrt'). Returns the options of a schedule, built after this, that warms up
    from the rate of one rank.

    >>> import anello
    >>> from anello import dist, optim
    >>> sgd = optim.SGD([anello.zeros(2, requires_grad=True)], lr=0.1)
    >>> schedule = optim.lr_scheduler.CosineAnnealingLR(sgd, 1000, **dist.scale_lr(sgd, warmup_steps=100, ranks=4))
    >>> round(schedule.get_last_lr()[0], 6)
    0.1
    """
    steps, factor = _dist._scale_lr(optimizer, _dist.size() if ranks is None else ranks, warmup_steps, scaling)
    return {"warmup_steps": steps, "warmup_factor": factor}

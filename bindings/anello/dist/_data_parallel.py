# DataParallel: a module whose gradients are those of all ranks.
# Main entry: DataParallel.
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable

from .._C import Tensor, _dist, _nn


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


def _map(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(_map(function, v) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_map(function, v) for v in value)
    if isinstance(value, dict):
        return type(value)((key, _map(function, v)) for key, v in value.items())
    return value


class DataParallel(_nn.Module):
    """Wraps a module: each rank computes its part of a batch, and when backward() returns, gradients are those of the
    whole batch, the same bits on every rank. They travel while backward still runs. Parameters and buffers are rank 0's
    from here on. Collective: construction, and each backward() that follows a forward.

    reduction: 'mean' for a loss that is a mean over the rank's samples (ranks are weighted by theirs; one without
    samples is left out), 'sum' for a loss that is a sum. The samples are dim 0 of forward's first tensor, or
    sample_count(*args, **kwargs). A parameter that a rank did not use counts as zero there; one that no rank used keeps
    grad None. bucket_mb, first_bucket_mb: how much travels at once. compression: 'bf16' or 'fp16' halves the traffic of
    wider gradients. nonfinite: on NaN or infinity of any rank 'skip' makes every rank's gradients None, so that the
    step does nothing, and says which rank and tensor; 'keep' leaves them (for a loss scaler); 'raise' raises.
    check_every: steps between comparisons of the ranks' parameters (0: never).

    state_dict() and the names of parameters are those of the module inside, so that a checkpoint fits either.

    >>> import anello
    >>> from anello import dist, nn
    >>> model = dist.DataParallel(nn.Linear(4, 2))
    >>> optimizer = anello.optim.SGD(model.parameters(), lr=0.1)
    >>> (model(anello.ones(8, 4)) ** 2).mean().backward()
    >>> optimizer.step()
    >>> list(model.state_dict())
    ['weight', 'bias']
    >>> model.report.step
    1
    """

    def __init__(
        self,
        module: _nn.Module,
        *,
        reduction: str = "mean",
        bucket_mb: float = 4.0,
        first_bucket_mb: float = 1.0,
        compression: str | None = None,
        nonfinite: str = "skip",
        check_every: int = 500,
        sample_count: Callable[..., int] | None = None,
        communicator: _dist.Communicator | None = None,
    ):
        super().__init__()
        self._core = _dist._DataParallel(
            module, reduction, bucket_mb, first_bucket_mb, compression or "none", nonfinite, check_every, communicator
        )
        self._sample_count = sample_count
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, with its arguments; counts the samples."""
        if self._sample_count is not None:
            samples = int(self._sample_count(*args, **kwargs))
        else:
            samples = next((x.shape[0] for x in _tensors([args, kwargs]) if x.ndim > 0), 1)
        scope = self._core.forward(samples)
        try:
            return _map(scope.output, self.module(*args, **kwargs))
        finally:
            scope.close()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward() only accumulates on this rank; the first backward() after it reduces the whole sum.

        >>> import anello
        >>> model = anello.dist.DataParallel(anello.nn.Linear(4, 2))
        >>> x = anello.ones(8, 4)
        >>> with model.no_sync():
        ...     (model(x[:4]).mean() / 2).backward()
        >>> (model(x[4:]).mean() / 2).backward()
        >>> model.report.samples[0]
        8
        """
        guard = self._core.no_sync()
        try:
            yield
        finally:
            guard.close()

    @contextlib.contextmanager
    def join(self, step: Callable[[], Any] | None = None) -> Iterator[None]:
        """Around a loop that has more steps on some ranks than on others: a rank that has left its loop takes part in
        the others' reductions, without samples, until all have left theirs. step() runs after each of these:
        optimizer.step() and zero_grad() keep this rank's parameters and optimizer equal to the others'. Without it,
        parameters and buffers become at the end those of the rank that made most steps. Not for a model with
        SyncBatchNorm: see even_batches().

        >>> import anello
        >>> model = anello.dist.DataParallel(anello.nn.Linear(4, 2))
        >>> with model.join():
        ...     for x in [anello.ones(2, 4), anello.zeros(3, 4)]:
        ...         model(x).mean().backward()
        """
        yield
        self._core.join(step)

    def set_samples(self, samples: int) -> None:
        """Replaces the count of samples of the next backward().

        >>> import anello
        >>> model = anello.dist.DataParallel(anello.nn.Linear(4, 2))
        >>> model.set_samples(100)
        >>> model(anello.ones(2, 4)).mean().backward()
        >>> model.report.samples[0]
        100
        """
        self._core.set_samples(samples)

    @property
    def report(self) -> _dist.ReductionReport:
        """What the last reduction did: samples, unused parameters, gradients that were not finite."""
        return self._core.report

    @property
    def communicator(self) -> _dist.Communicator:
        """The group of ranks that train together."""
        return self._core.communicator

    @property
    def gradient_bytes(self) -> int:
        """Bytes of gradient memory."""
        return self._core.gradient_bytes

    @property
    def bucket_count(self) -> int:
        """Number of buckets now; the first step sets their order."""
        return self._core.bucket_count

    def check_parameters(self) -> None:
        """Compares the parameters of all ranks now; raises DistError on every rank, naming rank and tensor. Collective.

        >>> import anello
        >>> anello.dist.DataParallel(anello.nn.Linear(4, 2)).check_parameters()
        """
        self._core.check_parameters()

    def broadcast_buffers(self, root: int = 0) -> None:
        """Gives root's buffers (running statistics) to all ranks. Collective.

        >>> import anello
        >>> anello.dist.DataParallel(anello.nn.BatchNorm1d(4)).broadcast_buffers()
        """
        self._core.broadcast_buffers(root)

    def state_dict(self) -> dict[str, Tensor]:
        """The state of the module inside."""
        return self.module.state_dict()

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True) -> Any:
        """Loads into the module inside; call it on every rank with the same state."""
        return self.module.load_state_dict(state_dict, strict)

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Those of the module inside, under its names."""
        return self.module.named_parameters(prefix, recurse)

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Those of the module inside, under its names."""
        return self.module.named_buffers(prefix, recurse)

# Whether operations are recorded for backward: context managers and decorators over the thread's flag.
# Main entry: no_grad, enable_grad, set_grad_enabled.
from __future__ import annotations

import contextlib
from typing import Any, Callable

from ._C import _autograd


class _GradMode(contextlib.ContextDecorator):
    _enabled = True

    def __new__(cls, function: Callable | None = None) -> Any:
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()  # used as a bare decorator: @no_grad
        return self(function)

    def __init__(self, function: Callable | None = None) -> None:
        self._before: list[bool] = []

    def _recreate_cm(self) -> _GradMode:
        return type(self)()  # each call of a decorated function has its own state, in whatever thread

    def __enter__(self) -> None:
        self._before.append(_autograd.is_grad_enabled())
        _autograd.set_grad_enabled(self._enabled)

    def __exit__(self, *error: Any) -> None:
        _autograd.set_grad_enabled(self._before.pop())


class no_grad(_GradMode):
    """Nothing is recorded for backward inside; a context manager or a decorator.

    >>> import anello
    >>> w = anello.zeros(2, requires_grad=True)
    >>> with anello.no_grad():
    ...     (w * 2).requires_grad
    False
    """

    _enabled = False


class enable_grad(_GradMode):
    """Recording is on again inside, also within no_grad(); a context manager or a decorator.

    >>> import anello
    >>> w = anello.zeros(2, requires_grad=True)
    >>> with anello.no_grad(), anello.enable_grad():
    ...     (w * 2).requires_grad
    True
    """

    _enabled = True


class set_grad_enabled:
    """Switches recording on or off at once; as a context manager it puts back what was there.

    >>> import anello
    >>> with anello.set_grad_enabled(False):
    ...     anello.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self._before = _autograd.is_grad_enabled()
        _autograd.set_grad_enabled(bool(mode))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        _autograd.set_grad_enabled(self._before)

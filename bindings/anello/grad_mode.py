# Whether operations are recorded for backward: context managers and decorators over the thread's flag.
# Main entry: no_grad, enable_grad, set_grad_enabled.
from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any, Callable

from ._C import _autograd


class _Decorator:
    """A context manager that also decorates functions, and generators: those between their yields."""

    def _anew(self) -> _Decorator:
        raise NotImplementedError

    def __call__(self, function: Callable) -> Callable:
        if inspect.isgeneratorfunction(function):
            return self._around_generator(function)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self._anew():  # each call has its own, in whatever thread
                return function(*args, **kwargs)

        return inside

    def _around_generator(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Iterator:
            generator = function(*args, **kwargs)
            go_on, given = generator.send, None
            while True:
                try:
                    with self._anew():
                        value = go_on(given)
                except StopIteration as end:
                    return end.value
                try:
                    go_on, given = generator.send, (yield value)
                except GeneratorExit:
                    with self._anew():
                        generator.close()
                    raise
                except BaseException as error:
                    go_on, given = generator.throw, error

        return inside


class _GradMode(_Decorator):
    _enabled = True

    def __new__(cls, function: Callable | None = None) -> Any:
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()  # used as a bare decorator: @no_grad
        return self(function)

    def __init__(self, function: Callable | None = None) -> None:
        self._before: list[bool] = []

    def _anew(self) -> _GradMode:
        return type(self)()

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


class set_grad_enabled(_Decorator):
    """Switches recording on or off at once; as a context manager it puts back what was there, and as a decorator it
    counts in the function alone.

    >>> import anello
    >>> with anello.set_grad_enabled(False):
    ...     anello.is_grad_enabled()
    False
    >>> @anello.set_grad_enabled(False)
    ... def recording():
    ...     return anello.is_grad_enabled()
    >>> recording(), anello.is_grad_enabled()
    (False, True)
    """

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        self._before = _autograd.is_grad_enabled()
        _autograd.set_grad_enabled(self._mode)

    def _anew(self) -> set_grad_enabled:
        return type(self)(self._mode)

    def __call__(self, function: Callable) -> Callable:
        _autograd.set_grad_enabled(self._before)  # it was meant for the function
        return super().__call__(function)

    def __enter__(self) -> None:
        _autograd.set_grad_enabled(self._mode)

    def __exit__(self, *error: Any) -> None:
        _autograd.set_grad_enabled(self._before)

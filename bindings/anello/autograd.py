# Gradients: backward(), grad(), checking them with numbers, and differentiable functions of one's own.
# Main entry: Function, grad(), gradcheck().
"""Gradients of tensors.

>>> import anello
>>> x = anello.tensor(3.0, requires_grad=True)
>>> anello.autograd.grad(x * x, x)[0].item()
6.0
"""

from __future__ import annotations

from typing import Any

from ._C import _autograd
from ._C._autograd import (
    BackwardStatus,
    FunctionContext,
    HookHandle,
    Node,
    backward,
    grad,
    gradcheck,
    gradgradcheck,
    on_backward_end,
)
from ._package import publish
from .grad_mode import enable_grad, no_grad, set_grad_enabled

__all__ = [
    "BackwardStatus",
    "Function",
    "FunctionContext",
    "HookHandle",
    "Node",
    "backward",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "no_grad",
    "on_backward_end",
    "set_grad_enabled",
]


class Function:
    """A differentiable function of one's own: derive, write forward and backward as static methods, call apply().

    forward(ctx, *args) takes what apply() is given and returns a tensor or a tuple; nothing in it is recorded.
    ctx.save_for_backward(*tensors) keeps tensors; anything else can be an attribute of ctx. backward(ctx, *grads) gets
    the gradient of each output and returns one gradient, or None, for each argument of forward; written with anello's
    own functions it can be differentiated again.

    >>> import anello
    >>> class Cube(anello.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 3 * x * x * grad
    >>> x = anello.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad.item()
    12.0
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward(ctx, *args) and records backward."""
        return _autograd.apply_function(cls, *args)

    @staticmethod
    def forward(ctx: FunctionContext, *args: Any) -> Any:
        """The computation: override it."""
        raise NotImplementedError("[Function] forward is not written. Hint: define it as a static method.")

    @staticmethod
    def backward(ctx: FunctionContext, *grads: Any) -> Any:
        """The gradients of forward's arguments: override it."""
        raise NotImplementedError("[Function] backward is not written. Hint: define it as a static method.")


publish(__name__, _autograd)

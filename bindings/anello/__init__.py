"""Anello, a deep learning framework: tensors, gradients, layers, optimizers, data.

>>> import anello
>>> x = anello.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad.tolist()
[2.0, 4.0, 6.0]
"""

from . import _C
from ._C import *
from ._C import __version__
from ._C._autograd import grad, is_grad_enabled
from ._package import cmake_dir
from .grad_mode import enable_grad, no_grad, set_grad_enabled

from . import autograd, data, dist, nn, optim, timeline  # isort: skip

# PyTorch's short names of dtypes.
half = _C.float16
float = _C.float32
double = _C.float64
short = _C.int16
int = _C.int32
long = _C.int64

# `from anello import *` leaves Python's own names alone.
_BUILTINS = {"abs", "all", "any", "bool", "float", "int", "max", "min", "pow", "round", "slice", "sum"}
_BUILTINS |= {"IndexError", "TypeError", "ValueError"}
_OWN = {
    "autograd",
    "cmake_dir",
    "data",
    "dist",
    "double",
    "enable_grad",
    "grad",
    "half",
    "is_grad_enabled",
    "long",
    "nn",
}
_OWN |= {"no_grad", "optim", "set_grad_enabled", "short", "timeline"}
__all__ = sorted(({name for name in vars(_C) if not name.startswith("_")} | _OWN) - _BUILTINS)

# The functions networks are made of, under the names PyTorch has for them.
# Main entry: conv2d(), cross_entropy(), relu().
"""Functions of layers and losses, without parameters of their own. Images are channels last: [N, H, W, C].

>>> import anello
>>> from anello.nn import functional as F
>>> F.relu(anello.tensor([-1.0, 2.0])).tolist()
[0.0, 2.0]
"""

from .._C import (
    avg_pool2d,
    batch_norm,
    binary_cross_entropy_with_logits,
    conv2d,
    cross_entropy,
    dropout,
    elu,
    gelu,
    global_avg_pool2d,
    l1_loss,
    leaky_relu,
    linear,
    log_softmax,
    max_pool1d,
    max_pool2d,
    mse_loss,
    nll_loss,
    one_hot,
    pad,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)

__all__ = [
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "conv2d",
    "cross_entropy",
    "dropout",
    "elu",
    "gelu",
    "global_avg_pool2d",
    "l1_loss",
    "leaky_relu",
    "linear",
    "log_softmax",
    "max_pool1d",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "pad",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]

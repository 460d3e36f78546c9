# What PyTorch has in torch.nn.utils.
# Main entry: clip_grad_norm_().
"""Helpers between backward() and step()."""

from .._C._optim import clip_grad_norm_, clip_grad_value_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]

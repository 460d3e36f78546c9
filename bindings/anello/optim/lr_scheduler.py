# The learning-rate schedules under the name of PyTorch's module.
# Main entry: OneCycleLR, CosineAnnealingLR, MultiStepLR, LinearLR, LambdaLR.
"""Learning-rate schedules; the same classes are in anello.optim."""

from .._C._optim import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, MultiStepLR, OneCycleLR

__all__ = ["CosineAnnealingLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR"]

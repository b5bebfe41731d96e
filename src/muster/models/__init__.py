"""Models by name, modules of several inputs, and `as_module`, which builds the module to train."""

from .multi_input import Joined, MultiInput
from .specs import CNN, MLP, MODELS, Bag, Linear, Softmax, Spec, as_module

__all__ = [
    "CNN",
    "MLP",
    "MODELS",
    "Bag",
    "Joined",
    "Linear",
    "MultiInput",
    "Softmax",
    "Spec",
    "as_module",
]

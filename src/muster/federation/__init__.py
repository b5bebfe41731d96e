"""Who takes part and what they hold."""

from .federation import Federation
from .ragged import Ragged, Shared

__all__ = ["Federation", "Ragged", "Shared"]

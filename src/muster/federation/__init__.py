"""Who takes part and what they hold."""

from .federation import Federation
from .population import Population, Shaped, Space
from .ragged import Ragged, Shared

__all__ = ["Federation", "Population", "Ragged", "Shaped", "Shared", "Space"]

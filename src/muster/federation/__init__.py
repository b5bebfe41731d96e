"""Who takes part and what they hold."""

from .column_statistics import Statistics
from .federation import Federation
from .inputs import Inputs, Preparation, Scale
from .population import Population, Shaped, Space
from .ragged import Ragged, Shared
from .text import Text
from .variation import Kind, Variation, Whose

__all__ = [
    "Federation",
    "Inputs",
    "Kind",
    "Population",
    "Preparation",
    "Ragged",
    "Scale",
    "Shaped",
    "Shared",
    "Space",
    "Statistics",
    "Text",
    "Variation",
    "Whose",
]

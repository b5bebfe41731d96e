"""Federations: clients, their data, and the preprocessing of rows."""

from .column_statistics import ColumnStatistics
from .federation import Federation
from .inputs import Inputs, Scaler, TableEncoder
from .population import Population, RowShape, RowSpec
from .ragged_rows import RaggedRows, SharedRows
from .text_encoder import TextEncoder
from .variation import ClientGroup, Variation, VariationKind

__all__ = [
    "ClientGroup",
    "ColumnStatistics",
    "Federation",
    "Inputs",
    "Population",
    "RaggedRows",
    "RowShape",
    "RowSpec",
    "Scaler",
    "SharedRows",
    "TableEncoder",
    "TextEncoder",
    "Variation",
    "VariationKind",
]

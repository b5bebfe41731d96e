"""Configuration: an experiment as a table, checked before anything runs."""

from .experiments import Experiment, Settings, experiment, load_table
from .keys import override

__all__ = ["Experiment", "Settings", "experiment", "load_table", "override"]

"""Configuration: an experiment as a table, checked before anything runs."""

from .experiment import Experiment, load, load_table
from .keys import override
from .settings import Settings

__all__ = ["Experiment", "Settings", "load", "load_table", "override"]

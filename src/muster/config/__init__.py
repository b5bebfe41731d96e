"""Configuration: an experiment as a table, checked before anything runs."""

from .dotted_keys import override
from .experiment import Experiment, load, load_table
from .settings import Settings

__all__ = ["Experiment", "Settings", "load", "load_table", "override"]

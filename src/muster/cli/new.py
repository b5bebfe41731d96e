"""`muster new method NAME`: a new method as a file to edit, with its test."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import sys
from pathlib import Path

from rich.console import Console

from ..base import durable
from ..base.errors import MusterError, unknown_name
from ..methods import METHODS
from .arguments import CommandParser
from .console import print_line

METHOD = '''\
"""NAME: its idea in one line, with its paper.

    muster compare --data digits --method NAME:NAME --method fedavg
"""

from muster import Method, part
from muster.parts import Average


@part(Method, "NAME")
def NAME(server_lr: float = 0.5) -> Method:
    """The formula, such as w' = w + server_lr (sum_k p_k w_k - w).

    Args:
        server_lr: how far the model moves towards the clients' mean
    """
    # Each part not named here is FedAvg's: invite, join, solver, admit, weigh, step, ...
    # `muster methods fedalign` shows those of FedALIGN.
    return Method("NAME", step=Average(server_lr))
'''
TEST = '''\
"""NAME, compared with a few lines of numpy on both engines."""

import numpy as np
import pytest

import muster
from NAME import NAME


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_one_round_is_what_the_formula_says(engine):
    fed = muster.data.digits(clients=4, priority=2)
    how = {"rounds": 1, "dtype": "float64", "engine": engine}
    model = muster.models.Softmax()  # it starts at w = 0
    mean = muster.simulate(fed, muster.methods.fedavg(), model, **how)
    mine = muster.simulate(fed, NAME(server_lr=0.5), model, **how)
    for name, w in mine.weights.items():
        np.testing.assert_allclose(w, 0.5 * mean.weights[name], atol=1e-12)
'''


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("kind", nargs="?", metavar="method", help="kind of part to write")
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name")


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Write NAME.py and test_NAME.py into the current folder."""
    if arguments.kind is None or arguments.name is None:
        raise MusterError("new: give what and its name: muster new method slow_average")
    if arguments.kind != "method":
        raise unknown_name("kind", arguments.kind, ["method"])
    name = str(arguments.name).replace("-", "_")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise MusterError(f"new method: '{arguments.name}'; give a name such as slow_average")
    if name in METHODS:
        raise MusterError(f"new method: there is a '{name}' already; choose another name")
    files = {Path(f"{name}.py"): METHOD, Path(f"test_{name}.py"): TEST}
    for path in files:
        if path.exists():
            raise MusterError(f"{path}: is there already; choose another name, or move it away")
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        raise MusterError(f"new method: there is a module '{name}' already; choose another name")
    for path, text in files.items():
        durable.write(path, text.replace("NAME", name))
    print_line(
        console, f"method:  {name}.py\ntest:    test_{name}.py; run it with: python -m pytest"
    )
    print_line(console, f"use:     muster run --data digits --method {name}:{name}")
    return 0

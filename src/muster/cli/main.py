"""The command line: an index of commands, each in the module of its name.

A command's module declares its flags and is imported when the command is chosen, so that help and
mistakes are quick. Many flags are keys of the configuration: a flag, a TOML line and a Python
argument are checked by the same code and fail with the same message.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import __version__
from ..base.errors import INTERRUPTED, MusterError, first_line, one_line, warning_line
from ..base.lazy import lazy_module
from ..report.text_format import replace_unprintable
from .arguments import CommandParser

if TYPE_CHECKING:
    from rich.console import Console

    from ..engines import rank_group
    from . import console as terminals
else:
    rank_group = lazy_module("muster.engines.rank_group")
    terminals = lazy_module("muster.cli.console")

COMMANDS = {
    "run": "run one method; results go to OUT/NAME",
    "compare": "run several methods on matched seeds; print paired intervals",
    "sweep": "compare over a grid of settings (--sweep.KEY VALUE,VALUE,...)",
    "tune": "choose each method's settings on separate seeds and rows",
    "advise": "advise each client: join (with whom), help, stay out, or cannot tell",
    "federate": "run a real federation over Flower",
    "keys": "make certificates and keys for a federation",
    "gate": "reverse proxy that forwards only node API calls to a SuperLink",
    "node": "run a client's node: its key, its data, one app",
    "methods": "list every method, with its paper, formula and parameters",
    "new": "write a new method to start from, and its test: `new method NAME`",
    "data": "the data sets: list them, `get`, `show`; `check PATH` of your own files",
    "show": "print the results in a folder",
    "figure": "draw results again, or for a paper (--paper)",
    "report": "write results as one HTML file that opens anywhere",
    "watch": "follow a run, comparison or federation under way",
    "reproduce": "run the papers' experiments again, and judge their claims",
    "trust": "measure what attacks cost, by rule and by share of attackers (minutes)",
    "predict": "predict classes and probabilities of new rows with a run's model",
    "export": "export a run's model as TorchScript, ONNX or a state_dict",
}
EXAMPLES = """\
examples:
  muster compare --data digits                      FedALIGN, FedAvg and training alone, 5 seeds
  muster compare --data digits --method fedalign --method fedavg
  muster compare examples/demo.toml                 from a file, which muster has
  muster compare --data digits --method assist --method fedalign --measure test_loss,fairness
  muster sweep --data digits --method assist --method fedavg --sweep.data.priority 2,4
  muster tune examples/demo.toml --tune.local.lr 0.03,0.1  settings by held-out rows
  muster run --data digits --method fedalign        one run, everything else by default
  muster run --data digits --method.epsilon 0.4 --rounds 50
  muster run --resume runs/NAME                     continue an interrupted run
  muster advise heart                               should each hospital join, and with whom
  muster federate --local 4 examples/federate.toml  a real federation on this machine
  muster report runs/NAME                           results as one HTML file
  muster watch runs/NAME                            follow a run under way
  muster predict runs/NAME new.csv                  class and probabilities of new rows
  muster export runs/NAME --to model.ts             the model, for use without muster
  muster reproduce fig2 --quick                     an experiment of the papers, in short
  muster methods                                    every method, with paper and formula
  muster new method slow_average                    a new method to start from
  muster data                                       the data sets: which are here, how to get more
"""
# torch's messages, by system and device.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; bad input is one line on stderr and exit code 2."""
    replace_unprintable(sys.stdout, sys.stderr)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Before torch loads: where a rank is lost, our line is enough.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    usual = warnings.formatwarning
    warnings.formatwarning = warning_line
    try:
        arguments = build_parser().parse(sys.argv[1:] if argv is None else argv)
        return int(arguments.execute(arguments, terminals.Terminal()))
    except MusterError as error:
        return report_error(one_line(str(error)))
    except OSError as error:
        # A full disk or a folder without write permission: no bug, no traceback.
        return report_error(one_line(explain_system_error(error)))
    except KeyboardInterrupt:
        return report_error("interrupted", INTERRUPTED)
    except Exception as error:
        if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
            advice = "take fewer clients a round, a smaller model or less data"
            return report_error(f"out of memory ({one_line(first_line(error))}); {advice}")
        rank_group.claim_failure(f"spread: a rank failed: {one_line(first_line(error))}")
        raise
    finally:
        warnings.formatwarning = usual


def explain_system_error(error: OSError) -> str:
    """Return what the operating system refused, and what to do.

    >>> explain_system_error(PermissionError(13, "Permission denied", "runs/a"))
    'runs/a: Permission denied; check its permissions, or give another folder (--out)'
    """
    if not (error.filename and error.strerror):
        return str(error)
    advice = ""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "; check its permissions, or give another folder (--out)"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "; make room, or give another folder (--out)"
    return f"{error.filename}: {error.strerror}{advice}"


def report_error(text: str, code: int = 2) -> int:
    """Print why a command ends, and return its exit code. Of the processes that torchrun started
    on a machine, one prints it."""
    if "RANK" not in os.environ or rank_group.claim_failure(text):
        print(f"muster: {text}", file=sys.stderr)
    return code


def build_parser() -> CommandParser:
    """Return the parser of `muster`, whose commands are loaded when they are chosen."""
    parser = CommandParser(
        prog="muster",
        description="Federated learning for clients who may say no: FedALIGN, MaxFL and what "
        "they are compared with.",
    )
    parser.add_flag("--version", action="version", version=f"muster {__version__}")
    parser.add_commands(COMMANDS)
    parser.epilogue = EXAMPLES.rstrip

    def print_help(arguments: argparse.Namespace, console: Console) -> int:
        parser.print_help()
        return 0

    parser.execute = print_help
    return parser

"""The command line: `muster run`, `compare`, `federate`, `keys`, `gate`, `node`, `data`, ...

Flags are the configuration's own keys, so a flag, a TOML line and a Python argument are checked
by the same code and fail with the same sentence.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..base.errors import INTERRUPTED, MusterError, first_line, one_line, warning_line
from ..base.lazy import lazy_functions, lazy_module
from ..report.text import replace_unprintable
from .arguments import Command, Reader

if TYPE_CHECKING:
    from rich.console import Console

    from . import (
        console,
        data,
        data_show,
        flower,
        methods,
        new,
        predict,
        report,
        reproduce,
        run,
        sweep,
        trust,
    )
    from . import help as configuration
else:
    # A command's module is loaded when it is that command's turn: help and mistakes are quick.
    console = lazy_module("muster.cli.console")
    (
        configuration, data, data_show, flower, methods, new, predict, report, reproduce, run,
        sweep, trust,
    ) = (
        lazy_functions(f"muster.cli.{name}")
        for name in (
            "help", "data", "data_show", "flower", "methods", "new", "predict", "report",
            "reproduce", "run", "sweep", "trust",
        )
    )  # fmt: skip

EXAMPLES = """\
examples:
  muster compare examples/demo.toml                 methods against each other, matched seeds
  muster compare --data digits --method fedalign --method fedavg
  muster compare --data digits --method fedalign --measure loss,fairness
  muster sweep my.toml --sweep.data.priority 2,4    the same over a grid of settings
  muster tune my.toml --tune.local.lr 0.03,0.1      settings for each method, by held-out rows
  muster run --data digits --method fedalign        one run, everything else by default
  muster run my.toml --method.epsilon 0.4 --rounds 50
  muster run --resume runs/NAME                     go on where an interrupted run stopped
  muster federate --local 4 examples/federate.toml  a real federation on this machine
  muster report runs/NAME                           results as one HTML file
  muster watch runs/NAME                            follow what is under way
  muster predict runs/NAME new.csv                  class and probabilities of new rows
  muster export runs/NAME --to model.ts             the model, for use without muster
  muster reproduce fig2 --quick                     an experiment of the papers, in short
  muster methods                                    what exists, with paper and formula
  muster new method slow_average                    a method of your own, to begin with
  muster data                                       the data sets: what is here, how to get more
"""
DATA = """\
Every data set, whether it is here, and the one command that gets it.

muster data                            the listing
muster data get NAME [--folder PATH]   obtain it, verify it, store it once
muster data show NAME ...              look at a federation made of it
"""
PREDICT = """\
What a run's model makes of new rows.

FILE has the columns the model was trained on; they are scaled as the training rows were. Printed,
or put into --out, is one line for each row: its class by name, and the probability of every class.
If FILE has the column of labels too, the score is said.
"""
EXPORT = """\
A run's model for use elsewhere.

--to says where, and by its ending how: model.pt (weights, a state_dict), model.ts (TorchScript),
model.onnx (needs the extra onnx). TorchScript and ONNX take the columns of a table as numbers and
give what `muster predict` does. Next to it, FILE.json says columns, levels, scale and labels.
"""
REPRODUCE = """\
Run experiments of the papers again, say what came of each claim, and draw the figures.

What is finished is kept, and not run again: an interrupted experiment goes on where it stopped.
"""
# How torch says it, by system and device.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
TRUST_CODE = "run code that the folder names by import path: it is your own"
SEVERAL: dict[str, Any] = {"action": "extend", "nargs": "+", "default": []}  # values of one flag


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; bad input is one line on stderr and exit code 2."""
    replace_unprintable(sys.stdout, sys.stderr)
    usual = warnings.formatwarning
    warnings.formatwarning = warning_line
    try:
        words = reader().read(sys.argv[1:] if argv is None else argv)
        return int(words.handle(words, console.Terminal()))
    except (MusterError, OSError) as error:
        # An OSError is a full disk, a folder that may not be written: no bug, and nothing to trace.
        print(f"muster: {one_line(str(error))}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(said in str(error) for said in NO_MEMORY):
            raise
        more = "take fewer clients a round, a smaller model or less data"
        print(f"muster: out of memory ({one_line(first_line(error))}); {more}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("muster: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        warnings.formatwarning = usual


def reader() -> Reader:
    """Every command with its arguments."""
    top = Reader(
        prog="muster",
        description="Federated learning for clients who may say no: FedALIGN, MaxFL and what "
        "they are compared with.",
        more=lambda: EXAMPLES.rstrip(),
    )
    top.flag("--version", action="version", version=f"muster {__version__}")
    add = top.group()
    for name, handle, what in (
        ("run", run.run, "run one method; results go to OUT/NAME"),
        ("compare", run.compare, "run several methods on matched seeds; print paired intervals"),
        ("sweep", sweep.sweep, "compare over a grid of settings (--sweep.KEY VALUE,VALUE,...)"),
        ("tune", sweep.tune, "choose each method's settings on seeds and rows of their own"),
        ("federate", needs_flower(flower.federate), "run a real federation over Flower"),
    ):
        command = add(name, handle=handle, keys=True, more=configuration.all_keys, help=what,
                      description=f"{what[0].upper()}{what[1:]}.",
                      usage=f"muster {name} [CONFIG] [--KEY VALUE ...]")  # fmt: skip
        command.add_argument(
            "config", nargs="?", metavar="CONFIG", help="a TOML file; flags are laid over it"
        )
        again = "; again for another" if name in ("compare", "sweep", "tune") else ""
        command.flag("--method", action="append", metavar="NAME", help=f"what to run{again}")
        command.flag("--resume", metavar="FOLDER", help="go on with the results in FOLDER")
        command.flag("--trust-code", action="store_true", help=TRUST_CODE)
        if name in ("run", "compare"):
            trackers = "send every round to tensorboard, mlflow, wandb or trackio as well"
            command.flag("--track", action="append", metavar="NAME", help=trackers)
        if name in ("sweep", "tune"):
            command.flag("--jobs", metavar="N", help="cells at once; default: as many as cores")
    command.flag("--local", metavar="N", help="N clients on this machine, all set up")
    command.flag("--app", metavar="DIR", help="write the app that `flwr run` takes")
    command = add(
        "keys",
        handle=needs_flower(flower.keys),
        help="make certificates and keys for a federation",
    )
    command.add_argument(
        "folder", nargs="?", metavar="DIR", help="where to put them; nothing is replaced"
    )
    _flags(
        command,
        ("--server", "HOST", "how clients reach the server"),
        ("--clients", "NAME", "a key pair for each"),
        **SEVERAL,
    )
    command = add(
        "gate",
        handle=needs_flower(flower.gate),
        help="let nodes, and nothing else, through to a superlink",
    )
    command.add_argument(
        "folder", nargs="?", metavar="DIR", help="the server's keys, as `muster keys` made them"
    )
    _flags(
        command,
        ("--host", "HOST", "where to listen (0.0.0.0: everywhere)"),
        ("--port", "PORT", "the port nodes come to (9092)"),
        ("--superlink", "HOST:PORT", "the superlink, on this machine (127.0.0.1:9093)"),
    )
    command = add(
        "node",
        handle=needs_flower(flower.node),
        help="a client's own node: its key, its data, one app",
    )
    _flags(
        command,
        ("--server", "HOST:PORT", "the server's gate"),
        ("--ca", "FILE", "the certificate by which the node knows the server"),
        ("--key", "FILE", "this client's private key"),
        ("--data", "FILE", "this client's rows: CSV, parquet or npz"),
        ("--memory", "FOLDER", "where it keeps what it remembers between rounds"),
        ("--requirement", "LOSS", "what it asks the model to stay below"),
        ("--test-fraction", "SHARE", "of its rows to hold out, where the file does not say"),
        ("--tokenizer", "MODULE:NAME", "what makes tokens of texts, where the model reads them"),
        ("--port", "PORT", "of the node's interface on this machine (any that is free)"),
    )
    agreed = "the app (or apps) its owner agreed to: nothing else is run"
    _flags(command, ("--app-hash", "HASH", agreed), **SEVERAL)
    command = add(
        "methods",
        handle=methods.methods,
        help="every method, with its paper, formula and parameters",
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="what its parameters mean")
    command.flag("--markdown", action="store_true", help="the table in docs/methods.md")
    command = add(
        "new",
        handle=new.new,
        help="write a method of your own to begin with, and its test: `new method NAME`",
    )
    command.add_argument("kind", nargs="?", metavar="method", help="what to write")
    command.add_argument("name", nargs="?", metavar="NAME", help="what it is called")
    _add_data(add(
        "data", handle=data.data, help="the data sets: list them, `get NAME`, `show NAME`",
        description=DATA.rstrip(),
    ))  # fmt: skip
    command = add("show", handle=run.show, help="print the results in a folder")
    command.add_argument("folder", nargs="?", metavar="FOLDER", help="such as runs/demo")
    command.flag("--measures", metavar="NAME,...", help="what to show, such as loss,fairness")
    command.flag("--measure", dest="measures", metavar="NAME,...", help="the same")
    command.flag("--figure", metavar="FILE", help="draw them as well: a .png, .pdf or .svg")
    command.flag("--panels", metavar="NAME,...", help="what to draw, such as loss,fairness")
    command.flag("--against", metavar="KEY", help="of a sweep: the key to draw them against")
    command.flag("--table", metavar="FILE", help="write the table too: a .csv, .tex or .parquet")
    _add_figure(add(
        "figure", handle=run.draw, help="draw results again, or for a paper (--paper)"
    ))  # fmt: skip
    _add_report(add(
        "report", handle=report.report, help="results as one HTML file that opens anywhere"
    ))  # fmt: skip
    _add_watch(add(
        "watch", handle=report.watch, help="follow a run, comparison or federation under way"
    ))  # fmt: skip
    _add_reproduce(add(
        "reproduce", handle=reproduce.reproduce, description=REPRODUCE,
        help="run the papers' experiments again, and judge their claims",
    ))  # fmt: skip
    _add_trust(add(
        "trust", handle=trust.trust,
        help="what attacks cost, by rule and by share of liars (minutes)",
    ))  # fmt: skip
    _add_predict(add(
        "predict", handle=predict.predict, help="classes and probabilities of new rows, by a run",
        description=PREDICT,
    ))  # fmt: skip
    _add_export(add(
        "export", handle=predict.export, help="a run's model as TorchScript, ONNX or a state_dict",
        description=EXPORT,
    ))  # fmt: skip
    return top


def _flags(command: Reader, *flags: tuple[str, str, str], **how: Any) -> None:
    """Flags that take a value, each with what stands for it in the help and what it is."""
    for flag, metavar, what in flags:
        command.flag(flag, metavar=metavar, help=what, **how)


def _add_trust(command: Reader) -> None:
    _flags(
        command,
        ("--rules", "NAME;...", "some of the rules of docs/trust.md, such as 'fedalign, trust'"),
        ("--attacks", "NAME;...", "some of the attacks, such as 'sign flip;ALIE'"),
        ("--shares", "SHARE;...", "how many lie, of all clients (0.05;0.1;0.2;0.4)"),
        ("--seeds", "N", "how many seeds (3)"),
        ("--rounds", "N", "how many rounds (60)"),
    )


def _add_figure(command: Reader) -> None:
    command.add_argument("folder", nargs="?", metavar="FOLDER", help="such as runs/demo")
    what = "at a column's width, with paired differences: FOLDER/paper.pdf and .svg"
    command.flag("--paper", action="store_true", help=what)
    command.flag("--wide", action="store_true", help="with --paper: across both columns")
    _flags(
        command,
        ("--panels", "NAME,...", "what to draw, such as loss,fairness"),
        ("--out", "FILE", "one file instead: a .png, .pdf or .svg"),
    )


def _add_report(command: Reader) -> None:
    what = "such as runs/demo; several are compared on the seeds they share"
    command.add_argument("folders", nargs="*", metavar="FOLDER", help=what)
    _flags(
        command,
        ("--out", "FILE", "where the page goes (FOLDER/report.html)"),
        ("--title", "TEXT", "what the page is called"),
    )


def _add_watch(command: Reader) -> None:
    command.add_argument("folder", nargs="?", metavar="FOLDER", help="such as runs/demo")
    _flags(command, ("--every", "SECONDS", "between two looks (2)"))
    command.flag(
        "--page", action="store_true", help="also FOLDER/live.html, which follows by itself"
    )
    command.flag("--once", action="store_true", help="look once")


def _add_predict(command: Reader) -> None:
    command.add_argument("run", nargs="?", metavar="RUN", help="a folder, such as runs/hospitals")
    what = "new rows: .csv, .parquet, .npz; images, or a folder of them"
    command.add_argument("file", nargs="?", metavar="FILE", help=what)
    _flags(
        command,
        ("--out", "FILE", "where predictions go (.csv, .parquet); default: printed as CSV"),
        ("--tokenizer", "MODULE:NAME", "what makes tokens of texts, where the model reads them"),
    )
    _add_which_model(command)


def _add_export(command: Reader) -> None:
    command.add_argument("run", nargs="?", metavar="RUN", help="a folder, such as runs/hospitals")
    _flags(command, ("--to", "FILE", "where the model goes: model.pt, model.ts or model.onnx"))
    _add_which_model(command)


def _add_which_model(command: Reader) -> None:
    command.flag("--trust-code", action="store_true", help=TRUST_CODE)
    _flags(
        command,
        ("--client", "NAME", "a client's own model, where the method keeps them"),
        ("--model", "MODULE:NAME", "what builds the module, where that is code of yours"),
        ("--scale", "FILE", "of a federation's run: the manifest with [mean] and [std], or none"),
    )


def _add_reproduce(command: Reader) -> None:
    command.add_argument("ids", nargs="*", metavar="ID", help="such as fig2; --list shows them")
    for flag, what in (
        ("--list", "every experiment: what it shows, how long it takes, the data it needs"),
        ("--all", "every experiment, one after the other"),
        ("--quick", "few rounds and seeds: about a minute each"),
        ("--small", "smaller where the full size needs a bigger machine"),
        ("--keep", "put the small file of results into experiments/results"),
        ("--pages", "make docs/claims.md and docs/gallery.md from the results kept there"),
    ):
        command.flag(flag, action="store_true", help=what)
    only = "only this panel; may be given several times. The others keep the results they have"
    command.flag("--panel", action="append", default=[], metavar="NAME", help=only)
    _flags(
        command,
        ("--seeds", "N", "how many seeds, in place of the file's"),
        ("--jobs", "N", "processes that work side by side (as many as there are cores)"),
        ("--out", "FOLDER", "where runs and results go (runs/reproduce)"),
    )


def _add_data(command: Reader) -> None:
    command.flag("--markdown", action="store_true", help="the table in docs/data.md")
    add = command.group()
    get = add("get", handle=data.get, help="obtain a data set, verify it, store it once")
    get.add_argument("names", nargs="*", metavar="NAME", help="as `muster data` lists it")
    get.flag("--folder", metavar="PATH", help="take the files from here, download nothing")
    show = add(
        "show", handle=data_show.show, keys=True, more=configuration.data_keys,
        help="who holds what, as a table and a picture",
        usage="muster data show NAME_OR_PATH [--KEY VALUE ...]",
    )  # fmt: skip
    show.add_argument("name", nargs="?", metavar="NAME_OR_PATH", help="a data set, or files")
    show.flag("--seed", metavar="N", help="the seed of the split (0)")
    show.flag("--out", metavar="FILE", help="where the picture goes (NAME-data.png); .pdf, .svg")


def needs_flower(command: Command) -> Command:
    """A command that needs the extra, which may not be there."""

    def handle(words: argparse.Namespace, console: Console) -> int:
        try:
            return command(words, console)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in (
                "flwr", "cryptography", "httpx", "uvicorn",
            ):  # fmt: skip
                raise
            raise MusterError(
                "flower: not installed; a real federation needs: pip install 'muster-fl[flower]'"
            ) from None

    return handle

"""`muster data show`: the clients and rows of a federation, as a table and as a picture.

The flags are the parameters of the data set, checked as those of a run. The table has one row per
client, or the first of them and quantiles of all. `report.federation_figure` draws the picture.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

from ..base.arrays import Int64
from ..base.errors import MusterError, MusterWarning, plural
from ..base.registry import kinds
from ..base.schema import parameters
from ..config.dotted_keys import override
from ..config.experiment import load
from ..data import DATA
from ..data.sources.catalogue import CATALOGUE
from ..federation import Federation
from ..federation.ragged_rows import SharedRows
from ..report.federation_figure import class_names, draw_federation
from ..report.figure import check_figure_path
from ..report.table_layout import Column, TerminalTable
from .arguments import CommandParser
from .console import print_line
from .help import format_data_keys
from .options import add_flags

SHOWN = 20  # clients a table lists when there are more
SPARKS = " ▁▂▃▄▅▆▇█"
WIDEST = 64  # classes a bar has room for
QUANTILES = {"smallest": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "largest": 1.0}


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.usage = "muster data show NAME_OR_PATH [--KEY VALUE ...]"
    parser.list_keys = list_keys
    parser.epilogue = format_data_keys
    parser.add_argument("name", nargs="?", metavar="NAME_OR_PATH", help="a data set, or files")
    add_flags(
        parser,
        ("--seed", "N", "seed of the split (0)"),
        ("--out", "FILE", "file of the picture (NAME-data.png); .pdf, .svg"),
    )


def list_keys() -> set[str]:
    """Return the keys of all data sets."""
    return {key for maker in kinds(Federation).values() for key in parameters(maker)}


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    name, out = arguments.name, arguments.out
    if name is None:
        known = ", ".join(sorted(set(DATA) - {"folder", "huggingface"}))  # those need more settings
        raise MusterError(f"data show: of which data? give a path, or one of {known}")
    if name in CATALOGUE and name not in DATA:
        raise MusterError(f"{name}: run `muster data show {CATALOGUE[name].shown_by}`")
    if out is not None:
        check_figure_path(out, "--out")
    flags = [(f"data.{key}", value) for key, value in arguments.keys.items()]
    flags.sort(key=lambda flag: flag[0].count("."))
    seed = [] if arguments.seed is None else [("seed", arguments.seed)]
    experiment = load(override({"data": {"name": name}}, flags + seed), trusted=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MusterWarning)  # the table shows single classes
        fed = experiment.federation(experiment.settings.seed)
    print_line(console, format_heading(fed))
    if not fed.classes:
        console.print(build_number_table(fed))
        print_line(console, "targets are numbers: there are no classes to draw")
        return 0
    counts = fed.label_counts()
    console.print(build_client_table(fed, counts))
    if fed.classes <= WIDEST and fed.labels is not None:
        print_line(console, f"labels, from left to right: {', '.join(class_names(fed))}")
    if fed.n > SHOWN:
        print_line(console, f"... and {plural(fed.n - SHOWN, 'more client')}; of all {fed.n}:")
        console.print(build_quantile_table(fed, counts))
    drawn = draw_federation(
        fed, counts, Path(out or f"{fed.name}-data.png"), experiment.settings.seed
    )
    print_line(console, f"figure: {drawn}")
    return 0


def format_heading(fed: Federation) -> str:
    """Return the numbers of clients and rows, and the shape of a row."""
    shape = "x".join(str(d) for d in fed.train.x.shape[1:])
    kind = str(fed.train.x.dtype).removeprefix("torch.")
    rows = int(fed.train.offsets[-1])
    tested = "no test rows"
    if fed.test is not None:
        shared = isinstance(fed.test, SharedRows)
        tested = plural(int(len(fed.test.y) if shared else fed.test.offsets[-1]), "test row")
        tested += " for everyone" if shared else ""
    unseen = f", {int(fed.unseen.sum())} unseen" if fed.unseen.any() else ""
    return (
        f"{fed.name}: {plural(fed.n, 'client')}, {int(fed.priority.sum())} priority{unseen}; "
        f"{plural(rows, 'training row')}, {tested}; rows of {shape} {kind}; "
        f"{fed.describe_targets()}"
    )


def build_columns(fed: Federation, some: Int64) -> list[Column]:
    """Return the columns of some clients' roles, numbers of rows and requirements."""
    columns = [
        Column("role", [describe_role(fed, int(k)) for k in some], left=True),
        Column("rows", [str(size) for size in fed.train.sizes[some]]),
    ]
    if fed.test is not None:
        columns.append(Column("test", [str(size) for size in fed.test.sizes[some]]))
    if fed.requirement is not None:
        columns.append(Column("requirement", [f"{rho:.4g}" for rho in fed.requirement[some]]))
    return columns


def build_number_table(fed: Federation) -> TerminalTable:
    """Return the first clients, a row each, with mean and deviation of their targets."""
    some = np.arange(min(fed.n, SHOWN))
    columns = build_columns(fed, some)
    targets = [fed.train.client(int(k))[1].double().flatten() for k in some]
    columns.append(Column("mean target", [f"{float(y.mean()):.4g}" for y in targets]))
    columns.append(Column("deviation", [f"{float(y.std(correction=0)):.4g}" for y in targets]))
    return TerminalTable("", [Column("client", get_names(fed)[some].tolist())], columns)


def build_client_table(fed: Federation, counts: Int64) -> TerminalTable:
    """Return the first clients, a row each."""
    some = np.arange(min(fed.n, SHOWN))
    columns = build_columns(fed, some)
    columns.append(Column("classes", [str(held) for held in (counts[some] > 0).sum(axis=1)]))
    if fed.classes <= WIDEST:
        columns.append(Column("labels", draw_sparks(counts[some]), left=True))
    return TerminalTable("", [Column("client", get_names(fed)[some].tolist())], columns)


def get_names(fed: Federation) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Return the clients' names, or their positions as text."""
    return np.arange(fed.n).astype(np.str_) if fed.names is None else fed.names


def describe_role(fed: Federation, k: int) -> str:
    """Return the role of a client: priority, unseen, or its importance."""
    if fed.unseen[k]:
        return "unseen"
    if fed.priority[k]:
        return "priority"
    return f"helps, {fed.importance[k]:g}" if fed.importance[k] else "-"


def draw_sparks(counts: Int64) -> list[str]:
    """Return a bar of characters for each client, one a class; its largest class is the highest.

    >>> draw_sparks(np.array([[0, 1, 8], [4, 2, 0]]))
    [' ▁█', '█▄ ']
    """
    share = counts / counts.max(axis=1, keepdims=True)
    height = np.ceil(share * (len(SPARKS) - 1)).astype(np.int64)
    return ["".join(SPARKS[h] for h in row) for row in height]


def build_quantile_table(fed: Federation, counts: Int64) -> TerminalTable:
    """Return quantiles of rows and classes over all clients."""
    measures: dict[str, ArrayLike] = {"rows": fed.train.sizes}
    if fed.test is not None:
        measures["test"] = fed.test.sizes
    measures["classes"] = (counts > 0).sum(axis=1)
    levels = list(QUANTILES.values())
    cut = {name: np.quantile(np.asarray(v), levels) for name, v in measures.items()}
    columns = [Column(name, [f"{q:g}" for q in values]) for name, values in cut.items()]
    return TerminalTable("", [Column("", list(QUANTILES))], columns)

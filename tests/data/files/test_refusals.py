"""Files that cannot be read: what is wrong is named, with the file, the column and the row."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import muster
from own_files import NORTH, SOUTH, put

load = muster.Federation.from_folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


ROW = "age,dose,label\n50,1,0\n{},2,1\n"
BAD = {
    "no label": ({"north": NORTH.replace("label", "labell")}, "no label column 'label'; name it "
                 "in manifest.toml, label = ..., did you mean 'labell'"),
    "text": ({"north": ROW.format("old")}, "north.csv: column 'age', row 2: 'old' is not a num"),
    "missing": ({"north": ROW.format("")}, "north.csv: column 'age', row 2: is missing"),
    "nan": ({"north": ROW.format("nan")}, "north.csv: column 'age', row 2: nan is not finite"),
    "inf": ({"north": ROW.format("-inf")}, "column 'age', row 2: -inf is not finite"),
    "too large": ({"north": ROW.format("1e39")}, "row 2: 1e39 is not finite as float32"),
    "no label here": ({"north": NORTH + "1,2,\n"}, "north.csv: column 'label', row 5: is missing"),
    "half a label": ({"north": NORTH + "1,2,0.5\n"}, "north.csv: column 'label', row 5: label 0.5"),
    "label below 0": ({"north": NORTH, "south": SOUTH + "1,-1,1\n"}, "south.csv: column 'label', "
                      "row 5: label -1 is below 0; say which labels there are, in manifest.toml "
                      "or as data.classes: classes = [-1, 0, 1], or"),
    "no such class": ({"north": NORTH, "south": SOUTH, "manifest": "classes = [1, 2]"},
                      "north.csv: column 'label', row 1: label '0' is not among classes"),
    "other columns": ({"north": NORTH, "south": SOUTH.replace("dose", "does")},
                      "south.csv: no feature column 'dose', which h/north.csv has; did you m"),
    "more columns": ({"north": NORTH, "south": "age,dose,label,sex\n1,2,0,1\n"},
                     "south.csv: column 'sex' is not in h/north.csv"),
    "twice": ({"north": "age,age,label\n1,2,0\n"}, "north.csv: two columns are called 'age'"),
    "empty": ({"north": ""}, "north.csv: empty; give a header"),
    "header only": ({"north": "age,label\n"}, "north.csv: no rows"),
    "only labels": ({"north": "label\n1\n0\n"}, "north.csv: no feature column"),
    "semicolons": ({"north": NORTH.replace(",", ";")}, "separate columns by commas"),
    "long row": ({"north": NORTH + "1,2,0,4\n"}, "north.csv: row 5 has 4 fields, the header 3"),
    "one row": ({"north": NORTH, "south": "age,dose,label\n1,2,0\n"}, "client 'south' has 1 row"),
    "a stranger": ({"north": NORTH, "manifest": "[clients.nort]\npriority = true"},
                   "manifest.toml: clients.nort has no data; did you mean 'north'"),
    "key": ({"north": NORTH, "manifest": "lable = 'label'"},
            "manifest.toml: unknown key 'lable'; did you mean 'label'"),
    "client's key": ({"north": NORTH, "manifest": "clients.north.prioriti = true"},
                     "manifest.toml: unknown key 'clients.north.prioriti'; did you mean 'p"),
    "key's type": ({"north": NORTH, "manifest": "test_fraction = 'half'"},
                   "manifest.toml: test_fraction: 'half'; allowed: a number"),
    "fraction": ({"north": NORTH, "manifest": "test_fraction = 1.0"},
                 "manifest.toml: test_fraction: 1.0; allowed: 0 (none) to below 1"),
    "not toml": ({"north": NORTH, "manifest": "label ="}, "manifest.toml: not valid TOML"),
    "requirements": ({"north": NORTH, "south": SOUTH, "manifest": "clients.south.requirement = 1"},
                          "clients.north.requirement: missing"),
    "split and fraction": ({"north": NORTH, "manifest": "split = 's'\ntest_fraction = 0.1"},
                           "split and test_fraction are both given"),
    "no split column": ({"north": NORTH, "manifest": "split = 'dos'"},
                        "no split column 'dos'; name it in manifest.toml, split = ..., did"),
    "split": ({"north": NORTH.replace("1.5", "trian"), "manifest": "split = 'dose'"},
              "north.csv: column 'dose', row 1: 'trian'; allowed: train, test"),
    "priority twice": ({"north": NORTH, "manifest": "priority = 1\nclients.north.priority = true"},
                       "priority and clients.NAME.priority; give it in one place"),
    "std 0": ({"north": NORTH, "manifest": "mean = {age = 1, dose = 1}\nstd = {age = 0, dose = 1}"},
              "std.age: 0.0; allowed: above 0"),
    "mean of some": ({"north": NORTH, "manifest": "mean = {age = 1}\nstd = {age = 1}"},
                     "[mean] and [std] need a number for each feature"),
    "an identity for a label": ({"north": ROW.format(60).replace(",1\n", ",10000000000000\n")},
                "north.csv: column 'label', row 2: label 10000000000000 makes 10000000000001 "
                "classes of 2 rows; name the labels there are: classes = [...] in manifest.toml"),
    "nan among names": ({"north": "age,label\n1,sick\n2,NaN\n3,sick\n"},
                        "north.csv: column 'label', row 2: is missing ('NaN'); fill it in"),
    "a question mark for a label": ({"north": "age,label\n1,sick\n2,well\n3,?\n"},
                                    "north.csv: column 'label', row 3: is missing ('?')"),
    "NA among numbers": ({"north": "age,label\n1,0\n2,1\n3,NA\n"},
                         "north.csv: column 'label', row 3: is missing ('NA')"),
    "classes twice": ({"north": NORTH, "manifest": "classes = [0, 1, '1']"}, "different names"),
    "label and client": ({"north": NORTH, "manifest": "client = 'label'"},
                         "north.csv: column 'label' is both label and client; name two"),
    "requirement nan": ({"north": NORTH, "manifest": "clients.north.requirement = nan"},
                        "manifest.toml: clients.north.requirement: nan; allowed: a finite number"),
    "importance 2": ({"north": NORTH, "manifest": "clients.north.importance = 2.0"},
                     "manifest.toml: clients.north.importance: 2.0; allowed: 0.0 to 1.0"),
    "priority but unseen": (
        {"north": NORTH, "manifest": "clients.north = {priority = true, unseen = true}"},
        "manifest.toml: clients.north: priority and unseen; a priority client takes part"),
    "mean nan": ({"north": NORTH, "manifest": "mean = {age = nan, dose = 1}\n"
                  "std = {age = 1, dose = 1}"}, "mean.age: nan; allowed: a finite number"),
    "std inf": ({"north": NORTH, "manifest": "mean = {age = 1, dose = 1}\n"
                 "std = {age = inf, dose = 1}"}, "manifest.toml: std.age: inf; allowed: above 0"),
    "std tiny": ({"north": NORTH, "manifest": "mean = {age = 1, dose = 1}\n"
                  "std = {age = 1e-300, dose = 1}"}, "column 0 is inf; features must be finite"),
    "first line empty": ({"north": "\n" + NORTH}, "its first line is empty; give a header"),
    "nothing": ({}, "h: holds no data"),
    "same features": ({"north": NORTH, "manifest": "features = ['age', 'age']"}, "different names"),
    "label as feature": ({"north": NORTH, "manifest": "features = ['label']"}, "has another role"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_line_that_says_where(here, case):
    texts, message = BAD[case]
    put("h", **texts)
    with pytest.raises(muster.MusterError) as caught:
        load("h")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def npz(**given):
    np.savez("h/a.npz", **given)


def npy(array):
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


X, Y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
BAD_NPZ = {
    "no y": (lambda: npz(x=X), "a.npz: no array 'y'; it holds x"),
    "x_test alone": (lambda: npz(x=X, y=Y, x_test=X), "a.npz: no array 'y_test'"),
    "other array": (lambda: npz(x=X, y=Y, x_tset=X), "'x_tset'; did you mean 'x_test'"),
    "lengths": (lambda: npz(x=X, y=Y[:3]), "a.npz: x has shape (4, 2) and y (3,)"),
    "flat": (lambda: npz(x=X[:, 0], y=Y), "a.npz: x has shape (4,)"),
    "nan": (lambda: npz(x=np.where(np.eye(4, 2), np.nan, 0), y=Y), "x, row 1, position [0]: nan"),
    "objects": (lambda: npz(x=np.array([[1], [{}]], object), y=Y[:2]), "a.npz: not readable"),
    "text": (lambda: npz(x=np.array([["a"]] * 4), y=Y), "a.npz: x holds <U1; give numbers"),
    "no rows": (lambda: npz(x=X[:0], y=Y[:0]), "a.npz: x has no rows"),
    "no features": (lambda: npz(x=X[:, :0], y=Y), "a.npz: x has no features"),
    "one array": (lambda: Path("h/a.npz").write_bytes(npy(X)), "a.npz: a single array; save x and"),
    "beyond int64": (lambda: npz(x=np.full((4, 2), 2**63, np.uint64), y=Y),
                     "a.npz: x holds 9223372036854775808; allowed: below 2^63"),
    "label beyond int64": (lambda: npz(x=X, y=np.full(4, 2**63 + 1, np.uint64)),
                           "a.npz: y holds 9223372036854775809; allowed: below 2^63"),
    "label without text": (lambda: npz(x=X, y=np.array(["a", "", "b", "a"])),
                           "a.npz: column 'y', row 2: is missing"),
    "weight inf": (lambda: npz(x=X, y=Y, x_test=X, y_test=Y, weight_test=[1, 1, 1, np.inf]),
                   "a.npz: weight_test: give a number above 0 for each row"),
    "manifest that leads nowhere": (
        lambda: (npz(x=X, y=Y), Path("h/manifest.toml").symlink_to("gone.toml")),
        "h/manifest.toml: cannot be read (No such file or directory); fix or remove it"),
    "label": (lambda: npz(x=X, y=Y, x_test=X, y_test=Y - 1),
              "a.npz: y_test: column 'y_test', row 1: label -1 is below 0"),
    "corrupt": (lambda: Path("h/a.npz").write_bytes(b"PK\3\4 and no more"), "a.npz: not readable"),
    "cut short": (lambda: (npz(x=X, y=Y), Path("h/a.npz").write_bytes(
        Path("h/a.npz").read_bytes()[:200])), "a.npz: not readable"),
    "shapes": (lambda: (npz(x=X, y=Y), np.savez("h/b.npz", x=X[:, :1], y=Y)), "h/b.npz: rows are "
               "float32 of shape (1,), those of h/a.npz float32 of shape (2,)"),
    "types": (lambda: (npz(x=X, y=Y), np.savez("h/b.npz", x=X.astype(np.uint8), y=Y)),
              "h/b.npz: rows are uint8"),
    "mixed": (lambda: (npz(x=X, y=Y), Path("h/b.csv").write_text(NORTH)), "of another kind"),
    "parquet": (lambda: Path("h/a.parquet").write_bytes(b"PAR1"), "not readable as parquet"),
    "date": (lambda: pl.DataFrame({"d": [None], "label": [0]}, {"d": pl.Date, "label": pl.Int8})
             .write_parquet("h/a.parquet"), "a.parquet: column 'd' holds Date"),
    "two of a client": (lambda: [Path(f"h/a.{e}").write_text(NORTH) for e in ("csv", "parquet")],
                        "is of the same client"),
    "spreadsheet": (lambda: Path("h/a.xlsx").write_text(""), "a.xlsx: a spreadsheet, to be saved"),
    "folder": (lambda: Path("h/a").mkdir(), "h/a: allowed here"),
    "date label": (lambda: pl.DataFrame({"a": [1], "label": [0]}).with_columns(
        pl.col("label").cast(pl.Date)).write_parquet("h/a.parquet"), "'label' holds Date; labels"),
    "latin": (lambda: Path("h/a.csv").write_bytes(b"\xe9,label\n1,0\n"), "a.csv: its text is "
              "not UTF-8; save it as CSV in UTF-8"),
    "latin rows": (lambda: Path("h/a.csv").write_bytes(
        b"a,label\n" + b"1,0\n" * 20_000 + b"1,\xe9\n"), "a.csv: its text is not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_NPZ)
def test_other_bad_files_are_one_line_too(here, case):
    Path("h").mkdir()
    write, message = BAD_NPZ[case]
    write()
    with pytest.raises(muster.MusterError) as caught:
        load("h")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("options", "message"), [
    ({"priority": ["nrth"]}, "priority: no client 'nrth'; did you mean 'north'"),
    ({"priority": [5]}, "priority: no client 5; allowed: 0 to 1"),
    ({"priority": 9}, "priority (of 2 clients): 9; allowed: whole numbers from 1 to 2"),
    ({"features": ["dos"]}, "no feature column 'dos'; did you mean 'dose'"),
    ({"scale": "pool"}, "scale: 'pool'; allowed: none, pooled"),
    ({"client": "sex"}, "h/north.csv: no client column 'sex'"),
])  # fmt: skip
def test_bad_arguments_are_named(here, options, message):
    put("h", north=NORTH, south=SOUTH)
    with pytest.raises(muster.MusterError) as caught:
        load("h", **options)
    assert message in str(caught.value)


def test_paths_that_are_no_data(here):
    where = f"^nowhere: no such file or folder in {re.escape(str(here))}; .* absolute path"
    with pytest.raises(muster.MusterError, match=where):
        load("nowhere")
    with pytest.raises(muster.MusterError, match="nowhere: no such file or folder; give"):
        load(here / "nowhere")
    Path("a.txt").write_text("")
    with pytest.raises(muster.MusterError, match=r"a.txt: ends in '.txt'; allowed: .csv, .parquet"):
        load("a.txt")
    np.savez("a.npz", x=X, y=Y)
    with pytest.raises(muster.MusterError, match="label: npz files have no columns"):
        load("a.npz", label="y")
    Path("t.parquet").unlink(missing_ok=True)
    pl.DataFrame({"client": [1.5], "a": [1], "label": [0]}).write_parquet("t.parquet")
    with pytest.raises(muster.MusterError, match="column 'client' holds Float64; clients are text"):
        load("t.parquet")


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n", "\n\n\n"])
def test_empty_lines_at_the_end_of_a_csv_are_no_rows(tmp_path, end):
    (tmp_path / "a.csv").write_text(f"x,z,label\n1,2,0\n2,3,1\n3,4,1{end}")
    fed = muster.Federation.from_folder(tmp_path / "a.csv", test_fraction=0)
    assert fed.train.sizes.tolist() == [3]


def test_an_empty_line_within_a_csv_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("x,z,label\n1,2,0\n\n3,4,1\n")
    with pytest.raises(muster.MusterError, match="row 2: is missing"):
        muster.Federation.from_folder(tmp_path / "a.csv", test_fraction=0)

"""Your own files: what is read is what was written, and what is wrong is named."""

from __future__ import annotations

import io
import tempfile
import tomllib
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import muster
from muster.cli.main import main
from muster.config.experiments import experiment

load = muster.Federation.from_folder

NORTH = "age,dose,label\n50,1.5,0\n60,2.5,1\n70,3.5,0\n80,4.5,1\n"
SOUTH = "dose,label,age\n1,1,51\n2,0,61\n3,1,71\n4,0,81\n"
# Eight rows each: half of them held out still leaves both classes.
NORTH8 = NORTH + "".join(NORTH.splitlines(keepends=True)[1:])
SOUTH8 = SOUTH + "".join(SOUTH.splitlines(keepends=True)[1:])
TABLE = "client,age,label\nb,1,0\na,2,1\nb,3,1\na,4,0\nb,5,0\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder, **texts):
    """Files of a folder: put("h", north=..., manifest=...)."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.{'toml' if name == 'manifest' else 'csv'}").write_text(text)
    return folder


def client(fed, k, split="train"):
    x, y = getattr(fed, split).client(k)
    return x.numpy(), y.numpy()


def same(a, b):
    """Whether two federations hold the same rows for the same clients in the same order."""
    assert a.n == b.n
    assert a.classes == b.classes
    assert (a.test is None) == (b.test is None)
    for split in ("train",) if a.test is None else ("train", "test"):
        for k in range(a.n):
            for mine, theirs in zip(client(a, k, split), client(b, k, split), strict=True):
                assert mine.dtype == theirs.dtype
                np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(a.priority, b.priority)
    np.testing.assert_array_equal(a.importance, b.importance)
    return True


# What is read is what was written.


@st.composite
def federations(draw):
    """A few clients' (x, y), train and test, in float32."""
    n, width = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    finite = st.floats(-1e6, 1e6, width=32)

    def pair():
        rows = draw(st.integers(1, 5))
        x = draw(arrays.arrays(np.float32, (rows, width), elements=finite))
        return x, draw(arrays.arrays(np.int64, rows, elements=st.integers(0, 3)))

    return [pair() for _ in range(n)], [pair() for _ in range(n)]


def frame(x, y, split):
    columns = {f"f{j}": x[:, j] for j in range(x.shape[1])}
    return pl.DataFrame({**columns, "label": y, "split": [split] * len(y)})


@given(federations(), st.sampled_from(["csv", "parquet", "npz", "table.csv", "table.parquet"]))
@settings(max_examples=60)
def test_files_read_back_as_the_arrays_they_were_written_from(data, kind):
    train, test = data
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        tables = [
            pl.concat([frame(*a, "train"), frame(*b, "test")])
            for a, b in zip(train, test, strict=True)
        ]
        path, options = Path(place), {"classes": [0, 1, 2, 3], "split": "split"}
        if kind == "npz":
            options = {"classes": [0, 1, 2, 3]}
            for k, ((x, y), (u, v)) in enumerate(zip(train, test, strict=True)):
                np.savez(path / f"{k}.npz", x=x, y=y, x_test=u, y_test=v)
        elif kind.startswith("table"):
            whole = pl.concat([t.with_columns(client=pl.lit(k)) for k, t in enumerate(tables)])
            # Clients' rows may lie between each other's: only their order within a client counts.
            whole = whole[np.argsort(np.arange(len(whole)) % 3, kind="stable")]
            tables = [whole.filter(pl.col("client") == k) for k in range(len(train))]
            path = path / kind
            (whole.write_csv if kind.endswith("csv") else whole.write_parquet)(path)
        else:
            for k, t in enumerate(tables):
                (t.write_csv if kind == "csv" else t.write_parquet)(path / f"{k}.{kind}")
        if kind != "npz":  # as the tables have them now

            def pairs(split):
                parts = [t.filter(pl.col("split") == split) for t in tables]
                xs = [p.select(pl.col("^f.$")).to_numpy() for p in parts]
                return [(x, p["label"].to_numpy()) for x, p in zip(xs, parts, strict=True)]

            train, test = pairs("train"), pairs("test")
        expected = muster.Federation.from_arrays(train, test, classes=4)
        assert same(load(path, **options), expected)


def test_bytes_stay_bytes_and_images_keep_their_shape(here):
    x = np.arange(4 * 3 * 2 * 2, dtype=np.uint8).reshape(4, 3, 2, 2)
    np.savez("one.npz", x=x, y=np.array(["cat", "dog", "cat", "dog"]))
    fed = load("one.npz", test_fraction=0)
    assert fed.train.x.dtype.is_floating_point is False
    np.testing.assert_array_equal(client(fed, 0)[0], x)
    assert fed.labels == ("cat", "dog")
    assert fed.test is None


def test_features_are_matched_by_name_not_by_place(here):
    fed = load(put("h", north=NORTH, south=SOUTH), test_fraction=0)
    assert fed.names.tolist() == ["north", "south"]
    np.testing.assert_array_equal(client(fed, 0)[0][0], [50, 1.5])
    np.testing.assert_array_equal(client(fed, 1)[0][0], [51, 1])
    chosen = load("h", test_fraction=0, features=["dose"])
    np.testing.assert_array_equal(client(chosen, 1)[0].ravel(), [1, 2, 3, 4])


def test_a_table_is_cut_by_its_client_column(here):
    Path("all.csv").write_text(TABLE)
    fed = load("all.csv", test_fraction=0, priority=["b"])
    assert fed.names.tolist() == ["a", "b"]
    assert fed.priority.tolist() == [False, True]
    assert client(fed, 1)[0].ravel().tolist() == [1, 3, 5]
    assert client(fed, 1)[1].tolist() == [0, 1, 0]
    renamed = Path("other.csv")
    renamed.write_text(TABLE.replace("client", "site").replace("label", "sick"))
    assert same(load(renamed, client="site", label="sick", test_fraction=0, priority=[1]), fed)


def test_a_folder_may_hold_one_table_in_pieces(here):
    rows = TABLE.splitlines()
    put("h", part1="\n".join(rows[:3]), part2="\n".join([rows[0], *rows[3:]]))
    Path("all.csv").write_text(TABLE)
    assert same(load("h", client="client", test_fraction=0), load("all.csv", test_fraction=0))


def test_numbers_in_names_sort_by_size_and_keep_their_zeros(here):
    put("h", c10=NORTH, c9=NORTH)
    assert load("h").names.tolist() == ["c9", "c10"]
    Path("t.csv").write_text("client,a,label\n007,1,0\n007,2,1\n08,1,0\n08,2,1\n")
    assert load("t.csv", test_fraction=0).names.tolist() == ["007", "08"]


def test_labels_are_numbered_as_classes_say(here):
    text = NORTH.replace(",0\n", ",well\n").replace(",1\n", ",sick\n")
    put("h", north=text)
    assert client(load("h", test_fraction=0), 0)[1].tolist() == [1, 0, 1, 0]
    fed = load("h", test_fraction=0, classes=["well", "sick", "unclear"])
    assert client(fed, 0)[1].tolist() == [0, 1, 0, 1]
    assert (fed.classes, fed.labels) == (3, ("well", "sick", "unclear"))
    put("n", north=NORTH.replace(",0\n", ",-1.0\n"))
    assert client(load("n", test_fraction=0, classes=[-1, 1]), 0)[1].tolist() == [0, 1, 0, 1]


def test_labels_too_large_for_numbers_are_names_and_large_ones_are_told_apart(here):
    one, other = 2**53, 2**53 + 1  # the same as float64
    Path("t.csv").write_text(f"a,label\n1,{one}\n2,{other}\n3,{one}\n")
    fed = load("t.csv", test_fraction=0, classes=[one, other])
    assert client(fed, 0)[1].tolist() == [0, 1, 0]
    Path("t.csv").write_text(f"a,label\n1,{10**30}\n2,{10**30 + 1}\n3,{10**30}\n")
    fed = load("t.csv", test_fraction=0)
    assert (client(fed, 0)[1].tolist(), fed.labels) == ([0, 1, 0], (str(10**30), str(10**30 + 1)))
    wide = pl.Series("label", [2**63 + 1, 0, 2**63 + 1], pl.UInt64)
    pl.DataFrame({"a": [1, 2, 3]}).with_columns(wide).write_parquet("t.parquet")
    fed = load("t.parquet", test_fraction=0)
    assert (client(fed, 0)[1].tolist(), fed.labels) == ([1, 0, 1], ("0", str(2**63 + 1)))


def test_many_classes_are_fine_where_there_are_rows_for_them(here):
    pl.DataFrame({"a": np.arange(3000.0), "label": np.arange(3000)}).write_parquet("t.parquet")
    assert load("t.parquet", test_fraction=0).classes == 3000
    Path("t.csv").write_text("a,label\n1,999\n2,3\n")
    assert load("t.csv", test_fraction=0).classes == 1000


def test_long_doubles_are_doubles(here):
    np.savez("t.npz", x=np.arange(8, dtype=np.longdouble).reshape(4, 2), y=[0, 1, 0, 1])
    assert client(load("t.npz", test_fraction=0), 0)[0].dtype == np.float64


def test_a_manifest_with_a_byte_order_mark(here):
    put("h", north=NORTH, south=SOUTH, manifest="\ufeffpriority = ['south']")
    assert load("h").priority.tolist() == [False, True]


def test_tables_as_other_tools_write_them(here):
    Path("t.csv").write_bytes(b'\xef\xbb\xbf"age", dose,label\r\n 1,"2", 0\r\n3 ,4,1\r\n')
    fed = load("t.csv", test_fraction=0, features=["age"])
    assert client(fed, 0)[0].tolist() == [[1], [3]]
    assert client(fed, 0)[1].tolist() == [0, 1]
    rows = {"who": ["b", "a", "a"], "on": [True, False, True], "n": ["1.5", "2", "3"]}
    pl.DataFrame({**rows, "label": ["z", "y", "z"]}).with_columns(
        pl.col("n").cast(pl.Decimal(9, 2)), pl.col("who", "label").cast(pl.Categorical)
    ).write_parquet("t.parquet")
    with pytest.warns(muster.MusterWarning, match="single class"):
        fed = load("t.parquet", client="who", test_fraction=0)
    assert (fed.names.tolist(), fed.labels) == (["a", "b"], ("y", "z"))
    assert client(fed, 0)[0].tolist() == [[0, 2], [1, 3]]
    assert client(fed, 0)[1].tolist() == [0, 1]


def test_pooled_scale_is_that_of_all_training_rows(here):
    put("h", north=NORTH, south=SOUTH)
    fed = load("h", scale="pooled", test_fraction=0.25, seed=3)
    raw = load("h", test_fraction=0.25, seed=3)
    rows = np.concatenate([client(raw, k)[0] for k in range(2)]).astype(np.float64)
    for k in range(2):
        for split in ("train", "test"):
            expected = (client(raw, k, split)[0] - rows.mean(0)) / rows.std(0)
            np.testing.assert_allclose(client(fed, k, split)[0], expected, rtol=1e-6)


def test_a_scale_that_was_agreed_is_the_same_for_a_client_alone(here):
    manifest = "mean = { age = 60, dose = 2 }\nstd = { age = 10, dose = 0.5 }"
    put("h", north=NORTH, south=SOUTH, manifest=manifest)
    fed, alone = load("h"), load("h/south.csv")
    np.testing.assert_array_equal(client(fed, 1)[0], client(alone, 0)[0])
    np.testing.assert_allclose(client(load("h", test_fraction=0), 1)[0][0], [-0.9, -2.0])


def test_a_thousand_roles_are_read_at_once(here):
    table = pl.DataFrame({"client": np.arange(1000) // 2, "a": np.arange(1000.0), "label": 0})
    table.write_parquet("t.parquet")
    roles = "".join(f"[clients.{k}]\nrequirement = {k}.5\n" for k in range(500))
    Path("t.manifest.toml").write_text("classes = [0, 1]\ntest_fraction = 0\n" + roles)
    with pytest.warns(muster.MusterWarning, match="500 of 500"):
        fed = load("t.parquet")
    assert fed.requirement.tolist() == [k + 0.5 for k in range(500)]
    Path("t.manifest.toml").write_text("[clients.5000]\npriority = true")
    with pytest.raises(muster.MusterError, match=r"clients.5000 has no data; .* and 460 more"):
        load("t.parquet")


def test_large_numbers_are_scaled_before_they_are_rounded(here):
    Path("t.csv").write_text("t,label\n" + "".join(f"{1700000000 + i},{i % 2}\n" for i in range(4)))
    x, _ = client(load("t.csv", scale="pooled", test_fraction=0), 0)
    assert len(np.unique(x)) == 4


# Who is who.


MANIFEST = """
label = "label"
test_fraction = 0.25
[clients.north]
priority = true
requirement = 0.35
[clients.south]
requirement = 0.5
importance = 0.2
"""


def test_the_manifest_says_roles_and_requirements(here):
    fed = load(put("h", north=NORTH, south=SOUTH, manifest=MANIFEST))
    assert fed.priority.tolist() == [True, False]
    assert fed.requirement.tolist() == [0.35, 0.5]
    assert fed.importance.tolist() == [1, 0.2]
    assert fed.test.sizes.tolist() == [1, 1]
    assert load("h", priority="all").priority.all(), "an argument wins over the manifest"
    put("h", north=NORTH8, south=SOUTH8)
    assert load("h", test_fraction=0.5).test.sizes.tolist() == [4, 4]


def test_without_roles_everyone_is_priority(here):
    assert load(put("h", north=NORTH, south=SOUTH)).priority.all()
    assert load("h", priority=1).priority.tolist() == [True, False]


def test_unseen_clients_only_judge(here):
    manifest = MANIFEST.replace("importance = 0.2", "unseen = true")
    fed = load(put("h", north=NORTH, south=SOUTH, manifest=manifest))
    assert fed.unseen.tolist() == [False, True]


def test_a_file_alone_is_a_client_alone(here):
    put("h", north=NORTH, south=SOUTH, manifest=MANIFEST)
    fed, alone = load("h", seed=7), load("h/south.csv", seed=7)
    assert alone.names.tolist() == ["south"]
    assert alone.requirement.tolist() == [0.5]
    for split in ("train", "test"):
        # Columns are in the order of the first file: south alone has its own.
        np.testing.assert_array_equal(client(alone, 0, split)[0][:, ::-1], client(fed, 1, split)[0])
    Path("h/south.manifest.toml").write_text("test_fraction = 0.75")
    with pytest.warns(muster.MusterWarning, match="single class"):
        assert load("h/south.csv").test.sizes.tolist() == [3], "its own manifest comes first"
    assert load("h").test.sizes.tolist() == [1, 1], "and is not the folder's"


@given(
    st.lists(st.integers(2, 9), min_size=1, max_size=5), st.floats(0.05, 0.95), st.integers(0, 9)
)
@settings(max_examples=30)
def test_each_client_holds_out_its_own_rows_seeded_and_disjoint(sizes, fraction, seed):
    owner = np.repeat(np.arange(len(sizes)), sizes)
    table = pl.DataFrame({"client": owner, "at": np.arange(len(owner)), "label": 0})
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        path = Path(place) / "t.parquet"
        table.write_parquet(path)
        fed, again = (load(path, test_fraction=fraction, seed=seed, classes=[0, 1]) for _ in "ab")
    assert same(fed, again)
    for k, size in enumerate(sizes):
        train, test = (client(fed, k, split)[0].ravel() for split in ("train", "test"))
        assert sorted([*train, *test]) == np.flatnonzero(owner == k).tolist()
        assert len(test) == min(max(round(fraction * size), 1), size - 1)


def test_a_client_of_one_class_is_pointed_out(here):
    put("h", north=NORTH, south="age,dose,label\n1,2,0\n3,4,0\n")
    with pytest.warns(muster.MusterWarning, match="1 of 2 clients hold a single class .*'south'"):
        load("h")


# What is wrong is named: file, column, row.

ROW = "age,dose,label\n50,1,0\n{},2,1\n"
BAD = {
    "no label": ({"north": NORTH.replace("label", "labell")}, "no label column 'label'; name it "
                 "with label=..., did you mean 'labell'"),
    "text": ({"north": ROW.format("old")}, "north.csv: column 'age', row 2: 'old' is not a num"),
    "missing": ({"north": ROW.format("")}, "north.csv: column 'age', row 2: is missing"),
    "nan": ({"north": ROW.format("nan")}, "north.csv: column 'age', row 2: nan is not finite"),
    "inf": ({"north": ROW.format("-inf")}, "column 'age', row 2: -inf is not finite"),
    "too large": ({"north": ROW.format("1e39")}, "row 2: 1e39 is not finite as float32"),
    "no label here": ({"north": NORTH + "1,2,\n"}, "north.csv: column 'label', row 5: is missing"),
    "half a label": ({"north": NORTH + "1,2,0.5\n"}, "north.csv: column 'label', row 5: label 0.5"),
    "label below 0": ({"north": NORTH, "south": SOUTH + "1,-1,1\n"}, "south.csv: column 'label', "
                      "row 5: label -1 is below 0; say which labels there are: classes=[-1, 0, 1]"),
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
                        "no split column 'dos'; name it with split=..., did you mean 'dose'"),
    "split": ({"north": NORTH.replace("1.5", "trian"), "manifest": "split = 'dose'"},
              "north.csv: column 'dose', row 1: 'trian'; allowed: train, test"),
    "priority twice": ({"north": NORTH, "manifest": "priority = 1\nclients.north.priority = true"},
                       "priority and clients.NAME.priority; say it in one place"),
    "std 0": ({"north": NORTH, "manifest": "mean = {age = 1, dose = 1}\nstd = {age = 0, dose = 1}"},
              "std.age: 0.0; allowed: above 0"),
    "mean of some": ({"north": NORTH, "manifest": "mean = {age = 1}\nstd = {age = 1}"},
                     "[mean] and [std] need a number for each feature"),
    "an identity for a label": ({"north": ROW.format(60).replace(",1\n", ",10000000000000\n")},
                "north.csv: column 'label', row 2: label 10000000000000 makes 10000000000001 "
                "classes of 2 rows; name the labels there are with classes=[...]"),
    "nan among names": ({"north": "age,label\n1,sick\n2,NaN\n3,sick\n"},
                        "north.csv: column 'label', row 2: label NaN"),
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
    "label as feature": ({"north": NORTH, "manifest": "features = ['label']"}, "something else"),
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
    "spreadsheet": (lambda: Path("h/a.xlsx").write_text(""), "a.xlsx: allowed here: .csv"),
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
    ({"features": "dose"}, "features: 'dose'; allowed: a list, each text"),
    ({"scale": "pool"}, "scale: 'pool'; allowed: none, pooled"),
    ({"client": "sex"}, "h/north.csv: no client column 'sex'"),
])  # fmt: skip
def test_bad_arguments_are_named(here, options, message):
    put("h", north=NORTH, south=SOUTH)
    with pytest.raises(muster.MusterError) as caught:
        load("h", **options)
    assert message in str(caught.value)


def test_paths_that_are_no_data(here):
    with pytest.raises(muster.MusterError, match="nowhere: no such file or folder"):
        load("nowhere")
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


# From a configuration and the command line.


def test_a_path_in_a_configuration(here, capsys):
    put("h", north=NORTH8, south=SOUTH8, manifest=MANIFEST)
    for data in ("h", "./h", {"name": "folder", "path": "h"}):
        fed = experiment({"data": data}).federation(0)
        assert fed.names.tolist() == ["north", "south"]
    chosen = experiment({"data": {"name": "./h", "test_fraction": 0.5}})
    assert chosen.federation(0).test.sizes.tolist() == [4, 4]
    saved = chosen.resolved()
    assert saved["data"] == {"name": "folder", "path": "./h", "test_fraction": 0.5}
    assert experiment(saved).resolved() == saved


def test_the_command_line_takes_a_path_and_resumes(here, capsys, monkeypatch):
    put("h", north=NORTH, south=SOUTH, manifest=MANIFEST)
    flags = ["--data", "h", "--data.scale", "pooled", "--rounds", "6", "--local.batch_size", "2"]
    assert main(["run", *flags, "--name", "whole"]) == 0

    from muster.cli.progress import Progress

    real = Progress.__call__

    def stop(self, row):
        real(self, row)
        if row["round"] == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", stop)
        assert main(["run", *flags, "--name", "cut"]) == 130
    config = tomllib.loads(Path("runs/cut/config.toml").read_text())
    assert config["data"] == {"name": "folder", "path": "h", "scale": "pooled"}
    assert main(["run", "--resume", "runs/cut"]) == 0
    a, b = muster.load("runs/whole"), muster.load("runs/cut")
    assert a.rounds.drop("seconds").equals(b.rounds.drop("seconds"))


@pytest.mark.parametrize(("flags", "message"), [
    (["--data", "digist"], "data.name: 'digist' is unknown; did you mean 'digits'"),
    (["--data", "no/where"], "no/where: no such file or folder"),
    (["--data", "./h", "--data.lable", "x"], "unknown key 'data.lable'; did you mean 'label'"),
    (["--data", "folder"], "data.path: missing"),
    (["--data", "folder", "--data.path", "3"], "data.path: 3; allowed: text\n"),
    (["--data", "./h", "--data.path", "h"], "data.name: './h' beside data.path"),
])  # fmt: skip
def test_bad_paths_on_the_command_line_are_one_line(here, capsys, flags, message):
    put("h", north=NORTH)
    assert main(["run", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n", "\n\n\n"])
def test_empty_lines_at_the_end_of_a_csv_are_no_rows(tmp_path, end):
    (tmp_path / "a.csv").write_text(f"x,z,label\n1,2,0\n2,3,1\n3,4,1{end}")
    fed = muster.Federation.from_folder(tmp_path / "a.csv", test_fraction=0)
    assert fed.train.sizes.tolist() == [3]


def test_an_empty_line_within_a_csv_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("x,z,label\n1,2,0\n\n3,4,1\n")
    with pytest.raises(muster.MusterError, match="row 2: is missing"):
        muster.Federation.from_folder(tmp_path / "a.csv", test_fraction=0)


def test_a_file_that_is_not_there_is_no_unknown_data_set():
    from muster.config.experiments import experiment

    with pytest.raises(muster.MusterError, match=r"nope\.csv: no such file"):
        experiment({"data": "nope.csv"}).federation(0)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_brackets_in_a_name_are_no_pattern(tmp_path, ending):
    folder = tmp_path / "[old]"
    folder.mkdir()
    frame = pl.DataFrame({"age": range(10), "label": [0, 1] * 5})
    write = {"csv": frame.write_csv, "parquet": frame.write_parquet}[ending]
    write(folder / f"north[1].{ending}")
    assert muster.Federation.from_folder(folder).names.tolist() == ["north[1]"]

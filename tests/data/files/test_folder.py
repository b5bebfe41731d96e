"""Your own files: what is read is what was written."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import muster
from own_files import MANIFEST, NORTH, NORTH8, SOUTH, SOUTH8, put

# Small numbers to read in a test are large ones to train on.
pytestmark = pytest.mark.filterwarnings("ignore:features need scaling")

load = muster.Federation.from_folder

TABLE = "client,age,label\nb,1,0\na,2,1\nb,3,1\na,4,0\nb,5,0\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
    assert load("h", test_fraction=0, features="dose").columns == ("dose",)
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


def test_labels_too_large_for_numbers_are_names_and_large_ones_stay_distinct(here):
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


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_brackets_in_a_name_are_no_pattern(tmp_path, ending):
    folder = tmp_path / "[old]"
    folder.mkdir()
    frame = pl.DataFrame({"age": range(10), "label": [0, 1] * 5})
    write = {"csv": frame.write_csv, "parquet": frame.write_parquet}[ending]
    write(folder / f"north[1].{ending}")
    assert muster.Federation.from_folder(folder).names.tolist() == ["north[1]"]

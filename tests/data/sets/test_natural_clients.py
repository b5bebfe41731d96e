"""Real federations by name: counts, targets and rows against a plain reading of their files."""

from __future__ import annotations

import csv
import inspect
import math
from collections import defaultdict
from statistics import median

import numpy as np
import pytest

import muster
from muster.base.errors import MusterError
from muster.data.sources.table_catalogue import NATURAL, TABLES
from small_data import SHARED, here, shared

REAL = SHARED / "real"
# Clients, and the fewest, median and most rows; the target of a row of the file, None: no row.
FACTS = {
    "exam": (65, 2, 60, 198, lambda r: float(r["normexam"])),
    "azpro": (17, 17, 152, 535, lambda r: math.log(float(r["los"]))),
    "contraception": (60, 2, 26, 118, lambda r: r["use"] == "Y"),
    "vote16": (
        *(51, 71, 173, 211),
        lambda r: float(r["votetrump"]) if r["votetrump"] else None,
    ),
    "flights": (15, 342, 600, 600, lambda r: float(r["arr_delay"]) > 15),
    "lending": (38, 44, 168.5, 300, lambda r: float(r["int_rate"])),
    "indo_rct": (4, 3, 93, 413, lambda r: r["outcome"] == "1_yes"),
    "opt": (4, 173, 201.5, 247, lambda r: float(r["GA.at.outcome"]) < 259),
    "tcga_brca": (6, 51, 179, 311, lambda r: float(r["T"])),
}
# Clients and rows of those whose files are not among the shared ones.
FETCHED = {
    "bdf": (131, 2287),
    "hsb": (160, 7185),
    "immun": (159, 2157),
    "stack": (5, 5594),
    "randhie": (6, 5638),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*hold a single class")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch, request):
    """A cache of its own; what is fetched is looked for where it is."""
    if "fetched" not in request.node.name:
        monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "cache"))


def real(name):
    return pytest.param(name, marks=shared(f"real/{name}.csv"))


def read_plainly(name):
    """The targets of every client, by the csv module."""
    targets = defaultdict(list)
    with (REAL / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            who, y = row[TABLES[name].client], FACTS[name][-1](row)
            if y is not None:
                short = f"{float(who):.1f}".removesuffix(".0") if name == "azpro" else who
                targets[short].append(float(y))
    return targets


@pytest.mark.parametrize("name", [real(name) for name in FACTS])
def test_clients_rows_and_targets_are_those_of_the_file(name):
    fed = getattr(muster.data, name)(REAL)
    clients, fewest, middle, most, _ = FACTS[name]
    sizes = (fed.train.sizes + fed.test.sizes).tolist()
    assert (fed.n, min(sizes), median(sizes), max(sizes)) == (clients, fewest, middle, most)
    targets = read_plainly(name)
    for k, who in enumerate(fed.names.tolist()):
        y = np.concatenate([half.client(k)[1].numpy() for half in (fed.train, fed.test)])
        mine = y[:, 0] if y.ndim > 1 else y
        assert np.allclose(np.sort(mine), np.sort(targets[who]))
    assert fed.variation.varies == "split"
    assert fed.name == name
    assert ("a subset" in fed.note) == (name in ("vote16", "flights", "lending"))
    assert [fed.names[k] for k in np.flatnonzero(fed.priority)] == list(TABLES[name].priority)
    assert TABLES[name].task == (
        "survival" if name == "tcga_brca" else "binary" if fed.classes else "regression"
    )
    task = getattr(muster.tasks, TABLES[name].task)()
    local = muster.Local(steps=2, batch_size=16, lr=0.01)
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Linear(), 2, local, task=task)
    assert np.isfinite(run.rounds["test_loss"].to_numpy()).all()


@shared("real/exam.csv")
def test_features_are_scaled_and_one_hot():
    """Against numpy on the csv module's rows: a federation has them in the order of the file."""
    fed = muster.data.exam(REAL, seed=2)
    with (REAL / "exam.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    trained = []
    for k in range(fed.n):
        x = fed.train.client(k)[0].numpy()
        trained += zip(x, (rows[i] for i in rows_of(fed.train, k)), strict=True)
    x = np.stack([features for features, _ in trained])
    raw = np.array([float(row["standLRT"]) for _, row in trained])
    expected = (raw - raw.mean()) / raw.std()
    assert np.allclose(x[:, fed.columns.index("standLRT")], expected, atol=1e-5)
    for column in ("sex=F", "vr=top 25%", "schgend=mixed"):
        name, _, level = column.partition("=")
        has = np.array([row[name] == level for _, row in trained])
        assert np.array_equal(x[:, fed.columns.index(column)], has)


def rows_of(half, k):
    return half.rows[half.offsets[k] : half.offsets[k + 1]].tolist()


@pytest.mark.parametrize("name", [real(name) for name in FACTS])
def test_priority_clients_train_on_few_rows_and_are_tested_on_the_rest(name):
    make = getattr(muster.data, name)
    whole, few, more = (make(REAL, rows=n, seed=1) for n in (None, 5, 15))
    for k in range(whole.n):
        own = sorted(rows_of(whole.train, k) + rows_of(whole.test, k))
        assert sorted(rows_of(few.train, k) + rows_of(few.test, k)) == own
        if whole.priority[k]:
            assert (few.train.sizes[k], more.train.sizes[k]) == (5, 15)
            assert set(rows_of(few.train, k)) < set(rows_of(more.train, k)), "more include fewer"
        elif name != "tcga_brca":  # whose few rows keep events, for which the draw is another
            assert rows_of(few.train, k) == rows_of(whole.train, k)
    other = make(REAL, rows=5, seed=2)
    (k, *_) = np.flatnonzero(few.priority)
    assert rows_of(other.train, k) != rows_of(few.train, k)
    share = few.test.sizes[k] / (few.test.sizes[k] + 5)
    assert few.variation.ratio(True, "objective") == pytest.approx(share / (1 - share))
    most = int(whole.train.sizes[k] + whole.test.sizes[k])
    with pytest.raises(MusterError, match=f"rows: {most} to train on.*allowed: up to {most - 1}"):
        make(REAL, rows=most)
    with pytest.raises(MusterError, match="rows: 0; allowed"):
        make(REAL, rows=0)


@shared("real/tcga_brca.csv")
def test_few_rows_of_survival_keep_events():
    for seed in range(5):
        fed = muster.data.tcga_brca(REAL, priority=("region0", "region3"), rows=20, seed=seed)
        for k in np.flatnonzero(fed.priority):
            time, event = fed.train.client(int(k))[1].T
            assert len(time) == 20
            assert event.sum() >= 1


@shared("heart_uci.csv")
def test_hospitals_can_have_few_rows_too():
    whole, few = (muster.data.heart(SHARED, priority=("va",), rows=n) for n in (None, 20))
    va = few.names.tolist().index("va")
    assert (few.train.sizes[va], few.test.sizes[va]) == (20, 180)
    assert rows_of(few.train, 0) == rows_of(whole.train, 0)


@shared("real/exam.csv")
def test_priority_clients_are_chosen():
    assert muster.data.exam(REAL, priority=3).priority.sum() == 3
    chosen = muster.data.exam(REAL, priority=("7", "12"))
    assert chosen.names[chosen.priority].tolist() == ["7", "12"]
    assert muster.data.exam(REAL, priority="all", test_fraction=0.5).priority.all()
    with pytest.raises(MusterError, match="priority: no client '66'"):
        muster.data.exam(REAL, priority=("66",))


@pytest.mark.parametrize("name", [pytest.param(n, marks=here(n)) for n in FETCHED])
def test_fetched_tables_have_their_clients_and_rows(name):
    fed = getattr(muster.data, name)()
    assert (fed.n, int((fed.train.sizes + fed.test.sizes).sum())) == FETCHED[name]


@pytest.mark.parametrize("name", TABLES)
def test_each_is_a_function_by_its_name_that_says_where_to_get_its_files(name, tmp_path):
    make = getattr(muster.data, name)
    assert (make.__name__, make.__qualname__) == (name, name)
    assert make.__module__ == "muster.data.sets.natural_clients"
    assert f'task = "{TABLES[name].task}"' in inspect.getdoc(make).splitlines()[0]
    with pytest.raises(MusterError, match=rf"is not in .*; run `muster data get {name}`$"):
        make(tmp_path)


@shared("real/exam.csv")
def test_a_changed_file_is_refused(tmp_path):
    lines = (REAL / "exam.csv").read_text().splitlines()
    (tmp_path / "exam.csv").write_text("\n".join([lines[0], *lines[2:]]))
    with pytest.raises(MusterError, match=r"x has shape \(4058, 3\).*\(4059, 3\)"):
        muster.data.exam(tmp_path)
    (tmp_path / "exam.csv").write_text(
        "\n".join([lines[0], lines[1].replace("2613", "2614"), *lines[2:]])
    )
    with pytest.raises(MusterError, match=f"that of Exam is {NATURAL['exam'].layouts[0].sha256}"):
        muster.data.exam(tmp_path)

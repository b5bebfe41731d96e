"""Sentiment140: clients are groups of users, rows the mean vectors of their tweets."""

from __future__ import annotations

import gzip
import zipfile
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from muster.base.errors import MusterError
from muster.data import CATALOGUE, sent140
from muster.data.sets import natural_clients as module
from muster.data.sources import catalogue
from muster.data.sources.catalogue import GLOVE, SENT140
from muster.data.sources.dataset import load_local
from muster.data.sources.readers import glove_zip
from small_data import SHARED, here, shared

TWEETS = "sent140_subset.csv.gz"
USERS = 12
WORDS = ("good", "bad", "day")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def small(tmp_path, monkeypatch, root):
    """Tweets of a few users, and a GloVe of three words: word i is the unit vector of axis i.

    User u has u + 1 tweets; tweet j of a user is "good day" or "bad", in turn.
    """
    root.mkdir()
    vectors = np.eye(3, 50, dtype=np.float32)
    lines = [f"{word} {' '.join(map(str, v))}" for word, v in zip(WORDS, vectors, strict=True)]
    with zipfile.ZipFile(root / "glove.6B.zip", "w") as archive:
        archive.writestr("glove.6B.50d.txt", "\n".join(lines) + "\n")
    said = [(f"user{u:02d}", j % 2) for u in range(USERS) for j in range(u + 1)]
    text = "label,user,text\n" + "".join(
        f"{0 if bad else 4},{user},{'such a BAD thing' if bad else '@ann good day'}\n"
        for user, bad in said
    )
    (tmp_path / TWEETS).write_bytes(gzip.compress(text.encode()))
    glove = replace(GLOVE, layouts=(catalogue.Layout(
        ("glove.6B.zip",), glove_zip, {"vectors": (3, 50)}),))  # fmt: skip
    monkeypatch.setattr(catalogue, "GLOVE", glove)
    n = len(said)
    layout = replace(
        SENT140.layouts[1], shapes={"x": (n, 50), "y": (n,), "user": (n,)}, file_digest=""
    )
    monkeypatch.setattr(module, "SENT140", replace(SENT140, layouts=(layout,), needs=(glove,)))
    return tmp_path


def owners(fed):
    """The client of every tweet, by its row."""
    owner = np.full(len(fed.train.y), -1)
    for data in (fed.train, fed.test):
        owner[data.rows] = np.repeat(np.arange(fed.n), data.sizes)
    assert (owner >= 0).all()
    return owner


USER = np.repeat(np.arange(USERS), np.arange(USERS) + 1)  # of every tweet


def test_rows_are_the_mean_vectors_of_known_words(small):
    fed = sent140(small, clients=3)
    good, bad = torch.zeros(50), torch.zeros(50)
    good[[0, 2]], bad[1] = 0.5, 1.0
    assert (fed.classes, tuple(fed.train.x.shape)) == (2, (78, 50))
    for x, y in zip(fed.train.x, fed.train.y, strict=True):
        assert torch.equal(x, good if y == 1 else bad)
    assert int(fed.train.y.sum()) == sum(u // 2 + 1 for u in range(USERS))


@pytest.mark.parametrize("seed", range(5))
def test_a_users_tweets_are_all_with_one_client(small, seed):
    fed = sent140(small, clients=5, seed=seed)
    owner = owners(fed)
    groups = [set(owner[u == USER]) for u in range(USERS)]
    assert all(len(group) == 1 for group in groups)
    sizes = np.bincount([k for group in groups for k in group], minlength=5)
    assert sorted(sizes) == [2, 2, 2, 3, 3], "users are dealt evenly"


def test_groups_depend_on_the_seed_and_a_fifth_is_held_out(small):
    a, b, c = (sent140(small, clients=4, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(owners(a), owners(b))
    assert not np.array_equal(owners(a), owners(c))
    tweets = a.train.sizes + a.test.sizes
    assert a.test.sizes.tolist() == np.clip(np.rint(0.2 * tweets), 1, tweets - 1).tolist()
    assert not set(a.train.rows) & set(a.test.rows)
    half = sent140(small, clients=4, test_fraction=0.5)
    assert (np.abs(half.test.sizes - half.train.sizes) <= 1).all()


def test_roles_and_the_note(small):
    fed = sent140(small, clients=4, priority=2, unseen=1)
    assert fed.priority.tolist() == [True, True, False, False]
    assert fed.unseen.tolist() == [False, False, False, True]
    assert fed.note.endswith("each client is a group of about 3 users")
    assert fed.note.startswith("a subset of")
    for n in (0, USERS + 1):
        with pytest.raises(MusterError, match=rf"of 12 users\): {n}; allowed: .* from 1 to 12"):
            sent140(small, clients=n)


@here("glove")
@shared(TWEETS)
def test_sent140_groups_whole_users(tmp_path):
    fed = sent140(SHARED, clients=308 + 619, unseen=619)
    raw = pl.read_csv(gzip.decompress((SHARED / TWEETS).read_bytes()))
    assert (fed.n, int(fed.unseen.sum()), int(fed.priority.sum())) == (927, 619, 308)
    assert (tuple(fed.train.x.shape), fed.train.x.dtype) == ((59_616, 50), torch.float32)
    assert fed.train.y.tolist() == (raw["label"] > 0).cast(int).to_list()
    rows = np.concatenate([fed.train.rows, fed.test.rows])
    assert sorted(rows) == list(range(59_616))
    owner = np.empty(59_616, np.int64)
    for part in (fed.train, fed.test):
        owner[part.rows] = np.repeat(np.arange(fed.n), part.sizes)
    clients = raw.select("user", pl.Series("k", owner)).unique()
    assert len(clients) == raw["user"].n_unique()
    users = clients.group_by("k").len()["len"]
    assert users.max() - users.min() <= 1
    assert f"a group of about {round(users.mean())} users" in fed.note
    assert "a subset of 59,616 tweets" in fed.note


def test_sent140_says_that_it_needs_glove(root, tmp_path):
    data = CATALOGUE["sent140"]
    layout = replace(data.layouts[1], file_digest="")
    (tmp_path / layout.files[0]).write_bytes(gzip.compress(b"label,user,text\n0,a,hi\n"))
    with pytest.raises(MusterError, match=r"GloVe 6B .* is not in .*; run `muster data get glove`"):
        load_local(replace(data, layouts=(layout,)), tmp_path)

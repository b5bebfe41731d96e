"""FEMNIST: a client is a writer, trained and tested on its own rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from muster.base.errors import MusterError
from muster.data import femnist
from muster.data.sets import images
from muster.data.sources.catalogue import FEMNIST
from small_data import SHARED, shared

LEAF = "femnist_leaf_subset.npz"
TRAINED = np.array([3, 3, 0, 3, 5, 0, 7, 7])  # the writer of each row; 7 has no test rows
TESTED = np.array([0, 3, 9, 5, 3])  # and 9 no training rows


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def small(tmp_path, monkeypatch, root):
    """FEMNIST of a few rows: every pixel of row i is i, of test row i 100 + i."""

    def rows(n, first):
        return np.broadcast_to(np.arange(first, first + n, dtype=np.uint8)[:, None], (n, 784))

    np.savez(
        tmp_path / LEAF,
        x_train=rows(8, 0), y_train=np.arange(8) % 62, u_train=TRAINED,
        x_test=rows(5, 100), y_test=np.arange(5) % 62, u_test=TESTED,
    )  # fmt: skip
    shapes = {"x": (8, 784), "y": (8,), "test_x": (5, 784), "test_y": (5,)}
    layout = replace(FEMNIST.layouts[0], shapes=shapes, sha256="")
    monkeypatch.setattr(images, "FEMNIST", replace(FEMNIST, layouts=(layout,)))
    return tmp_path


def writers_of(fed):
    """The writer of each client, which must be one, and the same in training and test rows."""
    found = []
    for k in range(fed.n):
        x, _ = fed.train.client(k)
        tested, _ = fed.test.client(k)
        (writer,) = set(TRAINED[255 - x[:, 0].numpy()])
        assert set(TESTED[255 - tested[:, 0].numpy() - 100]) == {writer}
        found.append(int(writer))
    return found


def test_writers_without_training_or_test_rows_are_left_out(small):
    fed = femnist(small)
    assert sorted(writers_of(fed)) == [0, 3, 5]
    assert sorted(fed.train.sizes) == [1, 2, 3]
    assert (fed.classes, len(fed.labels), fed.labels[-1]) == (62, 62, "z")
    assert fed.priority.all()


def test_labels_stay_with_their_rows_and_ink_is_255(small):
    fed = femnist(small)
    for k in range(fed.n):
        for data, first in ((fed.train, 0), (fed.test, 100)):
            x, y = data.client(k)
            assert (255 - x[:, 0].numpy() - first).tolist() == y.tolist()
            assert (x == x[:, :1]).all()


def test_some_writers_are_a_seeded_choice_and_roles_follow_their_order(small):
    fed = femnist(small, clients=2, priority=1, unseen=1, seed=0)
    assert fed.priority.tolist() == [True, False]
    assert fed.unseen.tolist() == [False, True]
    chosen = {seed: tuple(writers_of(femnist(small, clients=2, seed=seed))) for seed in range(20)}
    assert len(set(chosen.values())) == 6, "every ordered pair of the three"
    assert chosen[0] == tuple(writers_of(fed))
    for n in (0, 4):
        with pytest.raises(MusterError, match=rf"of 3 writers\): {n}; allowed: .* from 1 to 3"):
            femnist(small, clients=n)


@shared(LEAF)
def test_femnist_clients_are_writers_with_their_own_test_rows(root):
    fed = femnist(SHARED)
    with np.load(SHARED / LEAF) as raw:
        train, test = raw["u_train"], raw["u_test"]
        x, users = raw["x_train"].reshape(-1, 784), raw["users"]
    writers = np.unique(train)
    assert (fed.n, fed.classes, len(writers)) == (105, 62, 105)
    assert np.isin(writers, test).all()
    only_tested = len(users) - len(writers)
    assert f"{len(writers)} writers" in fed.note
    assert f"{only_tested} more have test rows only" in fed.note
    seen = []
    for k in range(fed.n):
        (mine,) = np.unique(train[fed.train.base(fed.train.positions(np.array([k])))])
        (tested,) = np.unique(test[fed.test.base(fed.test.positions(np.array([k])))])
        assert mine == tested
        seen.append(mine)
    assert sorted(seen) == writers.tolist()
    assert len(fed.train.rows) == len(train)
    # 255 is ink here and background there.
    assert np.array_equal(fed.train.x.numpy(), 255 - x)
    assert (fed.train.x == 0).double().mean() > 0.5


@shared(LEAF)
def test_femnist_writers_are_chosen_by_the_seed(root):
    a, b, c = (femnist(SHARED, clients=30, unseen=10, seed=s) for s in (0, 0, 1))
    assert (a.n, int(a.unseen.sum())) == (30, 10)
    assert np.array_equal(a.train.rows, b.train.rows)
    assert not np.array_equal(a.train.rows, c.train.rows)
    for n in (0, 106):
        with pytest.raises(
            MusterError, match=rf"of 105 writers\): {n}; allowed: whole numbers from 1 to 105"
        ):
            femnist(SHARED, clients=n)

"""What errors are made of: lists of names, and numbers of things."""

from __future__ import annotations

import pytest

import muster
from muster.base.errors import list_names, nearest, plural, unknown_name


def test_a_list_of_nothing_says_so():
    assert str(unknown_name("key", "x", [])) == "unknown key 'x'; there are none"
    assert nearest("x", []) == "there are none"
    assert list_names(["b", "a"]) == "known: a, b"
    assert list_names(f"n{i:02}" for i in range(50)).endswith("n39 and 10 more")


def test_an_unknown_key_of_what_takes_none():
    with pytest.raises(muster.MusterError) as caught:
        muster.config.load({"model": {"name": "softmax", "width": 3}})
    assert "known:" not in str(caught.value) or not str(caught.value).rstrip().endswith("known:")
    assert str(caught.value) == "unknown key 'model.width'; there are none"


def test_one_thing_is_one_thing():
    assert [plural(n, "round") for n in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]
    fed = muster.Federation.from_arrays([([[0.0], [1.0]], [0, 1])])
    assert repr(fed) == "Federation(1 client, 1 priority, 2 rows, 2 classes)"
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), 1)
    assert repr(run) == "Run(fedavg, seed 0, 1 round)"


def test_a_known_name_is_listed_once():
    assert nearest("x", ["b", "a", "b"]) == "known: a, b"
    error = unknown_name("key", "lr", ["lrs", "lrs", "eps"])
    assert str(error) == "unknown key 'lr'; did you mean 'lrs'? known: eps, lrs"

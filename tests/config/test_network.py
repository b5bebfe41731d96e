"""The terms of a federation over a network: bad ones are one line that names the field."""

from __future__ import annotations

import math

import numpy as np
import pytest

import muster
from muster.config.network import Member, Network, check_members

KEY = "ecdsa-sha2-nistp384 AAAA"

BAD = {
    "patience": (lambda: Network(patience=0), "network.patience: 0; allowed: above 0"),
    "wait": (lambda: Network(wait=math.nan), "network.wait: nan; allowed: above 0"),
    "at_least": (lambda: Network(at_least=0), "network.at_least: 0; allowed: whole numbers from 1"),
    "half a client": (lambda: Network(at_least=1.5), "network.at_least: 1.5; allowed: whole"),
    "most_rows": (lambda: Network(most_rows=-1), "network.most_rows: -1; allowed: whole numbers"),
    "most_share": (lambda: Network(most_share=0.0), "network.most_share: 0.0; allowed: above 0"),
    "rows": (
        lambda: Member("a", KEY, rows=-1),
        "clients.a.rows: -1; allowed: whole numbers from 0",
    ),
    "importance": (
        lambda: Member("north", KEY, importance=2.0),
        "clients.north.importance: 2.0; allowed: 0.0 to 1.0",
    ),
    "a judge with priority": (
        lambda: Member("north", KEY, priority=True, unseen=True),
        "clients.north: priority and unseen; a priority client takes part",
    ),
    "name": (lambda: Member("a/b", KEY), "clients: name 'a/b'; give a plain name"),
    "twice": (
        lambda: check_members((Member("a", KEY, priority=True), Member("a", KEY))),
        "clients: two are called 'a'; give each its own name",
    ),
    "nobody": (lambda: check_members((Member("a", KEY),)), "clients: none is priority"),
    "no key there": (
        lambda: Member("a", "nowhere.pub").public_key(),
        "clients.a.key: nowhere.pub cannot be read",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_terms_are_one_line(case):
    build, message = BAD[case]
    with pytest.raises(muster.MusterError) as caught:
        build()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_what_is_allowed():
    assert Network(patience=math.inf, at_least=np.int64(3)).at_least == 3
    assert Member("a", KEY, importance=1).public_key() == KEY
    assert Network(classes=("no", "yes")).class_count == 2

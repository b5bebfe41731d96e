"""The terms of a federation over a network: bad ones are one line that names the field."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import muster
from muster.config.dotted_keys import RENAMED, override
from muster.config.experiment import load, load_table
from muster.config.network import Member, Network, check_members
from muster.flower.terms import check_terms
from muster.study.sweep import plan_sweep

KEY = "ecdsa-sha2-nistp384 AAAA"

BAD = {
    "timeout": (lambda: Network(timeout=0), "network.timeout: 0; allowed: above 0"),
    "enrolment_timeout": (
        lambda: Network(enrolment_timeout=math.nan),
        "network.enrolment_timeout: nan; allowed: above 0",
    ),
    "min_clients": (
        lambda: Network(min_clients=0),
        "network.min_clients: 0; allowed: whole numbers from 1",
    ),
    "half a client": (lambda: Network(min_clients=1.5), "network.min_clients: 1.5; allowed: whole"),
    "max_rows": (lambda: Network(max_rows=-1), "network.max_rows: -1; allowed: whole numbers"),
    "max_share": (lambda: Network(max_share=0.0), "network.max_share: 0.0; allowed: above 0"),
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
    assert Network(timeout=math.inf, min_clients=np.int64(3)).min_clients == 3
    assert Member("a", KEY, importance=1).public_key() == KEY
    assert Network(classes=("no", "yes")).class_count == 2


def test_keys_of_earlier_versions_are_still_read(tmp_path):
    names = [key.partition(".")[2] for key in RENAMED]
    assert {"patience", "wait", "strikes"} < set(names)
    old = {name: 2 + i for i, name in enumerate(names)}
    network = load({"network": old}).network
    for key, now in RENAMED.items():
        assert getattr(network, now.partition(".")[2]) == old[key.partition(".")[2]]
    file = tmp_path / "old.toml"
    file.write_text("[network]\npatience = 7\n[sweep]\n'network.most_share' = [1, 2]\n")
    table = load_table(file)
    assert table["network"] == {"timeout": 7}
    assert override(table, [("network.timeout", "9")])["network"] == {"timeout": 9}
    assert override(table, [("network.patience", "9")])["network"] == {"timeout": 9}
    assert override({"network": {"patience": 7}}, [("network.timeout", "9")])["network"] == {
        "timeout": 9
    }
    shares = [one.chosen.network.max_share for one in plan_sweep(table, None).cells]
    assert shares == [1, 2]
    check_terms("[network]\npatience = 7", "[network]\ntimeout = 7")  # terms of a federation


@pytest.mark.parametrize(
    "give",
    [
        lambda both: load({"network": dict(both)}),
        lambda both: override({}, [(f"network.{key}", str(value)) for key, value in both]),
        lambda both: plan_sweep({}, {f"network.{key}": [value] for key, value in both}),
    ],
)
def test_both_names_of_a_key_are_refused(give):
    message = "network.most_share: an earlier name of network.max_share, also given; give one"
    with pytest.raises(muster.MusterError, match=f"^{re.escape(message)}$"):
        give([("max_share", 1.0), ("most_share", 2.0)])

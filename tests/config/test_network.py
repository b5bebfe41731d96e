"""The terms of a federation over a network: bad ones are one line that names the field."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import muster
from muster.config.dotted_keys import RENAMED, override
from muster.config.experiment import load, load_table
from muster.config.network import Member, Network, add_parties, build_committee, check_members
from muster.flower.terms import check_terms
from muster.privacy.masks import PublicSumKey, SumKey
from muster.study.sweep import plan_sweep

KEY = "ecdsa-sha2-nistp384 AAAA"
SUM_KEYS = tuple(SumKey.generate().public.to_text() for _ in range(4))
NO_SECRET = PublicSumKey(bytes(32), bytes(32)).to_text()  # every secret with it is 0


def clinics(names):
    """Priority clients of these names, each with a key for sums."""
    return tuple(
        Member(name, KEY, priority=True, sum_key=key)
        for name, key in zip(names, SUM_KEYS, strict=False)
    )


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
    "no key for sums there": (
        lambda: Member("a", KEY, sum_key="nowhere.agg.pub").public_sum_key(),
        "clients.a.sum_key: nowhere.agg.pub cannot be read",
    ),
    "no key for sums": (
        lambda: add_parties(Network(), (Member("a", KEY, priority=True),), ()),
        "clients.a.sum_key: missing; secure sums need every client's NAME.agg.pub",
    ),
    "a key for sums that is none": (
        lambda: add_parties(Network(), (Member("a", KEY, sum_key="muster-sum-1 AAAA"),), ()),
        "clients.a.sum_key: not a line 'muster-sum-1 ...'; make keys with `muster keys`",
    ),
    "a key for sums with which nobody shares a secret": (
        lambda: add_parties(Network(), (Member("a", KEY, sum_key=NO_SECRET),), ("a",)),
        f"key '{NO_SECRET}': no secret can be shared with it; make keys with `muster keys`",
    ),
    "a committee of strangers": (
        lambda: add_parties(Network(), clinics("ab"), ("c",)),
        "unknown client in privacy.committee 'c'; known: a, b",
    ),
    "terms with a key that is none": (
        lambda: build_committee(Network(sum_keys=("x",)), ()),
        "network.sum_keys[0]: not a line 'muster-sum-1 ...'",
    ),
    "terms with a small committee": (
        lambda: build_committee(Network(sum_keys=SUM_KEYS, sum_owners=(0, 1, 2, 3)), ("0", "1")),
        "privacy.committee: 2 clients of 2 owners; name 3 or more, each of another owner",
    ),
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


def test_the_parties_of_sums_are_numbers_and_keys():
    members = clinics("abcd")
    named, committee = add_parties(Network(), members, ("d", "b", "a"))
    assert named.sum_keys == SUM_KEYS
    assert named.sum_owners == (0, 1, 2, 3)
    assert named.sum_roles == (1, 1, 1, 1)
    assert named.sum_priority == (0, 1, 2, 3)
    assert committee == ("3", "1", "0")
    assert add_parties(Network(), members, ())[1] == ("0", "1", "2")
    shared = [replace(m, owner="trust" if m.name in "ab" else "") for m in members]
    other, chosen = add_parties(Network(), shared, ())
    assert (other.sum_owners, chosen) == ((0, 0, 1, 2), ("0", "2", "3"))
    few = [replace(m, priority=m.name in "ab") for m in members]
    assert add_parties(Network(), few, ())[1] == ("0", "1")  # refused when it is built
    built = build_committee(named, committee)
    assert built.members == (3, 1, 0)
    assert [key.to_text() for key in built.keys] == list(SUM_KEYS)


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

"""Secure sums: equal to the plain sum, and closed to servers, members and clients that cheat."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from muster.base.errors import MusterError
from muster.privacy.committee import (
    ENTRY,
    Committee,
    JoinerRecord,
    MemberRecord,
    answer_list,
    answer_offer,
    check_groups,
    check_vector,
    read_groups,
    unmask,
    write_groups,
)
from muster.privacy.fixed_point import add, centre, encode
from muster.privacy.masks import Attempt, SumKey, bind_pair, derive_mask

KEYS = [SumKey.generate() for _ in range(9)]
SIZE = 13
CLINIC = tuple("aabbccdef")  # the owner of each
COMMITTEE = Committee(tuple(key.public for key in KEYS), CLINIC, (0, 2, 4))


def attempt(number=7, round=3, run=b"r" * 32, offer=b"o" * 32) -> Attempt:
    return Attempt(run, round, number, offer)


def silent(shape):
    return np.zeros(shape, np.uint32)


def draw(n=9, seed=0, size=SIZE):
    return np.random.default_rng(seed).integers(0, 2**32, (n, size), dtype=np.uint32)


def join(clients, values, at=None, committee=COMMITTEE):
    """What these clients answer, and the entries that the server makes of it."""
    at = at or attempt()
    answers = {
        k: answer_offer(committee, KEYS[k], k, at, x, None)
        for k, x in zip(clients, values, strict=True)
    }
    return answers, {k: check_vector(committee, at, k, a) for k, a in answers.items()}


def ask(groups, at=None, committee=COMMITTEE, noise=silent, size=SIZE, group_of=None):
    at = at or attempt()
    return [
        answer_list(committee, KEYS[j], j, at, groups, size, noise, None, group_of).values
        for j in committee.members
    ]


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, 8), min_size=6), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_the_sum_is_the_plain_sum_exactly(clients, seed, size):
    clients = sorted(clients)
    values = draw(len(clients), seed, size)
    answers, entries = join(clients, values)
    group = tuple(entries[k] for k in clients)
    vectors = {k: a.values for k, a in answers.items()}
    (total,) = unmask((group,), vectors, ask((group,), size=size))
    assert total.tolist() == (values.astype(object).sum(0) % 2**32).tolist()


def test_groups_are_summed_each_by_itself():
    values = draw()
    answers, entries = join(range(9), values)
    parts = ((0, 2, 4, 6), (1, 3, 5, 7, 8))
    groups = tuple(tuple(entries[k] for k in part) for part in parts)
    vectors = {k: a.values for k, a in answers.items()}
    given_ = ask(groups, group_of=dict.fromkeys(parts[1], 1))
    for total, part in zip(unmask(groups, vectors, given_), parts, strict=True):
        assert np.array_equal(total, add(values[list(part)]))


def test_extremes_that_add_up_beyond_a_word_come_back_centred():
    most = np.array([[1.0], [-1.0]])
    up, down = encode(most, 1.0, (2**31 - 1) // 10)
    for x, sign in ((up, 1), (down, -1)):
        values = np.repeat(x[None], 9, 0)
        answers, entries = join(range(9), values)
        group = tuple(entries.values())
        vectors = {k: a.values for k, a in answers.items()}
        (total,) = unmask((group,), vectors, ask((group,), size=1))
        assert centre(total)[0] == 9 * sign * int(up[0])


def test_clients_that_failed_are_simply_not_in_the_list():
    values = draw()
    answers, entries = join(range(9), values)
    group = tuple(entries[k] for k in (1, 3, 5, 8))
    vectors = {k: a.values for k, a in answers.items()}
    (total,) = unmask((group,), vectors, ask((group,)))
    assert np.array_equal(total, add(values[[1, 3, 5, 8]]))


def test_without_one_member_the_sum_is_hidden():
    values = np.zeros((9, 50_000), np.uint32)
    answers, entries = join(range(9), values)
    group = tuple(entries.values())
    vectors = {k: a.values for k, a in answers.items()}
    given_ = ask((group,), size=50_000)
    for two in combinations(given_, 2):
        (total,) = unmask((group,), vectors, two)
        assert stats.kstest(total / 2.0**32, "uniform").pvalue > 1e-6
    (total,) = unmask((group,), vectors, given_)
    assert not total.any()


def test_a_members_own_vector_is_hidden_from_all_other_members_together():
    """They know every mask but the one that it has with itself."""
    x = np.zeros(50_000, np.uint32)
    answer = answer_offer(COMMITTEE, KEYS[0], 0, attempt(), x, None)
    rest = answer.values.copy()
    for j in (2, 4):
        pair = bind_pair(attempt(), answer.nonce, KEYS[0].public, KEYS[j].public)
        rest -= derive_mask(KEYS[j], KEYS[0].public, pair, len(x))
    assert stats.kstest(rest / 2.0**32, "uniform").pvalue > 1e-6


def test_noise_of_every_member_is_in_the_sum():
    values, shares = draw(), iter(draw(3, seed=1))
    kept = []

    def noise(shape):
        kept.append(next(shares))
        return kept[-1][None]

    answers, entries = join(range(9), values)
    group = tuple(entries.values())
    vectors = {k: a.values for k, a in answers.items()}
    (total,) = unmask((group,), vectors, ask((group,), noise=noise))
    assert np.array_equal(total, add(values) + add(np.stack(kept)))


# A joiner


def test_a_joiner_repeats_its_answer_and_gives_no_other():
    x, other = draw(2)
    first = answer_offer(COMMITTEE, KEYS[5], 5, attempt(), x, None)
    again = answer_offer(COMMITTEE, KEYS[5], 5, attempt(), other, first)
    assert again is first


@pytest.mark.parametrize(
    "asked",
    [attempt(6), attempt(7, round=4), attempt(7, run=b"s" * 32), attempt(7, offer=b"p" * 32),
     attempt(6, run=b"s" * 32), attempt(0, round=9)],
    ids=["earlier", "other round", "other run", "other model", "earlier of another run", "first"],
)  # fmt: skip
def test_replayed_attempts_are_refused_by_joiners_and_members(asked):
    x = draw(1)[0]
    before = answer_offer(COMMITTEE, KEYS[5], 5, attempt(), x, None)
    with pytest.raises(MusterError, match="is not newer than 7 of round 3, which was answered"):
        answer_offer(COMMITTEE, KEYS[5], 5, asked, x, before)
    _, entries = join(range(9), draw())
    group = tuple(entries.values())
    record = answer_list(COMMITTEE, KEYS[0], 0, attempt(), (group,), SIZE, silent, None)
    with pytest.raises(MusterError, match="is not newer"):
        answer_list(COMMITTEE, KEYS[0], 0, asked, (group,), SIZE, silent, record)


def test_a_joiner_that_lost_its_records_draws_other_masks():
    x = draw(1)[0]
    one, two = (answer_offer(COMMITTEE, KEYS[5], 5, attempt(), x, None) for _ in range(2))
    assert one.nonce != two.nonce
    assert not np.any(one.values == two.values)


def test_another_attempt_draws_other_masks():
    x = draw(1)[0]
    first = answer_offer(COMMITTEE, KEYS[5], 5, attempt(7), x, None)
    following = answer_offer(COMMITTEE, KEYS[5], 5, attempt(8), x, first)
    assert not np.any(first.values == following.values)


def test_nobody_acts_with_a_key_that_was_not_agreed_on():
    with pytest.raises(MusterError, match="another key for client 5 than this node's"):
        answer_offer(COMMITTEE, KEYS[6], 5, attempt(), draw(1)[0], None)
    with pytest.raises(MusterError, match="another key for client 99"):
        answer_offer(COMMITTEE, KEYS[6], 99, attempt(), draw(1)[0], None)


# A member


def test_a_member_answers_one_list_of_an_attempt():
    _, entries = join(range(9), draw())
    groups = (tuple(entries.values()),)
    noisy = iter(draw(2, seed=3)[:, None])
    args = (COMMITTEE, KEYS[0], 0, attempt())
    record = answer_list(*args, groups, SIZE, lambda shape: next(noisy), None)
    saved = MemberRecord.from_bytes(record.to_bytes())  # it was restarted
    again = answer_list(*args, groups, SIZE, lambda shape: next(noisy), saved)
    assert np.array_equal(again.values, record.values)  # with the same noise
    for other in ((groups[0][:-1],), (groups[0][::-1],), (groups[0][:4], groups[0][4:])):
        with pytest.raises(MusterError, match="was answered for another list; nothing was sent"):
            answer_list(*args, other, SIZE, silent, saved)


def change(entry, **fields):
    return replace(entry, **fields)


def lists():
    """Lists that a server could gain by, and what a member says to them."""
    _, entries = join(range(9), draw())
    e = tuple(entries.values())
    _, earlier = join(range(9), draw(), attempt(6))
    _, model = join(range(9), draw(), attempt(7, offer=b"p" * 32))
    return {
        "empty": ((), "is empty"),
        "a tiny group": ((e[:2],), "has a group of 2, and the least is 3"),
        "a tiny group besides": ((e[:5], e[5:6]), "has a group of 1"),
        "an empty group": ((e[:5], ()), "has a group of 0"),
        "a client twice": (((*e, e[3]),), "names a client twice"),
        "a client in two groups": ((e[:5], e[4:]), "names a client twice"),
        "one owner": ((e[2:4] + e[:1],), "fewer than 2 other owners"),
        "its own and another owner": ((e[:4],), "fewer than 2 other owners"),
        "a forged hash": (((*e[:8], change(e[8], hash=b"h" * 32)),), "signature of client 8"),
        "a forged nonce": (((*e[:8], change(e[8], nonce=b"n" * 32)),), "signature of client 8"),
        "a forged signature": (((*e[:8], change(e[8], signature=bytes(64))),), "of client 8"),
        "someone else's": (((*e[:8], change(e[7], client=8)),), "signature of client 8"),
        "nobody of the roster": (((*e, change(e[7], client=9)),), "signature of client 9"),
        "an earlier attempt's": (((*e[:8], earlier[8]),), "signature of client 8"),
        "an answer to another model": (((*e[:8], model[8]),), "signature of client 8"),
    }


@pytest.mark.parametrize("case", list(lists()))
def test_a_member_refuses_lists_that_single_someone_out(case):
    groups, why = lists()[case]
    with pytest.raises(MusterError, match=f"^secure sum: the server's list .*{why}"):
        answer_list(COMMITTEE, KEYS[0], 0, attempt(), groups, SIZE, silent, None)


def test_a_list_that_one_member_may_answer_another_may_not():
    _, entries = join(range(9), draw())
    group = tuple(entries[k] for k in (0, 1, 2, 6))  # a, a, b, d
    check_groups(COMMITTEE, 4, attempt(), (group,))  # whose owner is c
    check_groups(COMMITTEE, 0, attempt(), (group,))
    with pytest.raises(MusterError, match="fewer than 2 other owners"):
        check_groups(COMMITTEE, 0, attempt(), (tuple(entries[k] for k in (0, 1, 2)),))


DEALT = {0: 0, 2: 0, 4: 0, 1: 1, 3: 1, 5: 1, 6: 2, 7: 2, 8: 2}
SOUND = ((0, 2, 4), (1, 3, 5), (6, 7, 8))


@pytest.mark.parametrize(
    ("parts", "group_of"),
    [
        (((0, 2, 4), (1, 3, 8), (5, 6, 7)), DEALT),
        (((0, 2, 4), (1, 3, 5, 6, 7, 8)), DEALT),
        (((0, 2, 4, 8), (1, 3, 5)), DEALT),
        (((0, 2, 4), (6, 7, 8), (1, 3, 5)), DEALT),
        (((0, 2, 4, 6), (1, 3, 5, 7, 8)), {}),
    ],
    ids=["swapped", "together", "one moved", "in another order", "where there is one group"],
)
def test_a_member_refuses_groups_that_the_agreed_draw_did_not_deal(parts, group_of):
    """A server could put its target alone with clients of its own."""
    _, entries = join(range(9), draw())
    groups = tuple(tuple(entries[k] for k in part) for part in parts)
    with pytest.raises(MusterError, match="list has other groups than the agreed seed deals in"):
        check_groups(COMMITTEE, 0, attempt(), groups, group_of)


@pytest.mark.parametrize("left_out", [None, 0, 1, 2])
def test_a_member_accepts_groups_as_dealt_and_without_one_of_too_few(left_out):
    _, entries = join(range(9), draw())
    parts = [part for g, part in enumerate(SOUND) if g != left_out]
    groups = tuple(tuple(entries[k] for k in part) for part in parts)
    check_groups(COMMITTEE, 0, attempt(), groups, DEALT)


def test_only_members_answer_lists():
    _, entries = join(range(9), draw())
    with pytest.raises(MusterError, match="came to a client that is not in the committee"):
        answer_list(COMMITTEE, KEYS[1], 1, attempt(), (tuple(entries.values()),), 5, silent, None)


def test_members_with_different_lists_give_the_server_nothing():
    """Each answers one list; masks that only some of them take off stay on."""
    values = np.zeros((9, 50_000), np.uint32)
    answers, entries = join(range(9), values)
    full, fewer = tuple(entries.values()), tuple(entries.values())[:8]
    given_ = [
        answer_list(COMMITTEE, KEYS[j], j, attempt(), (g,), 50_000, silent, None).values
        for j, g in ((0, full), (2, fewer), (4, full))
    ]
    for group in (full, fewer):
        (total,) = unmask((group,), {k: a.values for k, a in answers.items()}, given_)
        assert stats.kstest(total / 2.0**32, "uniform").pvalue > 1e-6


# The server


def test_the_server_leaves_out_answers_with_a_wrong_signature():
    x = draw(1)[0]
    sound = answer_offer(COMMITTEE, KEYS[5], 5, attempt(), x, None)
    assert check_vector(COMMITTEE, attempt(), 5, sound) is not None
    assert check_vector(COMMITTEE, attempt(), 6, sound) is None
    assert check_vector(COMMITTEE, attempt(8), 5, sound) is None
    assert check_vector(COMMITTEE, attempt(), 5, replace(sound, values=sound.values + 1)) is None
    assert check_vector(COMMITTEE, attempt(), 5, replace(sound, nonce=bytes(32))) is None
    assert check_vector(COMMITTEE, attempt(), 10**9, sound) is None


# What travels, and what is written down


def test_lists_and_records_come_back_from_their_bytes():
    answers, entries = join(range(9), draw())
    groups = (tuple(entries.values())[:4], tuple(entries.values())[4:])
    assert read_groups(write_groups(groups), 9) == groups
    back = JoinerRecord.from_bytes(answers[3].to_bytes())
    assert back.attempt == answers[3].attempt
    assert (back.nonce, back.signature) == (answers[3].nonce, answers[3].signature)
    assert np.array_equal(back.values, answers[3].values)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=4 * ENTRY.itemsize))
def test_any_bytes_are_a_list_or_refused(data):
    try:
        groups = read_groups(data, 3)
    except MusterError:
        return
    assert write_groups(groups) == data
    if groups:
        with pytest.raises(MusterError):
            check_groups(COMMITTEE, 0, attempt(), groups)


def test_a_list_longer_than_the_roster_is_refused_unread():
    with pytest.raises(MusterError, match="a list of 1360 bytes"):
        read_groups(bytes(10 * ENTRY.itemsize), 9)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"members": (0, 2)}, "2 clients of 2 owners; name 3 or more"),
        ({"members": (0, 1, 2)}, "3 clients of 2 owners; name 3 or more, each of another owner"),
        ({"members": (0, 0, 2, 4)}, "4 clients of 3 owners"),
        ({"members": (0, 2, 99)}, "3 clients of 2 owners"),
        ({"keys": tuple(KEYS[0].public for _ in KEYS)}, "clients share a key for secure sums"),
        (
            {
                "keys": (
                    *(key.public for key in KEYS[:8]),
                    replace(KEYS[8].public, agree=KEYS[1].public.agree),
                )
            },
            "clients share a key for secure sums",
        ),
    ],
)
def test_a_committee_that_protects_nobody_is_refused(fields, why):
    with pytest.raises(MusterError, match=why):
        replace(COMMITTEE, **fields)

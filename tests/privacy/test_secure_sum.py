"""The server's side of a secure sum: who fails, at each stage, and what it ends in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from muster.privacy.fixed_point import add, choose_scale, encode
from muster.privacy.masks import Attempt
from muster.privacy.secure_sum import SimulatedParties, hash_offer, is_possible, sum_securely
from muster.protocol import Offer

SIZE, MEMBERS = 11, (0, 2, 5)


class Play:
    """Seven clients, of which some fail at a stage, and what the server wrote down."""

    def __init__(self, late=(), silent=(), forged=()):
        self.parties = SimulatedParties.create(7, MEMBERS)
        draw = np.random.default_rng(0)
        self.values = draw.integers(0, 2**32, (7, SIZE), dtype=np.uint32)
        self.late, self.silent, self.forged = set(late), list(silent), set(forged)
        self.charged, self.lines, self.lists, self.masked = 0, [], [], []

    def join(self, attempt):
        vectors = {k: x for k, x in enumerate(self.values) if k not in self.late}
        answers = self.parties.join(attempt, vectors)
        self.masked.append({k: a.values for k, a in answers.items()})
        return {
            k: replace(a, values=a.values + 1) if k in self.forged else a
            for k, a in answers.items()
        }

    def answer(self, attempt, groups):
        assert self.charged == 0, "without all answers nothing is released"
        self.lists.append(groups)
        silent = self.silent.pop(0) if self.silent else ()
        noise = lambda shape: np.zeros(shape, np.uint32)  # noqa: E731
        given = self.parties.answer(attempt, groups, SIZE, noise)
        return {j: a for j, a in given.items() if j not in silent}

    def charge(self):
        self.charged += 1

    def run(self, attempts=3):
        tries = (Attempt(b"r" * 32, 4, n, b"o" * 32) for n in range(10, 10 + attempts))
        return sum_securely(
            self.parties.committee, tries, self.join, self.answer, self.charge, self.lines.append
        )


def test_everyone_answers():
    play = Play()
    done = play.run()
    assert np.array_equal(done.sums[0], add(play.values))
    assert done.clients == tuple(range(7))
    assert (play.charged, play.lines) == (1, [])


@pytest.mark.parametrize("late", [(1,), (0,), (1, 3, 4, 6), (0, 2, 5)])
def test_clients_that_fail_before_they_answer_are_not_in_the_sum(late):
    play = Play(late=late)
    done = play.run()
    there = [k for k in range(7) if k not in late]
    assert done.clients == tuple(there)
    assert np.array_equal(done.sums[0], add(play.values[there]))


def test_a_client_whose_signature_is_wrong_is_left_out_and_named():
    play = Play(forged=(3,))
    done = play.run()
    assert done.clients == (0, 1, 2, 4, 5, 6)
    assert np.array_equal(done.sums[0], add(play.values[[0, 1, 2, 4, 5, 6]]))
    assert play.lines == ["client 3: its signature of a masked vector is wrong; it does not count"]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_fails_ends_the_attempt_and_the_next_has_other_masks(member):
    play = Play(silent=[(member,)])
    done = play.run()
    assert np.array_equal(done.sums[0], add(play.values))
    assert play.charged == 1  # an attempt that lacks one answer shows nothing
    assert play.lines == [f"secure sum: no answer of the committee's client {member}; no sum"]
    for k in range(7):
        assert not np.any(play.masked[0][k] == play.masked[1][k])


def test_a_member_that_stays_away_ends_every_attempt():
    play = Play(silent=[(2,)] * 3)
    assert play.run() is None
    assert play.charged == 0


def test_sums_of_honest_clients_are_possible_and_noise_of_32_bits_is_not():
    draw, scale, deviation = np.random.default_rng(0), choose_scale(50, 3.0), 3.0
    most = encode(np.tile(np.eye(1, 40), (50, 1)), 1.0, scale)  # all the same way, at the clip
    for _ in range(200):
        noise = np.round(draw.normal(0, deviation * scale, 40)).astype(np.int64).astype(np.uint32)
        assert is_possible(add(most) + noise, 50, scale, deviation * scale)
    assert is_possible(np.zeros(40, np.uint32), 50, scale, deviation * scale)
    for _ in range(20):
        spoilt = draw.integers(0, 2**32, 40, dtype=np.uint32)
        assert not is_possible(spoilt, 50, scale, deviation * scale)


def test_too_few_answers_are_no_group_and_cost_nothing():
    play = Play(late=(0, 1, 2, 3, 4))
    assert play.run() is None
    assert (play.charged, len(play.lists)) == (0, 0)
    assert play.lines[0] == "secure sum: 2 answered, and a group has 3; no sum"


OFFER = Offer(
    0, 1, 9, {"w": torch.ones(2)}, 0.5, 0.5, 0.1, 0.2, 7, server={"c": {"w": torch.ones(2)}}
)
OTHERS = {
    "round": 2,
    "rounds": 8,
    "population": 6,
    "loss": 0.4,
    "score": 0.4,
    "eps": 0.2,
    "lr": 0.1,
    "model": {"w": torch.tensor([1.0, 2.0])},
    "server": {"c": {"w": torch.tensor([1.0, 2.0])}},
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_answer_is_to_everything_in_the_offer_that_decides_it(name):
    """Where one thing could differ, a server could have the others abstain."""
    assert hash_offer(OFFER) == hash_offer(replace(OFFER, seed=OFFER.seed))
    assert hash_offer(OFFER) != hash_offer(replace(OFFER, **{name: OTHERS[name]}))

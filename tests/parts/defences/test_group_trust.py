"""Groups judged by their released sums, in a world of a few lines."""

import numpy as np
import pytest

from muster.parts.defences.group_trust import audit_groups, bound_sums
from muster.parts.defences.trust import Audit
from muster.privacy.groups import deal_groups
from muster.protocol import Roster

CLIENTS, PRIORITY, NUMBERS = 60, 12, 200


def play(liars, noise=0.0, groups=9, rounds=25, seed=0, **more):
    """Clients whose updates have a common direction, of which some send the opposite; return the
    clients that counted in the last round, and everyone's standing."""
    draw = np.random.default_rng(seed)
    priority = np.arange(CLIENTS) < PRIORITY
    who = Roster(np.arange(CLIENTS), priority, priority * 1.0, np.ones(CLIENTS))
    common = np.eye(NUMBERS)[0] * 0.5
    sign = np.where(np.isin(np.arange(CLIENTS), liars), -1.0, 1.0)[:, None]
    reference, standing = np.zeros(NUMBERS), np.zeros(CLIENTS)
    for t in range(rounds):
        own = common + draw.normal(size=(CLIENTS, NUMBERS)) / np.sqrt(NUMBERS)
        own = sign * own / np.linalg.norm(own, axis=1, keepdims=True)
        group = deal_groups(who, groups, seed, t, standing)
        sums = np.zeros((groups, NUMBERS))
        np.add.at(sums, group, own)
        sums += noise * draw.normal(size=sums.shape)
        weight = np.bincount(group).astype(float)
        everything = np.ones(groups, bool)
        for name, change in more.items():
            assert name == "change"
            change(sums, everything)
        found = audit_groups(
            Audit(), sums, weight, everything, 1.0, noise, group, reference, standing
        )
        reference, standing = found.reference, found.standing
    return found.factor[group] > 0, standing, found.factor


LIARS = np.arange(40, 55)  # 15 of the 48 outside


def test_whoever_lies_stands_out_and_does_not_count_in_the_end():
    counts, standing, _ = play(LIARS)
    honest = np.setdiff1d(np.arange(PRIORITY, CLIENTS), LIARS)
    assert np.quantile(standing[LIARS], 0.9) < 0 < np.quantile(standing[honest], 0.1)
    assert counts[LIARS].sum() <= 3 < len(LIARS) / 4
    assert counts[honest].mean() > 0.8
    assert counts[:PRIORITY].all()


def test_without_liars_nearly_everyone_counts():
    assert play([])[0].mean() > 0.9


def test_noise_that_hides_clients_hides_liars():
    """The sums of a group have a fixed noise: what one client adds drowns in it."""
    _, clear, _ = play(LIARS, noise=0.5)
    _, hidden, _ = play(LIARS, noise=20.0)

    def separation(standing):
        honest = np.setdiff1d(np.arange(PRIORITY, CLIENTS), LIARS)
        gap = standing[honest].mean() - standing[LIARS].mean()
        return gap / standing[PRIORITY:].std()

    assert separation(clear) > 1.5
    assert abs(separation(hidden)) < 1.0


def test_a_sum_longer_than_the_priority_clients_is_shortened():
    sums = np.array([[3.0, 4.0], [0.0, 30.0], [0.0, 1.0]])
    weight = np.array([5.0, 10.0, 2.0])
    np.testing.assert_allclose(bound_sums(1.5, sums, weight, 0.0), [1.0, 0.5, 1.0])
    # Noise lengthens everything: only what it cannot explain is cut.
    assert (bound_sums(1.5, sums, weight, 15.0) == 1.0).all()


def test_sums_that_nobody_can_have_do_not_count_and_cost_standing():
    def spoil(sums, possible):
        sums[1], possible[1] = 1e9, False

    counts, standing, factor = play([], rounds=1, change=spoil)
    assert factor[1] == 0 < factor[0]
    assert not counts.all()
    assert (standing[~counts] < 0).all()


@pytest.mark.parametrize("nobody", [np.zeros(3), np.array([5.0, 0.0, 0.0])])
def test_rounds_in_which_nobody_else_may_contribute_judge_nobody(nobody):
    sums, group = np.ones((3, 4)), np.array([0, 0, 1, 1, 2, 2])
    found = audit_groups(
        Audit(), sums, nobody, np.ones(3, bool), 1.0, 0.1, group, np.zeros(4), np.zeros(6)
    )
    assert found.factor.tolist() == [1.0, 0.0, 0.0]
    assert not found.standing[2:].any()

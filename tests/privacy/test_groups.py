"""Groups of a private round: dealt by public numbers, again in every round."""

import numpy as np
import pytest

from muster.privacy.groups import deal_everyone, deal_groups
from muster.protocol import Roster


def roster(others=20, priority=4):
    first = np.arange(others + priority) < priority
    return Roster(np.arange(len(first)), first, first * 1.0, np.ones(len(first)))


def deal(who, groups, t=0, standing=None):
    standing = np.zeros(len(who)) if standing is None else standing
    return deal_groups(who, groups, 3, t, standing)


@pytest.mark.parametrize(("groups", "sizes"), [(1, [24]), (2, [4, 20]), (4, [4, 7, 7, 6])])
def test_priority_clients_are_one_group_and_the_others_are_of_the_same_size(groups, sizes):
    assert sorted(np.bincount(deal(roster(), groups)).tolist()) == sorted(sizes)
    if groups > 1:
        assert (deal(roster(), groups)[:4] == 0).all()
        assert (deal(roster(), groups)[4:] > 0).all()


def test_no_group_is_smaller_than_a_committee_allows():
    assert np.bincount(deal(roster(others=7), 5)).tolist() == [4, 4, 3]
    assert np.bincount(deal(roster(others=2), 5)).tolist() == [6]


def test_everyone_can_repeat_the_draw_and_another_round_has_another():
    first = deal(roster(), 4)
    np.testing.assert_array_equal(first, deal(roster(), 4))
    assert (first != deal(roster(), 4, t=1)).any()
    together = np.zeros((24, 24))
    for t in range(300):
        group = deal(roster(), 4, t)
        together += group[:, None] == group
    others = together[4:, 4:][~np.eye(20, dtype=bool)] / 300
    assert abs(others.mean() - 6 / 19) < 0.02  # everyone meets everyone as often
    assert others.std() < 0.04


def test_clients_whose_groups_did_badly_sit_together():
    standing = np.where(np.arange(24) < 18, 0.4, -0.6)
    group = deal(roster(), 4, standing=standing)
    assert set(group[18:]) == {1}
    mixed = [deal(roster(), 4, t, 0.1 * np.arange(24)) for t in range(20)]
    assert len({tuple(group) for group in mixed}) > 5


def test_a_draw_of_everyone_is_of_agreed_numbers_alone():
    who = roster()
    dealt = deal_everyone(who.priority, who.ids, 4, 3, t=5)
    np.testing.assert_array_equal(dealt, deal(who, 4, t=5))
    assert sorted(np.bincount(dealt)) == [4, 6, 7, 7]
    assert (dealt != deal_everyone(who.priority, who.ids, 4, 4, t=5)).any()  # of another seed
    assert not deal_everyone(who.priority, who.ids, 1, 3, t=5).any()

"""From gains to verdicts: Holm over the table, the four verdicts, what it would take to tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from muster.report.intervals import SampleMoments
from muster.study.advise import LEAST, WEIGHT, Trials, decide, find_need, holm_intervals


def trials(gains, alone, rows=(100, 100, 100), partners=None, ratio=0.0, by_row=True):
    n = len(alone)
    found = {cell: SampleMoments.of(values) for cell, values in gains.items()}
    return Trials(
        np.array(alone, float), found, np.full(n, ratio), rows[:n], partners or {}, by_row
    )


def sample(mean, deviation=0.1, n=100, seed=0):
    """Values of exactly this mean and deviation."""
    z = np.random.default_rng(seed).normal(size=n)
    return mean + deviation * (z - z.mean()) / z.std(ddof=1)


def weighted_holm(p, weight):
    """Holm (1979), section 4: the smallest p / w first, each against 5 % / the weights left."""
    left, rejected = sum(weight.values()), set()
    for cell in sorted(p, key=lambda cell: p[cell] / weight[cell]):
        if p[cell] / weight[cell] > 0.05 / left:
            break
        rejected.add(cell)
        left -= weight[cell]
    return rejected


@pytest.mark.parametrize("first", [(), ("way 0", "way 2")])
@pytest.mark.parametrize("seed", range(20))
def test_an_interval_excludes_zero_exactly_if_holm_rejects(seed, first):
    draw = np.random.default_rng(seed)
    gains = {
        (f"way {i}", k): draw.normal(draw.choice([-1.0, 0.0, 0.5, 1.0]), 1.0, 12)
        for i in range(4)
        for k in range(3)
    }
    moments = {cell: SampleMoments.of(values) for cell, values in gains.items()}
    found = holm_intervals(moments, np.zeros(3), frozenset(first))
    weight = {cell: WEIGHT if cell[0] in first else 1.0 for cell in gains}
    for side in ("greater", "less"):
        p = {c: stats.ttest_1samp(v, 0.0, alternative=side).pvalue for c, v in gains.items()}
        clear = {
            cell
            for cell, gain in found.items()
            if gain.excludes_zero and (gain.mean > 0) == (side == "greater")
        }
        assert clear == weighted_holm(p, weight)
    assert all(found[cell].mean == pytest.approx(gains[cell].mean()) for cell in gains)


def test_the_first_interval_has_its_share_of_the_level_and_the_correction_of_its_client():
    gains = {("a", 0): sample(1.0, n=16), ("b", 1): sample(0.001, n=16)}
    moments = {cell: SampleMoments.of(values) for cell, values in gains.items()}
    ratio = np.array([0.5, 0.0])
    found = holm_intervals(moments, ratio)
    half = stats.t.ppf(1 - 0.05 / 2, 15) * 0.1 * np.sqrt(1 / 16 + 0.5)
    assert found["a", 0].half == pytest.approx(half)
    assert found["b", 1].half == pytest.approx(stats.t.ppf(0.95, 15) * 0.1 / 4)
    found = holm_intervals(moments, ratio, frozenset(["b"]))
    share = 1 / (1 + WEIGHT)
    half = stats.t.ppf(1 - 0.05 * share, 15) * 0.1 * np.sqrt(1 / 16 + 0.5)
    assert found["a", 0].half == pytest.approx(half)


def test_a_way_that_is_asked_about_first_is_not_hidden_by_many_others():
    gains = {("with everyone", 0): sample(0.06, 0.2)}
    many = {(f"w{i}", 0): sample(0.0, 0.2, seed=i) for i in range(1, 60)}
    plain = trials(gains | many, [1.0])
    ((found,), _) = decide(plain)
    assert found.verdict == "cannot tell"
    ((found,), _) = decide(replace(plain, first=frozenset(["with everyone"])))
    assert (found.verdict, found.way) == ("join", "with everyone")


def test_each_verdict():
    gains = {
        ("with b", 0): sample(0.2),
        ("with a", 1): sample(0.0, 0.05),
        ("with everyone", 0): sample(0.1),
        ("with everyone", 1): sample(-0.1),
        ("with everyone", 2): sample(-0.3),
        ("with everyone", 3): sample(0.06, 1.0),
    }
    verdicts, _ = decide(trials(gains, [1.0] * 4, (100,) * 4, {"with a": 0, "with b": 1}))
    assert [v.verdict for v in verdicts] == ["join", "help", "stay out", "cannot tell"]
    assert verdicts[0].way == "with b"
    assert verdicts[0].gain.mean - verdicts[0].gain.half > 0
    assert verdicts[1].helps == (0,)
    assert verdicts[1].none, "its gains are shown to be small"
    assert verdicts[3].rows > 100


def test_a_gain_that_is_clear_but_does_not_count_is_no_reason_to_join():
    for size, verdict in ((0.9 * LEAST, "stay out"), (1.1 * LEAST, "join")):
        ((found,), _) = decide(trials({("with everyone", 0): sample(size, 0.001)}, [1.0]))
        assert found.gain.excludes_zero
        assert found.verdict == verdict
    # Five per cent of what it loses alone, whatever the scale of the loss.
    ((found,), _) = decide(trials({("with everyone", 0): sample(6.0, 0.1)}, [100.0]))
    assert found.verdict == "join"


def test_one_open_way_keeps_a_client_from_staying_out():
    gains = {("a", 0): sample(-0.5), ("b", 0): sample(0.0, 2.0)}
    ((found,), _) = decide(trials(gains, [1.0]))
    assert found.verdict == "cannot tell"


def test_ways_that_are_all_the_same_as_alone_are_no_gain():
    ((found,), intervals) = decide(trials({("assist", 0): np.zeros(20)}, [1.0]))
    assert found.verdict == "stay out"
    assert intervals["assist", 0].half == 0


def test_of_a_client_with_one_class_nothing_is_concluded_and_nothing_tested():
    gains = {("with b", 0): sample(0.2), ("with a", 1): sample(0.2)}
    both = trials(gains, [1.0, 1.0], partners={"with a": 0, "with b": 1})
    verdicts, intervals = decide(replace(both, thin=frozenset([0])))
    assert [v.verdict for v in verdicts] == ["help", "join"], "it may still help others"
    assert set(intervals) == {("with a", 1)}
    verdicts, _ = decide(replace(both, partners={}, thin=frozenset([0])))
    assert verdicts[0].verdict == "cannot tell"


def test_without_any_way_there_is_no_verdict():
    ((found,), _) = decide(trials({}, [1.0]))
    assert (found.verdict, found.way) == ("cannot tell", "")


def test_more_comparisons_need_more_evidence():
    alone = {("a", 0): sample(0.06, 0.2)}
    ((found,), _) = decide(trials(alone, [1.0]))
    assert found.verdict == "join"
    many = {(f"w{i}", 0): sample(0.0, 0.2, seed=i) for i in range(1, 60)}
    ((found,), _) = decide(trials(alone | many, [1.0]))
    assert found.verdict == "cannot tell"


@pytest.mark.parametrize("more", [1.5, 4.0])
def test_the_need_makes_the_variance_that_much_smaller(more):
    seeds, rows = find_need(more, 10, 0.0, 100)
    assert (seeds, rows) == (np.ceil(10 * more), None)
    seeds, rows = find_need(more, 10, 0.01, 100)
    assert 1 / seeds + 0.01 <= (1 / 10 + 0.01) / more
    # Seeds that split the same rows again end at the ratio: then it takes rows.
    assert find_need(more, 10, 1.0, 100) == (None, 100 * more)
    assert find_need(float("inf"), 10, 0.0, 100) == (None, None)


def test_as_many_rows_as_needed_decide():
    gains = {("with everyone", 0): sample(0.1, 1.0, 100)}
    ((found,), _) = decide(trials(gains, [1.0]))
    assert found.verdict == "cannot tell"
    gains = {("with everyone", 0): sample(0.1, 1.0, found.rows)}
    ((found,), _) = decide(trials(gains, [1.0], (found.rows,)))
    assert found.verdict == "join"

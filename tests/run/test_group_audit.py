"""Groups as the unit of trust, in whole private runs."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

import muster
from muster import attacks, methods
from muster.parts.defences.group_trust import UNLIKE_GROUP, GroupAudit
from muster.privacy import Gaussian
from muster.run import contributors, group_audit
from muster.schedules import Constant

SOFTMAX = muster.models.Softmax()
LOCAL = muster.Local(steps=3, batch_size=16, lr=0.5)
ALIGN = {"epsilon": 99.0, "warmup": 0}


def play(fed=None, rounds=4, trust=True, attack=None, local=LOCAL, **privacy):
    fed = muster.data.digits(clients=30, priority=8) if fed is None else fed
    groups = {"groups": 4} if trust else {}
    privacy = {"clip": 0.5, "noise": 1e-6, "seeded": True, "loss": Constant(1.0)} | groups | privacy
    return muster.simulate(
        fed,
        methods.fedalign(trust=trust, **ALIGN),
        SOFTMAX,
        rounds=rounds,
        local=local,
        attack=attack,
        dtype="float64",
        evaluate_every=0,
        privacy=Gaussian(**privacy),
    )


def flat(run):
    return np.concatenate([np.ravel(w) for w in run.weights.values()])


def test_groups_with_trust_lose_less_to_liars_within_the_clip():
    """A quarter of the clients send the opposite of what they trained, as long as the clip."""
    fed = muster.data.digits(clients=60, priority=15, partition=muster.data.IID())
    liars = attacks.Liars(0.25, "outside", attacks.ScaleUpdate(0.25, -10.0), wins=False)

    def loss(**how):
        run = play(fed, rounds=12, **how)
        return run, run.final.filter("priority")["train_loss"].mean()

    _, honest = loss(trust=False)
    _, hit = loss(trust=False, attack=liars)
    judged, kept = loss(attack=liars, groups=8)
    alone, kept_honest = loss(groups=8)
    assert hit - honest > 0.15
    assert kept - honest < 0.6 * (hit - honest)
    assert kept_honest - honest < 0.2 * (hit - honest)
    lies = judged.final.filter("attacker")["client"]
    late = judged.clients.filter((pl.col("round") > 6) & ~pl.col("priority"))
    out = late.group_by(pl.col("client").is_in(lies.implode())).agg(pl.col("admitted").mean())
    share = dict(out.rows())
    assert share[True] < 0.3 < share[False]
    assert UNLIKE_GROUP in set(late["reason"])
    assert judged.rounds["refused"].max() > 0
    assert alone.clients.filter("priority")["admitted"].all()


def test_an_epsilon_is_the_same_however_many_groups_there_are():
    alone, groups = (play(trust=t, noise=2.0, seeded=False) for t in (False, True))
    for role in ("epsilon_objective", "epsilon_others"):
        assert groups.rounds[role].to_list() == alone.rounds[role].to_list()
    assert groups.rounds["releases"].to_list() == [1, 2, 3, 4]


def count_groups(monkeypatch, which):
    """Let these groups count, whatever their sums are."""

    def audit(settings, sums, *rest):
        *_, reference, standing = rest
        return GroupAudit(which(len(sums)) * 1.0, reference, standing)

    monkeypatch.setattr(group_audit, "audit_groups", audit)


def test_the_sum_of_groups_has_the_noise_of_all_of_them(monkeypatch):
    """With updates of almost 0 a step is noise: variance G z^2 C^2 / W^2."""
    count_groups(monkeypatch, np.ones)
    still = muster.Local(steps=1, batch_size=16, lr=1e-12)
    run = play(rounds=1, noise=2.0, seeded=False, local=still)
    assert stats.kstest(flat(run) / (np.sqrt(4) * 2.0 * 0.5 / 30), "norm").pvalue > 1e-4


def test_where_all_groups_count_their_sum_is_that_of_one(monkeypatch):
    one = play(trust=False)
    count_groups(monkeypatch, np.ones)
    np.testing.assert_allclose(flat(play()), flat(one), atol=1e-5)


def test_the_divisor_is_the_public_weight_of_the_groups_that_count(monkeypatch):
    """Only the priority clients count: the step is their mean, whatever the others send."""
    count_groups(monkeypatch, lambda groups: np.arange(groups) == 0)
    alone = muster.simulate(
        muster.data.digits(clients=30, priority=8),
        methods.fedavg_priority(),
        SOFTMAX,
        rounds=3,
        local=LOCAL,
        dtype="float64",
        evaluate_every=0,
        privacy=Gaussian(clip=0.5, noise=1e-6, seeded=True, denominator=8.0),
    )
    np.testing.assert_allclose(flat(play(rounds=3)), flat(alone), atol=1e-4)
    half = play(rounds=3, denominator=15.0)  # half of all: steps are twice as long
    assert np.linalg.norm(flat(half)) > 1.5 * np.linalg.norm(flat(alone))


def test_secure_groups_are_the_plain_ones_but_for_rounding(monkeypatch):
    """Of the draw alone: nobody's standing decides whom a member of the committee finds where."""
    real = group_audit.deal_groups

    def draw_alone(roster, groups, seed, t, standing):
        return real(roster, groups, seed, t, np.zeros_like(standing))

    by_standing = play()
    monkeypatch.setattr(group_audit, "deal_groups", draw_alone)
    plain = play()
    assert not np.array_equal(flat(plain), flat(by_standing))
    monkeypatch.setattr(contributors, "draw_vectors", lambda s, *rest: np.zeros(s, np.uint32))
    secure = play(secure=True)
    np.testing.assert_allclose(flat(secure), flat(plain), atol=1e-4)
    assert secure.clients["admitted"].to_list() == plain.clients["admitted"].to_list()


def test_a_run_with_groups_resumes_to_the_same_bits(tmp_path):
    whole = play(rounds=6, noise=0.3)

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    how = {
        "rounds": 6, "local": LOCAL, "dtype": "float64", "evaluate_every": 0,
        "privacy": Gaussian(clip=0.5, noise=0.3, seeded=True, loss=Constant(1.0), groups=4),
        "checkpoint": tmp_path,
    }  # fmt: skip
    fed, method = muster.data.digits(clients=30, priority=8), methods.fedalign(trust=True, **ALIGN)
    with pytest.raises(muster.Interrupted):
        muster.simulate(fed, method, SOFTMAX, on_round=stop, **how)
    rest = muster.simulate(fed, method, SOFTMAX, resume=True, **how)
    np.testing.assert_array_equal(flat(whole), flat(rest))


def test_a_released_loss_is_of_the_priority_clients_group():
    run = play(loss=None, noise=1e-4, smoothing=0.0)
    exact = run.clients.filter("priority").group_by("round").agg(pl.col("loss").mean())
    exact = exact.sort("round")["loss"].to_list()
    np.testing.assert_allclose(run.rounds["reference_loss"][1:], exact[:-1], atol=0.02)

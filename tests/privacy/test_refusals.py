from dataclasses import dataclass

import numpy as np
import pytest
import torch

import muster
from muster import methods, parts
from muster.privacy import Gaussian
from muster.privacy.refusals import find_privacy_warnings

SOFTMAX = muster.models.Softmax()


def build(method, privacy=None, **settings):
    privacy = privacy or Gaussian(1.0, noise=1.0)
    return muster.Job(method, SOFTMAX, rounds=10, privacy=privacy, **settings)


@pytest.mark.parametrize(
    "method",
    [
        methods.fedalign(),
        methods.fedalign(availability=0.5, straggler_period=3, prox=0.1),
        methods.fedavg(),
        methods.fedavg_priority(),
        methods.fedprox(),
        methods.fedavg(invite=parts.Sample(3)),
        methods.fedavg(invite=parts.Fraction(0.5)),
        methods.fedalign(invite=parts.Apart(1.0, 0.5)),
        methods.maxfl(),
        methods.ditto(),
        methods.perfedavg(),
        methods.pfedme(),
        muster.Method("adam", step=parts.AdaptiveMoments()),
        muster.Method("momentum", step=parts.Momentum()),
    ],
    ids=lambda m: m.name,
)
def test_what_is_one_sum_of_single_contributions_is_allowed(method):
    assert build(method).privacy is not None


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (
            methods.fedalign(trust=True),
            "trust cannot be private: an audit.*give privacy.groups.*or use trust = false",
        ),
        (methods.fedalign(epsilon="auto"), 'epsilon = "auto".*give a number'),
        (methods.assist(), "assist cannot be private: its weights are distances"),
        (methods.assist(evidence="crossfit"), "assist cannot be private"),
        (methods.fedda(), "fedda cannot be private"),
        (methods.fedfomo(), "fedfomo cannot be private"),
        (methods.interpolation(), "interpolation cannot be private"),
        (methods.qffl(), "it weighs clients by the losses they report.*maxfl"),
        (methods.afl(), "it weighs clients by the losses they report"),
        (methods.mwfed(), "effort ByWeight.*one client's steps"),
        (methods.scaffold(), "solver ControlVariates.*send 'change' next to their model"),
        (methods.local(), "nothing is shared; run it without privacy"),
        (muster.Method("m", step=parts.Median()), "step Median.*needs single replies"),
        (muster.Method("k", step=parts.Krum(1)), "step Krum.*needs single replies"),
        (muster.Method("e", step=parts.Estimate()), "step Estimate.*needs single replies"),
        (methods.power_of_choice(m=2, d=4), "invite PowerOfChoice.*depends on clients' rows"),
        (
            methods.fedalign(invite=parts.WithReplacement(3)),
            "invite WithReplacement.*depends on clients' rows",
        ),
        (methods.fedalign(criterion="accuracy"), 'criterion cannot be private.*protect = "others"'),
        (
            methods.fedalign(criterion="score", availability=0.5),
            "criterion cannot be private",
        ),
    ],
    ids=lambda m: getattr(m, "name", None),
)
def test_what_is_more_than_that_is_refused_with_the_reason(method, why):
    with pytest.raises(muster.MusterError, match=why):
        build(method)


def test_a_score_can_be_compared_where_priority_clients_forgo_protection():
    method = methods.fedalign(criterion="accuracy")
    assert build(method, Gaussian(1.0, noise=1.0, protect="others"))


def test_attacks_and_unknown_rules_are_refused():
    from muster.parts.threats import attacks, collusion

    for attack in (collusion.ALIE(0.2), attacks.Liars(0.2, then=collusion.Drift(0.2))):
        with pytest.raises(muster.MusterError, match=r"cannot be private: attackers see what"):
            build(methods.fedavg(), attack=attack)
    for attack in (attacks.LabelFlip(0.2), attacks.Liars(0.2)):
        assert build(methods.fedavg(), attack=attack)

    @dataclass(frozen=True)
    class Together(parts.Join):
        appraises = False

        def __call__(self, offer, roster, appraisal):
            return muster.Decision(np.full(len(roster), len(roster) > 2), np.full(len(roster), ""))

    with pytest.raises(muster.MusterError, match=r"join Together cannot be private.*per_client"):
        build(muster.Method("own", join=Together()))

    class Alone(Together):
        per_client = True

    assert build(muster.Method("own", join=Alone()))
    with pytest.raises(muster.MusterError, match="join Together"):
        build(muster.Method("own", join=parts.Available(0.5, then=Together())))


def test_groups_are_for_an_audit_and_it_needs_them():
    groups = Gaussian(1.0, noise=1.0, groups=3)
    job = build(methods.fedalign(trust=True), groups)
    with pytest.raises(muster.MusterError, match=r"privacy\.groups: 3, and nobody judges them"):
        build(methods.fedalign(), groups)
    sampled = methods.fedalign(trust=True, invite=parts.Sample(5))
    with pytest.raises(muster.MusterError, match=r'invite Sample: .*checks? it.*invite = "full"'):
        build(sampled, Gaussian(1.0, noise=1.0, groups=3, secure=True))
    for clients, priority, why in (
        (20, 20, "20 of them and 0 others; where clients check one another.*losses"),
        (20, 2, "there are 2 of them and 18 others"),
        (8, 3, r"privacy\.groups: 3; allowed: 1 to 2: a group has 3 clients or more"),
    ):
        fed = muster.data.digits(clients=clients, priority=priority)
        with pytest.raises(muster.MusterError, match=why):
            job.check(fed)
    assert job.check(muster.data.digits(clients=9, priority=3))


def test_nobody_to_protect_is_refused():
    others = Gaussian(1.0, noise=1.0, protect="others")
    with pytest.raises(muster.MusterError, match="none of them is ever asked"):
        build(methods.fedavg_priority(), others)
    fed = muster.data.digits(clients=4, priority=4)
    with pytest.raises(muster.MusterError, match="every client is in the objective"):
        build(methods.fedavg(), others).check(fed)


def test_statistics_of_rows_are_refused():
    with pytest.raises(muster.MusterError, match=r"clients.rows of every client"):
        build(methods.fedavg(), Gaussian(1.0, noise=1.0, cap=100)).check(
            muster.data.digits(clients=4, priority=2)
        )
    model = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10))
    job = muster.Job(methods.fedavg(), model, rounds=2, privacy=Gaussian(1.0, noise=1.0))
    with pytest.raises(muster.MusterError, match=r"1.running_mean.*GroupNorm"):
        job.check(muster.data.digits(clients=4, priority=2))
    scaled = muster.data.heart()
    with pytest.raises(muster.MusterError, match=r"statistics of clients' rows.*scale"):
        build(methods.fedavg()).check(scaled)


def test_a_promise_that_says_little_is_a_warning():
    assert not find_privacy_warnings(Gaussian(1.0, noise=1.0), 100, 1.0)
    (few,) = find_privacy_warnings(Gaussian(1.0, noise=1.0), 4, 1.0)
    assert 'privacy.unit = "rows"' in few
    (large,) = find_privacy_warnings(Gaussian(1.0, noise=1.0, delta=0.01), 100, 1.0)
    assert "use less than 1e-02" in large
    groups = Gaussian(1.0, noise=1.0, groups=5)
    assert not find_privacy_warnings(groups, 100, 2.0)
    (hidden,) = find_privacy_warnings(groups, 100, 3.0)
    assert hidden.startswith("privacy.groups: 5 of about 20 clients, and noise 3: what is released")

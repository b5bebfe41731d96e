"""Whatever composition of parts is allowed, one client's rows change the sum by the clip at most.

Compositions are drawn from all registered parts and all settings of the privacy; those that are
refused are drawn again. One client's rows become anything; the sum of whole numbers that the round
would release then differs from the sum without that client by a vector no longer than the clip, and
the sum of all the others is the same to the bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import muster
from muster import MusterError
from muster.federation import Federation
from muster.method import Method
from muster.methods import METHODS
from muster.parts import admit, claim, effort, invite, join, solvers, step, weigh
from muster.parts.defences.trust import Audit
from muster.parts.participation import Flexible
from muster.privacy import Gaussian
from muster.privacy.fixed_point import centre, encode
from muster.schedules import Constant
from private_sums import sum_round

CLIENTS, ROWS, ROUNDS = 6, 5, 10
MODULE = torch.nn.Linear(3, 2)


@st.composite
def compositions(draw):
    """The parts of a method, any at all; or a method of a name."""
    if draw(st.booleans()):
        return {"name": draw(st.sampled_from(sorted(METHODS)))}

    def one(*kinds):
        return draw(st.sampled_from(kinds))

    def rule():
        return one(join.Always(), join.Aligned(), join.Aligned("score"))

    return {
        "name": "any",
        "invite": one(invite.Full(), invite.Sample(3), invite.Fraction(0.5), invite.Apart(2)),
        "join": one(rule(), join.Available(0.6, rule()), join.Straggling(2, rule())),
        "solver": one(
            solvers.SGD(0.1),
            solvers.Ditto(),
            solvers.MetaGradient(),
            solvers.MetaGradient(hessian_free=True),
            solvers.Moreau(),
            solvers.ControlVariates(),
            solvers.Solo(),
        ),
        "admit": one(admit.Everyone(), admit.Objective(), admit.Band()),
        "weigh": one(weigh.DataShare(), weigh.Uniform(), weigh.Claimed(), weigh.LossPower(1.0)),
        "step": one(step.Average(0.5), step.Adaptive(), step.Momentum(), step.AdaptiveMoments()),
        "claim": one(claim.Nothing(), claim.Appeal(), claim.Unmet()),
        "effort": effort.AsAsked(),
        "losses": one(False, False, True),
        "tune_steps": one(0, 2),
        "epsilon": Constant(draw(st.floats(0.01, 5.0))),
        "warmup": one(0, 3),
        "trust": one(None, None, Audit()),
    }


PRIVACY = st.fixed_dictionaries(
    {
        "clip": st.sampled_from([1e-3, 0.3, 50.0]),
        "noise": st.sampled_from([0.3, 4.0]),
        "joins": st.sampled_from([None, 2, ROUNDS]),
        "protect": st.sampled_from(["everyone", "others"]),
        "cap": st.sampled_from([None, 4, 50]),
        "loss": st.sampled_from([None, None, Constant(0.7)]),
        "most_loss": st.sampled_from([0.5, 5.0]),
        "loss_share": st.sampled_from([0.1, 2.0]),
    }
)


def build_job(parts, privacy, leaves):
    """The job of a composition that is allowed; None: it is refused."""
    try:
        named = parts["name"] in METHODS
        groups = 2 if parts.get("trust") else 1
        job = muster.Job(
            getattr(muster.methods, parts["name"])() if named else Method(**parts),
            MODULE,
            muster.Local(steps=2, batch_size=3, lr=0.5),
            ROUNDS,
            participation=Flexible(from_round=2) if leaves else None,
            privacy=Gaussian(**privacy, groups=groups),
        )
        job.check(federation(0))
    except MusterError:
        return None
    return job


def federation(seed):
    draw = np.random.default_rng(seed)
    rows = [(draw.normal(size=(ROWS, 3)), np.arange(ROWS) % 2) for _ in range(CLIENTS)]
    fed = Federation.from_arrays(train=rows, priority=[0, 1, 2], requirement=draw.random(CLIENTS))
    return replace(fed, counted=fed.sizes)


def change_rows(fed, k, seed, size):
    """The same with other rows, labels and requirement of client k: its number of rows stays."""
    draw = np.random.default_rng(seed)
    x, y, rho = fed.train.x.clone(), fed.train.y.clone(), fed.requirement.copy()
    own = slice(k * ROWS, (k + 1) * ROWS)
    with np.errstate(over="ignore"):
        x[own] = torch.from_numpy((draw.normal(size=(ROWS, 3)) * size).astype(np.float32))
    y[own] = torch.from_numpy(draw.integers(0, 2, ROWS))
    rho[k] = draw.random() * 5
    return replace(fed, train=replace(fed.train, x=x, y=y), requirement=rho)


def measure_change(job, fed, k, t=0, released=0.0):
    """The length of what client k adds to the sum, in units of the clip."""
    (total, scale), (others, _) = (sum_round(job, fed, t, released, w) for w in (None, k))
    away = centre(total) - centre(others)
    return float(np.linalg.norm(away.astype(np.float64))) / scale


@settings(
    max_examples=40,
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(
    compositions(),
    PRIVACY,
    st.booleans(),
    st.integers(0, ROUNDS - 1),
    st.integers(0, CLIENTS - 1),
    st.sampled_from([0.0, 1.0, 1e3, 1e18]),
    st.integers(0, 1000),
)
def test_one_clients_rows_change_the_sum_by_the_clip_at_most(
    parts, options, leaves, t, k, size, seed
):
    job, fed = build_job(parts, options, leaves), federation(seed)
    assume(job is not None)
    privacy = job.privacy
    assume(privacy.protect == "everyone" or k > 2)  # a client that is protected
    released = float(np.random.default_rng(seed).uniform(0, privacy.most_loss))
    others = sum_round(job, fed, t, released, without=k)[0]
    changed = change_rows(fed, k, seed + 1, size)
    np.testing.assert_array_equal(sum_round(job, changed, t, released, without=k)[0], others)
    assert measure_change(job, fed, k, t, released) <= 1
    assert measure_change(job, changed, k, t, released) <= 1


def test_the_property_can_fail(monkeypatch):
    """A client that does not clip is found out by the same comparison."""
    from muster.run import contributors

    job, fed = build_job({"name": "fedavg"}, {"clip": 0.1, "noise": 4.0}, False), federation(0)
    honest = measure_change(job, fed, 0)
    real = contributors.contribute
    monkeypatch.setattr(contributors, "contribute", lambda *given: 3 * real(*given))
    monkeypatch.setattr(
        contributors, "encode", lambda values, clip, scale: encode(values, 3 * clip, 3 * scale)
    )
    assert measure_change(job, fed, 0) > 1 >= honest


def test_most_compositions_are_refused_and_many_are_not():
    """Named methods: those that the page on privacy lists, and no others, may be private."""
    allowed = [
        n for n in sorted(METHODS) if build_job({"name": n}, {"clip": 1.0, "noise": 1.0}, False)
    ]
    assert {"fedavg", "fedalign", "maxfl", "fedavg_priority", "fedadam"} <= set(allowed)
    assert not {"assist", "scaffold", "qffl", "afl", "mwfed", "fedda", "fedfomo"} & set(allowed)

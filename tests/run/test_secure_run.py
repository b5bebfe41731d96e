"""Secure sums in simulations: the plain sum, by the code of a federation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import muster
from muster.base.errors import MusterError
from muster.config.experiment import load
from muster.privacy import masks
from muster.privacy.fixed_point import add
from muster.results.privacy_statement import state_privacy
from muster.run import contributors as simulated

FED = {"clients": 8, "priority": 3}


def play(rounds=2, priority=3, **privacy):
    settings = {"clip": 1.0, "noise": 0.5, "delta": 1e-3, "secure": True, **privacy}
    return muster.simulate(
        muster.data.digits(clients=8, priority=priority),
        muster.methods.fedalign(warmup=0, epsilon=0.5),
        muster.models.Softmax(),
        rounds=rounds,
        dtype="float64",
        privacy=muster.privacy.Gaussian(**settings),
    )


def flat(run):
    return np.concatenate([np.ravel(w) for w in run.weights.values()])


@pytest.mark.filterwarnings("ignore::muster.base.errors.MusterWarning")
def test_the_secure_sum_less_its_noise_is_the_plain_sum(monkeypatch):
    plain, secure, drawn = [], [], []
    real, noise = simulated.LocalContributors.contribute, simulated.draw_vectors
    securely = simulated.LocalContributors.contribute_securely

    def spy(self, *args):
        plain.append(real(self, *args))
        return plain[-1]

    def spy_securely(self, *args):
        secure.append(securely(self, *args))
        return secure[-1]

    def draw(*args):
        drawn.append(noise(*args))
        return drawn[-1]

    monkeypatch.setattr(simulated.LocalContributors, "contribute", spy)
    monkeypatch.setattr(simulated.LocalContributors, "contribute_securely", spy_securely)
    monkeypatch.setattr(simulated, "draw_vectors", draw)
    run = play(rounds=3)
    assert len(drawn) == 9  # each of three members, in each round
    for t in range(3):
        shares = add(np.concatenate(drawn[3 * t : 3 * t + 3]))
        assert np.array_equal(secure[t].sums[0], plain[t].sums[0] + shares)
    assert run.rounds["releases"].to_list() == [1, 2, 3]
    # Everyone sends a vector, whoever joined.
    assert run.rounds["joined"][0] < 8
    assert set(run.rounds["bytes_up"]) == {8 * 4 * 651}


@pytest.mark.filterwarnings("ignore::muster.base.errors.MusterWarning")
def test_the_noise_of_a_release_is_that_of_the_account_and_of_one_more_member():
    run = muster.simulate(
        muster.data.digits(clients=8, priority=5),
        muster.methods.fedavg(),
        muster.models.Softmax(),
        local=muster.Local(steps=1, lr=1e-12),
        rounds=1,
        privacy=muster.privacy.Gaussian(
            clip=2.0, noise=3.0, delta=1e-3, secure=True, committee=("0", "1", "2", "3", "4"),
            colluders=2,
        ),
    )  # fmt: skip
    deviation = 2.0 * 3.0 * math.sqrt(5 / 3) / 8
    assert stats.kstest(flat(run) / deviation, "norm").pvalue > 1e-4


@pytest.mark.filterwarnings("ignore::muster.base.errors.MusterWarning")
def test_a_seed_repeats_the_noise_only_where_that_is_asked_for():
    one, two = play(), play()
    assert not np.any(flat(one) == flat(two))
    assert np.array_equal(flat(play(seeded=True)), flat(play(seeded=True)))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"priority": 2}, "privacy.committee: 2 clients of 2 owners; name 3 or more"),
        ({"committee": ("0", "1", "99")}, "unknown client in privacy.committee '99'"),
        ({"committee": ("0", "1", "1")}, "privacy.committee: 3 clients of 2 owners"),
        ({"committee": ("0", "1")}, "privacy.committee: 2 clients of 2 owners"),
        ({"committee": ("0", "1", "2"), "colluders": 3}, "colluders: 3; allowed: whole .* to 2"),
        ({"secure": False, "committee": ("0", "1", "2")}, "allowed: with secure = true"),
        ({"protect": "others"}, 'privacy.protect: "others" shows the server single losses'),
        ({"cap": 10}, "privacy.cap: with secure = true the server would set what each"),
    ],
)
def test_what_cannot_be_secure_is_refused_before_the_run(settings, why):
    with pytest.raises(MusterError, match=why):
        play(**settings)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(masks, "find_spec", lambda name: None)
    with pytest.raises(MusterError, match=r"get it with: pip install 'muster-fl\[secure\]'"):
        play()


def test_a_configuration_says_so():
    table = {
        "data": {"name": "digits", **FED},
        "privacy": {"kind": "gaussian", "clip": 1.0, "noise": 2.0, "secure": True, "colluders": 0},
    }
    job = load(table).job
    assert job.privacy.secure
    assert job.privacy.members == 3
    assert job.privacy.noise_share(2.0) == 2.0 / math.sqrt(3)


def test_without_noise_it_is_the_plain_sum_and_says_that_it_is_not_private(monkeypatch):
    sums = []
    real = simulated.LocalContributors.contribute_securely

    def spy(self, offer, roster, given, cache, memory, charge):
        plain = self.contribute(offer, roster, given, cache, memory)
        done = real(self, offer, roster, given, cache, memory, charge)
        sums.append((plain.sums, done.sums))
        return done

    monkeypatch.setattr(simulated.LocalContributors, "contribute_securely", spy)
    run = play(noise=0.0)
    assert sums
    assert all(np.array_equal(plain, secure) for plain, secure in sums)
    assert state_privacy(run.facts).startswith("not private: there is no noise")
    assert "epsilon_objective" not in run.facts["privacy"]


def test_no_noise_without_secure_sums_is_refused():
    with pytest.raises(MusterError, match=r"privacy.noise: 0"):
        muster.privacy.Gaussian(clip=1.0, noise=0.0)

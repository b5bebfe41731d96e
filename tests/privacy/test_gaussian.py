import numpy as np
import pytest

import muster
from muster.config.experiment import load
from muster.privacy import Gaussian, noise_for
from muster.protocol import Roster


def roster(n, members=3):
    priority = np.arange(n) < members
    return Roster(np.arange(n), priority, priority.astype(float), np.full(n, 1 / n))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": 0, "noise": 1}, "privacy.clip: 0; allowed: above 0"),
        ({"clip": 1}, "privacy: give noise or epsilon, one of both"),
        ({"clip": 1, "noise": 1, "epsilon": 1}, "privacy: give noise or epsilon, one of both"),
        ({"clip": 1, "noise": -1}, "privacy.noise: -1; allowed: above 0"),
        ({"clip": 1, "noise": 1, "delta": 1}, "privacy.delta: 1; allowed: above 0, below 1"),
        ({"clip": 1, "noise": 1, "joins": 0}, "privacy.joins: 0; allowed: whole numbers from 1"),
        ({"clip": 1, "noise": 1, "cap": 0}, "privacy.cap: 0; allowed: whole numbers from 1"),
        ({"clip": 1, "noise": 1, "protect": "me"}, "privacy.protect: 'me'"),
        ({"clip": 1, "noise": 1, "unit": "days"}, "privacy.unit: 'days'"),
        ({"clip": 1, "noise": 1, "smoothing": 1.0}, "privacy.smoothing: 1.0"),
        ({"clip": 1, "noise": 1, "smoothing": "a"}, "privacy.smoothing: 'a'; allowed: 0.0 up to"),
        ({"clip": 1, "noise": 1, "secure": "no"}, "privacy.secure: 'no'; allowed: True or False"),
        ({"clip": 1, "noise": 1, "seeded": 0}, "privacy.seeded: 0; allowed: True or False"),
        ({"clip": 1, "noise": 1, "loss": "low"}, "privacy.loss: 'low'; give a number or a sched"),
        ({"clip": 1, "noise": 1, "loss": -1}, "privacy.loss: -1.0; allowed: 0 and above"),
        ({"clip": 1, "noise": 1, "committee": "abc"}, "privacy.committee: 'abc'; allowed: a list"),
        (
            {"clip": 1, "noise": 1, "protect": "others", "loss": muster.schedules.Constant(1.0)},
            "makes F\\(w\\) exact",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(muster.MusterError, match=message):
        Gaussian(**settings)


def test_a_public_loss_may_be_a_number():
    assert Gaussian(1.0, noise=1.0, loss=1).loss == muster.schedules.Constant(1.0)


def test_noise_follows_from_epsilon_and_the_most_that_a_protected_client_gives():
    everyone = Gaussian(1.0, epsilon=4.0, delta=1e-3)
    assert everyone.multiplier(60, warmup=10) == noise_for(4.0, 60, 1e-3)
    others = Gaussian(1.0, epsilon=4.0, delta=1e-3, protect="others")
    assert others.multiplier(60, warmup=10) == noise_for(4.0, 50, 1e-3)
    few = Gaussian(1.0, epsilon=4.0, delta=1e-3, joins=20)
    assert few.multiplier(60, warmup=10) == noise_for(4.0, 20, 1e-3)
    assert Gaussian(1.0, noise=2.5).multiplier(60, warmup=0) == 2.5


def test_each_role_has_its_own_account():
    both = Gaussian(1.0, epsilon=4.0, delta=1e-3).account(60, 10, releases=60, early=10)
    assert both["objective"] == pytest.approx(4.0)
    assert both["others"] < 3.7
    others = Gaussian(1.0, epsilon=4.0, delta=1e-3, protect="others")
    spent = others.account(60, 10, releases=30, early=10)
    assert spent["objective"] is None
    assert spent["others"] < 2.5
    again = others.account(60, 10, releases=75, early=10)  # 15 rounds were repeated
    assert again["others"] == pytest.approx(4.0)  # a client stops at its budget


def test_members_spread_their_budget_evenly_and_others_may_join_any_round():
    privacy, who = Gaussian(1.0, noise=1.0, joins=20), roster(200, members=100)
    due = np.stack([privacy.find_due(who, t, 60) for t in range(60)])
    assert (due[:, :100].sum(0) == 20).all()
    assert due[:, 100:].all()
    assert due[:, :100].sum(1).min() > 15  # phases differ: no round is without members
    thirds = due[:, :100].reshape(3, 20, 100).sum(1)
    assert thirds.min() >= 6
    assert thirds.max() <= 7
    others = Gaussian(1.0, noise=1.0, joins=20, protect="others")
    assert others.find_due(who, 7, 60).all()


def test_weights_are_of_declared_rows_up_to_a_cap():
    rows = np.array([10, 200, 5000])
    assert Gaussian(1.0, noise=1.0).weights(rows).tolist() == [1, 1, 1]
    assert Gaussian(1.0, noise=1.0, cap=200).weights(rows).tolist() == [0.05, 1, 1]


def test_a_table_in_a_configuration_is_the_same():
    table = {"privacy": {"clip": 0.5, "epsilon": 2.0, "delta": 1e-4}, "method": {"name": "fedavg"}}
    built = load(table)
    assert built.job.privacy == Gaussian(0.5, epsilon=2.0, delta=1e-4)
    assert load(built.resolve()).job.privacy == built.job.privacy
    federated = load({**table, "method": {"name": "fedalign"}, "network": {}})
    assert federated.job.method.trust is None  # an audit is the default, and cannot be private
    with pytest.raises(muster.MusterError, match=r"unknown key 'privacy.clipp'"):
        load({"privacy": {"clipp": 1.0}})
    with pytest.raises(muster.MusterError, match=r"privacy.clip: missing"):
        load({"privacy": {"noise": 1.0}})


@pytest.mark.parametrize(("members", "colluders"), [(3, 0), (3, 1), (3, 2), (5, 2)])
def test_the_noise_of_those_who_do_not_collude_is_that_of_the_account(members, colluders):
    names = tuple("abcde"[:members])
    privacy = Gaussian(1.0, noise=2.0, secure=True, committee=names, colluders=colluders)
    share = privacy.noise_share(privacy.noise)
    assert (members - colluders) * share**2 == pytest.approx(2.0**2)
    assert Gaussian(1.0, noise=2.0).noise_share(2.0) == 2.0  # the server's, all of it

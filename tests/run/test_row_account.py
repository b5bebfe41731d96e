"""Each client's own account counts what the engine draws, and its noise keeps what was asked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import muster
from muster.engines.batches import plan_batches
from muster.federation import Federation
from muster.privacy import Gaussian, epsilon
from muster.privacy.account import FILE
from muster.privacy.sampled_accountant import SampledRelease, measure_epsilon
from muster.results.privacy_statement import state_privacy
from muster.run import training_loop
from muster.run.row_account import RowAccount, list_uses

SIZES = [10, 33, 64]
MODEL = torch.nn.Linear(4, 2)


def federation():
    draw = np.random.default_rng(0)
    rows = [(draw.normal(size=(n, 4)), np.arange(n) % 2) for n in SIZES]
    return Federation.from_arrays(train=rows, priority=[0])


def open_account(privacy, method, local, rounds):
    return RowAccount.open(
        muster.Job(method, MODEL, local, rounds, privacy=privacy), np.array(SIZES)
    )


def most_visits(local, rounds):
    """The most batches of the run that have one row of a client."""
    fed, visits = federation(), np.zeros(sum(SIZES), int)
    for t in range(rounds):
        for plan in plan_batches(fed.train, np.arange(3), local, 7, t):
            for i in range(len(plan.at)):
                for s in range(plan.steps[i]):
                    np.add.at(visits, plan.rows[i, s, : plan.count[i, s]], 1)
    ends = np.cumsum(SIZES)
    return [int(visits[b - n : b].max()) for n, b in zip(SIZES, ends, strict=True)]


@pytest.mark.parametrize(
    "local",
    [
        muster.Local(steps=7, batch_size=8),
        muster.Local(epochs=2, batch_size=8),
        muster.Local(steps=3, batch_size=None),
        muster.Local(epochs=3, batch_size=16),
        muster.Local(steps=1, batch_size=40),
    ],
)
def test_no_row_is_in_more_gradients_than_accounted(local):
    uses = list_uses(muster.methods.fedavg(), local, 6, np.array(SIZES))
    assert [use.rate for use in uses] == [1.0] * 3
    counted = [use.gradients for use in uses]
    assert all(a <= b for a, b in zip(most_visits(local, 6), counted, strict=True))
    whole = local.epochs or local.batch_size is None
    if whole:
        assert most_visits(local, 6) == counted


def test_sampled_rows_are_accounted_by_their_rate_and_all_steps():
    local = muster.Local(steps=5, batch_size=16, batches="poisson")
    uses = list_uses(muster.methods.fedavg(), local, 20, np.array(SIZES))
    for use, n in zip(uses, SIZES, strict=True):
        exact = min(1.0, 16 / n)
        assert exact <= use.rate <= min(1.0, exact * 1.021)
        assert use.gradients == 100


def test_losses_are_in_the_account_where_a_rule_asks_for_them():
    local, sizes = muster.Local(steps=1, batch_size=None), np.array(SIZES)
    methods = muster.methods
    assert list_uses(methods.fedavg(), local, 9, sizes)[0].losses == 0
    assert list_uses(methods.fedalign(), local, 9, sizes)[0].losses == 10
    assert list_uses(methods.power_of_choice(), local, 9, sizes)[0].losses == 10
    assert list_uses(methods.qffl(), local, 9, sizes)[0].losses == 10


def test_the_account_of_full_batches_is_the_closed_form():
    privacy = Gaussian(clip=1.0, noise=4.0, delta=1e-4, unit="rows")
    local = muster.Local(steps=3, batch_size=None)
    account = open_account(privacy, muster.methods.fedavg(), local, 20)
    assert account.measure(20) == pytest.approx([epsilon(4.0, 60, 1e-4)] * 3, rel=1e-9)
    assert account.measure(5) == pytest.approx([epsilon(4.0, 15, 1e-4)] * 3, rel=1e-9)
    assert account.measure(0).tolist() == [0.0] * 3


def test_each_client_has_its_own_noise_and_epsilon():
    """The same noise costs the client with fewer rows more: each of them is drawn more often."""
    local = muster.Local(steps=5, batch_size=8, batches="poisson")
    method = muster.methods.fedavg()
    noisy = Gaussian(clip=1.0, noise=2.0, delta=1e-4, unit="rows")
    same = open_account(noisy, method, local, 20)
    spent = same.measure(20)
    assert spent[0] > spent[1] > spent[2]
    exact = measure_epsilon([SampledRelease(8 / 64, 2.0, 100)], 1e-4)
    assert exact <= spent[2] < 1.03 * exact
    wanted = Gaussian(clip=1.0, epsilon=3.0, delta=1e-4, unit="rows")
    asked = open_account(wanted, method, local, 20)
    assert (asked.measure(20) <= 3.0).all()
    assert asked.measure(20) == pytest.approx([3.0] * 3, rel=0.01)
    assert asked.noise.noise[0] > asked.noise.noise[2]


@pytest.mark.parametrize("batches", ["shuffled", "poisson"])
def test_losses_take_their_share_of_epsilon(batches):
    local = muster.Local(steps=2, batch_size=16, batches=batches)
    privacy = Gaussian(clip=1.0, epsilon=2.0, delta=1e-4, unit="rows", loss_share=0.5)
    account = open_account(privacy, muster.methods.fedalign(), local, 10)
    assert account.measure(10) == pytest.approx([2.0] * 3, rel=0.01)
    alone = epsilon(float(account.noise.loss_noise[0]), 11, 1e-4)
    assert alone == pytest.approx(1.0, rel=1e-6)


def run(privacy, seed=0, method=None, rounds=4):
    return muster.simulate(
        federation(),
        method or muster.methods.fedalign(epsilon=2.0),
        MODEL,
        rounds,
        muster.Local(steps=2, batch_size=8, batches="poisson"),
        seed,
        privacy=privacy,
    )


def test_the_results_have_each_owners_account():
    done = run(Gaussian(clip=1.0, epsilon=3.0, delta=1e-4, unit="rows"))
    assert done.final["row_epsilon"].to_list() == pytest.approx([3.0] * 3, rel=0.01)
    assert (done.final["row_noise"] > 0).all()
    assert state_privacy(done.facts).startswith("private: epsilon 3.00 for a row of any client")


def test_a_round_that_is_played_again_after_a_crash_is_charged_again(tmp_path, monkeypatch):
    """Its gradients are released with other noise: whoever saw both knows more than of one."""
    privacy = Gaussian(1.0, noise=2.0, delta=1e-3, unit="rows")
    local = muster.Local(steps=2, batch_size=None)

    def play(**more):
        return muster.simulate(
            federation(), muster.methods.fedavg(), MODEL, 4, local, privacy=privacy,
            checkpoint=tmp_path, **more,
        )  # fmt: skip

    def crash(folder, state, *rest):
        if state.round == 2:
            raise SystemExit
        save(folder, state, *rest)

    save = training_loop.save_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(training_loop, "save_checkpoint", crash)
        with pytest.raises(SystemExit):
            play()
    assert len((tmp_path / FILE).read_text().splitlines()) == 2
    with pytest.raises(muster.MusterError, match="2 releases are charged there; resume the run"):
        play()
    run = play(resume=True)
    assert run.rounds["releases"].to_list() == [1, 3, 4]
    assert run.facts["privacy"]["releases"] == 4
    assert run.final["row_epsilon"].to_list() == [epsilon(2.0, 4 * 2, 1e-3)] * 3
    assert any("budget was spent after round 3 of 4: 1 release" in text for text in run.warnings)
    (tmp_path / FILE).write_text("")
    with pytest.raises(muster.MusterError, match=r"0 releases charged.*has 3: the account w"):
        play(resume=True)


def test_two_private_runs_of_a_seed_differ_and_a_seeded_one_says_that_it_is_not_private():
    private = [run(Gaussian(clip=1.0, noise=2.0, unit="rows")) for _ in range(2)]
    assert not np.array_equal(private[0].weights["weight"], private[1].weights["weight"])
    seeded = [run(Gaussian(clip=1.0, noise=2.0, unit="rows", seeded=True)) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].weights["weight"], seeded[1].weights["weight"])
    assert state_privacy(seeded[0].facts).startswith("not private: the noise is of the seed")
    assert state_privacy(private[0].facts).startswith("private: ")


def test_clients_report_released_losses_and_nothing_else():
    """The ledger has what clients said: losses with noise, within their bound, and no score."""
    privacy = Gaussian(clip=1.0, noise=2.0, unit="rows", most_loss=1.5)
    said = run(privacy).clients
    assert said["loss"].is_between(0.0, 1.5).all()
    assert said["accuracy"].null_count() == len(said)
    assert len(set(said["loss"])) > 3


def test_a_released_loss_changes_with_a_row_by_no_more_than_its_bound(monkeypatch):
    """Without its noise, whatever one row is: by B / n; noise is in units of that."""
    from muster.privacy import row_noise

    monkeypatch.setattr(row_noise.NoiseSource, "draw", lambda self, *shape: np.zeros(shape))
    losses = []
    for size in (0.0, 1.0, 1e30):
        fed = federation()
        fed.train.x[0] = size
        done = muster.simulate(
            fed,
            muster.methods.fedalign(epsilon=9.0, warmup=0),
            MODEL,
            1,
            muster.Local(steps=1, batch_size=None, lr=0.0),
            privacy=Gaussian(clip=1.0, noise=2.0, unit="rows", most_loss=1.5),
        )
        losses.append(done.clients.sort("client")["loss"].to_numpy())
    for other in losses[1:]:
        assert 0 < abs(other[0] - losses[0][0]) <= 1.5 / 10 + 1e-4
        np.testing.assert_array_equal(other[1:], losses[0][1:])


def test_a_delta_that_would_let_a_row_out_is_warned_about():
    done = run(Gaussian(clip=1.0, noise=2.0, delta=0.02, unit="rows"))
    assert any("a client has 64 rows" in w and "2e-02" in w for w in done.warnings)
    assert math.isfinite(done.rounds["loss"][-1])

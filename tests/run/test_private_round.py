"""Private rounds, against a few lines of numpy and against their own account."""

import dataclasses

import numpy as np
import polars as pl
import pytest

import muster
from muster import methods, parts
from muster.privacy import Gaussian, noise_for
from muster.privacy.account import FILE
from muster.privacy.fixed_point import choose_scale
from muster.privacy.noise import draw_noise, seeded_words
from muster.protocol import Offer, Roster
from muster.results.privacy_statement import state_privacy
from muster.run import private_round
from muster.run.private_round import Release, release

SOFTMAX = muster.models.Softmax()
LOCAL = muster.Local(steps=2, batch_size=8, lr=0.5)


def federation(clients=8, priority=3):
    return muster.data.digits(clients=clients, priority=priority)


def play(method, privacy, fed=None, rounds=4, **more):
    fed = federation() if fed is None else fed
    more = {"evaluate_every": 0, "dtype": "float64", "local": LOCAL, **more}
    return muster.simulate(fed, method, SOFTMAX, rounds=rounds, privacy=privacy, **more)


def seeded(**more):
    return Gaussian(**{"clip": 0.5, "noise": 0.3, "seeded": True, **more})


def flat(weights):
    return np.concatenate([weights[n].ravel() for n in weights]).astype(np.float64)


def solo_changes(fed):
    """The change of every client in the first round: what FedAvg does where it alone counts."""
    start = flat_start(fed)
    changes = []
    for k in range(fed.n):
        only = dataclasses.replace(
            fed, priority=np.arange(fed.n) == k, importance=(np.arange(fed.n) == k) * 1.0
        )
        run = muster.simulate(
            only,
            methods.fedavg_priority(),
            SOFTMAX,
            rounds=1,
            local=LOCAL,
            evaluate_every=0,
            dtype="float64",
        )
        changes.append(flat(run.weights) - start)
    return np.array(changes), start


def flat_start(fed):
    job = muster.Job(methods.fedavg(), SOFTMAX, rounds=1)
    return np.concatenate(
        [t.double().numpy().ravel() for t in job.check(fed).state_dict().values()]
    )


def noise_of_round(n, numbers, z, clip, t=0, seed=0):
    scale = choose_scale(n, z)
    drawn = draw_noise(numbers, int(np.ceil(z * scale)), seeded_words(seed, t))
    return drawn * clip / scale, clip / scale


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_round_is_the_sum_of_clipped_changes_with_noise_over_a_public_number(engine):
    fed = federation()
    run = play(methods.fedavg(), seeded(), fed, rounds=1, engine=engine)
    changes, start = solo_changes(fed)
    short = np.minimum(1, 0.5 / np.linalg.norm(changes, axis=1))
    assert (short < 1).any()
    noise, unit = noise_of_round(8, len(start), 0.3, 0.5)
    expected = start + ((changes * short[:, None]).sum(0) + noise) / 8
    np.testing.assert_allclose(flat(run.weights), expected, atol=2 * unit)


def test_the_denominator_is_public_whoever_joins():
    fed = federation()
    changes, start = solo_changes(fed)
    clipped = changes * np.minimum(1, 0.5 / np.linalg.norm(changes, axis=1))[:, None]
    noise, unit = noise_of_round(8, len(start), 0.3, 0.5)
    band = methods.fedalign(epsilon=0.0, warmup=0)
    run = play(band, seeded(loss=muster.schedules.Constant(1.0)), fed, rounds=1)
    assert run.rounds["joined"].to_list() == [3]
    np.testing.assert_allclose(
        flat(run.weights), start + (clipped[:3].sum(0) + noise) / 8, atol=2 * unit
    )
    declared = play(band, seeded(loss=muster.schedules.Constant(1.0), denominator=3.0), fed, 1)
    np.testing.assert_allclose(
        flat(declared.weights), start + (clipped[:3].sum(0) + noise) / 3, atol=2 * unit
    )


def test_a_round_in_which_nobody_joins_is_a_release_like_any_other():
    alone = muster.Method("away", join=parts.Available(0.0))
    fed = dataclasses.replace(federation(), importance=np.eye(8)[0], priority=np.eye(8)[0] > 0)
    run = play(alone, seeded(joins=1), fed, rounds=3)
    assert run.rounds["joined"].sum() == 1  # the one member, in its turn
    assert run.rounds["releases"].to_list() == [1, 2, 3]
    assert not run.rounds["skipped"].any()


def test_weights_are_of_declared_rows():
    fed = dataclasses.replace(federation(), counted=np.array([10, 20, 40, 80, 5, 5, 5, 5]))
    run = play(methods.fedavg(), seeded(cap=40), fed, rounds=1)
    changes, start = solo_changes(fed)
    clipped = changes * np.minimum(1, 0.5 / np.linalg.norm(changes, axis=1))[:, None]
    weight = np.minimum(fed.counted, 40) / 40
    noise, unit = noise_of_round(8, len(start), 0.3, 0.5)
    expected = start + (weight @ clipped + noise) / weight.sum()
    np.testing.assert_allclose(flat(run.weights), expected, atol=2 * unit)
    np.testing.assert_allclose(run.clients["weight"], weight)


def test_the_band_is_the_clients_own_around_the_released_loss():
    method = methods.fedalign(epsilon=0.05, warmup=0)
    run = play(method, seeded(noise=0.01, smoothing=0.0), federation(20, 8), rounds=6)
    for t, eps, reference in run.rounds.select("round", "eps", "reference_loss").rows():
        asked = run.clients.filter(pl.col("round") == t)
        for priority, loss, joined, reason in asked.select(
            "priority", "loss", "joined", "reason"
        ).rows():
            if reference is None:
                assert joined == priority
                assert priority or reason == "F(w) unknown"
            else:
                assert joined == (priority or abs(loss - reference) < eps)
    later = run.clients.filter(~run.clients["priority"] & (run.clients["round"] > 1))
    assert 0 < later["joined"].sum() < len(later)


def test_the_released_loss_is_that_of_the_priority_clients_with_noise():
    run = play(methods.fedalign(), seeded(noise=0.001, smoothing=0.0), federation(20, 8), rounds=6)
    exact = run.clients.filter(pl.col("priority")).group_by("round").agg(pl.col("loss").mean())
    exact = exact.sort("round")["loss"].to_list()
    released = run.rounds["reference_loss"].to_list()
    assert released[0] is None
    np.testing.assert_allclose(released[1:], exact[:-1], atol=0.02)


def test_a_smoothed_loss_is_the_weighted_mean_of_releases():
    privacy = Gaussian(1.0, noise=1.0, smoothing=0.75, most_loss=4.0, loss_share=0.5)
    job = muster.Job(methods.fedalign(), SOFTMAX, rounds=9, privacy=privacy)
    priority = np.array([True, True, False, False])
    who = Roster(np.arange(4), priority, priority * 1.0, np.array([1.0, 0.5, 1.0, 1.0]))
    own = private_round.build_private_state(job, 4, {})["privacy"]
    unit = 0.5 / np.sqrt(1.25) * 1.5 / 4.0  # the place of a loss of 1, of both priority clients
    for loss in (1.0, 3.0, 2.0):
        released = Release(np.zeros((1, 1)), loss * unit)
        own = {**own, **private_round.smooth_loss(job, who, np.ones(4, bool), released, own)}
    expected = np.average([1.0, 3.0, 2.0], weights=[0.75**2, 0.75, 1.0])
    assert float(own["loss"]) / float(own["mass"]) == pytest.approx(expected)


def test_exact_loss_where_priority_clients_forgo_protection():
    fed = federation(10, 4)
    run = play(methods.fedalign(), seeded(protect="others"), fed, rounds=5)
    mine = run.clients.filter(pl.col("priority")).sort("round", "client")
    weight = fed.train.sizes[:4] / fed.train.sizes[:4].sum()
    exact = mine["loss"].to_numpy().reshape(5, 4) @ weight
    np.testing.assert_allclose(run.rounds["reference_loss"], exact, rtol=1e-12)
    assert "epsilon_objective" not in run.rounds.columns
    assert run.rounds["epsilon_others"][-1] > 0
    assert "not protected" in state_privacy(run.facts)


def test_maxfl_sends_four_q_of_its_clipped_change_and_nothing_else():
    fed = dataclasses.replace(federation(), requirement=np.linspace(1.0, 4.0, 8))
    run = play(methods.maxfl(epsilon=0.2), seeded(denominator=6.0), fed, rounds=1)
    changes, start = solo_changes(fed)
    clipped = changes * np.minimum(1, 0.5 / np.linalg.norm(changes, axis=1))[:, None]
    gap = run.clients["loss"].to_numpy() - fed.requirement
    s = 1 / (1 + np.exp(-gap))
    noise, unit = noise_of_round(8, len(start), 0.3, 0.5)
    step = ((4 * s * (1 - s)) @ clipped + noise) / 4  # the sum of q_k (w_k - w)
    np.testing.assert_allclose(
        flat(run.weights), start + step / (6.0 / 4 + 0.2), atol=2 * unit, rtol=1e-9
    )


def test_server_optimizers_get_the_released_mean():
    fed = federation()
    momentum = muster.Method("m", step=parts.Momentum(server_lr=0.5, beta=0.9))
    plain = play(methods.fedavg(), seeded(), fed, rounds=1)
    moved = play(momentum, seeded(), fed, rounds=1)
    start = flat_start(fed)
    np.testing.assert_allclose(
        flat(moved.weights) - start, 0.5 * (flat(plain.weights) - start), atol=1e-12
    )


def test_the_noise_of_a_release_has_the_variance_that_is_accounted_for():
    privacy = Gaussian(0.7, epsilon=3.0, delta=1e-4)
    job = muster.Job(methods.fedavg(), SOFTMAX, rounds=25, privacy=privacy)
    offer = Offer(0, 0, 25, {}, population=50)
    z = noise_for(3.0, 25, 1e-4)
    drawn = release(job, offer, np.zeros((1, 200_000), np.uint32), folded=False).updates
    assert abs(drawn.var() / (z * 0.7) ** 2 - 1) < 5 * np.sqrt(2 / 200_000)
    assert abs(drawn.mean()) < 5 * z * 0.7 / np.sqrt(200_000)


def test_two_runs_of_a_seed_differ_and_are_private_and_seeded_ones_are_not():
    first, second = (play(methods.fedavg(), Gaussian(0.5, noise=1.0)) for _ in range(2))
    assert any((first.weights[n] != second.weights[n]).any() for n in first.weights)
    assert state_privacy(first.facts).startswith("private: epsilon ")
    again = [play(methods.fedavg(), seeded()) for _ in range(2)]
    for name, w in again[0].weights.items():
        np.testing.assert_array_equal(w, again[1].weights[name])
    assert state_privacy(again[0].facts).startswith("not private: the noise is of the seed")


def test_no_client_gives_more_than_its_budget():
    privacy = seeded(joins=3, loss=muster.schedules.Constant(2.0))
    run = play(methods.fedalign(epsilon=9.0, warmup=2), privacy, federation(30, 10), rounds=12)
    given = run.clients.group_by("client").agg(pl.col("joined").sum(), pl.col("priority").first())
    assert given["joined"].max() == 3
    assert given.filter("priority")["joined"].to_list() == [3] * 10  # evenly spread, all used
    reasons = set(run.clients.filter(~pl.col("joined"))["reason"])
    assert reasons == {"not its turn", "budget spent"}
    assert run.rounds.filter(pl.col("round") > 5)["joined"].max() < 10
    assert run.facts["privacy"]["noise"] == 0.3


def test_training_that_diverges_is_a_warning_and_noise_alone_moves_the_model():
    away = muster.Local(steps=10, batch_size=8, lr=1e38)
    run = play(methods.fedavg(), seeded(noise=1e-6), local=away, dtype="float32")
    assert np.abs(flat(run.weights) - flat_start(federation())).max() < 1e-4
    assert set(run.clients["reason"]) == {"malformed: not finite"}
    assert run.rounds.select("joined", "admitted", "refused").rows() == [(8, 0, 8)] * 4
    assert any("every reply was refused" in w and "lower local.lr" in w for w in run.warnings)


def test_clients_that_leave_abstain_unseen():
    fed = dataclasses.replace(federation(), requirement=np.array([0.1] * 4 + [9.0] * 4))
    run = play(
        methods.maxfl(), seeded(), fed, rounds=4, participation=muster.Flexible(from_round=1)
    )
    assert run.rounds["asked"].to_list() == [8] * 4
    assert run.rounds["joined"].to_list() == [8, 4, 4, 4]
    assert len(run.moves) == 0


class Crash(Exception):
    """The end of a process."""


def crash_at(monkeypatch, t):
    real = private_round.release

    def release(job, offer, total, folded):
        if offer.round == t:
            raise Crash
        return real(job, offer, total, folded)

    monkeypatch.setattr(private_round, "release", release)


def test_a_release_is_charged_before_it_and_again_when_it_is_repeated(tmp_path, monkeypatch):
    privacy = Gaussian(0.5, epsilon=3.0, delta=1e-3)
    with monkeypatch.context() as patch:
        crash_at(patch, 2)
        with pytest.raises(Crash):
            play(methods.fedavg(), privacy, rounds=5, checkpoint=tmp_path)
    assert len((tmp_path / FILE).read_text().splitlines()) == 3  # before anything was released
    with pytest.raises(muster.MusterError, match="3 releases are charged there"):
        play(methods.fedavg(), privacy, rounds=5, checkpoint=tmp_path)
    run = play(methods.fedavg(), privacy, rounds=5, checkpoint=tmp_path, resume=True)
    assert run.rounds["releases"].to_list() == [1, 2, 4, 5]
    assert run.facts["privacy"]["releases"] == 5
    assert run.facts["privacy"]["epsilon_objective"] == pytest.approx(3.0)
    assert any("budget was spent after round 4 of 5: 1 release" in w for w in run.warnings)


@pytest.mark.parametrize("left", [None, 1])
def test_an_account_that_was_cut_is_refused(tmp_path, left):
    """A run that went on with it would state fewer releases than there were."""

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted):
        play(methods.fedavg(), Gaussian(0.5, noise=1.0), checkpoint=tmp_path, on_round=stop)
    lines = (tmp_path / FILE).read_text().splitlines(keepends=True)
    if left is None:
        (tmp_path / FILE).unlink()
    else:
        (tmp_path / FILE).write_text("".join(lines[:left]))
    with pytest.raises(muster.MusterError, match=f"{left or 0} releases? charged.*has 3: the acc"):
        play(methods.fedavg(), Gaussian(0.5, noise=1.0), checkpoint=tmp_path, resume=True)


def test_a_budget_that_is_spent_before_the_first_round_is_done_ends_the_run(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        crash_at(patch, 0)
        with pytest.raises(Crash):
            play(methods.fedavg(), Gaussian(0.5, noise=1.0), rounds=1, checkpoint=tmp_path)
    with pytest.raises(muster.MusterError, match="all 1 release of the budget are charged in"):
        play(methods.fedavg(), Gaussian(0.5, noise=1.0), rounds=1, checkpoint=tmp_path, resume=True)


def test_contributions_to_a_release_that_was_lost_count(tmp_path, monkeypatch):
    privacy = seeded(joins=2, protect="others")
    method = methods.fedalign(epsilon=99.0, warmup=0)
    with monkeypatch.context() as patch:
        crash_at(patch, 1)
        with pytest.raises(Crash):
            play(method, privacy, rounds=5, checkpoint=tmp_path)
    run = play(method, privacy, rounds=5, checkpoint=tmp_path, resume=True)
    # In round 1 and in the lost round 2 the others gave twice; they give no more.
    assert run.rounds["joined"].to_list() == [8, 3, 3, 3, 3]
    assert run.rounds["releases"].to_list() == [1, 3, 4, 5, 6]
    assert len(run.rounds) == 5  # with a budget of contributions there are always as many rounds


def test_a_seeded_run_resumes_to_the_same_bits(tmp_path):
    method = methods.fedalign(epsilon=1.0, warmup=1)
    whole = play(method, seeded(), rounds=6)

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted):
        play(method, seeded(), rounds=6, checkpoint=tmp_path, on_round=stop)
    rest = play(method, seeded(), rounds=6, checkpoint=tmp_path, resume=True)
    for name, w in whole.weights.items():
        np.testing.assert_array_equal(w, rest.weights[name])
    assert rest.facts["privacy"]["releases"] == 6


def test_client_states_go_on_in_private_rounds():
    run = play(methods.ditto(), seeded(), rounds=3)
    assert run.own is not None
    assert not np.array_equal(*(next(iter(run.own.models.values()))[k] for k in (0, 1)))


def test_warnings_of_a_promise_that_says_little_reach_the_run():
    run = play(methods.fedavg(), seeded(), rounds=1)
    assert any("among 8" in warning for warning in run.warnings)

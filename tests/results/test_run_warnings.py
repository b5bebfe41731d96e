"""Nothing fails in silence: each way a run can come to nothing is said, with what to do."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import muster
from helpers import federation
from muster.report.tables import format_warnings, list_warnings, run_table
from muster.results.run_warnings import _check_reference
from muster.run.evaluate import compute_baselines

M = muster.methods


@pytest.fixture(scope="module")
def fed():
    return muster.data.digits(clients=12, priority=4)


def go(fed, method=None, lr=0.1, rounds=12, **more):
    return muster.simulate(
        fed, method or M.fedavg(), muster.models.Softmax(), rounds,
        muster.Local(steps=10, batch_size=8, lr=lr), **more,
    )  # fmt: skip


def said(run):
    return " | ".join(run.warnings)


def test_a_sound_run_raises_no_concern(fed):
    assert go(fed).warnings == []


def test_own_models_that_never_moved_are_a_warning(fed):
    still = go(fed, M.local(), lr=0.0)
    assert any("never moved" in sentence for sentence in still.warnings)


def test_where_own_models_are_judged_the_common_one_may_stay(fed):
    alone = muster.simulate(fed, muster.methods.local(), muster.models.Softmax(), 5)
    assert not any("never moved" in sentence for sentence in alone.warnings)
    few = muster.data.digits(clients=6, priority=2)
    kept = muster.simulate(few, muster.methods.ditto(), muster.models.Softmax(), 3)
    assert kept.rounds["loss"][-1] > kept.facts["constant_loss"] > kept.rounds["own_loss"][-1]
    assert not kept.warnings


@pytest.mark.parametrize(
    ("blind", "facts", "why"),
    [
        ([1], {}, "in 1 of 3 rounds .*one class has no AUC"),
        ([1], {"privacy": {}}, ""),  # nothing is released before its first sum
        ([1, 2], {"privacy": {}}, r"in 2 of 3 .* no F\(w\) had been released yet; .*privacy.loss"),
    ],
)
def test_rounds_without_a_reference(blind, facts, why):
    reason = ["F(w) unknown" if t in blind else "aligned" for t in (1, 2, 3)]
    rounds = pl.DataFrame({"round": [1, 2, 3]})
    said = _check_reference(rounds, rounds.with_columns(reason=pl.Series(reason)), facts)
    assert re.fullmatch(f".*{why}.*" if why else "", said)


def test_every_reply_refused(fed):
    run = go(fed, lr=1e30)
    assert "in 12 of 12 rounds every reply was refused (144 times 'malformed: not finite')" in said(
        run
    )
    assert "lower local.lr" in said(run)
    assert "the model never moved from its starting point" in said(run)


def test_everybody_left(fed):
    from dataclasses import replace

    picky = replace(fed, requirement=np.full(fed.n, 1e-3))
    run = go(picky, M.maxfl(), participation=muster.Flexible(2))
    assert "all clients had left by round 3" in said(run)
    assert "the 10 rounds from there on moved nothing" in said(run)
    assert "participation.from_round" in said(run)


def test_a_loss_that_does_not_fall(fed):
    run = go(fed, lr=60.0, rounds=4)
    assert run.facts["start_loss"] == pytest.approx(np.log(10))
    assert run.rounds["loss"][-1] > np.log(10)
    assert "the loss did not fall: 2.303 before the first round" in said(run)


def test_nobody_took_part(fed):
    nobody = M.fedalign(0.0, warmup=0, invite=muster.parts.Sample(1))
    run = go(fed, nobody, rounds=12)
    idle = int((run.rounds["joined"] == 0).sum())
    assert 0 < idle < 12
    assert f"{idle} of 12 rounds moved nothing: no client that was asked took part" in said(run)


def test_a_model_no_better_than_a_guess():
    """Rare positives: w = 0 and every answer the same class."""
    draw = np.random.default_rng(0)
    pairs = [(draw.normal(size=(100, 3)), (np.arange(100) < 2).astype(int)) for _ in range(4)]
    rare = federation(pairs, test=pairs)
    run = muster.simulate(
        rare, M.fedavg(), muster.models.Softmax(), 3, muster.Local(steps=20, lr=0.5)
    )
    assert run.facts["majority_test_accuracy"] == pytest.approx(0.98)
    assert run.facts["majority_accuracy"] == pytest.approx(0.98)
    assert "no better than" in said(run) or "worse than a constant" in said(run)
    short = muster.simulate(rare, M.fedavg(), muster.models.Softmax(), 1, muster.Local(steps=1))
    assert "the model is worse than a constant prediction" in said(short)


def test_guesses_against_a_few_lines_of_numpy(fed):
    shares = np.zeros(10)
    tested = np.zeros(10)
    for k in range(fed.n):
        _, y = fed.train.client(k)
        shares += fed.objective[k] * np.bincount(y, minlength=10) / len(y)
        _, y = fed.test.client(k)
        weight = fed.test.row_weights(fed.test.positions(np.array([k])))
        counts = np.bincount(y, weights=weight, minlength=10)
        tested += fed.objective[k] * counts / counts.sum()
    known = compute_baselines(fed)
    assert known["constant_loss"] == pytest.approx(-sum(p * np.log(p) for p in shares if p))
    assert known["majority_accuracy"] == pytest.approx(shares.max())
    assert known["majority_test_accuracy"] == pytest.approx(tested[shares.argmax()])


def test_a_shared_test_set_counts_by_its_mix():
    y = np.repeat(np.arange(3), 10)
    parts = [np.arange(0, 15), np.arange(10, 30)]
    shared = muster.data.federate(np.eye(30), y, parts, test=(np.eye(30), y))
    assert shared.test.label_shares(3) == pytest.approx(shared.train.label_shares(3))


def test_concerns_are_saved_and_printed(fed, tmp_path, capsys):
    run = go(fed, lr=1e30, rounds=2)
    back = muster.load(muster.save(run, tmp_path / "run"))
    assert back.warnings == run.warnings
    Console(width=200).print(run_table(back))
    out = capsys.readouterr().out
    assert "every reply was refused" in out
    assert "majority" in out


def test_what_was_measured_before_the_first_round_survives_a_resume(fed, tmp_path):
    def stop(row):
        if row["round"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted):
        go(fed, checkpoint=tmp_path, on_round=stop)
    assert go(fed, checkpoint=tmp_path, resume=True).facts == go(fed).facts


def test_short_runs_give_clients_time_before_they_may_leave(fed):
    """5 % of 12 rounds is one, in which nobody can have been won over."""
    alone = muster.with_solo(fed, muster.models.Softmax(), 1, muster.Local(steps=1, lr=0.1))
    run = go(alone, M.maxfl(), participation=muster.Flexible())
    pool = run.rounds["pool"].to_list()
    assert pool[:5] == [12] * 5
    assert min(pool) > 0
    assert muster.Flexible().starts(200) == 10, "the paper's"
    assert muster.Flexible().starts(12) == 5
    assert muster.Flexible().starts(3) == 3
    assert muster.Flexible(1).starts(12) == 1, "said in rounds, it is meant"
    assert muster.Flexible(0.05, grace=0).starts(12) == 1


def test_claims_that_are_all_0_because_losses_are_large():
    fed, local = muster.data.diabetes(), muster.Local(steps=5, batch_size=16, lr=0.05)
    how = {"task": muster.tasks.regression()}
    fed = muster.with_solo(fed, muster.models.Linear(), 1, local, **how)
    run = muster.simulate(fed, M.maxfl(), muster.models.Linear(), 2, local, **how)
    assert run.clients["claim"].max() < 1e-6
    assert "every claim is 0, and with it every weight: F_k - rho_k is around" in said(run)
    assert "scale the targets" in said(run)


def test_a_score_that_no_priority_client_has():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(8, 3))
    clients = [(x, np.ones(8, int)), (x, np.arange(8) % 2), (x, np.ones(8, int))]
    task = muster.tasks.binary(scores=("auc",))
    method = M.fedalign(1.0, criterion="score", warmup=0)

    def reasons(priority):
        fed = federation(clients, priority)
        run = muster.simulate(fed, method, muster.models.Linear(), 2, task=task)
        return said(run), run.clients["reason"].to_list()[:3]

    told, reason = reasons([0])
    assert "in 2 of 2 rounds no client outside the objective could join" in told
    assert reason == ["priority", "F(w) unknown", "F(w) unknown"]
    told, reason = reasons([1])
    assert "could join" not in told
    assert reason == ["auc unknown", "priority", "auc unknown"]


def printed(runs):
    """The warnings of runs as a terminal shows them."""
    return [line.plain for line in format_warnings(list_warnings(runs))]


def test_a_warning_of_several_methods_comes_once_with_the_numbers_of_one(fed):
    bad = [replace(go(fed), seed=s, facts={"moved": True, "start_loss": 1e-9}) for s in (3, 4)]
    assert all("the loss did not fall: 1e-09" in run.warnings[0] for run in bad)
    (line,) = printed({"a": bad, "b": [bad[0], go(fed)]})
    assert line.startswith("warning: a, b (1 of 2 seeds): the loss did not fall")
    assert line.endswith("(numbers of a, seed 3)")
    (alone,) = printed({"a": bad[:1]})
    assert "numbers of" not in alone


def test_warnings_that_begin_with_a_number_are_distinguished(fed, monkeypatch):
    one, other = "3 of 9 rounds moved nothing", "in 4 of 9 rounds somebody gave no answer"
    wrong = {3: [one], 4: [other, "in 2 of 9 rounds every reply was refused: because"]}
    monkeypatch.setattr(muster.Run, "warnings", property(lambda run: wrong[run.seed]))
    runs = {"a": [replace(go(fed, rounds=1), seed=3)], "b": [replace(go(fed, rounds=1), seed=4)]}
    assert printed(runs) == [
        f"warning: a: {one}",
        f"warning: b: {other}",
        "warning: b: in 2 of 9 rounds every reply was refused: because",
    ]


def test_a_warm_up_as_long_as_the_run(fed):
    """Nobody outside the objective is ever asked: FedALIGN is then FedAvg on priority clients."""
    run = go(fed, M.fedalign(warmup=50))
    assert "all 12 rounds are warm-up (warmup = 50): no client outside" in said(run)
    assert "warm-up" not in said(go(fed, M.fedalign(warmup=5)))


def band(fed, epsilon, rounds=12, **more):
    return go(fed, M.fedalign(epsilon, warmup=1, **more), rounds=rounds)


def test_a_band_that_admits_nobody_is_a_warning(fed):
    run = band(fed, 1e-6)
    assert run.rounds["admitted_nonpriority"].sum() == 0
    assert "epsilon 1e-06 admits nobody here: this is training without help" in said(run)
    assert "--method assist" in said(run)
    assert "--method.epsilon auto" in said(run)


@pytest.mark.parametrize("more", [{}, {"criterion": "score"}, {"availability": 0.7}])
def test_a_band_that_admits_everybody_is_a_warning(fed, more):
    assert "epsilon 50 admits everybody: this is FedAvg on all" in said(band(fed, 50, **more))
    falling = band(fed, muster.schedules.Linear(60, 50), **more)
    assert "epsilon 50 to 60 admits everybody" in said(falling)


def test_a_band_that_makes_a_difference_raises_no_concern(fed):
    run = band(fed, 0.3)
    assert 0 < run.rounds["admitted_nonpriority"].sum() < 8 * 11
    assert not run.warnings


@pytest.mark.parametrize("epsilon", [0.0, np.inf])
def test_an_epsilon_that_says_so_itself_is_not_explained(fed, epsilon):
    assert not band(fed, epsilon).warnings


def test_a_band_that_closes_in_the_end_did_something(fed):
    assert not band(fed, muster.schedules.StepTo(50, at_round=8)).warnings


def test_a_few_rounds_give_no_warning_about_a_band(fed):
    assert not band(fed, 50, rounds=5).warnings


def test_helpers_that_are_never_asked_give_no_warning_about_a_band(fed):
    everyone = replace(fed, priority=np.ones(fed.n, bool), importance=np.ones(fed.n))
    assert "epsilon" not in said(band(everyone, 0.2))


ALIKE = "every client is priority"


@pytest.mark.parametrize("method", [
    M.fedalign(), M.fedavg_priority(), M.assist(), M.assist("crossfit"), M.fedda(), M.fedfomo(),
    M.fedavg(warmup=0.5),
])  # fmt: skip
def test_a_method_for_priority_clients_where_everyone_is_one(method):
    everyone = muster.data.digits(clients=4, priority="all")
    (warning,) = [w for w in go(everyone, method, rounds=2).warnings if ALIKE in w]
    assert warning.endswith("say whose model it is: data.priority")
    two = muster.data.digits(clients=4, priority=2)
    assert ALIKE not in said(go(two, method, rounds=2))


def test_methods_without_roles_give_no_warning_about_priority():
    everyone = muster.data.digits(clients=4, priority="all")
    asking = replace(everyone, requirement=np.full(4, 1.0))
    for method in (M.fedavg(), M.local(), M.qffl(), M.scaffold()):
        assert ALIKE not in said(go(everyone, method, rounds=2))
    assert ALIKE not in said(go(asking, M.maxfl(), rounds=2))


def test_a_comparison_without_roles_says_so_once_with_a_client_to_name():
    everyone = muster.data.digits(clients=3, priority="all")
    named = replace(everyone, names=np.array(["st. o'hara", "north", "south"]))
    methods = [M.fedalign(), M.fedavg_priority(), M.fedavg()]
    both = muster.compare(named, methods, muster.models.Softmax(), rounds=2, seeds=1)
    (warning,) = [w for w in list_warnings(both.runs) if ALIKE in w]
    assert warning.startswith(f"fedalign, fedavg_priority: {ALIKE}: ")
    shown = shlex.split(warning.rpartition("--data.priority ")[2])
    assert json.loads(shown[0]) == ["st. o'hara"]

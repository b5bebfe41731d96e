"""Advice from runs: every way with the same budget, on rows held out, for each client."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import muster
from muster.data.split.resplit import split_again
from muster.federation import Variation
from muster.study.advice_plan import ALONE, ASSIST, EVERYONE, MAXFL
from muster.study.advice_runs import AdvicePlan, advise_from, run_seed
from muster.study.way_records import (
    average_rows,
    client_ratio,
    collect_trials,
    count_outcomes,
    summarise_client,
)

WORK = muster.Local(steps=10, batch_size=None, lr=0.1)
TASK = muster.tasks.regression()


def linear_clients(sizes, models, seed=0):
    draw = np.random.default_rng(seed)

    def rows(n, b):
        x = draw.normal(size=(n, len(b)))
        return x, x @ b + draw.normal(size=n)

    pairs = [rows(n, b) for n, b in zip(sizes, models, strict=True)]
    return muster.Federation.from_arrays(pairs, classes=0)


B = np.array([1.0, -2.0, 0.5, 3.0, 0.0, 1.0, -1.0, 2.0])


@pytest.fixture(scope="module")
def small_and_large():
    """One client of 24 rows of 24 features next to one of 300 of the same kind."""
    fed = linear_clients([24, 300], [np.tile(B, 3)] * 2)
    return muster.advise(fed, rounds=3, local=WORK, seeds=4)


def test_a_small_client_joins_and_a_large_one_of_its_kind_helps(small_and_large):
    small, large = small_and_large["0"], small_and_large["1"]
    assert small.verdict == "join"
    low, mean, high = small.best.gain
    assert 0 < low < mean < high
    assert mean == pytest.approx(small.alone.loss - small.best.loss)
    assert (large.verdict, large.helps) == ("help", ("0",))


def test_clients_that_contradict_each_other_stay_out():
    fed = linear_clients([200, 200], [B, -B])
    advice = muster.advise(fed, rounds=2, local=WORK, seeds=3)
    assert [c.verdict for c in advice.clients.values()] == ["stay out"] * 2
    assert advice["0"].ways["with 1"].clear == "harm"


def test_advice_as_json_and_in_sentences(small_and_large):
    table = small_and_large.table
    assert table["clients"]["0"]["verdict"] == "join"
    assert len(table["clients"]["0"]["gain"]) == 3
    text = " ".join(client.sentence() for client in small_and_large.clients.values())
    assert "0 clearly gains by training with it" in text
    assert text.isascii(), "no Greek"
    assert "2 clients" not in repr(small_and_large)
    assert repr(small_and_large).startswith("Advice(federation: 1 join, 1 help")


def test_advice_says_what_in_the_data_may_change_it(tmp_path):
    draw = np.random.default_rng(0)
    for client, name in (("a", "benign"), ("b", "benign"), ("c", "bening")):
        x = draw.normal(size=40)
        x[:2] = 9999 if client == "a" else x[:2]
        frame = pl.DataFrame({"x": x, "label": [name, "malignant"] * 20})
        frame.write_csv(tmp_path / f"{client}.csv")
    fed = muster.Federation.from_folder(tmp_path, scale="pooled")
    remarks = muster.advise(fed, rounds=1, seeds=3, pairs=0).table["remarks"]
    assert any("class 'bening' is at c alone, without 'benign'" in r for r in remarks)
    assert any("decides the scale: 9999 at client a" in r for r in remarks)


def plan_for(fed, rounds=3):
    job = muster.Job(
        muster.methods.fedavg(), muster.models.Linear(), WORK, rounds, task=TASK
    )  # fmt: skip
    return AdvicePlan(fed, job, muster.Compute(), True, True)


def test_every_way_takes_the_steps_that_alone_takes():
    plan = plan_for(linear_clients([20, 30, 40], [B, B, B]))
    record = run_seed(plan, 0)
    assert list(record.ways) == [ALONE, "with 0", "with 1", "with 2", EVERYONE, ASSIST, MAXFL]
    for run in record.runs.values():
        steps = run.clients.group_by("client").agg(pl.col("steps").sum())
        assert steps["steps"].to_list() == [30] * 3


def test_by_maxfl_a_client_requires_what_it_has_alone():
    record = run_seed(plan_for(linear_clients([20, 30, 40], [B, B, B])), 0)
    alone, maxfl = (record.runs[way].final for way in (ALONE, MAXFL))
    assert maxfl["requirement"].to_list() == pytest.approx(alone["train_loss"].to_list())


def test_a_pair_is_fedavg_of_the_two_on_their_own_rows():
    fed = linear_clients([20, 30, 40], [B, B, -B])
    plan = plan_for(fed)
    record = run_seed(plan, 5)
    again = plan.federation(5)
    two = muster.Federation.from_arrays(
        [again.train.client(k) for k in (0, 1)], [again.test.client(k) for k in (0, 1)], classes=0
    )
    run = muster.simulate(
        two, muster.methods.fedavg(), muster.models.Linear(), 3, WORK, 5, task=TASK
    )
    assert record.ways["with 1"].loss[0] == pytest.approx(run.final["test_loss"][0], rel=1e-5)
    assert record.ways["with 0"].loss[1] == pytest.approx(run.final["test_loss"][1], rel=1e-5)
    assert np.isnan(record.ways["with 1"].loss[1]), "nobody pairs with itself"


def test_a_row_counts_once_by_its_mean_over_the_seeds_that_held_it_out():
    plan = plan_for(linear_clients([20, 30], [B, B]))
    records = [run_seed(plan, seed) for seed in range(3)]
    rows: dict[int, list[float]] = {}
    for record in records:
        losses = record.ways["with 1"].answers[0].loss
        assert record.ways["with 1"].loss[0] == pytest.approx(losses.mean(), rel=1e-5)
        for key, loss in zip(record.row_hashes[0].tolist(), losses, strict=True):
            rows.setdefault(key, []).append(loss)
    means = [np.mean(values) for _, values in sorted(rows.items())]
    assert len(means) <= 20
    found = average_rows(
        [r.row_hashes[0] for r in records], [r.ways["with 1"].answers[0].loss for r in records]
    )
    np.testing.assert_allclose(found, means)
    trials = collect_trials([summarise_client(records, k) for k in range(2)], True)
    assert trials.gains["with 1", 0].count == len(means)
    assert trials.by_row
    assert not trials.ratio.any()


def test_where_clients_are_dealt_other_rows_units_are_seeds_with_the_correction():
    fed = muster.data.digits(clients=3)
    plan = replace(plan_for(lambda seed: muster.data.digits(clients=3, seed=seed)), fixed=False)
    plan = replace(plan, job=replace(plan.job, task=muster.tasks.multiclass()))
    records = [run_seed(plan, seed) for seed in range(3)]
    trials = collect_trials([summarise_client(records, k) for k in range(3)], False)
    assert not trials.by_row
    assert trials.gains[EVERYONE, 0].count == 3
    test, total = fed.test.sizes[0], fed.train.sizes.sum() + fed.test.sizes.sum()
    assert trials.ratio[0] == pytest.approx(test / (total - test), rel=0.01)


def test_the_correction_of_one_client():
    assert client_ratio(Variation("split", 750, 250), 30, 10) == pytest.approx(1 / 3)
    assert client_ratio(Variation("data", 750, 250), 30, 10) == 0


def test_a_federation_that_is_the_same_in_every_seed_is_split_again():
    fed = linear_clients([20, 30], [B, B])
    fixed = muster.advise(
        lambda seed: replace(split_again(fed, 0), varies="training"), rounds=1, seeds=3
    )
    assert "held out in turn by 3 splits" in fixed.note


def test_a_client_of_one_class_is_not_judged():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 2))
    y = (x[:, 0] > 0).astype(int)
    y[:30] = [1, *[0] * 29]
    fed = muster.Federation.from_arrays([(x[:30], y[:30]), (x[30:], y[30:])])
    advice = muster.advise(fed, rounds=1, seeds=3)
    assert advice["0"].verdict in ("cannot tell", "help")
    assert "Nearly all of its rows are of one class" in advice["0"].sentence()
    assert advice["0"].ways == {}
    assert not advice["1"].thin


def test_outcomes_of_two_classes_are_counted():
    p = np.array([0.05, 0.2, 0.6, 0.99, 1.0, 0.5])
    truth = np.array([0, 1, 0, 1, 1, 1], bool)
    found = count_outcomes(p, truth)
    assert (found.hits, found.misses, found.rejections, found.alarms) == (3, 1, 1, 1)
    assert found.sensitivity == 0.75
    assert found.specificity == 0.5
    assert found.bins[9] == (2, pytest.approx(1.99), 2)
    assert sum(n for n, _, _ in (found + found).bins) == 12


def test_the_hospitals_have_outcomes_and_names():
    advice = muster.advise(lambda seed: muster.data.heart(seed=seed), rounds=2, seeds=3)
    assert list(advice.clients) == ["cleveland", "hungarian", "switzerland", "va"]
    va = advice["va"].table
    assert 0 <= va["alone"]["sensitivity"] <= 1
    assert va["alone"]["scores"].keys() == {"accuracy", "auc"}, "rows are no score"
    assert sum(n for n, _, _ in va["alone"]["calibration"]) == 3 * va["test_rows"]
    assert va["rows"] + va["test_rows"] == 200
    assert va["ways"][EVERYONE]["bytes_up"] > 0
    assert advice.classes == ("healthy", "ill")
    with pytest.raises(muster.MusterError, match="unknown client 'Va'"):
        advice["Va"]


def test_a_client_of_three_rows_does_not_keep_the_others_from_advice():
    advice = muster.advise(linear_clients([3, 40, 40], [B] * 3), rounds=1, seeds=3, task=TASK)
    assert advice["0"].verdict in ("cannot tell", "help")
    assert "No way to take part could be measured: it has 3 rows." in advice["0"].sentence()
    assert "would not tell" not in advice["0"].sentence()
    assert all(advice[name].ways for name in "12")


def test_a_warning_about_the_data_is_given_once_for_all_seeds(recwarn):
    draw = np.random.default_rng(0)
    pairs = [(draw.normal(size=(20, 2)), np.arange(20) % 2 * k) for k in (0, 1)]
    with pytest.warns(muster.MusterWarning, match="hold a single class"):
        fed = muster.Federation.from_arrays(pairs, classes=2)
    muster.advise(fed, rounds=1, seeds=3)
    assert not [w for w in recwarn if "single class" in str(w.message)]


@pytest.mark.parametrize(
    ("fed", "how", "said"),
    [
        (lambda: linear_clients([30], [B]), {}, "a single client"),
        (lambda: linear_clients([30, 30], [B, B]), {"seeds": 2}, "seeds: 2"),
        (
            lambda: linear_clients([30, 30], [B, B]),
            {"seeds": 3, "local": muster.Local(steps=20, batch_size=None, lr=1e20)},
            "client 0: training alone gave no finite loss",
        ),
    ],
)
def test_what_cannot_be_advised(fed, how, said):
    with pytest.raises(muster.MusterError, match=said):
        muster.advise(fed(), **{"rounds": 1, **how})


def compared(labels, varies="data"):
    methods = {label: getattr(muster.methods, label)() for label in labels}

    def data(seed):
        fed = linear_clients([12, 40], [B, B], seed)
        return replace(split_again(fed, 0), varies=varies)

    return muster.compare(data, methods, muster.models.Linear(), 3, WORK, seeds=4, task=TASK)


def test_advice_from_a_comparison_that_was_run():
    done = compared(["local", "fedavg"])
    advice = advise_from(done)
    gain = [
        a.final["test_loss"][0] - b.final["test_loss"][0]
        for a, b in zip(done["local"], done["fedavg"], strict=True)
    ]
    assert advice["0"].ways["by fedavg"].gain[1] == pytest.approx(np.mean(gain))
    with pytest.raises(muster.MusterError, match="run it with --method local too"):
        advise_from(compared(["fedavg"]))
    with pytest.raises(muster.MusterError, match="all seeds of this comparison have the same rows"):
        advise_from(compared(["local", "fedavg"], "training"))


@pytest.mark.slow
def test_workers_come_to_the_same(tmp_path):
    fed = linear_clients([20, 30], [B, B])
    one, two = (muster.advise(fed, rounds=2, seeds=4, jobs=jobs) for jobs in (1, 2))
    assert one.table == two.table


def test_a_module_of_your_own_is_advised_on():
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    advice = muster.advise(linear_clients([20, 30], [B, B]), module, rounds=1, seeds=3)
    assert np.isfinite(advice["0"].best.gain).all()

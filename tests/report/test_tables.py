"""Tables: the measures asked for, and text from users as it is."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import muster
import reference
from helpers import federation
from muster.report.html import headline
from muster.report.html.content import Content
from muster.report.tables import comparison_tables, run_table


@pytest.fixture(scope="module")
def runs():
    data, priority = reference.problem(0, clients=6)
    fed = federation(data, priority, test=data)
    m = muster.methods
    return {
        label: [muster.simulate(fed, method, muster.models.Softmax(), 4, seed=s) for s in (0, 1)]
        for label, method in {"fedalign": m.fedalign(0.5), "all": m.fedavg()}.items()
    }


def text(*renderables, width=160):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(*renderables)
    return capture.get()


MEASURES = "loss, test_accuracy, fairness, train_accuracy, bytes_up, mean_test_accuracy"
NUMBER = re.compile(r"[+-]?\d+\.\d+(?:(?:±|\+-)\d+\.\d+)?\*?")


def letters(printed):
    """What is printed, without how it is laid out."""
    return re.sub(r"[\s|+─-]", "", printed)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_every_number_and_star_is_there_at_any_width(runs, width, encoding):
    names = ["fedalign", *(f"a method with a very long name, number {i}" for i in range(11))]
    many = {name: runs["fedalign" if i % 3 else "all"] for i, name in enumerate(names)}
    # The same difference for each seed: clear beyond doubt.
    better = [replace(r, rounds=r.rounds.with_columns(pl.col("loss") - 5)) for r in runs["all"]]
    many["far better"] = better
    tables = comparison_tables(many, [2, 4], MEASURES)

    def printed(width):
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        console = Console(width=width, file=file, legacy_windows=False)
        console.print(*tables)
        file.flush()
        return file.buffer.getvalue().decode(encoding)

    out, whole = printed(width), printed(2000)
    assert max(map(len, out.splitlines())) <= width
    assert sorted(NUMBER.findall(out)) == sorted(NUMBER.findall(whole))
    expected = 12 * 7 + 12 + 13 * 7 + 13 * 4
    assert len([n for n in NUMBER.findall(whole) if "." in n]) >= expected - 12
    assert out.count("*") == whole.count("*") > 1
    assert "…" not in out
    for name in names[1:]:
        assert letters(name)[:12] in letters(out)
    assert ("±" in out) == (encoding == "utf-8")


def test_a_narrow_run_table_has_every_number(runs):
    run = runs["fedalign"][0]
    for width in (40, 60):
        out = text(run_table(run), width=width)
        assert sorted(NUMBER.findall(out)) == sorted(NUMBER.findall(text(run_table(run))))
        assert max(map(len, out.splitlines())) <= width


def test_nobody_is_called_a_priority_client_where_everybody_is(runs):
    shown = text(*comparison_tables(runs, [4]))
    assert "priority clients' test accuracy and training loss: mean" in shown
    final = pl.col("priority") | True
    all_in = {
        label: [replace(run, final=run.final.with_columns(final)) for run in mine]
        for label, mine in runs.items()
    }
    out = text(*comparison_tables(all_in, [4]))
    assert "priority" not in out
    assert "test accuracy and training loss: mean" in out


def cells(printed, label):
    """The numbers after a label, table by table."""
    return [line.split()[1:] for line in printed.splitlines() if line.split()[:1] == [label]]


def test_a_comparison_shows_the_first_measure_at_every_round_and_the_rest_at_the_last(runs):
    out = text(*comparison_tables(runs, [2, 4]))
    heads = next(line for line in out.splitlines() if line.split()[:1] == ["method"])
    assert heads.split() == ["method", *["test", "acc", "@2", "test", "acc", "@4", "loss", "@4"]]
    assert "mean ± 95 %, 2 seeds" in " ".join(out.split())
    out = text(*comparison_tables(runs, [2, 4], "fairness,bytes_up,own_loss"))
    heads = next(line for line in out.splitlines() if line.split()[:1] == ["method"])
    for head in ("fairness @2", "fairness @4", "upload kB @4", "own loss @4"):
        assert head in heads
    up = [r.rounds["bytes_up"][-1] / 1e3 for r in runs["all"]]
    loss = text(*comparison_tables(runs, [4], "loss"))
    assert cells(out, "all")[0][2:] == [f"{sum(up) / 2:.3f}±0.000", cells(loss, "all")[0][0]]


def test_personalised_methods_are_judged_by_the_models_that_clients_use():
    """Ditto's global model is FedAvg's: what it is for shows in the clients' own."""
    fed = muster.data.digits(clients=12, priority=4)
    M = muster.methods
    methods = [M.fedavg(), M.ditto(0.1), M.perfedavg(0.1), M.pfedme(), M.local()]
    both = muster.compare(
        fed, methods, muster.models.Softmax(), 6, muster.Local(steps=8, lr=0.1), seeds=2
    )
    # test acc, own test acc, loss, own loss
    assert cells(text(both), "fedavg")[0][::2] == cells(text(both), "ditto")[0][::2]
    table = both.summary().filter(pl.col("measure") == "own_test_accuracy")
    own = dict(zip(table["method"], table["mean"], strict=True))
    for label in ("ditto", "perfedavg", "pfedme"):
        kept = [run.rounds["own_test_accuracy"][-1] for run in both[label]]
        assert own[label] == pytest.approx(np.mean(kept))
    for label in ("fedavg", "local"):  # one model for all; own models that are the method's model
        used = [run.rounds["test_accuracy"][-1] for run in both[label]]
        assert own[label] == pytest.approx(np.mean(used))
    assert own["ditto"] > own["fedavg"] + 0.02
    assert "own test acc @6" in " ".join(text(both).split())


def test_intervals_state_in_the_table_what_they_cover():
    """Seeds on one federation vary the training alone, which is stated above the numbers."""

    def draws(seed):
        return muster.data.synth(priority=3, others=3, seed=seed)

    both = [muster.methods.fedalign(), muster.methods.fedavg()]
    told = {
        name: muster.compare(data, both, muster.models.Softmax(), 2, seeds=2)
        for name, data in {"one": draws(0), "drawn": draws}.items()
    }
    one, drawn = (" ".join(text(done).split()) for done in told.values())
    alone = "2 seeds on the same rows: the chance in training alone, not in data"
    assert f"mean ± 95 %, {alone} method" in one
    assert "mean ± 95 %, 2 seeds, each with new data method" in drawn
    assert repr(told["one"]).endswith(f"; {alone})")
    assert alone in headline.render_headline(Content(told["one"].runs)).body
    assert set(told["one"].summary()["varies"]) == {"training"}


def test_a_summary_prints_its_mean(runs):
    """polars leaves out the columns in the middle of many."""
    shown = str(muster.study.comparison.Comparison(runs, (0, 1)).summary())
    for column in ("method", "measure", "varies", "mean", "half", "difference"):
        assert f" {column} " in shown


def test_one_seed_is_one_seed(runs):
    one = {label: mine[:1] for label, mine in runs.items()}
    assert "mean ± 95 %, 1 seed method" in " ".join(text(*comparison_tables(one, [4])).split())


def test_labels_and_methods_are_printed_as_they_are(runs):
    odd = {f"[red]{label}[/red] :smile:": mine for label, mine in runs.items()}
    out = text(*comparison_tables(odd, [4]))
    assert out.count("[red]fedalign[/red] :smile:") == 3, "two rows and the head of the differences"
    assert out.count("[red]all[/red] :smile:") == 3
    odd = replace(runs["all"][0], method="[bold]x", note="[link=a]b")
    out = text(run_table(odd))
    assert "[bold]x, seed 0" in out
    assert "data: [link=a]b" in out


def test_a_run_shows_all_it_took_or_what_was_asked_for(runs):
    run = runs["fedalign"][0]
    out = text(run_table(run))
    for name in ("loss", "train accuracy", "test loss", "fairness", "mean test accuracy"):
        assert f"│ {name} " in out
    assert "gm appeal" not in out
    out = text(run_table(run, ["theta", "gm_appeal", "bytes_down"]))
    assert f"{run.rounds['theta'][-1]:.4f}" in out
    assert "train accuracy" not in out
    (row,) = [line for line in out.splitlines() if "gm appeal" in line]
    assert row.split("│")[2].strip() == "-"
    (row,) = [line for line in out.splitlines() if "download kB" in line]
    assert row.split("│")[2].strip() == f"{run.rounds['bytes_down'][-1] / 1e3:.4f}"

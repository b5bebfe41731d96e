"""What the report says, read without a browser."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zlib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from rich.console import Console

import muster
from big_run import NASTY, big_run
from muster.report.html import (
    client_sections,
    headline,
    page,
    participation_sections,
    run_sections,
)
from muster.report.html.content import Content
from muster.report.html.page import SECTIONS, render_inline, render_page


def data_of(text):
    """The numbers in a page."""
    (found,) = re.findall(
        r'<script type="application/json" id="numbers">(.*?)</script>', text, re.S
    )
    return json.loads(found)


def unpacked(text, dtype, shape):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype).reshape(shape)


def shifted(run, by):
    """The same run with another loss."""
    return replace(run, rounds=run.rounds.with_columns(pl.col("loss") + by))


@pytest.fixture(scope="module")
def runs():
    fed = muster.data.digits(clients=8, priority=3)
    work = muster.Local(steps=5, batch_size=16, lr=0.1)
    fed = muster.with_solo(fed, muster.models.Softmax(), 6, work)
    m = muster.methods
    return {
        label: [
            muster.simulate(fed, method, muster.models.Softmax(), 6, work, seed=s) for s in (0, 1)
        ]
        for label, method in {"fedalign": m.fedalign(0.5), "all": m.fedavg()}.items()
    }


def test_sections_come_in_the_order_that_was_asked_for(runs):
    text = render_page(Content(runs))
    assert re.findall(r'<section id="(\w+)"', text) == [
        *("result", "curves", "differences", "participation", "helpers", "clients", "appeal"),
        *("attackers", "band", "privacy", "costs", "data", "configuration"),
    ]
    assert len(SECTIONS) == 13


def test_nothing_is_loaded_from_anywhere(runs):
    text = render_page(Content(runs))
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", text)
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    script = re.findall(r"<script>(.*?)</script>", text, re.S)[-1]
    told = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{told}'" in policy
    assert "unsafe" not in policy


def test_names_are_text_and_never_code():
    named = NASTY + [f"plain {i}" for i in range(12)]
    run = big_run(20, 6, names=named)
    run = replace(run, note=NASTY[0], config={"name": NASTY[1], "data": {"name": NASTY[0]}})
    text = render_page(Content({NASTY[0]: [run], NASTY[1]: [run]}, title=NASTY[1]))
    # The only elements that run are the ones the page is made of.
    assert re.findall(r"<script[^>]*>", text) == [
        '<script type="application/json" id="numbers">', "<script>",
    ]  # fmt: skip
    assert text.count("</script>") == 2
    assert "<b>" not in text
    assert "<!--" not in text
    data = data_of(text)
    assert data["sections"]["clients"]["runs"]["0/0"]["client"] == named
    assert [m["label"] for m in data["methods"]] == NASTY[:2]


def test_a_notebook_gets_the_answer_and_a_separate_frame(runs):
    text = render_inline(runs)
    assert text.startswith("<p><b>")
    assert 'sandbox="allow-scripts allow-downloads"' in text
    assert text.count("<script") == 0, "it is all inside an attribute"
    assert runs["all"][0]._repr_html_().count("<iframe") == 1


def test_the_winner_is_named_only_where_every_interval_says_so():
    seeds = [big_run(6, 8, seed=s) for s in range(4)]
    wobble = [0.3, -0.3, 0.25, -0.3]
    better = [shifted(run, -0.1 - 0.001 * i) for i, run in enumerate(seeds)]
    unsure = [shifted(run, -0.05 + w) for run, w in zip(seeds, wobble, strict=True)]

    def of(runs):
        return headline.rank_methods(Content(runs, measures=("loss",)))[0]

    clear = of({"a": seeds, "b": better})
    assert (clear.best, clear.clear, clear.unclear) == ("b", ["a"], [])
    assert clear.headline() == "b wins on priority training loss"
    assert "Seed by seed it is clearly lower than a by 0.10" in clear.sentence()
    both = of({"a": seeds, "b": better, "c": unsure})
    assert both.best == "b"
    assert both.unclear == ["c"]
    assert "clearly of a, not clearly of c" in both.headline()
    assert "the interval covers 0" in both.sentence()
    neither = of({"a": seeds, "c": unsure})
    assert neither.headline() == "no clear winner on priority training loss"
    assert clear.headline(["x", "y"]) == "b wins on x and y"


def test_training_loss_is_no_headline_where_rows_are_held_out():
    """A model of its own has the lowest training loss; that is no win."""
    fed = muster.data.digits(clients=6, priority=3)
    m = muster.methods
    done = muster.compare(
        fed, [m.fedavg_priority(), m.local()], muster.models.Softmax(), 5, seeds=2
    )  # fmt: skip
    head, *rest = headline.describe_results(Content(done.runs))
    assert "test accuracy" in head
    assert "training loss" not in head
    assert "training loss" in " ".join(rest)
    means = {
        label: 100 * np.mean([run.rounds["test_accuracy"][-1] for run in runs])
        for label, runs in done.runs.items()
    }
    first, last = sorted(means, key=lambda label: -means[label])
    assert rest[0].startswith("Right on average, of 100 test rows of the priority clients (")
    assert rest[0].endswith(f": {first} {means[first]:.0f}, {last} {means[last]:.0f}.")
    printed = Console(file=io.StringIO(), width=300)
    printed.print(done)
    lines = printed.file.getvalue().splitlines()
    assert lines[:2] == [head, rest[0]], "a comparison begins with its answer"
    assert re.search(r"^ local +- ", "\n".join(lines), re.MULTILINE), "alone, nobody is admitted"
    asked = replace(done, measures="loss, test_accuracy")
    assert page.describe(asked.runs, (), asked.measures)[0] == head, "measures may be one text"
    assert repr(done).startswith("Comparison(test_accuracy after round 5: ")
    both = Content(done.runs, measures=("loss", "test_accuracy"))
    assert "training loss" not in headline.describe_results(both)[0]
    asked = Content(done.runs, measures=("loss",))
    assert "training loss" in headline.describe_results(asked)[0], "asked for, and nothing else"


def test_seeds_that_all_say_the_same_are_no_proof():
    seeds = [replace(big_run(6, 8), seed=s) for s in range(3)]
    better = [shifted(run, -0.5) for run in seeds]
    same = {"a": seeds, "b": better, "c": better}
    content = Content(same, measures=("loss",))
    assert "says little about chance" in headline.render_headline(content).body
    assert "the same as that of c" in headline.rank_methods(content)[0].sentence()


def test_less_loss_is_better_and_more_accuracy(runs):
    better = [
        replace(r, rounds=r.rounds.with_columns(pl.col("loss") - 1, pl.col("test_accuracy") + 1))
        for r in runs["all"]
    ]
    content = Content({**runs, "best": better}, measures=("loss", "test_accuracy"))
    assert [s.best for s in headline.rank_methods(content)] == ["best", "best"]


def test_one_seed_has_no_interval_and_one_method_no_rival(runs):
    alone = {label: mine[:1] for label, mine in runs.items()}
    assert "one seed says nothing about chance" in " ".join(
        headline.describe_results(Content(alone))
    )
    (said,) = headline.describe_results(Content({"fedalign": runs["fedalign"][:1]}))
    assert "There is no other method to compare it with." in said
    assert "loss" in said


def test_the_cost_is_that_of_the_best(runs):
    said = headline.describe_results(Content(runs))[-1]
    best = headline.rank_methods(Content(runs))[0].best
    sent = np.mean([r.rounds["bytes_up"].sum() for r in runs[best]])
    assert f"{best} uploads {sent / 1e3:.1f} kB in a run" in said, "and not 0.0 MB"


def test_the_picture_has_what_happened_to_everyone():
    run = big_run(12, 9)
    made = participation_sections.encode_cells(run)
    cells = unpacked(made["cells"], np.uint8, made["shape"])
    for t, k, joined, admitted, reason, priority in run.clients.select(
        "round", "client", "joined", "admitted", "reason", "priority"
    ).rows():
        state, why = made["kinds"][cells[k, t - 1]]
        assert why == reason
        kind = participation_sections
        if reason.startswith("failed"):
            expected = kind.FAILED
        elif admitted:
            expected = kind.PRIORITY if priority else kind.HELPER
        else:
            expected = kind.REFUSED if joined else kind.SILENT
        assert state == expected


def test_those_who_left_are_away_until_they_return():
    run = big_run(4, 6)
    asked = run.clients.filter(~((pl.col("client") == 1) & pl.col("round").is_in([2, 3])))
    made = participation_sections.encode_cells(replace(run, clients=asked))
    cells = unpacked(made["cells"], np.uint8, made["shape"])
    states = [made["kinds"][c][0] == participation_sections.LEFT for c in cells[1]]
    assert states == [False, True, True, False, False, False]


def test_many_reasons_share_a_code_of_their_state():
    run = big_run(20, 60)
    own = run.clients.with_columns(reason=pl.lit("late by ") + pl.int_range(pl.len()).cast(str))
    made = participation_sections.encode_cells(replace(run, clients=own))
    cells = unpacked(made["cells"], np.uint8, made["shape"])
    assert len(made["kinds"]) <= 256
    states = {made["kinds"][c][0] for c in np.unique(cells)}
    assert participation_sections.NOT_ASKED not in states


def test_clients_alone_and_together(runs):
    content = Content(runs)
    run = runs["fedalign"][0]
    made = data_of(render_page(content))["sections"]["clients"]["runs"]["0/0"]
    first = run.clients.filter(pl.col("client") == 0).drop_nulls("loss")["loss"][0]
    assert made["first training loss"][0] == pytest.approx(first, rel=1e-4)
    last = run.final["train_loss"].to_list()
    assert made["last training loss"] == pytest.approx(last, rel=1e-4)
    own = run.final["solo_accuracy"].to_list()
    assert made["alone test score"] == pytest.approx(own, rel=1e-4)
    assert 0 < max(own) <= 1
    gap = np.mean(
        [r.final["test_accuracy"] - r.final["solo_accuracy"] for r in runs["fedalign"]], 0
    )
    assert made["gain"] == pytest.approx(gap.tolist(), abs=1e-4)
    assert None not in made["± 95 %"]
    assert made["test rows"] == run.final["test_rows"].to_list()
    assert made["admitted"][0] == run.clients.filter(pl.col("client") == 0)["admitted"].sum()
    assert sum(made["share of the steps"]) == pytest.approx(1, abs=1e-2)
    body = client_sections.render_clients(content).body
    assert "held-out accuracy of the federated model over that of each client" in body
    assert "30 steps in a run, 30 steps alone" in body
    assert "test rows: one is" in body


def test_no_gain_is_shown_where_it_is_not_known(runs):
    """The loss since the first round is no gain over training alone."""
    bare = [replace(r, final=r.final.drop("solo_accuracy")) for r in runs["all"]]
    made = client_sections.render_clients(Content({"all": bare}))
    assert set(made.data["runs"]["0/0"]["gain"]) == {None}
    made_twice = client_sections.render_clients(Content({"all": bare, "b": bare}))
    assert made_twice.body.count("models alone were not measured") == 1, "of both at once"
    assert "all and b: no gain, the clients&#x27; models alone were not measured" in made_twice.body
    assert "no gain, the clients&#x27; models alone were not measured" in made.body
    assert "--method local" in made.body


def test_what_silence_saved_is_what_those_who_joined_spent(runs):
    run = runs["fedalign"][0]
    quiet = run.clients.filter(~pl.col("joined"))
    times, spared, steps = run_sections.count_savings(run)
    assert times == len(quiet) > 0
    up = run.clients.filter("joined")["bytes_up"].mean() - quiet["bytes_up"].mean()
    assert spared == pytest.approx(times * up / 1e6)
    assert steps == times * 5


def test_who_holds_what_is_kept_with_the_run(runs, tmp_path):
    run = runs["all"][0]
    assert run.holdings["rows"].sum() == run.final["rows"].sum()
    muster.save(run, tmp_path / "run")
    assert muster.load(tmp_path / "run").holdings.equals(run.holdings)
    data = data_of(render_page(Content(runs)))["sections"]["data"]
    held = data["runs"]["0/0"]
    table = unpacked(held["rows"], np.uint32, held["shape"])
    assert table.sum(1).tolist() == run.final["rows"].to_list()
    assert list(data["runs"]) == ["0/0"], "the same data for both seeds is kept once"


def test_how_to_get_it_again(runs):
    config = {"name": "x", "out": "/home/somebody", "seeds": 2, "methods": [{"label": "a"}] * 2}
    same = {label: [replace(r, config=config) for r in mine] for label, mine in runs.items()}
    body = run_sections.render_configuration(Content(same)).body
    assert "muster compare config.toml" in body
    assert "somebody" not in body
    assert muster.__version__ in body
    other = {**same, "all": [replace(r, config={**config, "rounds": 9}) for r in same["all"]]}
    assert "different settings (rounds)" in run_sections.render_configuration(Content(other)).body
    assert run_sections.differing_settings(Content(same)) == []


def test_attackers_have_their_section():
    fed = muster.data.digits(clients=10, priority=3)
    run = muster.simulate(
        fed, muster.methods.fedavg(), muster.models.Softmax(), 3,
        attack=muster.attacks.ForgeLoss(fraction=0.3),
    )  # fmt: skip
    text = render_page(Content({"fedavg": [run]}))
    part = text.split('<section id="attackers"')[1].split("</section>")[0]
    got = run.attackers["weight"].mean()
    assert f"{got:.4f}" in part
    assert "attackers" in data_of(text)["sections"]


def test_the_band_is_drawn_from_reported_losses(runs):
    run = runs["fedalign"][0]
    made = data_of(render_page(Content(runs)))["sections"]["band"]["runs"]["0/0"]
    codes = unpacked(made["loss"]["codes"], np.uint16, (len(made["clients"]), 6))
    told = made["loss"]["low"] + codes * made["loss"]["step"]
    k, t = 0, 3
    said = run.clients.filter(pl.col("client") == k, pl.col("round") == t)["loss"][0]
    assert told[made["clients"].index(k), t - 1] == pytest.approx(said, abs=1e-3)


def test_a_thousand_clients_by_five_hundred_rounds_stay_small():
    text = render_page(Content({"fedalign": [big_run(1000, 500)]}))
    assert len(text.encode()) < 3_000_000


def test_runs_that_do_not_fit_are_left_out_with_a_note(monkeypatch):
    monkeypatch.setattr(participation_sections, "CLIENT_BYTES", 1200)
    seeds = [big_run(40, 60, seed=s) for s in range(3)]
    made = participation_sections.render_participation(Content({"a": seeds}))
    assert list(made.data["runs"]) == ["0/0"]
    assert "2 of 3 runs are left out here" in made.body


def test_a_task_without_classes_has_its_own_scores():
    draw = np.random.default_rng(0)
    data = [
        (draw.normal(size=(20, 3)).astype("f4"), draw.normal(size=20).astype("f4"))
        for _ in range(4)
    ]
    fed = muster.Federation.from_arrays(train=data, test=data, priority=[0])
    run = muster.simulate(
        fed, muster.methods.fedavg(), torch.nn.Linear(3, 1), 2, task=muster.tasks.regression()
    )
    made = data_of(render_page(Content({"fedavg": [run]})))["sections"]
    assert made["clients"]["score"] == "r2"
    told = made["clients"]["runs"]["0/0"]["test score"]
    assert told == pytest.approx(run.final["test_r2"].to_list(), rel=1e-4)
    assert made["data"]["classes"] == ["rows"]
    assert "mean_test_mae" in made["appeal"]

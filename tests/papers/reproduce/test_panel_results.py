"""Running an experiment: what is kept of it, what is checked, and that nothing is run twice."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from contextlib import contextmanager

import polars as pl
import pytest
import tomli_w
from PIL import Image

import muster
from muster.base.errors import MusterError
from muster.cli.main import main
from muster.papers.reproduce import pages, panel_results, run_panels
from muster.papers.reproduce.draw import draw_figure, list_cells, list_columns
from muster.papers.reproduce.paper_experiment import (
    RESULTS,
    Drawing,
    PaperClaim,
    find_checkout,
    list_experiments,
    read_drawing,
    read_experiment,
)

FILE = """
id = "tiny"
title = "A tiny experiment"
paper = "fedalign"
where = "nowhere"

[common]
rounds = 60
seeds = 2
data = { name = "synth", max_rows = 60 }
local = { steps = 1, batch_size = 10, lr = 0.1 }
methods = [
  { label = "FedALIGN", name = "fedalign", epsilon = 0.4 },
  { label = "None", name = "fedavg_priority" },
]

[panels.low]

[panels.swept]
rounds = 3
[panels.swept.sweep]
"data.noise" = ["low", "high"]

[quick]
rounds = 2

[[figures]]
measures = ["loss"]

[[figures]]
measures = ["loss"]
x = "data.noise"
against = "None"

[[claims]]
id = "tiny-claim"
says = "FedALIGN is better."
where = "nowhere"
left = { method = "FedALIGN", measure = "loss" }
right = { method = "None" }
is = "below"

[[checks]]
says = "FedAvg on the priority clients admits nobody."
left = { method = "None", measure = "admitted_nonpriority" }
right = { value = 0 }
is = "about"
margin = 1e-9
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "tiny.toml"
    path.write_text(FILE)
    return read_experiment(path)


@pytest.fixture(scope="module")
def ran(experiment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran")
    found = run_panels.run(experiment, folder / "tiny", jobs=1)
    panel_results.save(found, folder, "tiny")
    return folder, found


def test_every_run_is_kept_in_at_most_fifty_rounds_with_its_last(ran):
    _, found = ran
    low = found.frame.filter(pl.col("panel") == "low")
    counts = low.group_by("method", "seed").agg(pl.len(), pl.col("round").max())
    assert len(counts) == 4
    assert set(counts["round"]) == {60}
    assert counts["len"].max() <= run_panels.POINTS
    assert found.keys == ["data.noise"]
    assert set(found.frame["data.noise"]) == {None, "low", "high"}


def test_what_is_kept_is_read_again_and_finished_runs_are_not_run_again(
    experiment, ran, monkeypatch
):
    folder, found = ran
    again = panel_results.load(folder, "tiny")
    assert again is not None
    assert again.frame.equals(found.frame)
    assert again.provenance == found.provenance
    assert re.fullmatch(r"\d+ training rows a client \(in seed 0\)", again.provenance["low"].data)
    assert again.outdated_parts(experiment) == []

    def never(*_, **__):
        raise AssertionError("run again")

    monkeypatch.setattr("muster.study.compare.run_job", never)
    assert run_panels.run(experiment, folder / "tiny", jobs=1).frame.equals(found.frame)


def test_claims_are_judged_and_figures_drawn_from_what_is_kept(experiment, ran, tmp_path):
    _, found = ran
    (verdict,) = pages.judge_claims(experiment, found)
    assert {f.cell["panel"] for f in verdict.findings} == {"low", "swept"}
    assert len(verdict.findings) == 3
    drawn = pages.draw_figures(experiment, found, tmp_path)
    assert {path.name: words for path, words in drawn.items()} == {
        "tiny-1.png": "Priority training loss, over the rounds.",
        "tiny-2.png": "Priority training loss: FedALIGN - None, by data.noise.",
    }
    assert all(path.stat().st_size > 5000 for path in drawn)


def test_evaluations_are_kept_where_something_is_counted_in_every_round():
    rounds = list(range(1, 101))
    frame = pl.DataFrame(
        {
            "method": "a", "seed": 0, "round": rounds,
            "loss": [float(r) if r % 5 == 0 else None for r in rounds],
            "pool": [200.0] * 100, "skipped": [0.0] * 100,
        }
    )  # fmt: skip
    lost = frame.with_columns(seed=1, loss=pl.lit(None, pl.Float64))  # diverged
    few = run_panels.thin_rounds(pl.concat([frame, lost]), ("pool", "skipped"), [])
    assert few.filter(pl.col("seed") == 0)["round"].to_list() == list(range(5, 101, 5))
    assert few.filter(pl.col("seed") == 0)["loss"].null_count() == 0
    assert few.filter(pl.col("seed") == 1)["round"].max() == 100


def test_tuning_is_described_and_its_time_counted(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(FILE.replace("rounds = 60", "rounds = 4").replace(
        "[panels.low]", '[panels.low]\n[panels.low.tune]\n"local.lr" = [0.05, 0.1]\nseeds = [9]'
    ))  # fmt: skip
    tuned = read_experiment(path)
    done: dict[str, list[int]] = {}

    @contextmanager
    def on_work(what, units):
        done[what] = [units, 0]

        def seen(_):
            done[what][1] += 1

        yield seen

    found = run_panels.run(tuned, tmp_path / "a", jobs=1, on_work=on_work)
    assert done["low: tuning"] == [4, 4]
    assert done["low: synth"] == [2, 2]
    spent = sum(
        pl.read_parquet(p)["seconds"].sum() for p in (tmp_path / "a").rglob("rounds.parquet")
    )
    assert found.seconds == pytest.approx(spent, abs=0.11)


def test_results_of_an_earlier_file_are_marked_and_seeds_are_counted(experiment, ran):
    _, found = ran
    assert "earlier" not in pages.describe_runs(experiment, found)
    old = {
        **found.provenance,
        "swept": dataclasses.replace(found.provenance["swept"], digest="other"),
    }
    said = pages.describe_runs(experiment, dataclasses.replace(found, provenance=old))
    assert "- low: 60 rounds, 2 seeds that each draw new data; " in said
    assert "- swept: 3 rounds, 2 seeds that each draw new data (of an earlier version" in said
    fewer = dataclasses.replace(found, frame=found.frame.filter(pl.col("seed") == 0))
    assert "- low: 60 rounds, 1 seed; " in pages.describe_runs(experiment, fewer)
    less = {**experiment.panel_tables, "low": {"small": {"data": {"max_rows": 30}}}}
    small = dataclasses.replace(experiment, panel_tables=less)
    made = dataclasses.replace(
        found.provenance["low"],
        size="small",
        data="12 rows",
        digest=small.panel("low", "small").digest,
    )
    said = pages.describe_runs(small, dataclasses.replace(found, provenance={"low": made}))
    assert "smaller than the file's full size (`data.max_rows = 30`); 12 rows" in said


def test_a_panel_run_by_itself_takes_the_place_of_its_earlier_results(experiment, ran, tmp_path):
    _, found = ran
    changed = dataclasses.replace(experiment, common={**experiment.common, "rounds": 4})
    assert found.outdated_parts(changed) == ["low"]
    new = run_panels.run(changed, tmp_path, jobs=1, only=["low"])
    assert set(new.frame["panel"]) == {"low"}
    both = panel_results.merge_results(found, new, changed)
    assert both.outdated_parts(changed) == []
    low, swept = (both.frame.filter(pl.col("panel") == name) for name in ("low", "swept"))
    assert low["round"].max() == 4
    before = found.frame.filter(pl.col("panel") == "swept")
    assert swept.select(before.columns).equals(before)
    assert list(both.provenance) == ["low", "swept"]
    assert both.keys == ["data.noise"]
    assert both.seconds == new.provenance["low"].seconds + found.provenance["swept"].seconds
    # What the file does not have any more is gone, with the keys only it swept.
    alone = dataclasses.replace(changed, panel_tables={"low": {}})
    left = panel_results.merge_results(found, new, alone)
    assert (set(left.frame["panel"]), left.keys) == ({"low"}, [])
    assert panel_results.merge_results(None, new, changed) is new


def test_a_file_of_an_earlier_version_is_made_again(ran, tmp_path):
    _, found = ran
    path = panel_results.save(found, tmp_path, "tiny")
    path.with_suffix(".toml").write_text('version = "0.1.0"\ndigest = "x"\n')
    assert panel_results.load(tmp_path, "tiny") is None


def test_panels_of_the_same_name_are_kept_apart(experiment, ran, tmp_path, monkeypatch):
    _, found = ran
    for id in ("tiny", "other"):
        panel_results.save(found, tmp_path, id)
    other = dataclasses.replace(experiment, id="other", common={**experiment.common, "rounds": 9})
    monkeypatch.setattr(panel_results, "find_experiment", lambda id: other)
    both = panel_results.load_results(dataclasses.replace(experiment, uses=("other",)), tmp_path)
    assert both is not None
    assert set(both.frame["panel"]) == {"low", "swept", "other/low", "other/swept"}
    assert both.earlier == ["other"]
    assert "the runs of other (of an earlier version of its file)" in pages.describe_runs(
        dataclasses.replace(experiment, uses=("other",)), both
    )


def test_what_is_swept_next_to_the_rounds_has_separate_rows(experiment, ran, tmp_path):
    _, found = ran
    over = Drawing(("loss",), panels=("swept",))
    cells = list_cells(over, found.frame, found.keys)
    assert cells == [{"data.noise": "low"}, {"data.noise": "high"}]
    tall = Image.open(draw_figure(over, found.frame, tmp_path / "a.png", found.keys)).convert("L")
    flat = Image.open(draw_figure(over, found.frame, tmp_path / "b.png")).convert("L")
    assert tall.height > 1.8 * flat.height
    assert list_columns(Drawing(("loss",), panels=("nosuch",)), found.frame) == []
    assert list_columns(Drawing(("loss",), x="nosuch"), found.frame) == []


def test_methods_are_points_by_two_measures_and_differences_a_map_over_two_keys(tmp_path):
    rows = [
        {"panel": "p", "a.x": x, "a.y": y, "method": m, "seed": s, "round": 1,
         "loss": (x - y) * (m == "A") + 0.01 * s, "test_accuracy": 0.5 + 0.1 * (m == "A")}
        for x in (1, 2, 3) for y in (1.0, 2.5) for m in ("A", "B") for s in range(3)
    ]  # fmt: skip
    frame, keys = pl.DataFrame(rows), ["a.x", "a.y"]
    over = Drawing(("loss",), x="a.x", y="a.y", against="B", label="size by noise")
    assert list_cells(over, frame, keys) == [{}], "one map, not one for each value of y"
    drawn = Image.open(draw_figure(over, frame, tmp_path / "map.png", keys)).convert("RGB")
    colours = {c for _, c in drawn.getcolors(1 << 24) if max(c) - min(c) > 60}
    assert any(r > b + 60 for r, _, b in colours), "worse"
    assert any(b > r + 60 for r, _, b in colours), "better"
    # A lower loss is better, and so is a higher accuracy: both are blue.
    for measure, better in (("loss", -0.2), ("test_accuracy", 0.2)):
        good = frame.with_columns((pl.col("method") == "A").cast(float).alias(measure) * better)
        over = dataclasses.replace(over, measures=(measure,))
        drawn = Image.open(draw_figure(over, good, tmp_path / "blue.png", keys)).convert("RGB")
        assert not any(r > b + 60 for _, (r, _, b) in drawn.getcolors(1 << 24)), measure
        assert any(b > r + 60 for _, (r, _, b) in drawn.getcolors(1 << 24)), measure
    points = Drawing(("test_accuracy",), x="loss")
    one = frame.filter(pl.col("a.x") == 1, pl.col("a.y") == 1.0)
    assert draw_figure(points, one, tmp_path / "points.png", []).stat().st_size > 5000
    with pytest.raises(MusterError, match="a map is of differences; give against"):
        read_drawing({"measures": ["loss"], "x": "a.x", "y": "a.y"}, [])


def test_a_check_that_fails_is_reported(experiment, ran):
    _, found = ran
    assert pages.find_faults(experiment, found) == []
    wrong = PaperClaim.of(
        {
            "id": "x", "says": "FedALIGN admits nobody.", "where": "", "is": "about",
            "margin": 1e-9, "left": {"method": "FedALIGN", "measure": "admitted_nonpriority"},
            "right": {"value": 0},
        }
    )  # fmt: skip
    (*said,) = pages.find_faults(dataclasses.replace(experiment, checks=(wrong,)), found)
    assert said
    assert all("FedALIGN admits nobody" in one for one in said)
    empty = dataclasses.replace(wrong, panels=("nosuch",))
    (fault,) = pages.find_faults(dataclasses.replace(experiment, checks=(empty,)), found)
    assert "nothing to check it by" in fault
    # One panel run by itself: what is checked of the others waits for them.
    some = dataclasses.replace(
        found, frame=found.frame.filter(pl.col("panel") != "swept"),
        provenance={k: v for k, v in found.provenance.items() if k != "swept"},
    )  # fmt: skip
    of_swept = dataclasses.replace(wrong, panels=("swept",))
    assert pages.find_faults(dataclasses.replace(experiment, checks=(of_swept,)), some) == []
    assert pages.find_faults(dataclasses.replace(experiment, checks=(of_swept,)), found) != []


def test_data_that_is_not_here_is_named_with_the_command_that_gets_it(
    experiment, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_panels, "locate", lambda entry: None)
    own = {**experiment.panel_tables, "images": {"data": {"name": "fmnist", "clients": 10}}}
    del own["swept"]
    found = run_panels.run(
        dataclasses.replace(experiment, panel_tables=own), tmp_path, "quick", jobs=1
    )
    assert found.missing == {"images": "muster data get fmnist"}
    assert set(found.frame["panel"]) == {"low"}


def test_a_quick_run_says_so_and_gives_no_verdict(experiment, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("muster.cli.reproduce.find_experiment", lambda id: experiment)
    words = ["reproduce", "tiny", "--jobs", "1", "--seeds", "2", "--panel", "low"]
    assert main([*words, "--quick", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "a quick run: few rounds and seeds, for the checks; it gives no verdict" in said
    assert "no verdict: a quick run" in said
    verdicts = [
        v.word
        for v in pages.judge_claims(
            experiment, panel_results.load_results(experiment, tmp_path / "quick-2seeds")
        )
    ]
    assert verdicts
    assert not any(f"    {word}\n" in said for word in verdicts)
    assert "low: 2 rounds, 2 seeds that each draw new data" in said


def test_what_seeds_vary_is_kept_with_results(ran):
    folder, _ = ran
    kept = panel_results.load(folder, "tiny").frame
    assert set(kept["varies"]) == {"data"}
    assert kept["train_rows"].min() > 0


# ------------------------------------------------------------------------------------ tuning

BASE = {
    "data": {"name": "digits", "clients": 5, "priority": 2},
    "rounds": 2,
    "seeds": 2,
    "methods": ["fedavg", "fedalign"],
}


def test_every_score_is_kept_and_the_choice_can_be_stated():
    over = {"method.epsilon": [0.1, 0.4], "seeds": [7, 8]}
    done = muster.tune(BASE, over, jobs=1)
    rows = tomllib.loads(tomli_w.dumps({"rows": panel_results.record_tuning(done)}))["rows"]
    assert [len(row["scores"]) for row in rows] == [2, 2, 2]
    for row in rows:
        assert sum(row["scores"]) / 2 == pytest.approx(row["mean"])
        assert (row["measure"], row["seeds"]) == ("test_accuracy", [7, 8])
    chosen = done.chosen["fedalign"]["epsilon"]
    edge = "smallest" if chosen == 0.1 else "largest"
    assert panel_results.describe_tuning(rows) == (
        ", tuned (epsilon of 0.1, 0.4 on seeds 7, 8 by test_accuracy: fedavg as it is, "
        f"fedalign {chosen}; epsilon = {chosen} is the {edge} tried (fedalign))"
    )


def test_nothing_is_reported_where_nothing_was_tuned():
    assert panel_results.describe_tuning([]) == ""


@pytest.mark.parametrize(
    ("experiment", "panel", "settings"),
    [
        (
            "ablation-fair",
            "fmnist",
            {
                "MaxFL": ["local.lr", "server_lr"],
                "FedAvg": ["local.lr", "server_lr"],
                "q-FFL": ["local.lr", "q"],
            },
        ),
        ("border-appeal", "5 asked", {"MaxFL": ["local.lr"], "FedAvg": ["local.lr"]}),
    ],
)
def test_settings_marked_as_from_table1s_tuning_are(experiment, panel, settings):
    kept = panel_results.load(find_checkout() / RESULTS, "table1")
    assert kept is not None
    chosen = {row["method"]: row for row in kept.provenance["fmnist"].tuning if row["chosen"]}
    config = list_experiments()[experiment].panel(panel, "full").config
    methods = {method["label"]: method for method in config["methods"]}
    for label, keys in settings.items():
        mine = {"server_lr": 1.0} | methods[label] | {"local.lr": config["local"]["lr"]}
        assert [mine[key] for key in keys] == [chosen[label][key] for key in keys], label

"""The tables of assist: evidence against its truth, and endpoints of a study of known numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from muster.papers.assist_study import (
    cell_table,
    endpoints,
    goal_table,
    measure_evidence,
    other_table,
    personal_table,
    variant_table,
)
from muster.papers.page_tables import points


def test_evidence_is_exact_in_the_first_round_of_one_step_and_fades_for_stein():
    frame = measure_evidence(30, draws=400, rounds=20)
    first, last = frame.row(0, named=True), frame.row(-1, named=True)
    assert first["stein"] == pytest.approx(1, abs=0.1)
    assert first["crossfit"] == pytest.approx(1, abs=0.1)
    assert last["stein"] < 0.6
    assert last["crossfit"] > last["stein"] + 0.1


def results(changes):
    """A study of two federations: test loss 1 alone, and `1 + change` of each method and seed."""
    rows = [
        {
            "panel": panel,
            "data.rows": 20,
            "data.priority": "a",
            "method": method,
            "seed": seed,
            "round": 60,
            "test_loss": 1.0 + change,
            "test_accuracy": 0.5 - change,
            "bytes_up": 10.0,
            "steps": 5.0,
            "varies": "data",
        }
        for (panel, method), each in changes.items()
        for seed, change in enumerate(each)
    ]
    return pl.DataFrame(rows)


def test_endpoints_are_those_of_the_numbers():
    frame = results(
        {
            ("one", "alone"): [0.0] * 4,
            ("two", "alone"): [0.0] * 4,
            ("one", "everyone"): [-0.5] * 4,
            ("two", "everyone"): [0.2, 0.21, 0.2, 0.21],
            ("one", "assist"): [-0.4, -0.4, -0.4, -0.4],
            ("two", "assist"): [-0.01, 0.03, -0.01, -0.01],
            ("one", "FedALIGN .2"): [-0.1] * 4,
            ("two", "FedALIGN .2"): [-0.1] * 4,
        }
    )
    found = {row["method"]: row for row in endpoints(frame).iter_rows(named=True)}
    best = np.mean([-0.5, -0.1])
    assert found["assist"]["mean"] == pytest.approx(-0.2)
    assert found["assist"]["share"] == pytest.approx(-0.2 / best)
    assert found["assist"]["harmed"] == 0
    assert found["assist"]["runs"] == pytest.approx(1 / 8)
    assert found["assist"]["worst"] == pytest.approx(0.03)
    assert found["everyone"]["harmed"] == 1
    assert found["everyone"]["runs"] == pytest.approx(0.5)
    gap = points(frame.filter(pl.col("panel") == "two"), "everyone", "alone")
    assert gap is not None
    assert gap.mean == pytest.approx(-20.5)


def panel(name, accuracy, **more):
    """Two seeds of a panel: the accuracy of each method, a point apart between seeds."""
    return [
        {"panel": name, "data.partition.of.alpha": None, "data.partition.rows": None, "seed": seed,
         "round": 60, "method": method, "test_accuracy": value + 0.01 * seed, "varies": "data",
         "own_test_accuracy": None, "priority_tuned_test_accuracy": None, **more}
        for method, value in accuracy.items() for seed in range(2)
    ]  # fmt: skip


def test_tables_of_other_panels_show_those_that_were_run():
    rows = panel("emnist", {"alone": 0.5, "assist": 0.6, "everyone": 0.45})
    rows += panel("fmnist-cnn", {"alone": 0.5, "assist": 0.5}, **{"data.partition.of.alpha": 10.0})
    lines = other_table(pl.DataFrame(rows, infer_schema_length=None)).splitlines()[2:]
    assert len(lines) == 2
    assert lines[0].startswith("| FMNIST, convolutional, alpha 10 | 2 | 50.5 | +0.0 ± 0.0 |")
    gains = "**+10.0 ± 0.0** |  | **-5.0 ± 0.0**"
    assert lines[1].startswith(f"| EMNIST, softmax | 2 | 50.5 | {gains} |")


def test_personal_models_are_compared_with_the_one_trained_alone():
    alpha = {"data.partition.of.alpha": 0.1}
    rows = panel("fmnist-personal", {"alone": 0.5}, priority_tuned_test_accuracy=0.75, **alpha)
    rows += panel("fmnist-personal", {"assist": 0.6}, **alpha)
    rows += panel("fmnist-personal", {"Ditto": 0.4}, own_test_accuracy=0.9, **alpha)
    line = personal_table(pl.DataFrame(rows, infer_schema_length=None)).splitlines()[-1]
    assert line.startswith("| 0.1 | 50.5 | **+10.0 ± 0.0** |  |  | ")
    assert "+39.5" in line, "its own model, not the one it shares"
    assert "+24.5" in line.split("|")[-2]


def test_panels_of_networks_are_divided_by_what_they_sweep():
    shards = "data.partition.of.per_client"
    rows = [
        row
        for many, gain in ((2, 0.6), (10, 0.7))
        for row in panel("fmnist-cnn", {"alone": 0.5, "assist": gain}, **{shards: many})
    ]
    lines = other_table(pl.DataFrame(rows, infer_schema_length=None)).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == [
        "FMNIST, convolutional, 2 shards a client",
        "FMNIST, convolutional, 10 shards a client",
    ]
    assert "+10.0" in lines[0]
    assert "+20.0" in lines[1]


def test_variants_are_next_to_the_rule_with_the_bytes_they_save():
    alpha = {"data.partition.of.alpha": 0.1}
    rows = panel("fmnist-variants", {"alone": 0.5, "everyone": 0.4}, bytes_up=9.0, **alpha)
    rows += panel("fmnist-variants", {"assist": 0.6, "assist, pooled": 0.7}, bytes_up=8.0, **alpha)
    rows += panel("fmnist-variants", {"assist, sketch": 0.6}, bytes_up=2.0, **alpha)
    line = variant_table(pl.DataFrame(rows, infer_schema_length=None)).splitlines()[-1]
    assert [cell.strip(" *") for cell in line.split("|")[1:-1]] == [
        "0.1", "+10.0 ± 0.0", "+20.0 ± 0.0", "+10.0 ± 0.0", "-10.0 ± 0.0", "1.00 x", "0.25 x",
    ]  # fmt: skip


def test_more_rows_than_there_are_is_all_of_them():
    rows = [
        row
        for many in (10, 100_000)
        for row in panel("p", {"alone": 0.5, "assist": 0.6}, **{"data.partition.rows": many})
    ]
    lines = cell_table(pl.DataFrame(rows, infer_schema_length=None), "p", ["assist"]).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["10", "all"]


def test_goals_are_judged_by_the_worst_that_was_measured():
    """Crossfit meets them all; stein harms a federation, and is below a rival in some cells."""
    real = results(
        {
            (name, method): [value + 0.001 * seed for seed in range(4)]
            for name in ("one", "two")
            for method, value in (
                ("alone", 0.0),
                ("everyone", -0.2),
                ("assist", 0.1 if name == "two" else -0.19),
                ("assist, crossfit", -0.2),
            )
        }
    ).to_dicts()
    alpha = "data.partition.of.alpha"
    few = [
        row | {"data.partition.rows": 10.0}
        for at, stein in ((0.1, 0.79), (10.0, 0.88))
        for row in panel(
            "fmnist-few",
            {"alone": 0.8, "everyone": 0.7 + 0.02 * at, "assist": stein, "assist, crossfit": 0.91},
            **{alpha: at},
        )
    ]
    liars = panel("digits-liars", {"alone": 0.5, "assist": 0.485, "assist, crossfit": 0.495})
    other = panel("synth", {"alone": 0.5, "assist": 0.4951})
    rows = [*real, *few, *liars, *other]
    table = goal_table(pl.DataFrame(rows, infer_schema_length=None)).splitlines()[2:]
    stein, crossfit = ([line.split(" | ")[i].rstrip(" |") for line in table] for i in (1, 2))
    assert stein == [
        "**missed**: 1",
        "**missed**: 22.5 %",
        "**missed**: 2 of 2, lowest -2.0",
        "**missed**: 1 of 1, lowest -1.0",
        "met: 0 of 1",
        "**missed**: -1.5",
    ]
    assert crossfit == ["met: 0", "met: 100.0 %", "met: 0 of 2", "met: 0 of 1", "", "met: -0.5"]

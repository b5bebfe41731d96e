"""What results keep of a tuning, and what the claims page says of it."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w

import muster
from muster.cli.reproduce import STORED
from muster.papers.reproduce import panel_results, tuning_record
from muster.papers.reproduce.plan import home, plans

BASE = {
    "data": {"name": "digits", "clients": 5, "priority": 2},
    "rounds": 2,
    "seeds": 2,
    "methods": ["fedavg", "fedalign"],
}


def test_every_score_is_kept_and_the_choice_can_be_said():
    over = {"method.epsilon": [0.1, 0.4], "seeds": [7, 8]}
    done = muster.tune(BASE, over, jobs=1)
    rows = tomllib.loads(tomli_w.dumps({"rows": tuning_record.kept(done)}))["rows"]
    assert [len(row["scores"]) for row in rows] == [2, 2, 2]
    for row in rows:
        assert sum(row["scores"]) / 2 == pytest.approx(row["mean"])
        assert (row["measure"], row["seeds"]) == ("test_accuracy", [7, 8])
    chosen = done.chosen["fedalign"]["epsilon"]
    edge = "smallest" if chosen == 0.1 else "largest"
    assert tuning_record.in_words(rows) == (
        ", tuned (epsilon of 0.1, 0.4 on seeds 7, 8 by test_accuracy: fedavg as it is, "
        f"fedalign {chosen}; epsilon = {chosen} is the {edge} tried (fedalign))"
    )


def test_nothing_is_said_where_nothing_was_tuned():
    assert tuning_record.in_words([]) == ""


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
def test_settings_said_to_be_of_table1s_tuning_are(experiment, panel, settings):
    kept = panel_results.load(home() / STORED, "table1")
    assert kept is not None
    chosen = {row["method"]: row for row in kept.made["fmnist"].tuning if row["chosen"]}
    config = plans()[experiment].panel(panel, "full").config
    methods = {method["label"]: method for method in config["methods"]}
    for label, keys in settings.items():
        mine = {"server_lr": 1.0} | methods[label] | {"local.lr": config["local"]["lr"]}
        assert [mine[key] for key in keys] == [chosen[label][key] for key in keys], label

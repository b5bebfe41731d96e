"""The picture of helpers: the weights, reasons and sentences are the ledger's."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import muster
from big_run import big_run
from muster.report.html import weight_sections
from muster.report.html.content import Content
from muster.report.html.weight_sections import MAX_ROWS, describe_help, encode_weights


def decoded(made):
    """The rows of a picture; NaN where a helper was not asked."""
    packed = made["weight"]
    codes = np.frombuffer(zlib.decompress(base64.b64decode(packed["codes"])), "<u2")
    rows = np.where(codes == 65535, np.nan, packed["low"] + codes * packed["step"])
    return rows.reshape(-1, len(made["x"]))


@pytest.fixture(scope="module")
def fed():
    few = muster.data.Few(of=muster.data.Dirichlet(0.3), first=2, rows=20)
    return muster.data.digits(clients=12, priority=2, partition=few)


@pytest.fixture(scope="module")
def run(fed):
    invite = muster.parts.Fraction(0.8)
    method = muster.methods.assist(invite=invite)
    return muster.simulate(fed, method, muster.models.Softmax(), rounds=12)


def test_the_picture_has_the_weights_of_the_ledger(run):
    made = encode_weights(run)
    rows = decoded(made)
    seen = np.zeros_like(rows, dtype=bool)
    totals = dict.fromkeys(made["helpers"], 0.0)
    own = dict.fromkeys(range(1, 13), 0.0)
    for t, k, priority, weight in run.clients.select(
        "round", "client", "priority", "weight"
    ).rows():
        if priority:
            own[t] += weight
            continue
        at = made["helpers"].index(k), t - 1
        assert rows[at] == pytest.approx(weight, abs=1e-4)
        seen[at] = True
        totals[k] += weight
    assert np.isnan(rows[~seen]).all(), "nobody asked them"
    assert not seen.all()
    assert list(totals.values()) == sorted(totals.values(), reverse=True)
    for t, share in zip(made["x"], made["share"], strict=True):
        if run.rounds["skipped"][t - 1]:
            assert share is None
        else:
            assert share == pytest.approx(1 - own[t], abs=1e-4)
    moved = int((~run.rounds["skipped"]).sum())
    assert made["mean"] == pytest.approx([w / moved for w in totals.values()], abs=1e-4)


def test_the_sentence_says_how_much_who_most_and_who_never(fed):
    run = muster.simulate(fed, muster.methods.assist(), muster.models.Softmax(), rounds=12)
    helpers = run.clients.filter(~pl.col("priority"))
    moved = run.rounds.filter(~pl.col("skipped"))["round"]
    mean = helpers.group_by("client").agg(pl.col("weight").sum() / len(moved))
    best, most = mean.sort("weight").row(-1)
    never = int((mean["weight"] == 0).sum())
    assert never > 1
    assert describe_help(run) == (
        f"Helpers counted for {100 * helpers['weight'].sum() / len(moved):.0f} % of the step on "
        f"average; client {best} most ({100 * most:.0f} %), {never} never: no evidence that they "
        "help."
    )


def test_reasons_that_differ_are_counted_and_names_are_used():
    run = big_run(6, 4)  # client 0 is a priority client
    reason = pl.col("client").replace_strict(
        {1: "no evidence that it helps", 2: "failed: late", 3: "no evidence that it helps"},
        default=pl.col("reason"),
    )
    weight = pl.col("client").replace_strict({0: 0.8, 4: 0.15, 5: 0.05}, default=0.0)
    table = run.clients.with_columns(reason=reason, weight=weight)
    said = describe_help(replace(run, clients=table))
    assert said == (
        "Helpers counted for 20 % of the step on average; client 4 most (15 %), 3 never: "
        "no evidence that they help (2), failed: late (1)."
    )
    nobody = table.with_columns(weight=pl.col("priority").cast(float), reason=pl.lit("late"))
    assert describe_help(replace(run, clients=nobody)) == "No helper ever counted: late."


def test_many_helpers_share_the_last_row():
    draw = np.random.default_rng(0)
    run = big_run(200, 9)
    chosen = (pl.col("client") % 2 == 0) | pl.col("priority")
    table = run.clients.with_columns(weight=pl.Series(draw.uniform(size=1800)))
    table = table.with_columns(pl.when(chosen).then("weight").otherwise(0.0).alias("weight"))
    table = table.with_columns(pl.col("weight") / pl.col("weight").sum().over("round"))
    made = encode_weights(replace(run, clients=table))
    rows = decoded(made)
    assert (len(made["helpers"]), made["rest"], len(rows)) == (MAX_ROWS, 120, MAX_ROWS + 1)
    whole = rows[:-1].sum(0) + 120 * rows[-1]
    assert whole == pytest.approx(np.array(made["share"]), abs=1e-3)
    few = table.with_columns(pl.when(pl.col("client") < 30).then("weight").otherwise(0.0))
    made = encode_weights(replace(run, clients=few))
    assert {*made["helpers"]} == {k for k in range(30) if k % 2 == 0 and k % 10}
    assert made["rest"] == 180 - len(made["helpers"]), "who never counted has no row"


def test_the_deployed_model_is_in_the_picture(fed):
    method = muster.methods.assist(guard=True)
    run = muster.simulate(fed, method, muster.models.Softmax(), rounds=12)
    made = encode_weights(run)
    assert made["helped"] == run.rounds["helped"].to_list()
    assert f"was deployed in {run.rounds['helped'].sum()} of 12 rounds" in made["text"]


def test_runs_without_a_helper_or_a_common_model_have_no_picture(fed):
    m = muster.methods
    for method in (m.fedavg_priority(), m.local()):
        run = muster.simulate(fed, method, muster.models.Softmax(), rounds=1)
        made = weight_sections.render_helpers(Content({"a": [run]}))
        assert not made.data
        assert "No method here asked a helper" in made.body


def test_long_runs_are_thinned_with_a_note():
    made = weight_sections.render_helpers(Content({"a": [big_run(6, 900)]}))
    assert len(made.data["runs"]["0/0"]["x"]) <= 401
    assert "One round in 3 is drawn." in made.body

"""Before the first round clients agree on levels, means and scale, as the simulator fits them."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from flwr.app import ConfigRecord, RecordDict

import muster
from flower_grid import LocalGrid, Node
from flower_parity import assert_same
from flower_tables import Tables, patients
from muster.cli.main import main
from muster.config.experiment import load
from muster.config.network import Network, members_of
from muster.data.files.tabular import null_na_values
from muster.data.sets import natural_clients
from muster.flower.client.node_data import read_own_data, read_own_statistics
from muster.flower.server.app import federate
from muster.flower.server.fit_columns import (
    COLUMNS_QUERY,
    LEVELS,
    TRANSFORM,
    ClientStatistics,
    find_other_codings,
    read_statistics,
    read_transform,
)
from muster.flower.terms import check_terms, shared_terms
from muster.flower.testing.in_process import travel
from muster.flower.transport.requests import exchange
from muster.flower.transport.wire import NONCE, OFFER, REPORT
from muster.results import store

FEDALIGN = {"name": "fedalign", "epsilon": 0.5, "warmup": 0}


@pytest.fixture
def tables(tmp_path):
    return lambda *args, **settings: Tables(tmp_path, *args, **settings)


def kind(message):
    return message.metadata.message_type


def surveys(grid):
    return [m for m, _ in grid.log if kind(m) == COLUMNS_QUERY]


def carriers(grid):
    """Messages that carry what features are made by, besides the first question."""
    return [m for m, _ in grid.log if TRANSFORM in m.content and "client" in m.content[OFFER]]


def reports(**changes):
    """Tampers with what a client tells of its columns."""

    def tamper(message, reply):
        if kind(message) == COLUMNS_QUERY:
            said = dict(reply.content.config_records[REPORT])
            for key, change in changes.items():
                said[key] = change(said[key]) if callable(change) else change
            reply.content[REPORT] = ConfigRecord(said)
        return reply

    return tamper


def levels(change):
    def tamper(message, reply):
        if kind(message) == COLUMNS_QUERY:
            known = dict(reply.content.config_records[LEVELS])
            reply.content[LEVELS] = ConfigRecord(change(known))
        return reply

    return tamper


@pytest.mark.parametrize("scale", ["pooled", "priority"])
def test_a_federation_of_tables_is_the_simulated_one(tables, scale):
    case = tables(FEDALIGN, network={"scale": scale})
    grid = case.grid()
    real, simulated = case.run(grid), case.simulate()
    assert_same(real, simulated)
    assert real.clients["admitted"].sum() > 6, "others join too"
    here, there = simulated.recipe.inputs, real.recipe.inputs
    assert vars(here.encoder) == vars(there.encoder), "to the bit, whatever the order of clients"
    assert here.encoder.levels == {"pain": ("9", "10", "dull", "none", "sharp")}
    assert here.encoder.holes == ("pain", "sugar")
    assert len(surveys(grid)) == 4
    assert len(carriers(grid)) == 4, "once for each client, and then by its hash"


def test_the_model_scores_new_rows_without_a_manifest(tables, tmp_path, capsys):
    case = tables(FEDALIGN)
    case.run()
    muster.save(case.simulate(), tmp_path / "simulated")
    new = patients("east", 12, 9).with_columns(sugar=pl.Series([None, *[2e6] * 11]))
    new.select("sugar", "tag", "ill", "pain", "age").write_csv(tmp_path / "new.csv")
    said = []
    for name in ("run", "simulated"):
        out = tmp_path / f"{name}.parquet"
        words = ["predict", str(tmp_path / name), str(tmp_path / "new.csv"), "--out", str(out)]
        assert main(words) == 0
        assert "accuracy" in capsys.readouterr().out
        said.append(pl.read_parquet(out))
    assert said[0].columns == ["row", "label", "prediction", "p_no", "p_yes"]
    pl.testing.assert_frame_equal(said[0], said[1], abs_tol=1e-9)
    assert said[0]["p_yes"].std() > 0.01
    known = store.load(tmp_path / "run").export(tmp_path / "model.ts").with_suffix(".ts.json")
    assert json.loads(known.read_text())["about"]["takes"]["columns"] == [
        "age",
        "pain",
        "sugar",
        "tag",
    ]
    with pytest.raises(muster.MusterError, match="has the scale of its rows; leave it out"):
        store.load(tmp_path / "run").predict(tmp_path / "new.csv", scale="none")


def test_arrays_are_scaled_the_same_way_too(setup, tmp_path):
    case = setup(FEDALIGN)
    case.network = replace(case.network, scale="pooled")
    fed = muster.Federation.from_folder(
        tmp_path, scale="pooled", priority=2, classes=tuple(range(10))
    )
    real = case.run()
    assert_same(real, case.simulate(fed))
    assert np.array_equal(real.recipe.inputs.scaler.std, fed.scaler.std)
    raw = np.load(tmp_path / "0.npz")["x"]
    assert real.predict(raw[:5])["p_1"].is_finite().all()


def test_four_hospitals_with_a_file_each_come_to_the_data_set(tmp_path):
    """Real records: each node reads its own, and the model is that of `muster.data.heart`."""
    fed = muster.data.heart(priority=["va"])
    everybody = natural_clients.patients(natural_clients.load_local(natural_clients.HEART).arrays)
    everybody = null_na_values(everybody, natural_clients.HEART_MISSING)
    sites = []
    for name in fed.names.tolist():
        file = tmp_path / f"{name}.csv"
        everybody.filter(pl.col("hospital") == name).drop("hospital").write_csv(file)
        sites.append(Node({"data-path": str(file), "test-fraction": 0.25}))
    network = {
        "label": "disease", "classes": ["healthy", "ill"], "scale": "pooled", "missing": "mean",
        "categories": list(natural_clients.HEART_CATEGORIES),
    }  # fmt: skip
    chosen = load({
        "rounds": 2, "dtype": "float64", "method": FEDALIGN, "trust": False, "network": network,
        "task": "binary", "model": {"name": "linear"}, "local": {"steps": 5, "lr": 0.1},
        "evaluate_every": 0,
    })  # fmt: skip
    members = members_of(fed, [site.key.decode() for site in sites])
    listed = replace(chosen, members=members)
    real = federate(LocalGrid(sites), listed, tmp_path / "run", lambda line: None)
    compute = chosen.settings.compute
    simulated = muster.run_job(fed, chosen.job, compute=compute, keep=chosen.keep)
    assert_same(real, simulated)
    assert vars(real.recipe.inputs.encoder) == vars(replace(fed.encoder, nothing={}))


LIES = {
    "not finite": (
        reports(mean=lambda v: [float("nan"), *v[1:]]),
        "column 'age': impossible mean nan",
    ),
    "beyond everything": (
        reports(mean=lambda v: [1e200, *v[1:]]),
        "column 'age': impossible mean 1e",
    ),
    "an infinite spread": (
        reports(spread=lambda v: [float("inf"), *v[1:]]),
        "column 'age': impossible spread inf",
    ),
    "a spread below 0": (reports(spread=lambda v: [-1.0, *v[1:]]), "impossible spread -1"),
    "a count below 0": (reports(count=lambda v: [-5, *v[1:]]), "impossible count -5 of 32 rows"),
    "more numbers than rows": (reports(count=lambda v: [41, *v[1:]]), "impossible count 41 of 32"),
    "no rows": (reports(rows=0), "it states 0 rows"),
    "a mean of categories": (
        reports(mean=lambda v: [v[0], 5.0, *v[2:]]),
        "'pain': impossible mean 5",
    ),
    "other columns": (
        reports(columns=lambda v: ["age", "pain", "sugar", "weight"]),
        "column 'tag' is not in both its table and the federation's",
    ),
    "fewer columns": (reports(columns=lambda v: v[:3]), "its statistics are malformed"),
    "two of a name": (reports(columns=lambda v: ["age"] * 4), "its columns have no proper names"),
    "fewer numbers": (reports(mean=lambda v: v[:2]), "its statistics are malformed"),
    "text for numbers": (reports(mean=lambda v: ["high"] * 4), "its statistics are malformed"),
    "more to say": (reports(extra=1.0), "its statistics are malformed"),
    "levels without end": (
        levels(lambda known: {"pain": [str(i) for i in range(300)]}),
        "column 'pain': 300 levels (network.max_levels 256)",
    ),
    "levels that are no text": (levels(lambda known: {"pain": [1.5]}), "its levels are malformed"),
    "a level for a terminal": (
        levels(lambda known: {"pain": ["\x1b[2J"]}),
        "column 'pain': a level has no proper name",
    ),
    "a long level": (levels(lambda known: {"pain": ["x" * 201]}), "a level has no proper name"),
    "values without levels": (levels(lambda known: {"pain": []}), "values, and no level"),
    "another record": (
        lambda message, reply: reply.content.update(more=ConfigRecord({"a": 1})) or reply,
        "its statistics are malformed",
    ),
    "other categories": (
        levels(lambda known: {"age": ["1"], **known}),
        "column 'age': impossible",
    ),
}


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory):
    """The requests to two clients and their replies, the first of them priority."""
    case = Tables(tmp_path_factory.mktemp("surveyed"), rounds=1, evaluate_every=0)
    grid = case.grid()
    case.run(grid)
    heard = {m.metadata.dst_node_id: (m, r) for m, r in grid.log if kind(m) == COLUMNS_QUERY}
    for _, reply in heard.values():
        del reply.content[REPORT][NONCE]  # `requests` checks it
    return heard[102], heard[101]


@pytest.mark.parametrize("lie", LIES)
def test_what_no_rows_have_is_refused_with_a_reason(surveyed, lie):
    network = Network(categories=("pain",), missing="mean", scale="pooled")
    (_, first), (asked, reply) = surveyed
    known = read_statistics(first, network, None)
    assert isinstance(known, ClientStatistics)
    assert isinstance(read_statistics(reply, network, known), ClientStatistics)
    tamper, reason = LIES[lie]
    heard = read_statistics(tamper(asked, travel(reply)), network, known)
    assert isinstance(heard, str)
    assert reason in heard
    assert heard.isprintable()
    assert len(heard) < 200


def test_numbers_that_may_not_be_missing_are_all_there(surveyed):
    (_, reply), _ = surveyed
    strict = Network(categories=("pain",), scale="pooled")
    assert "column 'pain': impossible count 18 of 24" in read_statistics(reply, strict, None)


def test_a_liar_is_left_out_and_moves_nothing(tables):
    """East is not priority: the run goes on as if it were not there."""
    case = tables(FEDALIGN)
    assert case.fed.names.tolist() == ["east", "north", "south", "west"]
    case.nodes[0].tamper = reports(mean=lambda v: [float("inf"), *v[1:]])
    run = case.run()
    moves = run.moves.filter(pl.col("client") == 0)["move"].to_list()
    assert moves == ["not in: column 'age': impossible mean inf"]
    assert "without east: column 'age': impossible mean inf" in case.said
    made = run.recipe.inputs.encoder
    (case.folder / "clinics" / "east.csv").unlink()
    alone = case.chosen.federation(0).encoder
    assert vars(made) == vars(alone)
    assert set(run.clients["client"]) == {1, 2, 3}


def test_a_liar_that_is_believed_moves_no_priority_scale(tables):
    """Plausible lies are not found out; by `scale = "priority"` they change nothing."""
    case = tables(FEDALIGN, network={"scale": "priority"}, rounds=1, evaluate_every=0)
    honest = case.simulate().recipe.inputs.encoder
    case.nodes[0].tamper = reports(mean=lambda v: [1e9, *v[1:]], spread=lambda v: [1e12, *v[1:]])
    assert vars(case.run().recipe.inputs.encoder) == vars(honest)
    for node in case.nodes:
        node.state.clear()
    case.network = replace(case.network, scale="pooled")
    moved = case.run(name="pooled").recipe.inputs.encoder
    assert moved.mean[0] > 1e8, "as docs/federate.md says of scale = 'pooled'"


def test_a_priority_client_that_sends_nonsense_stops_the_run(tables):
    case = tables(FEDALIGN)
    case.nodes[1].tamper = reports(rows=-1)
    why = "clients.north: a priority client, and it states -1 rows"
    with pytest.raises(muster.MusterError, match=why):
        case.run()


class Dies(Exception):
    pass


def test_a_server_that_comes_back_goes_on_with_what_was_fitted(tables):
    """Whatever clients would tell by then, and though nodes have lost what they held."""
    case = tables(FEDALIGN, evaluate_every=0)
    case.nodes[0].tamper = reports(rows=-1)  # left out, and so it stays
    case.nodes[3].online = False  # comes when the run has begun, and stays out too
    whole = case.run(name="whole")

    def say(line):
        if line.startswith("round 2/"):
            raise Dies

    place = case.folder / "run"
    with pytest.raises(Dies):
        federate(case.grid(), case.experiment(), place, say)
    for node in case.nodes:
        node.state.clear()
    case.nodes[0].tamper, case.nodes[3].online = None, True
    case.nodes[2].tamper = reports(mean=lambda v: [1e9, *v[1:]])
    other = replace(case.experiment(), network=replace(case.network, scale="none"))
    with pytest.raises(muster.MusterError, match=r"resume: .* scale pooled.* has scale none"):
        federate(case.grid(), other, place)
    grid = case.grid()
    run = case.run(grid)
    assert not surveys(grid)
    assert len(carriers(grid)) == 2
    assert "without west: it was not in when the run began" in case.said
    assert vars(run.recipe.inputs.encoder) == vars(whole.recipe.inputs.encoder)
    assert all(np.array_equal(run.weights[name], w) for name, w in whole.weights.items())
    assert not (place / "checkpoints").exists(), "model.json has it from here on"
    assert store.load(place).recipe.inputs.encoder.levels == run.recipe.inputs.encoder.levels


class Forgetful(LocalGrid):
    """A node is started again in the middle of the run."""

    def deliver(self, message, site):
        if len(self.log) == 20:
            site.state.clear()
        return super().deliver(message, site)


def test_a_node_that_lost_it_is_sent_it_again(tables):
    case = tables(FEDALIGN)
    grid = case.grid(grid=Forgetful)
    assert_same(case.run(grid), case.simulate())
    assert len(carriers(grid)) == 5
    lost = [reply for _, reply in grid.log if reply.has_error()]
    assert ["nor stored before" in reply.error.reason for reply in lost] == [True]


def test_a_level_that_came_up_later_is_the_clients_failure(tables):
    """A file that changes while the run is under way."""
    case = tables(FEDALIGN)
    file = case.folder / "clinics" / "west.csv"

    class Changing(LocalGrid):
        def deliver(self, message, site):
            if len(self.log) == 8:
                file.write_text(file.read_text().replace("dull", "throbbing"))
            return super().deliver(message, site)

    run = case.run(case.grid(grid=Changing))
    said = run.clients.filter(pl.col("client") == 3)["reason"].unique().to_list()
    assert said == ["failed: the client raised an error (code 2)"]


FIT = {"columns": ["a"], "levels": {}, "holes": [], "mean": [1.0], "std": [2.0]}


@pytest.mark.parametrize(
    "change",
    [
        {"mean": [float("nan")]}, {"std": [0.0]}, {"std": []}, {"mean": [1.0, 2.0]},
        {"levels": {"a": ["x"]}}, {"holes": ["b"]}, {"columns": ["b"]}, {"columns": 5}, {"more": 1},
    ],
)  # fmt: skip
def test_a_client_refuses_what_does_not_fit_the_terms(change):
    network = Network(scale="pooled", columns=("a",))
    assert read_transform(json.dumps(FIT), network).mean == (1.0,)
    with pytest.raises(muster.MusterError, match="do not match the terms; nothing was done"):
        read_transform(json.dumps({**FIT, **change}), network)


def test_nothing_is_sent_that_was_not_agreed_to(tables):
    """The terms of an app say whether clients tell statistics: without, they do not."""
    case = tables(FEDALIGN, rounds=1)
    asks = replace(case.experiment(), network=replace(case.network, scale="none", categories=(),
                                                      missing="error"))  # fmt: skip
    question = RecordDict({OFFER: ConfigRecord({"experiment": shared_terms(asks), "seed": 0})})
    grid = case.grid()
    came = exchange(grid, {1: (101, question)}, COLUMNS_QUERY, 0.3, {})
    assert "ask for no statistics" in came.replies[1].error.reason
    text = shared_terms(case.experiment())
    with pytest.raises(muster.MusterError, match="differs from the app that was agreed on"):
        check_terms(text, shared_terms(asks))


def test_a_manifest_leaves_to_the_federation_what_is_to_be_agreed_on(tmp_path):
    patients("north", 20, 0).drop("pain").write_csv(tmp_path / "north.csv")
    config = {"data-path": str(tmp_path / "north.csv")}
    network = Network(label="ill", classes=("no", "yes"))
    manifest = tmp_path / "manifest.toml"
    manifest.write_text('scale = "pooled"')
    with pytest.raises(muster.MusterError, match=r"scale must be the same for all clients"):
        read_own_data(config, network, 0)
    assert read_own_statistics(config, replace(network, scale="pooled"), 0).columns[0] == "age"
    manifest.write_text(
        "mean = {age = 50, sugar = 1e6, tag = 7}\nstd = {age = 9, sugar = 2e5, tag = 1}"
    )
    assert read_own_data(config, network, 0).scaler.mean.tolist() == [50, 1e6, 7], "as before"
    with pytest.raises(muster.MusterError, match=r"scale: 'pooled' next to \[mean\] and \[std\]"):
        read_own_data(config, replace(network, scale="pooled"), 0)


def test_the_settings_in_the_docs_are_settings():
    page = (Path(__file__).parents[3] / "docs" / "federate.md").read_text()
    columns, texts, *_ = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    chosen = load(tomllib.loads(texts))
    assert chosen.network.reading == {"text": "review", "length": 64, "pad": 0}
    assert chosen.spec.vocabulary == 30000
    network = load(tomllib.loads(columns)).network
    assert network.preparing == {"scale": "priority", "categories": ("pain",), "missing": "mean"}
    with pytest.raises(muster.MusterError, match=r"network.scale: it is for clients' own files"):
        load({"network": {"scale": "pooled"}, "data": "digits"}).federation(0)
    with pytest.raises(muster.MusterError, match=r"network.categories: 'pian'; allowed: columns"):
        Network(columns=("pain",), categories=("pian",))


def test_the_server_warns_of_one_level_in_two_spellings_from_different_nodes(tables):
    case = tables(FEDALIGN)
    file = Path(case.nodes[1].config["data-path"])
    file.write_text(file.read_text().replace("dull", "Dull"))
    case.run()
    (line,) = [line for line in case.said if line.startswith("warning: ")]
    assert "column 'pain': 'Dull' (client " in line
    assert "seem to be one level" in line
    assert "[recode.pain]" in line


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"a": ("no", "yes"), "b": ("no", "yes")}, ""),
        ({"a": ("no", "yes"), "b": ("0", "1")}, "'0' (client 'b') and 'no' (client 'a') seem"),
        ({"a": ("red", "blue"), "b": ("7", "8")}, "client 'b' has '7', '8', client 'a' 'blue'"),
    ],
)
def test_codings_of_levels_that_differ_by_node(own, said):
    lines = find_other_codings({who: {"c": known} for who, known in own.items()})
    assert len(lines) == bool(said)
    assert said in "".join(lines)

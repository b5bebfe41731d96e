"""Advice over a network: the same as simulated, from summaries that nodes have agreed to tell."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

import muster
from flower_grid import LocalGrid, Node
from muster.config.experiment import load
from muster.config.network import Member
from muster.flower.local.loopback import write_client
from muster.flower.server.app import federate
from muster.flower.server.network_advice import advise, ask_summaries, read_summary
from muster.flower.terms import check_terms, shared_terms
from muster.study.advice_plan import list_methods, list_trainings
from muster.study.advice_store import is_advice, load_advice
from muster.study.way_records import WayRecord
from muster.tasks.classification import Binary

pytestmark = pytest.mark.filterwarnings("ignore:.*copies of training rows")

SEEDS = 3
WORK = {"steps": 4, "batch_size": 8, "lr": 0.2}
NAMES = ("east", "north", "south")


def write_hospitals(folder):
    draw = np.random.default_rng(0)
    for name, rows, twist in zip(NAMES, (30, 24, 60), (0.0, 0.0, 2.0), strict=True):
        age, dose = draw.uniform(20, 90, rows), draw.uniform(0, 5, rows)
        ill = age / 30 - dose + twist * draw.normal(size=rows) > 0
        table = {"age": age, "dose": dose, "ill": np.where(ill, "yes", "no")}
        frame = pl.DataFrame(table)
        pl.concat([frame, frame[:2]]).write_csv(folder / f"{name}.csv")  # two patients twice


def advice_table(**more):
    return {
        "name": "advice",
        "rounds": 2,
        "dtype": "float64",
        "model": {"name": "linear"},
        "local": WORK,
        "task": {"kind": "binary"},
        "trust": False,
        "methods": list_methods(),
        **more,
        "network": {
            "enrolment_timeout": 0.2,
            "timeout": 0.3,
            "advice": SEEDS,
            **more.get("network", {}),
        },
    }


class Hospitals:
    """Nodes with a CSV file each, and the advice to them."""

    def __init__(self, folder):
        """Without pairs: of two clients, everyone is a pair, below."""
        (folder / "data").mkdir()
        write_hospitals(folder / "data")
        self.folder, self.said = folder, []
        self.nodes = [
            Node(
                {
                    "data-path": str(folder / "data" / f"{name}.csv"),
                    "memory-path": str(folder / "memory" / name),
                }
            )
            for name in NAMES
        ]
        self.grid = LocalGrid(self.nodes)
        terms = {"label": "ill", "classes": ["no", "yes"], "scale": "pooled", "advice_pairs": 2}
        members = [
            Member(name, node.key.decode()) for name, node in zip(NAMES, self.nodes, strict=True)
        ]
        chosen = load(advice_table(network=terms))
        self.chosen = replace(chosen, members=tuple(members))

    def advise(self):
        run = partial(federate, self.grid)
        return advise(self.grid, self.chosen, self.folder / "run", run, self.said.append)

    def simulate(self):
        def data(seed):
            return muster.Federation.from_folder(
                self.folder / "data", label="ill", classes=("no", "yes"), scale="pooled", seed=seed
            )

        return muster.advise(
            data,
            muster.models.Linear(),
            2,
            muster.Local(**WORK),
            SEEDS,
            pairs=2,
            task=Binary(),
            compute=muster.Compute(dtype="float64"),
        )


def assert_same_advice(real, simulated):
    assert list(real.clients) == list(simulated.clients)
    assert (real.note, real.steps, real.ways) == (simulated.note, simulated.steps, simulated.ways)
    for name, there in real.clients.items():
        here = simulated[name]
        assert (there.verdict, there.way, there.helps) == (here.verdict, here.way, here.helps)
        assert (there.rows, there.test_rows, there.thin) == (here.rows, here.test_rows, here.thin)
        assert (there.rows_needed, list(there.ways)) == (here.rows_needed, list(here.ways))
        for way in (there.alone, *there.ways.values()):
            also = here.alone if way.name == "alone" else here.ways[way.name]
            np.testing.assert_allclose(way.loss, also.loss, rtol=0, atol=1e-9)
            np.testing.assert_allclose(way.gain or 0, also.gain or 0, rtol=0, atol=1e-9)
            assert way.clear == also.clear
            assert way.scores == pytest.approx(also.scores, abs=1e-9)
            if also.outcomes is not None:
                assert way.outcomes.table["counts"] == also.outcomes.table["counts"]


@pytest.fixture(scope="module")
def advised(tmp_path_factory):
    case = Hospitals(tmp_path_factory.mktemp("hospitals"))
    return case, case.advise()


def test_nodes_with_their_own_files_come_to_the_simulated_advice(advised):
    case, real = advised
    assert_same_advice(real, case.simulate())


def test_fixed_test_rows_are_divided_again_at_the_node(tmp_path):
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(60, 3)), draw.integers(0, 3, 60)
    pairs = [(x[:25], y[:25]), (x[25:50], y[25:50])]
    fed = muster.Federation.from_arrays(pairs, [(x[50:55], y[50:55]), (x[55:], y[55:])])
    nodes = []
    for k in range(fed.n):
        write_client(fed, k, tmp_path / f"{k}.npz")
        config = {"data-path": str(tmp_path / f"{k}.npz"), "memory-path": str(tmp_path / f"m{k}")}
        nodes.append(Node(config))
    chosen = load(advice_table(task={"kind": "multiclass"}, network={"classes": 3}))
    members = tuple(Member(str(k), node.key.decode()) for k, node in enumerate(nodes))
    grid = LocalGrid(nodes)
    real = advise(
        grid, replace(chosen, members=members), tmp_path / "run", partial(federate, grid), print
    )
    simulated = muster.advise(
        fed,
        muster.models.Linear(),
        2,
        muster.Local(**WORK),
        SEEDS,
        compute=muster.Compute(dtype="float64"),
    )
    assert_same_advice(real, simulated)


def test_nothing_but_summaries_leaves_a_node(advised):
    grid = advised[0].grid
    told = [
        reply.content.config_records["word"]
        for message, reply in grid.log
        if message.metadata.message_type == "query.advice"
    ]
    assert len(told) == 3
    allowed = {"loss", "gain", "deviation", "counts", "units", "rows", "thin", "nonce"}
    for report in told:
        assert set(report) == allowed
        assert len(report["loss"]) == 4, "one number for each way, none for a row"
    single = [
        reply
        for message, reply in grid.log
        for record in reply.content.config_records.values()
        for value in record.values()
        if isinstance(value, list) and len(value) > 4 * 4
    ]
    assert not single, "no more numbers than ways have counts"


def test_interrupted_advice_resumes_where_it_was(advised):
    case, first = advised
    folder, before = case.folder / "run", len(case.grid.log)
    assert is_advice(folder)
    (folder / "advice.json").unlink()
    shutil.rmtree(folder / "trainings" / f"maxfl-seed{SEEDS - 1}")
    again = case.advise()
    seeds = {m.content.config_records["offer"]["seed"] for m, _ in case.grid.log[before:-3]}
    assert seeds == {SEEDS - 1}, "only that one is run again"
    assert again.table == first.table == load_advice(folder).table


def test_terms_allow_one_of_the_methods_agreed_on_and_their_seeds_only(tmp_path):
    agreed = shared_terms(load(advice_table()))

    def sent(seed=0, method="fedavg", **more):
        table = advice_table(methods=[{"label": "pair-0-1", "name": method}], seed=seed, **more)
        return shared_terms(load(table))

    check_terms(sent(), agreed)
    check_terms(sent(SEEDS - 1), agreed)
    for other, key in (
        (sent(SEEDS), "'seed'"),
        (sent(method="fedprox"), "'methods'"),
        (sent(rounds=3), "'rounds'"),
        (sent(network={"advice": SEEDS + 1}), "'network'"),
    ):
        with pytest.raises(muster.MusterError, match=key):
            check_terms(other, agreed)
    single = advice_table(methods=[{"label": "a", "name": "fedavg"}], network={"advice": 0})
    other = advice_table(methods=[{"label": "b", "name": "fedavg"}], network={"advice": 0})
    with pytest.raises(muster.MusterError, match="'methods'"):
        check_terms(shared_terms(load(other)), shared_terms(load(single)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"units": 2}, "malformed"),
        ({"deviation": [-1.0] * 4}, "malformed"),
        ({"loss": [0.5]}, "malformed"),
        ({"counts": ["many"] * 16}, "malformed"),
        ({"rows": [1]}, "malformed"),
        ({"thin": "no"}, "malformed"),
        ({"loss": [float("nan")] * 4}, "no finite loss"),
    ],
)
def test_a_summary_that_cannot_be_is_refused(change, said):
    report = {
        "loss": [1.0] * 4, "gain": [0.0] * 4, "deviation": [1.0] * 4, "counts": [1] * 16,
        "units": 9, "rows": [20, 5], "thin": False,
    }  # fmt: skip
    one = WayRecord(np.ones(1), {}, np.zeros(1), np.zeros(1))
    ways = ["alone", "with everyone", "by assist", "by MaxFL"]
    records = [dict.fromkeys(ways, one)]
    message = Message(RecordDict({"word": ConfigRecord(report)}), 1, "query.advice")
    found = read_summary(message, "north", 0, ways, records)
    assert found.ways["by assist"].gain.count == 9
    message = Message(RecordDict({"word": ConfigRecord(report | change)}), 1, "query.advice")
    with pytest.raises(muster.MusterError, match=f"north: .*{said}"):
        read_summary(message, "north", 0, ways, records)


def test_a_node_without_its_own_folder_sends_nothing(tmp_path):
    case = Hospitals(tmp_path)
    del case.nodes[0].config["memory-path"]
    with pytest.raises(muster.MusterError, match="start it with --memory FOLDER"):
        case.advise()


def test_terms_without_advice_ask_for_none(tmp_path):
    case = Hospitals(tmp_path)
    grid = LocalGrid(case.nodes)
    methods = {"fedavg": {"name": "fedavg"}}
    network = replace(case.chosen.network, advice=0)
    plain = replace(case.chosen, methods=methods, network=network)
    with pytest.raises(muster.MusterError, match="terms ask for none"):
        ask_summaries(grid, plain, list_trainings(NAMES), [])
    with pytest.raises(muster.MusterError, match=r"network\.advice: 0"):
        advise(grid, plain, tmp_path / "run", partial(federate, grid), print)

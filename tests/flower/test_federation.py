"""Roles, traffic, privacy, gathering and going on after a crash, over an in-process grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from flwr.app import ConfigRecord, MessageType
from polars.testing import assert_frame_equal

import muster
from flower_grid import LocalGrid, Node
from flower_setup import DATA
from muster.config.network import Member
from muster.flower.local.loopback import write_client
from muster.flower.testing.faults import change_report, train_only
from muster.flower.transport.wire import MODEL, OFFER, REPORT

FEDALIGN = {"name": "fedalign", "epsilon": 0.6, "warmup": 1}


def same(a, b):
    return all(np.array_equal(a.weights[name], w) for name, w in b.weights.items())


class Liar(Node):
    """Tells its own client app that it is priority, whatever the server says."""

    def __init__(self, node):
        super().__init__({**node.config, "role": "priority", "priority": True}, key=node.key)

    def hear(self, message):
        said = message.content.config_records[OFFER]
        if "priority" in said:
            message.content[OFFER] = ConfigRecord({**said, "priority": True, "importance": 1.0})
        return message


class Deaf(LocalGrid):
    """A grid on which liars hear what they like."""

    def deliver(self, message, node):
        return super().deliver(node.hear(message) if hasattr(node, "hear") else message, node)


def test_a_client_that_claims_priority_changes_nothing(setup):
    honest = setup(FEDALIGN, evaluate_every=0)
    truth = honest.run()
    silent = truth.clients.filter(~pl.col("joined"))
    assert len(silent)
    liar = int(silent["client"][0])
    honest.nodes = [Liar(n) if k == liar else n for k, n in enumerate(honest.nodes)]
    for node in honest.nodes:
        node.state.clear()
    run = honest.run(honest.grid(grid=Deaf), "lie")
    rows = run.clients.filter(pl.col("client") == liar)
    assert rows["joined"].all()  # it did train, and sent its model
    assert not rows["priority"].any()
    assert not rows["admitted"].any()
    assert set(rows["reason"]) == {"loss outside the band"}
    assert same(run, truth)


def test_strangers_are_never_asked_and_are_noted(setup):
    case = setup(FEDALIGN)
    grid = case.grid()
    grid.nodes[500] = Node(case.nodes[0].config)
    run = case.run(grid)
    assert all(message.metadata.dst_node_id != 500 for message, _ in grid.log)
    noted = run.moves.filter(pl.col("client") == -1)
    assert len(noted) == 1
    assert noted["move"][0].startswith("turned away: key ")
    assert same(run, case.simulate())


def test_an_abstention_carries_no_weights_and_costs_less_than_a_kilobyte(setup):
    case = setup(FEDALIGN, evaluate_every=0)
    grid = case.grid()
    run = case.run(grid)
    asked = run.clients.filter(~pl.col("priority"))
    silent = asked.filter(~pl.col("joined"))
    assert 0 < len(silent) < len(asked)
    assert (silent["bytes_up"] < 1000).all()
    assert (silent["bytes_up"] > 0).all()
    assert (asked.filter(pl.col("joined"))["bytes_up"] > 64 * 10 * 8).all()
    for _, reply in grid.log:
        said = reply.content.config_records[REPORT]
        if "joined" in said and not said["joined"]:
            assert not reply.content.array_records


def test_half_precision_halves_the_bytes_and_both_sides_agree_on_the_model(setup):
    settings = {
        "method": {"name": "scaffold"},
        "model": {"name": "mlp", "hidden": [64]},
        "evaluate_every": 0,
    }
    whole = setup(dtype="float32", **settings)
    exact = whole.run()
    whole.network = replace(whole.network, precision="float16")
    for node in whole.nodes:
        node.state.clear()
    grid = whole.grid()
    half = whole.run(grid, "half")
    arrays = [
        a for m, r in grid.log for c in (m, r) for rec in c.content.array_records.values()
        for a in rec.values()
    ]  # fmt: skip
    assert {a.dtype for a in arrays} == {"float16"}
    assert {a.stype for a in arrays} == {"numpy.ndarray"}
    assert half.rounds["bytes_up"].sum() < 0.56 * exact.rounds["bytes_up"].sum()
    for name, w in exact.weights.items():
        assert w.dtype == np.float32
        np.testing.assert_allclose(half.weights[name], w, atol=5e-3)
    double = setup(dtype="float64", **settings).run(name="double")
    assert exact.rounds["bytes_up"].sum() < 0.56 * double.rounds["bytes_up"].sum()


def test_bytes_are_what_travelled(setup):
    case = setup(FEDALIGN)
    grid = case.grid()
    run = case.run(grid)
    weights = sum(
        len(a.data) for m, _ in grid.log for r in m.content.array_records.values()
        for a in r.values()
    )  # fmt: skip
    down = run.rounds["bytes_down"].sum()
    # The last model goes out to be judged after the last round; what is counted is the rounds'.
    rounds = case.chosen.settings.rounds
    assert weights * rounds / (rounds + 1) < down < 1.7 * weights
    # A model travels to each client once a round, however many messages are about it.
    carried = [m for m, _ in grid.log if MODEL in m.content.array_records]
    assert len(carried) == (rounds + 1) * case.fed.n


def test_requirements_and_losses_stay_with_the_clients_of_maxfl(setup):
    case = setup("maxfl", requirement={"steps": 5})
    grid = case.grid()
    run = case.run(grid)
    said = {key for _, r in grid.log for key in r.content.config_records[REPORT]}
    assert "claim" in said
    assert not said & {"loss", "accuracy", "requirement"}
    assert run.final["requirement"].is_null().all()
    assert run.final["train_loss"].is_null().all()
    assert run.rounds["gm_appeal"].is_not_null().all()


def test_an_owners_own_requirement_is_used(setup):
    case = setup("maxfl", requirement={"steps": 5})
    for node in case.nodes:
        node.config["requirement"] = 1.5
    run = case.run()
    fed = replace(case.fed, requirement=np.full(case.fed.n, 1.5))
    case.fed = fed
    assert same(run, case.simulate())


class Crash(BaseException):
    """The server process is gone."""


class Crashing(LocalGrid):
    """Takes the server down at the n-th request to train (or of another kind): before it is sent,
    or after."""

    left, after, kind = 2, False, MessageType.TRAIN

    def push_messages(self, messages):
        training = messages and messages[0].metadata.message_type == self.kind
        if training:
            self.left -= 1
        if training and self.left == 0 and not self.after:
            raise Crash
        ids = super().push_messages(messages)
        if training and self.left == 0:
            raise Crash
        return ids


@pytest.mark.parametrize("after", [False, True], ids=["before the request", "after the answers"])
@pytest.mark.parametrize("memory", ["flower", "disk"])
@pytest.mark.parametrize(
    "method",  # clients of the second have no memory to lose
    ["scaffold", pytest.param("fedalign", marks=pytest.mark.slow)],
)
def test_a_server_that_died_goes_on_from_its_checkpoint(setup, tmp_path, method, memory, after):
    case = setup(method, evaluate_every=0)
    if memory == "disk":
        for k, node in enumerate(case.nodes):
            node.config["memory-path"] = str(tmp_path / f"memory{k}")
    grid = case.grid(grid=Crashing)
    grid.after = after
    with pytest.raises(Crash):
        case.run(grid)
    assert (case.folder / "run" / "checkpoints" / "round-00000001").exists()
    if memory == "disk":
        for node in case.nodes:  # the nodes were restarted too, and remember from their disks
            node.state.clear()
    run = case.run()
    assert same(run, case.simulate())
    assert run.rounds["round"].to_list() == [1, 2, 3]
    assert not (case.folder / "run" / "checkpoints").exists()


@pytest.mark.parametrize("method", ["scaffold", "ditto"])
def test_a_server_that_died_while_clients_judged_the_model_goes_on_with_their_memory(setup, method):
    case = setup(method)
    grid = case.grid(grid=Crashing)
    # The third evaluation is of round 2's model; round 2 itself is not saved yet.
    grid.left, grid.after, grid.kind = 3, True, MessageType.EVALUATE
    with pytest.raises(Crash):
        case.run(grid)
    run = case.run()
    assert run.rounds["failed"].to_list() == [0, 0, 0]
    assert same(run, case.simulate())


def test_clients_that_remember_are_never_behind_the_checkpoint(setup):
    case = setup("scaffold", rounds=5, checkpoint_every=2, evaluate_every=0)
    grid = case.grid(grid=Crashing)
    grid.left = 4
    with pytest.raises(Crash):
        case.run(grid)
    run = case.run()
    assert run.rounds["failed"].to_list() == [0] * 5
    assert same(run, case.simulate())


def test_a_client_measures_again_what_it_measured_in_a_round_that_was_undone(setup):
    """A server that goes on from an earlier round may come to another model for the same round."""
    case = setup(FEDALIGN, evaluate_every=0)
    first = case.run(name="first")
    state = case.nodes[2].state  # not asked in the warm-up, so its note of round 1 stays
    state["notes"] = ConfigRecord({**state.config_records["notes"], "appraised": 1, "loss": 1e-6})
    again = case.run(name="again")
    assert same(again, first)
    assert_frame_equal(again.clients, first.clients)


def test_a_client_whose_memory_is_lost_says_so(setup):
    case = setup("scaffold")
    with pytest.raises(Crash):
        case.run(case.grid(grid=Crashing))
    case.nodes[3].state.clear()
    run = case.run()
    rows = run.clients.filter((pl.col("client") == 3) & (pl.col("round") > 1))
    assert rows["reason"].str.starts_with("failed: the client raised").all()
    assert run.rounds["failed"].to_list() == [0, 1, 1]


def test_a_reply_that_came_too_late_does_not_move_the_clients_memory(setup):
    case = setup("scaffold", rounds=4)
    seen = []

    def late_once(message, reply):
        seen.append(1)
        return None if len(seen) == 2 else reply

    case.nodes[3].tamper = train_only(late_once)
    run = case.run()
    assert run.rounds["failed"].to_list() == [0, 1, 0, 0]
    # The same as if it had not been asked in round 2 at all.
    other = setup("scaffold", rounds=4)
    looked = []

    def away_once(message, reply):
        looked.append(1)
        if len(looked) in (2, 3):  # it is asked once more, in case it no longer has the model
            raise RuntimeError
        return reply

    other.nodes[3].tamper = train_only(away_once)
    assert same(run, other.run(name="other"))


def test_a_client_that_goes_away_and_comes_back_takes_part_again(setup):
    case = setup("scaffold", rounds=3, evaluate_every=0)
    grid = case.grid()
    sent = []

    def push(messages, push=grid.push_messages):
        sent.append(1)
        case.nodes[4].online = len(sent) != 2  # off when round 2 begins
        return push(messages)

    grid.push_messages = push
    run = case.run(grid)
    rows = run.clients.filter(pl.col("client") == 4).sort("round")
    assert rows["admitted"].to_list() == [True, False, True]
    assert rows["reason"][1] == "failed: not connected"


def test_a_node_that_lost_the_model_is_sent_it_again(setup):
    case = setup("fedavg")
    forgetful = case.nodes[2]

    def forget(message, reply):
        if message.metadata.message_type == MessageType.EVALUATE:
            forgetful.state.clear()
        return reply

    forgetful.tamper = forget
    assert same(case.run(), case.simulate())


def test_impossible_opinions_are_left_out_of_the_measures(setup):
    def boast(message, reply):
        if message.metadata.message_type == MessageType.EVALUATE:
            said = {**reply.content.config_records[REPORT], "loss": 1e12, "test_accuracy": 40.0}
            reply.content[REPORT] = ConfigRecord(said)
        return reply

    # Of a client that is not priority: whatever a priority client can have measured counts.
    case = setup("fedavg")
    case.nodes[2].tamper = boast
    run = case.run()
    assert (run.rounds["loss"] < 100).all()
    assert (run.rounds["mean_test_accuracy"] <= 1).all()
    assert "impossible loss" in set(run.moves.filter(pl.col("client") == 2)["move"])
    assert run.final["train_loss"].is_null().to_list() == [False, False, True, False, False]


def introduce(**values):
    def tamper(message, reply):
        if message.metadata.message_type == "query.hello":
            reply.content[REPORT] = ConfigRecord({**reply.content.config_records[REPORT], **values})
        return reply

    return tamper


MISFITS = {
    "huge": (introduce(rows=10**12), "it states 1000000000000 rows"),
    "negative": (introduce(rows=-3), "it states -3 rows"),
    "shape": (introduce(shape=[63]), "its rows have shape (63,)"),
    "classes": (introduce(classes=47), "it has 47 classes"),
    "malformed": (introduce(rows="many"), "its answer is malformed"),
}


@pytest.mark.parametrize("find_mismatch", MISFITS)
def test_clients_that_do_not_fit_are_left_out_and_noted(setup, find_mismatch):
    tamper, reason = MISFITS[find_mismatch]
    case = setup("fedavg", evaluate_every=0)
    case.nodes[3].tamper = tamper
    run = case.run()
    assert 3 not in set(run.clients["client"])
    assert any(reason in line for line in case.said)
    assert run.moves.filter(pl.col("client") == 3)["move"][0].startswith(f"not in: {reason}")
    case.nodes[0].tamper = tamper  # a priority client
    with pytest.raises(muster.MusterError, match=r"client[01]: a priority client, and it"):
        case.run(name="second")


def test_a_client_without_held_out_rows_is_no_client_of_a_run_that_decides_on_them(setup):
    case = setup(decide_on="held_out", rounds=1)
    write_client(replace(case.fed, test=None), 3, case.folder / "3.npz")
    case.nodes[3].config["test-fraction"] = 0
    assert set(case.run().clients["client"]) == {0, 1, 2, 4}
    assert any("without client3" in s and "held-out rows, and this cl" in s for s in case.said)


def test_a_federation_waits_for_its_priority_clients_and_enough_others(setup):
    case = setup("fedavg")
    case.nodes[4].online = False
    run = case.run()
    assert run.final["unseen"].to_list() == [False] * 4 + [True]
    case.network = replace(case.network, min_clients=5)
    with pytest.raises(muster.MusterError, match="min_clients: 5 clients, and 4 are there"):
        case.run(name="few")
    case.nodes[1].online = False
    with pytest.raises(muster.MusterError, match="client1: a priority client, and it has not conn"):
        case.run(name="none")


def test_bad_federations_are_one_clear_line(setup):
    case = setup("fedavg")
    members = [Member(f"c{k}", n.key.decode(), k == 0) for k, n in enumerate(case.nodes)]
    from muster.flower.server.app import federate

    def run(members, **settings):
        s = replace(case.chosen.settings, **settings)
        federate(
            case.grid(), replace(case.chosen, members=tuple(members), settings=s), case.folder / "x"
        )

    with pytest.raises(muster.MusterError, match="clients: nobody is registered"):
        run([])
    with pytest.raises(muster.MusterError, match="c0 and c9 have the same key"):
        run([*members, Member("c9", case.nodes[0].key.decode())])
    with pytest.raises(muster.MusterError, match=r"c9\.key: not a public key"):
        run([*members, Member("c9", "ecdsa-sha2-nistp384 AAAA")])
    with pytest.raises(muster.MusterError, match="attack: a real federation"):
        run(members, attack=muster.attacks.sign_flip())
    with pytest.raises(muster.MusterError, match=r"left_out: 0.25; it is for simulated runs"):
        run(members, left_out=0.25)
    case.nodes[2].config.clear()
    assert len(case.run().rounds) == 3
    assert any("without client2: its client app failed" in s for s in case.said)


def test_unseen_clients_judge_and_never_train(setup):
    case = setup("fedavg")
    case.fed = replace(case.fed, unseen=np.arange(5) == 4)
    run = case.run()
    assert 4 not in set(run.clients["client"])
    assert run.rounds["mean_test_accuracy_unseen"].is_not_null().all()
    assert same(run, case.simulate())


def test_word_tampering_helper_really_tampers(setup):
    case = setup("fedavg", rounds=1, evaluate_every=0)
    case.nodes[2].tamper = change_report(rows=1)
    assert case.run().rounds["refused"].to_list() == [1]


@pytest.mark.filterwarnings("ignore:features need scaling")
def test_tables_with_another_order_of_columns_are_distinguished(tmp_path):
    """Two sites with the same columns in another order: refused, or put in order by the run."""
    from muster.config.experiment import load
    from muster.config.network import members_of
    from muster.flower.server.app import federate

    draw = np.random.default_rng(0)
    x = draw.normal(size=(30, 2)) * [1, 100]
    table = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "label": draw.integers(0, 2, 30)})
    orders = (["a", "b", "label"], ["a", "b", "label"], ["b", "label", "a"])
    nodes = []
    for k, order in enumerate(orders):
        table.select(order).write_csv(tmp_path / f"{k}.csv")
        nodes.append(Node({"data-path": str(tmp_path / f"{k}.csv")}))
    fed = muster.data.digits(clients=3, priority=1)
    members = members_of(fed, [node.key.decode() for node in nodes])
    settings = {"rounds": 1, "data": DATA, "network": {"enrolment_timeout": 0.1, "timeout": 1}}

    def run(name, **network):
        chosen = load({**settings, "network": {**settings["network"], **network}})
        return federate(
            LocalGrid(nodes), replace(chosen, members=members), tmp_path / name, said.append
        )

    said = []
    assert set(run("mixed").clients["client"]) == {0, 1}
    assert any("without client2: its columns differ" in line for line in said)
    named = run("named", columns=["b", "a"])
    assert set(named.clients["client"]) == {0, 1, 2}

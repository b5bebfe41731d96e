"""Secure sums over the network: equal to the simulation's, whoever fails at whatever stage, and
nothing of a single client in anything that the server receives."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from scipy import stats

import muster
from flower_grid import LocalGrid
from flower_setup import DATA
from muster.flower.client import app as client_app
from muster.flower.client.node import Node
from muster.flower.terms import check_terms, shared_terms
from muster.flower.testing.faults import lose_node, set_arrays, set_report
from muster.flower.transport.sum_wire import LIST, MASK_NONCE, NUMBER, SIGNED, SUM
from muster.flower.transport.wire import APP_RAISED, MODEL, OFFER, decode
from muster.privacy.committee import read_groups, write_groups
from muster.privacy.contributions import CONTRIBUTION
from muster.privacy.masks import SumKey
from muster.report.html.page import report_public
from muster.results.privacy_statement import state_privacy
from muster.run import contributors as simulated
from secure_setup import SecureSetup

UNMASK = "query.unmask"


@pytest.fixture
def case(tmp_path):
    return lambda **settings: SecureSetup(tmp_path, **settings)


@pytest.fixture
def quiet(monkeypatch):
    """Nobody adds noise: sums can be compared to the last bit."""
    for module in (client_app, simulated):
        monkeypatch.setattr(module, "draw_vectors", lambda shape, *rest: np.zeros(shape, np.uint32))


def asked(message):
    return message.metadata.message_type


def attempts(grid, kind="train"):
    """The numbers of attempts that were asked for, in order."""
    numbers = [m.content.config_records[SUM][NUMBER] for m, _ in grid.log if asked(m) == kind]
    return list(dict.fromkeys(numbers))


def same(one, other):
    return all(np.array_equal(one.weights[name], other.weights[name]) for name in other.weights)


def test_the_sums_are_those_of_the_simulation_to_the_last_bit(case, quiet):
    setup = case(rounds=3)
    run = setup.run()
    assert same(run, setup.simulate())
    assert run.rounds["releases"].to_list() == [1, 2, 3]
    assert not run.rounds["skipped"].any()
    # And those of plain sums but for the noise, and the rounding at another scale.
    job = setup.chosen.job
    plain = replace(job, privacy=replace(job.privacy, secure=False))
    same_data = {"compute": setup.chosen.settings.compute, "keep": setup.chosen.keep}
    for name, weights in muster.run_job(setup.fed, plain, **same_data).weights.items():
        np.testing.assert_allclose(run.weights[name], weights, atol=1e-5)


def test_sums_without_noise_are_those_of_the_simulation_and_say_that_they_are_not_private(case):
    """With noise = 0 no draw is patched away: what nodes and committee send is all there is."""
    setup = case(privacy={"noise": 0}, rounds=3)
    run = setup.run()
    assert same(run, setup.simulate())
    assert run.facts["privacy"]["private"] is False
    assert "epsilon_objective" not in run.rounds.columns
    assert state_privacy(run.facts).startswith("not private: there is no noise")
    with pytest.raises(muster.MusterError, match="not private"):
        report_public({"fedalign": [run]}, setup.folder / "public.html")


def grouped(case, **settings):
    """Nine clients: three priority, and two groups of three."""
    settings = {"data": {**DATA, "clients": 9, "priority": 3}, "rounds": 3, **settings}
    method = {"name": "fedalign", "epsilon": 9.0, "warmup": 0, "trust": True}
    return case(method=method, privacy={"groups": 3}, **settings)


def test_groups_are_those_of_the_simulation_and_each_has_its_own_answers(case, quiet):
    setup = grouped(case)
    grid = setup.grid()
    run = setup.run(grid)
    assert same(run, setup.simulate())
    lists = [
        read_groups(m.content.config_records[SUM][LIST], 9)
        for m, _ in grid.log
        if asked(m) == UNMASK
    ]
    assert {tuple(len(group) for group in groups) for groups in lists} == {(3, 3, 3)}
    assert {tuple(e.client for e in groups[0]) for groups in lists} == {(0, 1, 2)}
    assert len({tuple(e.client for e in groups[1]) for groups in lists}) > 1  # dealt every round
    sent = [
        decode(r.content.array_records[MODEL][CONTRIBUTION])
        for m, r in grid.log
        if asked(m) == UNMASK
    ]
    assert {answer.shape for answer in sent} == {(3, 651)}


def test_members_refuse_a_server_that_deals_by_its_own_hand(case):
    """It puts two clients that are its own next to the one that it is after."""

    class Deals(LocalGrid):
        def deliver(self, message, site):
            if asked(message) == UNMASK:
                listed = message.content.config_records[SUM][LIST]
                first, one, two = read_groups(listed, 9)
                forged = (first, (*one[:2], two[0]), (one[2], *two[1:]))
                set_values(message.content, SUM, **{LIST: write_groups(forged)})
            return super().deliver(message, site)

    setup = grouped(case, rounds=1)
    grid = setup.grid(grid=Deals)
    run = setup.run(grid)
    reasons = [r.error.reason for m, r in grid.log if asked(m) == UNMASK]
    assert {m.metadata.dst_node_id for m, _ in grid.log if asked(m) == UNMASK} == {100, 101, 102}
    assert all("other groups than the agreed seed deals in this round" in why for why in reasons)
    assert run.rounds["skipped"].to_list() == [True]
    assert run.rounds["releases"].to_list() == [0]


def test_a_group_of_too_few_answers_is_in_no_list_and_the_others_go_on(case, quiet):
    setup = grouped(case, rounds=1)
    setup.nodes[5].tamper = Fails("train")
    grid = setup.grid()
    run = setup.run(grid)
    listed = next(m for m, _ in grid.log if asked(m) == UNMASK).content.config_records[SUM][LIST]
    assert [len(group) for group in read_groups(listed, 9)] == [3, 3]
    assert run.rounds["skipped"].to_list() == [False]
    assert any("2 answered, and a group has 3" in text for text in run.moves["move"])
    there = set(run.clients.filter("joined")["client"])
    assert there == {e.client for group in read_groups(listed, 9) for e in group}


# Who fails, and when


class Fails:
    """A node that fails at its first so many requests of a kind."""

    def __init__(self, kind, times=1, how=lose_node):
        self.kind, self.left, self.how = kind, times, how

    def __call__(self, message, reply):
        if asked(message) != self.kind or not self.left:
            return reply
        self.left -= 1
        return self.how(message, reply)


def without(setup, *clients, t=0):
    """The simulation in which these clients answer nothing in one round."""
    real = simulated.LocalContributors.contribute

    def contribute(self, offer, roster, given, cache, memory, each=lambda rows, vectors: None):
        def some(rows, vectors):
            if offer.round == t:
                vectors = np.where(np.isin(rows, clients)[:, None], np.uint32(0), vectors)
            each(rows, vectors)

        return real(self, offer, roster, given, cache, memory, some)

    simulated.LocalContributors.contribute = contribute
    try:
        return setup.simulate()
    finally:
        simulated.LocalContributors.contribute = real


@pytest.mark.parametrize("client", [0, 2, 4], ids=["a member", "another member", "a client"])
@pytest.mark.parametrize("how", [lose_node, lambda message, reply: None], ids=["dies", "late"])
def test_a_client_that_fails_before_it_answers_is_not_in_the_sum(case, quiet, client, how):
    setup = case(method="fedavg")
    setup.nodes[client].tamper = Fails("train", how=how)
    run = setup.run()
    assert same(run, without(setup, client))
    rows = run.clients.filter(pl.col("client") == client).sort("round")
    assert rows["joined"].to_list() == [False, True]
    assert rows["reason"][0].startswith("failed")
    assert run.rounds["failed"].to_list() == [1, 0]


BROKEN = {
    "another vector": lambda m, r: set_arrays(
        r, {CONTRIBUTION: decode(r.content.array_records[MODEL][CONTRIBUTION]) + np.uint32(1)}
    ),
    "another signature": lambda m, r: set_report(r, **{SIGNED: bytes(64)}),
    "no signature": lambda m, r: set_report(r, **{SIGNED: None}),
    "a short nonce": lambda m, r: set_report(r, **{MASK_NONCE: b"n"}),
    "a number for a nonce": lambda m, r: set_report(r, **{MASK_NONCE: 7}),
    "another size": lambda m, r: set_arrays(r, {CONTRIBUTION: np.zeros(3, np.uint32)}),
    "another dtype": lambda m, r: set_arrays(r, {CONTRIBUTION: np.zeros(651)}),
}


@pytest.mark.parametrize("how", BROKEN)
def test_an_answer_that_is_broken_on_its_way_is_not_in_the_sum(case, quiet, how):
    setup = case(method="fedavg")
    setup.nodes[4].tamper = Fails("train", how=BROKEN[how])
    run = setup.run()
    assert same(run, without(setup, 4))
    assert not run.rounds["skipped"].any()


def test_a_member_that_fails_once_is_asked_again_and_answers_the_same(case, quiet):
    setup = case()
    setup.nodes[1].tamper = Fails(UNMASK)
    grid = setup.grid()
    run = setup.run(grid)
    assert same(run, setup.simulate())
    assert len(attempts(grid)) == 2  # one for each round
    moves = run.moves["move"].to_list()
    assert any("client 1 gave no answer: failed: the node went away" in text for text in moves)


def test_a_member_that_stays_away_ends_the_attempt_and_the_next_has_other_masks(case, quiet):
    setup = case()
    setup.nodes[1].tamper = Fails(UNMASK, times=2)
    grid = setup.grid()
    run = setup.run(grid)
    # Priority clients gave twice in the first round, and have nothing left for the second.
    assert same(run, without(setup, 0, 1, 2, t=1))
    numbers = attempts(grid)
    assert len(numbers) == 3
    assert numbers == sorted(numbers)
    assert run.rounds["releases"].to_list() == [1, 2]  # nothing came out of the first attempt
    sent = [
        decode(reply.content.array_records[MODEL][CONTRIBUTION])
        for message, reply in grid.log
        if asked(message) == "train" and message.metadata.dst_node_id == 104
    ]
    assert not np.any(sent[0] == sent[1])


def test_without_a_member_there_is_no_sum_and_the_model_stays(case, quiet):
    setup = case(rounds=2)
    setup.nodes[2].tamper = Fails(UNMASK, times=4)  # two requests in each of two attempts
    run = setup.run()
    assert run.rounds["skipped"].to_list() == [True, False]
    assert run.rounds["releases"].to_list() == [0, 1]
    assert set(run.clients.filter(pl.col("round") == 1)["reason"]) == {"no sum"}


def test_a_node_that_was_restarted_keeps_to_what_it_sent(case, quiet):
    """Flower's record of its state is lost; what it wrote down is not."""
    setup = case()

    def restart(message, reply):
        for node in setup.nodes:
            node.state.clear()
        return lose_node(message, reply)

    setup.nodes[1].tamper = Fails(UNMASK, how=restart)
    assert same(setup.run(), setup.simulate())


@pytest.mark.parametrize("missing", ["sum-key", "memory-path"])
def test_a_node_without_its_keys_or_a_memory_takes_no_part(case, quiet, missing):
    setup = case(method="fedavg", rounds=1)
    del setup.nodes[4].config[missing]
    grid = setup.grid()
    run = setup.run(grid)
    assert same(run, without(setup, 4))
    errors = [r.error.reason for _, r in grid.log if r is not None and r.has_error()]
    assert any(missing in reason or "--memory" in reason for reason in errors)


def test_a_server_that_is_started_again_goes_on_with_newer_attempts(case, quiet):
    setup = case(rounds=3)

    class Stops(LocalGrid):
        def deliver(self, message, site):
            if asked(message) == UNMASK and message.content.config_records[OFFER]["round"] == 1:
                raise KeyboardInterrupt
            return super().deliver(message, site)

    with pytest.raises(muster.Interrupted):
        setup.run(setup.grid(grid=Stops))
    run = setup.run()
    assert same(run, without(setup, 0, 1, 2, t=2))  # whose budget is spent
    assert run.rounds["releases"].to_list() == [1, 2, 3]


def test_a_client_that_spoils_a_sum_moves_nothing(case, quiet, monkeypatch):
    """Nobody can look at what it sends; the sum is longer than honest clients' can be."""
    real = Node.contribute_securely

    def spoil(self, offer, role, state):
        values = real(self, offer, role, state)
        if role.client == 4 and offer.round == 0:
            values = np.random.default_rng(0).integers(0, 2**32, len(values), dtype=np.uint32)
        return values

    monkeypatch.setattr(Node, "contribute_securely", spoil)
    run = case().run()
    assert run.rounds["skipped"].to_list() == [True, False]
    assert run.rounds["releases"].to_list() == [1, 2]  # it was released, and is not used
    assert any("someone spoilt it" in text for text in run.moves["move"])


def test_without_its_committee_a_run_does_not_begin(case):
    setup = case(privacy={"committee": ["client0", "client1", "client4"]})
    setup.nodes[4].online = False
    with pytest.raises(muster.MusterError, match=r"privacy\.committee: client4 is not in"):
        setup.run()


def test_the_terms_have_keys_and_numbers_and_no_names(case):
    setup = case(privacy={"committee": ["client4", "client1", "client0"]})
    chosen = setup.experiment()
    text = shared_terms(chosen)
    table = tomllib.loads(text)
    assert table["privacy"]["committee"] == ["4", "1", "0"]
    assert table["network"]["sum_roles"] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert table["network"]["sum_priority"] == [0, 1, 2]
    assert len(table["network"]["sum_keys"]) == 5
    assert "client" not in "".join(table["network"]["sum_keys"])
    assert all(member.name not in text for member in chosen.members)
    check_terms(text, text)
    swapped = replace(chosen, members=(*chosen.members[:4], replace(
        chosen.members[4], sum_key=SumKey.generate().public.to_text()
    )))  # fmt: skip
    with pytest.raises(muster.MusterError, match=r"differs from the app .* \('network'\)"):
        check_terms(shared_terms(swapped), text)


# Noise


def test_the_noise_of_the_committee_is_what_was_promised_and_more_by_those_who_might_collude(case):
    """With updates of almost 0 the first step is noise: variance z^2 C^2 m / (m - c) / W^2."""
    setup = case(
        privacy={"noise": 2.0, "loss": {"kind": "constant", "value": 1.0}},
        local={"steps": 1, "lr": 1e-12},
        rounds=1,
    )
    weights = np.concatenate([w.ravel() for w in setup.run().weights.values()])
    deviation = 2.0 * math.sqrt(3 / 2) / 5
    assert stats.kstest(weights / deviation, "norm").pvalue > 1e-4
    again = np.concatenate([w.ravel() for w in setup.run(name="again").weights.values()])
    assert abs(np.corrcoef(weights, again)[0, 1]) < 0.2  # another draw


# Servers that cheat


def server_that(change):
    """A grid whose server changes what it sends to nodes."""

    class Cheats(LocalGrid):
        def deliver(self, message, site):
            content = message.content
            change(asked(message), self.nodes[message.metadata.dst_node_id] is site, content)
            return super().deliver(message, site)

    return Cheats


def set_values(content, record, **values):
    content[record] = ConfigRecord({**content.config_records[record], **values})


def cut_list(kind, _, content):
    if kind == UNMASK:
        set_values(content, SUM, **{LIST: content.config_records[SUM][LIST][: 2 * 136]})


def replay(kind, _, content):
    if kind == "train" and content.config_records[OFFER]["round"] == 1:
        set_values(content, SUM, **{NUMBER: 5})


def no_number(kind, _, content):
    if kind == "train":
        set_values(content, SUM, **{NUMBER: "7"})


def no_list(kind, _, content):
    if kind == UNMASK:
        set_values(content, SUM, **{LIST: 7})


def other_role(kind, _, content):
    if kind == "train" and content.config_records[OFFER]["client"] == 4:
        set_values(content, OFFER, importance=1.0, priority=True)


def other_share(kind, _, content):
    if kind == "train" and content.config_records[OFFER]["client"] != 4:
        set_values(content, OFFER, share=0.0)


CHEATS = {
    cut_list: "the server's list has a group of 2, and the least is 3",
    replay: "attempt 5 of round 1 is not newer",
    no_number: "an attempt without a number",
    no_list: "the list is no bytes",
    other_role: "another role than was agreed on",
    other_share: "another role than was agreed on",
}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_nodes_refuse_a_server_that_would_single_someone_out(case, cheat):
    setup = case()
    grid = setup.grid(grid=server_that(cheat))
    setup.run(grid)
    reasons = [r.error.reason for _, r in grid.log if r is not None and r.has_error()]
    assert any(CHEATS[cheat] in reason for reason in reasons), reasons
    assert {r.error.code for _, r in grid.log if r is not None and r.has_error()} == {APP_RAISED}


def send_model(content):
    arrays = {n: decode(a) + 1 for n, a in content.array_records[MODEL].items()}
    content[MODEL] = ArrayRecord({n: Array(a) for n, a in arrays.items()})


OTHER_OFFERS = {
    "model": send_model,
    "lr": lambda content: set_values(content, OFFER, lr=0.5),
    "rounds": lambda content: set_values(content, OFFER, rounds=99),  # a rate may decay by these
    "population": lambda content: set_values(content, OFFER, population=4),
}


@pytest.mark.parametrize("what", OTHER_OFFERS)
def test_a_client_that_was_sent_another_offer_is_in_no_sum(case, quiet, what):
    """The others' answers would cancel or be 0, and the sum would be its own."""
    setup = case(method="fedavg", rounds=1)

    def other_offer(kind, _, content):
        if kind == "train" and content.config_records[OFFER]["client"] == 4:
            OTHER_OFFERS[what](content)

    grid = setup.grid(grid=server_that(other_offer))
    run = setup.run(grid)
    assert same(run, without(setup, 4))
    assert "its signature of a masked vector is wrong" in " ".join(run.moves["move"])


@pytest.mark.parametrize("kind", ["evaluate", "query.trial", "query.advice"])
def test_a_server_that_asks_for_a_loss_gets_none(case, kind):
    """It sees sums alone, and would learn a client's rows from the losses of models it chooses."""
    setup = case(rounds=1)
    grid = setup.grid()
    setup.run(grid)
    request = next(m for m, _ in grid.log if asked(m) == "train")
    content = request.content
    content["trial.0"] = content[MODEL]
    node = request.metadata.dst_node_id
    reply = grid.deliver(Message(content, node, kind), grid.nodes[node])
    assert reply.has_error()
    assert "sent" in reply.error.reason


def test_a_member_gives_no_second_answer_to_an_attempt(case):
    """The server keeps a list, and asks again with fewer names in it."""
    setup = case(rounds=1)
    grid = setup.grid()
    setup.run(grid)
    message = next(m for m, _ in grid.log if asked(m) == UNMASK)
    site = grid.nodes[message.metadata.dst_node_id]
    first = grid.deliver(message, site)
    before = next(r for m, r in grid.log if asked(m) == UNMASK)
    answer = [decode(r.content.array_records[MODEL][CONTRIBUTION]) for r in (first, before)]
    assert np.array_equal(*answer)  # the same noise too
    set_values(message.content, SUM, **{LIST: message.content.config_records[SUM][LIST][:-136]})
    assert "was answered for another list" in grid.deliver(message, site).error.reason


# The transcript


def numbers_in(message: Message):
    """Every number and every array in a reply, by name."""
    for record in message.content.config_records.values():
        for name, value in record.items():
            values = value if isinstance(value, list) else [value]
            yield from ((name, float(v)) for v in values if isinstance(v, (int, float)))
    for record in message.content.array_records.values():
        yield from ((name, decode(a)) for name, a in record.items())


def test_nothing_that_the_server_receives_is_of_a_single_client(case, monkeypatch):
    """Every reply of the run, and what the server stores, against what each client computed."""
    own = []
    real = simulated.LocalContributors.contribute

    def spy(self, offer, roster, given, cache, memory, *each):
        answers = real(self, offer, roster, given, cache, memory, *each)
        if self.clients.fed.n == 1:
            own.append((answers.sums[0], answers.decision.yes[0], answers.appraisal.loss[0]))
        return answers

    monkeypatch.setattr(simulated.LocalContributors, "contribute", spy)
    setup = case(rounds=3, privacy={"noise": 1.0})
    setup.declared = False  # nor does its configuration say how many rows each has
    rows = setup.fed.train.sizes.tolist()
    grid = setup.grid()
    run = setup.run(grid)
    assert len(own) == 15
    assert {bool(yes) for _, yes, _ in own} == {True, False}  # somebody abstained
    replies = [(m, r) for m, r in grid.log if r is not None]
    assert len(replies) == len(grid.log) == 5 + 3 * (5 + 3)
    arrays, figures = [], []
    for message, reply in replies:
        for name, value in numbers_in(reply):
            (arrays if isinstance(value, np.ndarray) else figures).append(
                (asked(message), name, value)
            )
    # Nothing but the round, the client's number, "one row", yes; and the shape of a row.
    names = {name for kind, name, _ in figures if kind != "query.hello"}
    assert names == {"round", "client", "rows", "joined"}
    assert {value for _, name, value in figures if name == "rows"} == {1.0}
    assert {value for _, name, value in figures if name == "joined"} == {1.0}
    hello = {(name, value) for kind, name, value in figures if kind == "query.hello"}
    assert {name for name, _ in hello} <= {"rows", "shape", "classes", "whole", "pixels", "target"}
    assert len(hello) == len({name for name, _ in hello}), "all clients say the same"
    losses = {round(float(loss), 12) for _, _, loss in own}
    assert not losses & {round(value, 12) for _, _, value in figures}
    assert not set(map(float, rows)) & {value for _, _, value in figures}
    # Arrays are noise: uniform, of the same size whoever abstained, and nobody's contribution.
    assert {values.size for _, _, values in arrays} == {651}
    for kind, _, values in arrays:
        assert values.dtype == np.uint32, kind
        assert stats.kstest(values.ravel() / 2.0**32, "uniform").pvalue > 1e-6
        for x, _, _ in own:
            assert not np.any(values.ravel() == x)
            difference = (values.ravel() - x) / 2.0**32
            assert stats.kstest(difference, "uniform").pvalue > 1e-6
    # The results have no more than that.
    assert run.clients["loss"].null_count() == len(run.clients)
    assert run.clients["joined"].all()
    assert run.final["train_loss"].null_count() == 5
    assert set(run.final["rows"]) == {1}
    groups = [
        read_groups(m.content.config_records[SUM][LIST], 5)
        for m, _ in replies
        if asked(m) == UNMASK
    ]
    assert all([len(group) for group in lists] == [5] for lists in groups)

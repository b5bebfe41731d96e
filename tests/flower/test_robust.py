"""What untrusted clients, changed settings and interrupted commands must not do."""

from __future__ import annotations

import os
import signal
import sys
import time
import tomllib
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

import muster
from flower_grid import LocalGrid
from flower_parity import assert_same
from muster.cli.main import main as command
from muster.config.network import Network, members_of
from muster.flower.client.node_data import read_own_data
from muster.flower.local import loopback as here
from muster.flower.local.child_processes import Guardian
from muster.flower.local.loopback import interrupt_on_signal
from muster.flower.server import app as server_app
from muster.flower.server import enrolment
from muster.flower.terms import write_app
from muster.flower.testing.faults import change_report, train_only
from muster.flower.testing.in_process import InProcess, travel
from muster.flower.transport.keys import make_keys
from muster.flower.transport.wire import (
    MODEL,
    REPORT,
    REPORT_TYPES,
    ExpectedReply,
    apply_precision,
    pack,
    read_reply,
)

FEDALIGN = {"name": "fedalign", "epsilon": 0.6, "warmup": 0}

scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=50),
    st.binary(max_size=50),
)  # fmt: skip
values = scalars | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4) | st.lists(st.floats())
keys = st.sampled_from([*REPORT_TYPES, "shape", "classes", "more", ""])
numbers = st.dictionaries(keys, values, max_size=6)


def header(shape, kind):
    return b"\x93NUMPY\x01\x00v\x00" + str(
        {"descr": kind, "fortran_order": False, "shape": shape}
    ).encode().ljust(117) + b"\n"  # fmt: skip


arrays = st.one_of(
    st.just(Array(np.zeros((2, 3)))),
    st.just(Array(np.zeros(0))),
    st.builds(
        lambda data: Array("float64", (2, 3), "numpy.ndarray", data),
        st.one_of(
            st.binary(max_size=80),
            st.builds(
                header,
                st.lists(st.integers(0, 2**50), max_size=3).map(tuple),
                st.sampled_from(["<f8", ">f8", "|O", "<U9", "[('a', '<f8')]"]),
            ),
        ),
    ),
)
records = st.dictionaries(st.sampled_from(["w", "v", ""]), arrays, max_size=2)


def answer(content):
    InProcess([])
    asked = Message(RecordDict(), dst_node_id=1, message_type=MessageType.TRAIN)
    return travel(Message(RecordDict(content), reply_to=asked))


@settings(max_examples=100, deadline=None)
@given(numbers, records, st.booleans())
def test_no_reply_raises(said, model, sound):
    right = {"round": 1, "client": 2, "rows": 5, "joined": True, "steps": 3}
    message = answer(
        {REPORT: ConfigRecord(right if sound else {**right, **said}), MODEL: ArrayRecord(model)}
    )
    for shapes in (None, {"w": (2, 3)}):
        reply = read_reply(message, ExpectedReply(1, 2, 5, torch.float64, "exact", shapes, steps=3))
        if not reply.wrong and shapes is not None:
            assert reply.model is None or reply.model["w"].shape == (2, 3)
            assert 0 <= reply.report.get("steps", 0) <= 3


@settings(max_examples=100, deadline=None)
@given(numbers, st.lists(st.integers(-3, 2**62), max_size=10), st.integers(-3, 2**62))
def test_an_introduction_is_possible_or_refused(said, shape, classes):
    for content in (said, {"rows": 3, "shape": shape, "classes": classes}):
        told = enrolment.read_introduction(answer({REPORT: ConfigRecord(content)}))
        if not isinstance(told, str):
            assert 0 < np.prod([float(n) for n in told["shape"]]) * told["classes"] <= 1e14
            assert all(type(n) is int for n in told["shape"])


def introduced(**said):
    def tamper(message, reply):
        if message.metadata.message_type == "query.hello":
            reply.content[REPORT] = ConfigRecord({**reply.content.config_records[REPORT], **said})
        return reply

    return tamper


def test_classes_are_as_many_as_the_priority_clients_have(setup):
    case = setup("fedavg")
    case.network = replace(case.network, classes=0)
    case.nodes[0].tamper = introduced(classes=9)
    assert_same(case.run(), case.simulate())
    case.nodes[1].tamper = introduced(classes=10**15)
    with pytest.raises(muster.MusterError, match="client1: a priority client, and its answer is"):
        case.run(name="second")


def test_a_priority_client_far_from_the_others_is_believed_and_pointed_out(setup):
    """Algorithm 1 takes a priority client's word for F(w); with one so far off nobody else is
    aligned, so nobody else counts."""

    def boast(message, reply):
        if message.metadata.message_type == MessageType.EVALUATE:
            said = {**reply.content.config_records[REPORT], "loss": 1e12}
            reply.content[REPORT] = ConfigRecord(said)
        return reply

    case = setup(FEDALIGN, evaluate_every=0)
    case.nodes[1].tamper = boast
    with pytest.warns(muster.MusterWarning, match=r"client 1 \(client1\), a priority client"):
        run = case.run()
    assert (run.rounds["reference_loss"] > 1e9).all()
    assert run.rounds["admitted_nonpriority"].sum() == 0
    assert any("counted" in move for move in run.moves.filter(pl.col("client") == 1)["move"])


class Broken(LocalGrid):
    """One client's answers cannot be put together, as Flower finds while it fetches them."""

    def find_reply(self, asked):
        reply = self.replies.get(asked)
        found = super().find_reply(asked)
        said = reply and (reply.metadata.src_node_id, reply.metadata.message_type)
        if said == (103, "train"):
            raise ValueError("unknown object type")
        return found


def test_an_answer_that_cannot_be_put_together_costs_nobody_else_anything(setup):
    case = setup(FEDALIGN, evaluate_every=0)
    run = case.run(case.grid(grid=Broken))
    rows = run.clients.filter(pl.col("client") == 3)
    assert set(rows["reason"]) == {"malformed: unreadable (ValueError)"}
    assert run.clients.filter(pl.col("client") != 3)["reason"].str.contains("malformed").sum() == 0
    assert run.rounds["failed"].to_list() == [0, 0, 0]


def test_more_steps_than_were_asked_for_are_impossible(setup):
    case = setup("fedavg", evaluate_every=0)
    case.nodes[2].tamper = change_report(steps=2**63 - 1)
    run = case.run()
    assert run.rounds["steps"].to_list() == [80] * 3
    assert set(run.clients.filter(pl.col("client") == 2)["reason"]) == {
        "impossible number of steps"
    }


def test_what_a_client_writes_is_part_of_one_line(setup):
    case = setup("fedavg", evaluate_every=0)
    case.nodes[2].tamper = change_report(**{"a\nb\x1b[2J": 1})
    reasons = case.run().clients.filter(pl.col("client") == 2)["reason"]
    assert set(reasons) == {"malformed: unknown key 'a b [2J'"}


def test_a_client_that_came_too_late_is_not_asked_to_judge(setup):
    case = setup("fedavg")
    case.nodes[4].online = False
    grid = case.grid()

    def push(messages, push=grid.push_messages):
        case.nodes[4].online = True
        return push(messages)

    grid.push_messages = push
    run = case.run(grid)
    assert run.moves["move"].to_list() == ["not in: it has not connected"]


def test_half_precision_holds_what_is_too_large_for_it():
    model = {"v": torch.tensor([1e6, -1e6, 1.5, torch.inf, torch.nan])}
    sent = torch.from_numpy(pack(model, "float16")["v"].numpy().copy())
    assert sent.dtype == torch.float16
    expected = torch.tensor([65504.0, -65504.0, 1.5, torch.inf, torch.nan])
    for arrived in (sent.float(), apply_precision(model, "float16")["v"]):
        torch.testing.assert_close(arrived, expected, equal_nan=True)


def test_two_nodes_with_one_memory_folder_do_not_take_each_others_memory(setup, tmp_path):
    case = setup("scaffold", rounds=2)
    for k in (2, 3):
        case.nodes[k].config["memory-path"] = str(tmp_path / "shared")

    def restarted(message, reply):
        for k in (2, 3):
            case.nodes[k].state.clear()
        return reply

    case.nodes[4].tamper = train_only(restarted)  # after all others have answered
    run = case.run()
    second = run.clients.filter((pl.col("round") == 2) & pl.col("client").is_in([2, 3]))
    # The file is that of the client who wrote last; the other has no memory, and says so.
    assert second["reason"].str.starts_with("failed: the client raised").sum() == 1


def test_a_run_resumes_with_a_longer_timeout_but_not_with_other_roles(setup):
    class Crash(BaseException):
        pass

    class Crashing(LocalGrid):
        left = 2

        def push_messages(self, messages):
            self.left -= messages[0].metadata.message_type == MessageType.TRAIN
            if not self.left:
                raise Crash
            return super().push_messages(messages)

    case = setup("scaffold", evaluate_every=0)
    with pytest.raises(Crash):
        case.run(case.grid(grid=Crashing))
    roles = case.fed
    case.fed = replace(case.fed, priority=np.arange(5) < 3, importance=(np.arange(5) < 3) * 1.0)
    with pytest.raises(muster.MusterError, match="made with clients=client0"):
        case.run()
    case.fed, case.network = roles, replace(case.network, timeout=7.0)
    run = case.run()
    assert run.rounds["failed"].to_list() == [0, 0, 0]
    assert_same(run, case.simulate())


def test_all_clients_may_fail_and_the_model_stays(setup):
    def raises(message, reply):
        if message.metadata.message_type != "query.hello":
            raise RuntimeError
        return reply

    case = setup(FEDALIGN)
    case.network = replace(case.network, quorum=0.0)
    for node in case.nodes:
        node.tamper = raises
    run = case.run()
    assert run.rounds["skipped"].all()
    assert run.rounds["failed"].to_list() == [5, 5, 5]
    assert run.rounds["reference_loss"].is_null().all()
    assert all(np.isfinite(w).all() for w in run.weights.values())


def test_a_helper_that_sends_a_sketch_and_then_no_model_does_not_count(setup):
    """Its place goes to the others: their weights come from the models that arrived."""

    def raises(message, reply):
        if message.metadata.message_type == "query.fetch":
            raise RuntimeError
        return reply

    case = setup({"name": "assist", "sketch": 64}, rounds=4)
    honest = case.run()
    counted = honest.clients.filter(~pl.col("priority") & (pl.col("weight") > 0))
    assert len(counted)
    for node in case.nodes:
        node.tamper = raises
    run = case.run()
    helpers = run.clients.filter(~pl.col("priority"))
    assert (helpers["weight"] == 0).all()
    assert helpers["reason"].str.contains("failed: the client raised an error").any()
    assert run.clients.filter(pl.col("priority"))["admitted"].all()
    assert all(np.isfinite(w).all() for w in run.weights.values())


def test_a_federation_whose_every_round_was_skipped_ends_with_an_error(setup, capsys):
    def raises(message, reply):
        raise RuntimeError

    case = setup("fedavg", rounds=2)
    case.network = replace(case.network, quorum=0.0)
    for node in case.nodes:
        node.tamper = train_only(raises)
    with pytest.raises(muster.MusterError, match="no success: every round was skipped"):
        in_app(case, case.grid(), case.folder / "results")
    assert "muster| error: no success: every round was skipped" in capsys.readouterr().out
    assert (case.folder / "results" / "run.toml").exists()


def in_app(case, grid, folder):
    members = members_of(case.fed, [node.key.decode() for node in case.nodes])
    chosen = replace(case.chosen, members=members, network=case.network)
    app = case.folder / "app"
    write_app(app, chosen, folder)
    config = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    server_app.main(grid, Context(1, 1, {}, RecordDict(), config))


def test_a_second_run_of_an_app_does_not_replace_the_first(setup):
    case = setup("fedavg", rounds=1)
    for _ in range(2):
        in_app(case, case.grid(), case.folder / "results")
    first, second = (case.folder / name for name in ("results", "results-2"))
    assert (first / "run.toml").stat().st_mtime_ns < (second / "run.toml").stat().st_mtime_ns
    assert (second / "figure.png").exists()


def test_the_reason_why_a_run_stopped_reaches_who_started_it(setup, capsys, monkeypatch):
    case = setup("fedavg", rounds=1)
    case.nodes[0].config.clear()
    with pytest.raises(muster.MusterError):
        in_app(case, case.grid(), case.folder / "results")
    (line,) = [s for s in capsys.readouterr().out.splitlines() if server_app.ERROR in s]
    assert "client0: a priority client, and its client app failed (code 2: data-path: mis" in line

    def run(app, say):
        say(line.partition(server_app.PREFIX)[2])
        return 1

    @contextmanager
    def loopback(names, logs):
        yield SimpleNamespace(work=case.folder, run=run)

    monkeypatch.setattr(here, "loopback", loopback)
    monkeypatch.setattr(here, "start_nodes", lambda link, chosen, *rest: chosen)
    with pytest.raises(muster.MusterError, match=r"^clients\.client0: a priority client"):
        here.federate_local(case.chosen, 5, case.folder / "x", lambda said: None)


BAD = {
    "attack": (["--attack.kind", "sign_flip"], "attack: a real federation"),
    "requirement": (["--method", "maxfl"], "requirement: this method needs each client's"),
    "number": (["--data.partition.kind", "nonsense"], "nonsense"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_federated_is_refused_before_anything_starts(
    bad, tmp_path, monkeypatch, capsys
):
    flags, message = BAD[bad]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text('data = "digits"\n')
    assert command(["federate", "--local", "4", "c.toml", *flags]) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["c.toml"]


def test_names_of_classes_must_be_agreed_on(tmp_path):
    file = tmp_path / "c.csv"
    file.write_text("a,label\n" + "1,ill\n2,well\n" * 20)
    config = {"data-path": str(file)}
    with pytest.raises(muster.MusterError, match="its labels are names, which every client must"):
        read_own_data(config, Network(), 0)
    assert read_own_data(config, Network(classes=("well", "ill")), 0).classes == 2
    for key in ("requirement", "test-fraction"):
        with pytest.raises(muster.MusterError, match=f"{key}: 'low'; give a (finite )?number"):
            read_own_data({**config, key: "low"}, Network(classes=("well", "ill")), 0)


@pytest.mark.parametrize(
    ("hosts", "clients", "message"),
    [
        (["höst"], [], "server 'höst': give a host name or an address"),
        (["a b"], [], "server 'a b': give"),
        ([], ["a", "a"], "client 'a': twice"),
        ([], ["a", "a.pub"], r"client 'a\.pub': twice"),
    ],
)
def test_keys_that_cannot_be_made_leave_nothing_behind(tmp_path, hosts, clients, message):
    with pytest.raises(muster.MusterError, match=message):
        make_keys(tmp_path / "keys", hosts, clients)
    assert not (tmp_path / "keys").exists()


def test_the_server_app_of_an_unfinished_run_ends_before_its_clients_do(tmp_path):
    """Else it goes on without them while they are being stopped, and calls the run finished."""
    guardian = Guardian(tmp_path / "nothing")
    link = here.Loopback(tmp_path, tmp_path, 0, 0, dict(os.environ), guardian)
    out = tmp_path / "order"

    def program(name, body="", child=""):
        code = (
            "import signal, subprocess, sys, time\n"
            f"def end(*_):\n    open({str(out)!r}, 'a').write('{name}\\n'); sys.exit()\n"
            f"signal.signal(signal.SIGTERM, end)\n{child}\n"
            f"open({str(tmp_path / name)!r}, 'w').close()\n"
        )
        return [sys.executable, "-c", code + (body or "time.sleep(60)")]

    app = program(
        "app", f"while True: open({str(out)!r}, 'a').write('app alive\\n'); time.sleep(.05)"
    )
    try:
        child = f"subprocess.Popen({app!r}, start_new_session=True)"
        link.start("superlink", program("superlink", child=child))
        link.start("client", program("client", "time.sleep(60)"))
        link.start("run", program("run"))
        until = time.monotonic() + 20
        while not all((tmp_path / n).exists() for n in ("app", "client", "run", "superlink")):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        link.stop_all()
        guardian.dismiss()
    said = out.read_text().split("\n")
    gone = [said.index(name) for name in ("client", "run", "superlink")]
    assert said[min(gone) :].count("app alive") == 0
    assert gone[2] == max(gone)


def test_a_signal_to_end_is_like_ctrl_c():
    with pytest.raises(KeyboardInterrupt), interrupt_on_signal():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

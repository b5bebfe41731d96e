"""A node runs muster's own client app, of an app its owner agreed to, and nothing else."""

from __future__ import annotations

import hashlib
import sys
import tomllib

import numpy as np
import pytest
import tomli_w
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.fab import Fab
from flwr.supercore.run import RunNotRunningException

from muster.flower.client import app, worker
from muster.flower.client.worker import WorkerOptions
from muster.flower.terms import write_app
from muster.flower.transport.wire import MODEL, OFFER, REPORT

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern")


def fab(folder):
    content = build_fab_from_disk(folder)
    return Fab(hashlib.sha256(content).hexdigest(), content, {})


class Case:
    """A node of a federation, and the messages it is sent."""

    def __init__(self, setup, folder):
        self.setup = setup("fedavg", rounds=1, evaluate_every=0)
        self.app = folder / "app"
        self.hash = write_app(self.app, self.setup.experiment(), folder / "results")
        self.owner = dict(self.setup.nodes[2].config)
        grid = self.setup.grid()
        self.sound = self.setup.run(grid)
        self.messages = [m for m, _ in grid.log if m.metadata.dst_node_id == 102]
        self.replies = [r for m, r in grid.log if m.metadata.dst_node_id == 102]

    def answer(self, message, app=None, agreed=None, state=None, **owner):
        """What the worker answers, with a state of its own."""
        options = WorkerOptions("", b"", {**self.owner, **owner}, frozenset(agreed or {self.hash}))
        state = RecordDict() if state is None else state
        context = Context(1, 102, {"data-path": "/nonsense"}, state, {"agreed": "nonsense"})
        return worker.reply_to(options, message, context, app or fab(self.app))


@pytest.fixture
def case(setup, tmp_path):
    return Case(setup, tmp_path)


@pytest.fixture
def sealed(monkeypatch):
    """Data that must not be opened."""

    def opened(*_):
        raise AssertionError("data was opened")

    monkeypatch.setattr(app, "read_own_data", opened)


def test_an_agreed_app_is_answered_as_in_any_federation(case):
    state = RecordDict()
    for message, expected in zip(case.messages, case.replies, strict=True):
        reply = case.answer(message, state=state)
        assert not reply.has_error()
        assert dict(reply.content[REPORT]) == dict(expected.content[REPORT])
        if MODEL in expected.content:
            for name, array in expected.content[MODEL].items():
                np.testing.assert_array_equal(reply.content[MODEL][name].numpy(), array.numpy())
    assert {m.metadata.message_type for m in case.messages} == {"query.hello", "train", "evaluate"}


def test_a_strangers_app_is_refused_before_data_is_opened(case, tmp_path, sealed, capsys):
    other = tmp_path / "other"
    stranger = write_app(other, case.setup.experiment(), tmp_path / "results")
    (other / "evil.py").write_text("raise SystemExit('run')")
    assert fab(other).hash_str != stranger
    for message in case.messages:
        reply = case.answer(message, fab(other))
        assert reply.error.code == 7
        assert reply.error.reason == "this node's owner has not agreed to this app"
        assert reply.metadata.reply_to_message_id == message.metadata.message_id
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(case.messages)  # one line each
    assert all(f"refused: app {fab(other).hash_str} of run 1" in text for text in said)


def test_a_hash_is_of_the_content_and_not_what_the_superlink_says(case, tmp_path, sealed):
    other = tmp_path / "other"
    write_app(other, case.setup.experiment(), tmp_path / "results")
    (other / "evil.py").write_text("")
    lying = Fab(case.hash, fab(other).content, {})
    assert case.answer(case.messages[0], lying).error.code == 7


def test_no_code_of_an_app_is_loaded_even_if_it_was_agreed_to(case, tmp_path):
    """Its own `muster`, its own client app: they lie in the bundle, and there they stay."""
    mark = tmp_path / "was here"
    evil = f"open({str(mark)!r}, 'w').close()\n"
    for place in (
        "muster/__init__.py",
        "muster/flower/client/app.py",
        "evil.py",
        "sitecustomize.py",
    ):
        (case.app / place).parent.mkdir(parents=True, exist_ok=True)
        (case.app / place).write_text(evil)
    text = (case.app / "pyproject.toml").read_text()
    (case.app / "pyproject.toml").write_text(
        text.replace("muster.flower.client.app:app", "evil:app")
    )
    app = fab(case.app)
    before = set(sys.modules)
    reply = case.answer(case.messages[0], app, {app.hash_str})
    assert not reply.has_error()
    assert not mark.exists()
    assert "evil" not in set(sys.modules) - before


def test_other_terms_than_were_agreed_on_are_refused_before_data_is_opened(case, sealed, capsys):
    for message in case.messages:
        said = dict(message.content.config_records[OFFER])
        said["experiment"] = said["experiment"].replace("steps = 20", "steps = 1")
        message.content[OFFER] = ConfigRecord(said)
        reply = case.answer(message)
        assert reply.error.code == 2
        assert reply.error.reason == "MusterError; the node's log says more"
    assert "terms: the server's request differs" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["task", "attack", "method"])
def test_a_server_that_names_code_in_its_terms_runs_nothing(case, sealed, tmp_path, capsys, key):
    """It ran any command on every node: `[task] kind = "os:system"`, though the app was agreed."""
    mark = tmp_path / "was here"
    place = {
        "task": '[task]\nkind = "os:system"\n',
        "attack": '[attack]\nkind = "site-packages.pip.__main__:os.system"\n',
        "method": "",
    }[key] + f'command = "touch {mark}"\n' * (key != "method")
    for message in case.messages:
        said = dict(message.content.config_records[OFFER])
        table = tomllib.loads(said["experiment"])
        table.pop(key, None)
        if key == "method":
            (table["methods"][0])["step"] = {"kind": "os:system", "command": f"touch {mark}"}
        said["experiment"] = f"{tomli_w.dumps(table)}\n{place}"
        message.content[OFFER] = ConfigRecord(said)
        assert case.answer(message).error.code == 2
    assert "terms: the server's request differs" in capsys.readouterr().out
    assert not mark.exists()


def test_messages_about_data_stay_in_the_nodes_log(case, tmp_path, capsys):
    file = tmp_path / "own.csv"
    file.write_text("a,label\n1,0\nJane Doe,1\n")
    reply = case.answer(case.messages[0], **{"data-path": str(file)})
    assert reply.error.reason == "MusterError; the node's log says more"
    said = capsys.readouterr().out
    assert "Jane Doe" in said or "own.csv" in said


def test_data_that_everybody_can_read_is_not_opened(case, tmp_path, sealed, monkeypatch, capsys):
    monkeypatch.setattr(
        "muster.flower.transport.private_files.find_access", lambda path: (True, True)
    )
    assert case.answer(case.messages[0]).error.code == 2
    assert "everybody on this machine can read or change it" in capsys.readouterr().out


def test_any_other_error_is_reported_by_its_kind_too(case, monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("row 3: Jane Doe")

    monkeypatch.setattr(app, "read_own_data", fails)
    reply = case.answer(case.messages[0])
    assert reply.error.reason == "RuntimeError; the node's log says more"
    assert "Jane Doe" in capsys.readouterr().out


def test_a_task_that_is_lost_is_a_line_and_the_next_one_is_taken(monkeypatch, capsys):
    """Whatever it is lost by, also the end of its run, which Flower raises as no Exception."""
    lost = iter([RunNotRunningException(), RuntimeError("gone"), KeyboardInterrupt()])

    class Supernode:
        def AcquireTask(self, wanted):
            raise next(lost)

    monkeypatch.setattr(worker, "connect", lambda *_: Supernode())
    monkeypatch.setattr(worker, "POLL_INTERVAL", 0.0)
    with pytest.raises(KeyboardInterrupt):
        worker.serve(WorkerOptions("", b"secret", {}, frozenset()))
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "muster node: a task was lost: RunNotRunningException()",
        "muster node: a task was lost: RuntimeError('gone')",
    ]

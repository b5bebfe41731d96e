"""The attacks of docs/security.md on real processes, with TLS and keys; run by `make test-slow`.

What an attacker has: the public ca.crt and a way to the server's port; in some, a registered key.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from flower_attacker import Attacker
from flower_hostile import (
    every_route,
    nested_json,
    repeated_chunk_of_megabytes,
    sound_word,
)
from flower_setup import DATA
from flower_siege import Siege
from flower_signed import Signer
from muster.config.experiment import load
from muster.flower.local.child_processes import program
from muster.flower.local.loopback import client_names, descendants, loopback, start_nodes
from muster.flower.transport.keys import CA
from muster.flower.transport.proxy import ALLOWED
from muster.flower.transport.wire import REPORT
from muster.results import store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TABLE = {
    "name": "attacked",
    "dtype": "float64",
    "rounds": 1,
    "evaluate_every": 0,
    "checkpoint_every": 1,
    "data": {**DATA, "clients": 3, "priority": 2},
    "method": {"name": "fedavg"},
    "local": {"steps": 5, "batch_size": 8, "lr": 0.2},
    "network": {"timeout": 40},
}

EVIL = """
import pathlib
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

LOOT = pathlib.Path({loot!r})
app = ClientApp()
server = ServerApp()


@app.query("steal")
def steal(message, context):
    LOOT.with_name("client").write_text("ran")
    found = " ".join(str(p) for p in pathlib.Path({prey!r}).rglob("*.npz"))
    return Message(RecordDict({{"loot": ConfigRecord({{"found": found}})}}), reply_to=message)


@server.main()
def main(grid, context):
    LOOT.with_name("server").write_text("ran")
    nodes = list(grid.get_node_ids())
    sent = [Message(RecordDict(), dst_node_id=i, message_type="query.steal") for i in nodes]
    for reply in grid.send_and_receive(sent, timeout=60):
        said = reply.error.reason if reply.has_error() else dict(reply.content["loot"])
        with open(LOOT, "a") as file:
            print(said, file=file)
"""


def evil_app(folder, prey, loot):
    (folder / "evil").mkdir(parents=True)
    (folder / "evil" / "__init__.py").touch()
    (folder / "evil" / "app.py").write_text(EVIL.format(loot=str(loot), prey=str(prey)))
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "evil"\nversion = "1.0.0"\ndependencies = []\n'
        '[tool.flwr.app]\npublisher = "stranger"\n'
        '[tool.flwr.app.components]\nserverapp = "evil.app:server"\nclientapp = "evil.app:app"\n'
    )
    return folder


@contextmanager
def federation(folder, **table):
    chosen = load({**TABLE, **table})
    fed = chosen.federation(0)
    with loopback(client_names(fed), folder / "logs") as link:
        yield link, chosen, fed


def flwr(link, *words, home=None):
    """One of Flower's own commands, as the server's people or (with a home of their own) others
    type it."""
    environment = {**link.environment, **({"FLWR_HOME": str(home)} if home else {})}
    return subprocess.run(
        [program("flwr"), *words], env=environment, capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def log(link, name):
    return (link.logs / f"{name}.log").read_text()


def wait_for(condition, seconds):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.3)


def test_an_unregistered_run_is_refused_outside_and_runs_nowhere_inside(tmp_path):
    with federation(tmp_path) as (link, chosen, fed):
        app = start_nodes(link, chosen, fed, tmp_path / "results")
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "config.toml").write_text(
            f'[superlink.far]\naddress = "{link.gate}"\n'
            f'root-certificates = "{link.work / "keys" / CA}"\n'
        )
        loot = tmp_path / "loot" / "found"
        loot.parent.mkdir()
        evil = evil_app(tmp_path / "evil", link.work, loot)
        public = str(link.work / "keys" / "client0.pub")
        # From outside: nothing of it is let through.
        for words in (
            ["run", str(evil), "far"],
            ["list", "far"],
            ["stop", "1", "far"],
            ["supernode", "list", "far"],
            ["supernode", "register", public, "far"],
            ["supernode", "unregister", "1", "far"],
        ):
            done = flwr(link, *words, home=outside)
            assert done.returncode != 0, words
        for call in ("start-run", "list-runs", "stop-run", "register-node", "unregister-node"):
            assert f"refused POST /v1/control/{call} from 127.0.0.1" in log(link, "gate")
        trust = ssl.create_default_context(cafile=str(link.work / "keys" / CA))
        with httpx.Client(verify=trust, trust_env=False) as client:
            for method, path in every_route():
                if not (method == "POST" and path in ALLOWED):
                    answer = client.request(method, f"https://{link.gate}{path}")
                    assert answer.status_code == 403, (method, path)
            for path in ALLOWED:  # and what nodes call is for nodes, by their keys
                answer = client.post(f"https://{link.gate}{path}")
                assert answer.status_code in (400, 401, 415, 422), path
        assert list(loot.parent.iterdir()) == []
        # Inside, by the server's own people: its server half runs, and no client's does.
        started = flwr(link, "run", str(evil), "dep", "--stream")
        assert started.returncode == 0, started.stdout + started.stderr
        assert (loot.parent / "server").exists()
        assert not (loot.parent / "client").exists()
        refusals = loot.read_text().splitlines()
        assert refusals == ["this node's owner has not agreed to this app"] * 3
        for name in client_names(fed):
            assert "refused: app " in log(link, name)
        # And the nodes are there for what they agreed to.
        said = []
        assert link.run(app, said.append) == 0
    assert store.load(tmp_path / "results").rounds["admitted"].to_list() == [3]


# Puts code into the terms of every message, once the server app is there.
HOSTILE = """
import importlib.util
import sys

class Turned:
    def find_spec(self, name, path=None, target=None):
        if name != "muster.flower.server.app":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            honest = module.shared_terms
            code = 'kind = "os:system"\\ncommand = "touch {mark}"'
            module.shared_terms = lambda chosen: (
                honest(chosen).replace('kind = "multiclass"', code)
            )

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Turned())
"""


def test_a_server_runs_no_command_at_a_site(tmp_path, monkeypatch):
    """The server's own people turn on their clients: `[task] kind = "os:system"` in the terms of
    every message, under the app whose hash was agreed. It ran on every node."""
    mark = tmp_path / "was here"
    turned = tmp_path / "turned"
    turned.mkdir()
    (turned / "sitecustomize.py").write_text(HOSTILE.format(mark=mark))
    monkeypatch.setenv("PYTHONPATH", f"{turned}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with federation(tmp_path, network={"timeout": 30, "enrolment_timeout": 30}) as (
        link,
        chosen,
        fed,
    ):
        app = start_nodes(link, chosen, fed, tmp_path / "results")
        said = []
        link.run(app, said.append)
        text = " ".join(log(link, name) for name in client_names(fed))
    assert "terms: the server's request differs from the app that was agreed on" in text
    assert not mark.exists()
    assert not (tmp_path / "results" / "run.toml").exists()


@contextmanager
def attacked(folder, **table):
    """A federation whose client 2 is an attacker's own node."""
    with federation(folder, **table) as (link, chosen, fed):
        app = start_nodes(link, chosen, fed, folder / "results")
        link.stop("client2")  # it leaves in good order, and the attacker takes its seat
        keys = link.work / "keys"
        attacker = Attacker(link.gate, keys / CA, keys / "client2", link.work / "client2.npz")
        until = time.monotonic() + 90
        while True:
            try:
                attacker.connect()
                break
            except httpx.HTTPStatusError:
                assert time.monotonic() < until
                time.sleep(3)
        attacker.thread.start()
        try:
            yield link, app, attacker
        finally:
            attacker.close()


def withheld(raw, message, honest):
    announced = raw.message(message.metadata, raw.records({REPORT: sound_word(raw, message)}))
    return announced, set(raw.contents) - {announced.tree.object_id}


def sent_whole(make):
    def attack(raw, message, honest):
        return make(raw, message, honest), set()

    return attack


def test_hostile_replies_and_withheld_ones_end_no_run(tmp_path):
    """Nested JSON, a repeated chunk, and objects that never come, a round each; then honesty."""
    attacks = [
        sent_whole(nested_json), sent_whole(repeated_chunk_of_megabytes), withheld, None, None
    ]  # fmt: skip
    with attacked(tmp_path, rounds=4) as (link, app, attacker):
        turns = iter(attacks)

        def on_line(line):
            said.append(line)
            if "clients are in" in line or line.startswith("round"):
                attacker.attack = next(turns)

        said = []
        assert link.run(app, on_line) == 0, said
    run = store.load(tmp_path / "results")
    rows = run.clients.filter(pl.col("client") == 2).sort("round")
    reasons = rows["reason"].to_list()
    assert reasons[0].startswith("malformed: over"), reasons
    assert reasons[1].startswith("malformed: over"), reasons
    assert reasons[2].startswith("failed: announced an answer and withheld"), reasons
    assert rows["admitted"].to_list() == [False, False, False, True]
    assert run.clients.filter(pl.col("client") != 2)["admitted"].all()
    seconds = run.rounds["seconds"].to_list()
    assert 40 <= seconds[2] < 60, seconds  # patience is a bound
    assert max(seconds[0], seconds[1]) < 40, seconds
    assert all(np.isfinite(w).all() for w in run.weights.values())


def test_no_reply_is_taken_in_another_nodes_name(tmp_path):
    """It knows the victim's node number and, let us say, even the message's number."""
    with attacked(tmp_path) as (link, app, attacker):
        forged = []

        def forge(raw, message, honest):
            other = attacker.node.node_id + 1
            with pytest.raises(httpx.HTTPStatusError) as refused:
                attacker.push(honest.metadata, "0" * 64, raw.word({}), {}, source=other)
            forged.append(refused.value.response.status_code)
            raw.contents.clear()
            return sent_whole(nested_json)(raw, message, honest)

        attacker.attack = forge
        assert link.run(app, lambda line: None) == 0
        assert forged == [403]
        assert f"forged: node {attacker.node.node_id} sends a reply in the name of node" in log(
            link, "gate"
        )
    run = store.load(tmp_path / "results")
    assert run.clients.filter(pl.col("client") == 2)["admitted"].to_list() == [False]


def test_a_node_killed_and_started_within_a_minute_comes_back(tmp_path):
    """Flower's supernode gives up then; `muster node` does not."""
    with federation(tmp_path) as (link, chosen, fed):
        app = start_nodes(link, chosen, fed, tmp_path / "results")
        wait_for(lambda: "SuperNode ID" in log(link, "client2"), 90)
        family = descendants(link.processes["client2"].pid)
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in family}
        (supernode,) = [
            pid for pid, line in commands.items() if "muster.flower.client.supernode" in line
        ]
        os.kill(supernode, signal.SIGKILL)
        wait_for(lambda: "the supernode ended with code 1" in log(link, "client2"), 60)
        wait_for(lambda: log(link, "client2").count("SuperNode ID") == 2, 120)
        assert link.run(app, lambda line: None) == 0
    run = store.load(tmp_path / "results")
    assert run.rounds["admitted"].to_list() == [3]


def test_a_worker_that_dies_costs_one_answer(tmp_path):
    with federation(tmp_path, rounds=2) as (link, chosen, fed):
        app = start_nodes(link, chosen, fed, tmp_path / "results")
        said = []

        def on_line(line):
            said.append(line)
            if line.startswith("round 1/"):
                for pid in descendants(link.processes["client2"].pid):
                    if "muster.flower.client.worker" in Path(f"/proc/{pid}/cmdline").read_text():
                        os.kill(pid, signal.SIGKILL)

        assert link.run(app, on_line) == 0, said
        assert "the worker ended with code -9; starting it again" in log(link, "client2")
    assert (store.load(tmp_path / "results").rounds["admitted"] >= 2).all()


def test_unregistered_requests_at_the_proxy_stop_no_federation(tmp_path):
    """Slow requests from three addresses (750, and 60 of a registered key), malformed ones and
    unregistered keys, all the while that a federation comes together and runs."""
    with federation(tmp_path, rounds=2, network={"timeout": 150}) as (link, chosen, fed):
        slow = Signer()
        (link.work / "keys" / "slow.pub").write_bytes(
            load_pem_public_key(slow.key).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        )
        link.register(["slow"])
        with Siege(link.gate_port, link.work / "keys" / CA, 600, known=slow) as siege:
            wait_for(lambda: siege.seen["connections"] > 500, 120)
            app = start_nodes(link, chosen, fed, tmp_path / "results")
            said = []
            link.run(app, said.append)
            assert said[-1].startswith("results: "), said
            assert siege.thread.is_alive()  # to the end
        assert siege.seen["refused slow"] > 100, siege.seen
        assert siege.seen["refused malformed"] > 5, siege.seen
        written = log(link, "gate")
    run = store.load(tmp_path / "results")
    assert run.rounds["admitted"].to_list() == [3, 3]
    assert run.rounds["failed"].to_list() == [0, 0]
    assert "Traceback" not in written
    assert "not signed as a node's requests are" in written
    assert len(written) < 6 * 31 * 260  # minutes, lines a minute, letters


DYING = """
import os
import signal
import time

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.superlink.grid import http_grid

app = ClientApp()
server = ServerApp()


def die(*_, **__):
    time.sleep(8)  # until every node has been told
    os.kill(os.getpid(), signal.SIGKILL)


@server.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 3:
        time.sleep(0.5)
    http_grid.push_objects = die
    grid.push_messages([
        Message(RecordDict({"a": ConfigRecord({"b": i})}), dst_node_id=node, message_type="query.x")
        for i, node in enumerate(nodes)
    ])
"""


def test_a_server_that_dies_after_it_announced_leaves_no_node_waiting(tmp_path):
    """Its messages' objects never come; the next run, started at once, has every client."""
    with federation(tmp_path, network={"timeout": 150}) as (link, chosen, fed):
        app = start_nodes(link, chosen, fed, tmp_path / "results")
        dying = evil_app(tmp_path / "dying", tmp_path, tmp_path)
        (dying / "evil" / "app.py").write_text(DYING)
        started = flwr(link, "run", str(dying), "dep")
        assert started.returncode == 0, started.stdout + started.stderr
        names = client_names(fed)
        wait_for(lambda: all("Receiving" in log(link, name) for name in names), 120)
        time.sleep(10)
        said = []
        assert link.run(app, said.append) == 0, said
        for name in names:
            assert "Failed to receive message" in log(link, name)
    assert store.load(tmp_path / "results").rounds["admitted"].to_list() == [3]

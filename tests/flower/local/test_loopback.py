"""Federations of real processes on this machine, with TLS and registered keys.

All are run by `make test-slow`: a federation starts a dozen processes, and those that are killed
are missed by Flower after minutes. The first is run before every change, by `make test-network`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import tomli_w

import muster
from flower_parity import assert_same
from flower_setup import DATA
from helpers import alive
from muster.cli.main import main
from muster.config.experiment import load
from muster.flower.local.child_processes import program, signal_all
from muster.flower.local.loopback import client_names, descendants, loopback, start_nodes
from muster.flower.terms import app_hash
from muster.flower.transport.keys import CA, make_keys
from muster.results import store
from muster.run import contributors
from muster.study.advice_store import load_advice

ROOT = Path(__file__).parents[3]
EXAMPLES = Path(muster.__file__).parent / "examples"

TABLE = {
    "name": "loopback",
    "dtype": "float64",
    "rounds": 1,
    "evaluate_every": 0,
    "checkpoint_every": 1,
    "data": {**DATA, "clients": 3, "priority": 1},
    "method": {"name": "fedalign", "epsilon": 0.6, "warmup": 0},
    "local": {"steps": 20, "batch_size": 8, "lr": 0.2},
    "network": {"timeout": 100},
}


def simulated(chosen, fed):
    return muster.run_job(fed, chosen.job, compute=chosen.settings.compute, keep=chosen.keep)


def answers(url, **how):
    try:
        urllib.request.urlopen(url, timeout=5, **how).close()
    except (urllib.error.URLError, ConnectionError, OSError):
        return False
    return True


def running(link):
    return [p.pid for p in link.processes.values()] + [
        pid for p in link.processes.values() for pid in descendants(p.pid)
    ]


@pytest.mark.slow
def test_a_federation_over_tls_with_registered_keys_gives_the_simulators_weights(tmp_path):
    chosen = load({**TABLE, "data": {**DATA, "clients": 2, "priority": 1}})
    fed = chosen.federation(0)
    with loopback(client_names(fed), tmp_path / "logs") as link:
        # TLS: nothing is spoken in the clear, nor to who does not trust the federation's own CA.
        tls_context = ssl.create_default_context(cafile=str(link.work / "keys" / CA))
        assert answers(f"https://{link.address}/health", context=tls_context)
        assert not answers(f"https://{link.address}/health")
        assert not answers(f"http://{link.address}/health")
        # A node whose key nobody registered, which says that it is one of the priority clients.
        make_keys(link.work / "keys", [], ["stranger"])
        app = start_nodes(link, chosen, fed, tmp_path)
        link.start_node("stranger", {"data-path": str(link.work / "client0.npz")}, app_hash(app))
        said = []
        assert link.run(app, said.append) == 0
        started = running(link)
        turned_away = (tmp_path / "logs" / "stranger.log").read_text()
    assert not [pid for pid in started if alive(pid)]
    run = store.load(tmp_path)
    assert run.engine == "flower"
    assert_same(run, simulated(chosen, fed))
    assert "round 1/1: asked 2" in "".join(said)
    assert len(run.final) == 2
    assert run.predict(fed.train.client(0)[0].numpy())["p_1"].is_finite().all()
    assert "the supernode ended with code" in turned_away  # it is not let on
    assert "SuperNode ID" not in turned_away
    assert "this node's key is not registered" in turned_away  # and is told why
    assert run.moves.is_empty()
    assert not [p for p in (tmp_path / "logs").glob("*.log") if "Traceback" in p.read_text()]


def wait_for(condition, seconds):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_supernode_killed_mid_round_is_left_out(tmp_path):
    chosen = load({**TABLE, "rounds": 2, "local": {"steps": 60_000, "lr": 0.01}})
    fed = chosen.federation(0)
    with loopback(client_names(fed), tmp_path / "logs") as link:
        app = start_nodes(link, chosen, fed, tmp_path)
        said = []

        def kill():
            # Training takes long: strike when client 2 has been at it for a moment.
            wait_for(lambda: any("clients are in" in line for line in said), 200)
            time.sleep(25)
            link.stop("client2", signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        assert link.run(app, said.append) == 0
        killer.join()
    run = store.load(tmp_path)
    rows = run.clients.filter(pl.col("client") == 2)
    assert rows["reason"].str.starts_with("failed").any()
    assert (run.rounds["admitted"] >= 1).all()
    assert all(np.isfinite(w).all() for w in run.weights.values())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_superlink_killed_and_started_again_goes_on_from_the_checkpoint(tmp_path):
    chosen = load({**TABLE, "rounds": 3, "method": {"name": "scaffold"}})
    fed = chosen.federation(0)
    said = []

    def strike(line):
        said.append(line)
        if line.startswith("round 1/3"):
            link.stop("superlink", signal.SIGKILL)
            link.stop("run", signal.SIGKILL)

    with loopback(client_names(fed), tmp_path / "logs") as link:
        app = start_nodes(link, chosen, fed, tmp_path)
        link.run(app, strike)
    assert not (tmp_path / "run.toml").exists()
    assert (tmp_path / "checkpoints" / "round-00000001").exists()
    with loopback(client_names(fed), tmp_path / "logs") as link:  # everything anew, keys included
        app = start_nodes(link, chosen, fed, tmp_path)
        assert link.run(app, said.append) == 0
    assert sum(line.startswith("round 1/3") for line in said) == 1
    assert_same(store.load(tmp_path), simulated(chosen, fed))
    assert len(store.load(tmp_path).rounds) == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_for_real_machines_work_as_written(tmp_path):
    """Every ```sh block of docs/federate.md, in order, with all machines being this one."""
    page = (ROOT / "docs" / "federate.md").read_text()
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines()
    script = ["set -e", "trap 'kill $(jobs -p)' EXIT", "ready() { sleep 1; }"]
    for line in lines:
        if line.startswith("pip install"):
            continue  # it is installed
        if line.startswith(("flower-superlink", "muster gate", "muster node")):
            script.append(f"{line} > {line.split()[1].strip('-')}-{len(script)}.log 2>&1 &")
            port = {"flower-superlink": 9093, "muster gate": 9092}.get(" ".join(line.split()[:2]))
            port = 9093 if line.startswith("flower-superlink") else port
            if port is not None:
                script.append(
                    "for i in $(seq 60); do curl -s --cacert keys/ca.crt "
                    f"https://$SERVER:{port}/health > /dev/null && break; sleep 1; done"
                )
            continue
        script.append(line.replace("examples/", f"{ROOT}/examples/"))
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_PROXY": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = store.load(tmp_path / "runs" / "hospitals")
    assert run.rounds["asked"].to_list() == [3, 3]
    assert run.rounds["failed"].to_list() == [0, 0]
    assert run.final["priority"].to_list() == [True, True, False]
    assert "fedalign, seed 0, flower engine" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_private_federation_with_secure_sums_as_the_page_has_it(tmp_path):
    """The command of docs/federate.md: noise, masks, and a committee of three nodes."""
    page = (ROOT / "docs" / "federate.md").read_text()
    (words,) = re.findall(r"^muster (federate --local 5 .*)$", page, re.MULTILINE)
    environment = {**os.environ, "MUSTER_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "muster.cli", *words.split()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = store.load(tmp_path / "runs" / "private")
    assert run.rounds["releases"].to_list() == [1, 2, 3]
    assert run.rounds["failed"].to_list() == [0, 0, 0]
    assert not run.rounds["skipped"].any()
    assert run.rounds["epsilon_objective"][-1] == pytest.approx(8.0, abs=1e-6)
    assert set(run.clients["reason"]) == {"answered"}
    assert run.final["train_loss"].null_count() == 5
    assert set(run.final["rows"]) == {1}
    nodes = tmp_path / "runs" / "private" / "nodes"
    assert len(list(nodes.glob("*/*.joined"))) == 5
    assert len(list(nodes.glob("*/*.answered"))) == 3


def signal_node(link, name, how):
    """Send a signal to a node and to all that it started."""
    own = link.processes[name].pid
    signal_all([own, *descendants(own)], how)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", [4, 1], ids=["a client", "a member"])
def test_a_node_killed_between_the_exchanges_of_a_secure_sum(tmp_path, victim, monkeypatch):
    """Client 3 is stopped in the middle of the first exchange, so that the second waits for it; the
    victim, which has answered, is killed. A client stays dead, and its masked answer is in the sum
    all the same; a member is started again, and answers the list by what it wrote down. Without
    noise the model is the simulation's, in which a dead client adds nothing."""
    table = tomllib.loads((EXAMPLES / "private.toml").read_text())
    table["privacy"] = {
        "kind": "gaussian",
        "clip": 1.0,
        "noise": 0.0,
        "delta": 0.01,
        "secure": True,
    }
    table |= {"rounds": 2, "dtype": "float64", "method": {"name": "fedavg"}, "evaluate_every": 0}
    table["local"], table["network"]["timeout"] = {"steps": 5, "lr": 0.2, "batch_size": 8}, 60
    chosen = load(table)
    fed = chosen.federation(0)
    name, said, when = f"client{victim}", [], {}
    with loopback(client_names(fed), tmp_path / "logs") as link:
        app = start_nodes(link, chosen, fed, tmp_path)
        command = list(link.processes[name].args)

        def strike():
            wait_for(lambda: any("clients are in" in line for line in said), 300)
            signal_node(link, "client3", signal.SIGSTOP)
            wait_for(lambda: list((tmp_path / "nodes" / name).glob("*.joined")), 200)
            time.sleep(10)  # its answer is on the way
            assert not list((tmp_path / "nodes").glob("*/*.answered"))  # no second exchange yet
            assert not list((tmp_path / "nodes" / "client3").glob("*.joined"))
            link.stop(name, signal.SIGKILL)
            signal_node(link, "client3", signal.SIGCONT)
            if victim == 1:
                link.start(name, command)
            when["done"] = True

        killer = threading.Thread(target=strike)
        killer.start()
        assert link.run(app, said.append) == 0
        killer.join()
    assert when["done"]
    run = store.load(tmp_path)
    assert run.rounds["releases"].to_list() == [1, 2]
    assert run.facts["privacy"]["releases"] >= int((~run.rounds["skipped"]).sum())
    assert not run.rounds["skipped"].any()
    first = run.clients.filter((pl.col("round") == 1) & (pl.col("client") == victim))
    assert first["joined"].to_list() == [True]  # what it sent before it died counts
    if victim == 4:
        assert run.rounds["failed"].to_list() == [0, 1]
        silence(monkeypatch, victim, t=1)
    for layer, weights in simulated(chosen, fed).weights.items():
        np.testing.assert_array_equal(run.weights[layer], weights)


def silence(monkeypatch, client, t):
    """Let a client of the simulation add nothing in a round."""
    real = contributors.encode

    def contribute(self, offer, roster, *rest):
        quiet = np.flatnonzero(roster.clients == client) if offer.round == t else []
        monkeypatch.setattr(
            contributors,
            "encode",
            lambda values, *how: np.where(
                np.isin(np.arange(len(values)), quiet)[:, None], np.uint32(0), real(values, *how)
            ),
        )
        return own(self, offer, roster, *rest)

    own = contributors.LocalContributors.contribute
    monkeypatch.setattr(contributors.LocalContributors, "contribute", contribute)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_federation_that_is_killed_leaves_nothing_behind_and_goes_on_at_once(tmp_path):
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "MUSTER_HOME": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "muster.cli", "federate", "--local", "3"]
    more = ["--data.clients", "3", "--method", "fedavg", "--rounds", "3", "--local.steps", "5"]
    config = "examples/federate.toml"
    running = subprocess.Popen(
        [*command, config, *more], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    with running.stdout as said:
        for line in said:
            if line.startswith("round 1/3"):
                break
        family = descendants(running.pid)
        assert len(family) >= 12
        assert list((tmp_path / "tmp").glob("muster-*/keys/client0"))
        running.kill()
    running.wait()
    wait_for(lambda: not any(alive(pid) for pid in family), 15)
    wait_for(lambda: not list((tmp_path / "tmp").glob("muster-*")), 15)
    done = subprocess.run(
        [*command, "--resume", "runs/federate"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(store.load(tmp_path / "runs" / "federate").rounds) == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_stops_with_a_reason_is_marked_as_failed(tmp_path):
    """Flower's `flwr run` ends with 0 whatever becomes of the run; `flwr list` knows."""
    chosen = load({**TABLE, "network": {"timeout": 5, "enrolment_timeout": 5}})
    fed = chosen.federation(0)
    with loopback(client_names(fed), tmp_path / "logs") as link:
        app = start_nodes(link, chosen, fed, tmp_path)
        for name in client_names(fed):
            link.stop(name, signal.SIGKILL)
        said = []
        link.run(app, said.append)
        assert said[-1].startswith("error: ")
        listed = subprocess.run(
            [program("flwr"), "list", "dep", "--format", "json"], env=link.environment,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    (run,) = json.loads(listed.stdout)["runs"]
    assert run["status"] == "finished:failed"
    assert not (tmp_path / "run.toml").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_advice_over_a_real_network_is_the_simulated_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = {
        "dtype": "float64", "rounds": 1, "data": {"name": "digits", "clients": 2},
        "model": {"name": "linear"}, "local": {"steps": 5, "batch_size": 8, "lr": 0.1},
    }  # fmt: skip
    (tmp_path / "two.toml").write_text(tomli_w.dumps(table))
    assert main(["federate", "--local", "2", "--advise", "--seeds", "3", "two.toml"]) == 0
    real = load_advice(tmp_path / "runs" / "two")
    simulated = muster.advise(
        muster.data.digits(clients=2, seed=0),
        muster.models.Linear(),
        1,
        muster.Local(steps=5, batch_size=8, lr=0.1),
        3,
        compute=muster.Compute(dtype="float64"),
    )
    for there, here in zip(real.clients.values(), simulated.clients.values(), strict=True):
        assert there.verdict == here.verdict
        assert there.alone.loss == pytest.approx(here.alone.loss, abs=1e-9)
        for a, b in zip(there.ways.values(), here.ways.values(), strict=True):
            np.testing.assert_allclose(a.gain, b.gain, rtol=0, atol=1e-9)

"""`muster node` keeps its two processes running, and says what it will not do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import muster
from muster.cli.main import main as command
from muster.flower.client import supervisor
from muster.flower.client.supervisor import NodeOptions, RestartingProcess, Supervisor
from muster.flower.transport.keys import make_keys

HASH = "0123456789abcdef" * 4


@pytest.fixture
def options(tmp_path):
    make_keys(tmp_path / "keys", ["server.example"], ["north"])
    data = tmp_path / "north.csv"
    data.write_text("a,label\n")
    data.chmod(0o600)
    return NodeOptions(
        "server.example:9092", tmp_path / "keys" / "ca.crt", tmp_path / "keys" / "north", (HASH,),
        {"data-path": str(data), "memory-path": str(tmp_path / "memory")},
    )  # fmt: skip


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


BAD = {
    "no certificate": ({"ca": Path("nowhere")}, "--ca: nowhere: no such file"),
    "no key": ({"key": Path("nowhere")}, "nowhere: cannot be read"),
    "nothing agreed": ({"agreed": ()}, "--app-hash: missing; give the hash of the app"),
    "half a hash": ({"agreed": ("ab12",)}, "--app-hash: 'ab12'; give the 64"),
    "a port": ({"port": 70000}, "--port: 70000; allowed: whole numbers from 0 to 65535"),
    "no data": ({"owner": {"data-path": "nowhere.csv"}}, r"nowhere\.csv: cannot be read"),
}


def test_keys_of_secure_sums_are_kept_as_the_others(options, tmp_path):
    key = tmp_path / "keys" / "north.agg"
    owner = {**options.owner, "sum-key": str(key)}
    assert replace(options, owner=owner).check() == []
    key.unlink()
    with pytest.raises(muster.MusterError, match=r"north\.agg: cannot be read"):
        replace(options, owner=owner).check()


@pytest.mark.parametrize("case", BAD)
def test_settings_that_cannot_work_are_refused_before_anything_is_started(
    options, case, monkeypatch
):
    change, message = BAD[case]
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(muster.MusterError, match=message):
        Supervisor(replace(options, **change), print).run()


def test_sound_settings_pass_and_the_memory_is_the_owners_alone(options, tmp_path):
    assert options.check() == []
    assert (tmp_path / "memory").stat().st_mode & 0o777 == 0o700


def test_the_supernode_gets_nothing_about_the_data(options, tmp_path):
    supernode, worker = Supervisor(options, print)._processes(b"secret")
    line = " ".join(supernode.command())
    assert "north.csv" not in line
    assert "--node-config" not in line
    assert "--isolation=process" in line
    assert supernode.stdin == b"secret"
    assert "north.csv" not in " ".join(worker.command())  # nor whoever lists processes
    assert b"north.csv" in worker.stdin


def python(code):
    return [sys.executable, "-P", "-c", code]


def test_a_process_that_ends_is_started_again_after_a_pause(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE", 0.3)
    log, said = tmp_path / "log", []
    process = RestartingProcess(
        "worker", lambda: python(f"open({str(log)!r}, 'a').write('x')"), pause=0.1
    )

    def times():
        process.restart_if_due(os.environ, said.append)
        return log.exists() and len(log.read_text()) >= 3

    wait_for(times)
    assert said[0] == "the worker ended with code 0; starting it again in 0.1 s"
    assert said[1].endswith("again in 0.2 s")
    process.stop()


def test_it_gets_its_settings_on_standard_input(tmp_path):
    log = tmp_path / "log"
    code = f"import sys; open({str(log)!r}, 'w').write(sys.stdin.read())"
    process = RestartingProcess("worker", lambda: python(code), b'{"secret": 1}')
    process.restart_if_due(os.environ, print)
    wait_for(lambda: log.exists() and log.read_text() == '{"secret": 1}')
    assert log.stat().st_mode & 0o077 == 0
    process.stop()


def test_killed_processes_come_back_and_all_end_together(options, tmp_path, monkeypatch):
    """The whole of it, with processes that only sleep."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.1)
    pids = tmp_path / "pids"
    pids.mkdir()
    sleep = "import os, time; open(f'{0}/{1}-{{os.getpid()}}', 'w').close(); time.sleep(60)"
    node = Supervisor(options, lambda line: None)

    def processes(secret):
        assert len(secret) == 32
        return [
            RestartingProcess(name, lambda name=name: python(sleep.format(pids, name)), pause=0.1)
            for name in ("supernode", "worker")
        ]

    monkeypatch.setattr(node, "_processes", processes)
    thread = threading.Thread(target=node.run)
    thread.start()
    try:
        for name in ("supernode", "worker"):
            wait_for(lambda name=name: list(pids.glob(f"{name}-*")))
            (first,) = pids.glob(f"{name}-*")
            os.kill(int(first.name.split("-")[1]), signal.SIGKILL)
            wait_for(lambda name=name: len(list(pids.glob(f"{name}-*"))) == 2)
    finally:
        node.ended.set()
        thread.join(20)
    assert not thread.is_alive()
    for path in pids.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name.split("-")[1]), 0)


def test_a_signal_to_end_ends_it():
    code = (
        "import os, signal, threading\nfrom muster.flower.client.supervisor import set_on_signal\n"
        "ended = threading.Event()\n"
        "with set_on_signal(ended):\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    assert ended.wait(5)\nprint('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ended\n"


LINES = {
    "node": (["node"], "node: --server is missing"),
    "half a node": (["node", "--server", "a:1", "--ca", "x", "--key", "y"], "--data is missing"),
    "a word for a number": (
        ["node", "--server", "a:1", "--ca", "x", "--key", "y", "--data", "z",
         "--requirement", "low"],
        "requirement: 'low'; give a number",
    ),
    "a word for a port": (["gate", "keys", "--port", "x"], "--port: 'x'; allowed: whole numbers"),
    "gate": (["gate"], "gate: give the folder of the server's keys"),
    "gate without keys": (["gate", "nowhere"], "nowhere/ca.crt: no such file; make it with"),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_bad_lines_are_one_line(case, tmp_path, monkeypatch, capsys):
    line, message = LINES[case]
    monkeypatch.chdir(tmp_path)
    assert command(line) == 2
    assert message in capsys.readouterr().err

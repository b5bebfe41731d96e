"""A whole federation on this machine: superlink, supernodes and a run, with TLS and keys.

What runs here is what runs across machines: the same processes, certificates, registered keys and
messages. Everything started here is stopped here, whatever happens.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from ..config.experiments import Experiment
from ..config.network import members_of
from ..durable import write
from ..errors import MusterError
from ..federation import Federation
from ..run.clients import needs_requirement
from .appfolder import write_app
from .keys import CA, CERTIFICATE, KEY, make_keys
from .server import ERROR, PREFIX

HOST = "127.0.0.1"
PATIENCE = 60.0  # seconds for a process to come up
GRACE = 5.0  # seconds for a process to end by itself

Say = Callable[[str], None]


def program(name: str) -> str:
    """One of Flower's commands, beside the running Python or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise MusterError(f"{name}: not found; install it with pip install 'muster-fl[flower]'")
    return found


def free_ports(n: int) -> list[int]:
    """Ports nobody listens on."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind((HOST, 0))
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()


@dataclass
class Loopback:
    """The processes of a federation on this machine, by name."""

    work: Path
    logs: Path
    port: int
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]]

    @property
    def address(self) -> str:
        """Where the superlink listens."""
        return f"{HOST}:{self.port}"

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process in a group of its own; its output goes to a log."""
        with open(self.logs / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )

    def start_superlink(self) -> None:
        """The superlink, with TLS and a list of keys; returns when it answers."""
        keys = self.work / "keys"
        self.start(
            "superlink",
            [
                program("flower-superlink"), "--host", HOST, "--port", str(self.port),
                "--disable-runtime-dependency-installation",
                "--ssl-ca-certfile", str(keys / CA), "--ssl-certfile", str(keys / CERTIFICATE),
                "--ssl-keyfile", str(keys / KEY), "--enable-supernode-auth",
                "--database", str(self.work / "state.db"),
            ],
        )  # fmt: skip
        trust = ssl.create_default_context(cafile=str(keys / CA))
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"https://{self.address}/health", context=trust):
                    return
            except (urllib.error.URLError, OSError) as error:
                self.check("superlink")
                if time.monotonic() > until:
                    raise MusterError(
                        f"superlink: no answer after {PATIENCE:g} s ({error}); "
                        f"see {self.logs / 'superlink.log'}"
                    ) from None
            time.sleep(0.2)

    def register(self, names: Sequence[str]) -> None:
        """Tell the superlink the clients' keys."""
        asked = [
            subprocess.Popen(
                [
                    program("flwr"), "supernode", "register",
                    str(self.work / "keys" / f"{name}.pub"), "dep", "--name", name,
                ],
                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            for name in names
        ]  # fmt: skip
        for name, process in zip(names, asked, strict=True):
            said = process.communicate()[0].decode(errors="replace")
            if process.returncode:
                raise MusterError(f"{name}: its key was not registered: {_last(said)}")

    def start_node(self, name: str, config: Mapping[str, str | float]) -> None:
        """A supernode with its own key and configuration."""
        (port,) = free_ports(1)
        keys = self.work / "keys"
        said = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        self.start(
            name,
            [
                program("flower-supernode"), "--superlink", self.address, "--host", HOST,
                "--port", str(port), "--root-certificates", str(keys / CA),
                "--auth-supernode-private-key", str(keys / name), "--node-config", said,
            ],
        )  # fmt: skip

    def run(self, app: Path, say: Say) -> int:
        """`flwr run`, passing on what our server app says; returns its exit code."""
        with open(self.logs / "run.log", "ab") as log:
            process = subprocess.Popen(
                [program("flwr"), "run", str(app), "dep", "--stream"],
                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            self.processes["run"] = process
            assert process.stdout is not None
            with process.stdout as stream:
                for line in stream:
                    log.write(line)
                    log.flush()
                    _, ours, text = line.decode(errors="replace").partition(PREFIX)
                    if ours:
                        say(text.rstrip())
            return process.wait()

    def check(self, name: str) -> None:
        """Complain when a process has ended."""
        if self.processes[name].poll() is not None:
            log = self.logs / f"{name}.log"
            said = _last(log.read_text(errors="replace"))
            raise MusterError(f"{name}: stopped by itself ({said}); see {log}")

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process and all it started, which Flower puts into sessions of their own."""
        self._stop([name], how)

    def _stop(self, names: Sequence[str], how: signal.Signals = signal.SIGTERM) -> None:
        processes = [self.processes.pop(name) for name in names]
        own = [process.pid for process in processes]
        family = [pid for process in processes for pid in descendants(process.pid)]
        _signal(own, how)
        until = time.monotonic() + GRACE
        # Who is told a second time to end waits no longer.
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            for process in processes:
                process.wait(max(0.0, until - time.monotonic()))
        # What a process does not end itself is ended here.
        _signal([*own, *family], signal.SIGKILL)
        for process in processes:
            process.wait()

    def stop_all(self) -> None:
        """End everything: first the run, then the nodes, then the superlink."""
        run, link = self.processes.get("run"), self.processes.get("superlink")
        if run is not None and run.poll() is None and link is not None:
            # The server app of an unfinished run goes before its clients do: it would go on
            # without them, and call the run finished.
            _signal(descendants(link.pid), signal.SIGKILL)
        self._stop([name for name in self.processes if name != "superlink"])
        self._stop(list(self.processes))


def _signal(pids: Sequence[int], how: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, how)


def descendants(pid: int) -> list[int]:
    """Every process that this one started, or that those started."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    children: dict[int, list[int]] = {}
    for line in listed.stdout.splitlines():
        child, parent = (int(word) for word in line.split())
        children.setdefault(parent, []).append(child)
    family: list[int] = []
    queue = [pid]
    while queue:
        mine = children.get(queue.pop(), [])
        family += mine
        queue += mine
    return family


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


@contextmanager
def told_to_end() -> Iterator[None]:
    """Within, being told to end (by `kill`, or as the terminal closes) is like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {s: signal.signal(s, signal.default_int_handler) for s in heeded}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


@contextmanager
def loopback(names: Sequence[str], logs: Path) -> Iterator[Loopback]:
    """A superlink that knows the keys of these clients; all processes end with the block."""
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="muster-") as temporary:
        work = Path(temporary)
        make_keys(work / "keys", [HOST, "localhost"], names)
        (port,) = free_ports(1)
        home = work / "flwr"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink.dep]\naddress = "{HOST}:{port}"\n'
            f'root-certificates = "{work / "keys" / CA}"\n'
        )
        beside = str(Path(sys.executable).parent)  # Flower's commands start each other by name
        quiet = {
            "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "NO_PROXY": f"{HOST},localhost",
            "OMP_NUM_THREADS": "1",  # many processes share the cores
        }
        link = Loopback(work, logs, port, {**os.environ, **quiet}, {})
        try:
            link.start_superlink()
            link.register(names)
            yield link
        finally:
            link.stop_all()


def write_client(fed: Federation, k: int, file: Path) -> None:
    """One client's rows as the file its node reads."""
    x, y = fed.train.client(k)
    arrays: dict[str, Any] = {"x": x.numpy(), "y": y.numpy()}
    if fed.test is not None:
        test_x, test_y = fed.test.client(k)
        arrays |= {"x_test": test_x.numpy(), "y_test": test_y.numpy()}
        weight = fed.test.counts_by(fed.test.positions(np.array([k])))
        if weight is not None:
            arrays["weight_test"] = weight
    np.savez(file, **arrays)


def client_names(fed: Federation) -> list[str]:
    """What the clients of a federation on this machine are called."""
    return [f"client{k}" for k in range(fed.n)]


def start_nodes(link: Loopback, chosen: Experiment, fed: Federation, folder: Path) -> Experiment:
    """Give every client its own rows and start its node; returns the experiment that lists them.

    Their memory goes to `folder`, so that a run can go on after everything was stopped.
    """
    names = client_names(fed)
    members = members_of(fed, [link.work / "keys" / f"{name}.pub" for name in names])
    for k, name in enumerate(names):
        file = link.work / f"{name}.npz"
        write_client(fed, k, file)
        config: dict[str, str | float] = {
            "data-path": str(file),
            "memory-path": str(folder.resolve() / "nodes" / name),
        }
        if fed.test is None:
            config["test-fraction"] = 0.0
        if chosen.requirement is None and fed.requirement is not None:
            config["requirement"] = float(fed.requirement[k])
        link.start_node(name, config)
    agreed = replace(chosen.network, features=tuple(fed.train.x.shape[1:]), classes=fed.classes)
    return replace(chosen, members=members, network=agreed)


def federate_here(chosen: Experiment, clients: int, folder: Path, say: Say = print) -> None:
    """Split an experiment's data over nodes on this machine and run it; results go to `folder`."""
    fed = replace(chosen, requirement=None).federation(chosen.settings.seed)
    if fed.n != clients:
        raise MusterError(f"--local {clients}: the data has {fed.n} clients; give --local {fed.n}")
    method = chosen.method(*chosen.methods)
    needed = needs_requirement(method, chosen.settings.participation)
    if needed and chosen.requirement is None and fed.requirement is None:
        raise MusterError(
            "requirement: this method needs each client's; give requirement = NUMBER, or a table "
            "(steps, lr) of what each trains alone"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        write(folder / "config.toml", tomli_w.dumps(chosen.resolved()))
    say(f"starting a superlink and {fed.n} supernodes on {HOST}; their logs: {folder / 'logs'}")
    why: list[str] = []

    def on_line(line: str) -> None:
        if line.startswith(ERROR):
            why.append(line.removeprefix(ERROR))
        else:
            say(line)

    with told_to_end(), loopback(client_names(fed), folder / "logs") as link:
        here = start_nodes(link, chosen, fed, folder)
        code = link.run(write_app(link.work / "app", here, folder), on_line)
    if why:
        raise MusterError(why[-1])
    if not (folder / "run.toml").exists():
        log = folder / "logs" / "run.log"
        raise MusterError(f"the run did not finish (flwr run ended with {code}); see {log}")

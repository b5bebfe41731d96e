"""A whole federation on this machine: SuperLink, proxy, nodes and a run, with TLS and keys.

The processes, certificates, registered keys and messages are those of a federation across machines.
Everything started here is stopped here, whatever happens; by a guardian, should this process be
killed.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import tomli_w

from ...base.durable import write
from ...base.errors import MusterError
from ...base.untrusted_files import open_log
from ...config.experiment import Experiment
from ...config.network import members_of
from ...federation import Federation
from ...results import store
from ...study.advice_store import is_advice
from ..server.app import ERROR, PREFIX
from ..terms import HOME, write_app
from ..transport.keys import CA, CERTIFICATE, KEY, SUM, make_keys
from .child_processes import (
    HOST,
    Guardian,
    free_ports,
    handle_signals,
    program,
    python,
    quiet,
    signal_all,
)
from .child_processes import descendants as descendants
from .local_data import write_client as write_client
from .local_data import write_node_files

MUSTER = python("muster.cli")
FLAGS = {  # of `muster node`, by key of the owner
    "data-path": "--data",
    "memory-path": "--memory",
    "requirement": "--requirement",
    "test-fraction": "--test-fraction",
    "tokenizer": "--tokenizer",
    "sum-key": "--sum-key",
}
START_TIMEOUT = 60.0  # seconds for a process to come up
GRACE = 5.0  # seconds for a process to end by itself

Say = Callable[[str], None]


@dataclass
class Loopback:
    """The processes of a federation on this machine, by name."""

    work: Path
    logs: Path
    port: int
    gate_port: int
    environment: dict[str, str]
    guardian: Guardian
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The address of the SuperLink, for the server itself."""
        return f"{HOST}:{self.port}"

    @property
    def gate(self) -> str:
        """The address of the proxy, for nodes."""
        return f"{HOST}:{self.gate_port}"

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process in a separate group; its output goes to a log."""
        with open_log(self.logs / f"{name}.log") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                umask=0o077,
            )
        self._add(name, process)

    def _add(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.processes[name] = process
        self.guardian.watch([process.pid for process in self.processes.values()])

    def start_superlink(self) -> None:
        """Start the SuperLink, with TLS and registered keys; return when it answers."""
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
        self.wait_for("superlink", self.address)

    def start_gate(self) -> None:
        """Start the proxy that nodes connect to; return when it answers."""
        self.start(
            "gate",
            [
                *MUSTER, "gate", str(self.work / "keys"), "--host", HOST,
                "--port", str(self.gate_port), "--superlink", self.address,
            ],
        )  # fmt: skip
        self.wait_for("gate", self.gate)

    def wait_for(self, name: str, address: str) -> None:
        """Wait until a process answers at an address, with the federation's own certificate."""
        trust = ssl.create_default_context(cafile=str(self.work / "keys" / CA))
        until = time.monotonic() + START_TIMEOUT
        while True:
            try:
                with urllib.request.urlopen(f"https://{address}/health", context=trust):
                    return
            except urllib.error.HTTPError:
                return  # the proxy refuses, so it answers
            except (urllib.error.URLError, OSError) as error:
                self.check(name)
                if time.monotonic() > until:
                    raise MusterError(
                        f"{name}: no answer after {START_TIMEOUT:g} s ({error}); "
                        f"see {self.logs / f'{name}.log'}"
                    ) from None
            time.sleep(0.2)

    def register(self, names: Sequence[str]) -> None:
        """Register the clients' keys with the SuperLink."""
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
            output = process.communicate()[0].decode(errors="replace")
            if process.returncode:
                raise MusterError(f"{name}: its key was not registered: {_last_line(output)}")

    def start_node(self, name: str, config: Mapping[str, str | float], agreed: str) -> None:
        """Start a client's node with its own key and data, which agrees to one app."""
        keys = self.work / "keys"
        flags = [text for key, value in config.items() for text in (FLAGS[key], str(value))]
        self.start(
            name,
            [
                *MUSTER, "node", "--server", self.gate, "--ca", str(keys / CA),
                "--key", str(keys / name), "--app-hash", agreed, *flags,
            ],
        )  # fmt: skip

    def run(self, app: Path, say: Say) -> int:
        """Run `flwr run`, passing on the lines of muster's server app; return its exit code."""
        with open_log(self.logs / "run.log") as log:
            process = subprocess.Popen(
                [program("flwr"), "run", str(app), "dep", "--stream"],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._add("run", process)
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
        """Raise an error if a process has ended."""
        if self.processes[name].poll() is not None:
            log = self.logs / f"{name}.log"
            last = _last_line(log.read_text(errors="replace"))
            raise MusterError(f"{name}: stopped by itself ({last}); see {log}")

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop a process and all it started, which Flower puts into separate sessions."""
        self._stop([name], how)

    def _stop(self, names: Sequence[str], how: signal.Signals = signal.SIGTERM) -> None:
        processes = [self.processes.pop(name) for name in names]
        own = [process.pid for process in processes]
        family = [pid for process in processes for pid in descendants(process.pid)]
        signal_all(own, how)
        until = time.monotonic() + GRACE
        # A second Ctrl-C ends the wait.
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            for process in processes:
                process.wait(max(0.0, until - time.monotonic()))
        # Processes that do not stop are killed.
        signal_all([*own, *family], signal.SIGKILL)
        for process in processes:
            process.wait()

    def stop_all(self) -> None:
        """Stop everything: first the run, then the nodes, then the SuperLink."""
        run, link = self.processes.get("run"), self.processes.get("superlink")
        if run is not None and run.poll() is None and link is not None:
            # The server app of an unfinished run stops before its clients: it would go on without
            # them, and finish the run.
            signal_all(descendants(link.pid), signal.SIGKILL)
        self._stop([name for name in self.processes if name != "superlink"])
        self._stop(list(self.processes))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def interrupt_on_signal() -> AbstractContextManager[None]:
    """Treat a signal to stop (`kill`, a terminal that closes) like Ctrl-C, within the block."""
    handled = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    return handle_signals(handled, signal.default_int_handler)


@contextmanager
def loopback(names: Sequence[str], logs: Path) -> Iterator[Loopback]:
    """Run a SuperLink that knows the keys of these clients; all processes stop with the block."""
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="muster-") as temporary:
        work = Path(temporary)
        guardian = Guardian(work)
        make_keys(work / "keys", [HOST, "localhost"], names)
        port, gate = free_ports(2)
        home = work / "flwr"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink.dep]\naddress = "{HOST}:{port}"\n'
            f'root-certificates = "{work / "keys" / CA}"\n'
        )
        environment = {
            **quiet(os.environ),
            "FLWR_HOME": str(home),
            HOME: str(work / "muster"),
            "NO_PROXY": f"{HOST},localhost",
            "OMP_NUM_THREADS": "1",  # many processes share the cores
        }
        link = Loopback(work, logs, port, gate, environment, guardian)
        try:
            link.start_superlink()
            link.start_gate()
            link.register(names)
            yield link
        finally:
            link.stop_all()
            guardian.dismiss()


def client_names(fed: Federation) -> list[str]:
    """Return the names of the clients of a federation on this machine."""
    return [f"client{k}" for k in range(fed.n)]


def start_nodes(link: Loopback, chosen: Experiment, fed: Federation, folder: Path) -> Path:
    """Write the app and every client's own rows, and start its node; return the app.

    Results go to `folder`, and clients' states, so that a run can be resumed after everything was
    stopped.
    """
    names = client_names(fed)
    keys, privacy = link.work / "keys", chosen.privacy
    members = members_of(fed, [keys / f"{name}.pub" for name in names])
    if privacy is not None and privacy.secure:  # the server knows nobody's number of rows
        members = tuple(
            replace(member, sum_key=str(keys / f"{name}{SUM}.pub"), rows=0)
            for name, member in zip(names, members, strict=True)
        )
    files = write_node_files(chosen, fed, link.work)
    app = link.work / "app"
    listed = replace(chosen, members=members, network=files.network)
    agreed = write_app(app, listed, folder, link.environment, files.inputs)
    for k, (name, owner) in enumerate(zip(names, files.owners, strict=True)):
        config = {**owner, "memory-path": str(folder.resolve() / "nodes" / name)}
        if chosen.requirement is None and fed.requirement is not None:
            config["requirement"] = float(fed.requirement[k])
        link.start_node(name, config, agreed)
    return app


def federate_local(chosen: Experiment, clients: int, folder: Path, say: Say = print) -> None:
    """Split an experiment's data over nodes on this machine and run it; results go to `folder`."""
    fed = replace(chosen, requirement=None).federation(chosen.settings.seed)
    if fed.n != clients:
        raise MusterError(f"--local {clients}: the data has {fed.n} clients; give --local {fed.n}")
    needs = not chosen.network.advice and chosen.job.needs_requirement
    if needs and chosen.requirement is None and fed.requirement is None:
        raise MusterError(
            "requirement: this method needs each client's; give requirement = NUMBER, or a table "
            "(steps, lr) of what each trains alone"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        write(folder / "config.toml", tomli_w.dumps(chosen.resolve()))
    say(f"starting a superlink, its gate and {fed.n} nodes on {HOST}; logs: {folder / 'logs'}")
    why: list[str] = []

    def on_line(line: str) -> None:
        if line.startswith(ERROR):
            why.append(line.removeprefix(ERROR))
        else:
            say(line)

    with interrupt_on_signal(), loopback(client_names(fed), folder / "logs") as link:
        code = link.run(start_nodes(link, chosen, fed, folder), on_line)
    if why:
        raise MusterError(why[-1])
    if not (is_advice if chosen.network.advice else store.is_run)(folder):
        log = folder / "logs" / "run.log"
        raise MusterError(f"the run did not finish (flwr run ended with {code}); see {log}")

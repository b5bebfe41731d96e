"""The supervisor of a client's two processes (`muster node`): it restarts either when it ends.

The SuperNode connects to the server and knows nothing of the data. The worker opens the data and
connects to the SuperNode alone. Restarts are needed: Flower's SuperNode gives up when it is started
within a minute of having been killed, because the server still takes it for connected. Both
processes end with this one, however it ends.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base.checks import check_whole
from ...base.errors import MusterError
from ..local.child_processes import HOST, free_ports, handle_signals, python, quiet
from ..transport.private_files import check_data, check_key, make_private_folder

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 20.0  # seconds before a process is started again
STEADY = 120.0  # seconds of running after which the pause is the first one again
GRACE = 10.0  # seconds for a process to end by itself

Say = Callable[[str], None]


@dataclass(frozen=True)
class NodeOptions:
    """The options of a node, set by its owner.

    Attributes:
        server: address of the proxy (`muster gate`), as HOST:PORT
        ca: the certificate authority that the node trusts
        key: its private key
        agreed: hashes of the apps it may run
        owner: values of `node_data.OWNER_KEYS`
        port: of the SuperNode's own interface, on this machine; 0: any that is free
    """

    server: str
    ca: Path
    key: Path
    agreed: tuple[str, ...]
    owner: Mapping[str, str | float]
    port: int = 0

    def check(self) -> list[str]:
        """Refuse options that cannot work or are not safe; return warnings for the owner."""
        if not self.ca.is_file():
            raise MusterError(f"--ca: {self.ca}: no such file; give the server's ca.crt")
        check_key(self.key)
        if "sum-key" in self.owner:
            check_key(Path(str(self.owner["sum-key"])))
        check_whole("--port", self.port, 0, 65535)
        if not self.agreed:
            raise MusterError(
                "--app-hash: missing; give the hash of the app that you agreed to, which "
                "`muster federate --app` printed on the server"
            )
        for name in self.agreed:
            if len(name) != 64 or set(name) - set("0123456789abcdef"):
                raise MusterError(f"--app-hash: '{name}'; give the 64 letters and digits of a hash")
        warning = check_data(Path(str(self.owner["data-path"])))
        if "memory-path" in self.owner:
            make_private_folder(Path(str(self.owner["memory-path"])))
        return [warning] if warning else []


@dataclass
class RestartingProcess:
    """A process that is started again when it ends."""

    name: str
    command: Callable[[], list[str]]
    stdin: bytes = b""  # written to its standard input
    process: subprocess.Popen[bytes] | None = None
    pause: float = FIRST_PAUSE
    due: float = 0.0
    since: float = 0.0

    def restart_if_due(self, environment: Mapping[str, str], say: Say) -> None:
        """Start it if it is not running and the pause is over; log when it has ended."""
        now = time.monotonic()
        if self.process is not None and (code := self.process.poll()) is not None:
            self.pause = FIRST_PAUSE if now - self.since > STEADY else self.pause
            say(f"the {self.name} ended with code {code}; starting it again in {self.pause:g} s")
            self.process, self.due = None, now + self.pause
            self.pause = min(2 * self.pause, LONGEST_PAUSE)
        if self.process is None and now >= self.due:
            self.process = subprocess.Popen(
                self.command(), env=dict(environment), stdin=subprocess.PIPE, umask=0o077
            )
            self.since = now
            assert self.process.stdin is not None
            with suppress(BrokenPipeError), self.process.stdin as stdin:
                stdin.write(self.stdin)

    def stop(self) -> None:
        """Terminate it, and kill it if it does not end."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Supervisor:
    """The supervisor of the two processes of a client."""

    options: NodeOptions
    say: Say
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Run both processes until a signal or `ended` stops them."""
        for line in self.options.check():
            self.say(f"warning: {line}")
        processes = self._processes(secrets.token_bytes(32))
        with set_on_signal(self.ended):
            try:
                while not self.ended.wait(0.2):
                    for process in processes:
                        process.restart_if_due(quiet(os.environ), self.say)
            finally:
                for process in processes:
                    process.stop()

    def _processes(self, secret: bytes) -> list[RestartingProcess]:
        s, own = self.options, str(os.getpid())
        port = s.port or free_ports(1)[0]
        supernode = python(
            "muster.flower.client.supernode",
            own,
            f"--superlink={s.server}",
            f"--root-certificates={s.ca}",
            f"--auth-supernode-private-key={s.key}",
            f"--host={HOST}",
            f"--port={port}",
            "--isolation=process",
            "--superexec-auth-secret-file=/dev/stdin",
        )
        config: dict[str, Any] = {
            "address": f"{HOST}:{port}",
            "secret": secret.hex(),
            "owner": dict(s.owner),
            "agreed": list(s.agreed),
        }
        worker = python("muster.flower.client.worker", own)
        return [
            RestartingProcess("supernode", lambda: supernode, secret),
            RestartingProcess("worker", lambda: worker, json.dumps(config).encode()),
        ]


def set_on_signal(ended: threading.Event) -> AbstractContextManager[None]:
    """Set an event on a signal to stop (Ctrl-C, `kill`, a service manager), within the block."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return handle_signals(signals, lambda *_: ended.set())

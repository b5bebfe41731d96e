"""`muster node`: a client's two processes, kept running.

The supernode speaks to the server and knows nothing of the data. The worker opens the data and
speaks to the supernode alone. Either is started again when it ends: Flower's supernode gives up
when it is started within a minute of having been killed, because the server still takes it for
connected. Both end with this process, however it ends.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base.checks import check_whole
from ...base.errors import MusterError
from ..local.processes import HOST, free_ports, python, quiet
from ..transport.private_files import check_data, check_key, private_folder

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 20.0  # seconds before a process is started again
STEADY = 120.0  # seconds after which it counts as having run well
GRACE = 10.0  # seconds for a process to end by itself

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settled:
    """What the owner of a node has settled.

    Attributes:
        server: where the gate is, as HOST:PORT
        ca: the certificate by which the node knows the server
        key: its private key
        agreed: hashes of the apps it may run
        owner: what `node_data` reads: data-path, memory-path, requirement, test-fraction, tokenizer
        port: of the supernode's own interface, on this machine; 0: any that is free
    """

    server: str
    ca: Path
    key: Path
    agreed: tuple[str, ...]
    owner: Mapping[str, str | float]
    port: int = 0

    def check(self) -> list[str]:
        """Refuse what cannot work or is not safe; returns what the owner should be told."""
        if not self.ca.is_file():
            raise MusterError(f"--ca: {self.ca}: no such file; give the server's ca.crt")
        check_key(self.key)
        check_whole("--port", self.port, 0, 65535)
        if not self.agreed:
            raise MusterError(
                "--app-hash: missing; give the hash of the app that you agreed to, which "
                "`muster federate --app` printed on the server"
            )
        for name in self.agreed:
            if len(name) != 64 or set(name) - set("0123456789abcdef"):
                raise MusterError(f"--app-hash: '{name}'; give the 64 letters and digits of a hash")
        said = check_data(Path(str(self.owner["data-path"])))
        if "memory-path" in self.owner:
            private_folder(Path(str(self.owner["memory-path"])))
        return [said] if said else []


@dataclass
class Kept:
    """A process that is started again when it ends."""

    name: str
    command: Callable[[], list[str]]
    said: bytes = b""  # what it is told on its standard input
    process: subprocess.Popen[bytes] | None = None
    pause: float = FIRST_PAUSE
    due: float = 0.0
    since: float = 0.0

    def keep(self, environment: Mapping[str, str], say: Say) -> None:
        """Start it if it is due; notice when it has ended."""
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
            with suppress(BrokenPipeError), self.process.stdin as told:
                told.write(self.said)

    def stop(self) -> None:
        """End it, gently if it lets us."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Node:
    """The two processes of a client."""

    settled: Settled
    say: Say
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Keep both processes running until told to end."""
        for line in self.settled.check():
            self.say(f"warning: {line}")
        processes = self._processes(secrets.token_bytes(32))
        with told_to_end(self.ended):
            try:
                while not self.ended.wait(0.2):
                    for process in processes:
                        process.keep(quiet(os.environ), self.say)
            finally:
                for process in processes:
                    process.stop()

    def _processes(self, secret: bytes) -> list[Kept]:
        s, own = self.settled, str(os.getpid())
        port = s.port or free_ports(1)[0]
        supernode = python(
            "muster.flower.client.supernode", own, "--superlink", s.server,
            "--root-certificates", str(s.ca), "--auth-supernode-private-key", str(s.key),
            "--host", HOST, "--port", str(port),
            "--isolation", "process", "--superexec-auth-secret-file", "/dev/stdin",
        )  # fmt: skip
        desk: dict[str, Any] = {
            "address": f"{HOST}:{port}",
            "secret": secret.hex(),
            "owner": dict(s.owner),
            "agreed": list(s.agreed),
        }
        worker = python("muster.flower.client.worker", own)
        return [
            Kept("supernode", lambda: supernode, secret),
            Kept("worker", lambda: worker, json.dumps(desk).encode()),
        ]


@contextmanager
def told_to_end(ended: threading.Event) -> Iterator[None]:
    """Within, being told to end (by Ctrl-C, `kill` or a service manager) sets an event."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {s: signal.signal(s, lambda *_: ended.set()) for s in signals}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)

"""Child processes: how they are started, and how they end with the process that started them.

A process that Flower does not watch asks the kernel to be stopped with its parent, or looks for it
once a second. A whole federation on one machine has a guardian besides: a process that holds one
end of a pipe. When the other end closes without a message, its owner was killed; the guardian then
stops everything that was started, and removes the folder of keys and data.

    python -P -m muster.flower.local.child_processes < pipe   (by `muster federate --local`)
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from os import pathsep
from pathlib import Path
from typing import Any

from ...base.errors import MusterError

HOST = "127.0.0.1"
PARENT_DEATH_SIGNAL = 1  # of prctl(2)
POLL_INTERVAL = 1.0  # seconds between looks for a parent, where the kernel sends no signal
REMOVAL_TIMEOUT = 10.0  # seconds


def program(name: str) -> str:
    """Return the path of one of Flower's commands, next to the running Python or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is not None:
        return found
    if find_spec("flwr") is not None:
        raise MusterError(
            f"{name}: Flower is installed, but its scripts are neither in {beside.parent} nor on "
            "PATH; add their folder to PATH (`pip show -f flwr` names it)"
        )
    raise MusterError(f"{name}: not found; install it with pip install 'muster-fl[flower]'")


def python(module: str, *words: str) -> list[str]:
    """Return a command that runs a module of muster; files in the current folder (a `torch.py`,
    say) are not taken for installed modules."""
    return [sys.executable, "-P", "-m", module, *words]


def free_ports(n: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind((HOST, 0))
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()


def quiet(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Flower's commands find each other, without telemetry."""
    beside = str(Path(sys.executable).parent)
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        **environment,
        "PATH": f"{beside}{pathsep}{environment.get('PATH', '')}",
    }


def end_with(parent: int) -> None:
    """End this process when its parent ends.

    Args:
        parent: the process that started this one; it may be gone by now
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        signal.raise_signal(signal.SIGTERM)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_INTERVAL)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def handle_signals(signals: Iterable[signal.Signals], handler: Any) -> Iterator[None]:
    """Call a handler on these signals within the block. Only the main thread receives signals: in
    another one nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, handler) for s in signals}
    try:
        yield
    finally:
        for s, earlier in before.items():
            signal.signal(s, earlier)


def signal_all(pids: Sequence[int], how: signal.Signals) -> None:
    """Send a signal to those of the processes that exist."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, how)


def descendants(pid: int) -> list[int]:
    """Return every process that a process started, or that those started."""
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


@dataclass
class Guardian:
    """The process that cleans up after this one, should it be killed.

    Attributes:
        folder: removed with everything in it
    """

    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            python("muster.flower.local.child_processes"),
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self.watch([])

    def watch(self, pids: Sequence[int]) -> None:
        """Send it the processes that it must stop."""
        self._send({"folder": str(self.folder), "pids": list(pids)})

    def dismiss(self) -> None:
        """Stop it: there is nothing to clean up."""
        self._send(None)
        self.process.communicate()

    def _send(self, message: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()


def main() -> None:
    """Wait for the end of the pipe, then stop and remove what is left."""
    left = None
    for line in sys.stdin:
        left = json.loads(line)
    if left is None:
        return
    pids = [pid for own in left["pids"] for pid in (own, *descendants(own))]
    signal_all(pids, signal.SIGKILL)
    until = time.monotonic() + REMOVAL_TIMEOUT
    while os.path.exists(left["folder"]) and time.monotonic() < until:
        shutil.rmtree(left["folder"], ignore_errors=True)
        time.sleep(0.1)  # a process that is being killed may still write


if __name__ == "__main__":
    main()

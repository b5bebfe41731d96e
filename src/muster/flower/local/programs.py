"""Commands, Flower's own and ours, and ports to run them on."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Mapping
from os import pathsep
from pathlib import Path

from ...base.errors import MusterError

HOST = "127.0.0.1"


def program(name: str) -> str:
    """One of Flower's commands, next to the running Python or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise MusterError(f"{name}: not found; install it with pip install 'muster-fl[flower]'")
    return found


def python(module: str, *words: str) -> list[str]:
    """A command that runs one of our modules; what lies in the current folder (a `torch.py`, say)
    is not taken for an installed module."""
    return [sys.executable, "-P", "-m", module, *words]


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


def quiet(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Flower's commands find each other, and report to nobody."""
    beside = str(Path(sys.executable).parent)
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        **environment,
        "PATH": f"{beside}{pathsep}{environment.get('PATH', '')}",
    }

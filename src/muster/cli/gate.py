"""`muster gate`: a reverse proxy that forwards only node API calls to a SuperLink."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..base.errors import MusterError
from ..base.lazy import lazy_module
from .arguments import CommandParser
from .console import print_line
from .options import add_flags, needs_flower, parse_port

if TYPE_CHECKING:
    from ..flower.transport import proxy
else:  # an extra: mistakes in a command line are reported without it
    proxy = lazy_module("muster.flower.transport.proxy")

PORT, SUPERLINK = 9092, "127.0.0.1:9093"


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "folder", nargs="?", metavar="DIR", help="the server's keys, as `muster keys` made them"
    )
    add_flags(
        parser,
        ("--host", "HOST", "address to listen on (0.0.0.0: all)"),
        ("--port", "PORT", "port that nodes connect to (9092)"),
        ("--superlink", "HOST:PORT", "the SuperLink, on this machine (127.0.0.1:9093)"),
    )


@needs_flower
def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.folder is None:
        raise MusterError("gate: give the folder of the server's keys, as `muster keys` made it")
    proxy.serve(
        Path(arguments.folder),
        arguments.host or "0.0.0.0",
        parse_port(arguments.port, PORT),
        arguments.superlink or SUPERLINK,
        partial(print_line, console),
    )
    return 0

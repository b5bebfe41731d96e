"""`muster keys`: the certificates of a server and the key pairs of clients."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..base.errors import MusterError
from ..base.lazy import lazy_module
from .arguments import CommandParser
from .console import print_line
from .options import SEVERAL, add_flags, needs_flower

if TYPE_CHECKING:
    from ..flower.transport import keys
else:  # an extra: mistakes in a command line are reported without it
    keys = lazy_module("muster.flower.transport.keys")


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "folder", nargs="?", metavar="DIR", help="where to put them; nothing is replaced"
    )
    add_flags(
        parser,
        ("--server", "HOST", "addresses at which clients reach the server"),
        ("--clients", "NAME", "clients, each of which gets a key pair"),
        **SEVERAL,
    )


@needs_flower
def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.folder is None or not (arguments.server or arguments.clients):
        raise MusterError(
            "keys: give a folder, then what to make: muster keys DIR --server HOST ... "
            "--clients NAME ..."
        )
    folder = Path(arguments.folder)
    keys.make_keys(folder, arguments.server, arguments.clients)
    if arguments.server:
        print_line(
            console,
            f"server: {folder / keys.CA}, and server.crt and server.key for it alone",
        )
    for name in arguments.clients:
        own = f"{folder / name} and {folder / name}{keys.SUM}"
        print_line(console, f"{name}: {own} (secret, for it alone), each with its .pub")
    return 0

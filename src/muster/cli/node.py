"""`muster node`: a client's node, with its key, its data and the app its owner agreed to."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..base.errors import MusterError
from ..base.lazy import lazy_module
from ..base.registry import import_object
from .arguments import CommandParser
from .console import print_line
from .options import SEVERAL, add_flags, needs_flower, parse_port

if TYPE_CHECKING:
    from ..flower.client import node_data, supervisor
else:  # an extra: mistakes in a command line are reported without it
    supervisor = lazy_module("muster.flower.client.supervisor")
    node_data = lazy_module("muster.flower.client.node_data")


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_flags(
        parser,
        ("--server", "HOST:PORT", "address of the server's `muster gate`"),
        ("--ca", "FILE", "certificate by which the node recognises the server"),
        ("--key", "FILE", "this client's private key"),
        (
            "--sum-key",
            "FILE",
            "its private keys for secure sums (default: KEY.agg, if it is there)",
        ),
        ("--data", "FILE", "this client's rows: CSV, parquet or npz"),
        ("--memory", "FOLDER", "folder of the client's state between rounds"),
        ("--requirement", "LOSS", "loss that the model must stay below for this client"),
        ("--test-fraction", "SHARE", "fraction of rows to hold out, if the file has no test rows"),
        ("--tokenizer", "MODULE:NAME", "tokenizer of texts, for a model that reads them"),
        ("--port", "PORT", "port of the node's interface on this machine (default: a free one)"),
    )
    text = "hash of the app (or apps) that its owner agreed to: nothing else is run"
    add_flags(parser, ("--app-hash", "HASH", text), **SEVERAL)


@needs_flower
def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    for flag in ("server", "ca", "key", "data"):
        if getattr(arguments, flag) is None:
            raise MusterError(f"node: --{flag} is missing; `muster node --help` describes it")
    config: dict[str, str | float] = {"data-path": str(Path(arguments.data).resolve())}
    sum_key = Path(arguments.sum_key or f"{arguments.key}.agg")
    if arguments.sum_key is not None or sum_key.exists():
        config["sum-key"] = str(sum_key.resolve())
    if arguments.memory is not None:
        config["memory-path"] = str(Path(arguments.memory).resolve())
    for flag in ("requirement", "test_fraction"):
        if (text := getattr(arguments, flag)) is not None:
            key = flag.replace("_", "-")
            config[key] = node_data.read_number({key: text}, key)
    if arguments.tokenizer is not None:
        import_object(arguments.tokenizer, "--tokenizer")  # reports what is wrong with it
        config["tokenizer"] = arguments.tokenizer
    settings = supervisor.NodeOptions(
        arguments.server,
        Path(arguments.ca),
        Path(arguments.key),
        tuple(arguments.app_hash),
        config,
        parse_port(arguments.port, 0),
    )
    supervisor.Supervisor(settings, partial(print_line, console)).run()
    return 0

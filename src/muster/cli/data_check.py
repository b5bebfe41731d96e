"""`muster data check`: every problem of a folder of data, and a manifest to read it by."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..base.durable import create
from ..base.errors import MusterError
from ..base.lazy import lazy_module
from ..config.experiment import load, load_table
from ..data.files.data_check import DataCheck, check
from ..data.files.manifest import find_manifest, manifest_places
from ..tasks.task import target_kind
from .arguments import CommandParser
from .console import print_line
from .options import add_flags, needs_flower

if TYPE_CHECKING:
    from ..flower.client import node_data
else:  # an extra, for --terms alone
    node_data = lazy_module("muster.flower.client.node_data")

DESCRIPTION = """\
Find every problem of your own files at once, and write a manifest by which they can be read.

PATH is a folder of one file per client, one table of all of them, or one client's file. The exit
code is 1 if there are problems, and 0 if there are none. The manifest is written next to the data
unless one is there; what it settles is no problem the next time.
"""


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("path", nargs="?", metavar="PATH", help="a folder, or a file")
    parser.add_flag("--json", action="store_true", help="print everything as JSON")
    add_flags(
        parser,
        ("--out", "FILE", "file of the manifest (manifest.toml next to the data)"),
        ("--terms", "FILE", "of a real federation: its configuration, for a node's own file"),
    )


@needs_flower
def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.path is None:
        raise MusterError("data check: of which data? give a folder or a file")
    done = check_data(arguments.path, arguments.terms)
    written, line = write_manifest(done, arguments.out)
    if arguments.json:
        print(json.dumps({**done.to_dict(), "written": written and str(written)}))
    else:
        for text in [*str(done).splitlines(), *(["", line] if line else [])]:
            print_line(console, text)
    return 1 if done.problems else 0


def check_data(path: str, terms: str | None) -> DataCheck:
    """Check files; with the terms of a federation, as a node reads its own."""
    if terms is None:
        return check(path)
    chosen = load(load_table(terms))
    targets = target_kind(chosen.settings.task)
    return node_data.check_own_data({"data-path": path}, chosen.network, targets)


def write_manifest(done: DataCheck, out: str | None) -> tuple[Path | None, str]:
    """Write the manifest, next to the data if there is none; return its path, and a line about
    it."""
    place = Path(done.place)
    there = find_manifest(place)
    if not done.manifest:
        return None, ""
    if out is None and there is not None:
        return None, f"manifest: {there} is there and was kept; --out FILE writes the new one"
    path = manifest_places(place)[0] if out is None else Path(out)
    try:
        create(path, done.manifest)
    except FileExistsError:
        raise MusterError(f"--out: {path} is there already; give another file") from None
    except OSError as error:
        if out is not None:
            raise
        reason = error.strerror or type(error).__name__
        return None, f"manifest: {path} cannot be written ({reason}); give --out FILE"
    return path, f"manifest: {path}, written: read it"

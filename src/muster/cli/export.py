"""`muster export`: a run's model for use without muster."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.filesize import decimal

from ..base.errors import MusterError
from ..results.export import check_export_path
from .arguments import CommandParser
from .console import print_line
from .options import add_flags
from .predict import add_model_options, load_code, load_run

DESCRIPTION = """\
Export a run's model for use elsewhere.

The ending of --to is the format: model.pt (weights, a state_dict), model.ts (TorchScript),
model.onnx (needs the extra onnx). TorchScript and ONNX take the columns of a table as numbers and
return what `muster predict` does. FILE.json, next to it, has columns, levels, scale and labels.
"""


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("run", nargs="?", metavar="RUN", help="a folder, such as runs/hospitals")
    add_flags(parser, ("--to", "FILE", "file to write: model.pt, model.ts or model.onnx"))
    add_model_options(parser)


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.run is None or arguments.to is None:
        raise MusterError("export: give a run and a file: muster export runs/NAME --to model.ts")
    out = check_export_path(arguments.to)
    run = load_run(arguments.run)
    run.export(out, arguments.client, load_code(arguments, run), arguments.scale)
    size = decimal(out.stat().st_size)
    print_line(console, f"model: {out} ({size}); its columns and labels: {out}.json")
    return 0

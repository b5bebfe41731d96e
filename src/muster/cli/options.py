"""Flags and arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.checks import check_whole, is_whole
from ..base.errors import MusterError
from ..base.schema import Table, parameters
from ..config.dotted_keys import override, parse_value
from ..config.experiment import TABLES, Experiment, load, load_table
from ..config.settings import Settings
from ..study.load import find_kind, get_resume_command
from .arguments import CommandParser, Execute
from .help import format_keys

if TYPE_CHECKING:
    from rich.console import Console

SEVERAL: dict[str, Any] = {"action": "extend", "nargs": "+", "default": []}  # values of one flag
EXTRA = ("flwr", "cryptography", "httpx", "uvicorn")  # modules of the extra `flower`


def add_flags(parser: CommandParser, *flags: tuple[str, str, str], **options: Any) -> None:
    """Add flags that take a value, each with its placeholder and its help text."""
    for flag, metavar, text in flags:
        parser.add_flag(flag, metavar=metavar, help=text, **options)


def add_trust_code(parser: CommandParser) -> None:
    """Add --trust-code, which lets code run that a folder of results names."""
    text = "run code that the folder names by import path; only if it is your own"
    parser.add_flag("--trust-code", action="store_true", help=text)


def add_configuration(parser: CommandParser, several: bool = False) -> None:
    """Add a configuration file, its keys as flags, and --resume.

    Args:
        several: True if --method may be given several times
    """
    parser.usage = f"{parser.prog} [CONFIG] [--KEY VALUE ...]"
    parser.list_keys = list_keys
    parser.epilogue = format_keys
    parser.add_argument(
        "config", nargs="?", metavar="CONFIG", help="a TOML file; flags override it"
    )
    text = f"method to run{'; repeat for another' if several else ''}"
    parser.add_flag("--method", action="append", metavar="NAME", help=text)
    add_flags(parser, ("--resume", "FOLDER", "continue the results in FOLDER"))
    add_trust_code(parser)


def list_keys() -> set[str]:
    """Return the keys of a configuration; `measure` is the same as `measures`."""
    return {*TABLES, *parameters(Settings), "measure"}


def read_configuration(
    arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None
) -> Table:
    """Return the configuration of a command line: its file, overridden by its flags.

    `--method` may come several times; the methods of a file are replaced by it. A flag that names
    something is applied before those that refine it, wherever it stands.

    Args:
        defaults: settings that the file may change
    """
    table = dict(defaults or {})
    if arguments.config:
        table |= {"name": Path(arguments.config).stem, **load_table(arguments.config)}
    methods = arguments.method or []
    if len(methods) > 1:
        table.pop("method", None)
        table["methods"] = [parse_value(name) for name in methods]
    flags = [("method", name) for name in methods if len(methods) == 1]
    keys = {("measures" if k == "measure" else k): v for k, v in arguments.keys.items()}
    if len(keys) < len(arguments.keys):
        raise MusterError("--measure: given twice, as --measures too; give it once")
    flags += sorted(keys.items(), key=lambda flag: flag[0].count("."))
    table = override(table, flags)
    if "rounds" in keys and "report_at" not in keys:
        # A flag that shortens a file's run also shortens the list of rounds to print.
        table = drop_above(table, "report_at", table["rounds"])
    return table


def drop_above(table: Table, key: str, last: Any) -> Table:
    """Return a table without the numbers above `last` in one of its lists."""
    values = table.get(key)
    if not isinstance(values, list) or not is_whole(last):
        return table  # `config.load` reports what is wrong
    return table | {key: [at for at in values if not is_whole(at) or at <= last]}


def refuse_several_methods(arguments: argparse.Namespace, advice: str) -> None:
    """Refuse several methods where only one can run."""
    if len(arguments.method or []) > 1:
        raise MusterError(f"--method: given {len(arguments.method)} times; {advice}")


def find_resume_folder(arguments: argparse.Namespace) -> Path | None:
    """Return the folder of results to continue, if --resume names one."""
    if arguments.resume is None:
        return None
    if arguments.config or arguments.keys or arguments.method:
        raise MusterError("--resume: continues with the folder's own settings; give no others")
    folder = Path(arguments.resume)
    if not (folder / "config.toml").exists():
        raise MusterError(f"--resume {folder}: no config.toml there; give a folder of results")
    return folder


def check_kind(folder: Path, kind: str) -> None:
    """Refuse a folder with another kind of results."""
    found = find_kind(folder) or kind
    if found != kind:
        raise MusterError(f"--resume {folder}: holds a {found}; use {get_resume_command(folder)}")


def load_resume_folder(folder: Path, kind: str, trusted: bool) -> Experiment:
    """Return the configuration in a folder, which must hold results of a kind: a run, a comparison
    or a federation. Code that it names runs only if the user trusts it."""
    check_kind(folder, kind)
    return load(load_table(folder / "config.toml", follow=False), trusted)


def load_experiment(
    arguments: argparse.Namespace, kind: str, several: Sequence[str] = ()
) -> tuple[Experiment, Path | None]:
    """Return the experiment of a command line, and the folder of results that it continues; its
    methods are `several` where neither its file nor a flag names one."""
    folder = find_resume_folder(arguments)
    if folder is None:
        table = read_configuration(arguments)
        if several and not {"method", "methods"} & set(table):
            table["methods"] = list(several)
        return load(table, trusted=True), None
    return load_resume_folder(folder, kind, arguments.trust_code), folder


def parse_whole(text: str | None, flag: str) -> int | None:
    """Return the value of a flag as a whole number from 1, if it is given."""
    if text is None:
        return None
    value = parse_value(text)
    check_whole(flag, value)
    return int(value)


def split_names(arguments: argparse.Namespace) -> list[str]:
    """Return the clients that --for names."""
    return [name.strip() for name in (vars(arguments)["for"] or "").split(",") if name.strip()]


def parse_port(text: str | None, default: int) -> int:
    """Return the value of --port."""
    if text is not None and not text.isdecimal():
        raise MusterError(f"--port: '{text}'; allowed: whole numbers from 0 to 65535")
    return default if text is None else int(text)


def needs_flower(execute: Execute) -> Execute:
    """Let a command report that the extra `flower` is not installed."""

    @wraps(execute)
    def wrapper(arguments: argparse.Namespace, console: Console) -> int:
        try:
            return execute(arguments, console)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in EXTRA:
                raise
            raise MusterError(
                "flower: not installed; a real federation needs: pip install 'muster-fl[flower]'"
            ) from None

    return wrapper

"""The parser of command lines: argparse, with the keys of the configuration as flags.

Only the configuration knows its keys (`--method.epsilon.kind linear`). So a command that takes them
adds every `--name` of the line that it does not declare, as a flag with one value, and lets
argparse parse everything: arguments in any order, `--key value` and `--key=value`. Dashes and
underscores in a key mean the same; a flag given twice is an error. A flag that only other commands
have is named as theirs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ..base.errors import MusterError, unknown_name
from ..base.lazy import load_module

if TYPE_CHECKING:
    from rich.console import Console

Execute: TypeAlias = "Callable[[argparse.Namespace, Console], int]"

KEY = "key "  # prefix of the names of keys among a command's own arguments


class Once(argparse.Action):
    """Store a value; refuse a second one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string and getattr(namespace, self.dest, None) is not None:
            parser.error(f"{option_string}: given twice; give it once")
        setattr(namespace, self.dest, values)


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, or of a group of commands.

    The module of a command is `muster.cli.NAME` (`data_get` for `muster data get`). It is imported
    when the command is chosen, and has `add_arguments(parser)` and `execute(arguments, console)`,
    which returns the exit code.

    Attributes:
        execute: function that runs the command
        list_keys: function that returns the keys of the configuration, if they are flags of this
            command; those with a dot are not listed
        epilogue: function that returns the last part of the help text
        commands: parsers of a group's commands
        root: parser of all commands
        flags: the command's own flags
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.register("action", None, Once)
        self.execute: Execute | None = None
        self.list_keys: Callable[[], Container[str]] | None = None
        self.epilogue: Callable[[], str] | None = None
        self.commands: dict[str, CommandParser] = {}
        self.root = self
        self.flags = ["--help"]

    def add_commands(self, summaries: Mapping[str, str]) -> None:
        """Add a group's commands, each with one line of help."""
        group: Any = self.add_subparsers(metavar="COMMAND", title="commands")
        for name, summary in summaries.items():
            about = f"{summary[0].upper()}{summary[1:]}."
            self.commands[name] = group.add_parser(name, help=summary, description=about)
            self.commands[name].root = self.root

    def add_flag(self, name: str, **options: Any) -> None:
        """Add one of the command's own flags."""
        self.flags.append(name)
        self.add_argument(name, **options)

    def load(self) -> CommandParser:
        """Import the command's module, unless that was done, and add its arguments."""
        if self.execute is None:
            module = load_module(f"muster.cli.{'_'.join(self.prog.split()[1:])}")
            self.execute = module.execute
            module.add_arguments(self)
        return self

    def parse(self, line: Sequence[str]) -> argparse.Namespace:
        """Return the arguments of a line, with `keys` (text by key, in order) and `execute`."""
        if self.commands and line and not line[0].startswith("-"):
            if line[0] not in self.commands:
                kind = " ".join([*(self.prog.split()[1:]), "command"])
                raise unknown_name(kind, line[0], self.commands)
            return self.commands[line[0]].load().parse(line[1:])
        self._add_keys(line)
        parse = self.parse_args if self.commands else self.parse_intermixed_args
        arguments = parse(attach_negatives(line))
        values = vars(arguments).items()
        arguments.keys = {k.removeprefix(KEY): v for k, v in values if k.startswith(KEY)}
        arguments.execute = self.execute
        return arguments

    def _add_keys(self, line: Sequence[str]) -> None:
        for item in line:
            flag = item.partition("=")[0]
            if not flag.startswith("--") or len(flag) == 2 or flag in self.flags:
                continue
            if not self.has_flag(flag) and (owners := self.root.find_flag(flag)):
                raise MusterError(
                    f"{flag}: a flag of {', '.join(owners)}; {self.prog} does not take it"
                )
            if self.list_keys is None:
                raise unknown_name("flag", flag, self.flags)
            self.add_flag(flag, dest=KEY + as_key(flag), help=argparse.SUPPRESS)

    def has_flag(self, flag: str) -> bool:
        """Return True if a flag is the command's own, or a key; one with a dot may be a key."""
        if self.list_keys is None or flag in self.flags:
            return flag in self.flags
        return "." in flag or as_key(flag) in self.list_keys()

    def find_flag(self, flag: str) -> list[str]:
        """Return which have a flag: this command, and those of its group."""
        inner = (command.load().find_flag(flag) for command in self.commands.values())
        return [*([self.prog] if self.has_flag(flag) else []), *chain.from_iterable(inner)]

    def format_help(self) -> str:
        return super().format_help() + (f"\n{self.epilogue()}\n" if self.epilogue else "")

    def error(self, message: str) -> NoReturn:
        """Raise argparse's error as one of muster's."""
        text = message.removeprefix("argument ")
        text = re.sub(r": expected .*argument.*", ": its value is missing", text)
        if found := re.match(r"unrecognized arguments: (\S+)", text):
            hint = "; flags look like --method.epsilon 0.3" if self.list_keys else ""
            text = f"'{found[1]}': not understood{hint}"
        raise MusterError(" ".join(text.split()))


def as_key(flag: str) -> str:
    """Return the key that a flag sets.

    >>> as_key("--report-at")
    'report_at'
    """
    return flag[2:].replace("-", "_")


def attach_negatives(line: Sequence[str]) -> list[str]:
    """Return a line with negative numbers attached to their flags: argparse takes some for flags.

    >>> attach_negatives(["--seed", "-1", "x.toml", "--local.lr", "-1e-3"])
    ['--seed=-1', 'x.toml', '--local.lr=-1e-3']
    """
    items: list[str] = []
    for item in line:
        if items and re.fullmatch(r"--[^=]+", items[-1]) and _is_negative(item):
            items[-1] += f"={item}"
        else:
            items.append(item)
    return items


def _is_negative(text: str) -> bool:
    """Return True if a text is a negative number, or a list that begins with one."""
    try:
        float(text.partition(",")[0])
    except ValueError:
        return False
    return text.startswith("-")

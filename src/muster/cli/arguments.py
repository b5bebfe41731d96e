"""The one reader of command lines: argparse, with flags that are the configuration's own keys.

Which keys there are only the configuration knows (`--method.epsilon.kind linear`). So a command
that takes them adds every `--word` of the line that is no flag of its own, as a flag with one
value, and lets argparse read everything: words in any order, `--key value` and `--key=value`.
Dashes and underscores in a key are alike; what is given twice is an error.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ..base.errors import MusterError, unknown_name

if TYPE_CHECKING:
    from rich.console import Console

Command: TypeAlias = "Callable[[argparse.Namespace, Console], int]"

KEY = "key "  # before the name of a key among a command's own arguments


class Once(argparse.Action):
    """Keep a value; a second one is an error."""

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


class Reader(argparse.ArgumentParser):
    """Reads the line of one command, or finds the command of a group that the line is for.

    Attributes:
        handle: what to do with what was read
        keys: whether the configuration's keys are flags of this command
        more: what its help says at the end, worked out only when it is asked for
    """

    def __init__(
        self,
        *,
        handle: Command | None = None,
        keys: bool = False,
        more: Callable[[], str] | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(
            **rest, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.register("action", None, Once)
        self.handle, self.keys, self.more = handle, keys, more
        self.commands: dict[str, Reader] = {}
        self.known = ["--help"]

    def group(self, **rest: Any) -> Callable[..., Reader]:
        """Let commands be added: `add = reader.group(); add("run", help="...")`."""
        sub: Any = self.add_subparsers(metavar="COMMAND", title="commands", **rest)

        def add(name: str, **about: Any) -> Reader:
            made: Reader = sub.add_parser(name, **about)
            self.commands[name] = made
            return made

        return add

    def flag(self, name: str, **about: Any) -> None:
        """Add a flag of the command's own."""
        self.known.append(name)
        self.add_argument(name, **about)

    def read(self, line: Sequence[str]) -> argparse.Namespace:
        """The command's arguments, with `keys` (text by key, in the order given) and `handle`."""
        if self.commands and line and not line[0].startswith("-"):
            if line[0] not in self.commands:
                kind = " ".join([*(self.prog.split()[1:]), "command"])
                raise unknown_name(kind, line[0], self.commands)
            return self.commands[line[0]].read(line[1:])
        self._add_keys(line)
        parse = self.parse_args if self.commands else self.parse_intermixed_args
        words = parse(joined(line))
        given = vars(words).items()
        words.keys = {k.removeprefix(KEY): v for k, v in given if k.startswith(KEY)}
        words.handle = self.handle or self._help
        return words

    def _add_keys(self, line: Sequence[str]) -> None:
        for word in line:
            flag = word.partition("=")[0]
            if not flag.startswith("--") or len(flag) == 2 or flag in self.known:
                continue
            if not self.keys:
                raise unknown_name("flag", flag, self.known)
            key = flag[2:].replace("-", "_")
            self.flag(flag, dest=KEY + key, help=argparse.SUPPRESS)

    def _help(self, words: argparse.Namespace, console: Console) -> int:
        self.print_help()
        return 0

    def format_help(self) -> str:
        return super().format_help() + (f"\n{self.more()}\n" if self.more else "")

    def error(self, message: str) -> NoReturn:
        """argparse's complaint, in this project's words."""
        text = message.removeprefix("argument ")
        text = re.sub(r": expected .*argument.*", ": its value is missing", text)
        if found := re.match(r"unrecognized arguments: (\S+)", text):
            hint = "; flags look like --method.epsilon 0.3" if self.keys else ""
            text = f"'{found[1]}': not understood{hint}"
        raise MusterError(" ".join(text.split()))


def joined(line: Sequence[str]) -> list[str]:
    """A line in which a negative number stays with its flag: argparse takes some for flags.

    >>> joined(["--seed", "-1", "x.toml", "--local.lr", "-1e-3"])
    ['--seed=-1', 'x.toml', '--local.lr=-1e-3']
    """
    words: list[str] = []
    for word in line:
        if words and re.fullmatch(r"--[^=]+", words[-1]) and _is_negative(word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _is_negative(word: str) -> bool:
    """Whether a word is a negative number, or a list that begins with one."""
    try:
        float(word.partition(",")[0])
    except ValueError:
        return False
    return word.startswith("-")

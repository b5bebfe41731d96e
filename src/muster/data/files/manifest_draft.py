"""Draft of a manifest: settings that a check decides, each with the reason as a comment."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from ...base.errors import one_line
from ...federation.inputs import Range
from .dialect import PLAIN, Dialect
from .manifest import TABLE_KEYS, Manifest, build_manifest

HEAD = """\
# Written by `muster data check`: read it, and change what was meant otherwise.
# docs/own-data.md describes every key.
"""


@dataclass
class ManifestDraft:
    """A manifest under way: that of before, and what was decided.

    Attributes:
        before: the manifest that is there already
        fixed: keys that are set elsewhere, and are not written
        decisions: in words, in the order in which they were made
        hint: setting that only the user can decide, as a comment to change
    """

    before: Manifest
    fixed: frozenset[str]
    decisions: list[str] = field(default_factory=list)
    hint: str = ""

    def __post_init__(self) -> None:
        options = asdict(self.before.options)
        self.table: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
        self.reasons: dict[str, str] = {}
        self.clients = {
            name: {k: v for k, v in asdict(role).items() if v not in (None, False, 0.0)}
            for name, role in self.before.roles.items()
        }
        self.renames: dict[str, Mapping[str, str]] = {}
        self.limits: dict[str, Range] = {}
        self.values = {name: dict(known) for name, known in self.before.recode.items()}

    def decide(self, key: str, value: Any, reason: str) -> None:
        """Set a key, unless that was done by the user; give the reason."""
        if key in self.fixed or key in self.table:
            return
        self.table[key] = value
        self.reasons[key] = reason
        self.decisions.append(reason)

    def leave_priority(self, client: str) -> None:
        """Say that every client is priority, unless something says whose model it is, and how to
        name one such as `client`."""
        stated = "priority" in self.fixed or "priority" in self.table
        if stated or any(role.get("priority") for role in self.clients.values()):
            return
        self.decisions.append("every client is priority: nothing says whose model it is")
        self.hint = (
            "\n# Every client is priority. If the model is for some of them, name these:\n"
            f"# priority = {json.dumps([one_line(client)])}\n\n"
        )

    def recode(self, column: str, changes: Mapping[str, str]) -> None:
        """Replace values of a column."""
        self.values[column] = {**self.values.get(column, {}), **changes}
        shown = [
            f"'{a}' is read as '{b}'" if b else f"'{a}' is missing" for a, b in changes.items()
        ]
        self.decisions.append(f"{column}: {', '.join(shown)}")

    def suggest(self, column: str, renames: Mapping[str, str], limits: Range | None = None) -> None:
        """Suggest values to replace, and a range, which are the owner's to decide: comments."""
        if renames:
            self.renames[column] = renames
        if limits is not None:
            self.limits[column] = limits

    def add_dialects(self, dialects: Mapping[str, Dialect], by_file: bool) -> None:
        """State the dialects of files: once where they are the same, else for each client, where
        each has its own file."""
        kinds = set(dialects.values())
        for name in ("separator", "decimal", "encoding"):
            usual, found = getattr(PLAIN, name), {getattr(kind, name) for kind in kinds}
            if found == {usual}:
                continue
            if len(found) == 1 or not by_file:
                (value, *_) = found
                self.decide(name, value, f"{name} {value!r}")
                continue
            for client, dialect in dialects.items():
                value = getattr(dialect, name)
                own = self.clients.get(client, {})
                if value != usual and name not in own:
                    self.clients[client] = {**own, name: value}
                    self.decisions.append(f"{client}: {name} {value!r}")

    def tables(self) -> dict[str, Any]:
        """Return everything as plain values."""
        more = {
            "clients": self.clients,
            "mean": self.before.mean,
            "std": self.before.std,
            "recode": self.values,
            "range": {name: list(limits) for name, limits in self.before.ranges.items()},
        }
        assert set(more) == set(TABLE_KEYS)
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in self.table.items()}
        return plain | {name: table for name, table in more.items() if table}

    def build(self, path: Path) -> Manifest:
        """Return the manifest as reading its text gives it; `path` names it in errors."""
        return build_manifest(tomllib.loads(self.write()), path)

    def write(self) -> str:
        """Return the text: keys with their reasons as comments, then tables."""
        lines = [HEAD, self.hint]
        for key, value in self.tables().items():
            if key in self.reasons:
                lines.append(f"# {one_line(self.reasons[key])}\n")
            elif key == "recode":
                lines.append(
                    "\n# Values as they are written, and as they are read; '' is missing.\n"
                )
            lines.append(
                ("\n" if key in TABLE_KEYS and key != "recode" else "")
                + tomli_w.dumps({key: value})
            )
        lines += self.write_suggestions()
        return "".join(lines).replace("\t", "\\t")  # a tab is not seen

    def write_suggestions(self) -> list[str]:
        """Return what the owner may want as comments, to be used without their marks."""
        written, lines = self.tables(), list[str]()
        for column, renames in self.renames.items():
            lines.append("\n# If these are one value, take this in:\n")
            if column in written.get("recode", {}):
                lines.append(f"# (in [recode.{write_key(column)}] above)\n")
            else:
                lines.append(f"# [recode.{write_key(column)}]\n")
            lines += [f"# {line}\n" for line in tomli_w.dumps(renames).splitlines()]
        if self.limits:
            lines.append("\n# A value outside is an error, with its row; widen it as needed:\n")
            lines += [] if "range" in written else ["# [range]\n"]
            for column, (low, high) in self.limits.items():
                lines.append(f"# {write_key(column)} = [{low:g}, {high:g}]\n")
        return lines


def write_key(name: str) -> str:
    """Return a name as a key of a manifest, in quotes where it needs them.

    >>> write_key("age"), write_key("blood pressure")
    ('age', '"blood pressure"')
    """
    return tomli_w.dumps({name: 0}).rpartition(" = ")[0]

"""Texts as tokens: a column of text through a tokenizer of the user's, every row of one length.

A tokenizer is any function of a text that gives whole numbers from 0. What is longer than `length`
loses its end, what is shorter is filled up with `pad`. The tokenizer is code: of it a run keeps
the name, and nothing is imported because a file says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ..base.arrays import Int64
from ..base.checks import check_whole
from ..base.errors import MusterError, first_line
from ..base.registry import import_object

Tokenizer: TypeAlias = Callable[[str], Any]

# Two tokenizers that make the same of these words, each and together, are taken for the same.
PROBE = "the of and a to in is you that it good bad yes no not new old one two Hello, World 42"


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """How a column of text becomes tokens.

    Attributes:
        column: of the table
        length: tokens of each row
        pad: the token that shorter texts are filled up with
        called: the tokenizer's import path
        tokenizer: the function itself, as long as it is at hand
    """

    column: str
    length: int
    pad: int
    called: str = ""
    tokenizer: Tokenizer | None = None

    def __post_init__(self) -> None:
        check_whole("length", self.length)
        check_whole("pad", self.pad, 0)

    def read_by(self, given: str | Tokenizer) -> TextEncoder:
        """The same with its tokenizer: a function, or the import path of one."""
        if isinstance(given, str):
            return replace(self, called=given, tokenizer=import_object(given, "tokenizer"))
        if not callable(given):
            raise MusterError(
                f"tokenizer: {type(given).__name__}; give a function of a text, or its import path"
            )
        name = getattr(given, "__qualname__", type(given).__qualname__)
        home = getattr(given, "__module__", None) or type(given).__module__
        return replace(self, called=f"{home}:{name}", tokenizer=given)

    def __call__(self, texts: Sequence[str], where: str) -> Int64:
        """Tokens `[rows, length]` of texts."""
        if self.tokenizer is None:
            raise MusterError(
                f"tokenizer: this run read its texts by {self.called or 'what its nodes have'}, "
                "which is code of yours and is not kept with it; give it again: "
                "run.predict(..., tokenizer=...), or --tokenizer module:name"
            )
        made = np.full((len(texts), self.length), self.pad, np.int64)
        for i, text in enumerate(texts):
            tokens = self._tokens(text, f"{where}: column '{self.column}', row {i + 1}")
            made[i, : len(tokens)] = tokens[: self.length]
        return made

    def fingerprint(self) -> str:
        """What is made of a few known texts: by it clients who cannot show each other rows notice
        that their tokenizers differ."""

        def made(probe: str) -> str:
            try:
                return str(self._tokens(probe, "")[: self.length].tolist())
            except MusterError:
                return "fails"  # on words it does not know, say

        return "\n".join(
            [f"{self.column} {self.length} {self.pad}", *map(made, (PROBE, *PROBE.split()))]
        )

    def _tokens(self, text: str, where: str) -> Int64:
        assert self.tokenizer is not None
        try:
            given = self.tokenizer(text)
        except Exception as error:
            raise MusterError(f"{where}: the tokenizer fails ({first_line(error)})") from error
        try:
            tokens = np.asarray(given)
            right = tokens.ndim == 1 and (tokens.dtype.kind in "iu" or not tokens.size)
        except (TypeError, ValueError):
            right = False
        if not right:
            raise MusterError(
                f"{where}: the tokenizer gives {type(given).__name__}; it must give a sequence of "
                "whole numbers (of a Hugging Face tokenizer, take its method encode)"
            )
        if tokens.size and tokens.min() < 0:
            raise MusterError(f"{where}: the tokenizer gives {tokens.min()}; tokens are 0 or more")
        return tokens.astype(np.int64)

    def table(self) -> dict[str, Any]:
        """All of it but the function, as plain values."""
        return {k: v for k, v in vars(self).items() if k != "tokenizer"}

"""Text as tokens: a column of text through the user's tokenizer, every row of one length.

A tokenizer is any function of a text that returns whole numbers from 0. Longer texts are truncated
to `length`, shorter ones are padded with `pad`. The tokenizer is code: a run stores its name, and
nothing is imported because a file names it.
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

# Two tokenizers that give the same tokens for these words, each and together, count as the same.
PROBE = "the of and a to in is you that it good bad yes no not new old one two Hello, World 42"


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """An encoder of a column of text as tokens.

    Attributes:
        column: column of the table
        length: tokens of each row
        pad: the token that pads shorter texts
        called: import path of the tokenizer (a key of model.json)
        tokenizer: the function itself; None when it was loaded from a file
    """

    column: str
    length: int
    pad: int
    called: str = ""
    tokenizer: Tokenizer | None = None

    def __post_init__(self) -> None:
        check_whole("length", self.length)
        check_whole("pad", self.pad, 0)

    def with_tokenizer(self, given: str | Tokenizer) -> TextEncoder:
        """Return it with a tokenizer: a function, or the import path of one."""
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
        """Return the tokens `[rows, length]` of texts."""
        if self.tokenizer is None:
            raise MusterError(
                f"tokenizer: this run read its texts by {self.called or 'what its nodes have'}, "
                "your own code, which is not kept with it; give it again: "
                "run.predict(..., tokenizer=...), or --tokenizer module:name"
            )
        encoded = np.full((len(texts), self.length), self.pad, np.int64)
        for i, text in enumerate(texts):
            tokens = self._tokens(text, f"{where}: column '{self.column}', row {i + 1}")
            encoded[i, : len(tokens)] = tokens[: self.length]
        return encoded

    def fingerprint(self) -> str:
        """Return the tokens of a few fixed texts: clients that cannot show each other rows compare
        them to notice that their tokenizers differ."""

        def tokens(probe: str) -> str:
            try:
                return str(self._tokens(probe, "")[: self.length].tolist())
            except MusterError:
                return "fails"  # on words it does not know, say

        return "\n".join(
            [f"{self.column} {self.length} {self.pad}", *map(tokens, (PROBE, *PROBE.split()))]
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

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but the function, as plain values."""
        return {k: v for k, v in vars(self).items() if k != "tokenizer"}

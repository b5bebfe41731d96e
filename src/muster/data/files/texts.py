"""Which column is text, and what reads it, as the settings say."""

from __future__ import annotations

from ...base.errors import MusterError
from ...federation import TextEncoder
from .manifest import Options

LENGTH, PAD = 64, 0
ALONE = ("features", "categories", "missing", "scale")  # settings of columns that are no text


def as_text(options: Options) -> TextEncoder | None:
    """How texts become tokens; None where no column is text."""
    if options.text is None:
        for name in ("tokenizer", "length", "pad"):
            if getattr(options, name) is not None:
                raise MusterError(f"{name}: it is for texts; name their column with text=...")
        return None
    for name in ALONE:
        if getattr(options, name) not in (None, "none", "error"):
            raise MusterError(f"{name}: given together with text, which is all a model then reads")
    if options.tokenizer is None:
        raise MusterError(
            "tokenizer: missing; give a function of a text that gives whole numbers, or its import "
            "path, tokenizer = 'module:name'"
        )
    length = LENGTH if options.length is None else options.length
    text = TextEncoder(options.text, length, PAD if options.pad is None else options.pad)
    return text.with_tokenizer(options.tokenizer)

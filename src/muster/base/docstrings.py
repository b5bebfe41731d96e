"""Docstrings in Google style, read by griffe for help texts as they are for the site."""

from __future__ import annotations

import inspect
from typing import Any

from .lazy import griffe


def describe_parameters(target: Any) -> dict[str, str]:
    """Return the text of each entry under `Args:` and `Attributes:` in a docstring.

    >>> from muster.local import Local
    >>> describe_parameters(Local)["steps"]
    'minibatch steps a round'
    """
    text = griffe.Docstring(inspect.getdoc(target) or "", parser="google")
    found: dict[str, str] = {}
    for section in text.parse(warnings=False):
        if section.kind.value in ("parameters", "attributes"):
            found |= {entry.name: " ".join(entry.description.split()) for entry in section.value}
    return found

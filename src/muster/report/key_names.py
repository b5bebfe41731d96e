"""Swept keys and their values as a person reads them, in the same words in every table and figure.

A key is called by its end: `local.lr` is "lr". That of one method has the method's label before it,
as rows of other methods stand next to it that ran with another value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.schema import label_and_key


def key_names(keys: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """What swept keys are called: each by as much of its end as tells it apart from the others.

    Args:
        labels: of the methods: `methods.LABEL.KEY` is the key of one

    >>> key_names(["local.batch_size", "methods.fedavg.local.lr"], ["fedavg"])
    {'local.batch_size': 'batch size', 'methods.fedavg.local.lr': 'fedavg: lr'}
    >>> key_names(["local.steps", "requirement.steps"], []).values()
    dict_values(['local steps', 'requirement steps'])
    """
    split = {key: _owner_and_parts(key, labels) for key in keys}
    names = {}
    for key, (owner, parts) in split.items():
        others = [p for other, (o, p) in split.items() if other != key and o == owner]
        enough = (n for n in range(1, len(parts)) if parts[-n:] not in [p[-n:] for p in others])
        end = " ".join(parts[-next(enough, len(parts)) :]).replace("_", " ")
        names[key] = f"{owner}: {end}" if owner else end
    return names


def _owner_and_parts(key: str, labels: Sequence[str]) -> tuple[str, list[str]]:
    """The label of the method that a key is of, or "", and the parts of the key."""
    head, _, rest = key.partition(".")
    found = label_and_key(labels, rest) if head == "methods" else None
    owner, inner = found or ("", key)
    return owner, inner.split(".")


def value_text(value: Any) -> str:
    """A value of a swept key.

    >>> value_text(0.10), value_text(True), value_text("low")
    ('0.1', 'true', 'low')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)

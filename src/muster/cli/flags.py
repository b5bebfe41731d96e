"""Command-line words as configuration: `--key value` pairs are the configuration's own keys."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import MusterError


def flags_of(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The configuration file, if one is named first, and `--key value` or `--key=value` pairs.

    >>> flags_of(["my.toml", "--rounds", "50", "--method.epsilon=0.3"])
    ('my.toml', {'rounds': '50', 'method.epsilon': '0.3'})
    """
    config = words[0] if words and not words[0].startswith("--") else None
    flags: dict[str, str] = {}
    rest = iter(words[1:] if config is not None else words)
    for word in rest:
        if not word.startswith("--"):
            raise MusterError(f"'{word}': not understood; flags look like --method.epsilon 0.3")
        key, equals, value = word[2:].partition("=")
        if not equals:
            following = next(rest, None)
            if following is None:
                raise MusterError(f"--{key}: its value is missing")
            value = following
        flags[key.replace("-", "_")] = value
    return config, flags


def take(words: Sequence[str], key: str) -> tuple[list[str], str | None]:
    """The words without `--key value` (or `--key=value`), wherever it stands, and its value.

    >>> take(["--local", "4", "my.toml"], "local")
    (['my.toml'], '4')
    """
    rest, value = list(words), None
    for i, word in enumerate(rest):
        if word == f"--{key}":
            if i + 1 == len(rest):
                raise MusterError(f"--{key}: its value is missing")
            value = rest[i + 1]
            del rest[i : i + 2]
            break
        if word.startswith(f"--{key}="):
            value = word.partition("=")[2]
            del rest[i]
            break
    return rest, value

"""Secret numbers in the files of a folder: every number of every file is compared with them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load_file

Found = dict[tuple[str, str], set[str]]  # (file, column or key): kinds of secrets there
NUMBER = re.compile(r"(?<![\w.])-?\d+\.?\d*(?:e[+-]?\d+)?")
PAGE = re.compile(r"<main>.*</main>|<script type=.application/json.*?</script>", re.S)
FEW = 3  # numbers of a vector by which it is recognised
DIGITS = 4  # of a number in a text by which it is recognised
SAME = 1e-9  # the relative difference of what was stored as a float64


def find_secrets(folder: Path, secrets: Mapping[str, Sequence[ArrayLike]]) -> Found:
    """Return where secrets are, of all files below a folder; a file of unknown form is an error.

    Args:
        secrets: by kind, single numbers, or vectors that a few of their numbers give away
    """
    single = {kind: [sort(one) for one in each if np.any(one)] for kind, each in secrets.items()}
    known = {kind: sort(np.concatenate(each)) for kind, each in single.items()}
    found: Found = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = re.sub(r"round-\d+", "round", str(file.relative_to(folder)))
        for place, (values, near) in read_numbers(file).items():
            for kind, each in single.items():
                if not count_among(values, near, known[kind]):
                    continue
                if any(count_among(values, near, one) >= min(FEW, len(one)) for one in each):
                    found.setdefault((name, place), set()).add(kind)
    return found


def sort(numbers: ArrayLike) -> NDArray[Any]:
    """Return the different numbers of a secret in order, without 0, which means nothing."""
    found = np.unique(np.ravel(np.asarray(numbers, np.float64)))
    return found[found != 0]


def count_among(values: NDArray[Any], near: NDArray[Any], known: NDArray[Any]) -> int:
    """Return how many different values are among known numbers, which are sorted."""
    above = np.searchsorted(known, values)
    hit = np.zeros(len(values), np.bool_)
    for at in (np.maximum(above - 1, 0), np.minimum(above, len(known) - 1)):
        hit |= np.abs(values - known[at]) <= near * np.abs(known[at])
    return len(np.unique(values[hit]))


def read_numbers(file: Path) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return the numbers of a file by where they stand, and how exactly each is written."""
    numbers: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for name, value in read_values(file):
        if isinstance(value, np.ndarray):
            numbers.setdefault(name, []).append((value, np.full(len(value), SAME)))
            continue
        digits = [len(re.sub(r"e.*|\D", "", text).lstrip("0")) for text in NUMBER.findall(value)]
        texts = [
            (float(text), 0.5 * 10.0 ** (1 - d))
            for text, d in zip(NUMBER.findall(value), digits, strict=True)
            if d >= DIGITS
        ]
        numbers.setdefault(name, []).append(tuple(np.array(texts).reshape(-1, 2).T))
    return {
        name: (np.concatenate([v for v, _ in each]), np.concatenate([n for _, n in each]))
        for name, each in numbers.items()
    }


def read_values(file: Path) -> Iterator[tuple[str, NDArray[Any] | str]]:
    """Yield the columns, tensors and texts of a file."""
    if file.suffix == ".parquet":
        for column in pl.read_parquet(file):
            whole = column.drop_nulls()
            number = column.dtype.is_numeric()
            yield (
                column.name,
                whole.cast(pl.Float64).to_numpy()
                if number
                else " ".join(map(str, whole.to_list())),
            )
    elif file.suffix == ".safetensors":
        for name, values in load_file(file).items():
            yield name, np.ravel(values).astype(np.float64)
    elif file.suffix == ".json":
        yield from walk(json.loads(file.read_text()))
    elif file.suffix == ".jsonl":
        for line in file.read_text().splitlines():
            yield from walk(json.loads(line))
    elif file.suffix == ".toml":
        yield from walk(tomllib.loads(file.read_text()))
    elif file.suffix == ".html":
        yield from (("page", part) for part in PAGE.findall(file.read_text()))
    else:
        assert file.name == ".lock", f"{file}: of a form that is not searched"


def walk(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name, text) of everything in nested tables."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, name)
    else:
        yield name, str(value)

"""Validation of a run folder on load: its marker, tables and model recipe.

A run folder may be damaged, or forged with checksums that fit. Checked here once, before tables
are printed or drawn: the columns and their types, that rounds are numbered from 1 and clients from
0, and the types of all other values. Anything wrong raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, get_args, get_origin

from ..base.checks import is_number, is_whole
from ..base.lazy import pl
from ..base.untrusted_files import read_frame
from .ledger import TABLES, Ledger

WHOLE = ("asked", "joined", "silent", "failed", "admitted", "steps", "bytes_down", "bytes_up")
# The columns that tables have in every run, and their types; any other of `rounds` is a measure.
COLUMNS: dict[str, dict[str, type]] = {
    "rounds": {"round": int, **dict.fromkeys(WHOLE, int), "skipped": bool},
    "clients": {name: kind for name, kind in TABLES["clients"].items() if name != "accuracy"},
    "moves": TABLES["moves"],
    "attackers": TABLES["attackers"],
    "final": {
        "client": int,
        "priority": bool,
        "unseen": bool,
        "attacker": bool,
        "rows": int,
        "train_loss": float,
        "requirement": float,
        "useful": bool,
    },
    "holdings": {"client": int, "label": int, "rows": int},
}
# Columns that only some runs have.
MORE: dict[str, dict[str, type]] = {
    "rounds": {
        **dict.fromkeys(("pool", "left", "returned", "admitted_nonpriority"), int),
        "helped": bool,
    },
    "clients": {"name": str},
    "moves": {"name": str},
    "attackers": {"name": str},
    "final": {"name": str, "test_rows": int},
    "holdings": {},
}
NULLABLE = ("name", "useful", "reason", "left", "returned", "pool")  # may have nulls
MOST = 2**24  # clients or classes that a table may have
ROWS = {"rounds": 10**6, "final": MOST, "holdings": 10**8}  # rows of a table; of others 10^9
KINDS = {int: "whole numbers", float: "numbers", bool: "true or false", str: "text"}

MARKER: dict[str, Any] = {
    "method": str,
    "seed": int,
    "engine": str,
    "complete": bool,
    "note": str,
    "facts": dict,
    "config": dict,
    "sums": dict[str, str],
    "names": list[str],
}
FACTS: dict[str, Any] = {
    "doubts": list[str],
    "made_with": dict[str, str],
    "engine_why": str,
    "data": str,
    "work": str,
    "solo_work": str,
    "moved": bool,
    "varies": dict[str, Any],
    "epsilon_tried": dict[str, list[float]],
    "privacy": dict[str, Any],
}
PRIVACY: dict[str, Any] = {
    "private": bool,
    "unit": str,
    "protect": str,
    "clip": float,
    "noise": float,
    "delta": float,
    "releases": int,
    "epsilon_objective": float,
    "epsilon_others": float,
    "epsilon_rows": float,
}
TEXTS = ("majority_class",)  # facts that are text or a number; all others are numbers
SETTINGS: dict[str, Any] = {  # the settings of a configuration that are shown or used
    "name": str,
    "rounds": int,
    "data": dict,
    "model": dict,
    "methods": list[dict[str, Any]],
    "measures": str | list[str],
    "panels": str | list[str],
    "report_at": list[int],
    "left_out": float,
}


RECIPE: dict[str, Any] = {
    "inputs": dict,
    "outputs": int,
    "serves": str,
    "model": dict | None,
    "called": str,
    "task": dict,
}
INPUTS: dict[str, Any] = {
    "shape": list[int],
    "classes": int,
    "kind": str,
    "labels": list[str] | None,
    "image": list[int] | None,
    "columns": list[str] | None,
    "label": str | list[str] | None,
    "aside": list[str] | None,
    "scale": dict | None,
    "scaled": bool,
    "target": list[int],
    "prepare": dict | None,
    "text": dict | None,
    "resized": bool,
    "pad": int | None,
    "ranges": dict[str, list[float]],
    "recode": dict[str, dict[str, str]],
}
PREPARE: dict[str, Any] = {
    "columns": list[str],
    "levels": dict[str, list[str]],
    "holes": list[str],
    "mean": list[float],
    "std": list[float],
    "fills": bool,
    "nothing": dict[str, list[float]],
}
TEXT: dict[str, Any] = {"column": str, "length": int, "pad": int, "called": str}


def check_marker(marker: Mapping[str, Any]) -> None:
    """Check the marker of a run, `run.toml`."""
    _check_keys("", marker, MARKER, ("method", "seed"))
    if not 0 <= marker["seed"] < 2**63:
        raise ValueError(f"seed: {marker['seed']}")
    check_facts(marker.get("facts", {}))
    check_config(marker.get("config", {}))


def check_facts(facts: Mapping[str, Any]) -> None:
    """Check the facts of a run."""
    if private := facts.get("privacy"):
        needed = [name for name in PRIVACY if not name.startswith("epsilon_")]
        _check_keys("facts.privacy.", private, PRIVACY, needed)
    for name, value in facts.items():
        if name not in TEXTS:
            _check(f"facts.{name}", value, FACTS.get(name, float))
        elif not isinstance(value, str | int):
            raise ValueError(f"facts.{name}: {value!r}")


def check_config(config: Mapping[str, Any]) -> None:
    """Check the settings of a configuration that are shown or used."""
    for name, value in config.items():
        if name in SETTINGS:
            _check(f"config.{name}", value, SETTINGS[name])
    for method in config.get("methods", []):
        _check("config.methods.label", method.get("label"), str)
    for name in ("name", "path"):
        if name in config.get("data", {}):
            _check(f"config.data.{name}", config["data"][name], str)


def check_recipe(table: Any) -> None:
    """Check the recipe of a model, `model.json`."""
    _check_keys("", table, RECIPE, ("inputs", "outputs"))
    inputs = table["inputs"]
    _check_keys("inputs.", inputs, INPUTS, ("shape", "classes"))
    for name in ("shape", "image", "target"):
        if (sizes := inputs.get(name)) is not None and not all(0 < n <= MOST for n in sizes):
            raise ValueError(f"inputs.{name}: {sizes!r:.60}")
    if not all(0 <= n <= MOST for n in (inputs["classes"], table["outputs"])):
        raise ValueError(f"inputs.classes: {inputs['classes']}, outputs: {table['outputs']}")
    for name, limits in inputs.get("ranges", {}).items():
        if len(limits) != 2:
            raise ValueError(f"inputs.ranges: {name!r:.60}: {len(limits)} numbers")
    width = math.prod(inputs["shape"])
    if (labels := inputs.get("labels")) is not None and len(labels) != inputs["classes"]:
        raise ValueError(f"inputs.labels: {len(labels)} for {inputs['classes']} classes")
    if (scale := inputs.get("scale")) is not None:
        _check_keys(
            "inputs.scale.", scale, {"mean": list[float], "std": list[float]}, ("mean", "std")
        )
        if not len(scale["mean"]) == len(scale["std"]) == width:
            raise ValueError(f"inputs.scale: {len(scale['mean'])} numbers for {width} features")
    if (made := inputs.get("prepare")) is not None:
        _check_keys("inputs.prepare.", made, PREPARE, ("columns", "levels", "holes", "mean"))
        n = len(made["columns"])
        if len(made["mean"]) != n or len(made.get("std", [])) not in (0, n):
            raise ValueError(f"inputs.prepare: not a mean and a deviation for {n} columns")
    if (text := inputs.get("text")) is not None:
        _check_keys("inputs.text.", text, TEXT, ("column", "length", "pad"))
        if text["length"] != width:
            raise ValueError(f"inputs.text.length: {text['length']} for {width} tokens of a row")


def _check_keys(where: str, table: Any, known: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Refuse a table with missing or unknown keys, or values of another type."""
    _check(where or "model", table, dict[str, Any])
    for name in needed:
        if name not in table:
            raise ValueError(f"{where}{name}: missing")
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"unknown key '{where}{name}'")
        _check(f"{where}{name}", value, known[name])


def _check(name: str, value: Any, kind: Any) -> None:
    if not matches(value, kind):
        raise ValueError(f"{name}: {repr(value)[:60]} has the wrong type")


def matches(value: Any, kind: Any) -> bool:
    """Return True if a plain value, and all values in it, have a type.

    >>> matches([1, 2], list[int]), matches({"a": [True]}, dict[str, list[int]])
    (True, False)
    >>> matches(None, str | None)
    True
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(matches(value, option) for option in inner)
    if origin is list:
        return isinstance(value, list) and all(matches(v, inner[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(matches(v, inner[1]) for v in value.values())
    if kind in (int, float):
        return is_whole(value) if kind is int else is_number(value)
    return kind is Any or isinstance(value, kind)


def check_tables(frames: Mapping[str, pl.DataFrame]) -> None:
    """Check the tables of a run, each alone and against the others."""
    for name, frame in frames.items():
        check_columns(name, frame)
    check_numbers(frames["rounds"]["round"], 1)
    check_numbers(frames["final"]["client"], 0)
    for name, frame in frames.items():
        if name not in ("rounds", "final"):
            check_indices(name, frame, len(frames["rounds"]), len(frames["final"]))


def check_ledger(ledger: Ledger, clients: int) -> None:
    """Check the ledger in a checkpoint of a run with this many clients."""
    check_facts(ledger.facts)
    if not ledger.rows:
        return
    rounds = pl.DataFrame(ledger.rows, infer_schema_length=None)
    check_columns("rounds", rounds)
    check_numbers(rounds["round"], 1)
    for name, parts in ledger.spilled.items():
        for part in parts:
            frame = read_frame(part)
            check_columns(name, frame)
            check_indices(name, frame, len(rounds), clients)


def check_numbers(column: pl.Series, first: int) -> None:
    """Refuse a column that is not first, first + 1, first + 2, ..."""
    if not column.equals(pl.int_range(first, first + len(column), eager=True)):
        raise ValueError(f"{column.name}: not numbered consecutively from {first}")


def check_indices(name: str, frame: pl.DataFrame, rounds: int, clients: int) -> None:
    """Refuse rounds, clients and classes that do not exist; client -1 is an unknown client."""
    _check_range(name, frame["client"], -1, clients - 1)
    if "round" in frame.columns:
        _check_range(name, frame["round"], 1, rounds)
    if "label" in frame.columns:
        _check_range(name, frame["label"], 0, MOST)


def check_columns(name: str, frame: pl.DataFrame) -> None:
    """Check the columns of one table."""
    for column, kind in {**COLUMNS[name], **MORE[name]}.items():
        if column not in frame.columns:
            if column in COLUMNS[name]:
                raise ValueError(f"{name}: no column '{column}'")
            continue
        found = frame.schema[column]
        fits = {
            int: found.is_integer() and found not in (pl.UInt64, pl.Int128, pl.UInt128),
            float: found.is_float() or found.is_integer(),
            bool: found == pl.Boolean,
            str: found == pl.String,
        }
        # A column in which nothing was ever measured may be of type Null.
        if not (fits[kind] or (found == pl.Null and (kind is float or not len(frame)))):
            raise ValueError(f"{name}: column '{column}' holds {found}; {KINDS[kind]} belong there")
        if kind is not float and column not in NULLABLE and frame[column].null_count():
            raise ValueError(f"{name}: column '{column}' has nulls")
    for column, found in frame.schema.items():
        known = column in COLUMNS[name] or column in MORE[name]
        number = found.is_float() or found.is_integer() or found in (pl.Boolean, pl.Null)
        if not known and not number:
            raise ValueError(f"{name}: column '{column}' holds {found}; numbers belong there")


def _check_range(name: str, column: pl.Series, low: int, high: int) -> None:
    wrong = column.filter((column < low) | (column > high))
    if len(wrong):
        raise ValueError(f"{name}: {column.name} {wrong[0]}; there are {low} to {high}")

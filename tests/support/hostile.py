"""Hostile folders: a run as nobody saved it, by name, each with checksums that fit what is there.

Every one is a function of the folder of a sound run; `HOSTILE` has them all.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import tomllib

import polars as pl
import tomli_w

from mutants import sums_again

DEEP = 100_000  # lists within each other


def marked(change):
    """A run whose marker says something else."""

    def make(folder):
        table = tomllib.loads((folder / "run.toml").read_text())
        change(table)
        (folder / "run.toml").write_text(tomli_w.dumps(table))

    return make


def recipe(change):
    """A run whose model.json says something else."""

    def make(folder):
        table = json.loads((folder / "model.json").read_text())
        change(table)
        (folder / "model.json").write_text(json.dumps(table))

    return make


def framed(name, change):
    """A run with another table."""

    def make(folder):
        frame = pl.read_parquet(folder / f"{name}.parquet")
        change(frame).write_parquet(folder / f"{name}.parquet")

    return make


def placed(name, make_it):
    """A run with something else in the place of a file."""

    def make(folder):
        (folder / name).unlink(missing_ok=True)
        make_it(folder / name)

    return make


def raw(name, content):
    """A run with other bytes in a file."""
    return placed(name, lambda path: path.write_bytes(content))


def cut(name):
    """A run with half a file."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100])


def large_weights(folder):
    """Weights of a shape that would fill the memory."""
    head = json.dumps({"0": {"dtype": "F32", "shape": [10**9, 10**3], "data_offsets": [0, 4]}})
    content = struct.pack("<Q", len(head)) + head.encode() + bytes(4)
    (folder / "weights.safetensors").write_bytes(content)


def large_header(folder):
    """Weights whose header is said to be larger than any file."""
    (folder / "weights.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")


def many_rows(folder):
    """A small table of very many rows."""
    rounds = pl.read_parquet(folder / "rounds.parquet").head(1)
    frame = pl.select(pl.repeat(1, 2_000_000, dtype=pl.Int64).alias("round"))
    frame = frame.with_columns(pl.lit(rounds[c][0]).alias(c) for c in rounds.columns[1:])
    frame.write_parquet(folder / "rounds.parquet")


def inner(table, *path):
    """The table inside a table."""
    for key in path:
        table = table[key]
    return table


HOSTILE = {
    "no marker": placed("run.toml", lambda path: None),
    "no table": placed("rounds.parquet", lambda path: None),
    "no weights": placed("weights.safetensors", lambda path: None),
    "an empty marker": raw("run.toml", b""),
    "an empty table": raw("clients.parquet", b""),
    "half a marker": cut("run.toml"),
    "half a table": cut("final.parquet"),
    "half of the weights": cut("weights.safetensors"),
    "a marker that is no text": raw("run.toml", b"\xff\xfe\0\0"),
    "a marker without end": raw("run.toml", b"a = " + b"[" * DEEP),
    "a recipe without end": raw("model.json", b"[" * DEEP),
    "a marker of tables in tables": raw("run.toml", b"a." * 900 + b"a = 1"),
    "a recipe of lists in lists": raw("model.json", b"[" * 900 + b"]" * 900),
    "a recipe of halves of letters": raw("model.json", b'{"called": "\\ud800"}'),
    "a marker that is a FIFO": placed("run.toml", os.mkfifo),
    "a table that is a FIFO": placed("moves.parquet", os.mkfifo),
    "weights that never end": placed("weights.safetensors", lambda p: p.symlink_to("/dev/zero")),
    "a marker that never ends": placed("run.toml", lambda p: p.symlink_to("/dev/zero")),
    "a recipe that is a link": placed("model.json", lambda p: p.symlink_to("/etc/hostname")),
    "a folder for a table": placed("attackers.parquet", os.mkdir),
    "a sum of what lies elsewhere": marked(
        lambda t: t["sums"].update({"../../../etc/hostname": "0"})
    ),
    "a sum of a device": marked(lambda t: t["sums"].update({"/dev/zero": "0"})),
    "sums that are none": marked(lambda t: t.update(sums=[1, 2])),
    "a seed that is text": marked(lambda t: t.update(seed="0; DROP")),
    "a method that is a table": marked(lambda t: t.update(method={"name": "x"})),
    "a note that is a number": marked(lambda t: t.update(note=5)),
    "a key nobody knows": marked(lambda t: t.update(weights=[1])),
    "facts that are text": marked(lambda t: t["facts"].update(start_loss="low")),
    "doubts that are tables": marked(lambda t: t["facts"].update(doubts=[{}])),
    "a configuration of numbers": marked(lambda t: t.update(config={"data": 5, "methods": [1]})),
    "measures that are numbers": marked(lambda t: t["config"].update(measures=[1, 2])),
    "no rounds column": framed("rounds", lambda f: f.drop("round")),
    "rounds that are text": framed("rounds", lambda f: f.with_columns(round=pl.lit("x"))),
    "rounds twice": framed("rounds", lambda f: pl.concat([f, f])),
    "a loss that is text": framed("rounds", lambda f: f.with_columns(loss=pl.lit("low"))),
    "losses in lists": framed("rounds", lambda f: f.with_columns(loss=pl.concat_list("loss"))),
    "skipped that is a number": framed("rounds", lambda f: f.with_columns(skipped=pl.lit(3))),
    "clients that are not there": framed(
        "clients", lambda f: f.with_columns(client=pl.lit(10**12))
    ),
    "negative clients": framed("clients", lambda f: f.with_columns(client=pl.lit(-7))),
    "holdings of class 10^12": framed(
        "holdings", lambda f: f.with_columns(label=pl.lit(10**12))
    ),
    "dates for clients": framed("final", lambda f: f.with_columns(client=pl.date(2020, 1, 1))),
    "holes where numbers are": framed("final", lambda f: f.with_columns(priority=pl.lit(None))),
    "no clients": framed("final", lambda f: f.head(0)),
    "weights of 10^12 numbers": large_weights,
    "a header of 2^62 bytes": large_header,
    "two million rounds": many_rows,
    "a recipe that is a list": raw("model.json", b"[]"),
    "inputs of shape 10^18": recipe(lambda t: t["inputs"].update(shape=[10**9, 10**9])),
    "10^9 classes": recipe(lambda t: t["inputs"].update(classes=10**9, labels=None)),
    "layers of 10^12": recipe(lambda t: t.update(model={"kind": "mlp", "hidden": [10**6] * 2})),
    "labels that are numbers": recipe(lambda t: t["inputs"].update(labels=[1, [2]])),
    "a scale of nothing": recipe(lambda t: t["inputs"].update(scale={"mean": [], "std": []})),
    "own models of nobody": raw("own.safetensors", struct.pack("<Q", 2) + b"{}"),
}  # fmt: skip


def make(name, sound, folder):
    """A hostile folder, made of a sound one."""
    shutil.copytree(sound, folder)
    HOSTILE[name](folder)
    sums_again(folder)
    return folder

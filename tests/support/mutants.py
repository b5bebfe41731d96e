"""Mutants: configurations, data files and folders of results that were damaged or made up, each by
its number, and the commands that are to say so.

    PYTHONPATH=tests/support python tests/support/mutants.py results 17

makes case 17 again, in ./results-17, and prints what comes of it; `results 0 5000` looks for
findings in all of these.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import struct
import sys
import tempfile
import tomllib
import zipfile
from collections import Counter
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import tomli_w

import muster.cli.data_show
import muster.cli.figure
import muster.cli.show
import muster.report.figure
from muster.base.errors import MusterError, one_line
from muster.cli.main import main
from muster.cli.progress_bar import Progress
from muster.config import load, load_table
from muster.data.sources.readers import read_idx
from muster.study.experiment_runs import check_experiment
from mutation import NUMBERS, TEXTS, changed_bytes, changed_table, draw_of, finding

ROWS = 12  # of a client
LARGE = 500  # a configuration that has a larger number is checked, and not run
DATA = {
    "name": "folder", "path": "data", "label": "label", "priority": 2, "test_fraction": 0.25,
    "scale": "pooled", "categories": ["kind"], "missing": "mean", "features": ["a", "b", "kind"],
}  # fmt: skip
DTYPES = [
    pl.Int8, pl.UInt64, pl.Float32, pl.String, pl.Boolean, pl.Date, pl.Binary, pl.Categorical,
    pl.Datetime, pl.Null, pl.Int128, pl.Decimal(38, 2),
]  # fmt: skip
BASES = [
    {"methods": [{"name": "fedalign"}, {"name": "fedavg", "local": {"lr": 0.05}}], "seeds": [0, 1]},
    {"methods": [{"name": "maxfl"}], "model": {"name": "mlp", "hidden": [3]}, "measures": ["loss"]},
    {"methods": [{"name": "ditto"}], "local": {"epochs": 1, "batch_size": 4, "lr": 0.1}},
    {"methods": [{"name": "scaffold"}], "participation": {"kind": "flexible"}, "requirement": 0.5},
    {"methods": [{"name": "fedprox"}], "attack": {"kind": "sign_flip"}, "requirement": {"lr": 0.1}},
]  # fmt: skip


def write_data(folder):
    """Four clients' tables with numbers and a category, and their manifest."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for k in range(4):
        y = np.arange(ROWS) % 2
        frame = pl.DataFrame({
            "a": draw.normal(size=ROWS) + y, "b": draw.integers(0, 9, ROWS),
            "kind": np.where(draw.random(ROWS) < 0.5, "x", "y"), "label": y,
        })  # fmt: skip
        frame.write_csv(folder / f"client{k}.csv")
    (folder / "manifest.toml").write_text("[clients.client0]\npriority = false\n")


# ---------------------------------------------------------------- configurations


@cache
def bases():
    """Configurations with every default written out, where muster takes them."""
    found = []
    for base in BASES:
        table = {
            "data": DATA,
            "rounds": 2,
            "name": "case",
            "local": {"steps": 2, "lr": 0.1},
            **base,
        }
        with contextlib.suppress(MusterError):
            found.append(json.loads(json.dumps(load(table).resolve())))
    assert len(found) >= 3
    return found


def configuration(number, folder):
    """A configuration, changed; the command that runs it, or one that only looks at its data."""
    draw = draw_of("configuration", number)
    write_data(folder / "data")
    table = changed_table(draw.choice(bases()), draw)
    try:
        text = tomli_w.dumps(table)
    except (ValueError, TypeError, UnicodeError, RecursionError):
        text = f"rounds = {'[' * 3000}"
    if draw.random() < 0.1:
        text = changed_bytes(text.encode(), draw).decode("utf-8", "replace")
    (folder / "case.toml").write_text(text, encoding="utf-8", errors="replace")
    command = "compare" if draw.random() < 0.7 else "run"
    yield partial(main, [command, "case.toml"]) if quick(text) else check


def check():
    """What `muster run` does before anything runs."""
    try:
        chosen = load(load_table("case.toml"))
        seed = chosen.settings.all_seeds[0]
        check_experiment(chosen, chosen.federation(seed), seed)
    except MusterError as error:
        print(f"muster: {one_line(str(error))}", file=sys.stderr)
        return 2
    return 0


def quick(text):
    """Whether a configuration is one that ends soon."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError):
        return True
    return {"rounds", "data"} <= table.keys() and not any(n > LARGE for n in numbers(table))


def numbers(value):
    """Every number in a table, which may be of hundreds within each other."""
    found, left = [], [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, (int, float)):
            found.append(value)
    return found


# ---------------------------------------------------------------- data files


def table_bytes(frame, kind):
    """A frame as a file of a kind."""
    raw = io.BytesIO()
    if kind == ".csv":
        frame.write_csv(raw)
    else:
        frame.write_parquet(raw, compression="uncompressed")
    return raw.getvalue()


def changed_frame(frame, draw):
    """A frame with a cell, a column or its type changed."""
    for _ in range(draw.randint(1, 3)):
        name = draw.choice(frame.columns or ["a"])
        how = draw.randrange(7)
        with contextlib.suppress(
            pl.exceptions.PolarsError, OverflowError, TypeError, ValueError, UnicodeError
        ):
            if how == 0:
                cells = frame[name].to_list()
                cells[draw.randrange(len(cells))] = draw.choice([*NUMBERS, *TEXTS, None])
                frame = frame.with_columns(pl.Series(name, cells, strict=False))
            elif how == 1:
                kind = draw.choice(DTYPES)
                frame = frame.with_columns(pl.col(name).cast(kind, strict=False))
            elif how == 2:
                frame = frame.drop(name)
            elif how == 3:
                frame = frame.rename({name: draw.choice(TEXTS)})
            elif how == 4:
                frame = frame.with_columns(
                    pl.lit(draw.choice([*NUMBERS, *TEXTS, None])).alias(name)
                )
            elif how == 5:
                frame = frame.with_columns(pl.concat_list(name).alias(name))
            else:
                frame = draw.choice([frame.head(0), frame.head(1), pl.concat([frame] * 3)])
    return frame


def npy_bytes(array, draw):
    """An array as numpy saves it; its header may lie."""
    raw = io.BytesIO()
    np.save(raw, array)
    raw = raw.getvalue()
    if draw.random() < 0.4:
        lie = draw.choice([b"999999999, ", b"-5, ", b"10**9, ", b"1e9, ", b"", b"0, "])
        raw = raw.replace(f"{array.size and len(array)}, ".encode(), lie, 1) if array.ndim else raw
    return raw


def npz_bytes(draw):
    """An npz file whose arrays are of other kinds, shapes and sizes."""
    arrays = {"x": np.random.default_rng(0).normal(size=(ROWS, 3)), "y": np.arange(ROWS) % 2}
    for _ in range(draw.randint(0, 2)):
        name = draw.choice(["x", "y", "x_test", "y_test", "weight_test", "z"])
        arrays[name] = draw.choice([
            np.zeros((ROWS, 0)), np.zeros(3), np.array(5.0), np.zeros((0, 3)), np.ones(ROWS),
            np.full((ROWS, 3), np.nan), np.array(["a", "b"] * 6), np.zeros((ROWS, 3), complex),
            np.arange(ROWS, dtype=np.uint64) + 2**63, np.zeros((ROWS, 3), "M8[s]"),
            np.zeros((ROWS, 2, 2), np.uint8), np.zeros(ROWS, "V4"), np.full(ROWS, 1e300),
            np.zeros(ROWS, np.float16), np.array([b"x"] * ROWS),
        ])  # fmt: skip
    if draw.random() < 0.2:
        del arrays[draw.choice(list(arrays))]
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as file:
        for name, array in arrays.items():
            file.writestr(f"{name}.npy", npy_bytes(array, draw))
    return raw.getvalue()


def data_files(number, folder):
    """A data file or its manifest, changed; looked at, learned from, and checked."""
    draw = draw_of("data", number)
    write_data(folder / "data")
    kind = draw.choice([".csv", ".csv", ".parquet", ".npz", ".idx", "manifest", "image"])
    together = False
    file = folder / "data" / f"client1{kind}"
    if kind == "manifest":
        table = {"label": "label", "priority": ["client0"], "test_fraction": 0.2, "scale": "pooled",
                 "categories": ["kind"], "missing": "mean",
                 "clients": {"client1": {"requirement": 0.1}}, "mean": {"a": 0.1, "b": 1.0},
                 "std": {"a": 1.0, "b": 2.0}, "recode": {"kind": {"x": "z"}, "a": {"0": ""}},
                 "range": {"a": [-9, 9]}, "separator": ",", "duplicates": "drop"}  # fmt: skip
        for key in draw.sample(list(table), draw.randint(0, 9)):
            del table[key]
        file = folder / "data" / "manifest.toml"
        try:
            raw = tomli_w.dumps(changed_table(table or {"label": "label"}, draw)).encode()
        except (ValueError, TypeError, RecursionError):
            raw = b"label = " + b"[" * 5000
    elif kind == ".npz":
        shutil.rmtree(folder / "data")
        (folder / "data").mkdir()
        raw = npz_bytes(draw)
    elif kind == ".idx":
        shape = [draw.choice([2, 28, 0, 2**31]) for _ in range(draw.choice([1, 2, 3, 40, 255]))]
        raw = bytes([0, 0, draw.choice([8, 9, 13, 14, 77]), len(shape)])
        raw += b"".join(struct.pack(">I", n) for n in shape) + bytes(draw.choice([4, 56, 1568]))
    elif kind == "image":
        (folder / "pictures" / "one" / "a").mkdir(parents=True)
        file, raw = folder / "pictures" / "one" / "a" / "x.png", picture(draw)
    else:
        (folder / "data" / "client1.csv").unlink()
        frame = pl.read_csv(folder / "data" / "client2.csv")
        if together := draw.random() < 0.4:
            shutil.rmtree(folder / "data")
            file = folder / f"data{kind}"
            frame = frame.with_columns(
                client=pl.Series(["north", "south 10", "south 9"] * (ROWS // 3)),
                split=pl.Series(["train", "train", "train", "test"] * (ROWS // 4)),
            ).sort("client")
        if draw.random() < 0.7:
            frame = changed_frame(frame, draw)
        try:
            raw = table_bytes(frame, kind)
        except pl.exceptions.PolarsError:
            raw = b""
    if draw.random() < 0.5:
        raw = changed_bytes(raw, draw)
    file.write_bytes(raw)
    if kind == ".idx":
        yield partial(read, read_idx, file)
    elif kind == "image":
        yield partial(main, ["data", "show", "./pictures", "--out", "x.svg"])
    else:
        more = ["--data.scale", "pooled", "--data.test_fraction", "0.25"][: draw.choice([0, 2, 4])]
        more += draw.choice([[], ["--data.categories", '["kind"]', "--data.missing", "mean"]])
        if together:
            more += draw.choice([[], ["--data.split", "split"]])
        name = f"./data{kind}" if together else "./data"
        yield partial(main, ["data", "show", name, *more, "--out", "x.svg"])
        more += draw.choice([[], [], ["--data.targets", "numbers", "--task", "regression"]])
        yield partial(main, ["run", "--data", name, *more, "--rounds", "1", "--local.steps", "1"])
        yield partial(main, ["data", "check", name])


def picture(draw):
    """A small image, as PNG, JPEG, GIF or TIFF."""
    from PIL import Image

    raw = io.BytesIO()
    mode = draw.choice(["L", "RGB", "RGBA", "P", "1", "I;16", "CMYK"])
    kind = "TIFF" if mode == "CMYK" else draw.choice(["PNG", "TIFF"])
    Image.new(mode, (8, 8)).save(raw, kind)
    return raw.getvalue()


def read(reader, file):
    """What a reader makes of a file, as a command would say it."""
    try:
        reader(file)
    except MusterError as error:
        print(f"muster: {one_line(str(error))}", file=sys.stderr)
        return 2
    return 0


# ---------------------------------------------------------------- results


def write_results(folder):
    """A comparison, a run with models of clients' own, and one that was interrupted."""
    write_data(folder / "data")
    common = ["--data", "./data", "--data.priority", "2", "--rounds", "3", "--local.steps", "2",
              "--data.categories", '["kind"]', "--data.scale", "pooled"]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        main(["compare", *common, "--method", "fedalign", "--method", "fedavg", "--seeds", "2",
              "--name", "both"])  # fmt: skip
        main(["run", *common, "--method", "ditto", "--name", "own"])
        with interrupted_after(2):
            main(["run", *common, "--method", "fedalign", "--name", "half"])
    killed = folder / "runs" / "killed"
    killed.mkdir()
    shutil.copy(folder / "runs" / "half" / "config.toml", killed)
    shutil.copytree(folder / "runs" / "half" / "checkpoints", killed / "checkpoints")


@contextlib.contextmanager
def interrupted_after(rounds):
    """Ctrl-C once so many rounds are done."""
    usual = Progress.__call__

    def stop(self, row):
        usual(self, row)
        if row["round"] == rounds:
            raise KeyboardInterrupt

    Progress.__call__ = stop
    try:
        yield
    finally:
        Progress.__call__ = usual


def changed_file(file, draw):
    """A file of results, changed by what it is, or byte by byte, or put in the place of another
    kind of thing."""
    how = draw.random()
    if how < 0.12:
        return irregular(file, draw)
    raw = file.read_bytes()
    with contextlib.suppress(
        pl.exceptions.PolarsError, ValueError, TypeError, RecursionError, KeyError
    ):
        if how < 0.75 and file.suffix == ".parquet":
            raw = table_bytes(changed_frame(pl.read_parquet(file), draw), ".parquet")
        elif how < 0.75 and file.suffix == ".toml":
            raw = tomli_w.dumps(changed_table(tomllib.loads(raw.decode()), draw)).encode()
        elif how < 0.75 and file.suffix == ".json":
            raw = json.dumps(changed_table(json.loads(raw), draw), default=str).encode()
        elif how < 0.75 and file.suffix == ".jsonl":
            lines = [json.loads(line) for line in raw.splitlines()]
            raw = "".join(
                json.dumps(line, default=str) + "\n" for line in changed_table(lines, draw)
            ).encode()
        elif how < 0.75 and file.suffix == ".safetensors":
            raw = changed_tensors(raw, draw)
        else:
            raw = changed_bytes(raw, draw)
    file.write_bytes(raw)
    return None


def changed_tensors(raw, draw):
    """A safetensors file whose header was changed."""
    size = int.from_bytes(raw[:8], "little")
    head = json.dumps(changed_table(json.loads(raw[8 : 8 + size]), draw), default=str).encode()
    return len(head).to_bytes(8, "little") + head + raw[8 + size :]


def irregular(file, draw):
    """Something else in the place of a file."""
    file.unlink()
    how = draw.randrange(5)
    if how == 0:
        file.mkdir()
    elif how == 1:
        os.mkfifo(file)
    elif how == 2:
        file.symlink_to(draw.choice(["/dev/zero", "/dev/null", "/etc/passwd", "nowhere", "."]))
    elif how == 3:
        file.write_bytes(b"")


def sums_again(folder):
    """Make checksums fit what is there."""
    for marker in folder.rglob("run.toml"):
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            if marker.is_symlink() or not marker.is_file():
                continue
            table = tomllib.loads(marker.read_text())
            for name in table.get("sums", {}):
                table["sums"][name] = hashlib.sha256(regular(marker.parent / name)).hexdigest()
            marker.write_text(tomli_w.dumps(table))
    for marker in folder.rglob("sums.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            table = json.loads(regular(marker))
            sums = {
                name: hashlib.sha256(regular(marker.parent / name)).hexdigest() for name in table
            }
            marker.write_text(json.dumps(sums))


def regular(file):
    """The bytes of a regular file."""
    if file.is_symlink() or not file.is_file():
        raise OSError(f"{file}: no file")
    return file.read_bytes()


def results(number, folder, base, drawn=False):
    """A folder of results, changed; every command that reads it."""
    draw = draw_of("results", number)
    for name in ("data", "runs"):
        shutil.copytree(base / name, folder / name)
    which = draw.choice(["both", "own", "half", "killed"])
    place = folder / "runs" / which
    files = [
        p for p in sorted(place.rglob("*")) if p.is_file() and p.suffix not in (".png", ".html")
    ]
    for _ in range(draw.choice([1, 1, 1, 2])):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            changed_file(draw.choice(files), draw)
    if draw.random() < 0.75:
        sums_again(place)
    one = f"runs/{which}/fedalign-seed0" if which == "both" else f"runs/{which}"
    yield partial(main, ["show", f"runs/{which}"])
    yield partial(main, ["report", f"runs/{which}"])
    yield partial(main, ["watch", f"runs/{which}", "--once", "--page"])
    yield partial(
        main, ["predict", one, "data/client0.csv", *(["--client", "0"] if which == "own" else [])]
    )
    if drawn:
        yield partial(main, ["figure", f"runs/{which}"])
        yield partial(main, ["figure", f"runs/{which}", "--paper"])
        yield partial(main, ["show", f"runs/{which}", "--table", "t.csv", "--figure", "f.png"])
        yield partial(
            main, ["export", one, "--to", "m.pt", *(["--client", "0"] if which == "own" else [])]
        )
        yield partial(main, ["report", f"runs/{which}", "runs/own"])
    yield partial(main, ["compare" if which == "both" else "run", "--resume", f"runs/{which}"])


KINDS = {"configuration": configuration, "data": data_files, "results": results}


@contextlib.contextmanager
def undrawn():
    """Without figures, which take longer than everything else."""

    def blank(runs, path, panels=()):
        Path(path).write_bytes(b"")
        return Path(path)

    def no_picture(fed, counts, path, seed):
        return path

    usual = muster.report.figure.draw_figure, muster.cli.data_show.draw_federation
    homes = (muster.report.figure, muster.cli.figure, muster.cli.show)
    for home in homes:
        home.draw_figure = blank
    muster.cli.data_show.draw_federation = no_picture
    try:
        yield
    finally:
        for home in homes:
            home.draw_figure = usual[0]
        muster.cli.data_show.draw_federation = usual[1]


def findings(kind, numbers, base=None, drawn=False):
    """The cases of a kind that end otherwise than they should: (number, command, finding)."""
    found = []
    here = Path.cwd()
    more = {"base": base, "drawn": drawn} if kind == "results" else {}
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder, undrawn_unless(drawn):
            os.chdir(folder)
            try:
                for call in KINDS[kind](number, Path(folder), **more):
                    words = (
                        " ".join(call.args[0])
                        if isinstance(call, partial) and call.func is main
                        else "check"
                    )
                    if wrong := finding(call):
                        found.append((number, words, wrong))
            finally:
                os.chdir(here)
    return found


def undrawn_unless(drawn):
    """With figures, or without."""
    return contextlib.nullcontext() if drawn else undrawn()


if __name__ == "__main__":
    what, first, *last = sys.argv[1:]
    cases = range(int(first), int(last[0]) if last else int(first) + 1)
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        if what == "results":
            write_results(Path(made))
        seen = Counter()
        for case in cases:
            for number, words, wrong in findings(what, [case], Path(made), drawn="drawn" in last):
                seen[wrong[:60]] += 1
                if seen[wrong[:60]] < 4:
                    print(number, words, wrong, flush=True)
        print(len(cases), "cases", dict(seen))

"""Your own files as a federation: a folder of one file per client, or one table of all of them.

This is what is read and by which manifest; `tables` reads a file, `rows` makes the federation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError, nearest
from ...base.registry import Code, part
from ...federation import ColumnStatistics, Federation, Scaler, TableEncoder, TextEncoder
from .assemble import Names, Parted, assemble, join, natural, parted
from .image_folders import holds_images, image_blocks
from .manifest import MANIFEST, Manifest, Options, Role, find_manifest, laid_over, read_manifest
from .npz import read_npz
from .tables import ENDINGS, TABLES, Block, Columns, coded, header, read_table
from .texts import as_text

CLIENT = "client"  # a column so called need not be named
SCALES = ("pooled", "priority")  # scales that are fitted to rows


@part(Federation, "folder")
def from_folder(
    path: str | Path,
    label: str | tuple[str, ...] | None = None,
    client: str | None = None,
    features: tuple[str, ...] | None = None,
    classes: tuple[str | int, ...] | None = None,
    priority: int | tuple[str | int, ...] | Literal["all"] | None = None,
    split: str | None = None,
    test_fraction: float | None = None,
    scale: Literal["none", "pooled", "priority"] | None = None,
    seed: int = 0,
    targets: Literal["classes", "numbers"] | None = None,
    categories: tuple[str, ...] | None = None,
    missing: Literal["error", "mean"] | None = None,
    text: str | None = None,
    tokenizer: Code | None = None,
    length: int | None = None,
    pad: int | None = None,
    resize: tuple[int, ...] | None = None,
) -> Federation:
    """A federation from files: parquet, CSV or npz (arrays x, y and perhaps x_test, y_test), or
    from folders of images, client/class/*.png (of a single client class/*.png).

    A folder holds one file per client, called by the client's name. A single file is a table of all
    clients when it has a client column, and else the data of one client. A manifest.toml next to
    the data may hold any of these settings, and roles: see docs/own-data.md.

    Args:
        label: the column of labels; default "label"; several are numbers to predict, such as
            ("time", "event") of survival
        client: the column that says whose row it is; default "client", if a single file has it
        features: the columns to learn from, numbers all; default: every other column
        classes: the labels in the order of their numbers; default: whole numbers as they are,
            anything else sorted
        targets: "numbers": labels are numbers to predict (npz files may have several for each row),
            for a task such as regression; default "classes"
        priority: names or positions of the priority clients, a number n for the first n, "all";
            default: those the manifest says, or else everyone
        split: a column that holds "train" or "test"
        test_fraction: or else the share of its rows each client holds out, drawn from the seed and
            the client's name; default 0.2, unless npz files have an x_test; 0: none
        categories: columns of categories: a feature of 0 and 1 for each level that any client has
        missing: "mean": a missing number is the mean of all training rows, and one more feature
            says that it was missing; default "error"
        text: a column of text to learn from, in place of features, as the tokens of
        tokenizer: a function of a text that gives whole numbers, or its import path
        length: how many tokens of each text are kept; default 64
        pad: the token that shorter texts are filled up with; default 0
        resize: of images: the height and width that all are brought to
        scale: "pooled": every feature less its mean, by its deviation, over all training rows;
            "priority": over those of the priority clients, and so is what stands in for missing
            numbers
    """
    given = {
        "label": label,
        "client": client,
        "features": features,
        "classes": classes,
        "targets": targets,
        "priority": priority,
        "split": split,
        "test_fraction": test_fraction,
        "scale": scale,
        "categories": categories,
        "missing": missing,
        "text": text,
        "tokenizer": tokenizer,
        "length": length,
        "pad": pad,
        "resize": resize,
    }
    return read_folder(path, given).federation(seed)


@dataclass(frozen=True)
class Source:
    """Files that were read: their rows, before features are made of columns, and how that is to be
    done.

    Attributes:
        tables: whether they are tables, whose columns have names
        text: how the one column that is read, a text, became tokens
        nothing: by column, numbers that mean that nothing was measured
    """

    place: Path
    tables: bool
    manifest: Manifest
    options: Options
    blocks: list[Block]
    text: TextEncoder | None = None
    nothing: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether features are made by what clients' rows tell."""
        return fits(self.options)

    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each category that any file has, in the order of their names. Rows that are
        held out count too: they have to be judged."""
        found: dict[str, set[str]] = {}
        for block in self.blocks:
            for name, text in block.texts.items():
                found.setdefault(name, set()).update(text.drop_nulls().unique().to_list())
        return in_order(found)

    def coded(self, levels: dict[str, tuple[str, ...]]) -> list[Block]:
        """The rows with the places of levels where these are."""
        if not levels:
            return self.blocks
        return [replace(b, x=coded(b.x, b.texts, b.features, levels, b.where)) for b in self.blocks]

    def roles(self, names: Names) -> Mapping[str, Role]:
        """What the manifest says of clients."""
        return roles_of(self.manifest, names, self.options.client is None and self.place.is_file())

    def statistics(self, seed: int) -> ColumnStatistics:
        """What each client tells of its training rows; categories as places of its levels."""
        blocks = self.coded(self.levels())
        rows = parted(blocks, self.options, seed, self.roles)
        return rows.statistics(join([block.x for block in blocks]))

    def federation(self, seed: int, fitted: TableEncoder | Scaler | None = None) -> Federation:
        """The federation of the files' clients. What is `fitted` already, with others, makes their
        features; else it is fitted to their rows, where that is asked for."""
        columns = self.blocks[0].features
        levels = fitted.levels if isinstance(fitted, TableEncoder) else self.levels()
        blocks = self.coded(levels)
        made: list[TableEncoder | Scaler] = []

        def fit(x: NDArray[Any], rows: Parted) -> TableEncoder | Scaler:
            told = rows.statistics(x)
            mine = self.options.scale == "priority"
            counts = rows.priority if mine else np.ones(len(rows.names), np.bool_)
            if not self.tables:
                return Scaler.fit(told, counts, x.shape[1:])
            scaled, fills = self.options.scale in SCALES, self.options.missing == "mean"
            return TableEncoder.fit(told, counts, columns, levels, scaled, fills, self.nothing)

        def rescale(x: NDArray[Any], rows: Parted) -> NDArray[Any]:
            if self.manifest.mean:
                x, scale = agreed(x, blocks[0], self.manifest)
                made.append(scale)
            elif self.fits:
                made.append(fit(x, rows) if fitted is None else fitted)
            return made[0](x) if made else x

        fed = assemble(blocks, self.options, seed, self.place.resolve().stem, self.roles, rescale)
        maker = made[0] if made else None
        encoder = maker if isinstance(maker, TableEncoder) else None
        options = self.options
        others = (options.client, options.split)
        return replace(
            fed,
            columns=encoder.names if encoder else tuple(self.manifest.mean) or fed.columns,
            encoder=encoder,
            scaler=maker if isinstance(maker, Scaler) else None,
            text=self.text,
            pad=self.text.pad if self.text else None,
            resized=options.resize is not None,
            label_column=options.label_column if self.tables else None,
            # With features or a text named, every other column is passed over.
            aside=None
            if options.features or self.text
            else tuple(c for c in others if c is not None),
        )


def read_folder(
    path: str | Path,
    given: Mapping[str, Any],
    nothing: Mapping[str, tuple[float, ...]] | None = None,
) -> Source:
    """Files as `from_folder` reads them, with settings laid over those of their manifest, and what
    of their columns counts as `nothing`."""
    nothing = nothing or {}
    place = Path(path).expanduser()
    images = holds_images(place)
    files = [] if images else data_files(place)
    found = find_manifest(place)
    manifest = Manifest() if found is None else read_manifest(found)
    options = laid_over(manifest.options, dict(given))
    if images:
        return Source(place, False, manifest, *image_blocks(place, options))
    if options.resize is not None:
        raise MusterError("resize: it is for folders of images, client/class/*.png")
    options = replace(options, client=client_column(files, options, place.is_dir()))
    if manifest.mean and options.scale in SCALES:
        raise MusterError(
            f"scale: '{options.scale}' next to [mean] and [std] in {manifest.path}; give one of "
            "the two"
        )
    preparing = bool(options.categories) or options.missing == "mean"
    if preparing and (manifest.mean or files[0].suffix not in TABLES):
        raise MusterError(
            "categories, missing: they are for tables, and not together with [mean] and [std]"
        )
    text = as_text(options)
    blocks = read_files(files, options, fits(options) or bool(manifest.mean), text, nothing)
    return Source(place, files[0].suffix in TABLES, manifest, options, blocks, text, nothing)


def fits(options: Options) -> bool:
    """Whether features are made by what clients' rows tell."""
    return bool(options.categories) or options.missing == "mean" or options.scale in SCALES


def in_order(levels: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """The levels of each category in the order of their names."""
    return {name: tuple(sorted(known, key=natural)) for name, known in levels.items()}


def data_files(path: Path) -> list[Path]:
    """The files to read, in the order of their names.

    In a folder nothing is passed over but hidden files, notes (.md) and manifests.
    """
    if not path.exists():
        raise MusterError(f"{path}: no such file or folder; give a {endings()} file, or a folder")
    if not path.is_dir():
        if path.suffix not in ENDINGS:
            raise MusterError(f"{path}: ends in '{path.suffix}'; allowed: {endings()}")
        return [path]
    inside = [p for p in path.iterdir() if not p.name.startswith(".") and p.suffix != ".md"]
    files = [p for p in inside if p.name != MANIFEST and not p.name.endswith(f".{MANIFEST}")]
    for file in sorted(files):
        if file.suffix not in ENDINGS or not file.is_file():
            raise MusterError(
                f"{file}: allowed here: {endings()} files, one per client, and {MANIFEST}; move it "
                "elsewhere"
            )
    if not files:
        raise MusterError(f"{path}: holds no data; give a {endings()} file for each client")
    files.sort(key=lambda file: natural(file.stem))
    for a, b in zip(files, files[1:], strict=False):
        if a.stem == b.stem:
            raise MusterError(f"{b}: {a.name} is of the same client; keep one of them")
        if (a.suffix == ".npz") != (b.suffix == ".npz"):
            raise MusterError(f"{b}: {a.name} is of another kind; give tables, or npz files")
    return files


def endings() -> str:
    """The endings a data file may have, in words."""
    return f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


def client_column(files: Sequence[Path], options: Options, folder: bool) -> str | None:
    """The column that says whose row it is, if there is one."""
    if files[0].suffix not in TABLES:
        for name in ("label", "client", "features", "split", "text"):
            if getattr(options, name) is not None:
                raise MusterError(f"{name}: npz files have no columns; leave it out for these")
        return None
    if options.client is None and not folder and CLIENT in header(files[0]):
        return CLIENT
    return options.client


def read_files(
    files: Sequence[Path],
    options: Options,
    exact: bool,
    text: TextEncoder | None,
    nothing: Mapping[str, tuple[float, ...]],
) -> list[Block]:
    """All files, each with the features of the first."""
    blocks: list[Block] = []
    columns = Columns(
        options.labels, options.client, options.split,
        options.features if text is None else (text.column,),
        options.categories or (), options.missing == "mean", text, nothing,
    )  # fmt: skip
    for file in files:
        if file.suffix in TABLES:
            blocks.append(read_table(file, columns, blocks[0] if blocks else None, exact))
            continue
        for block in read_npz(file):
            first = blocks[0].x if blocks else block.x
            if block.x.shape[1:] != first.shape[1:] or block.x.dtype != first.dtype:
                raise MusterError(
                    f"{block.where}: rows are {block.x.dtype} of shape {block.x.shape[1:]}, those "
                    f"of {blocks[0].where} {first.dtype} of shape {first.shape[1:]}; they must "
                    "agree"
                )
            blocks.append(block)
    return blocks


def agreed(x: NDArray[Any], block: Block, manifest: Manifest) -> tuple[NDArray[Any], Scaler]:
    """Features in the order a manifest names them, and its numbers to scale them by: the same for
    every client, however the columns of its own file lie."""
    if set(manifest.mean) != set(block.features):
        (name, *_) = sorted(set(manifest.mean) ^ set(block.features))
        raise MusterError(
            f"{manifest.path}: [mean] and [std] need a number for each feature of {block.where} "
            f"and no other; '{name}' is in one of the two only"
        )
    order = [block.features.index(name) for name in manifest.mean]
    mean = np.array(list(manifest.mean.values()))
    std = np.array([manifest.std[name] for name in manifest.mean])
    return x[:, order], Scaler(mean, std)


def roles_of(manifest: Manifest, names: Names, alone: bool) -> Mapping[str, Role]:
    """Every client's role, by name; nothing when the manifest says nothing of clients.

    Args:
        alone: one client's file, which a manifest of the whole folder may lie next to
    """
    if not manifest.roles:
        return {}
    known = set(names.tolist())
    stranger = next((name for name in manifest.roles if name not in known), None)
    if stranger is not None and not (alone and manifest.path and manifest.path.name == MANIFEST):
        raise MusterError(
            f"{manifest.path}: clients.{stranger} has no data; {nearest(stranger, known)}"
        )
    roles = {name: manifest.roles.get(name, Role()) for name in names.tolist()}
    asks = {name for name, role in roles.items() if role.requirement is not None}
    if asks and len(asks) < len(roles):
        silent = next(name for name in roles if name not in asks)
        raise MusterError(
            f"{manifest.path}: clients.{silent}.requirement: missing; others have one, so every "
            "client needs one"
        )
    return roles

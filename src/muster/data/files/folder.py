"""Your own files as a federation: a folder of one file per client, or one table of all of them.

Here files and their manifest are found, and scaler, encoder and imputation of missing values
fitted; `tabular` reads a file, `assembly` builds the federation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError, MusterWarning, plural
from ...base.lazy import pl
from ...base.registry import Code, part
from ...federation import ColumnStatistics, Federation, Scaler, TableEncoder, TextEncoder
from ...federation.inputs import Range, plausible_range
from .assembly import (
    AssignedRows,
    Names,
    assemble,
    assign_rows,
    drop_copies,
    natural_key,
)
from .codings import find_spellings, find_typos, is_id
from .dialect import Decimal, Encoding, Separator
from .folder_files import client_column, data_files
from .image_folders import holds_images, read_image_blocks
from .manifest import (
    Manifest,
    Options,
    Role,
    assign_roles,
    build_text_encoder,
    check_columns,
    choose_dialect,
    find_manifest,
    override_options,
    read_manifest,
)
from .npz import read_npz
from .table_reader import read_columns, read_header, recode_values
from .tabular import TABLES, Block, Columns, concatenate, encode_categories, read_table

SCALES = ("pooled", "priority")  # scalers that are fitted to rows


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
    separator: Separator | None = None,
    decimal: Decimal | None = None,
    encoding: Encoding | None = None,
    duplicates: Literal["keep", "drop"] | None = None,
) -> Federation:
    """Read a federation from files: parquet, CSV or npz (arrays x, y and maybe x_test, y_test), or
    from folders of images, client/class/*.png (of a single client class/*.png).

    A folder holds one file per client, named after the client. A single file is a table of all
    clients when it has a client column, and else the data of one client. A manifest.toml next to
    the data may hold any of these settings, and roles: see docs/own-data.md.

    Args:
        label: the column of labels; default "label"; several are numbers to predict, such as
            ("time", "event") of survival
        client: the column of the clients' names; default "client", if a single file has it
        features: the columns to learn from, all numbers; default: every other column
        classes: the labels in the order of their numbers; default: whole numbers as they are,
            anything else sorted
        targets: "numbers": labels are numbers to predict (npz files may have several for each row),
            for a task such as regression; default "classes"
        priority: names or positions of the priority clients, a number n for the first n, "all";
            default: those of the manifest, or else everyone
        split: a column that holds "train" or "test"
        test_fraction: or else the share of its rows each client holds out, drawn from the seed and
            the client's name; default 0.2, unless npz files have an x_test; 0: none
        categories: columns of categories, which are one-hot encoded: a feature of 0 and 1 for each
            level that any client has
        missing: "mean": missing values are imputed by the mean of all training rows, and one more
            feature marks them; default "error"
        text: a column of text to learn from, in place of features, as tokens
        tokenizer: a function from a text to whole numbers, or its import path
        length: the number of tokens that are used of each text; default 64
        pad: the token that fills up shorter texts; default 0
        resize: the height and width that all images are resized to
        scale: the scaler: "pooled": every feature less its mean, by its deviation, over all
            training rows; "priority": over those of the priority clients, as is the imputation of
            missing values
        separator: the character between columns of CSV files; default ","
        decimal: the decimal mark in CSV files, "." or ","; default "."
        encoding: the encoding of CSV files: "utf-8", "latin-1", "cp1252" or "utf-16"; default
            "utf-8"
        duplicates: "drop": of rows that are the same at a client the first is used; default "keep"
    """
    settings = {
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
        "separator": separator,
        "decimal": decimal,
        "encoding": encoding,
        "duplicates": duplicates,
    }
    return read_folder(path, settings).federation(seed)


@dataclass(frozen=True)
class FolderData:
    """Files that were read: their rows before features are computed, and the settings for that.

    Attributes:
        tables: True if they are tables, whose columns have names
        text: encoder of the column of text, if there is one
        na_values: numbers that stand for missing values, by column
        train_rows: number of training rows of each priority client, which holds out all others;
            None: it holds out as many as everyone
    """

    place: Path
    tables: bool
    manifest: Manifest
    options: Options
    blocks: list[Block]
    text: TextEncoder | None = None
    na_values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    train_rows: int | None = None

    @property
    def needs_fit(self) -> bool:
        """Return True if a scaler or encoder is fitted to column statistics of the clients."""
        return needs_fit(self.options)

    def levels(self) -> dict[str, tuple[str, ...]]:
        """Return the levels of each category that any file has, sorted by name. Those of held-out
        rows count too, so that they can be evaluated."""
        counts = self.count_levels()
        for name, found in counts.items():
            if is_id(len(found), sum(found.values())):
                raise MusterError(
                    f"categories: column '{name}' has {len(found)} levels in "
                    f"{sum(found.values())} rows: it identifies rows, as an id does, and the "
                    "model would list them all; leave it out with features=[...]"
                )
        return sort_levels(counts)

    def count_levels(self) -> dict[str, dict[str, int]]:
        """Return the number of rows of each level of each category, over all files."""
        found: dict[str, dict[str, int]] = {}
        for name in self.blocks[0].texts:
            column = pl.concat([block.texts[name].alias("") for block in self.blocks])
            found[name] = dict(column.drop_nulls().value_counts().iter_rows())
        return found

    def warn_levels(self) -> None:
        """Warn about levels that may be another spelling of one level, or a typo."""
        for name, counts in self.count_levels().items():
            same = {group[0]: group[1] for group in find_spellings(counts)}
            for value, meant in {**find_typos(counts), **same}.items():
                warnings.warn(
                    f"categories: column '{name}': '{value}' ({plural(counts[value], 'row')}) is a "
                    f"level apart from '{meant}'; if they are the same, write one, or replace it "
                    f"with [recode.{name}] in the manifest",
                    MusterWarning,
                    stacklevel=4,
                )

    def encode_categories(self, levels: dict[str, tuple[str, ...]]) -> list[Block]:
        """Return the blocks with categories encoded as positions of their levels."""
        if not levels:
            return self.blocks
        return [
            replace(b, x=encode_categories(b.x, b.texts, b.features, levels, b.where))
            for b in self.blocks
        ]

    def read_values(self, names: Sequence[str]) -> list[pl.DataFrame]:
        """Read columns of each file again, with their values as they are written, for the rows
        that are used."""
        frames = []
        for file, block in zip(data_files(self.place), self.blocks, strict=True):
            dialect = choose_dialect(self.options, self.manifest.roles.get(file.stem, Role()))
            frame = recode_values(read_columns(file, names, dialect), self.manifest.recode)
            frames.append(frame if block.rows is None else frame[block.rows])
        return frames

    def roles(self, names: Names) -> Mapping[str, Role]:
        """Return the clients' roles in the manifest."""
        return assign_roles(
            self.manifest, names, self.options.client is None and self.place.is_file()
        )

    def statistics(self, seed: int) -> ColumnStatistics:
        """Return each client's column statistics; categories are positions of their levels."""
        blocks = self.encode_categories(self.levels())
        rows = assign_rows(blocks, self.options, seed, self.roles, self.train_rows)
        return rows.statistics(concatenate([block.x for block in blocks]))

    def federation(self, seed: int, fitted: TableEncoder | Scaler | None = None) -> Federation:
        """Return the federation of the files' clients. A scaler or encoder that is already `fitted`
        with other clients computes their features; else one is fitted to their rows,
        where the settings ask for it."""
        columns = self.blocks[0].features
        self.warn_levels()
        levels = fitted.levels if isinstance(fitted, TableEncoder) else self.levels()
        blocks = self.encode_categories(levels)
        transforms: list[TableEncoder | Scaler] = []
        scaled = self.options.scale in SCALES

        def fit(x: NDArray[Any], rows: AssignedRows) -> TableEncoder | Scaler:
            statistics = rows.statistics(x)
            mine = self.options.scale == "priority"
            counts = rows.priority if mine else np.ones(len(rows.names), np.bool_)
            if not self.tables:
                return Scaler.fit(statistics, counts, x.shape[1:])
            fills = self.options.missing == "mean"
            return TableEncoder.fit(
                statistics, counts, columns, levels, scaled, fills, self.na_values
            )

        measured: dict[str, Range] = {}

        def rescale(x: NDArray[Any], rows: AssignedRows) -> NDArray[Any]:
            if self.tables and not self.text and not self.manifest.mean and not scaled:
                found = rows.statistics(x).combine()
                both = zip(
                    columns, found.mean[0].tolist(), found.deviation[0].tolist(), strict=True
                )
                measured.update({c: plausible_range(m, s) for c, m, s in both if c not in levels})
            if self.manifest.mean:
                x, scale = manifest_scaler(x, blocks[0], self.manifest)
                transforms.append(scale)
            elif self.needs_fit:
                transforms.append(fit(x, rows) if fitted is None else fitted)
            return transforms[0](x) if transforms else x

        fed = assemble(
            blocks,
            self.options,
            seed,
            self.place.resolve().stem,
            self.roles,
            rescale,
            self.train_rows,
        )
        transform = transforms[0] if transforms else None
        encoder = transform if isinstance(transform, TableEncoder) else None
        options = self.options
        others = (options.client, options.split)
        return replace(
            fed,
            columns=encoder.names if encoder else tuple(self.manifest.mean) or fed.columns,
            encoder=encoder,
            scaler=transform if isinstance(transform, Scaler) else None,
            text=self.text,
            pad=self.text.pad if self.text else None,
            resized=options.resize is not None,
            ranges=self.manifest.ranges,
            measured=measured,
            recode=self.manifest.recode,
            label_column=options.label_column if self.tables else None,
            # With features or a text named, every other column is ignored.
            aside=None
            if options.features or self.text
            else tuple(c for c in others if c is not None),
        )


def read_folder(
    path: str | Path,
    given: Mapping[str, Any],
    na_values: Mapping[str, tuple[float, ...]] | None = None,
    manifest: Manifest | None = None,
) -> FolderData:
    """Read files as `from_folder` does, with settings that override those of their manifest, and
    numbers that stand for missing values, by column. A `manifest` that is given is used in place of
    the one next to the files."""
    na_values = na_values or {}
    place = Path(path).expanduser()
    images = holds_images(place)
    files = [] if images else data_files(place)
    if manifest is None:
        found = find_manifest(place)
        manifest = Manifest() if found is None else read_manifest(found)
    options = override_options(manifest.options, dict(given))
    if images:
        return FolderData(place, False, manifest, *read_image_blocks(place, options))
    if options.resize is not None:
        raise MusterError("resize: it is for folders of images, client/class/*.png")
    dialect = choose_dialect(options, manifest.roles.get(files[0].stem, Role()))
    options = replace(options, client=client_column(files, options, place.is_dir(), dialect))
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
    text = build_text_encoder(options)
    blocks = read_files(files, options, manifest, text, na_values)
    if options.duplicates == "drop":
        blocks = drop_copies(blocks)
    return FolderData(place, files[0].suffix in TABLES, manifest, options, blocks, text, na_values)


def needs_fit(options: Options) -> bool:
    """Return True if a scaler or encoder is fitted to column statistics of the clients."""
    return bool(options.categories) or options.missing == "mean" or options.scale in SCALES


def sort_levels(levels: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Sort the levels of each category by name."""
    return {name: tuple(sorted(known, key=natural_key)) for name, known in levels.items()}


def read_files(
    files: Sequence[Path],
    options: Options,
    manifest: Manifest,
    text: TextEncoder | None,
    na_values: Mapping[str, tuple[float, ...]],
) -> list[Block]:
    """Read all files, each with the features of the first."""
    blocks: list[Block] = []
    exact = needs_fit(options) or bool(manifest.mean)
    columns = Columns(
        options.labels,
        options.client,
        options.split,
        options.features if text is None else (text.column,),
        options.categories or (),
        options.missing == "mean",
        text,
        na_values,
        manifest.recode,
        manifest.ranges,
    )
    for file in files:
        if file.suffix in TABLES:
            dialect = choose_dialect(options, manifest.roles.get(file.stem, Role()))
            if not blocks:
                check_columns(manifest, read_header(file, dialect))
            blocks.append(read_table(file, columns, blocks[0] if blocks else None, exact, dialect))
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


def manifest_scaler(
    x: NDArray[Any], block: Block, manifest: Manifest
) -> tuple[NDArray[Any], Scaler]:
    """Return features in the order of a manifest, and its scaler: the same for every client,
    whatever the order of the columns in its file."""
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

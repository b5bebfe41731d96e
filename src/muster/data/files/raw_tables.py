"""Tables as text: all columns of all files, by client, in the dialect that is stated or detected,
for a check of what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...base.errors import MusterError, plural
from ...base.lazy import pl
from ...federation.data_warnings import may_be_accidental
from ...federation.spellings import fold
from .assembly import natural_key
from .codings import is_id, is_number
from .column_check import DataProblem
from .dialect import COMMA, PLAIN, POINT, Dialect, detect_dialect
from .folder_files import CLIENT, data_files
from .manifest import Manifest, Options, Role, choose_dialect
from .table_reader import check_text, read_columns, read_header, recode_values
from .tabular import MISSING

CLIENTS = (CLIENT, "site", "hospital", "center", "centre", "clinic", "klinik")

Tables = dict[str, "pl.DataFrame"]


@dataclass(frozen=True)
class RawTables:
    """Tables as text, null where a value is missing.

    Attributes:
        tables: each client's
        dialects: of each file
        client: the column of clients, where there is one
        problems: what is wrong with the files
    """

    tables: Tables
    dialects: dict[str, Dialect]
    client: str | None
    problems: list[DataProblem]


def read_raw_tables(place: Path, manifest: Manifest, options: Options) -> RawTables:
    """Read all files; one that cannot be read is a problem, and left out."""
    problems: list[DataProblem] = []
    frames: Tables = {}
    dialects: dict[str, Dialect] = {}
    wrong: list[str] = []
    files = data_files(place, wrong)
    problems += [DataProblem("", "", "file", text) for text in wrong]
    for file in files:
        dialect = choose_dialect(options, manifest.roles.get(file.stem, Role()))
        try:
            if file.suffix == ".csv":
                check_text(file, dialect)
        except MusterError as error:
            problems.append(DataProblem(file.stem, "", "file", str(error)))
            continue
        if dialect == PLAIN and (found := detect_dialect(file)) != PLAIN:
            dialect, text = found, f"written with {found}"
            problems.append(DataProblem(file.stem, "", "dialect", text, "stated in the manifest"))
        try:
            frames[file.stem] = read_as_text(file, dialect, manifest, problems)
        except MusterError as error:
            problems.append(DataProblem(file.stem, "", "file", str(error)))
            continue
        dialects[file.stem] = dialect
    client = options.client
    if client is None and place.is_file():
        client = next((find_client(frame) for frame in frames.values()), None)
    if client is None or not all(client in frame.columns for frame in frames.values()):
        return RawTables(frames, dialects, None, problems)
    whole = pl.concat(list(frames.values()), how="diagonal").filter(pl.col(client).is_not_null())
    groups = whole.partition_by(client, as_dict=True, include_key=False)
    tables = {str(key[0]): table for key, table in groups.items()}
    ordered = {name: tables[name] for name in sorted(tables, key=natural_key)}
    return RawTables(ordered, dialects, client, problems)


def read_as_text(
    file: Path, dialect: Dialect, manifest: Manifest, problems: list[DataProblem]
) -> pl.DataFrame:
    """Read a file's columns as text, with values replaced as the manifest states."""
    names = read_header(file, dialect)
    frame = read_columns(file, names, replace(dialect, decimal="."))
    if not len(frame):
        raise MusterError(f"{file}: no rows; give at least one")
    frame = frame.select(pl.all().cast(pl.String).str.strip_chars())
    if looks_like_row(frame):
        shown = ", ".join(map(repr, names[:3]))
        raise MusterError(f"{file}: its first line looks like a row ({shown}, ...); give a header")
    if dialect.decimal == ",":
        for name in names:
            if frame[name].str.contains(POINT).any():
                text = "numbers with a decimal point next to decimal commas"
                problems.append(
                    DataProblem(file.stem, name, "decimal", text, "write them in one way")
                )
        frame = frame.select(pl.all().str.replace(COMMA, "${1}.${2}"))
    frame = recode_values(frame, manifest.recode)
    return frame.with_columns(
        pl.when(~pl.col(name).is_in(MISSING)).then(pl.col(name)) for name in names
    )


def looks_like_row(frame: pl.DataFrame) -> bool:
    """Return True if most names of columns are such as their values: one of them, or a fraction.
    Names that only count columns are names."""
    numbers = [name for name in frame.columns if is_number(name)]
    if not numbers or numbers in ([str(i + k) for i in range(len(numbers))] for k in (0, 1)):
        return False
    found = [
        (name in numbers and "." in name) or (frame[name] == name).any() for name in frame.columns
    ]
    return 2 * sum(found) > len(found)


def find_client(frame: pl.DataFrame) -> str | None:
    """Return the column of clients in a single table, by its name."""
    for name in frame.columns:
        levels = frame[name].n_unique()
        if fold(name) in CLIENTS and levels > 1 and not is_id(levels, len(frame)):
            return name
    return None


def find_copies(
    tables: Mapping[str, pl.DataFrame], features: list[str], label: str
) -> list[DataProblem]:
    """Return rows that are the same within a client, and at two clients, by their hash."""
    whole = pl.concat([table.select(*features, label) for table in tables.values()])
    hashes = whole.hash_rows()
    codes = whole.unique().select(pl.col(features).rank("dense").fill_null(0))
    if not hashes.is_duplicated().any() or may_be_accidental(
        codes.to_numpy(), np.arange(len(codes))
    ):
        return []
    clients = list(tables)
    owner = np.repeat(np.arange(len(clients)), [len(table) for table in tables.values()])
    rows = pl.DataFrame({"hash": hashes, "owner": owner})
    held = rows.unique()
    problems = []
    for k, client in enumerate(clients):
        copies = int((owner == k).sum()) - len(held.filter(pl.col("owner") == k))
        if copies:
            text = f"{plural(copies, 'row')} the same as an earlier one"
            advice = 'duplicates = "drop" leaves them out'
            problems.append(DataProblem(client, "", "duplicate", text, advice))
    pairs = held.join(held, on="hash", suffix="_2").filter(pl.col("owner") < pl.col("owner_2"))
    for a, b, n in pairs.group_by("owner", "owner_2").len().sort("owner", "owner_2").iter_rows():
        text = f"{plural(n, 'row')} the same as at {clients[b]}: one may be trained on, one tested"
        problems.append(
            DataProblem(clients[a], "", "shared", text, "remove them at one of the two")
        )
    return problems

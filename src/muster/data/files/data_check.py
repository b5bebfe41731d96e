"""Check of a folder of data: every problem at once, and a manifest by which it can be read.

    muster.data.check("hospitals")    problems, decisions and the manifest, as a value that prints
    muster data check hospitals       the same, and writes the manifest

The manifest that stands next to the data counts: what it settles is no problem any more.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import MusterError, MusterWarning, format_row_points, plural
from ...base.lazy import pl
from ...federation import Federation
from ...federation.spellings import are_near, fold
from .assembly import natural_key
from .codings import quote, says_yes
from .column_check import (
    THREE,
    ColumnCheck,
    DataProblem,
    check_column,
    check_shift,
    count,
    describe_rename,
)
from .column_kinds import as_numbers, values_by_client
from .folder import read_folder
from .folder_files import CLIENT, data_files
from .image_folders import holds_images
from .leak_check import equals_target, tells_label
from .manifest import (
    LABEL,
    Manifest,
    Options,
    find_manifest,
    manifest_places,
    override_options,
    read_manifest,
)
from .manifest_draft import ManifestDraft
from .raw_tables import find_copies, read_raw_tables
from .table_reader import recode_values
from .tabular import TABLES

LABELS = (LABEL, "target", "class", "outcome", "diagnosis", "diagnose", "y", "disease", "status")
SPLITS = {"train", "test"}
MANY_CLASSES = 20  # different whole numbers from which labels may be numbers to predict
FEW = 8  # different whole numbers up to which they may be codes of categories
NAMELESS = "(no name)"  # a column without one, such as an index
RARE = 10  # rows of a class below which nothing can be learned or shown about it


@dataclass(frozen=True)
class DataCheck:
    """The result of a check.

    Attributes:
        place: the folder or file
        rows: number of rows of each client
        problems: all that is wrong, or may be
        decisions: settings of the manifest, in words
        notes: what else to know, such as the size of test parts
        manifest: the text of a manifest by which the data can be read
    """

    place: str
    rows: dict[str, int]
    problems: tuple[DataProblem, ...]
    decisions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    manifest: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        clients = plural(len(self.rows), "client")
        lines = [f"{self.place}: {clients}, {plural(sum(self.rows.values()), 'row')}"]
        for title, items in {
            plural(len(self.problems), "problem")
            if self.problems
            else "no problems": self.problems,
            "decided, for the manifest": self.decisions,
            "notes": self.notes,
        }.items():
            if items or items is self.problems:
                lines += ["", f"{title}:" if items else title, *(f"  {item}" for item in items)]
        return "\n".join(lines)


def check(path: str | Path, **settings: Any) -> DataCheck:
    """Check files for all that a careful reader would stumble over: types, codings and typos by
    client, ids, dates and free text, missing values, ranges and units, copies of rows, rare
    classes, small test parts, separators, decimal marks and encodings.

    Args:
        path: a folder or a file, as for `from_folder`
        settings: those of `from_folder` that are fixed already; they are not in the manifest

    Returns:
        problems, decisions, notes, and a manifest by which the data can be read
    """
    place = Path(path).expanduser()
    if holds_images(place) or data_files(place, [])[0].suffix not in TABLES:
        return check_arrays(place, settings)
    found = find_manifest(place)
    manifest = Manifest() if found is None else read_manifest(found)
    return FolderReader(place, manifest, settings).check()


def check_arrays(place: Path, settings: Mapping[str, Any]) -> DataCheck:
    """Check images or arrays: they are read as they are, so that only what reading finds counts."""
    fed, problems = try_reading(place, settings, None)
    if fed is None:
        return DataCheck(str(place), {}, tuple(problems))
    rows = (
        dict(zip(map(str, fed.names), fed.sizes.tolist(), strict=True))
        if fed.names is not None
        else {}
    )
    return DataCheck(str(place), rows, tuple(problems), notes=tuple(describe_tests(fed)))


def try_reading(
    place: Path, settings: Mapping[str, Any], manifest: Manifest | None
) -> tuple[Federation | None, list[DataProblem]]:
    """Read files as `from_folder` does, with this manifest; errors and warnings are problems."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MusterWarning)
        try:
            fed = read_folder(place, settings, manifest=manifest).federation(0)
        except MusterError as error:
            return None, [DataProblem("", "", "reading", str(error))]
    ours = [str(w.message) for w in caught if issubclass(w.category, MusterWarning)]
    return fed, [DataProblem("", "", "warning", text) for text in dict.fromkeys(ours)]


def describe_tests(fed: Federation) -> list[str]:
    """Return what the test part of each client can show."""
    if fed.test is None or fed.names is None or not fed.classes:
        return []
    return [
        f"{name}: {plural(n, 'test row')}: one is {format_row_points(n)} points of accuracy"
        for name, n in zip(fed.names, fed.test.sizes.tolist(), strict=True)
    ]


@dataclass
class FolderReader:
    """Tables of a folder on their way through the checks, one after the other.

    Attributes:
        tables: each client's columns as text, null where a value is missing
        draft: the manifest to write
    """

    place: Path
    manifest: Manifest
    settings: Mapping[str, Any]
    problems: list[DataProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.options: Options = override_options(self.manifest.options, dict(self.settings))
        self.labels: list[str] = []  # columns that may be the label, of any client
        self.draft = ManifestDraft(self.manifest, frozenset(self.settings))

    def check(self) -> DataCheck:
        """Run all checks."""
        raw = read_raw_tables(self.place, self.manifest, self.options)
        self.tables, self.problems = raw.tables, raw.problems
        self.draft.add_dialects(raw.dialects, by_file=raw.client is None)
        if raw.client not in (None, self.options.client, CLIENT):
            self.draft.decide("client", raw.client, f"client = '{raw.client}': whose row it is")
        rows = {client: len(table) for client, table in self.tables.items()}
        if not self.tables:
            return DataCheck(str(self.place), rows, tuple(self.problems))
        columns = self.find_columns()
        label, columns = self.find_roles(columns)
        checks = [self.check_feature(name) for name in columns]
        if label is not None:
            checks = [self.check_leak(found, label) for found in checks]
        self.decide_features(checks)
        for found in checks:
            self.describe_levels(found)
            self.describe_ids(found)
        if label is not None:
            self.check_label(label)
            self.check_copies([c.name for c in checks if c.used], label)
        if len(rows) > 1:
            self.draft.leave_priority(next(iter(rows)))
        manifest = self.draft.build(manifest_places(self.place)[0])
        fed, more = try_reading(self.place, self.settings, manifest)
        if self.finds_more(more):
            self.problems += [p for p in more if p.kind == "reading"]
        self.notes += [p.text for p in more if p.kind == "warning"]
        self.notes += [] if fed is None else describe_tests(fed)
        return DataCheck(
            str(self.place),
            rows,
            tuple(self.problems),
            tuple(self.draft.decisions),
            tuple(self.notes),
            self.draft.write(),
        )

    def finds_more(self, more: list[DataProblem]) -> bool:
        """Return True if reading stops at what is no problem yet: at another file than those, and
        not at the labels that are lacking, in all or in some rows, or are of one class."""
        known = {p.text.partition(": ")[0] for p in self.problems if p.kind == "file"}
        labels = [p for p in self.problems if p.kind == "label"]
        said = {"no label column", "one class"} if any(not p.client for p in labels) else set()
        gaps = {f"column '{p.column}'" for p in labels if p.client}
        return not any(
            p.text.partition(": ")[0] in known
            or any(words in p.text for words in said)
            or ("is missing" in p.text and any(column in p.text for column in gaps))
            for p in more
            if p.kind == "reading"
        )

    def report(self, client: str, column: str, kind: str, text: str, suggestion: str = "") -> None:
        """Add a problem."""
        self.problems.append(DataProblem(client, column, kind, text, suggestion))

    def find_columns(self) -> list[str]:
        """Return the columns that all clients have; report those that some lack."""
        first = next(iter(self.tables.values())).columns
        every = list(dict.fromkeys([*first, *(c for t in self.tables.values() for c in t.columns)]))
        wanted = self.options.features
        common = [c for c in every if all(c in table.columns for table in self.tables.values())]
        self.labels = self.find_labels(every)
        for name in every:
            if name in common or not (wanted is None or name in (*wanted, *self.labels)):
                continue
            have = [client for client, table in self.tables.items() if name in table.columns]
            others = (c for client, t in self.tables.items() if client not in have for c in t)
            near = next((c.name for c in others if fold(c.name) == fold(name)), None)
            what = "it" if name else "a column without a name"
            if not name and all(self.tables[client][name].is_null().all() for client in have):
                what += " (a comma at the end of the lines?)"
            text = f"only {', '.join(have)} {'has' if len(have) == 1 else 'have'} {what}"
            lost = name in self.labels and not set(self.labels) & set(common)
            hint = "the label: every client needs it" if lost else "left out of features"
            hint += f" (is it '{near}' there?)" if near else ""
            self.report("", name, "label" if lost else "columns", text, hint)
        return common

    def find_labels(self, every: list[str]) -> list[str]:
        """Return columns that are called as labels are, or the one that is stated."""
        if self.options.label is None:
            return [c for word in LABELS for c in every if fold(c) == word]
        return [c for c in every if c == self.options.label]

    def find_roles(self, columns: list[str]) -> tuple[str | None, list[str]]:
        """Return the label column and the columns that may be features."""
        label = self.options.label
        split = self.options.split or next((c for c in columns if self.levels(c) == SPLITS), None)
        if split is not None and self.options.split is None:
            self.draft.decide("split", split, f"split = '{split}': it holds train and test")
        if isinstance(label, tuple):
            return None, [c for c in columns if c not in (*label, split)]
        if label is None:
            named = [c for c in self.labels if c in columns]
            may = [c for c in columns if c != split and self.may_be_label(c)]
            last = [c for c in columns[-1:] if c in may]
            label = next(iter(named if self.labels else last), None)
            if label is None and not self.labels:
                shown = f" such as {', '.join(map(repr, may[:FEW]))}" if may else ""
                self.report("", "", "label", "no column of labels", f"name it: label = ...{shown}")
            elif label not in (None, LABEL):
                self.draft.decide("label", label, f"label = '{label}': what to predict")
        elif label not in columns:
            if not self.labels:
                self.report("", label, "label", "no file has the column of labels")
            label = None
        rest = [c for c in columns if c not in (label, split)]
        wanted = self.options.features
        return label, rest if wanted is None else [c for c in rest if c in wanted]

    def may_be_label(self, name: str) -> bool:
        """Return True if a column has a few values, and not one alone at every client."""
        several = any(table[name].n_unique() > 1 for table in self.tables.values())
        return several and 1 < len(self.levels(name)) <= 10

    def levels(self, name: str) -> set[str]:
        """Return all values of a column."""
        return {v for table in self.tables.values() for v in table[name].drop_nulls().unique()}

    def values(self, name: str) -> dict[str, pl.Series]:
        """Return a column of each client."""
        return {client: table[name] for client, table in self.tables.items()}

    def check_feature(self, name: str) -> ColumnCheck:
        """Check a column of features."""
        stated, category = self.options.categories, None
        if stated is not None or self.options.features is not None:
            category = name in (stated or ())
        known = {*self.manifest.recode.get(name, {}).values()}
        found = check_column(
            name, self.values(name), category, known, self.manifest.ranges.get(name)
        )
        self.add(found)
        return found

    def check_leak(self, found: ColumnCheck, label: str) -> ColumnCheck:
        """Leave out a column that tells the label, unless features name it: then it is a note."""
        if not found.used:
            return found
        values, labels = self.values(found.name), self.values(label)
        every = pl.concat(list(labels.values())).drop_nulls()
        tells = equals_target if self.has_numbers(every) else tells_label
        if not tells(values, labels):
            return found
        text = f"tells '{label}' of every row, as what is known only after it does"
        if self.options.features is not None:
            self.notes.append(f"column '{found.name}' {text}")
            return found
        advice = "left out of features: name it there if it is known before"
        self.report("", found.name, "leak", text, advice)
        return replace(found, kind="leak")

    def has_numbers(self, labels: pl.Series) -> bool:
        """Return True if labels are numbers to predict, as stated or as they look."""
        if self.options.numbers:
            return True
        numbers = as_numbers(labels)
        if not np.isfinite(numbers).all():
            return False
        levels = labels.n_unique()
        many = levels > MANY_CLASSES and len(labels) < 10 * levels
        return many or bool((numbers % 1 != 0).any())

    def add(self, found: ColumnCheck) -> None:
        """Take over a column's problems and values to replace."""
        self.problems += [replace(p, column=p.column or NAMELESS) for p in found.problems]
        if found.used:
            self.draft.suggest(found.name, found.doubts, found.usual)
        if not found.recode:
            return
        if found.used:
            self.draft.recode(found.name, found.recode)
        self.tables = {
            client: recode_values(table, {found.name: found.recode}).with_columns(
                pl.when(pl.col(found.name) != "").then(pl.col(found.name))
            )
            for client, table in self.tables.items()
        }

    def decide_features(self, checks: list[ColumnCheck]) -> None:
        """Decide on features, categories, missing values and scale."""
        used = [c for c in checks if c.used]
        left = [f"{c.name or NAMELESS} ({c.kind})" for c in checks if c not in used]
        why = f"; left out: {', '.join(left)}" if left else ""
        names = [c.name for c in used]
        if names:
            self.draft.decide("features", names, f"features: {', '.join(names)}{why}")
        else:
            self.report("", "", "features", f"no column that all can learn from{why}")
        categories = [c.name for c in used if c.kind == "category"]
        if categories:
            self.draft.decide("categories", categories, f"categories: {', '.join(categories)}")
        lacks = {c.name: sum(c.lacks.values()) for c in used if any(c.lacks.values())}
        if lacks:
            shown = ", ".join(f"{name} in {n}" for name, n in lacks.items())
            self.draft.decide("missing", "mean", f"missing values become the mean: {shown} rows")
        for column in used:
            for client, n in column.lacks.items():
                if n == len(self.tables[client]):
                    self.notes.append(f"{client}: column '{column.name}' has no value at all")
        for column in used:
            every = pl.concat(list(self.values(column.name).values())).drop_nulls()
            if column.kind != "number":
                continue
            if len(every) >= RARE and every.str.contains(THREE).all():
                self.notes.append(
                    f"column '{column.name}' has three digits after the point in every row, such "
                    f"as {every[0]}: if it marks thousands, write them without"
                )
            if not 3 <= every.n_unique() <= FEW or self.options.categories is not None:
                continue
            few = sorted(every.unique(), key=natural_key)
            if all(map(str.isdecimal, few)):
                self.notes.append(
                    f"column '{column.name}' holds {', '.join(few)}: if they are codes, name it in "
                    "categories"
                )
        if any(c.kind == "number" for c in used):
            self.draft.decide("scale", "pooled", "numbers are scaled over all training rows")

    def describe_levels(self, found: ColumnCheck) -> None:
        """Note levels that one client alone has, and in place of which others."""
        own = values_by_client(self.values(found.name))
        for client, levels in own.items() if found.kind == "category" else ():
            others = [own[other] for other in own if other != client and own[other]]
            alone = levels - set().union(*others) - {*found.doubts}
            if not others or not 0 < len(alone) <= FEW:
                continue
            lacks = set.intersection(*others) - levels - {*found.doubts.values()}
            instead = f", and lacks {quote(lacks)}, which all others have" if lacks else ""
            self.notes.append(f"column '{found.name}': only {client} has {quote(alone)}{instead}")

    def describe_ids(self, found: ColumnCheck) -> None:
        """Note ids of several rows."""
        for client, table in self.tables.items() if found.kind == "id" else ():
            ids = table.unique()[found.name].drop_nulls()
            several = ids.filter(ids.is_duplicated()).n_unique()
            if several and self.options.split is None:
                have = "has" if several == 1 else "have"
                self.notes.append(
                    f"{client}: {plural(several, 'value')} of '{found.name}' {have} several "
                    "rows: of one patient, some may be trained on and some tested; a column "
                    "of train and test (split) decides that"
                )

    def check_label(self, name: str) -> None:
        """Check the column of labels, and that every class has rows to learn from."""
        lacks = {client: table[name].null_count() for client, table in self.tables.items()}
        for client, n in lacks.items():
            if n:
                row = int(self.tables[client][name].is_null().arg_max() or 0) + 1
                which, them = ("the first is ", "them") if n > 1 else ("", "it")
                text = f"{plural(n, 'row')} without a label ({which}row {row})"
                self.report(client, name, "label", text, f"drop {them}, or fill {them} in")
        every = pl.concat(list(self.values(name).values())).drop_nulls()
        if self.has_numbers(every):
            if not self.options.numbers:
                reason = f"the label '{name}' is a number to predict: run with --task regression"
                self.draft.decide("targets", "numbers", reason)
            return
        known = {
            *map(str, self.options.classes or ()),
            *self.manifest.recode.get(name, {}).values(),
        }
        found = check_column(name, self.values(name), True, known)
        self.add(found)
        self.describe_levels(found)
        counts = count(pl.concat(list(self.values(name).values())))
        misspelled = dict(found.doubts)
        for level, n in counts.items():
            if n < RARE and level not in found.doubts:
                text = (
                    f"class '{level}' has {plural(n, 'row')}: too few to learn from or to test on"
                )
                near = next((c for c in counts if counts[c] > n and are_near(level, c)), None)
                advice = "merge it with another, or drop its rows"
                if near is not None and level not in known:
                    misspelled[level] = near
                    advice = f"if it is '{near}', {describe_rename(name, level, near)}"
                self.report("", name, "rare", text, advice)
        self.draft.suggest(name, misspelled)
        if len(counts) < 2:
            self.report(
                "", name, "label", f"one class ('{next(iter(counts), '')}')", "give at least two"
            )
        if self.options.classes is None and name not in self.manifest.recode:
            self.problems += check_shift(name, self.values(name))
        whole = bool((as_numbers(every) % 1 == 0).all())
        # Classes that may be one are not listed: who lists them says that they are not.
        decided = found.kind == "category" and not misspelled and len(counts) > 1
        if self.options.classes is None and not whole and decided:
            classes = sorted(counts, key=lambda level: (says_yes(level), fold(level)))
            self.draft.decide("classes", classes, f"classes: {', '.join(classes)}")

    def check_copies(self, features: list[str], label: str) -> None:
        """Find copies of rows; those within a client are left out."""
        if self.options.duplicates == "keep" or not features:
            return
        found = find_copies(self.tables, features, label)
        if self.options.duplicates == "drop":
            found = [problem for problem in found if problem.kind == "shared"]
        self.problems += found
        if any(problem.kind == "duplicate" for problem in found):
            self.draft.decide("duplicates", "drop", "copies of rows within a client are left out")

"""Settings for reading files, as arguments or in a manifest: columns, and roles of the clients.

Every setting is an argument of `from_folder` and may instead be in a manifest next to the data.
Arguments win. Only a manifest has tables: `[clients.NAME]` for roles and requirements, `[mean]` and
`[std]` for a common scaler, `[recode.COLUMN]` for values to replace and `[range]` for the lowest
and highest value of a column.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base.checks import check_above, require
from ...base.errors import MusterError, nearest
from ...base.schema import as_table, build, convert
from ...base.untrusted_files import NotRegular, read_toml
from ...federation import TextEncoder
from ...federation.population import check_role
from .dialect import Decimal, Dialect, Encoding, Separator

MANIFEST = "manifest.toml"
LABEL = "label"  # the default name of the label column
LENGTH, PAD = 64, 0  # defaults: tokens of a text, and the token that fills it up
TABLE_KEYS = ("clients", "mean", "std", "recode", "range")  # tables that only a manifest has
ALONE = ("features", "categories", "missing", "scale")  # settings that a text excludes


@dataclass(frozen=True)
class Options:
    """Settings for reading files, as described in `from_folder`."""

    label: str | tuple[str, ...] | None = None
    client: str | None = None
    features: tuple[str, ...] | None = None
    classes: tuple[str | int, ...] | None = None
    targets: Literal["classes", "numbers"] | None = None
    priority: int | tuple[str | int, ...] | Literal["all"] | None = None
    split: str | None = None
    test_fraction: float | None = None
    scale: Literal["none", "pooled", "priority"] | None = None
    categories: tuple[str, ...] | None = None
    missing: Literal["error", "mean"] | None = None
    text: str | None = None
    tokenizer: Any = None
    length: int | None = None
    pad: int | None = None
    resize: tuple[int, ...] | None = None
    separator: Separator | None = None
    decimal: Decimal | None = None
    encoding: Encoding | None = None
    duplicates: Literal["keep", "drop"] | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of labels."""
        return (self.label or LABEL,) if not isinstance(self.label, tuple) else self.label

    @property
    def label_column(self) -> str | tuple[str, ...]:
        """The columns of labels; a single one as its name."""
        return self.labels if len(self.labels) > 1 else self.labels[0]

    @property
    def numbers(self) -> bool:
        """True if labels are numbers to predict: several for each row cannot be classes."""
        return self.targets == "numbers" or len(self.labels) > 1

    def __post_init__(self) -> None:
        if self.split is not None and self.test_fraction is not None:
            raise MusterError("split and test_fraction are both given; give one of them")
        if len(self.labels) > 1 and self.targets == "classes":
            raise MusterError("label: several columns are numbers to predict; targets = 'numbers'")
        if self.numbers and self.classes is not None:
            raise MusterError("classes: given together with targets = 'numbers'; give one of them")
        size = self.resize
        ok = size is None or (len(size) == 2 and min(size) >= 1)
        require(ok, "resize", size, "[height, width], each 1 or more")
        share = self.test_fraction
        require(share is None or 0 <= share < 1, "test_fraction", share, "0 (none) to below 1")
        for name in ("label", "features", "classes", "categories"):
            values = getattr(self, name)
            if isinstance(values, tuple) and (
                not values or len(set(map(str, values))) < len(values)
            ):
                raise MusterError(f"{name}: {list(values)}; give different names, at least one")


@dataclass(frozen=True)
class Role:
    """A client's role in its manifest entry, and the dialect of its file where that differs."""

    priority: bool = False
    requirement: float | None = None
    importance: float = 0.0
    unseen: bool = False
    separator: Separator | None = None
    decimal: Decimal | None = None
    encoding: Encoding | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest after all checks. `path` is None where there is none.

    Attributes:
        recode: values to replace, by column; "" for a missing one
        ranges: the lowest and the highest value that a column may have
    """

    path: Path | None = None
    options: Options = Options()
    roles: dict[str, Role] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)
    std: dict[str, float] = field(default_factory=dict)
    recode: dict[str, dict[str, str]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


def choose_dialect(options: Options, role: Role) -> Dialect:
    """Return the dialect of a client's file: its own where it has one, else that of all files."""
    names = [f.name for f in dataclasses.fields(Dialect)]
    given = {name: getattr(role, name) or getattr(options, name) for name in names}
    return Dialect(**{name: value for name, value in given.items() if value is not None})


def find_manifest(path: Path) -> Path | None:
    """Return the manifest of a folder or a file, if there is one."""
    # A broken link counts: roles that cannot be read must not be ignored.
    places = manifest_places(path)
    return next((place for place in places if place.exists() or place.is_symlink()), None)


def manifest_places(path: Path) -> list[Path]:
    """Return a folder's manifest.toml; next to a file, NAME.manifest.toml and manifest.toml."""
    if path.is_dir():
        return [path / MANIFEST]
    return [path.with_name(f"{path.stem}.{MANIFEST}"), path.with_name(MANIFEST)]


def read_manifest(path: Path) -> Manifest:
    """Read a manifest and check every key; the error for a misspelt one names the nearest."""
    try:
        table = read_toml(path, follow=True)
    except OSError as error:
        raise MusterError(f"{path}: cannot be read ({error.strerror}); fix or remove it") from None
    except NotRegular:
        raise
    except ValueError as error:
        raise MusterError(f"{path}: not valid TOML: {error}") from None

    return build_manifest(table, path)


def build_manifest(table: dict[str, Any], path: Path) -> Manifest:
    """Build a manifest from its values, after checking them; `path` names it in errors."""
    table = dict(table)

    def read(make: Callable[..., Any], *given: Any, **more: Any) -> Any:
        try:
            return make(*given, **more)
        except MusterError as error:
            raise MusterError(f"{path}: {error}") from None

    clients, mean, std, recode, ranges = (
        read(as_table, name, table.pop(name, {})) for name in TABLE_KEYS
    )
    options = read(build, Options, table, "", also=TABLE_KEYS)
    if options.tokenizer is not None:
        raise MusterError(
            f"{path}: tokenizer: a manifest is data, and no code is imported for it; give "
            "tokenizer=..., or data.tokenizer in the configuration"
        )
    roles = {
        name: read(build, Role, read(as_table, f"clients.{name}", value), f"clients.{name}")
        for name, value in clients.items()
    }
    for name, role in roles.items():
        read(check_entry, name, role)
    if options.priority is not None and any(role.priority for role in roles.values()):
        raise MusterError(f"{path}: priority and clients.NAME.priority; give it in one place")
    read(check_scale, mean, std, options.scale)
    values = {name: read(check_recode, name, table) for name, table in recode.items()}
    limits = {name: read(check_range, name, limits) for name, limits in ranges.items()}
    return Manifest(path, options, roles, mean, std, values, limits)


def check_recode(name: str, table: Any) -> dict[str, str]:
    """Return the values to replace in a column, as text."""
    for value in as_table(f"recode.{name}", table).values():
        ok = isinstance(value, str | int) and not isinstance(value, bool)
        require(ok, f"recode.{name}", value, "text for each value, such as Female = 'female'")
    return {key: str(value) for key, value in table.items()}


def check_range(name: str, given: Any) -> tuple[float, float]:
    """Return the lowest and the highest value of a column."""
    limits = convert(given, tuple[float, ...], f"range.{name}")
    ok = len(limits) == 2 and math.isfinite(limits[0]) and limits[0] < limits[1] < math.inf
    require(ok, f"range.{name}", given, "the lowest and the highest value, [low, high]")
    return (limits[0], limits[1])


def check_columns(manifest: Manifest, names: Sequence[str]) -> None:
    """Refuse values to replace, and ranges, of columns that files do not have."""
    keys = {**dict.fromkeys(manifest.ranges, "range"), **dict.fromkeys(manifest.recode, "recode")}
    for name, key in keys.items():
        if name not in names:
            raise MusterError(
                f"{manifest.path}: {key}.{name}: no such column; {nearest(name, names)}"
            )


def assign_roles(manifest: Manifest, names: NDArray[np.str_], alone: bool) -> Mapping[str, Role]:
    """Return every client's role, by name; empty if the manifest has none.

    Args:
        alone: True for one client's file, next to which the manifest of a whole folder may be
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


def check_entry(name: str, role: Role) -> None:
    """Check a client's role, with its name in errors."""
    rho = role.requirement
    ok = rho is None or math.isfinite(rho)
    require(ok, f"clients.{name}.requirement", rho, "a finite number")
    check_role(f"clients.{name}", role.priority, role.importance, role.unseen)


def check_scale(mean: dict[str, Any], std: dict[str, Any], scale: str | None) -> None:
    """Check a common scaler: a finite number for each feature in both tables, std above 0."""
    if (mean or std) and scale not in (None, "none"):
        raise MusterError(f"scale: '{scale}' next to [mean] and [std]; give one of the two")
    if set(mean) != set(std):
        (name, *_) = sorted(set(mean) ^ set(std))
        raise MusterError(f"[mean] and [std]: '{name}' is in one of them only")
    for name in mean:
        ok = math.isfinite(convert(mean[name], float, f"mean.{name}"))
        require(ok, f"mean.{name}", mean[name], "a finite number")
        check_above(f"std.{name}", convert(std[name], float, f"std.{name}"))


def override_options(options: Options, given: dict[str, Any]) -> Options:
    """Return the options with those that are given (not None) in their place, checked."""
    table = {key: list(v) if isinstance(v, tuple) else v for key, v in given.items()}
    mine: Options = build(Options, {k: v for k, v in table.items() if v is not None}, "")
    changes = {k: v for k, v in vars(mine).items() if v is not None}
    if mine.test_fraction is not None:
        changes["split"] = None
    elif mine.split is not None:
        changes["test_fraction"] = None
    return dataclasses.replace(options, **changes)


def build_text_encoder(options: Options) -> TextEncoder | None:
    """Return the encoder of a column of text; None without one."""
    if options.text is None:
        for name in ("tokenizer", "length", "pad"):
            if getattr(options, name) is not None:
                raise MusterError(f'{name}: it is for texts; name their column: text = "NAME"')
        return None
    for name in ALONE:
        if getattr(options, name) not in (None, "none", "error"):
            raise MusterError(f"{name}: given together with text, then the only input of a model")
    if options.tokenizer is None:
        raise MusterError(
            "tokenizer: missing; give a function from a text to whole numbers, or its import "
            "path, tokenizer = 'module:name'"
        )
    length = LENGTH if options.length is None else options.length
    text = TextEncoder(options.text, length, PAD if options.pad is None else options.pad)
    return text.with_tokenizer(options.tokenizer)

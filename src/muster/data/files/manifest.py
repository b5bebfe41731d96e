"""What is to be known about somebody's own files: which column is what, and who the clients are.

Every setting is an argument of `from_folder` and may instead stand in a manifest next to the data,
so that the data says itself how it is to be read. Arguments win. Only a manifest has tables:
`[clients.NAME]` for roles and requirements, `[mean]` and `[std]` for an agreed scale.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...base.checks import check_above, require
from ...base.errors import MusterError
from ...base.schema import as_table, build, convert
from ...base.untrusted_files import NotRegular, read_toml
from ...federation.population import check_role

MANIFEST = "manifest.toml"
LABEL = "label"  # a column so called need not be named


@dataclass(frozen=True)
class Options:
    """How files are read; `from_folder` says what each setting means."""

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

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of labels."""
        return (self.label or LABEL,) if not isinstance(self.label, tuple) else self.label

    @property
    def label_column(self) -> str | tuple[str, ...]:
        """The same, one by its name alone."""
        return self.labels if len(self.labels) > 1 else self.labels[0]

    @property
    def numbers(self) -> bool:
        """Whether labels are numbers to predict: several for each row cannot be classes."""
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
        held = self.test_fraction
        require(held is None or 0 <= held < 1, "test_fraction", held, "0 (none) to below 1")
        for name in ("label", "features", "classes", "categories"):
            values = getattr(self, name)
            if isinstance(values, tuple) and (
                not values or len(set(map(str, values))) < len(values)
            ):
                raise MusterError(f"{name}: {list(values)}; give different names, at least one")


@dataclass(frozen=True)
class Role:
    """What a client is, as its manifest entry says."""

    priority: bool = False
    requirement: float | None = None
    importance: float = 0.0
    unseen: bool = False


@dataclass(frozen=True)
class Manifest:
    """A manifest, checked. `path` is None where there is none."""

    path: Path | None = None
    options: Options = Options()
    roles: dict[str, Role] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)
    std: dict[str, float] = field(default_factory=dict)


def find_manifest(path: Path) -> Path | None:
    """The manifest of a folder or a file, if there is one."""
    # A link to nowhere counts: roles that cannot be read must not be passed over.
    places = manifest_places(path)
    return next((place for place in places if place.exists() or place.is_symlink()), None)


def manifest_places(path: Path) -> list[Path]:
    """A folder's manifest.toml; next to a file, NAME.manifest.toml or else manifest.toml."""
    if path.is_dir():
        return [path / MANIFEST]
    return [path.with_name(f"{path.stem}.{MANIFEST}"), path.with_name(MANIFEST)]


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; every key is checked, and a misspelt one is answered with the nearest."""
    try:
        table = read_toml(path, follow=True)
    except OSError as error:
        raise MusterError(f"{path}: cannot be read ({error.strerror}); fix or remove it") from None
    except NotRegular:
        raise
    except ValueError as error:
        raise MusterError(f"{path}: not valid TOML: {error}") from None

    def read(make: Callable[..., Any], *given: Any, **more: Any) -> Any:
        try:
            return make(*given, **more)
        except MusterError as error:
            raise MusterError(f"{path}: {error}") from None

    clients, mean, std = (
        read(as_table, name, table.pop(name, {})) for name in ("clients", "mean", "std")
    )
    options = read(build, Options, table, "", also=("clients", "mean", "std"))
    if options.tokenizer is not None:
        raise MusterError(
            f"{path}: tokenizer: a manifest is data, and no code is imported because of it; give "
            "tokenizer=..., or data.tokenizer in the configuration"
        )
    roles = {
        name: read(build, Role, read(as_table, f"clients.{name}", value), f"clients.{name}")
        for name, value in clients.items()
    }
    for name, role in roles.items():
        read(check_entry, name, role)
    if options.priority is not None and any(role.priority for role in roles.values()):
        raise MusterError(f"{path}: priority and clients.NAME.priority; say it in one place")
    read(check_scale, mean, std, options.scale)
    return Manifest(path, options, roles, mean, std)


def check_entry(name: str, role: Role) -> None:
    """What a manifest says of a client, while its name is known."""
    rho = role.requirement
    ok = rho is None or math.isfinite(rho)
    require(ok, f"clients.{name}.requirement", rho, "a finite number")
    check_role(f"clients.{name}", role.priority, role.importance, role.unseen)


def check_scale(mean: dict[str, Any], std: dict[str, Any], scale: str | None) -> None:
    """An agreed scale is a finite number for each feature in both tables, deviations above 0."""
    if (mean or std) and scale not in (None, "none"):
        raise MusterError(f"scale: '{scale}' next to [mean] and [std]; give one of the two")
    if set(mean) != set(std):
        (name, *_) = sorted(set(mean) ^ set(std))
        raise MusterError(f"[mean] and [std]: '{name}' is in one of them only")
    for name in mean:
        ok = math.isfinite(convert(mean[name], float, f"mean.{name}"))
        require(ok, f"mean.{name}", mean[name], "a finite number")
        check_above(f"std.{name}", convert(std[name], float, f"std.{name}"))


def laid_over(options: Options, given: dict[str, Any]) -> Options:
    """The options with the arguments that were given (not None) in their place, checked alike."""
    table = {key: list(v) if isinstance(v, tuple) else v for key, v in given.items()}
    mine: Options = build(Options, {k: v for k, v in table.items() if v is not None}, "")
    changes = {k: v for k, v in vars(mine).items() if v is not None}
    if mine.test_fraction is not None:
        changes["split"] = None
    elif mine.split is not None:
        changes["test_fraction"] = None
    return dataclasses.replace(options, **changes)

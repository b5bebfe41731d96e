"""Configuration: a TOML table, a Python call and a command-line flag mean the same thing.

Every part is a function or a frozen dataclass whose parameters are its configuration. `build`
calls it with the values of a table, after checking every key and every type against its
signature; `resolved` is the inverse: the table with every default filled in. There is no second
list of options to keep in step.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np

from .attacks import ATTACKS, Attack
from .data import DATA
from .data.partition import PARTITIONS, Partition
from .errors import MusterError, nearest, unknown
from .federation import Federation
from .invite import INVITES, Invite
from .local import Local
from .methods import METHODS, Method
from .models import MODELS, Spec
from .participation import PARTICIPATIONS, Participation
from .schedules import SCHEDULES, Schedule
from .solo import with_solo

Table = dict[str, Any]

# Parts that are chosen by kind inside another part's table.
KINDS: dict[Any, Mapping[str, Callable[..., Any]]] = {
    Schedule: SCHEDULES,
    Invite: INVITES,
    Partition: PARTITIONS,
    Participation: PARTICIPATIONS,
    Attack: ATTACKS,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything about an experiment that is not data, model, method or local work.

    name               results go to OUT/NAME, numbered when that exists
    rounds             communication rounds
    seed               the seed of a single run
    seeds              the seeds of a comparison: a count, or a list
    dtype              float32 or float64
    engine             auto, stacked or loop
    device             cpu or cuda
    processes          of the loop engine; default: one for each core
    participation      flexible: clients leave when the model fails their requirement
    attack             what some clients do instead of their part
    evaluate_every     measure the model every n rounds (0: only after the last)
    checkpoint_every   save the state every n rounds
    report_at          rounds whose numbers a comparison prints; default: the last
    out                the folder all results go to
    """

    name: str = "run"
    rounds: int = 200
    seed: int = 0
    seeds: int | tuple[int, ...] = 5
    dtype: Literal["float32", "float64"] = "float32"
    engine: Literal["auto", "stacked", "loop"] = "auto"
    device: str = "cpu"
    processes: int | None = None
    participation: Participation | None = None
    attack: Attack | None = None
    evaluate_every: int = 1
    checkpoint_every: int = 50
    report_at: tuple[int, ...] = ()
    out: str = "runs"

    def __post_init__(self) -> None:
        for field, value in (("seeds", self.seeds), ("rounds", self.rounds)):
            if isinstance(value, int) and value < 1:
                raise MusterError(f"{field}: {value}; allowed: whole numbers from 1")
        for at in self.report_at:
            if not 1 <= at <= self.rounds:
                raise MusterError(f"report_at: {at}; allowed: rounds 1 to {self.rounds}")
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise MusterError(f"name: '{self.name}'; give a plain folder name")

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of a comparison."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def rounds_reported(self) -> tuple[int, ...]:
        """The rounds whose numbers are printed."""
        return self.report_at or (self.rounds,)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A checked configuration: what to run, and the tables it came from with defaults filled in."""

    settings: Settings
    data: Table
    model: Table
    methods: dict[str, Table]
    local: Local
    requirement: Local | float | None = None

    def federation(self, seed: int) -> Federation:
        """The data of one seed, with the clients' requirements where they have any: a constant, or
        what each gets alone."""
        fed: Federation = choose("data", DATA, self.data, extra={"seed": seed})
        if self.requirement is None:
            return fed
        if isinstance(self.requirement, Local):
            s = self.settings
            how = {"dtype": s.dtype, "engine": s.engine, "device": s.device}
            return with_solo(fed, self.spec(), self.requirement, seed, **how)
        return dataclasses.replace(fed, requirement=np.full(fed.n, float(self.requirement)))

    def spec(self) -> Spec:
        """The model."""
        return typing.cast(Spec, choose("model", MODELS, self.model))

    def method(self, label: str) -> Method:
        """One of the methods, by its label."""
        return typing.cast(Method, choose("method", METHODS, self.methods[label]))

    def resolved(self) -> Table:
        """The whole configuration as a table, every default written out."""
        return {
            **plain(self.settings),
            "data": resolved(DATA, self.data, skip=("seed",)),
            "model": resolved(MODELS, self.model),
            "local": plain(self.local),
            **({} if self.requirement is None else {"requirement": plain(self.requirement)}),
            "methods": [
                {"label": label, **resolved(METHODS, table)}
                for label, table in self.methods.items()
            ],
        }


def load_table(path: str | Path) -> Table:
    """Read a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text())
    except FileNotFoundError:
        raise MusterError(f"{path}: no such file; give a TOML configuration") from None
    except IsADirectoryError:
        raise MusterError(f"{path}: is a folder; give a TOML configuration") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MusterError(f"{path}: not valid TOML: {error}") from None


def experiment(table: Table) -> Experiment:
    """Check a whole configuration; every mistake is found before anything runs."""
    table = dict(table)
    data = named("data", table.pop("data", {"name": "synth"}))
    model = named("model", table.pop("model", {"name": "softmax"}))
    local = build(Local, _table("local", table.pop("local", {"steps": 5})), "local")
    requirement = table.pop("requirement", None)
    if isinstance(requirement, dict):
        requirement = build(
            Local, ({} if "epochs" in requirement else {"steps": 100}) | requirement, "requirement"
        )
    elif requirement is not None and not _fits(requirement, float):
        raise MusterError(f"requirement: {requirement!r}; give a number, or a table (steps, lr)")
    if "method" in table and "methods" in table:
        raise MusterError("method and methods: give one method, or a list of methods, not both")
    given = table.pop("methods", None)
    if given is None:
        given = [table.pop("method", {"name": "fedalign"})]
    if not isinstance(given, list) or not given:
        raise MusterError("methods: give a list of tables, each with a name")
    methods: dict[str, Table] = {}
    for entry in given:
        chosen = named("method", entry)
        label = chosen.pop("label", chosen["name"])
        if not isinstance(label, str) or not label or "/" in label:
            raise MusterError(f"method label: {label!r}; give a plain name")
        if label in methods:
            raise MusterError(f"methods: two are called '{label}'; give them different labels")
        methods[label] = chosen
    also = ("data", "model", "local", "method", "methods", "requirement")
    settings = build(Settings, table, "", also=also)
    result = Experiment(settings, data, model, methods, local, requirement)
    check_keys(_entry("data", DATA, data), data, "data", skip=("seed",))
    result.spec()
    for label in methods:
        result.method(label)
    return result


def named(where: str, value: Any) -> Table:
    """A table with a name; a bare string is a name."""
    table = {"name": value} if isinstance(value, str) else dict(_table(where, value))
    if not isinstance(table.get("name"), str):
        raise MusterError(f"{where}: which one? give {where}.name")
    return table


def _table(where: str, value: Any) -> Table:
    if not isinstance(value, dict):
        raise MusterError(f"{where}: {value!r}; give a table of settings")
    return value


def _entry(
    kind: str, registry: Mapping[str, Callable[..., Any]], table: Table
) -> Callable[..., Any]:
    if table["name"] not in registry:
        raise unknown(kind, table["name"], registry)
    return registry[table["name"]]


def choose(
    kind: str,
    registry: Mapping[str, Callable[..., Any]],
    table: Table,
    extra: Table | None = None,
) -> Any:
    """Build the entry a table names. `extra` values are ours to give, not the user's."""
    target = _entry(kind, registry, table)
    values = {key: value for key, value in table.items() if key != "name"}
    return build(target, values, kind, given=extra or {})


def parameters(target: Callable[..., Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """A part's parameters and their types."""
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    names = inspect.signature(target).parameters
    return {name: hints.get(name, Any) for name in names if name not in skip}


def check_keys(
    target: Callable[..., Any],
    table: Table,
    where: str,
    skip: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> None:
    """Refuse unknown keys with the nearest known one, and values of the wrong type."""
    allowed = parameters(target, skip)
    dot = f"{where}." if where else ""
    for key, value in table.items():
        if key == "name" and "name" not in allowed:
            continue
        if key not in allowed:
            raise MusterError(f"unknown key '{dot}{key}'; {nearest(key, [*allowed, *also])}")
        convert(value, allowed[key], dot + key)


def build(
    target: Callable[..., Any],
    table: Table,
    where: str,
    given: Table | None = None,
    also: tuple[str, ...] = (),
) -> Any:
    """Call a part with the values of a table, checked against its signature."""
    given = given or {}
    check_keys(target, table, where, tuple(given), also)
    allowed = parameters(target)
    dot = f"{where}." if where else ""
    values = {key: convert(v, allowed[key], dot + key) for key, v in table.items()}
    missing = [
        name
        for name, p in inspect.signature(target).parameters.items()
        if p.default is p.empty and name not in values and name not in given
    ]
    if missing:
        raise MusterError(f"{dot}{missing[0]}: missing; it has no default")
    return target(**values, **given)


def convert(value: Any, kind: Any, where: str) -> Any:
    """A TOML value as the type a parameter asks for, or an error that names it."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        for option in sorted(inner, key=lambda k: k is float):
            if _fits(value, option):
                return convert(value, option, where)
        raise MusterError(f"{where}: {value!r}; allowed: {describe(kind)}")
    if not _fits(value, kind):
        raise MusterError(f"{where}: {value!r}; allowed: {describe(kind)}")
    if kind in KINDS:
        table = {"kind": value} if isinstance(value, str) else dict(value)
        name = table.pop("kind", None)
        if name not in KINDS[kind]:
            raise MusterError(f"{where}.kind: {name!r}; {nearest(str(name or ''), KINDS[kind])}")
        return build(KINDS[kind][name], table, where)
    if origin is tuple:
        return tuple(convert(v, inner[0], f"{where}[{i}]") for i, v in enumerate(value))
    if kind is float:
        return float(value)
    return value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a TOML value can be of this type at all."""
    origin = get_origin(kind)
    if kind in KINDS:
        return isinstance(value, (str, dict))
    if origin is Literal:
        return value in get_args(kind)
    if origin in (tuple, list) or kind in (tuple, list):
        return isinstance(value, list)
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str)
    return kind is type(None) and value is None


def describe(kind: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(str(v) for v in inner)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(describe(k) for k in inner if k is not type(None)))
    if kind in KINDS:
        return f"a table with kind = {' | '.join(KINDS[kind])}"
    if origin is tuple:
        return f"a list, each {describe(inner[0])}"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(
        kind, str(kind)
    )


def plain(value: Any) -> Any:
    """A part as the table it would be written as; None (a default) is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = next((n for reg in KINDS.values() for n, c in reg.items() if c is type(value)), None)
        head = {} if kind is None else {"kind": kind}
        return {**head, **{k: v for k, v in fields.items() if v is not None}}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None}
    return value


def resolved(
    registry: Mapping[str, Callable[..., Any]], table: Table, skip: tuple[str, ...] = ()
) -> Table:
    """A named table with its part's defaults filled in."""
    target = registry[table["name"]]
    defaults = {
        name: p.default
        for name, p in inspect.signature(target).parameters.items()
        if p.default is not p.empty and name not in skip
    }
    return typing.cast(Table, plain({"name": table["name"], **defaults, **table}))


def override(table: Table, flags: list[tuple[str, str]]) -> Table:
    """Lay command-line flags (`method.epsilon`, "0.3") over a table.

    A bare `--method NAME` chooses anew, so it replaces the whole table of the method before.
    """
    table = {k: dict(v) if isinstance(v, dict) else v for k, v in table.items()}
    for key, text in flags:
        value = parse_value(text)
        *path, last = key.split(".")
        if not path:
            if last in ("data", "model", "method") and isinstance(value, str):
                value = {"name": value}
            if last == "method":
                table.pop("methods", None)
            table[last] = value
            continue
        if path == ["method"] and "method" not in table:
            only = table.pop("methods", [])
            if len(only) > 1:
                raise MusterError(f"--{key}: the configuration has several methods; which one?")
            table["method"] = named("method", only[0]) if only else {"name": "fedalign"}
        inner: Any = table
        for step in path:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                raise MusterError(f"--{key}: '{step}' is not a table here")
        inner[last] = value
    for name, default in (("data", "synth"), ("model", "softmax")):
        if isinstance(table.get(name), dict):
            table[name].setdefault("name", default)
    return table


def parse_value(text: str) -> Any:
    """A flag's value, read as TOML would read it; anything else is text.

    >>> parse_value("0.3"), parse_value("[1, 2]"), parse_value("fedavg"), parse_value("true")
    (0.3, [1, 2], 'fedavg', True)
    """
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text

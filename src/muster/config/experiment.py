"""Configuration: a TOML table, a Python call and a command-line flag mean the same thing.

An experiment is data, a model, methods, local work, requirements and settings. Everything is
checked before anything runs, by the rules of `schema`.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import MusterError
from ..base.registry import INSTALLED, Catalogue, catalogue
from ..base.schema import (
    Table,
    as_named_table,
    as_table,
    build,
    check_depth,
    check_keys,
    choose,
    convert,
    fits,
    parameters,
    resolve,
    to_table,
)
from ..base.untrusted_files import NotRegular, read_toml
from ..data import DATA
from ..data.files.tabular import ENDINGS
from ..data.split.tuning_rows import for_tuning, leave_out
from ..federation import Federation
from ..federation.federation import as_importance, as_requirement
from ..local import Local
from ..methods import Method
from ..models.specs import Spec
from ..run.job import Job
from ..run.solo import with_solo
from ..run.training_loop import Keep
from ..tasks.base import target_kind
from .dotted_keys import rename_keys
from .network import Member, Network, check_members, counted_rows, members_by_name
from .settings import Settings


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A checked configuration: what to run, and the tables it came from with defaults filled in.

    Attributes:
        data: who holds what: a data set by name, or a path to files
        model: what is trained
        method: what runs
        methods: a list of methods in its place, each with a name and, where wanted, a label and a
            `local` of its own, laid over the one for all
        local: what a client does in a round
        requirement: what clients ask of the model: a number, or the work each does alone to set its
            own
        network: the terms of a real federation
        clients: a list of who may take part in one, each with a name and a key
    """

    settings: Settings
    data: Table
    model: Table
    methods: dict[str, Table]
    local: Local
    requirement: Local | float | None = None
    network: Network = Network()
    members: tuple[Member, ...] = ()
    importance: float | tuple[float, ...] | None = None
    own_local: dict[str, Local] = dataclasses.field(default_factory=dict)
    parts: Catalogue = dataclasses.field(default=INSTALLED, compare=False, repr=False)

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """The job of each method, by its label, with the seed of a single run."""
        s = self.settings
        spec: Spec = choose(Spec, self.model, "model", parts=self.parts)
        return {
            label: Job(
                composed(table, self.parts),
                spec,
                self.own_local.get(label, self.local),
                s.rounds,
                s.seed,
                s.participation,
                s.attack,
                s.task,
                s.decide_on,
                s.tuned_steps,
            )
            for label, table in self.methods.items()
        }

    @property
    def job(self) -> Job:
        """The job of the only method."""
        (job,) = self.jobs.values()
        return job

    @property
    def spec(self) -> Spec:
        """The model to train, before it knows the shapes of the data."""
        return typing.cast(Spec, next(iter(self.jobs.values())).model)

    @property
    def keep(self) -> Keep:
        """How often runs are measured and saved."""
        s = self.settings
        return Keep(s.evaluate_every, checkpoint_every=s.checkpoint_every)

    def federation(self, seed: int, tuning: float | None = None) -> Federation:
        """The data of one seed, with the clients' requirements where they have any: a constant, or
        what each gets alone. With `tuning`, that share of each client's training rows in place of
        its test rows, or the rows that are left out (`muster.data.for_tuning`)."""
        fed, left_out = self.rows(seed), self.settings.left_out
        if tuning is not None:
            fed = for_tuning(fed, left_out or tuning, seed, apart=left_out > 0)
        elif left_out:
            fed = leave_out(fed, left_out)
        fed = self._counted(fed)
        if self.importance is not None:
            a = as_importance(self.importance, fed.priority) * ~fed.unseen
            fed = dataclasses.replace(fed, importance=a)
        if self.requirement is None:
            return fed
        if isinstance(self.requirement, Local):
            s = self.settings
            return with_solo(fed, self.spec, self.requirement, seed, task=s.task, compute=s.compute)
        rho = np.full(fed.n, float(self.requirement))
        return dataclasses.replace(fed, requirement=as_requirement(rho, fed.n))

    def rows(self, seed: int) -> Federation:
        """The data of one seed as it is."""
        fed: Federation = choose(
            Federation, self.read_as(), "data", extra={"seed": seed}, parts=self.parts
        )
        return fed

    def read_as(self) -> Table:
        """The data with what else decides how files are read: the task, and the network's terms."""
        data = self.data
        takes = parameters(self.parts.find(Federation, data["name"], "data.name"))
        if "targets" in takes and target_kind(self.settings.task) == "numbers":
            data = {"targets": "numbers", **data}
        agreed = as_read(self.network, takes)
        for key, value in agreed.items():
            if key in data and to_table(data[key]) != value:
                raise MusterError(
                    f"data.{key}: {data[key]!r}, and network.{key} is {value!r}; leave the first "
                    "out, or give the same"
                )
        return {**agreed, **data}

    def _counted(self, fed: Federation) -> Federation:
        """The data with the rows that the listed clients count for over a network."""
        if not self.members:
            return fed
        members = members_by_name(self.members, fed)
        if fed.names is None:
            fed = dataclasses.replace(fed, names=np.array([m.name for m in members], np.str_))
        rows = counted_rows(fed.sizes, members, fed.priority, self.network.max_share)
        fewer = int((rows != fed.sizes).sum())
        if not fewer:
            return fed
        said = f"{fewer} clients count for other numbers of rows than they hold"
        note = f"{fed.note}; {said}" if fed.note else said
        return dataclasses.replace(fed, counted=rows, note=note)

    def with_keys(self) -> Experiment:
        """The same with every member's key as text, so that no file is needed to read it."""
        members = tuple(dataclasses.replace(m, key=m.public_key().strip()) for m in self.members)
        return dataclasses.replace(self, members=members)

    def resolved(self) -> Table:
        """The whole configuration as a table, every default written out."""
        importance = {} if self.importance is None else {"importance": to_table(self.importance)}
        own = {label: {"local": to_table(local)} for label, local in self.own_local.items()}
        return {
            **to_table(self.settings),
            "data": resolve(Federation, self.data, skip=("seed",), parts=self.parts) | importance,
            "model": resolve(Spec, self.model, parts=self.parts),
            "local": to_table(self.local),
            **({} if self.requirement is None else {"requirement": to_table(self.requirement)}),
            **({} if self.network == Network() else {"network": to_table(self.network)}),
            **({"clients": [to_table(m) for m in self.members]} if self.members else {}),
            "methods": [
                {"label": label, **resolve(Method, table, parts=self.parts), **own.get(label, {})}
                for label, table in self.methods.items()
            ],
        }


def as_read(network: Network, takes: typing.Container[str]) -> Table:
    """How clients read their own files over a network, as settings of the data: simulated, they do
    the same."""
    for key in network.reading:
        if key not in takes:
            raise MusterError(
                f"network.{key}: it is for clients' own files, and this data has no {key}; "
                "simulate with data from files, or leave it out"
            )
    return {key: to_table(value) for key, value in network.reading.items()}


def load_table(path: str | Path, follow: bool = True) -> Table:
    """Read a TOML file; one in a folder of results is no link to follow."""
    try:
        table = read_toml(Path(path), follow)
    except FileNotFoundError:
        raise MusterError(f"{path}: no such file; give a TOML configuration") from None
    except IsADirectoryError:
        raise MusterError(f"{path}: is a folder; give a TOML configuration") from None
    except NotRegular:
        raise
    except ValueError as error:
        raise MusterError(f"{path}: not valid TOML: {error}") from None
    return rename_keys(table)


def load(table: Table, trusted: bool = False) -> Experiment:
    """Check a whole configuration; every mistake is found before anything runs.

    Args:
        trusted: the table is the user's own: parts may be named by their import path, and that code
            runs. A table that came from elsewhere reaches installed parts only, and imports nothing
    """
    check_depth(table, "configuration")
    parts = catalogue(trusted)
    table = rename_keys(table)
    for command in ("sweep", "tune"):
        if command in table:
            raise MusterError(
                f"{command}: this configuration has lists of values to try; run it with muster "
                f"{command}, or leave [{command}] out"
            )
    data = data_table(table.pop("data", {"name": "synth"}))
    maker = parts.find(Federation, data["name"], "data.name")
    # Any data can be given weights of the objective, unless it takes them itself.
    importance = None if "importance" in parameters(maker) else data.pop("importance", None)
    if importance is not None:
        importance = convert(importance, float | tuple[float, ...], "data.importance")
    model = as_named_table("model", table.pop("model", {"name": "softmax"}))
    shared = as_table("local", table.pop("local", {}))
    local = local_work(shared, "local", parts)
    requirement = table.pop("requirement", None)
    if isinstance(requirement, dict):
        requirement = build(Local, with_steps(requirement, 100), "requirement", parts=parts)
    elif requirement is not None and not fits(requirement, float):
        raise MusterError(f"requirement: {requirement!r}; give a number, or a table (steps, lr)")
    if "method" in table and "methods" in table:
        raise MusterError("method and methods: give one method, or a list of methods, not both")
    given = table.pop("methods", None)
    if given is None:
        given = [table.pop("method", {"name": "fedalign"})]
    if not isinstance(given, list) or not given:
        raise MusterError("methods: give a list of tables, each with a name")
    methods: dict[str, Table] = {}
    own_local: dict[str, Local] = {}
    for item in given:
        chosen = as_named_table("method", item)
        label = chosen.pop("label", chosen["name"])
        if not isinstance(label, str) or not label or "/" in label:
            raise MusterError(f"method label: {label!r}; give a plain name")
        if label in methods:
            raise MusterError(f"methods: two are called '{label}'; give them different labels")
        if "local" in chosen:
            own = as_table(f"methods.{label}.local", chosen.pop("local"))
            own_local[label] = local_work(laid_over(shared, own), f"methods.{label}.local", parts)
        methods[label] = trusting(chosen, table.get("trust"), is_federated(table), parts)
    network = build(Network, as_table("network", table.pop("network", {})), "network", parts=parts)
    listed = table.pop("clients", [])
    if not isinstance(listed, list):
        raise MusterError("clients: give a list of tables, each with a name and a key")
    members = tuple(build(Member, as_table("clients", m), "clients", parts=parts) for m in listed)
    check_members(members)
    also = ("data", "model", "local", "method", "methods", "requirement", "network", "clients")
    settings = build(Settings, table, "", also=also, parts=parts)
    result = Experiment(
        settings, data, model, methods, local, requirement, network, members, importance, own_local,
        parts,
    )  # fmt: skip
    check_keys(maker, data, "data", skip=("seed",), also=("importance",), parts=parts)
    assert result.jobs  # built, and so checked
    return result


def is_federated(table: Table) -> bool:
    """Whether a configuration is that of a real federation: it has a network, or a list of
    clients. Simulated, it means the same."""
    return "network" in table or "clients" in table


def trusting(method: Table, trust: Any, federated: bool, parts: Catalogue = INSTALLED) -> Table:
    """A method's table with its trust written out, where it does not say itself.

    >>> trusting({"name": "fedalign"}, None, federated=True)
    {'name': 'fedalign', 'trust': True}
    """
    if "trust" in method or trust is False or (trust is None and not federated):
        return method
    maker = parts.find(Method, method["name"], "method.name")
    if "trust" in parameters(maker):
        return {**method, "trust": True}
    if trust is None or composed(method, parts).serves == "own":
        return method
    return {**method, "trust": {"kind": "audit"}}


def composed(table: Table, parts: Catalogue = INSTALLED) -> Method:
    """The method a table describes: a named one with its parameters, any part of it replaced.

    >>> composed({"name": "fedavg", "solver": {"kind": "sgd", "prox": 0.1}}).solver
    SGD(prox=0.1)
    """
    maker = parts.find(Method, table["name"], "method.name")
    fields = parameters(Method, skip=("name",))
    # A key that the named method takes itself is its own; any other names a part to put in place.
    replaced = {k: v for k, v in table.items() if k in fields and k not in parameters(maker)}
    own = {k: v for k, v in table.items() if k not in replaced and k != "name"}
    method: Method = build(maker, own, "method", also=tuple(fields), parts=parts)
    if not replaced:
        return method
    others = {k: convert(v, fields[k], f"method.{k}", parts) for k, v in replaced.items()}
    refuse_lost(method, maker, own, others, parts)
    made = dataclasses.replace(method, **others)
    refuse_idle(made, replaced)
    return made


def refuse_idle(method: Method, given: Table) -> None:
    """Refuse a setting that no part of a method goes by. Of parts of one's own nothing is known."""
    rules = (method.join, method.admit, method.claim)
    if not all(type(rule).__module__.startswith("muster.") for rule in rules):
        return
    for key, heeded in (
        ("epsilon", method.refers),
        ("reference", method.refers),
        ("tune_steps", method.claim.needs_requirement),
    ):
        if key in given and not heeded:
            raise MusterError(
                f"method.{key}: nothing in '{method.name}' goes by it, so it would change nothing; "
                "leave it out, or give a part that does (join, admit, claim)"
            )


def refuse_lost(method: Method, maker: Any, own: Table, others: Table, parts: Catalogue) -> None:
    """Refuse a setting of a method that a part put in its place would lose without a word, such as
    `prox` next to another solver."""
    taken = inspect.signature(maker).parameters
    required = {name for name, p in taken.items() if p.default is p.empty}
    for key, value in own.items():
        less = {k: v for k, v in own.items() if k != key}
        if key in required:
            continue
        without: Method = build(maker, less, "method", parts=parts)
        for name in others:
            if getattr(method, name) != getattr(without, name):
                raise MusterError(
                    f"method.{key}: {value!r} is part of the {name} that method.{name} replaces; "
                    f"give one of the two, or say it in method.{name}"
                )


def data_table(value: Any) -> Table:
    """A data set by name; a name that is none but a path means the files there.

    >>> data_table("data/hospitals")
    {'name': 'folder', 'path': 'data/hospitals'}
    """
    table = as_named_table("data", value)
    name = table["name"]
    is_path = "/" in name or "\\" in name or name.endswith(ENDINGS) or Path(name).exists()
    if name in DATA or not is_path:
        return table
    if "path" in table:
        raise MusterError(f"data.name: '{name}' next to data.path; the name is 'folder' then")
    return {**table, "name": "folder", "path": name}


def local_work(table: Table, where: str, parts: Catalogue = INSTALLED) -> Local:
    """Local work as a table says it."""
    return typing.cast(Local, build(Local, with_steps(table, 5), where, parts=parts))


def laid_over(shared: Table, own: Table) -> Table:
    """A method's own settings of local work over those for all. Work is in steps or in epochs: one
    takes the place of the other.

    >>> laid_over({"steps": 5, "lr": 0.1}, {"epochs": 1})
    {'lr': 0.1, 'epochs': 1}
    """
    amount = {"steps", "epochs"}
    kept = {k: v for k, v in shared.items() if k not in amount or not amount & set(own)}
    return kept | own


def with_steps(table: Table, steps: int) -> Table:
    """Local work of this many steps, unless the table says how much."""
    return table if {"steps", "epochs"} & set(table) else {"steps": steps, **table}

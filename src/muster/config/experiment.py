"""The configuration of an experiment: a TOML table, a Python call and a flag mean the same.

An experiment is data, a model, methods, local work, requirements and settings. Everything is
checked before anything runs, by the rules of `base.schema`.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..base.checks import check_whole
from ..base.errors import MusterError
from ..base.registry import INSTALLED, Catalogue, catalogue
from ..base.schema import (
    Table,
    as_named_table,
    as_table,
    build,
    check_keys,
    choose,
    convert,
    fits,
    parameters,
    resolve,
    to_table,
)
from ..base.untrusted_files import NotRegular, check_depth, read_toml
from ..data import DATA
from ..data.files.tabular import ENDINGS
from ..data.split.resplit import for_tuning, leave_out
from ..federation import Federation
from ..federation.population import as_importance, as_requirement
from ..local import Local
from ..methods import Method
from ..models.specs import Spec
from ..privacy.gaussian import Gaussian
from ..privacy.refusals import check_declared
from ..run.checkpoint import Keep
from ..run.job import MOST_ROUNDS, Job
from ..run.solo import with_solo
from ..tasks.task import target_kind
from .dotted_keys import add_trust, build_method, not_methods, rename_keys
from .network import Member, Network, cap_rows, check_members, order_members
from .settings import Settings

# The keys of a configuration next to those of its settings.
TABLES = ("data", "model", "local", "method", "methods", "requirement", "network", "clients")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A checked configuration: its settings, and the tables of its data, model and methods.

    Attributes:
        data: data set by name, or a path to files
        model: model to train
        method: method to run
        methods: list of methods in its place, each with a name and optionally a label and its own
            `local`, which overrides the one for all
        local: local work of a client in a round
        requirement: loss that the model must beat for each client: a number; "alone": its loss
            after as much work alone as in this run; or a table of the local work and rounds of
            that
        network: settings of a real federation
        clients: list of the clients of a real federation, each with a name and a key
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
    alone_rounds: int = 1
    parts: Catalogue = dataclasses.field(default=INSTALLED, compare=False, repr=False)

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """The job of each method, by its label, with the seed of a single run."""
        s = self.settings
        spec: Spec = choose(Spec, self.model, "model", parts=self.parts)
        return {
            label: Job(
                build_method(table, self.parts),
                spec,
                self.own_local.get(label, self.local),
                s.rounds,
                s.seed,
                s.participation,
                s.attack,
                s.task,
                s.decide_on,
                s.tuned_steps,
                self.privacy,
            )
            for label, table in self.methods.items()
        }

    @property
    def job(self) -> Job:
        """The job of the only method."""
        (job,) = self.jobs.values()
        return job

    @property
    def privacy(self) -> Gaussian | None:
        """The differential privacy of its runs, the same for every method; None: there is none."""
        return typing.cast(Gaussian | None, self.settings.privacy)

    @property
    def spec(self) -> Spec:
        """The model to train, before it knows the shapes of the data."""
        return typing.cast(Spec, next(iter(self.jobs.values())).model)

    @property
    def keep(self) -> Keep:
        """The intervals of evaluations and checkpoints."""
        s = self.settings
        return Keep(s.evaluate_every, checkpoint_every=s.checkpoint_every)

    def federation(self, seed: int, tuning: float | None = None) -> Federation:
        """Return the data of one seed, with the clients' requirements: a constant, or the loss each
        gets alone. With `tuning`, that fraction of each client's training rows takes the place of
        its test rows, or the rows that are left out do (`muster.data.for_tuning`)."""
        fed, left_out = self.rows(seed), self.settings.left_out
        if tuning is not None:
            fed = for_tuning(fed, left_out or tuning, seed, apart=left_out > 0)
        elif left_out:
            fed = leave_out(fed, left_out)
        fed = self._cap_rows(fed)
        if self.importance is not None:
            a = as_importance(self.importance, fed.priority) * ~fed.unseen
            fed = dataclasses.replace(fed, importance=a)
        if self.requirement is None:
            return fed
        if isinstance(self.requirement, Local):
            s = self.settings
            return with_solo(
                fed,
                self.spec,
                self.alone_rounds,
                self.requirement,
                seed,
                task=s.task,
                compute=s.compute,
            )
        rho = np.full(fed.n, float(self.requirement))
        return dataclasses.replace(fed, requirement=as_requirement(rho, fed.n))

    def rows(self, seed: int) -> Federation:
        """Return the data of one seed as it is."""
        fed: Federation = choose(
            Federation, self.data_options(), "data", extra={"seed": seed}, parts=self.parts
        )
        return fed

    def data_options(self) -> Table:
        """Return the table of the data with the settings of the task and the network that decide
        how files are read."""
        data = self.data
        takes = parameters(self.parts.find(Federation, data["name"], "data.name"))
        if "targets" in takes and target_kind(self.settings.task) == "numbers":
            data = {"targets": "numbers", **data}
        agreed = get_file_options(self.network, takes)
        for key, value in agreed.items():
            if key in data and to_table(data[key]) != value:
                raise MusterError(
                    f"data.{key}: {data[key]!r}, and network.{key} is {value!r}; leave the first "
                    "out, or give the same"
                )
        return {**agreed, **data}

    def _cap_rows(self, fed: Federation) -> Federation:
        """Return the data with the numbers of rows that the listed clients count for."""
        if not self.members:
            return fed
        members = order_members(self.members, fed)
        if fed.names is None:
            fed = dataclasses.replace(fed, names=np.array([m.name for m in members], np.str_))
        rows = cap_rows(fed.sizes, members, fed.priority, self.network.max_share)
        fewer, privacy = int((rows != fed.sizes).sum()), next(iter(self.jobs.values())).privacy
        if privacy is not None:
            check_declared(privacy, declared := all(member.rows for member in members))
            fed = dataclasses.replace(fed, counted=rows) if declared else fed
        if not fewer:
            return fed
        text = f"{fewer} clients count for other numbers of rows than they hold"
        note = f"{fed.note}; {text}" if fed.note else text
        return dataclasses.replace(fed, counted=rows, note=note)

    def with_keys(self) -> Experiment:
        """Return the experiment with every member's keys as text, so that no file is needed."""
        members = tuple(
            dataclasses.replace(m, key=m.public_key().strip(), sum_key=m.public_sum_key().strip())
            for m in self.members
        )
        return dataclasses.replace(self, members=members)

    def resolve_requirement(self) -> Any:
        """Return the requirement as a configuration has it; one round alone needs no number."""
        alone = {"rounds": self.alone_rounds} if self.alone_rounds > 1 else {}
        table = to_table(self.requirement)
        return alone | table if isinstance(table, dict) else table

    def resolve(self) -> Table:
        """Return the whole configuration as a table, with every default."""
        importance = {} if self.importance is None else {"importance": to_table(self.importance)}
        own = {label: {"local": to_table(local)} for label, local in self.own_local.items()}
        return {
            **to_table(self.settings),
            "data": resolve(Federation, self.data, skip=("seed",), parts=self.parts) | importance,
            "model": resolve(Spec, self.model, parts=self.parts),
            "local": to_table(self.local),
            **({} if self.requirement is None else {"requirement": self.resolve_requirement()}),
            **({} if self.network == Network() else {"network": to_table(self.network)}),
            **({"clients": [to_table(m) for m in self.members]} if self.members else {}),
            "methods": [
                {"label": label, **resolve(Method, table, parts=self.parts), **own.get(label, {})}
                for label, table in self.methods.items()
            ],
        }


def get_file_options(network: Network, takes: typing.Container[str]) -> Table:
    """Return the settings by which clients read their files over a network, as settings of the
    data: simulated clients use the same."""
    for key in network.reading:
        if key not in takes:
            raise MusterError(
                f"network.{key}: it is for clients' own files, and this data has no {key}; "
                "simulate with data from files, or leave it out"
            )
    return {key: to_table(value) for key, value in network.reading.items()}


def load_table(path: str | Path, follow: bool = True) -> Table:
    """Read a TOML file; in a folder of results, links are not followed.

    `examples/NAME.toml` that is not there is the example of that name in the package, so that an
    installed wheel runs what the help shows.
    """
    packaged = Path(__file__).parents[1] / path
    example = Path(path).parent == Path("examples") and not Path(path).exists()
    try:
        table = read_toml(packaged if example and packaged.is_file() else Path(path), follow)
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
        trusted: True if the table is the user's own: parts may be named by import path, and that
            code runs. A table from elsewhere reaches installed parts only, and imports nothing
    """
    try:
        check_depth(table)
    except ValueError as error:
        raise MusterError(f"configuration: {error}; no configuration is") from None
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
    local = build_local(shared, "local", parts)
    requirement, alone_rounds = table.pop("requirement", None), 1
    if "method" in table and "methods" in table:
        raise MusterError("method and methods: give one method, or a list of methods, not both")
    given = table.pop("methods", None)
    if given is None:
        given = [table.pop("method", {"name": "fedalign"})]
    if not isinstance(given, list) or not given:
        raise not_methods(given)
    methods: dict[str, Table] = {}
    own_local: dict[str, Local] = {}
    # A real federation, simulated or not; an audit cannot be private.
    federated = ("network" in table or "clients" in table) and "privacy" not in table
    for item in given:
        chosen = as_named_table("method", item)
        label = chosen.pop("label", chosen["name"])
        if not isinstance(label, str) or not label or "/" in label:
            raise MusterError(f"method label: {label!r}; give a plain name")
        if label in methods:
            raise MusterError(f"methods: two are called '{label}'; give them different labels")
        if "local" in chosen:
            own = as_table(f"methods.{label}.local", chosen.pop("local"))
            own_local[label] = build_local(
                merge_local(shared, own), f"methods.{label}.local", parts
            )
        methods[label] = add_trust(chosen, table.get("trust"), federated, parts)
    network = build(Network, as_table("network", table.pop("network", {})), "network", parts=parts)
    listed = table.pop("clients", [])
    if not isinstance(listed, list):
        raise MusterError("clients: give a list of tables, each with a name and a key")
    members = tuple(build(Member, as_table("clients", m), "clients", parts=parts) for m in listed)
    check_members(members)
    settings = build(Settings, table, "", also=TABLES, parts=parts)
    if requirement == "alone":
        requirement = {}
    if isinstance(requirement, dict):
        requirement, alone_rounds = build_alone(requirement, local, settings.rounds, parts)
    elif requirement is not None and not fits(requirement, float):
        raise MusterError(
            f"requirement: {requirement!r}; give a number, 'alone' (as much work as in this run), "
            "or a table (rounds, steps, lr)"
        )
    result = Experiment(
        settings,
        data,
        model,
        methods,
        local,
        requirement,
        network,
        members,
        importance,
        own_local,
        alone_rounds,
        parts,
    )
    refuse_rows(maker, data)
    check_keys(maker, data, "data", skip=("seed",), also=("importance",), parts=parts)
    assert result.jobs  # built, and so checked
    return result


def refuse_rows(maker: Callable[..., Any], data: Table) -> None:
    """Refuse `data.rows` of data that is partitioned: there a partition has it."""
    takes = parameters(maker)
    if "rows" in data and "rows" not in takes and "partition" in takes:
        raise MusterError(
            f"data.rows: {data['name']} is dealt by a partition, which has the rows that priority "
            f"clients keep; give data.partition = few and data.partition.rows = {data['rows']!r}"
        )


def data_table(value: Any) -> Table:
    """Return the table of a data set by name; a path means the files there.

    >>> data_table("data/hospitals")
    {'name': 'folder', 'path': 'data/hospitals'}
    """
    table = as_named_table("data", value)
    name = table["name"]
    is_path = "/" in name or "\\" in name or name.endswith(ENDINGS) or os.path.exists(name)
    if name in DATA or not is_path:
        return table
    if "path" in table:
        raise MusterError(f"data.name: '{name}' next to data.path; the name is 'folder' then")
    return {**table, "name": "folder", "path": name}


def build_local(table: Table, where: str, parts: Catalogue = INSTALLED) -> Local:
    """Return the local work of a table."""
    return typing.cast(Local, build(Local, set_default_steps(table, 5), where, parts=parts))


def build_alone(
    requirement: Table, local: Local, rounds: int, parts: Catalogue
) -> tuple[Local, int]:
    """Return the work of a client alone: a round's, and the number of rounds.

    Without steps or epochs it is that of the run, `rounds` times `local`; steps or epochs are the
    work of one round, of which there is one unless the table has `rounds`.
    """
    given = {key: value for key, value in requirement.items() if key != "rounds"}
    own = not {"steps", "epochs"} & set(given)
    alone = requirement.get("rounds", rounds if own else 1)
    check_whole("requirement.rounds", alone, 1, MOST_ROUNDS)
    given = typing.cast(Table, to_table(local)) | given if own else given
    return typing.cast(Local, build(Local, given, "requirement", parts=parts)), int(alone)


def merge_local(shared: Table, own: Table) -> Table:
    """Override the local work for all with a method's own. Work is in steps or in epochs: one
    replaces the other.

    >>> merge_local({"steps": 5, "lr": 0.1}, {"epochs": 1})
    {'lr': 0.1, 'epochs': 1}
    """
    amount = {"steps", "epochs"}
    kept = {k: v for k, v in shared.items() if k not in amount or not amount & set(own)}
    return kept | own


def set_default_steps(table: Table, steps: int) -> Table:
    """Return local work with this many steps, unless the table has steps or epochs."""
    return table if {"steps", "epochs"} & set(table) else {"steps": steps, **table}

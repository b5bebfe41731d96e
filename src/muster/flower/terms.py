"""The terms of an experiment, the app that carries them to nodes, and the roster on the server.

The terms are the method, the model, the local work, the rounds, the requirement: everything that
decides what happens to a client's data. They travel in the app, by whose hash an owner agrees to
them, and with every request; a client that is sent other terms than were agreed on does nothing.

The app that `flwr run` sends names muster's own client and server apps and carries the terms:
nothing else goes to nodes. The roster, a file of the server's user, has the clients with their keys
and roles, and the folder of results; the server app finds it by the federation's name.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tomllib
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from ..base.errors import MusterError, first_line
from ..base.schema import Table, to_table
from ..base.untrusted_files import parse_toml
from ..config.dotted_keys import rename_keys
from ..config.experiment import Experiment, load
from ..config.network import Network, add_parties, build_committee
from ..federation import Inputs
from ..privacy.refusals import check_declared, check_group_sizes, refuse
from ..schedules import AUTO
from ..tasks.task import target_kind
from .compat import build_fab_from_disk
from .transport.keys import KeyRegistry
from .transport.private_files import write_private

MAX_TERMS = 2**20  # characters of terms, in an app or in a message

# Settings that do not concern clients, and those of the network.
SERVER_SETTINGS = (
    "data", "name", "out", "seeds", "report_at", "checkpoint_every", "processes", "evaluate_every",
    "measures", "panels", "figures",
)  # fmt: skip
SERVER_NETWORK = (
    "timeout", "enrolment_timeout", "min_clients", "max_rows", "max_share", "quorum", "retries",
    "failures", "max_levels", "advice_pairs",
)  # fmt: skip
LEFT_OPEN = ("features", "classes")  # may be set at enrolment


def shared_terms(chosen: Experiment) -> str:
    """Return the terms of an experiment as TOML: without the folder of results, the other clients
    and what may be changed before a run is resumed."""
    table = replace(add_sum_parties(chosen), members=()).resolve()
    for key in SERVER_SETTINGS:
        table.pop(key, None)
    if "network" in table:
        table["network"] = network_terms(table["network"])
    return tomli_w.dumps(table)


def add_sum_parties(chosen: Experiment) -> Experiment:
    """Return an experiment with the parties of secure sums in its network, and the committee by
    number; the experiment itself where sums are not secure."""
    privacy = chosen.privacy
    if privacy is None or not privacy.secure or not chosen.members:
        return chosen
    network, committee = add_parties(chosen.network, chosen.members, privacy.committee)
    settings = replace(chosen.settings, privacy=replace(privacy, committee=committee))
    return replace(chosen, network=network, settings=settings)


def network_terms(network: Table) -> Table:
    """Return the settings of the network that concern clients."""
    return {key: value for key, value in network.items() if key not in SERVER_NETWORK}


@lru_cache(maxsize=8)
def read_terms(text: str) -> Experiment:
    """Return the experiment that terms describe, of installed parts only: they are untrusted."""
    return load(parse_terms(text))


def parse_terms(text: str) -> Table:
    """Parse terms as a table, from which nothing is built."""
    if len(text) > MAX_TERMS:
        raise MusterError(f"terms: over {MAX_TERMS} characters; nothing was done")
    try:
        table = parse_toml(text)
    except ValueError as error:
        why = first_line(error)
        raise MusterError(f"terms: not valid TOML ({why}); nothing was done") from None
    return rename_keys(table)


@lru_cache(maxsize=8)
def check_terms(text: str, agreed: str) -> None:
    """Refuse terms other than those agreed on, before anything is built from them. The shape of a
    row and the classes may be left open by the agreement and set at enrolment."""
    sent, given = parse_terms(text), parse_terms(agreed)
    usual = network_terms(to_table(Network()))
    for table in (sent, given):
        found = table.get("network", {})
        table["network"] = {**usual, **(found if isinstance(found, dict) else {"": found})}
    accept_training(sent, given)
    for name in LEFT_OPEN:
        if not given["network"].get(name):
            sent["network"].pop(name, None)
            given["network"].pop(name, None)
    keys = sorted(sent.keys() | given.keys())
    other = [key for key in keys if as_json(sent, key) != as_json(given, key)]
    if other:
        raise MusterError(
            "terms: the server's request differs from the app that was agreed on "
            f"({', '.join(map(repr, other))}); nothing was done"
        )


def accept_training(sent: Table, given: Table) -> None:
    """Take the terms of one training of advice for those agreed on: one of their methods, under
    any label, on one of their seeds."""
    seeds, methods = given["network"].get("advice"), sent.get("methods")
    if type(seeds) is not int or seeds < 1 or not isinstance(methods, list) or len(methods) != 1:
        return
    known = given.get("methods")
    agreed = [drop_label(table) for table in known] if isinstance(known, list) else []
    if drop_label(methods[0]) in agreed:
        sent["methods"] = known
    if type(seed := sent.get("seed")) is int and 0 <= seed < seeds:
        sent["seed"] = given.get("seed")


def drop_label(table: object) -> str:
    """Return the table of a method as JSON, without the label it has in results."""
    rest = {k: v for k, v in table.items() if k != "label"} if isinstance(table, dict) else table
    return json.dumps(rest, sort_keys=True, default=str)


def as_json(table: Table, key: str) -> str:
    """Return the value of a key as JSON, in which nan equals nan; "" where it is missing."""
    return json.dumps(table[key], sort_keys=True, default=str) if key in table else ""


HOME = "MUSTER_HOME"  # the environment variable that names the folder of the server's rosters


def check_federated(chosen: Experiment) -> None:
    """Refuse an experiment that cannot run on a real federation."""
    if len(chosen.methods) != 1 and not chosen.network.advice:
        raise MusterError("methods: a federation runs one; give one [method]")
    if chosen.settings.attack is not None:
        raise MusterError("attack: a real federation has no simulated attackers; leave it out")
    if any(job.method.epsilon == AUTO for job in chosen.jobs.values()):
        raise MusterError(
            "method.epsilon: 'auto' is chosen by many simulated runs, and a federation has one; "
            "use --method assist, which needs no epsilon, or give a number, such as one found by "
            "muster tune"
        )
    check_private_network(chosen)
    if chosen.settings.left_out:
        raise MusterError(
            f"left_out: {chosen.settings.left_out}; it is for simulated runs, and nodes use all "
            "their rows: take it out"
        )


def check_private_network(chosen: Experiment) -> None:
    """Refuse settings of a private federation that would release more than its sums."""
    privacy, network = chosen.privacy, chosen.network
    if privacy is None:
        return
    check_private_terms(chosen)
    if network.quorum:
        refuse(
            f"network.quorum = {network.quorum:g}",
            "a round that is repeated or a run that ends shows who replied",
            "use network.quorum = 0: there are always as many rounds",
        )
    if privacy.secure and chosen.members:
        named = add_sum_parties(chosen)
        build_committee(named.network, named.job.get_privacy().committee)
    check_declared(privacy, all(member.rows for member in chosen.members))
    if chosen.members:
        seen = [member.priority for member in chosen.members if not member.unseen]
        check_group_sizes(privacy, sum(seen), len(seen) - sum(seen))


def check_private_terms(chosen: Experiment) -> None:
    """Refuse terms of a private federation by which nodes would release more than is accounted for.
    The server refuses them before a run, and a node whoever wrote them."""
    privacy, network = chosen.privacy, chosen.network
    if privacy is None:
        return
    if network.advice:
        refuse(
            "advice",
            "summaries of clients' losses are released without noise",
            "ask for it without privacy, where owners agree to that",
        )
    if privacy.seeded:
        raise MusterError("privacy.seeded: it is for simulations; leave it out: noise is secret")
    if network.fits:
        refuse(
            "a survey of columns (network.scale, categories, missing)",
            "statistics of clients' rows are released without noise",
            "let each node prepare its columns by public numbers",
        )
    if target_kind(chosen.settings.task) == "classes" and not network.classes:
        refuse(
            "a number of classes that is left open",
            "it is then counted in clients' labels, and released without noise",
            "give network.classes: their number, or their names in order",
        )


def build_registry(chosen: Experiment) -> KeyRegistry:
    """Return the registry of the clients that an experiment lists."""
    if not chosen.members:
        raise MusterError("clients: nobody is registered; list them as [[clients]] name, key")
    return KeyRegistry.from_members(chosen.members)


def write_app(
    folder: Path,
    chosen: Experiment,
    results: Path,
    environment: Mapping[str, str] = os.environ,
    inputs: Inputs | None = None,
) -> str:
    """Write the app of an experiment, and its roster; return the app's hash, by which owners of
    nodes agree to it.

    Args:
        results: the folder for results
        environment: of the SuperLink that will run it
        inputs: the description of clients' rows, where that is known here; saved with the model
    """
    check_federated(chosen)
    build_registry(chosen)
    name = chosen.settings.name
    table = {
        "project": {"name": "muster-federation", "version": "1.0.0", "dependencies": []},
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "muster",
                    "components": {
                        "serverapp": "muster.flower.server.app:app",
                        "clientapp": "muster.flower.client.app:app",
                    },
                    "config": {"federation": name, "terms": shared_terms(chosen)},
                }
            }
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(table))
    roster = {"folder": str(results.resolve()), "experiment": chosen.with_keys().resolve()}
    if inputs is not None:
        roster["inputs"] = json.dumps(inputs.to_dict())
    write_private(roster_path(name, environment), tomli_w.dumps(roster))
    return app_hash(folder)


def app_hash(folder: Path) -> str:
    """Return the hash of an app, as it will be sent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a library of Flower's
            bundle = build_fab_from_disk(folder)
    except (ValueError, OSError) as error:
        raise MusterError(f"{folder}: not the app of a federation ({error})") from None
    return hashlib.sha256(bundle).hexdigest()


def roster_path(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of a federation's roster."""
    home = environment.get(HOME)
    return (Path(home) if home else Path.home() / ".muster") / "federations" / f"{name}.toml"


def read_roster(config: Mapping[str, Any]) -> tuple[Experiment, Path, Inputs | None]:
    """Read the experiment of an app from its roster, with its clients; return it with the folder
    of results and the description of rows, where that is known."""
    name = str(config["federation"])
    if "/" in name or name.startswith("."):
        raise MusterError(f"federation '{name}': give a plain name")
    file = roster_path(name)
    try:
        found = tomllib.loads(file.read_text())
    except OSError as error:
        raise MusterError(
            f"{file}: the roster of this federation cannot be read ({error.strerror}); write it "
            "with `muster federate --app`, on this machine and as the superlink's user"
        ) from None
    chosen = load(found["experiment"], trusted=True)  # the roster is the server's own file
    if shared_terms(chosen) != config["terms"]:
        raise MusterError(
            f"federation '{name}': its roster has other terms than this app; write the app "
            "again with `muster federate --app`, and let the clients agree to it"
        )
    known = found.get("inputs")
    inputs = None if known is None else Inputs.from_dict(json.loads(known))
    return chosen, Path(found["folder"]), inputs


def read_app_terms(bundle: bytes) -> str:
    """Read the terms in an app as it was sent, without running any of it."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as files:
        inside = files.getinfo("pyproject.toml")
        if inside.file_size > MAX_TERMS:
            raise MusterError(f"the app's terms have over {MAX_TERMS} bytes")
        table = tomllib.loads(files.read(inside).decode())
    return str(table["tool"]["flwr"]["app"]["config"]["terms"])

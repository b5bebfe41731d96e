"""The terms of an experiment: what clients receive of it, and agree to before it starts.

The terms are the method, the model, the local work, the rounds, the requirement: everything that
decides what happens to a client's data. They travel in the app, by whose hash an owner agrees to
them, and with every request; a client that is sent other terms than were agreed on does nothing.
Other clients, and the folder of results, are the server's alone.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from functools import lru_cache

import tomli_w

from ..base.errors import MusterError, first_line
from ..base.schema import Table, check_depth, to_table
from ..config.dotted_keys import rename_keys
from ..config.experiment import Experiment, load
from ..config.network import Network

MAX_TERMS = 2**20  # characters of terms, in an app or in a message

# Settings that do not concern clients, and those of the network.
SERVER_SETTINGS = (
    "data", "name", "out", "seeds", "report_at", "checkpoint_every", "processes", "evaluate_every",
    "measures", "panels", "figures",
)  # fmt: skip
SERVER_NETWORK = (
    "timeout", "enrolment_timeout", "min_clients", "max_rows", "max_share", "quorum", "retries",
    "failures", "max_levels",
)  # fmt: skip
LEFT_OPEN = ("features", "classes")  # may be set at enrolment


def shared_terms(chosen: Experiment) -> str:
    """Return the terms of an experiment as TOML: without the folder of results, the other clients
    and what may be changed before a run is resumed."""
    table = replace(chosen, members=()).resolve()
    for key in SERVER_SETTINGS:
        table.pop(key, None)
    if "network" in table:
        table["network"] = network_terms(table["network"])
    return tomli_w.dumps(table)


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
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        why = first_line(error)
        raise MusterError(f"terms: not valid TOML ({why}); nothing was done") from None
    check_depth(table, "terms")
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


def as_json(table: Table, key: str) -> str:
    """Return the value of a key as JSON, in which nan equals nan; "" where it is missing."""
    return json.dumps(table[key], sort_keys=True, default=str) if key in table else ""

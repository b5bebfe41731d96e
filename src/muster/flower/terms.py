"""What clients are told of an experiment, and agree to before it starts: its terms.

The terms are the method, the model, the local work, the rounds, the requirement: everything that
decides what happens to a client's data. They travel in the app, by whose hash an owner agrees to
them, and with every request; a client that is told other terms than were agreed on does nothing.
Who else takes part, and where results go, is the server's alone.
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

MOST_TERMS = 2**20  # characters of terms, in an app or in a message

SERVERS = (  # settings that do not concern clients
    "data", "name", "out", "seeds", "report_at", "checkpoint_every", "processes", "evaluate_every",
    "measures", "panels", "figures",
)  # fmt: skip
SERVERS_NETWORK = (  # and those of the network
    "timeout", "enrolment_timeout", "min_clients", "max_rows", "max_share", "quorum", "retries",
    "failures", "max_levels",
)  # fmt: skip
LEFT_OPEN = ("features", "classes")  # what is agreed on as clients introduce themselves


def shared_terms(chosen: Experiment) -> str:
    """What clients must know of an experiment, as TOML: not where results go, nor who else is in
    it, nor what may be changed before a run goes on."""
    table = replace(chosen, members=()).resolve()
    for key in SERVERS:
        table.pop(key, None)
    if "network" in table:
        table["network"] = network_terms(table["network"])
    return tomli_w.dumps(table)


def network_terms(network: Table) -> Table:
    """The settings of the network that concern clients."""
    return {key: value for key, value in network.items() if key not in SERVERS_NETWORK}


@lru_cache(maxsize=8)
def read_terms(text: str) -> Experiment:
    """The experiment that terms describe, of installed parts only: they came over a network."""
    return load(parse(text))


def parse(text: str) -> Table:
    """Terms as a table, of which nothing is built."""
    if len(text) > MOST_TERMS:
        raise MusterError(f"terms: over {MOST_TERMS} characters; nothing was done")
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        why = first_line(error)
        raise MusterError(f"terms: not valid TOML ({why}); nothing was done") from None
    check_depth(table, "terms")
    return rename_keys(table)


@lru_cache(maxsize=8)
def check_agreed(said: str, agreed: str) -> None:
    """Refuse terms that are not those agreed on, before anything is built of them. What the
    agreement leaves open, the shape of a row and the classes, is as the federation found it."""
    told, given = parse(said), parse(agreed)
    usual = network_terms(to_table(Network()))
    for table in (told, given):
        found = table.get("network", {})
        table["network"] = {**usual, **(found if isinstance(found, dict) else {"": found})}
    for name in LEFT_OPEN:
        if not given["network"].get(name):
            told["network"].pop(name, None)
            given["network"].pop(name, None)
    keys = sorted(told.keys() | given.keys())
    other = [key for key in keys if as_text(told, key) != as_text(given, key)]
    if other:
        raise MusterError(
            "terms: the server asks for something else than the app that was agreed on "
            f"({', '.join(map(repr, other))}); nothing was done"
        )


def as_text(table: Table, key: str) -> str:
    """The value of a key as JSON text, in which nan equals nan; "" where it is missing."""
    return json.dumps(table[key], sort_keys=True, default=str) if key in table else ""

"""What clients are told of an experiment, and agree to before it starts: its terms.

The terms are the method, the model, the local work, the rounds, the requirement: everything that
decides what happens to a client's data. They travel in the app, by whose hash an owner agrees to
them, and with every request; a client that is told other terms than were agreed on does nothing.
Who else takes part, and where results go, is the server's alone.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import lru_cache

import tomli_w

from ..config.experiments import Experiment, experiment
from ..errors import MusterError

SERVERS = (  # settings that do not concern clients
    "data", "name", "out", "seeds", "report_at", "checkpoint_every", "processes", "evaluate_every",
    "measures", "panels", "figures",
)  # fmt: skip
SERVERS_NETWORK = (  # and those of the network
    "patience", "wait", "at_least", "most_rows", "most_share", "quorum", "retries", "strikes",
    "most_levels",
)  # fmt: skip
LEFT_OPEN = ("features", "classes")  # what is agreed on as clients introduce themselves


def shared_terms(chosen: Experiment) -> str:
    """What clients must know of an experiment, as TOML: not where results go, nor who else is in
    it, nor what may be changed before a run goes on."""
    table = replace(chosen, members=()).resolved()
    for key in SERVERS:
        table.pop(key, None)
    network = table.get("network", {})
    for key in SERVERS_NETWORK:
        network.pop(key, None)
    return tomli_w.dumps(table)


@lru_cache(maxsize=8)
def read_terms(text: str) -> Experiment:
    """The experiment that terms describe. They came over a network: no code is named in them."""
    return experiment(tomllib.loads(text), trusted=False)


def check_agreed(said: str, agreed: str) -> None:
    """Refuse terms that are not those agreed on. What the agreement leaves open, the shape of a
    row and the classes, is as the federation found it."""
    told, given = read_terms(said), read_terms(agreed)
    left = {
        name: getattr(given.network, name) for name in LEFT_OPEN if not getattr(given.network, name)
    }
    if replace(told, network=replace(told.network, **left)) != given:
        raise MusterError(
            "terms: the server asks for something else than the app that was agreed on; nothing "
            "was done"
        )

"""The trainings of advice: which method runs for whom, and the ways that clients get by it.

In a simulation each is a run of a part of the federation; over a network, a run of nodes that have
agreed to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..base.errors import MusterError, plural
from ..methods import Method, assist, fedavg, local, maxfl

ALONE, EVERYONE, ASSIST, MAXFL = "alone", "with everyone", "by assist", "by MaxFL"
METHODS: dict[str, Callable[[], Method]] = {  # by the way that a training is for
    ALONE: local,
    EVERYONE: fedavg,  # and of every pair
    ASSIST: assist,
    MAXFL: maxfl,
}
PAIRS = 8  # most clients of which every pair is trained: there are n (n - 1) / 2


@dataclass(frozen=True)
class Training:
    """One training of advice.

    Attributes:
        label: its name among all trainings
        way: the key of its method in `METHODS`
        some: numbers of the clients that take part
        priority: numbers of those it is for
        ways: the way that each client gets by it, by its number
    """

    label: str
    way: str
    some: tuple[int, ...]
    priority: tuple[int, ...]
    ways: dict[int, str]


def name_pair(name: str) -> str:
    """Return the name of the way with one other client, whatever that is called."""
    way = f"with {name}"
    return f"with client {name}" if way in METHODS else way


def list_trainings(names: Sequence[str], pairs: int = PAIRS) -> list[Training]:
    """Return the trainings of one seed: everybody alone, each pair (both learn from it), FedAvg and
    MaxFL with everyone, and `assist` for each client in turn.

    Args:
        names: of the clients
        pairs: most clients of which every pair is trained

    >>> [training.label for training in list_trainings(["a", "b"])]
    ['alone', 'pair-0-1', 'assist-0', 'assist-1', 'maxfl']
    """
    if len(names) < 2:
        raise MusterError("data: a single client; advice needs at least two, to learn from others")
    everyone = tuple(range(len(names)))

    def common(label: str, way: str) -> Training:
        return Training(label, way, everyone, everyone, dict.fromkeys(everyone, way))

    found = [common("alone", ALONE)]
    if len(names) <= pairs:
        for i, j in combinations(everyone, 2):
            ways = {j: name_pair(names[i]), i: name_pair(names[j])}
            found.append(Training(f"pair-{i}-{j}", EVERYONE, (i, j), (i, j), ways))
    if len(names) > 2 or pairs < 2:  # of two, everyone is a pair
        found.append(common("everyone", EVERYONE))
    found += [Training(f"assist-{k}", ASSIST, everyone, (k,), {k: ASSIST}) for k in everyone]
    return [*found, common("maxfl", MAXFL)]


def list_methods() -> list[dict[str, str]]:
    """Return the methods of all trainings, as in a configuration."""
    return [{"label": way, "name": make().name} for way, make in METHODS.items()]


def find_first(ways: Sequence[str], clients: int) -> frozenset[str]:
    """Return the ways that are asked about first: with everyone, which of two clients is a pair,
    and by assist."""
    pairs = [way for way in ways if clients == 2 and way not in METHODS]
    return frozenset([*pairs, *{EVERYONE, ASSIST} & set(ways)])


def describe_cost(clients: int, seeds: int, rounds: int, pairs: int = PAIRS) -> str:
    """Return in a line what advice takes, and what makes it cheaper."""
    each = len(list_trainings([str(k) for k in range(clients)], pairs))
    tried = f"{plural(clients * (clients - 1) // 2, 'pair')}, " if clients <= pairs else ""
    less = ["seeds", "rounds", *(["pairs"] if tried and clients > 2 else [])]
    return (
        f"{seeds * each:,} trainings of {plural(rounds, 'round')}: {plural(seeds, 'seed')}, each "
        f"with {each} ({tried}{clients} for assist); fewer {', '.join(less[:-1])} or {less[-1]} "
        f"({', '.join(f'--{name}' for name in less)}) take less time"
    )

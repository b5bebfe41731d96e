"""Compare: several methods on matched seeds, everything else alike.

For each seed all methods get the same data, starting point and batches, so that what differs
between them is the method. `muster compare` prints what this returns.
"""

from __future__ import annotations

import inspect
import re
import typing
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from ..checks import require, whole
from ..engines.compute import How, compute_of
from ..errors import MusterError, nearest, plural, unknown
from ..federation import Federation
from ..lazy import nn
from ..local import Local
from ..methods import Method
from ..models import Spec
from ..rng import MOST
from ..run import store
from ..run.measures import named
from ..run.result import OnRound, Run
from ..run.simulate import check, simulate
from .comparison import Comparison, gathered, note, place_of

OnStart = Callable[[str, int, int], None]

SIMULATE = inspect.signature(simulate).parameters
# What `compare` gives to each run itself.
OURS = ("fed", "method", "seed", "checkpoint", "resume", "how")
CHECKED = set(inspect.signature(check).parameters) - {"fed", "method", "seed"}
NO_MATTER = ("checkpoint_every", "on_round", "processes")  # what does not change a run's numbers


class ComparisonInterrupted(KeyboardInterrupt):
    """Ctrl-C during a comparison; `comparison` holds the seeds that every method finished."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(f"interrupted after {plural(len(comparison.seeds), 'seed')}")
        self.comparison = comparison


def compare(
    data: Federation | Callable[[int], Federation],
    methods: Mapping[str, Method] | Sequence[Method],
    model: nn.Module | Spec,
    rounds: int,
    local: Local | Mapping[str, Local] = SIMULATE["local"].default,
    seeds: int | Iterable[int] = 5,
    *,
    only: Iterable[int] | None = None,
    report_at: Iterable[int] = (),
    measures: str | Iterable[str] = (),
    panels: str | Iterable[str] = (),
    folder: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
    **how: Any,
) -> Comparison:
    """Run every method on every seed and return them side by side.

    data        a federation, the same for all seeds, or a function of the seed that makes one
    methods     by label, or a list of them: then each is called by its own name, numbered when two
                have the same
    local       what a client does in a round; or that of each method, by its label
    seeds       how many, or which
    only        of these seeds, those to run now; the others are for another process, and the same
                folder
    report_at   the rounds whose numbers are printed; by default the last
    measures    what is printed and drawn, such as "loss, fairness"; by default the usual
    panels      what is drawn, where that is something else
    folder      finished runs are saved here as they finish, and not run again by another call; an
                interrupted one leaves its checkpoint and goes on from it, to the same bits
    config      what to keep with every run as its configuration
    on_start    called with label, seed and the rounds that need not be run when a run begins
    on_round    called with each round's row
    **how       everything else that `simulate` takes

    Ctrl-C raises `ComparisonInterrupted`, which holds the comparison as far as it is done.

    >>> import muster
    >>> fed = muster.data.digits(clients=10, priority=2)
    >>> methods = [muster.methods.fedalign(), muster.methods.fedavg()]
    >>> both = muster.compare(fed, methods, muster.models.Softmax(), rounds=2, seeds=2)
    >>> list(both.runs), both.seeds
    (['fedalign', 'fedavg'], (0, 1))
    """
    labelled, every = as_labelled(methods), as_seeds(seeds)
    works = by_label(local, labelled)
    now = every if only is None else as_seeds(only)
    for seed in now:
        require(seed in every, "only", seed, f"the seeds of the comparison, {list(every)}")
    whole("rounds", rounds)
    at = tuple(report_at)
    for t in at:
        whole("report_at", t, 1, rounds)
    allowed = [name for name in SIMULATE if name not in OURS] + [*How.__annotations__]
    for name in how:
        if name not in allowed:
            raise MusterError(f"compare: unknown argument '{name}'; {nearest(name, allowed)}")
    how |= {"model": model, "rounds": rounds, "on_round": on_round}
    shown = {
        "report_at": at,
        "measures": tuple(m.name for m in named(measures)) if measures else (),
        "panels": tuple(m.name for m in named(panels, "panel")) if panels else (),
    }
    keywords = {name: how.pop(name) for name in How.__annotations__ if name in how}
    compute = compute_of(how.get("compute"), typing.cast(How, keywords))
    how["compute"] = compute
    settings = {
        name: written(how.get(name, p.default))
        for name, p in SIMULATE.items()
        if name not in (*OURS, *NO_MATTER, "compute", "local")
    } | {
        f.name: written(getattr(compute, f.name)) for f in fields(compute) if f.name != "processes"
    }
    made = {
        "settings": settings,
        "methods": {label: written(method) for label, method in labelled.items()},
    }
    if len(set(map(written, works.values()))) == 1:
        settings["local"] = written(next(iter(works.values())))
    else:
        settings["local"] = "by method"
        made["local"] = {label: written(mine) for label, mine in works.items()}
    where = None if folder is None else Path(folder)
    found: dict[tuple[str, int], Run] = {}
    try:
        for seed in now:
            fed = federation_of(data, seed)
            asked = {name: how[name] for name in CHECKED if name in how}
            for label, method in labelled.items():  # the last one's error waits for no other
                check(fed, method, local=works[label], seed=seed, **asked)
            if where is not None:
                held = {str(seed): f"{fed.name} {fed!r} {fed.fingerprint()}"}
                note(where, {**made, "data": held}, labels=[*labelled], seeds=[*every], **shown)
            for label, method in labelled.items():
                place = None if where is None else place_of(where, label, seed)
                mine = {**how, "local": works[label]}
                run = one(fed, label, method, seed, place, config or {}, on_start, mine)
                found[label, seed] = run
    except KeyboardInterrupt:
        raise ComparisonInterrupted(gathered(found, labelled, now, **shown)) from None
    return gathered(found, labelled, now, **shown)


def one(
    fed: Federation,
    label: str,
    method: Method,
    seed: int,
    place: Path | None,
    config: Mapping[str, Any],
    on_start: OnStart | None,
    how: Mapping[str, Any],
) -> Run:
    """One run of a comparison: read from its folder where it is finished, from its last checkpoint
    where it has one."""
    finished = None if place is None or not store.is_run(place) else store.load(place)
    if on_start is not None:
        kept = 0 if place is None else store.checkpointed(place / "checkpoints")
        on_start(label, seed, kept if finished is None else len(finished.rounds))
    if finished is not None:
        return finished
    keep = None if place is None else place / "checkpoints"
    run = simulate(fed, method, seed=seed, checkpoint=keep, resume=keep is not None, **how)
    run = replace(run, config=dict(config))
    if place is not None and keep is not None:
        store.save(run, place)
        store.drop_checkpoints(keep)
    return run


def federation_of(data: Federation | Callable[[int], Federation], seed: int) -> Federation:
    """The data of one seed."""
    fed = data(seed) if callable(data) else data
    if not isinstance(fed, Federation):
        raise MusterError(
            f"data: {type(fed).__name__}; give a Federation, or a function of the seed that "
            "returns one"
        )
    return fed


def as_labelled(methods: Mapping[str, Method] | Sequence[Method]) -> dict[str, Method]:
    """Methods by label; without labels by name, numbered when two have the same.

    >>> from muster.methods import fedalign, fedavg
    >>> list(as_labelled([fedavg(), fedalign(0.1), fedalign(0.2)]))
    ['fedavg', 'fedalign', 'fedalign-2']
    """
    labelled: dict[str, Method] = {}
    if isinstance(methods, Mapping):
        labelled = dict(methods)
    elif isinstance(methods, Sequence) and not isinstance(methods, str):
        for method in methods:
            name = label = getattr(method, "name", str(method))
            others = count(2)
            while label in labelled:
                label = f"{name}-{next(others)}"
            labelled[label] = method
    if not labelled:
        raise MusterError("methods: give a list of methods, or a mapping from labels to methods")
    for label, method in labelled.items():
        if not isinstance(method, Method):
            raise MusterError(
                f"methods: '{label}' is a {type(method).__name__}; give methods, such as "
                "muster.methods.fedalign()"
            )
        if not isinstance(label, str) or not label or "/" in label or label.startswith("."):
            raise MusterError(f"method label: {label!r}; give a plain name")
    return labelled


def by_label(local: Local | Mapping[str, Local], labels: Iterable[str]) -> dict[str, Local]:
    """The local work of each method, by its label."""
    if not isinstance(local, Mapping):
        return dict.fromkeys(labels, local)
    labels = list(labels)
    for label in local:
        if label not in labels:
            raise unknown("method in local", str(label), labels)
    lacking = [label for label in labels if label not in local]
    if lacking:
        raise MusterError(f"local: none for '{lacking[0]}'; give one for each method, or one Local")
    return {label: local[label] for label in labels}


def as_seeds(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """The seeds of a comparison, from a count or a list."""
    if not isinstance(seeds, Iterable):
        whole("seeds", seeds)
        return tuple(range(seeds))
    every = tuple(seeds)
    for seed in every:
        whole("seeds", seed, 0, MOST)
    if not every or len(set(every)) < len(every):
        raise MusterError(f"seeds: {list(every)}; give a count, or different seeds")
    return tuple(int(seed) for seed in every)


def written(value: Any) -> str:
    """What a setting is, in words that are the same in another process."""
    if isinstance(value, nn.Module):
        digest = 0
        for name, t in value.state_dict().items():
            digest = zlib.crc32(name.encode(), digest)
            digest = zlib.crc32(t.detach().double().cpu().numpy().tobytes(), digest)
        return f"{type(value).__name__} {digest:08x}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))

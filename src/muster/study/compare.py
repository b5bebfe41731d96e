"""Compare several methods on matched seeds, everything else equal.

For each seed all methods get the same data, starting point and batches, so that they differ only in
the method. `muster compare` prints the returned comparison.
"""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from ..base.checks import check_whole, require
from ..base.errors import MusterError, nearest, plural, unknown_name
from ..base.lazy import nn
from ..base.rng import as_seeds
from ..base.untrusted_files import safe_path
from ..engines.compute import Compute, ComputeOptions, resolve_compute
from ..federation import Federation
from ..local import Local
from ..methods import Method
from ..models.specs import Spec
from ..parts.participation import Participation
from ..parts.threats.adversary import Attack
from ..privacy.gaussian import Gaussian
from ..results import store
from ..results.measures import find_measures
from ..results.run import OnRound, Run
from ..run.checkpoint import Keep
from ..run.job import DecideOn, Job
from ..run.simulate import run_job
from ..tasks.task import RowFunction, Task
from .comparison import Comparison, collect_comparison, get_run_folder, write_marker
from .workers import WorkerPool, open_folder, pack

OnStart = Callable[[str, int, int], None]


class RunSettings(TypedDict, total=False):
    """Settings of a comparison's runs as keywords: those of `Job` that all methods share, those of
    `Keep`, and those of `Compute`, as one value or separately."""

    participation: Participation | None
    attack: Attack | None
    task: Task | RowFunction
    decide_on: DecideOn
    tuned_steps: int
    privacy: Gaussian | None
    evaluate_every: int
    checkpoint_every: int
    compute: Compute | None
    engine: str
    device: str
    dtype: str
    processes: int | None


class ComparisonInterrupted(KeyboardInterrupt):
    """Ctrl-C during a comparison; `comparison` has the seeds that every method finished."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(f"interrupted after {plural(len(comparison.seeds), 'seed')}")
        self.comparison = comparison


def compare(
    data: Federation | Callable[[int], Federation],
    methods: Mapping[str, Method] | Sequence[Method],
    model: nn.Module | Spec,
    rounds: int,
    local: Local | Mapping[str, Local] = Job.local,
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
    executor: Executor | None = None,
    **how: Unpack[RunSettings],
) -> Comparison:
    """Run every method on every seed and return them side by side.

    Args:
        data: a federation, the same for all seeds, or a function of the seed that returns one
        methods: methods by label, or a list of methods, which are labelled by name and numbered
            when two have the same
        local: local work of a client in a round; or that of each method, by its label
        seeds: number of seeds, or a list of them
        only: the seeds to run now; the others are left to another process with the same folder
        report_at: rounds to print; by default the last
        measures: measures to print and draw, such as "loss, fairness"; by default the usual
        panels: measures to draw, if others
        folder: folder in which runs are saved as they finish, and not run again by another call; an
            interrupted run continues from its checkpoint, to the same bits
        config: configuration to store with every run
        on_start: called with label, seed and number of finished rounds when a run starts
        on_round: called with each round's row
        executor: a `concurrent.futures.Executor` that runs the seeds side by side (a process pool,
            Dask's `client.get_executor()`, Ray, ...); its workers must see `folder`, and data,
            methods and model are sent to them, so that they come from modules
        **how: other arguments of `simulate`

    Ctrl-C raises `ComparisonInterrupted`, which has the comparison so far.

    >>> import muster
    >>> fed = muster.data.digits(clients=10, priority=2)
    >>> methods = [muster.methods.fedalign(), muster.methods.fedavg()]
    >>> both = muster.compare(fed, methods, muster.models.Softmax(), rounds=2, seeds=2)
    >>> list(both.runs), both.seeds
    (['fedalign', 'fedavg'], (0, 1))
    """
    labelled = label_methods(methods)
    works = get_locals(local, labelled)
    for name in how:
        if name == "jobs":
            raise MusterError(
                "compare: jobs is an argument of sweep and tune; here give `executor`, such as "
                "ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('spawn'))"
            )
        if name not in RunSettings.__annotations__:
            known = RunSettings.__annotations__
            raise MusterError(f"compare: unknown argument '{name}'; {nearest(name, known)}")
    of_job = {f.name: how[f.name] for f in fields(Job) if f.name in how}  # type: ignore[literal-required]
    jobs = {
        label: Job(method, model, works[label], rounds, **of_job)
        for label, method in labelled.items()
    }
    keep = Keep(how.get("evaluate_every", 1), checkpoint_every=how.get("checkpoint_every", 10))
    one_by_one = {name: how[name] for name in ComputeOptions.__annotations__ if name in how}  # type: ignore[literal-required]
    return compare_jobs(
        data,
        jobs,
        seeds,
        compute=resolve_compute(how.get("compute"), cast(ComputeOptions, one_by_one)),
        keep=keep,
        only=only,
        report_at=report_at,
        measures=measures,
        panels=panels,
        folder=folder,
        config=config,
        on_start=on_start,
        on_round=on_round,
        executor=executor,
    )


def compare_jobs(
    data: Federation | Callable[[int], Federation],
    jobs: Mapping[str, Job],
    seeds: int | Iterable[int] = 5,
    *,
    compute: Compute = Compute(),
    keep: Keep = Keep(),
    only: Iterable[int] | None = None,
    report_at: Iterable[int] = (),
    measures: str | Iterable[str] = (),
    panels: str | Iterable[str] = (),
    folder: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Run jobs that differ in their method (and its local work) on every seed: see `compare`."""
    compute.refuse_spread("it divides one run, where a comparison has several")
    every = as_seeds(seeds)
    now = every if only is None else as_seeds(only)
    for seed in now:
        require(seed in every, "only", seed, f"the seeds of the comparison, {list(every)}")
    at = tuple(report_at)
    for t in at:
        check_whole("report_at", t, 1, next(iter(jobs.values())).rounds)
    shown = {
        "report_at": at,
        "measures": tuple(m.name for m in find_measures(measures)) if measures else (),
        "panels": tuple(m.name for m in find_measures(panels, "panel")) if panels else (),
    }
    if executor is not None:
        for name, callback in (("on_start", on_start), ("on_round", on_round)):
            if callback is not None:
                raise MusterError(
                    f"{name}: cannot be called from other processes; leave it out (`muster watch` "
                    "follows the folder), or leave executor out"
                )
        one_core = replace(compute, processes=1)
        work = SeedWork(data, dict(jobs), every, one_core, keep, shown, dict(config or {}))
        return compare_elsewhere(work, now, folder, executor)
    made = describe_jobs(jobs, compute, keep)
    where = None if folder is None else Path(folder)
    found: dict[tuple[str, int], Run] = {}
    try:
        for seed in now:
            fed = get_federation(data, seed)
            seeded = {label: job.with_seed(seed) for label, job in jobs.items()}
            # All are checked before the first runs.
            modules = {label: job.check(fed) for label, job in seeded.items()}
            if where is not None:
                held = {str(seed): f"{fed.name} {fed!r} {fed.fingerprint()}"}
                write_marker(where, {**made, "data": held}, labels=[*jobs], seeds=[*every], **shown)
            for label, job in seeded.items():
                place = None if where is None else get_run_folder(where, label, seed)
                kept = None if place is None else safe_path(place, "checkpoints")
                run = None if place is None or not store.is_run(place) else store.load(place)
                if on_start is not None:
                    before = 0 if kept is None else store.get_last_checkpoint_round(kept)
                    on_start(label, seed, before if run is None else len(run.rounds))
                if run is None:
                    saved = replace(keep, checkpoint=kept, resume=kept is not None)
                    module = modules.pop(label)
                    run = run_job(
                        fed, job, compute=compute, keep=saved, on_round=on_round, module=module
                    )
                    run = replace(run, config=dict(config or {}))
                    if place is not None and kept is not None:
                        store.save(run, place)
                        store.delete_checkpoints(kept)
                found[label, seed] = run
    except KeyboardInterrupt:
        raise ComparisonInterrupted(collect_comparison(found, jobs, now, **shown)) from None
    return collect_comparison(found, jobs, now, **shown)


@dataclass(frozen=True)
class SeedWork:
    """A comparison as it is sent to workers, which run one seed of it at a time."""

    data: Federation | Callable[[int], Federation]
    jobs: dict[str, Job]
    seeds: tuple[int, ...]
    compute: Compute
    keep: Keep
    shown: dict[str, tuple[Any, ...]]
    config: dict[str, Any]

    def check(self, seed: int) -> None:
        """Check every method with its data, without running it."""
        fed = get_federation(self.data, seed)
        for job in self.jobs.values():
            job.with_seed(seed).check(fed)

    def run(self, folder: str, seed: int) -> None:
        """Run every method on a seed, into the folder."""
        if not Path(folder).is_dir():
            raise MusterError(
                f"folder: a worker on {socket.gethostname()} does not see {folder}; give one on a "
                "disk that all machines share"
            )
        compare_jobs(
            self.data,
            self.jobs,
            self.seeds,
            compute=self.compute,
            keep=self.keep,
            only=[seed],
            report_at=self.shown["report_at"],
            measures=self.shown["measures"],
            panels=self.shown["panels"],
            folder=folder,
            config=self.config,
        )


def compare_elsewhere(
    work: SeedWork, now: Sequence[int], folder: str | Path | None, executor: Executor
) -> Comparison:
    """Run seeds in the workers of an executor, and read the comparison from its folder."""
    first = next(iter(work.jobs.values()))
    methods = {f"method {label}": job.method for label, job in work.jobs.items()}
    for field, value in {"data": work.data, "model": first.model, **methods}.items():
        pack(field, value)
    describe_jobs(work.jobs, work.compute, work.keep)
    name = "seed {}".format
    with open_folder(folder) as place, WorkerPool(executor=executor) as pool:
        for _ in pool.each(work.check, now[:1], name=name):
            place.mkdir(parents=True, exist_ok=True)
        where = str(place.absolute())
        interrupted = False
        try:
            for _ in pool.each(partial(work.run, where), now, name=name):
                pass
        except KeyboardInterrupt:
            interrupted = True
        found = {
            (label, seed): store.load(run)
            for label in work.jobs
            for seed in now
            if store.is_run(run := get_run_folder(place, label, seed))
        }
        done = collect_comparison(found, work.jobs, now, **work.shown)
        if interrupted:
            raise ComparisonInterrupted(done)
        return done


def describe_jobs(jobs: Mapping[str, Job], compute: Compute, keep: Keep) -> dict[str, Any]:
    """Return the settings that decide a comparison's numbers, as text: two calls on one folder
    must have the same."""
    first = next(iter(jobs.values()))
    shared = ("model", "rounds", "participation", "attack", "task", "decide_on", "tuned_steps")
    for name in shared:
        if any(getattr(job, name) != getattr(first, name) for job in jobs.values()):
            raise MusterError(f"jobs: they differ in {name}; only method and local may differ")
    settings = {name: describe_value(getattr(first, name)) for name in shared}
    settings["evaluate_every"] = describe_value(keep.evaluate_every)
    settings |= {
        name: describe_value(getattr(compute, name)) for name in ("engine", "device", "dtype")
    }
    works = {label: describe_value(job.local) for label, job in jobs.items()}
    same = len(set(works.values())) == 1
    settings["local"] = next(iter(works.values())) if same else "by method"
    return {
        "settings": settings,
        "methods": {label: describe_value(job.method) for label, job in jobs.items()},
        **({} if same else {"local": works}),
    }


def get_federation(data: Federation | Callable[[int], Federation], seed: int) -> Federation:
    """Return the data of one seed. If it is the same for all, seeds vary only the training."""
    fed = data(seed) if callable(data) else data
    if not isinstance(fed, Federation):
        raise MusterError(
            f"data: {type(fed).__name__}; give a Federation, or a function of the seed that "
            "returns one"
        )
    return fed if callable(data) else replace(fed, varies="training")


def label_methods(methods: Mapping[str, Method] | Sequence[Method]) -> dict[str, Method]:
    """Return methods by label; without labels by name, numbered when two have the same.

    >>> from muster.methods import fedalign, fedavg
    >>> list(label_methods([fedavg(), fedalign(0.1), fedalign(0.2)]))
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


def get_locals(local: Local | Mapping[str, Local], labels: Iterable[str]) -> dict[str, Local]:
    """Return the local work of each method, by its label."""
    if not isinstance(local, Mapping):
        return dict.fromkeys(labels, local)
    labels = list(labels)
    for label in local:
        if label not in labels:
            raise unknown_name("method in local", str(label), labels)
    lacking = [label for label in labels if label not in local]
    if lacking:
        raise MusterError(f"local: none for '{lacking[0]}'; give one for each method, or one Local")
    return {label: local[label] for label in labels}


def describe_value(value: Any) -> str:
    """Return a setting as text that is the same in another process."""
    if isinstance(value, nn.Module):
        digest = 0
        for name, t in value.state_dict().items():
            digest = zlib.crc32(name.encode(), digest)
            digest = zlib.crc32(t.detach().double().cpu().numpy().tobytes(), digest)
        return f"{type(value).__name__} {digest:08x}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))

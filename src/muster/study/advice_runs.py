"""The runs of advice: every client alone, with each other one, with everyone, and by methods.

`advice_plan.list_trainings` has those of one seed. All take the same number of local steps from the
same start. What counts is each client's loss on its own held-out rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..base.arrays import Bool
from ..base.checks import check_whole
from ..base.errors import MusterError, MusterWarning, plural
from ..base.lazy import nn, pl
from ..base.rng import as_seeds
from ..data.split.resplit import split_again
from ..engines.compute import Compute
from ..federation import Federation, Variation
from ..federation.data_warnings import find_dominant_values, find_own_classes
from ..local import Local
from ..methods import Method, fedavg
from ..models.specs import Linear, Spec
from ..report.advice_content import Advice, ClientContent
from ..report.intervals import Interval, all_runs, seed_variation
from ..report.way_content import WayContent
from ..results.run import Run
from ..run.checkpoint import Keep
from ..run.job import Job
from ..run.simulate import run_job
from ..tasks.classification import Binary, Multiclass
from ..tasks.regression import Regression
from ..tasks.task import RowFunction, Task, as_task
from .advice_plan import ALONE, METHODS, PAIRS, Training, list_trainings
from .advise import JOIN, LEAST, Cell, ClientVerdict, decide
from .compare import get_federation
from .comparison import Comparison
from .way_records import (
    LEAST_SEEDS,
    Ask,
    ClientSummary,
    SeedRecord,
    WayRecord,
    WaySummary,
    ask_model,
    ask_nothing,
    collect_trials,
    count_minority,
    has_same_rows,
    hash_held_out,
    measure,
    merge,
    summarise_client,
)
from .workers import WorkerPool, count_workers

POINTS = 10  # evaluations over the rounds, for the researcher's curves
WORK = Local(steps=10, batch_size=32, lr=0.1)

OnSeed = Callable[[int, int], None]


@dataclass(frozen=True)
class AdvicePlan:
    """The plan of advice, as it is sent to workers.

    Attributes:
        data: a federation, or a function of the seed that returns one
        job: settings of every run but method and seed
        fixed: True if the data is the same for every seed: then its rows are divided again
        watch: True if runs of alone, everyone and MaxFL are kept, with their curves
        pairs: most clients of which every pair is trained
    """

    data: Federation | Callable[[int], Federation]
    job: Job
    compute: Compute
    fixed: bool
    watch: bool
    pairs: int = PAIRS

    def federation(self, seed: int) -> Federation:
        """Return the data of a seed; everybody takes part, and roles do not matter. Warnings about
        the data are those of the first seed, and not repeated."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MusterWarning)
            fed = get_federation(self.data, seed)
            fed = split_again(fed, seed) if self.fixed else fed
        everyone = np.ones(fed.n, np.bool_)
        return for_clients(replace(fed, requirement=None), everyone, everyone)

    def run(self, fed: Federation, method: Method, seed: int, watch: bool = False) -> Run:
        """Run a method on one seed."""
        every = max(1, self.job.rounds // POINTS) if watch and self.watch else 0
        job = replace(self.job, method=method, seed=seed)
        return run_job(fed, job, compute=self.compute, keep=Keep(every))


def advise(
    data: Federation | Callable[[int], Federation],
    model: nn.Module | Spec | None = None,
    rounds: int = 20,
    local: Local = WORK,
    seeds: int | Iterable[int] = 16,
    *,
    task: Task | RowFunction | None = None,
    pairs: int = PAIRS,
    compute: Compute = Compute(),
    jobs: int = 1,
    on_seed: OnSeed | None = None,
) -> Advice:
    """Advise every client of a federation: join (with whom), help, stay out, or cannot tell.

    Args:
        data: a federation, whose rows every seed divides into training and test rows again; or a
            function of the seed that returns one and does that itself (`varies="split"`): of any
            other, the federation of the first seed is taken
        model: model to train; default: linear
        rounds: number of communication rounds of every way
        local: work of a client in a round; alone, a client takes as many steps
        seeds: number of seeds, or a list of them
        task: task of the model; default: binary for two classes, multiclass for more, regression
            for numbers
        pairs: most clients of which every pair is trained; 0: none is
        compute: engine, device, dtype and processes
        jobs: number of processes that run seeds
        on_seed: called with the numbers of finished and of all seeds

    >>> import muster
    >>> fed = muster.data.digits(clients=2, priority=2)
    >>> advice = muster.advise(fed, rounds=2, seeds=3)
    >>> sorted(advice.clients), advice["0"].verdict in ("join", "help", "stay out", "cannot tell")
    (['0', '1'], True)
    """
    compute.refuse_spread("it divides one run, where advice has many")
    chosen = as_seeds(seeds)
    check_whole("seeds", len(chosen), LEAST_SEEDS)
    check_whole("pairs", pairs, 0)
    first = get_federation(data, chosen[0])
    if first.n < 2:
        raise MusterError("data: a single client; advice needs at least two, to learn from others")
    found = choose_task(first) if task is None else as_task(task)
    job = Job(fedavg(), Linear() if model is None else model, local, rounds, chosen[0], task=found)
    fixed = not callable(data) or first.varies != "split"
    many = count_workers(jobs, len(chosen))
    alone = replace(compute, processes=1) if many > 1 else compute
    plan = AdvicePlan(first if fixed else data, job, alone, fixed, True, pairs)
    done: dict[int, SeedRecord] = {}
    with WorkerPool(many) as pool:
        for seed, record in pool.each(partial(run_seed, plan), chosen, name="seed {}".format):
            done[seed] = record
            if on_seed is not None:
                on_seed(len(done), len(chosen))
    labels = first.labels or tuple(str(c) for c in range(first.classes))
    classes = labels if first.classes == 2 else ()
    advice = conclude_runs([done[seed] for seed in chosen], rounds, classes)
    remarks = (*advice.remarks, *find_own_classes(first), *find_dominant_values(first))
    return replace(advice, remarks=remarks)


def choose_task(fed: Federation) -> Task:
    """Return the task that the targets suggest."""
    if fed.classes == 0:
        return Regression()
    return Binary() if fed.classes == 2 else Multiclass()


def for_clients(fed: Federation, some: Bool, priority: Bool) -> Federation:
    """Return the federation in which some clients take part, for these priority ones."""
    return replace(fed, priority=priority, importance=priority.astype(np.float64), unseen=~some)


def run_seed(plan: AdvicePlan, seed: int) -> SeedRecord:
    """Run every way on one seed."""
    fed = plan.federation(seed)
    names = tuple(fed.population.get_name(k) for k in range(fed.n))
    by_row = has_same_rows(fed, plan.job.task)
    ask: Ask = partial(ask_model, fed=fed, task=plan.job.task) if by_row else ask_nothing
    runs: dict[str, Run] = {}
    ways: dict[str, list[WayRecord]] = {}
    for training in list_trainings(names, plan.pairs):
        whole = len(training.priority) == fed.n
        run = plan.run(assign_roles(fed, training, runs), METHODS[training.way](), seed, whole)
        if whole:
            runs[training.way] = run
        record_training(ways, training, run, ask)
    assert fed.test is not None, "split_again and data sets hold rows out"
    return SeedRecord(
        {way: merge(records) for way, records in ways.items()},
        names,
        tuple(fed.train.sizes.tolist()),
        tuple(fed.test.sizes.tolist()),
        hash_held_out(fed) if by_row else (),
        count_minority(fed),
        fed.variation,
        runs if plan.watch else {},
    )


def record_training(
    ways: dict[str, list[WayRecord]], training: Training, run: Run, ask: Ask = ask_nothing
) -> None:
    """Add the records of a training to those of the ways that it gives."""
    for way in dict.fromkeys(training.ways.values()):
        some = np.array([training.ways.get(k) == way for k in range(len(run.final))])
        ways.setdefault(way, []).append(measure(run, some, ask))


def assign_roles(fed: Federation, training: Training, runs: Mapping[str, Run]) -> Federation:
    """Return the federation of a training; under MaxFL each client requires what it got alone."""
    everyone = np.arange(fed.n)
    some, priority = (np.isin(everyone, who) for who in (training.some, training.priority))
    if ALONE in runs and METHODS[training.way]().claim.needs_requirement:
        fed = replace(fed, requirement=runs[ALONE].final["train_loss"].to_numpy())
    return for_clients(fed, some, priority)


def conclude_runs(records: Sequence[SeedRecord], rounds: int, classes: Sequence[str]) -> Advice:
    """Return the advice that the records of all seeds give."""
    check_whole("seeds", len(records), LEAST_SEEDS)
    first = records[0]
    clients = [summarise_client(records, k) for k in range(len(first.names))]
    runs = {label: [r.runs[label] for r in records] for label in first.runs}
    data = next((run.facts.get("data", "") for run in first.runs.values()), "")
    units = describe_units(first.variation, len(records), bool(first.row_hashes))
    return conclude(
        clients, data, len(records), rounds, units, classes, runs, bool(first.row_hashes)
    )


def conclude(
    summaries: Sequence[ClientSummary],
    data: str,
    seeds: int,
    rounds: int,
    units: str,
    classes: Sequence[str],
    runs: Mapping[str, Sequence[Run]],
    by_row: bool = True,
) -> Advice:
    """Return the advice that the summaries of all clients give.

    Args:
        units: what intervals are over
        runs: those of alone and others, for the researcher's report
        by_row: True if units are rows
    """
    trials = collect_trials(summaries, by_row)
    verdicts, intervals = decide(trials)
    n = len(summaries)
    remarks = []
    if not trials.partners:
        remarks.append(
            f"pairs: not tried ({n * (n - 1) // 2} of {n} clients), so that nobody is advised to "
            "help"
        )
    names = [client.name for client in summaries]
    clients = {
        name: describe_client(summaries[k], verdicts[k], intervals, k, names)
        for k, name in enumerate(names)
    }
    return Advice(
        clients,
        data,
        seeds,
        rounds,
        count_steps(runs[ALONE][0]),
        f"{units}; each end holds at 95 % for all {len(intervals)} comparisons together (Holm)",
        LEAST,
        tuple(way for way in summaries[0].ways if way != ALONE),
        find_common_way(verdicts),
        tuple(remarks),
        tuple(classes),
        runs,
    )


def describe_units(variation: Variation, seeds: int, by_row: bool) -> str:
    """Return the line that states what intervals cover."""
    return describe_rows(seeds) if by_row else variation.interval_note(seeds)


def describe_rows(seeds: int) -> str:
    """Return the line that states that intervals are over rows."""
    return f"intervals: over each client's own rows, held out in turn by {plural(seeds, 'split')}"


def count_steps(alone: Run) -> int:
    """Return the local steps of a client in a training, of the client with the most."""
    return int(alone.clients.group_by("client").agg(pl.col("steps").sum())["steps"].max())  # type: ignore[arg-type]


def find_common_way(verdicts: Sequence[ClientVerdict]) -> str:
    """Return the way that is advised most often; "" if nobody is to join."""
    advised = [verdict.way for verdict in verdicts if verdict.verdict == JOIN]
    return max(dict.fromkeys(advised), key=advised.count, default="")


def describe_client(
    client: ClientSummary,
    verdict: ClientVerdict,
    intervals: Mapping[Cell, Interval],
    k: int,
    names: Sequence[str],
) -> ClientContent:
    """Return the advice for client k with the numbers behind it."""
    ways = {
        name: describe_way(name, way, intervals[name, k])
        for name, way in client.ways.items()
        if (name, k) in intervals
    }
    return ClientContent(
        client.name,
        verdict.verdict,
        verdict.way,
        tuple(names[j] for j in verdict.helps),
        verdict.none,
        client.thin,
        client.rows,
        client.test_rows,
        verdict.seeds,
        verdict.rows,
        describe_way(ALONE, client.ways[ALONE]),
        ways,
    )


def describe_way(name: str, way: WaySummary, gain: Interval | None = None) -> WayContent:
    """Return the numbers of one way for a client."""
    ends = None if gain is None else (gain.mean - gain.half, gain.mean, gain.mean + gain.half)
    clear = gain is not None and gain.excludes_zero
    return WayContent(
        name,
        way.loss,
        way.scores,
        ends,
        "" if gain is None or not clear else "gain" if gain.mean > 0 else "harm",
        way.up,
        way.down,
        way.outcomes,
    )


def advise_from(comparison: Comparison) -> Advice:
    """Advise by a comparison that has runs: each client's held-out loss by every method against
    that by `local`."""
    runs = comparison.matched
    alone = next((label for label, mine in runs.items() if mine[0].method == "local"), None)
    others = [label for label in runs if label != alone]
    if alone is None or not others:
        raise MusterError(
            "advise: this comparison has no runs of every client alone next to others; run it with "
            f"--method local too ({plural(len(runs), 'method')}: {', '.join(runs)})"
        )
    variation = seed_variation(all_runs(runs))
    if variation.varies == "training":
        raise MusterError(
            "advise: all seeds of this comparison have the same rows, so that its intervals say "
            "nothing of new ones; run muster advise on the data itself"
        )
    records = [
        record_seed({label: mine[i] for label, mine in runs.items()}, alone, variation)
        for i in range(len(comparison.seeds))
    ]
    steps = {label: int(mine[0].rounds["steps"].sum()) for label, mine in runs.items()}
    more = [label for label in others if steps[label] > steps[alone]]
    advice = conclude_runs(records, len(runs[alone][0].rounds), ())
    if more:
        advice = replace(
            advice, remarks=(*advice.remarks, f"more local steps than alone: {', '.join(more)}")
        )
    return replace(advice, runs=runs)


def record_seed(runs: Mapping[str, Run], alone: str, variation: Variation) -> SeedRecord:
    """Return the record of one seed of a comparison; a client's held-out rows are taken for
    the share that all clients hold out."""
    final = runs[alone].final
    rows = final["rows"].to_numpy()
    test = np.rint(rows * variation.test_rows / max(1, variation.train_rows)).astype(np.int64)
    everyone = np.ones(len(final), np.bool_)
    ways = {ALONE: measure(runs[alone], everyone)}
    ways |= {f"by {label}": measure(run, everyone) for label, run in runs.items() if label != alone}
    column = "name" if "name" in final.columns else "client"
    names = tuple(str(name) for name in final[column].to_list())
    kept = {ALONE: runs[alone]}
    sizes = tuple(rows.tolist()), tuple(test.tolist())
    held = (
        runs[alone]
        .holdings.group_by("client")
        .agg((pl.col("rows").sum() - pl.col("rows").max()).alias("rows"))
    )
    minority = tuple(held.sort("client")["rows"].to_list())
    return SeedRecord(ways, names, *sizes, (), minority, variation, kept)

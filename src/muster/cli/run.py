"""`muster run`, `muster compare` and `muster show`: from a configuration to results in a folder."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from ..base import durable
from ..base.checks import check_whole, is_whole
from ..base.errors import INTERRUPTED, MusterError, plural
from ..base.schema import Table
from ..base.untrusted_files import safe_path
from ..config.experiment import Experiment, load_table
from ..config.experiment import load as load_experiment
from ..config.keys import override, parse_value
from ..report.figure import check_figure_path, draw_figure, draw_figures
from ..report.intervals import summary as summary_of
from ..report.paper_figure import draw_paper_figure
from ..report.table_files import check_table_path, write_table, write_tables
from ..report.tables import run_table
from ..results import store
from ..results.measures import find_measures
from ..results.run import Interrupted, Run
from ..run.simulate import run_job
from ..study.compare import ComparisonInterrupted
from ..study.comparison import Comparison, is_comparison, load_comparison
from ..study.experiment_runs import check_all, compared
from ..study.load import goes_on, holds, load
from ..study.sweep_result import Sweep, is_sweep, load_sweep
from .console import say
from .progress_bar import Progress
from .tracker_options import as_trackers, told

FRUITLESS = 1  # of a run that ended and learned nothing


def configured(words: argparse.Namespace, first: Mapping[str, Any] | None = None) -> Table:
    """The configuration a line gives: its file, with the flags laid over it.

    `--method` may come several times; with the methods of a file, it takes their place. A flag
    that names something comes before those that refine it, wherever it stands. `first` are
    settings that the file may change.
    """
    table = dict(first or {})
    if words.config:
        table |= {"name": Path(words.config).stem, **load_table(words.config)}
    chosen = words.method or []
    if len(chosen) > 1:
        table.pop("method", None)
        table["methods"] = [parse_value(name) for name in chosen]
    flags = [("method", name) for name in chosen if len(chosen) == 1]
    given = {("measures" if k == "measure" else k): v for k, v in words.keys.items()}
    if len(given) < len(words.keys):
        raise MusterError("--measure: given twice, as --measures too; give it once")
    flags += sorted(given.items(), key=lambda flag: flag[0].count("."))
    table = override(table, flags)
    if "rounds" in given and "report_at" not in given:
        # A flag that shortens a file's run shortens what is printed of it.
        table = up_to(table, "report_at", table["rounds"])
    return table


def up_to(table: Table, key: str, last: Any) -> Table:
    """A table without the numbers beyond the last one in a list of it."""
    found = table.get(key)
    if not isinstance(found, list) or not is_whole(last):
        return table  # `config.load` says what is wrong
    return table | {key: [at for at in found if not is_whole(at) or at <= last]}


def whole_number(text: str | None, flag: str) -> int | None:
    """What a flag says as a whole number from 1, if it is given."""
    if text is None:
        return None
    value = parse_value(text)
    check_whole(flag, value)
    return int(value)


def one_method(words: argparse.Namespace, instead: str) -> None:
    """Refuse several methods where only one can run."""
    if len(words.method or []) > 1:
        raise MusterError(f"--method: given {len(words.method)} times; {instead}")


def resumed(words: argparse.Namespace) -> Path | None:
    """The folder of results to go on with, if one is named."""
    if words.resume is None:
        return None
    if words.config or words.keys or words.method:
        raise MusterError("--resume: goes on with the folder's own settings; give no others")
    folder = Path(words.resume)
    if not (folder / "config.toml").exists():
        raise MusterError(f"--resume {folder}: no config.toml there; give a folder of results")
    return folder


def goes_on_with(folder: Path, kind: str, trusted: bool) -> Experiment:
    """The configuration in a folder, which holds a run, a comparison or a federation, and nothing
    else. Code that it names runs only where the user said to trust it."""
    found = holds(folder) or kind
    if found != kind:
        raise MusterError(f"--resume {folder}: holds a {found}; use {goes_on(folder)}")
    return load_experiment(load_table(folder / "config.toml", follow=False), trusted)


@contextmanager
def begun(chosen: Experiment, going_on: Path | None) -> Iterator[Path]:
    """The folder results go to, with the configuration in it; a new one unless one goes on. A
    setting that proves impossible before there are results leaves no new folder behind."""
    folder = going_on or durable.new_folder(Path(chosen.settings.out) / chosen.settings.name)
    durable.write(folder / "config.toml", tomli_w.dumps(chosen.resolved()))
    try:
        yield folder
    except MusterError:
        results = (p for p in folder.rglob("*") if p.suffix in (".safetensors", ".parquet"))
        if going_on is None and next(results, None) is None:
            shutil.rmtree(folder)
        raise


def run(words: argparse.Namespace, console: Console) -> int:
    """`muster run`: one method, its results in a folder, its table on the screen."""
    several = "`muster run` runs one; use `muster compare` for several"
    trackers = as_trackers(words.track)
    going_on = resumed(words)
    if going_on is None:
        one_method(words, several)
        chosen = load_experiment(configured(words), trusted=True)
    else:
        chosen = goes_on_with(going_on, "run", words.trust_code)
    if len(chosen.methods) != 1:
        raise MusterError(f"methods: {several}")
    (label,) = chosen.methods
    s = chosen.settings
    if going_on is not None and store.is_run(going_on):
        before = store.load(going_on)
        if before.complete:
            console.print(run_table(before, s.measures))
            say(console, f"{going_on} is complete; there is nothing to go on with")
            return said_if_idle([before], console)
    fed = chosen.federation(s.seed)  # before anything is written: it may not be there
    modules = check_all(chosen, fed, s.seed)
    code = 0
    with (
        begun(chosen, going_on) as folder,
        Progress(s.rounds, console) as progress,
        told(trackers, s.name, folder, progress, console) as tell,
    ):
        place = safe_path(folder, "checkpoints")
        keep = replace(chosen.keep, checkpoint=place, resume=True)
        tell.start(label, s.seed, store.get_last_checkpoint_round(place))
        try:
            result = run_job(
                fed,
                chosen.job,
                compute=s.compute,
                keep=keep,
                on_round=tell,
                module=modules[label],
            )
        except Interrupted as stop:
            result, code = stop.run, INTERRUPTED
    if len(result.rounds) == 0:
        say(console, "interrupted before the first round was done; nothing to keep")
        return code
    result = replace(result, config=chosen.resolved())
    store.save(result, folder)
    drawn = draw_figures({label: [result]}, folder, s.figures, s.shown_in_figure)
    console.print(run_table(result, s.measures))
    if code:
        say(console, f"interrupted; go on with: muster run --resume {folder}")
    else:
        store.delete_checkpoints(folder / "checkpoints")
    say(console, closing(folder, drawn))
    return code or said_if_idle([result], console)


def closing(folder: Path, drawn: Iterable[Path], report: Path | None = None) -> str:
    """Where everything is."""
    lines = [f"results: {folder}", f"figure:  {', '.join(str(path) for path in drawn)}"]
    return "\n".join([*lines, *([f"report:  {report}"] if report else [])])


def said_if_idle(runs: Iterable[Run], console: Console) -> int:
    """The exit code of finished runs: one in which every round was skipped is no success."""
    idle = [result for result in runs if result.idle]
    for result in idle:
        say(
            console,
            f"{result.method}, seed {result.seed}: no success: every round was skipped, so nothing "
            "was learned; clients.parquet says of every client why its reply did not count",
        )
    return FRUITLESS if idle else 0


def compare(words: argparse.Namespace, console: Console) -> int:
    """`muster compare`: several methods on matched seeds, with paired intervals."""
    trackers = as_trackers(words.track)
    going_on = resumed(words)
    if going_on is None:
        chosen = load_experiment(configured(words), trusted=True)
    else:
        chosen = goes_on_with(going_on, "comparison", words.trust_code)
    s = chosen.settings
    seeds = s.all_seeds
    first = chosen.federation(seeds[0])  # as in `run`
    check_all(chosen, first, seeds[0])
    code = 0
    every = s.rounds * len(seeds) * len(chosen.methods)
    with (
        begun(chosen, going_on) as folder,
        Progress(every, console) as progress,
        told(trackers, s.name, folder, progress, console) as tell,
    ):
        try:
            result = compared(
                chosen,
                folder,
                lambda seed: first if seed == seeds[0] else chosen.federation(seed),
                on_start=tell.start,
                on_round=tell,
            )
        except ComparisonInterrupted as stop:
            result, code = stop.comparison, INTERRUPTED
    if code:
        done = f"{len(result.seeds)} of {plural(len(seeds), 'seed')} complete"
        again = f"muster compare --resume {folder}"
        say(console, f"interrupted with {done}; go on with: {again}")
    if result.seeds:
        console.print(result)
        write_tables(result.summary(), folder)
        drawn = draw_figures(result.matched, folder, s.figures, s.shown_in_figure)
        say(console, closing(folder, drawn, result.report(folder / "report.html")))
    return code or said_if_idle(chain.from_iterable(result.runs.values()), console)


def draw(words: argparse.Namespace, console: Console) -> int:
    """`muster figure FOLDER [--paper] [--wide] [--out FILE] [--panels NAME,...]`."""
    if words.folder is None:
        raise MusterError("figure: of which results? give a folder, such as runs/demo")
    folder = Path(words.folder)
    found = load(folder)
    if isinstance(found, Sweep):
        raise MusterError(f"{folder}: a sweep; draw it with: muster show {folder} --figure FILE")
    if words.wide and not words.paper:
        raise MusterError("--wide: is for --paper; give both, or neither")
    runs = {found.label: [found]} if isinstance(found, Run) else found.matched
    usual = ("paper.pdf", "paper.svg") if words.paper else ("figure.png",)
    places = [folder / name for name in usual]
    if words.out is not None:
        places = [check_figure_path(words.out, "--out")]
    chosen = found.config.get("panels", ()) if isinstance(found, Run) else found.panels
    panels = words.panels or chosen
    for place in places:
        if words.paper:
            draw_paper_figure(runs, place, panels, bool(words.wide))
        else:
            draw_figure(runs, place, panels)
    say(console, f"figure:  {', '.join(map(str, places))}")
    return 0


def show(words: argparse.Namespace, console: Console) -> int:
    """`muster show FOLDER`: the tables of results that are there already, and their figure."""
    if words.folder is None:
        raise MusterError("show: give one folder of results, such as runs/demo")
    if words.against and not (words.figure and is_sweep(Path(words.folder))):
        raise MusterError("--against: of which figure? give a sweep, and --figure FILE.png")
    if words.panels and not words.figure:
        raise MusterError("--panels: of which figure? give --figure FILE.png as well")
    out = None if words.figure is None else check_figure_path(words.figure, "--figure")
    table = None if words.table is None else check_table_path(words.table, "--table")
    folder = Path(words.folder)
    keys: Sequence[str]
    if store.is_run(folder):
        found = store.load(folder)
        measures = words.measures or found.config.get("measures", ())
        panels = words.panels or words.measures or found.config.get("panels") or measures
        console.print(run_table(found, measures))
        drawn = None if out is None else draw_figure({found.label: [found]}, out, panels)
        summary, keys = summary_of({found.label: [found]}, (len(found.rounds),), measures), ()
    elif is_sweep(folder):
        swept = load_sweep(folder)
        if words.measures:
            swept = replace(swept, measures=tuple(m.name for m in find_measures(words.measures)))
        console.print(swept)
        drawn = None if out is None else swept.figure(out, words.panels, words.against)
        summary, keys = swept.summary(), swept.keys
    elif is_comparison(folder):
        result: Comparison = load_comparison(folder)
        if not result.seeds:
            again = f"muster compare --resume {folder}"
            raise MusterError(f"{folder}: no seed is complete yet; go on with: {again}")
        if words.measures:
            result = replace(result, measures=words.measures, panels=())
        console.print(result)
        drawn = None if out is None else result.figure(out, words.panels)
        summary, keys = result.summary(), ["round"]
    elif durable.is_locked(folder / "checkpoints"):
        raise MusterError(f"{folder}: under way; follow it with: muster watch {folder}")
    elif (folder / "checkpoints").exists():
        raise MusterError(f"{folder}: not done yet; go on with: {goes_on(folder)}")
    elif (folder / "tuning.parquet").exists():
        raise MusterError(
            f"{folder}: a tuning; every score is in its tuning.parquet, and what was chosen is run "
            f"with: muster compare {folder / 'chosen.toml'}"
        )
    else:
        raise MusterError(f"{folder}: no results here; give a folder such as runs/demo")
    if table is not None:
        say(console, f"table:   {write_table(summary, table, keys)}")
    if drawn is not None:
        say(console, f"figure:  {drawn}")
    return 0

"""The command line: `muster run`, `compare`, `federate`, `keys`, `data`, `methods`, `show`.

Flags are the configuration's own keys, so a flag, a TOML line and a Python argument are checked
by the same code and fail with the same sentence.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import tomli_w
from rich.console import Console
from rich.table import Table

from .. import __version__, durable
from ..config.experiments import Experiment, Settings, experiment, load_table, override
from ..data import DATA
from ..errors import MusterError, unknown
from ..federation import Federation
from ..local import Local
from ..methods import METHODS
from ..models import MODELS
from ..registry import kinds, roles, word
from ..report.figure import figure
from ..report.tables import comparison_tables, run_table
from ..run import store
from ..run.result import Interrupted, Run
from ..run.simulate import simulate
from ..schema import Table as Config
from ..schema import plain
from . import data as data_command
from .flags import flags_of
from .progress import Progress

INTERRUPTED = 130  # the exit code shells use for Ctrl-C

EXAMPLES = """\
examples:
  muster compare examples/demo.toml                 methods against each other, matched seeds
  muster run --data digits --method fedalign        one run, everything else by default
  muster run my.toml --method.epsilon 0.4 --rounds 50
  muster run --resume runs/demo                     go on where an interrupted run stopped
  muster federate --local 4 examples/federate.toml  a real federation on this machine
  muster methods                                    what exists, with paper and formula
  muster data                                       the data sets: what is here, how to get more
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; bad input is one line on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser, commands = _parser()
    if _wants_no_help(argv) and argv[0] not in commands:
        print(f"muster: {unknown('command', argv[0], commands)}", file=sys.stderr)
        return 2
    # Everything after the command belongs to it: flags are the configuration's keys, which only
    # the configuration knows.
    arguments = parser.parse_args(argv[:1] if _wants_no_help(argv) else argv)
    console = Console()
    try:
        return commands[arguments.command](list(argv[1:]), console)
    except MusterError as error:
        print(f"muster: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        # A full disk, a folder that may not be written: the machine's fault, not a bug.
        print(f"muster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("muster: interrupted", file=sys.stderr)
        return INTERRUPTED


Command = Callable[[list[str], Console], int]


def _wants_no_help(argv: Sequence[str]) -> bool:
    return bool(argv) and not argv[0].startswith("-") and not {"-h", "--help"} & set(argv)


def _parser() -> tuple[argparse.ArgumentParser, dict[str, Command]]:
    parser = argparse.ArgumentParser(
        prog="muster",
        description="Federated learning for clients who may say no: FedALIGN, MaxFL and what "
        "they are compared with.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"muster {__version__}")
    sub = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in (
        ("run", "run one method; results go to runs/NAME"),
        ("compare", "run several methods on matched seeds; print paired intervals"),
    ):
        command = sub.add_parser(
            name,
            help=what,
            description=f"{what.capitalize()}.",
            epilog=_keys(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_argument("config", nargs="?", help="a TOML file; flags are laid over it")
        command.add_argument("--resume", metavar="FOLDER", help="go on with the results in FOLDER")
    command = sub.add_parser("federate", help="run a real federation over Flower")
    command.add_argument("config", nargs="?", help="a TOML file; flags are laid over it")
    command.add_argument("--local", metavar="N", help="N clients on this machine, all set up")
    command.add_argument("--app", metavar="DIR", help="write the app that `flwr run` takes")
    command.add_argument("--resume", metavar="FOLDER", help="go on with the results in FOLDER")
    command = sub.add_parser("keys", help="make certificates and keys for a federation")
    command.add_argument("folder", nargs="?", help="where to put them; nothing is replaced")
    command.add_argument("--server", nargs="+", metavar="HOST", help="how clients reach the server")
    command.add_argument("--clients", nargs="+", metavar="NAME", help="a key pair for each")
    sub.add_parser("methods", help="every method, with its paper, formula and parameters")
    sub.add_parser(
        "data",
        help="the data sets: list them, `get NAME`, `show NAME`",
        description=inspect.getdoc(data_command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show = sub.add_parser("show", help="print the results in a folder")
    show.add_argument("folder", nargs="?", help="such as runs/demo")
    return parser, {
        "run": run,
        "compare": compare,
        "federate": federate,
        "keys": keys,
        "methods": methods,
        "data": data_command.data,
        "show": show_folder,
    }


def _keys() -> str:
    """The configuration's keys, from the signatures themselves."""
    lines = ["keys, as flags (--rounds 50, --method.epsilon 0.3) or in the TOML file:"]
    doc = inspect.getdoc(Settings) or ""
    lines += [f"  {line}" for line in doc.split("\n\n", 1)[1].splitlines()]
    lines += ["", f"  local.{{{', '.join(plain(Local(steps=1)) | {'epochs': 1})}}}"]
    for kind, registry in (("data", DATA), ("model", MODELS), ("method", METHODS)):
        lines += ["", f"  --{kind} NAME, then --{kind}.KEY VALUE:"]
        for name, target in registry.items():
            keys = [k for k in inspect.signature(target).parameters if k != "seed"]
            text = f"{name:16}{', '.join(keys) or '-'}"
            lines += textwrap.wrap(text, 96, initial_indent="    ", subsequent_indent=" " * 20)
    lines += ["", "  where a table with a kind is asked for (--method.invite.kind fraction):"]
    for role in roles():
        lines.append(f"    {word(role):16}{', '.join(kinds(role))}")
    return "\n".join(lines)


def _experiment(words: list[str]) -> tuple[Experiment, Path | None]:
    """The checked configuration, and the folder of results it goes on with, if any."""
    config, flags = flags_of(words)
    if "resume" in flags:
        folder = Path(flags.pop("resume"))
        if config or flags:
            raise MusterError("--resume: goes on with the folder's own settings; give no others")
        if not (folder / "config.toml").exists():
            raise MusterError(f"--resume {folder}: no config.toml there; give a folder of results")
        return experiment(load_table(folder / "config.toml")), folder
    table: Config = load_table(config) if config else {}
    if config and "name" not in table:
        table["name"] = Path(config).stem
    chosen = experiment(override(table, list(flags.items())))
    return chosen, None


def _begin(chosen: Experiment, resumed: Path | None) -> Path:
    """The folder results go to, with the configuration in it; a new one unless it is resumed."""
    folder = resumed or durable.fresh(Path(chosen.settings.out) / chosen.settings.name)
    durable.write(folder / "config.toml", tomli_w.dumps(chosen.resolved()))
    return folder


def _simulate(
    chosen: Experiment, fed: Federation, label: str, seed: int, checkpoint: Path, progress: Progress
) -> Run:
    """One run of an experiment, from its last checkpoint if it has one."""
    s = chosen.settings
    progress.start(f"{label}, seed {seed}", store.checkpointed(checkpoint))
    result = simulate(
        fed,
        chosen.method(label),
        chosen.spec(),
        rounds=s.rounds,
        local=chosen.local,
        seed=seed,
        dtype=s.dtype,
        engine=s.engine,
        device=s.device,
        processes=s.processes,
        participation=s.participation,
        attack=s.attack,
        evaluate_every=s.evaluate_every,
        checkpoint=checkpoint,
        checkpoint_every=s.checkpoint_every,
        resume=True,
        on_round=progress,
    )
    return replace(result, config=chosen.resolved())


def run(words: list[str], console: Console) -> int:
    """`muster run`."""
    chosen, resumed = _experiment(words)
    if len(chosen.methods) != 1:
        raise MusterError("methods: `muster run` runs one; use `muster compare` for several")
    (label,) = chosen.methods
    seed = chosen.settings.seed
    if resumed is not None and store.is_run(resumed) and store.load(resumed).complete:
        console.print(run_table(store.load(resumed)))
        console.print(f"{resumed} is complete; there is nothing to go on with", soft_wrap=True)
        return 0
    fed = chosen.federation(seed)  # data that cannot be had is an error before anything is written
    folder = _begin(chosen, resumed)
    code = 0
    with Progress(chosen.settings.rounds, console) as progress:
        try:
            result = _simulate(chosen, fed, label, seed, folder / "checkpoints", progress)
        except Interrupted as stop:
            result, code = replace(stop.run, config=chosen.resolved()), INTERRUPTED
    if len(result.rounds) == 0:
        console.print("interrupted before the first round was done; nothing to keep")
        return code
    store.save(result, folder)
    drawn = figure({label: [result]}, folder / "figure.png")
    console.print(run_table(result))
    if code:
        console.print(f"interrupted; go on with: muster run --resume {folder}", soft_wrap=True)
    else:
        store.drop_checkpoints(folder / "checkpoints")
    console.print(f"results: {folder}\nfigure:  {drawn}", soft_wrap=True)
    return code


def compare(words: list[str], console: Console) -> int:
    """`muster compare`."""
    chosen, resumed = _experiment(words)
    s = chosen.settings
    fed = chosen.federation(s.all_seeds[0])
    folder = _begin(chosen, resumed)
    runs: dict[str, list[Run]] = {label: [] for label in chosen.methods}
    code = 0
    with Progress(s.rounds * len(s.all_seeds) * len(runs), console) as progress:
        try:
            for seed in s.all_seeds:
                if seed != s.all_seeds[0]:
                    fed = chosen.federation(seed)  # once for all methods, requirements included
                for label, mine in runs.items():
                    place = folder / f"{label}-seed{seed}"
                    if store.is_run(place):
                        progress.start(f"{label}, seed {seed}", s.rounds)
                        mine.append(store.load(place))
                        continue
                    checkpoints = place / "checkpoints"
                    result = _simulate(chosen, fed, label, seed, checkpoints, progress)
                    store.save(result, place)
                    store.drop_checkpoints(place / "checkpoints")
                    mine.append(result)
        except KeyboardInterrupt:
            code = INTERRUPTED
    # Only seeds that every method finished can be compared.
    whole = min(len(mine) for mine in runs.values())
    if code:
        console.print(
            f"interrupted with {whole} of {len(s.all_seeds)} seeds complete; "
            f"go on with: muster compare --resume {folder}",
            soft_wrap=True,
        )
    if whole:
        _report({label: mine[:whole] for label, mine in runs.items()}, s, folder, console)
    return code


def federate(words: list[str], console: Console) -> int:
    """`muster federate`."""
    return int(_flower().federate(words, console))


def keys(words: list[str], console: Console) -> int:
    """`muster keys`."""
    return int(_flower().keys(words, console))


def _flower() -> ModuleType:
    """The commands that need the extra."""
    try:
        from . import flower as command
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("flwr", "cryptography"):
            raise
        raise MusterError(
            "flower: not installed; a real federation needs: pip install 'muster-fl[flower]'"
        ) from None
    return command


def _report(runs: dict[str, list[Run]], s: Settings, folder: Path, console: Console) -> None:
    from ..report.intervals import summary

    rounds = s.rounds_reported
    console.print(*comparison_tables(runs, rounds))
    summary(runs, rounds).write_parquet(folder / "summary.parquet")
    drawn = figure(runs, folder / "figure.png")
    console.print(f"results: {folder}\nfigure:  {drawn}", soft_wrap=True)


def methods(words: list[str], console: Console) -> int:
    """`muster methods`."""
    if words == ["--markdown"]:
        print(methods_markdown())
        return 0
    if words:
        raise MusterError(f"'{words[0]}': not understood; `muster methods` takes only --markdown")
    table = Table(show_lines=True)
    for column in ("method", "what it does", "parameters"):
        table.add_column(column)
    for name, target in METHODS.items():
        signature = inspect.signature(target).parameters.values()
        table.add_row(
            name,
            inspect.getdoc(target) or "",
            "\n".join(f"{p.name} = {_shown(p.default)}" for p in signature) or "-",
        )
    console.print(table)
    return 0


def methods_markdown() -> str:
    """Every method as its parts, for docs/methods.md. Parts left at their default are blank."""
    columns = ("invite", "join", "solver", "admit", "weigh", "step", "claim", "effort")
    plain_method = METHODS["fedavg"]()
    lines = [f"| method | {' | '.join(columns)} | else |", "|---" * (len(columns) + 2) + "|"]
    for name, target in METHODS.items():
        method = target()
        cells = []
        for column in columns:
            part = getattr(method, column)
            same = part == getattr(plain_method, column) and name != "fedavg"
            cells.append("" if same else f"`{part!r}`")
        other = []
        if method.refers:
            other.append(f"`epsilon={method.epsilon!r}`")
        if method.warmup:
            other.append(f"`warmup={method.warmup}`")
        if method.serves == "own":
            other.append("judged by each client's own model")
        lines.append(f"| `{name}` | {' | '.join(cells)} | {', '.join(other)} |")
    return "\n".join(lines)


def _shown(default: Any) -> str:
    return default if isinstance(default, str) else repr(default)


def show_folder(words: list[str], console: Console) -> int:
    """`muster show FOLDER`."""
    if len(words) != 1:
        raise MusterError("show: give one folder of results, such as runs/demo")
    folder = Path(words[0])
    if (folder / "run.toml").exists():
        console.print(run_table(store.load(folder)))
        return 0
    if not (folder / "config.toml").exists():
        raise MusterError(f"{folder}: no results here; give a folder such as runs/demo")
    chosen = experiment(load_table(folder / "config.toml"))
    done = {
        label: [
            store.load(place)
            for seed in chosen.settings.all_seeds
            if ((place := folder / f"{label}-seed{seed}") / "run.toml").exists()
        ]
        for label in chosen.methods
    }
    whole = min(len(mine) for mine in done.values())
    if whole == 0:
        raise MusterError(f"{folder}: no seed is complete yet; go on with --resume {folder}")
    runs = {label: mine[:whole] for label, mine in done.items()}
    console.print(*comparison_tables(runs, chosen.settings.rounds_reported))
    return 0

"""The Flower server app: gather the registered clients, then run rounds as the simulator does.

Everything the server decides (whom to ask, whom to admit, how much each counts, how the model
moves, what is written down) is the code of the simulator, on clients that are across a network.
It holds no data. A run that is stopped, or whose server dies, goes on from its last checkpoint
when it is started again with the same folder.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ...base import params
from ...base.errors import MusterError
from ...base.params import get_dtype
from ...config.experiment import Experiment
from ...config.network import Member, Network
from ...engines.batches import needs_two_rows
from ...federation import Inputs, RowShape, Scaler, TableEncoder, TextEncoder
from ...federation.inputs import PIXELS, REAL, WHOLE
from ...models.specs import as_module
from ...report.figure import draw_figures
from ...results import store
from ...results.model import ModelRecipe
from ...results.run import OnRound, Run
from ...run.checkpoint import read_identity
from ...run.round import Setup
from ...run.training_loop import Keep, Provenance, build_initial_state, run_rounds
from ...tasks.scores import Score
from ..app_folder import check, read_roster, registered
from ..terms import shared_terms
from ..transport.private_files import for_oneself
from .enrolment import awaited, gather
from .fit_columns import Fitted, as_text, of_text, survey
from .remote_clients import Remote, Say, nothing_counted

PREFIX = "muster| "  # before every line of ours in the stream of a run's log
ERROR = "error: "  # and before the reason why a run stops

# What a checkpoint says of who counts for how many rows, and of how features are made.
COUNTED, MADE_AS, MADE_BY = "rows", "features", "fitted"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the app stands for, with the clients of its roster."""
    # Results hold weights, and what clients said.
    with for_oneself():
        try:
            chosen, place, inputs = read_roster(context.run_config)
            _run(grid, chosen, unfinished(place), inputs)
        except MusterError as error:
            log(f"{ERROR}{error}")
            raise


def _run(grid: Grid, chosen: Experiment, folder: Path, inputs: Inputs | None) -> None:
    result = federate(grid, chosen, folder, log, inputs)
    runs = {next(iter(chosen.methods)): [result]}
    draw_figures(runs, folder, chosen.settings.figures, chosen.settings.shown_in_figure)
    log(f"results: {folder}")
    if result.idle:
        raise MusterError(
            "no success: every round was skipped, so nothing was learned; clients.parquet "
            f"in {folder} says of every client why its reply did not count"
        )


def unfinished(folder: Path) -> Path:
    """Where results go: this folder or, as it holds a finished run, the first of `folder-2`,
    `folder-3`, ... that does not."""
    place, i = folder, 2
    while (place / "run.toml").exists():
        place, i = folder.with_name(f"{folder.name}-{i}"), i + 1
    return place


def log(line: str) -> None:
    """Say a line in the run's log, marked as ours."""
    print(PREFIX + line, flush=True)


def federate(
    grid: Grid, chosen: Experiment, folder: Path, say: Say = print, inputs: Inputs | None = None
) -> Run:
    """Run an experiment on the clients of a grid and save everything to a folder, like the
    simulator's; from the folder's last checkpoint, if it has one. `inputs` is how clients' rows
    were made, where that is known beforehand."""
    check(chosen)
    registry = registered(chosen)
    s, network = chosen.settings, chosen.network
    nodes = awaited(grid, registry, network, say)
    terms_told = shared_terms(chosen)
    fitted, without = kept(folder / "checkpoints", network)
    if network.fits and fitted is None:
        fitted, without = survey(grid, nodes, chosen.members, network, terms_told, s.seed)
    made_by = "" if fitted is None else as_text(fitted)
    came = gather(grid, registry, nodes, network, terms_told, s.seed, say, made_by, without)
    population = came.population()
    # Clients build the same model from the shapes that were agreed on.
    named = network.classes if isinstance(network.classes, tuple) else came.classes
    agreed = replace(network, features=came.shape, classes=named)
    text = shared_terms(replace(chosen, network=agreed))
    job, image = chosen.job, network.image or None
    space = RowShape(came.shape, came.classes, image, came.target, came.whole, network.padding)
    module = as_module(job.model, space, job.seed, job.task)
    taken = inputs or inputs_of(space, network, fitted, came.pixels)
    remote = Remote(
        grid,
        registry,
        population,
        job,
        params.trainable_names(module),
        needs_two_rows(module),
        network,
        text,
        made_by,
        params.frozen_digest(module),
        events=came.events,
        say=say,
    )
    setup = Setup(population, job, remote, network.quorum)
    start = params.get_params(module, get_dtype(s.dtype), remote.device)
    # Clients that remember keep the last two rounds: a server may fall back by one, not by more.
    often = 1 if job.has_client_state else s.checkpoint_every
    origin = Provenance(
        identity={
            "dtype": s.dtype,
            "clients": ", ".join(f"{m.name} ({role(m)})" for m in chosen.members),
            COUNTED: json.dumps(population.rows.tolist()),
            "module": params.signature(module, space.example()),
            **({MADE_AS: made_as(network), MADE_BY: made_by} if made_by else {}),
        },
        recipe=ModelRecipe.of(job.model, module, taken, job.task, job.method.serves),
    )
    result = run_rounds(
        setup,
        module,
        build_initial_state(setup, start, nothing_counted()),
        Keep(s.evaluate_every, folder / "checkpoints", often, resume=True),
        origin,
        reporter(s.rounds, say, job.scoring.first),
    )
    result = replace(result, config=chosen.resolve())
    store.save(result, folder)
    store.delete_checkpoints(folder / "checkpoints")
    return result


def inputs_of(
    space: RowShape, network: Network, fitted: Fitted | None, pixels: bool = False
) -> Inputs:
    """What the model takes. Unless that was agreed on here, what rows are made of and how they are
    scaled stays with the clients; `pixels` are scaled by nobody."""
    encoder = fitted if isinstance(fitted, TableEncoder) else None
    text = TextEncoder(network.text, network.length, network.padding or 0) if network.text else None
    kind = WHOLE if space.whole else PIXELS if pixels else ""
    columns = (text.column,) if text else encoder.columns if encoder else network.columns
    return Inputs(
        space.shape,
        space.classes,
        kind=kind if fitted is None else REAL,
        labels=network.classes if isinstance(network.classes, tuple) else None,
        image=space.image,
        columns=columns or None,
        label=network.label,
        aside=None if network.columns or network.text else (),
        scaler=fitted if isinstance(fitted, Scaler) else None,
        scaled=fitted is not None or bool(network.text) or pixels,
        target=space.target,
        encoder=encoder,
        text=text,
        resized=bool(network.resize),
        pad=space.pad,
    )


def role(member: Member) -> str:
    """What a client is to the run."""
    if member.priority:
        return "priority"
    return "unseen" if member.unseen else f"importance {member.importance:g}"


def reporter(rounds: int, say: Say, score: Score) -> OnRound:
    """Says a line a round."""

    def on_round(row: dict[str, Any]) -> None:
        loss = row.get("loss", np.nan)
        figures = f", loss {loss:.4f}" if np.isfinite(loss) else ""
        value = row.get(f"test_{score.name}", np.nan)
        figures += f", test {score.title} {value:.4f}" if np.isfinite(value) else ""
        say(
            f"round {row['round']}/{rounds}: asked {row['asked']}, admitted {row['admitted']}, "
            f"abstained {row['silent']}, failed {row['failed']}, refused {row['refused']}"
            f"{figures}, {row['seconds']:.1f} s, "
            f"up {row['bytes_up'] / 1e3:.1f} kB, down {row['bytes_down'] / 1e3:.1f} kB"
        )

    return on_round


def made_as(network: Network) -> str:
    """How features are made of columns, in a line."""
    return f"scale {network.scale}, categories {network.categories}, missing {network.missing}"


def kept(folder: Path, network: Network) -> tuple[Fitted | None, dict[int, str]]:
    """What features are made by in a run that goes on: fitted once, it stays as it is. And who
    stays out of it, because it was not in when the run began."""
    saved = read_identity(folder)
    rows = json.loads(saved.get(COUNTED, "[]"))
    late = {k: "it was not in when the run began" for k, n in enumerate(rows) if not n}
    if MADE_BY not in saved:
        return None, late
    if saved.get(MADE_AS) != made_as(network):
        raise MusterError(
            f"resume: the checkpoint in {folder} was made with {saved.get(MADE_AS)}, this run has "
            f"{made_as(network)}; resume with the same settings or use another folder"
        )
    return of_text(saved[MADE_BY]), late

"""The Flower server app: enrol the registered clients, then run rounds as the simulator does.

Every decision of the server (whom to invite and admit, weights, the step, what is saved) is the
code of the simulator, on clients that are across a network. It holds no data. A run that is
stopped, or whose server dies, resumes from its last checkpoint when it is started again with the
same folder.
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
from ...base.durable import numbered_paths
from ...base.errors import MusterError
from ...base.params import get_dtype
from ...config.experiment import Experiment
from ...config.network import Member, Network, build_committee
from ...engines.batches import needs_two_rows
from ...federation import Inputs, RowShape, Scaler, TableEncoder, TextEncoder
from ...federation.inputs import PIXELS, REAL, WHOLE
from ...models.specs import as_module
from ...report.figure import draw_figures
from ...report.html.advice import REPORT, write_page
from ...results import store
from ...results.model import ModelRecipe
from ...results.run import OnRound, Run
from ...run.checkpoint import Keep, read_identity
from ...run.round import Setup
from ...run.row_account import RowAccount
from ...run.training_loop import RunOrigin, build_initial_state, run_rounds
from ...study.advice_store import is_advice
from ...tasks.scores import Score
from ..terms import (
    add_sum_parties,
    build_registry,
    check_federated,
    read_roster,
    shared_terms,
)
from ..transport.private_files import private_umask
from ..transport.sum_wire import hash_run
from .enrolment import Enrolment, enrol, wait_for_clients
from .fit_columns import (
    Say,
    Transform,
    dump_transform,
    fit_columns,
    hash_transform,
    load_transform,
)
from .messenger import Messenger
from .network_advice import advise
from .remote_clients import RemoteClients, init_counted
from .remote_contributors import RemoteContributors, RemoteSum

PREFIX = "muster| "  # before muster's lines in the log of a Flower run
ERROR = "error: "  # and before the reason why a run stops

# Keys of a checkpoint: rows that each client counts for, settings of features, their transform.
ROWS, FEATURES, FITTED = "rows", "features", "fitted"

# Where a configuration says whose model it is.
ROLES = "priority of [[clients]], or data.priority with --local"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment of the app, with the clients of its roster."""
    # Results hold weights and clients' reports.
    with private_umask():
        try:
            chosen, place, inputs = read_roster(context.run_config)
            # A folder that holds a finished run or advice is left as it is.
            done = is_advice if chosen.network.advice else store.is_run
            free = next(p for p in numbered_paths(place) if not done(p))
            (_advise if chosen.network.advice else _run)(grid, chosen, free, inputs)
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
            f"in {folder} has the reason why each client's reply did not count"
        )


def _advise(grid: Grid, chosen: Experiment, folder: Path, inputs: Inputs | None) -> None:
    def run(mine: Experiment, place: Path, say: Say) -> Run:
        return federate(grid, mine, place, say, inputs)

    found = advise(grid, chosen, folder, run, log)
    write_page(found, folder / REPORT)
    log(found.summary())
    log(f"results: {folder}")


def log(line: str) -> None:
    """Print a line to the log of the Flower run, marked as muster's."""
    print(PREFIX + line, flush=True)


def federate(
    grid: Grid, chosen: Experiment, folder: Path, say: Say = print, inputs: Inputs | None = None
) -> Run:
    """Run an experiment on the clients of a grid and save it to a folder, as the simulator does;
    resume from the folder's last checkpoint, if it has one.

    Args:
        say: prints a line of progress
        inputs: the description of clients' rows, where that is known beforehand
    """
    check_federated(chosen)
    registry = build_registry(chosen)
    s, network = chosen.settings, chosen.network
    nodes = wait_for_clients(grid, registry, network, say)
    terms = shared_terms(chosen)
    transform, without = read_saved_transform(folder / "checkpoints", network)
    if network.fits and transform is None:
        transform, without = fit_columns(grid, nodes, chosen.members, network, terms, s.seed, say)
    transform_text = "" if transform is None else dump_transform(transform)
    enrolment = enrol(grid, registry, nodes, network, terms, s.seed, say, transform_text, without)
    population = enrolment.population()
    # Clients build the same model from these shapes.
    named = network.classes if isinstance(network.classes, tuple) else enrolment.classes
    agreed = replace(network, features=enrolment.shape, classes=named)
    text = shared_terms(replace(chosen, network=agreed))
    job, image = chosen.job, network.image or None
    space = RowShape(
        enrolment.shape,
        enrolment.classes,
        image,
        enrolment.target,
        enrolment.whole,
        network.padding,
    )
    module = as_module(job.model, space, job.seed, job.task)
    model_inputs = inputs or build_inputs(space, network, transform, enrolment.pixels)
    messenger = Messenger(
        grid,
        registry,
        population,
        job,
        needs_two_rows(module),
        network,
        text,
        transform_text,
        params.frozen_digest(module),
        enrolment.events,
        say,
    )
    remote = RemoteClients(messenger, params.trainable_names(module))
    sums = build_sums(chosen, text, transform_text, enrolment)
    contributors = RemoteContributors(messenger, sums) if job.protects_clients else None
    setup = Setup(population, job, remote, network.quorum, contributors)
    start = params.get_params(module, get_dtype(s.dtype), remote.device)
    # Clients keep their state of the last two rounds: a server may fall back by one, not by more.
    often = 1 if job.has_client_state else s.checkpoint_every
    origin = RunOrigin(
        identity={
            "dtype": s.dtype,
            "clients": ", ".join(f"{m.name} ({describe_role(m)})" for m in chosen.members),
            ROWS: json.dumps(population.rows.tolist()),
            "module": params.signature(module, space.example()),
            **(
                {FEATURES: describe_transform(network), FITTED: transform_text}
                if transform_text
                else {}
            ),
        },
        recipe=ModelRecipe.of(job.model, module, model_inputs, job.task, job.method.serves),
        row_account=RowAccount.open(job, population.sizes),
        facts={"doubts": job.find_warnings(population, ROLES)},
    )
    result = run_rounds(
        setup,
        module,
        build_initial_state(setup, start, init_counted()),
        Keep(s.evaluate_every, folder / "checkpoints", often, resume=True),
        origin,
        round_logger(s.rounds, say, job.scoring.first),
    )
    result = replace(result, config=chosen.resolve())
    store.save(result, folder)
    store.delete_checkpoints(folder / "checkpoints")
    return result


def build_sums(
    chosen: Experiment, text: str, transform: str, enrolment: Enrolment
) -> RemoteSum | None:
    """Return the server's half of secure sums, under the terms that clients are sent; None where
    sums are not secure. All of the committee must have enrolled."""
    named = add_sum_parties(chosen)
    privacy, network = named.job.privacy, named.network
    if privacy is None or not privacy.secure:
        return None
    run = hash_run(chosen.settings.seed, text, hash_transform(transform) if transform else "")
    committee = build_committee(network, privacy.committee)
    for j in committee.members:
        if not enrolment.rows[j]:
            raise MusterError(
                f"privacy.committee: {chosen.members[j].name} is not in, and no sum comes about "
                "without its masks; start its node, or name another client"
            )
    return RemoteSum(committee, run, network.precision, 1 + network.retries)


def build_inputs(
    space: RowShape, network: Network, transform: Transform | None, pixels: bool = False
) -> Inputs:
    """Return the description of the model's inputs. Unless the terms set them, the columns of rows
    and their scale stay with the clients; `pixels` are not scaled."""
    encoder = transform if isinstance(transform, TableEncoder) else None
    text = TextEncoder(network.text, network.length, network.padding or 0) if network.text else None
    kind = WHOLE if space.whole else PIXELS if pixels else ""
    columns = (text.column,) if text else encoder.columns if encoder else network.columns
    return Inputs(
        space.shape,
        space.classes,
        kind=kind if transform is None else REAL,
        labels=network.classes if isinstance(network.classes, tuple) else None,
        image=space.image,
        columns=columns or None,
        label=network.label,
        aside=None if network.columns or network.text else (),
        scaler=transform if isinstance(transform, Scaler) else None,
        scaled=transform is not None or bool(network.text) or pixels,
        target=space.target,
        encoder=encoder,
        text=text,
        resized=bool(network.resize),
        pad=space.pad,
    )


def describe_role(member: Member) -> str:
    """Return the role of a client, in words."""
    if member.priority:
        return "priority"
    return "unseen" if member.unseen else f"importance {member.importance:g}"


def round_logger(rounds: int, say: Say, score: Score) -> OnRound:
    """Return a callback that prints a line a round."""

    def on_round(row: dict[str, Any]) -> None:
        loss = row.get("loss", np.nan)
        figures = f", loss {loss:.4f}" if np.isfinite(loss) else ""
        value = row.get(f"test_{score.name}", np.nan)
        figures += f", test {score.title} {value:.4f}" if np.isfinite(value) else ""
        spent = [row[name] for name in row if name.startswith("epsilon_")]
        figures += f", epsilon {max(spent):.3f}" if spent else ""
        say(
            f"round {row['round']}/{rounds}: asked {row['asked']}, admitted {row['admitted']}, "
            f"abstained {row['silent']}, failed {row['failed']}, refused {row['refused']}"
            f"{figures}, {row['seconds']:.1f} s, "
            f"up {row['bytes_up'] / 1e3:.1f} kB, down {row['bytes_down'] / 1e3:.1f} kB"
        )

    return on_round


def describe_transform(network: Network) -> str:
    """Return the settings by which features are made from columns, in a line."""
    return f"scale {network.scale}, categories {network.categories}, missing {network.missing}"


def read_saved_transform(folder: Path, network: Network) -> tuple[Transform | None, dict[int, str]]:
    """Read the transform of features from the checkpoint of a run that is resumed.

    Returns:
        The transform, if there is one, and the reason of each client that was not enrolled when the
        run began and stays out.
    """
    saved = read_identity(folder)
    rows = json.loads(saved.get(ROWS, "[]"))
    late = {k: "it was not in when the run began" for k, n in enumerate(rows) if not n}
    if FITTED not in saved:
        return None, late
    if saved.get(FEATURES) != describe_transform(network):
        raise MusterError(
            f"resume: the checkpoint in {folder} was made with {saved.get(FEATURES)}, this run has "
            f"{describe_transform(network)}; resume with the same settings or use another folder"
        )
    return load_transform(saved[FITTED]), late

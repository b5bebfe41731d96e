"""Each client before and after training, and alone against federated.

Before is the client's loss the first time it measured the model, after is that of the last model.
Alone is its loss without the federation: that of its model where the method `local` ran on the same
seeds, else its requirement, which by default is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...results.run import Run
from .content import CLIENT_BYTES, Content, client_names
from .markup import Section, chart, column_numbers, lazy_table, paragraph, round_numbers
from .participation_section import count_events

ROLES = ("priority", "other", "unseen")
COUNTS = ("asked", "admitted", "silent", "refused", "failed")
COLUMNS = (
    *("client", "role", "rows", "before", "after", "gain", "alone", "test score"),
    *("alone test score", "useful", *COUNTS, "share of the steps"),
)


def first_score(run: Run) -> str:
    """Return the name of the task's first score, usually accuracy."""
    tested = [name.removeprefix("test_") for name in run.final.columns if name[:5] == "test_"]
    return next((name for name in tested if name != "loss"), "accuracy")


def solo_results(content: Content, run: Run, seed: int) -> tuple[list[Any], list[Any]]:
    """Return every client's loss and held-out score without the federation; None if unknown."""
    score = first_score(run)
    known = column_numbers(run.final, "requirement"), column_numbers(run.final, f"solo_{score}")
    for mine in content.runs.values():
        own = mine[seed]
        if own.recipe is not None and own.recipe.serves == "own" and len(own.final):
            # Unseen clients train nothing in that run either.
            trained = [not unseen for unseen in own.final["unseen"].to_list()]
            measured = (
                column_numbers(own.final, "train_loss"),
                column_numbers(own.final, f"test_{score}"),
            )
            loss, tested = (
                [a if there else b for there, a, b in zip(trained, new, before, strict=True)]
                for new, before in zip(measured, known, strict=True)
            )
            return loss, tested
    return known


def first_losses(run: Run) -> Float64:
    """Return the first loss that each client measured; NaN where it never did."""
    reported = run.clients.drop_nulls("loss").sort("round").group_by("client").first()
    before = np.full(len(run.final), np.nan)
    before[reported["client"].to_numpy()] = reported["loss"].to_numpy()
    return before


def client_columns(content: Content, run: Run, seed: int) -> dict[str, list[Any]]:
    """Return the table of a run's clients, by column."""
    final = run.final
    counts = final.select("client").join(count_events(run), on="client", how="left").sort("client")
    before, after = first_losses(run), final["train_loss"].cast(pl.Float64).to_numpy()
    total = max(float(counts["weight"].sum()), 1e-300)
    alone, alone_score = solo_results(content, run, seed)
    role = pl.when(pl.col("unseen")).then(2).when(pl.col("priority")).then(0).otherwise(1)
    attacker = final["attacker"].to_list() if "attacker" in final.columns else []
    return {
        "client": client_names(run),
        "role": final.select(role.alias("role"))["role"].to_list(),
        "attacker": [k for k, lies in enumerate(attacker) if lies],
        "rows": final["rows"].to_list(),
        "before": round_numbers(before),
        "after": round_numbers(after),
        "gain": round_numbers(before - after),
        "alone": alone,
        "test score": column_numbers(final, f"test_{first_score(run)}"),
        "alone test score": alone_score,
        "useful": final["useful"].cast(pl.Int8).to_list(),
        **{name: counts[name].fill_null(0).to_list() for name in COUNTS},
        "share of the steps": round_numbers((counts["weight"].fill_null(0) / total).to_numpy(), 3),
    }


def section(content: Content) -> Section:
    """Return the section: one mark and one row per client."""
    title = "Clients before and after"
    runs: dict[str, Any] = {}
    room = CLIENT_BYTES
    for m, s, run in content.enumerate_runs():
        if not len(run.final):
            continue
        room -= 90 * len(run.final)
        if room < 0 and runs:
            break
        runs[f"{m}/{s}"] = client_columns(content, run, s)
    if not runs:
        text = "The last model has not been evaluated on the clients yet."
        return Section("clients", title, paragraph(text))
    known = any(v is not None for run in runs.values() for v in run["alone"])
    text = paragraph(
        "Training loss of each client: hollow, the first time it measured the model; filled, at "
        "the last model. A line that goes down is a gain.",
        "The dash is its loss alone, without the federation."
        if known
        else "The clients' losses alone were not measured: add the method `local`, or a "
        "[requirement], and they are drawn here.",
    )
    body = (
        f'{text}<div class="pick" data-sorts="1"></div>'
        f"{chart('gains', 'clients', 'loss of each client before and after')}"
        f"{lazy_table('All clients in a table', 'clients')}"
    )
    score = first_score(content.all_runs[0]).replace("_", " ")
    data = {"roles": ROLES, "score": score, "columns": COLUMNS, "alone": known, "runs": runs}
    return Section("clients", title, body, data)

"""Each client before and after, and alone against federated.

Before is its loss the first time it measured the model, after is that of the last model. Alone is
what it has without the federation: where each client's own model was run on the same seeds (method
`local`), that model's loss; otherwise what it requires, which by default is the same thing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...results.run import Run
from .content import CLIENTS, Story, column, names_of, numbers
from .markup import Section, behind, chart, paragraph
from .participation import counts_of

ROLES = ("priority", "other", "unseen")
COLUMNS = (
    "client", "role", "rows", "before", "after", "gain", "alone", "test score",
    "alone test score", "useful", "asked", "admitted", "silent", "refused", "failed",
    "share of the steps",
)  # fmt: skip


def score_of(run: Run) -> str:
    """What the task's first score is called: accuracy, as a rule."""
    tested = [name.removeprefix("test_") for name in run.final.columns if name[:5] == "test_"]
    return next((name for name in tested if name != "loss"), "accuracy")


def alone_of(story: Story, run: Run, seed: int) -> tuple[list[Any], list[Any]]:
    """Every client's loss and held-out score without the federation; Nones where not known."""
    score = score_of(run)
    known = column(run.final, "requirement"), column(run.final, f"solo_{score}")
    for mine in story.runs.values():
        own = mine[seed]
        if own.recipe is not None and own.recipe.serves == "own" and len(own.final):
            # Unseen clients train nothing, there either.
            trained = [not unseen for unseen in own.final["unseen"].to_list()]
            told = column(own.final, "train_loss"), column(own.final, f"test_{score}")
            loss, tested = (
                [a if there else b for there, a, b in zip(trained, new, before, strict=True)]
                for new, before in zip(told, known, strict=True)
            )
            return loss, tested
    return known


def first_losses(run: Run) -> Float64:
    """The loss each client measured first; NaN where it never did."""
    heard = run.clients.drop_nulls("loss").sort("round").group_by("client").first()
    before = np.full(len(run.final), np.nan)
    before[heard["client"].to_numpy()] = heard["loss"].to_numpy()
    return before


def columns_of(story: Story, run: Run, seed: int) -> dict[str, list[Any]]:
    """The table of a run's clients, by column."""
    final = run.final
    counted = final.select("client").join(counts_of(run), on="client", how="left").sort("client")
    before, after = first_losses(run), final["train_loss"].cast(pl.Float64).to_numpy()
    total = max(float(counted["weight"].sum()), 1e-300)
    alone, alone_score = alone_of(story, run, seed)
    role = pl.when(pl.col("unseen")).then(2).when(pl.col("priority")).then(0).otherwise(1)
    attacker = final["attacker"].to_list() if "attacker" in final.columns else []
    return {
        "client": names_of(run),
        "role": final.select(role.alias("role"))["role"].to_list(),
        "attacker": [k for k, lies in enumerate(attacker) if lies],
        "rows": final["rows"].to_list(),
        "before": numbers(before),
        "after": numbers(after),
        "gain": numbers(before - after),
        "alone": alone,
        "test score": column(final, f"test_{score_of(run)}"),
        "alone test score": alone_score,
        "useful": final["useful"].cast(pl.Int8).to_list(),
        **{
            name: counted[name].fill_null(0).to_list()
            for name in ("asked", "admitted", "silent", "refused", "failed")
        },
        "share of the steps": numbers((counted["weight"].fill_null(0) / total).to_numpy(), 3),
    }


def section(story: Story) -> Section:
    """One mark for each client, and one row."""
    title = "Each client, before and after"
    shown: dict[str, Any] = {}
    room = CLIENTS
    for m, s, run in story.numbered():
        if not len(run.final):
            continue
        room -= 90 * len(run.final)
        if room < 0 and shown:
            break
        shown[f"{m}/{s}"] = columns_of(story, run, s)
    if not shown:
        said = "The last model was not measured on the clients yet."
        return Section("clients", title, paragraph(said))
    known = any(v is not None for run in shown.values() for v in run["alone"])
    said = paragraph(
        "Training loss of each client: hollow, the first time it measured the model; filled, the "
        "last model. A line that goes down is a gain.",
        "The dash is what it has alone."
        if known
        else "What clients have alone was not measured: add the method `local`, or a "
        "[requirement], and it is drawn here.",
    )
    body = (
        f'{said}<div class="pick" data-sorts="1"></div>'
        f"{chart('gains', 'clients', 'loss of each client before and after')}"
        f"{behind('Every client in a table', 'clients')}"
    )
    score = score_of(story.every[0]).replace("_", " ")
    data = {"roles": ROLES, "score": score, "columns": COLUMNS, "alone": known, "runs": shown}
    return Section("clients", title, body, data)

"""Privacy: the account of each method, and the page of released numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import MusterError
from ...results.privacy_statement import keep_released, state_privacy
from ...results.run import Run
from .content import Content
from .markup import Section, paragraph, table

TITLE = "Privacy"
HEAD = {  # columns, by the key of the fact
    "epsilon_objective": "epsilon, objective",
    "epsilon_others": "epsilon, others",
    "epsilon_rows": "epsilon, rows",
    "delta": "delta",
    "noise": "noise / clip",
    "clip": "clip",
    "releases": "releases",
}


def render_privacy(content: Content) -> Section:
    """Return the section: the account of each method's costliest run."""
    private = {label: find_costliest(mine) for label, mine in content.runs.items()}
    rows = [
        [label, *(_format(run.facts["privacy"].get(key)) for key in HEAD)]
        for label, run in private.items()
        if run is not None
    ]
    if not rows:
        text = "No run here is private: models and all numbers of this page are exact."
        return Section("privacy", TITLE, paragraph(text))
    sentences = [
        f"{label}: {state_privacy(run.facts)}." for label, run in private.items() if run is not None
    ]
    rest = [label for label, run in private.items() if run is None]
    if rest:
        sentences.append(f"Not private: {', '.join(rest)}.")
    if len(content.seeds) > 1:
        sentences.append(
            "Each seed is a run and has its own account: where they share clients, costs add up."
        )
    sentences.append(
        "Released are the model, F(w) and this account; all else on a page that is not made with "
        "--public is for whoever runs the federation."
    )
    body = "".join(paragraph(sentence) for sentence in sentences)
    body += table("privacy", ["method", *HEAD.values()], rows, "The account of a run")
    return Section("privacy", TITLE, body)


def find_costliest(runs: Sequence[Run]) -> Run | None:
    """Return the private run with the most releases; None where there is none."""
    private = [run for run in runs if "privacy" in run.facts]
    return max(private, key=lambda run: int(run.facts["privacy"]["releases"]), default=None)


def _format(value: Any) -> str | None:
    return None if value is None else f"{value:.5g}"


def released_table(run: Run, caption: str) -> str:
    """Return the table of a run's released numbers, a row for each round."""
    rows = [keep_released(row) for row in run.rounds.iter_rows(named=True)]
    names = rows[0] if rows else ["round"]
    head = [name for name in names if any(row[name] is not None for row in rows) or not rows]
    cells = [[str(row["round"]), *(_format(row[name]) for name in head[1:])] for row in rows]
    return table("released", [name.replace("_", " ") for name in head], cells, caption)


def released_sections(content: Content) -> dict[str, Section]:
    """Return the sections of a public page: the account, and the released numbers of each round."""
    for label, mine in content.runs.items():
        for run in mine:
            if not run.facts.get("privacy", {}).get("private", False):
                why = state_privacy(run.facts) or "not private: everything is exact"
                raise MusterError(
                    f"--public: {label}, seed {run.seed} is {why}; leave --public out, or run it "
                    "with privacy and without privacy.seeded"
                )
    tables = []
    for label, mine in content.runs.items():
        for run in mine:
            tables.append(released_table(run, f"{label}, seed {run.seed}"))
    text = "Next to the model, these numbers of a round are released, and no others."
    return {
        TITLE: render_privacy(content),
        "Released": Section("released", "Released numbers", paragraph(text) + "".join(tables)),
    }

"""The runs of a report: traffic, time and local steps, and how to run them again.

Costs have what was saved by clients that stayed silent; the configuration has versions, machine,
seeds and the command that reproduces the results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tomli_w

from ...base.lazy import pl
from ...base.schema import Table
from ...results.measures import MEASURES
from ...results.run import Run
from .content import Content
from .markup import Section, escape, paragraph, table
from .measure_sections import make_panels, render_panels


def count_savings(run: Run) -> tuple[int, float, int]:
    """Return how often clients stayed silent, and the megabytes of upload and the local steps that
    saved: per silent client as much as a client that joined in the same round."""
    failed = pl.col("reason").str.starts_with("failed").fill_null(False)
    each = run.clients.group_by("round").agg(
        silent=(~pl.col("joined") & ~failed).sum(),
        up=pl.col("bytes_up").filter(pl.col("joined")).mean(),
        quiet=pl.col("bytes_up").filter(~pl.col("joined")).mean(),
        steps=pl.col("steps").filter(pl.col("joined")).mean(),
    )
    saved = pl.col("silent") * (pl.col("up") - pl.col("quiet").fill_null(0))
    silent, up, steps = each.select(
        pl.col("silent").sum(),
        up=saved.sum() / 1e6,
        steps=(pl.col("silent") * pl.col("steps")).sum(),
    ).row(0)
    return int(silent or 0), float(up or 0.0), round(steps or 0)


HEAD = {  # the columns, with their format
    "upload MB": ".2f",
    "download MB": ".2f",
    "seconds": ".1f",
    "local steps": ".0f",
    "times silent": ".0f",
    "upload MB saved": ".2f",
    "local steps saved": ".0f",
    "replies refused": ".0f",
    "no answer": ".0f",
}


def render_costs(content: Content) -> Section:
    """Return the section: the average totals of a run, and the traffic of each round."""
    rows: list[list[Any]] = []
    for label, mine in content.runs.items():
        totals = [
            run.rounds.select(
                pl.col("bytes_up", "bytes_down").sum() / 1e6,
                pl.col("seconds", "steps").sum(),
                pl.col("refused", "failed").sum(),
            ).row(0)
            for run in mine
        ]
        spent = np.mean(np.array(totals, float), axis=0).tolist()
        saved = np.mean([count_savings(run) for run in mine], axis=0).tolist()
        values = [*spent[:4], *saved, *spent[4:]]
        cells = [f"{value:{form}}" for value, form in zip(values, HEAD.values(), strict=True)]
        rows.append([label, *cells])
    data = make_panels(content, [MEASURES["bytes_up"], MEASURES["seconds"]])
    body = paragraph(
        "A client that stays silent trains and uploads nothing: the steps and the upload it saved "
        "are counted as the average of the clients that joined in the same round."
    )
    body += table("costs", ["method", *HEAD], rows, "Average per run, over the seeds")
    return Section("costs", "Costs", body + render_panels(content.labels, data, "costs"), data)


OWN = ("name", "out", "methods", "method", "seed", "seeds")  # keys in which two runs may differ


def rerun_command(content: Content) -> str:
    """Return the command that runs the configuration again, saved as config.toml."""
    config = content.all_runs[0].config
    if not config:
        return ""
    methods = config.get("methods", [])
    several = len(methods) > 1 or len(content.seeds) > 1
    seed = "" if several else f" --seed {content.seeds[0]}"
    if several and config.get("seeds") is None:
        seed = f" --seeds {','.join(map(str, content.seeds))}"
    if content.all_runs[0].engine == "flower":
        return f"muster federate --local {len(content.all_runs[0].final)} config.toml"
    return f"muster {'compare' if several else 'run'} config.toml{seed}"


def flatten(config: Table, prefix: str = "") -> dict[str, Any]:
    """Return a configuration with the keys of its flags.

    >>> flatten({"data": {"name": "synth"}, "rounds": 5})
    {'data.name': 'synth', 'rounds': 5}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def differing_settings(content: Content) -> list[str]:
    """Return the settings in which these runs differ, besides method and seed: their numbers are
    then not comparable."""
    tables = [
        flatten({k: v for k, v in run.config.items() if k not in OWN}) for run in content.all_runs
    ]
    keys = dict.fromkeys(key for found in tables for key in found)
    return [key for key in keys if len({repr(found.get(key)) for found in tables}) > 1]


def render_configuration(content: Content) -> Section:
    """Return the section: everything needed to reproduce the results."""
    config = content.all_runs[0].config
    parts = []
    if different := differing_settings(content):
        text = (
            f"These runs have different settings ({', '.join(different)}): their differences may "
            "not be due to the method."
        )
        parts.append(paragraph(text, kind="attention"))
    if line := rerun_command(content):
        text = (
            "Save the configuration below as config.toml; this command then gives the same numbers "
            "on the same versions:"
        )
        parts.append(paragraph(text))
        parts.append(f"<pre class=command><code>{escape(line)}</code></pre>")
        # The folder of the results is not part of them, and private.
        toml = tomli_w.dumps({key: value for key, value in config.items() if key != "out"})
        parts.append(
            "<details open><summary>Configuration</summary>"
            f'<button type="button" class="save" data-save="config.toml">Save config.toml</button>'
            f'<pre id="config"><code>{escape(toml)}</code></pre></details>'
        )
    else:
        text = (
            "These runs were started from Python, without a configuration; pass one with "
            "muster.compare(..., config=...)."
        )
        parts.append(paragraph(text))
    made: dict[str, list[str]] = {}
    for run in content.all_runs:
        for what, value in run.facts.get("made_with", {}).items():
            made.setdefault(what, []).append(str(value))
    rows = [(what, ", ".join(dict.fromkeys(values))) for what, values in made.items()]
    engines = dict.fromkeys(run.engine for run in content.all_runs if run.engine)
    rows += [("seeds", ", ".join(map(str, content.seeds))), ("engine", ", ".join(engines))]
    parts.append(table("made with", ["what", "value"], rows, "Versions, machine, seeds", 2))
    parts.append(runs_table(content))
    return Section("configuration", "How to reproduce these results", "\n".join(parts))


def runs_table(content: Content) -> str:
    """Return a table with the last values of every run."""
    rows: list[list[Any]] = []
    for label, mine in content.runs.items():
        for run in mine:
            last = run.rounds.tail(1).row(0, named=True) if len(run.rounds) else {}
            cells = [_number(last.get(m.name)) for m in content.compared_measures]
            rows.append([label, run.seed, len(run.rounds), "yes" if run.complete else "no", *cells])
    head = ["method", "seed", "rounds", "complete", *(m.head for m in content.compared_measures)]
    return table("runs", head, rows, "Every run, after its last round")


def _number(value: Any) -> str | None:
    return None if value is None else f"{value:.4f}"

"""The full configuration, versions, machine, seeds, and the command that reproduces the results."""

from __future__ import annotations

from typing import Any

import tomli_w

from ...base.schema import Table
from .content import Content
from .markup import Section, escape, paragraph, table

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


def section(content: Content) -> Section:
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

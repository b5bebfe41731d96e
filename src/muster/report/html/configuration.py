"""The full configuration, versions, machine, seeds, and the command that runs it all again."""

from __future__ import annotations

from typing import Any

import tomli_w

from ...base.schema import Table
from .content import Story
from .markup import Section, paragraph, say, table

OWN = ("name", "out", "methods", "method", "seed", "seeds")  # what two runs may differ in


def command(story: Story) -> str:
    """The line that runs it again from the configuration below, saved as config.toml."""
    config = story.every[0].config
    if not config:
        return ""
    methods = config.get("methods", [])
    several = len(methods) > 1 or len(story.seeds) > 1
    seed = "" if several else f" --seed {story.seeds[0]}"
    if several and config.get("seeds") is None:
        seed = f" --seeds {','.join(map(str, story.seeds))}"
    if story.every[0].engine == "flower":
        return f"muster federate --local {len(story.every[0].final)} config.toml"
    return f"muster {'compare' if several else 'run'} config.toml{seed}"


def flat(config: Table, before: str = "") -> dict[str, Any]:
    """A configuration's keys as flags name them, with their values.

    >>> flat({"data": {"name": "synth"}, "rounds": 5})
    {'data.name': 'synth', 'rounds': 5}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def unlike(story: Story) -> list[str]:
    """The settings in which these runs differ, beyond method and seed: then their numbers are not
    of the same thing."""
    tables = [flat({k: v for k, v in run.config.items() if k not in OWN}) for run in story.every]
    keys = dict.fromkeys(key for found in tables for key in found)
    return [key for key in keys if len({repr(found.get(key)) for found in tables}) > 1]


def section(story: Story) -> Section:
    """Everything it takes to do it again."""
    config = story.every[0].config
    parts = []
    if different := unlike(story):
        parts.append(
            f'<p class="attention">These runs were made with different settings '
            f"({say(', '.join(different))}): what separates them need not be the method.</p>"
        )
    if line := command(story):
        parts.append(paragraph("Save the configuration below as config.toml; then this runs it "
                               "again, to the same numbers on the same versions:"))  # fmt: skip
        parts.append(f"<pre class=command><code>{say(line)}</code></pre>")
        # Where results went is no part of them, and nobody else's concern.
        text = tomli_w.dumps({key: value for key, value in config.items() if key != "out"})
        parts.append(
            "<details open><summary>Configuration</summary>"
            f'<button type="button" class="save" data-save="config.toml">Save config.toml</button>'
            f'<pre id="config"><code>{say(text)}</code></pre></details>'
        )
    else:
        parts.append(paragraph("These runs were made from Python, which keeps no configuration "
                               "with them; muster.compare(..., config=...) does."))  # fmt: skip
    made: dict[str, list[str]] = {}
    for run in story.every:
        for what, value in run.facts.get("made_with", {}).items():
            made.setdefault(what, []).append(str(value))
    rows = [(what, ", ".join(dict.fromkeys(values))) for what, values in made.items()]
    rows += [
        ("seeds", ", ".join(map(str, story.seeds))),
        ("engine", ", ".join(dict.fromkeys(run.engine for run in story.every if run.engine))),
    ]
    parts.append(table("made with", ["what", "value"], rows, "Versions, machine, seeds", 2))
    parts.append(every_run(story))
    return Section("settings", "How to get these results again", "\n".join(parts))


def every_run(story: Story) -> str:
    """One row per run: what it ended at."""
    rows: list[list[Any]] = []
    for label, mine in story.runs.items():
        for run in mine:
            last = run.rounds.tail(1).row(0, named=True) if len(run.rounds) else {}
            cells = [_number(last.get(m.name)) for m in story.compared]
            rows.append([label, run.seed, len(run.rounds), "yes" if run.complete else "no", *cells])
    head = ["method", "seed", "rounds", "complete", *(m.head for m in story.compared)]
    return table("runs", head, rows, "Every run, after its last round")


def _number(value: Any) -> str | None:
    return None if value is None else f"{value:.4f}"

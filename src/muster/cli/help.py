"""The help text of the configuration: every key with its default.

All of it is read from the signatures and docstrings of the parts that the keys configure.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.registry import kinds, role_name, roles
from ..base.schema import describe_parameters, to_table
from ..config.experiment import Experiment, load
from ..config.settings import Settings
from ..federation import Federation
from ..methods import Method
from ..models.specs import Spec
from ..results.measures import MEASURES, SCORED
from ..study.tune import Tune
from ..tasks.scores import SCORES

WIDTH, INDENT = 96, 22
ALONE = "rounds of work alone; 1, or where neither steps nor epochs are given those of the run"
CHOSEN = {"data": Federation, "model": Spec, "method": Method}


def format_keys() -> str:
    """Return the keys of an experiment, then the parts, measures and scores to choose from."""
    usual = load({})
    names: dict[str, Any] = {
        "data": usual.data["name"],
        "model": usual.model["name"],
        "method": next(iter(usual.methods)),
        "methods": None,
        "requirement": usual.requirement,
        "clients": usual.members,
    }
    own = load({"requirement": {}}).requirement
    lines = ["keys, as flags (--rounds 50, --method.epsilon 0.3) or in a TOML file [default]:"]
    lines += format_rows(describe_parameters(Settings), vars(Settings()))
    lines += format_rows(describe_parameters(Experiment), names)
    for head, given in (("local", usual.local), ("requirement", own), ("network", usual.network)):
        texts = dict.fromkeys(vars(given), "") | describe_parameters(given)
        if given is own:
            texts = {"rounds": ALONE, **texts}
        lines += ["", *format_rows(texts, vars(given), f"{head}.")]
    lines += ["", "  muster sweep: --sweep.KEY VALUE,VALUE,... for any of these keys"]
    lines += [
        "  muster tune: --tune.KEY VALUE,VALUE,... for local.KEY, method.KEY and",
        *format_rows(describe_parameters(Tune), vars(Tune()), "tune."),
    ]
    for key, role in CHOSEN.items():
        lines += ["", f"  --{key} NAME, then --{key}.KEY VALUE:"]
        lines += list_parts(role)
    lines += ["", "  parts, by name (--method.invite full) or with their parameters"]
    lines += ["  (--method.invite.kind fraction --method.invite.fraction 0.3):"]
    for role in roles():
        if role not in CHOSEN.values():
            parts = "; ".join(format_part(name, part) for name, part in kinds(role).items())
            lines += wrap(role_name(role), parts)
    lines += ["", "  --measures NAME,NAME,... and --panels NAME,NAME,...:"]
    shown = [m for m in MEASURES.values() if m.score in ("", SCORED)]
    lines += format_rows({measure.name: measure.title for measure in shown}, {})
    others = ", ".join(name for name in SCORES if name != SCORED)
    lines += wrap("", f"and with the name of another score in place of accuracy: {others}")
    return "\n".join(lines)


def format_data_keys() -> str:
    """Return the keys of each data set."""
    return "\n".join(["flags, by data set [default]:", *list_parts(Federation)])


def format_rows(
    texts: Mapping[str, str], defaults: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """Return a line for each key, with its default unless the text states it."""
    lines = []
    for key, text in texts.items():
        known = key in defaults and "default:" not in text
        default = f" [{format_value(defaults[key])}]" if known else ""
        lines += wrap(prefix + key, (text + default).strip())
    return lines


def list_parts(role: Any) -> list[str]:
    """Return every part of a role, with its parameters and their defaults."""
    lines = []
    for name, target in kinds(role).items():
        lines += wrap(name, ", ".join(list_parameters(target)) or "-")
    return lines


def format_part(name: str, target: Callable[..., Any]) -> str:
    """Return a part with its parameters: `fraction(fraction)`."""
    return (
        f"{name}({', '.join(list_parameters(target))})" if list(list_parameters(target)) else name
    )


def list_parameters(target: Callable[..., Any]) -> Iterable[str]:
    """Yield a part's parameters but `seed`, which the run provides."""
    for name, p in inspect.signature(target).parameters.items():
        if name != "seed":
            yield name if p.default is p.empty else f"{name}={format_value(p.default)}"


def format_value(value: Any) -> str:
    """Return a value as it would be typed.

    >>> format_value(None), format_value(0.1), format_value(("a", "b")), format_value("low")
    ('none', '0.1', 'a,b', 'low')
    """
    table = to_table(value)
    if table in (None, [], {}):
        return "none"
    if isinstance(table, dict):
        name = str(table.pop("kind", type(value).__name__))
        inner = ", ".join(f"{key}={format_value(v)}" for key, v in table.items())
        return f"{name}({inner})" if inner else name
    if isinstance(table, list):
        return ",".join(format_value(v) for v in table)
    return str(table).lower() if isinstance(table, bool) else str(table)


def wrap(head: str, text: str) -> list[str]:
    """Return a head and its text, wrapped."""
    first = f"  {head:{INDENT - 4}}  "
    return textwrap.wrap(text or "-", WIDTH, initial_indent=first, subsequent_indent=" " * INDENT)

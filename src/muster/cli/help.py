"""What `--help` says of the configuration: every key with its default.

All of it is read from the signatures and docstrings of what the keys configure, so that nothing
here has to be kept in step.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.docstrings import describe_parameters
from ..base.registry import kinds, role_name, roles
from ..base.schema import to_table
from ..config.experiment import Experiment, load
from ..config.settings import Settings
from ..federation import Federation
from ..methods import Method
from ..models.specs import Spec
from ..results.measures import MEASURES, SCORED
from ..study.tune import Tune
from ..tasks.scores import SCORES

WIDTH, INDENT = 96, 22
CHOSEN = {"data": Federation, "model": Spec, "method": Method}


def all_keys() -> str:
    """The keys of an experiment, then what they can be."""
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
    lines += rows(describe_parameters(Settings), vars(Settings()))
    lines += rows(describe_parameters(Experiment), names)
    for head, given in (("local", usual.local), ("requirement", own), ("network", usual.network)):
        said = dict.fromkeys(vars(given), "") | describe_parameters(given)
        lines += ["", *rows(said, vars(given), f"{head}.")]
    lines += ["", "  muster sweep: --sweep.KEY VALUE,VALUE,... for any of these keys"]
    lines += [
        "  muster tune: --tune.KEY VALUE,VALUE,... for local.KEY, method.KEY and",
        *rows(describe_parameters(Tune), vars(Tune()), "tune."),
    ]
    for key, role in CHOSEN.items():
        lines += ["", f"  --{key} NAME, then --{key}.KEY VALUE:"]
        lines += chosen(role)
    lines += ["", "  parts, by name (--method.invite full) or with what they take"]
    lines += ["  (--method.invite.kind fraction --method.invite.fraction 0.3):"]
    for role in roles():
        if role not in CHOSEN.values():
            lines += wrapped(
                role_name(role), "; ".join(called(n, t) for n, t in kinds(role).items())
            )
    lines += ["", "  --measures NAME,NAME,... and --panels NAME,NAME,...:"]
    told = [m for m in MEASURES.values() if m.score in ("", SCORED)]
    lines += rows({measure.name: measure.title for measure in told}, {})
    others = ", ".join(name for name in SCORES if name != SCORED)
    lines += wrapped("", f"and of a task's other scores, with its name for accuracy: {others}")
    return "\n".join(lines)


def data_keys() -> str:
    """The keys of each data set."""
    return "\n".join(["flags, by data set [default]:", *chosen(Federation)])


def rows(said: Mapping[str, str], defaults: Mapping[str, Any], before: str = "") -> list[str]:
    """One key per line, with its default where it has one that the text does not state."""
    lines = []
    for key, text in said.items():
        known = key in defaults and "default:" not in text
        default = f" [{shown(defaults[key])}]" if known else ""
        lines += wrapped(before + key, (text + default).strip())
    return lines


def chosen(role: Any) -> list[str]:
    """Every part of a role, with its parameters and their defaults."""
    lines = []
    for name, target in kinds(role).items():
        lines += wrapped(name, ", ".join(taken(target)) or "-")
    return lines


def called(name: str, target: Callable[..., Any]) -> str:
    """A part with its parameters: `fraction(fraction)`."""
    return f"{name}({', '.join(taken(target))})" if list(taken(target)) else name


def taken(target: Callable[..., Any]) -> Iterable[str]:
    """A part's parameters; `seed` is given by the run."""
    for name, p in inspect.signature(target).parameters.items():
        if name != "seed":
            yield name if p.default is p.empty else f"{name}={shown(p.default)}"


def shown(value: Any) -> str:
    """A value as it would be typed.

    >>> shown(None), shown(0.1), shown(("a", "b")), shown("low")
    ('none', '0.1', 'a,b', 'low')
    """
    table = to_table(value)
    if table in (None, [], {}):
        return "none"
    if isinstance(table, dict):
        name = str(table.pop("kind", type(value).__name__))
        inner = ", ".join(f"{key}={shown(v)}" for key, v in table.items())
        return f"{name}({inner})" if inner else name
    if isinstance(table, list):
        return ",".join(shown(v) for v in table)
    return str(table).lower() if isinstance(table, bool) else str(table)


def wrapped(head: str, text: str) -> list[str]:
    """A line with a head, and as many more below it as it takes."""
    first = f"  {head:{INDENT - 4}}  "
    return textwrap.wrap(text or "-", WIDTH, initial_indent=first, subsequent_indent=" " * INDENT)

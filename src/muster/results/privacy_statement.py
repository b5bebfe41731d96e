"""The privacy of a run in a sentence, and the numbers of it that are released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RELEASED = ("round", "eps", "reference_loss", "releases", "epsilon_objective", "epsilon_others")
ROLES = {
    "objective": "a client of the objective",
    "others": "any other client",
    "rows": "a row of any client",
}


def state_privacy(facts: Mapping[str, Any]) -> str:
    """Return what a private run promises, or why it does not; "" for a run without privacy.

    >>> state_privacy({"privacy": {"private": True, "unit": "clients", "delta": 1e-3, "noise": 6.4,
    ...     "clip": 1.0, "releases": 60, "protect": "everyone", "epsilon_objective": 3.99,
    ...     "epsilon_others": 3.7}})[:86]
    'private: epsilon 3.99 for a client of the objective, 3.70 for any other client (delta '
    """
    about = facts.get("privacy")
    if not about:
        return ""
    if about["noise"] == 0:
        return (
            "not private: there is no noise; the server sees sums alone, and what differs from one "
            "round's sum to the next may show a single client's update"
        )
    spent = {role: about.get(f"epsilon_{role}") for role in ROLES}
    parts = [f"{eps:.2f} for {ROLES[role]}" for role, eps in spent.items() if eps is not None]
    noise = f"noise {about['noise']:.4g} times the clip {about['clip']:g}"
    text = f"epsilon {', '.join(parts)} (delta {about['delta']:g}; {noise}, {about['releases']} "
    text += "releases)"
    if about["protect"] == "others":
        text += "; clients of the objective are not protected"
    if about["private"]:
        return f"private: {text}"
    why = "the noise is of the seed and can be computed again"
    return f"not private: {why}; with secret noise it would be {text}"


def keep_released(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a round that were released. Where clients of the objective forgo
    protection, F(w) is theirs, exact, and for the clients of the run alone."""
    exact = "epsilon_objective" not in row
    return {n: row[n] for n in RELEASED if n in row and not (exact and n == "reference_loss")}

"""The papers' statements held against what is computed: each study is one function, one long frame.

    bound        Theorem 1 and A.9: the bound, printed and repaired, and the measured error
    corollary2   theta_T, rho_T and the error for four ways in which eps_t may decay
    toy          MaxFL's Fig. 2 a-c, for two and for three clients; Lemmas 2.1, 2.2, Theorem 2.1
    weights      MaxFL's Fig. 3: q_k against the gap
    rate         Theorem 3.1: how fast the gradient of MaxFL's objective vanishes

The first column, `study`, says which one a frame is of: `verdicts` judges the paper's statements
from the frame alone, and `figures` draws it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...base.lazy import pl
from .study_bound import bound, corollary2
from .study_toy import rate, toy, weights

__all__ = ["STUDIES", "bound", "corollary2", "rate", "toy", "weights"]

STUDIES: dict[str, Callable[..., pl.DataFrame]] = {
    "bound": bound,
    "corollary2": corollary2,
    "toy": toy,
    "weights": weights,
    "rate": rate,
}

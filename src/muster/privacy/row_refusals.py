"""Refusals of row-level privacy: what would let a client's rows out past its noise.

A client sends its model, which is a function of released gradients, and where a rule needs it its
loss, which is released with noise. Its decision to join is a function of that loss. Numbers of rows
are public. Anything else that depends on rows is refused before a run.
"""

from __future__ import annotations

import numpy as np

from ..base.errors import MusterError
from ..federation import Federation
from ..federation.ragged_rows import SharedRows
from ..local import Local
from ..method import Method
from ..parts.effort import AsAsked
from ..parts.participation import Participation
from ..parts.threats.adversary import Attack
from ..schedules import AUTO
from .gaussian import Gaussian
from .refusals import refuse, uses_score

# Settings of the sum of whole clients, which is not released here.
OTHERS = ("joins", "cap", "denominator", "loss", "groups", "committee")


def check_private_rows(
    privacy: Gaussian,
    method: Method,
    local: Local,
    participation: Participation | None,
    attack: Attack | None,
    tuned_steps: int,
) -> None:
    """Refuse the first setting of a run that cannot protect rows."""
    for name in OTHERS:
        if getattr(privacy, name) != getattr(Gaussian, name):  # the default
            raise MusterError(
                f"privacy.{name}: it is for the sum of whole clients; leave it out, or use unit = "
                '"clients"'
            )
    if privacy.secure or privacy.protect != "everyone":
        raise MusterError(
            "privacy.unit: 'rows' protects the rows of everyone, from the server too; leave out "
            "secure and protect"
        )
    if privacy.loss_share >= 1.0:
        raise MusterError(
            f"privacy.loss_share: {privacy.loss_share:g}; of rows it is the part of epsilon that "
            "released losses may take: give less than 1"
        )
    if local.batches == "independent" and local.batch_size is not None:
        refuse(
            'local.batches "independent"',
            "its account is that of full batches, for the use of a few rows",
            'use batches = "poisson", or "shuffled"',
        )
    if attack is not None:
        refuse("attack", "attackers send what they like", "measure attacks without privacy")
    if participation is not None:
        refuse(
            "participation",
            "clients leave by exact losses, which everyone sees",
            "leave it out: a join rule decides by released losses",
        )
    if tuned_steps:
        refuse("tuned_steps", "these steps are in no account", "use tuned_steps = 0")
    _check_method(method)


def _check_method(method: Method) -> None:
    """Refuse a method whose clients send more than what they compute from released gradients."""
    solver = method.solver
    if solver.draws != 1 or not getattr(solver, "single_gradient", False):
        refuse(
            f"solver {type(solver).__name__}",
            "one gradient of each batch is in the account",
            'use solver = "sgd" or "control_variates"; one of your own that takes no more says so '
            "by single_gradient = True",
        )
    if method.claim.needs_requirement:
        refuse(
            f"claim {type(method.claim).__name__}",
            "it tells how a client's rows do without the others, a number that is never released",
            'use unit = "clients", or "fedavg" or "fedalign"',
        )
    if method.tracks is not None or method.folds or method.held_out:
        refuse(
            method.name,
            "clients train on parts of their rows, and measure gains on the rest",
            'use "fedalign" or "fedavg"',
        )
    if method.trust is not None:
        refuse(
            "trust", "audits measure losses of many models on clients' rows", "use trust = false"
        )
    if method.epsilon == AUTO:
        refuse('epsilon = "auto"', "it is chosen by clients' rows", "give a number or a schedule")
    if uses_score(method.join) or uses_score(method.admit):
        refuse("criterion", "clients release losses, and no score", 'use criterion = "loss"')
    if not isinstance(method.effort, AsAsked):
        refuse(
            f"effort {type(method.effort).__name__}",
            "its numbers of steps are not known beforehand",
            'use effort = "as_asked"',
        )


def check_private_row_data(fed: Federation) -> None:
    """Refuse data whose rows are not each one client's alone, or are scaled by the others'."""
    if fed.scaler is not None or fed.encoder is not None:
        refuse(
            "data scaled or encoded by statistics of clients' rows",
            "these numbers are released without noise",
            'prepare the columns by public numbers, and use scale = "none"',
        )
    listed = fed.train.rows
    shared = listed is not None and len(np.unique(listed)) < len(listed)
    if isinstance(fed.train, SharedRows) or shared or fed.train.weight is not None:
        refuse(
            "data whose rows several clients share",
            "each client's account is of rows that nobody else trains on",
            "use a partition that gives every row to one client",
        )

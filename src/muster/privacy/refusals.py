"""Refusals: what cannot be private together is refused before a run, with the reason.

A private round releases one sum of contributions. Each is a function of one client's rows and of
public numbers alone, and at most the clip long. Whatever breaks one of these is refused here: a
denominator that depends on who joined, one client's rows that decide about another's contribution,
numbers that leave a client next to its contribution.
"""

from __future__ import annotations

from typing import Any

from ..base import params
from ..base.checks import require
from ..base.errors import MusterError
from ..base.lazy import nn, torch
from ..federation import Federation
from ..method import Method
from ..parts.admit import Band, Everyone, Objective
from ..parts.claim import Appeal, Nothing, Unmet
from ..parts.defences.group_trust import APART
from ..parts.effort import AsAsked
from ..parts.invite import Apart, Fraction, Full, Sample
from ..parts.join import Aligned, Always, Available, Straggling
from ..parts.participation import Flexible, Participation
from ..parts.step import Stay
from ..parts.threats.adversary import Attack
from ..parts.threats.attacks import ForgeLoss, InflateAndNoise, LabelFlip, Liars, ScaleUpdate
from ..parts.weigh import Claimed, DataShare, Uniform
from ..schedules import AUTO
from .committee import LEAST_GROUP
from .gaussian import Gaussian
from .masks import check_installed
from .secure_sum import find_members

FEW = 20  # clients below which their privacy says little
# Each of these looks at one client alone; a part of yours says so by `per_client = True`.
JOINS = (Always, Aligned, Available, Straggling)
ATTACKS = (ScaleUpdate, LabelFlip, InflateAndNoise, ForgeLoss)
SINGLE = (*JOINS, Everyone, Objective, Band, Nothing, Appeal, Unmet, Flexible)


def refuse(where: str, why: str, instead: str) -> None:
    """Raise the error of a setting that cannot be private."""
    raise MusterError(f"privacy: {where} cannot be private: {why}; {instead}")


def check_private(
    privacy: Gaussian,
    method: Method,
    participation: Participation | None,
    attack: Attack | None,
    rounds: int,
) -> None:
    """Refuse the first setting of a run that cannot be private."""
    if privacy.secure:
        check_installed()
    if attack is not None and not is_single(attack):
        refuse(
            f"attack {type(attack).__name__}",
            "attackers see what others send, or their rows",
            'use "scale_update", "sign_flip", "label_flip" or "inflate_and_noise", of "liars" too',
        )
    check_method(method)
    check_groups(privacy, method)
    check_shared_parts(method)
    for name, value in (
        ("join", method.join),
        ("admit", method.admit),
        ("claim", method.claim),
        ("participation", participation),
    ):
        if value is not None:
            check_single(name, value)
    if not isinstance(method.invite, (Full, Sample, Fraction, Apart)):
        refuse(
            f"invite {type(method.invite).__name__}",
            "whom it asks depends on clients' rows",
            'use invite = "full", "sample", "fraction" or "apart"',
        )
    if privacy.protect == "everyone" and (uses_score(method.join) or uses_score(method.admit)):
        refuse(
            "criterion",
            "the sum has a place for F(w), and none for a score",
            'use criterion = "loss", or protect = "others"',
        )
    privacy.multiplier(rounds, method.warmup_rounds(rounds))


def check_method(method: Method) -> None:
    """Refuse a method whose rules go beyond one sum of contributions."""
    if method.epsilon == AUTO:
        refuse('epsilon = "auto"', "it is chosen by clients' rows", "give a number or a schedule")
    if method.tracks is not None or method.sketch or method.folds or method.held_out:
        refuse(
            method.name,
            "its weights are distances between clients' replies",
            'use "fedalign", "maxfl" or "fedavg"',
        )
    if method.losses:
        refuse(
            method.name,
            "it weighs clients by the losses they report",
            'use "maxfl", whose weights stay with the clients, or "fedavg"',
        )


def check_groups(privacy: Gaussian, method: Method) -> None:
    """Refuse an audit without groups that it can judge, and groups without an audit."""
    if method.trust is not None and privacy.groups == 1:
        refuse(
            "trust",
            "an audit of single replies lets clients' rows decide about others'",
            "give privacy.groups, which it judges by their released sums, or use trust = false: "
            "the clip bounds everyone",
        )
    if method.trust is None and privacy.groups > 1:
        raise MusterError(
            f"privacy.groups: {privacy.groups}, and nobody judges them: they add noise and nothing "
            "else; use trust = true, or leave them out"
        )
    if privacy.secure and privacy.groups > 1 and not isinstance(method.invite, Full):
        raise MusterError(
            f"privacy.groups: {privacy.groups} with secure = true, and invite "
            f"{type(method.invite).__name__}: all clients are dealt, asked or not, so that members "
            f"of the committee can check it, and a group of fewer than {LEAST_GROUP} asked has no "
            'sum; use invite = "full"'
        )


def is_single(attack: Any) -> bool:
    """Return True if what an attacker sends is a function of its own rows and public numbers."""
    if isinstance(attack, Liars):
        return is_single(attack.then)
    return isinstance(attack, ATTACKS) or bool(getattr(attack, "per_client", False))


def check_shared_parts(method: Method) -> None:
    """Refuse parts of the server that need single replies, or more than the model."""
    solver, weigh, step = method.solver, method.weigh, method.step
    if solver.sends:
        refuse(
            f"solver {type(solver).__name__}",
            f"clients send '{solver.sends[0]}' next to their model",
            'use solver = "sgd", with prox against drift',
        )
    if not isinstance(weigh, (DataShare, Uniform, Claimed)):
        refuse(
            f"weigh {type(weigh).__name__}",
            "weights depend on other clients' replies",
            'use weigh = "uniform" or "claimed"',
        )
    if not isinstance(method.effort, AsAsked):
        refuse(
            f"effort {type(method.effort).__name__}",
            "one client's steps depend on others' rows",
            'use effort = "as_asked"',
        )
    if isinstance(step, Stay):
        refuse(f"step {type(step).__name__}", "nothing is shared", "run it without privacy")
    if not step.only_mean:
        refuse(
            f"step {type(step).__name__}",
            "it needs single replies, and a round releases their sum",
            'use step = "average", "adaptive", "momentum" or "adaptive_moments"',
        )


def check_single(name: str, rule: Any) -> None:
    """Refuse a rule of clients that is not known to look at one client alone."""
    if not isinstance(rule, SINGLE) and not getattr(rule, "per_client", False):
        refuse(
            f"{name} {type(rule).__name__}",
            "nobody has stated that it looks at one client alone",
            "if it does, give its class per_client = True",
        )
    if (then := getattr(rule, "then", None)) is not None:
        check_single(name, then)


def uses_score(rule: Any) -> bool:
    """Return True if a rule compares scores, itself or by the rule it hands on to."""
    then = getattr(rule, "then", None)
    return getattr(rule, "criterion", "loss") != "loss" or (then is not None and uses_score(then))


def check_private_data(privacy: Gaussian, fed: Federation, module: nn.Module) -> None:
    """Refuse data and models that would release more than the sums. A node of a federation has its
    own data alone, and what it does with it stays there."""
    check_private_model(module)
    if fed.n == 1:
        return
    member = (fed.importance > 0) & ~fed.unseen
    if privacy.protect == "others" and not (~member & ~fed.unseen).any():
        raise MusterError(
            'privacy.protect: "others", and every client is in the objective; use protect = '
            '"everyone"'
        )
    if fed.scaler is not None or fed.encoder is not None:
        refuse(
            "data scaled or encoded by statistics of clients' rows",
            "these numbers are released without noise",
            'prepare the columns by public numbers, and use scale = "none"',
        )
    check_declared(privacy, fed.counted is not None)
    seen = fed.priority[~fed.unseen]
    check_group_sizes(privacy, int(seen.sum()), int((~seen).sum()))
    if privacy.secure:
        find_members(privacy, fed)


def check_declared(privacy: Gaussian, declared: bool) -> None:
    """Refuse weights by numbers of rows that are not declared."""
    if privacy.cap is not None and not declared:
        raise MusterError(
            f"privacy.cap: {privacy.cap}, and numbers of rows are data; declare clients.rows of "
            "every client, or leave it out"
        )


def check_group_sizes(privacy: Gaussian, root: int, others: int) -> None:
    """Refuse more groups than there are clients for, or no priority clients to judge them by."""
    if privacy.groups == 1:
        return
    if root < LEAST_GROUP or others == 0:
        refuse(
            "trust",
            f"groups are judged by the priority clients' sum, and there are {root} of them and "
            f"{others} others; where clients check one another, they do so by losses that nobody "
            "releases",
            f"name {LEAST_GROUP} priority clients or more, not all, or use trust = false",
        )
    most = 1 + others // LEAST_GROUP
    allowed = (
        f"1 to {most}: a group has {LEAST_GROUP} clients or more, and the priority clients one"
    )
    require(privacy.groups <= most, "privacy.groups", privacy.groups, allowed)


def check_private_model(module: nn.Module) -> None:
    """Refuse a model with numbers that clients send next to what they train."""
    moving = params.trainable_names(module)
    every = params.get_params(module, torch.float32, torch.device("cpu"))
    still = [name for name in every if name not in moving]
    if still:
        refuse(
            f"statistics of the model ({still[0]})",
            "noise makes a variance negative, and means of rows are data",
            "use a model with GroupNorm or LayerNorm in place of BatchNorm",
        )


def find_privacy_warnings(privacy: Gaussian, clients: int, noise: float) -> list[str]:
    """Return warnings of settings whose promise says little, or whose noise `z` hides liars."""
    found = []
    if clients < FEW:
        found.append(
            f"the privacy of whole clients among {clients}: noise that hides one of them hides "
            'what they learn; protect their rows instead (privacy.unit = "rows")'
        )
    size = clients / privacy.groups
    if (
        privacy.groups > 1 and noise**2 > 4 * size * APART
    ):  # the share of noise in a likeness is 4/5
        found.append(
            f"privacy.groups: {privacy.groups} of about {size:.0f} clients, and noise {noise:.3g}: "
            "what is released of a group is mostly noise, which hides liars like everyone else and "
            "is larger with every group; use fewer groups, or trust = false"
        )
    if privacy.delta * clients >= 1.0:
        found.append(
            f"privacy.delta is {privacy.delta:g} for {clients} clients: showing one of them whole "
            f"would be allowed; use less than {1 / clients:.0e}"
        )
    return found

"""Roles: a part that says only what it does has safe defaults, or is one clear line."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields

import numpy as np
import pytest

import muster
from helpers import same_bits
from muster.parts import (
    SGD,
    Admit,
    Available,
    Claim,
    Effort,
    Honest,
    Invite,
    Join,
    Optimizer,
    Participation,
    Solver,
    Step,
    Weigh,
)
from muster.protocol import Appraisal, Decision, Offer, Replies, Roster

ROLES = {
    "invite": Invite, "join": Join, "solver": Solver, "admit": Admit, "weigh": Weigh, "step": Step,
    "claim": Claim, "effort": Effort,
}  # fmt: skip
FED = muster.data.digits(clients=4, priority=2)
HOW = {"model": muster.models.Softmax(), "rounds": 2, "local": muster.Local(steps=1)}


class Everybody(Invite):
    def __call__(self, population, pool, seed, round, losses):
        return Roster.of(population, pool)


class Willing(Join):
    def __call__(self, offer, roster, appraisal):
        assert np.isfinite([offer.loss, *appraisal.loss]).all(), "it may use them"
        return Decision(np.ones(len(roster), bool), np.full(len(roster), "willing"))


class Plain(Solver):
    def __call__(self, cohort, offer, memory):
        return SGD()(cohort, offer, memory)


class Half(Admit):
    def __call__(self, offer, roster, appraisal):
        assert np.isfinite([offer.loss, *appraisal.loss]).all(), "it may use them"
        return np.full(len(roster), 0.5)


class Same(Claim):
    def __call__(self, appraisal, requirement):
        return np.ones(len(requirement))


class Descent(Optimizer):
    def step(self, w, g, state, lr):
        for name, t in w.items():
            t.sub_(g[name], alpha=lr)


class Loyal(Participation):
    def __call__(self, loss, requirement):
        return np.ones(len(loss), bool)


@dataclass(frozen=True)
class Harmless(Honest):
    fraction: float


class Nobody:
    """A part that has nothing of its role but the call."""

    def __call__(self, *given):
        raise AssertionError("never called")


def test_a_part_that_inherits_has_what_it_does_not_say():
    mine = muster.Method("m", Everybody(), Willing(), Plain(), Half(), losses=True)
    ours = muster.Method("m", losses=True)
    a, b = (muster.simulate(FED, method, **HOW) for method in (mine, ours))
    assert all(np.array_equal(a.weights[n], b.weights[n]) for n in b.weights)
    assert (mine.refers, mine.reports, mine.admit.reason) == (True, True, "refused")
    assert Everybody().max_clients(7) == 7
    assert (Same().needs_requirement, Same().most) == (True, 1.0)
    assert (Plain().draws, Plain().needs, Plain().sends, Plain().joint) == (1, (), (), False)
    assert (Plain().adapts, Plain().memory({})) == (0.0, {})
    assert Loyal().starts(10) == 0


def test_an_optimizer_that_inherits_only_steps():
    local = muster.Local(steps=3, optimizer=Descent())
    assert (Descent().plain, Descent().start({})) == (False, {})
    a = muster.simulate(FED, muster.methods.fedavg(), **HOW | {"local": local})
    b = muster.simulate(FED, muster.methods.fedavg(), **HOW | {"local": muster.Local(steps=3)})
    assert np.allclose(a.rounds["loss"], b.rounds["loss"], rtol=1e-5)


def test_an_attack_that_inherits_is_honest_in_the_rest():
    a = muster.simulate(FED, muster.methods.fedavg(), **HOW, attack=Harmless(0.5))
    assert same_bits(a, muster.simulate(FED, muster.methods.fedavg(), **HOW))


@pytest.mark.parametrize("name", ["join", "solver", "admit", "step", "claim"])
def test_a_part_that_lacks_something_is_one_line_that_names_the_base_class(name):
    role = ROLES[name].__name__
    with pytest.raises(
        muster.MusterError, match=rf"^method {name}: Nobody has no \w+; .* muster\.parts\.{role},"
    ):
        muster.Method("mine", **{name: Nobody()})


@pytest.mark.parametrize("name", ["weigh", "effort"])
def test_a_function_will_do_where_a_role_is_a_call(name):
    assert getattr(muster.Method("mine", **{name: Nobody()}), name).__class__ is Nobody


@pytest.mark.parametrize("name", sorted(ROLES))
def test_a_part_without_a_call_or_a_class_is_one_line(name):
    with pytest.raises(muster.MusterError, match=rf"^method {name}: object has no __call__"):
        muster.Method("mine", **{name: object()})
    with pytest.raises(muster.MusterError, match=rf"^method {name}: the class Nobody; give"):
        muster.Method("mine", **{name: Nobody})


@pytest.mark.parametrize("role", [*ROLES.values(), Participation, Optimizer])
def test_a_part_that_forgets_what_it_does_is_not_made(role):
    with pytest.raises(TypeError, match=r"abstract method '?(__call__|step)'?"):
        type("Forgetful", (role,), {})()


def test_the_part_after_another_is_checked_too():
    with pytest.raises(muster.MusterError, match="method join then: Nobody has no appraises"):
        muster.Method("mine", join=Available(0.5, Nobody()))


def test_optimizer_participation_and_attack_name_what_is_missing():
    class Bare:
        fraction = 0.1

        def step(self, w, g, state, lr):
            pass

    with pytest.raises(muster.MusterError, match=r"local optimizer: Bare has no plain; .*Optim"):
        muster.Local(steps=1, optimizer=Bare())
    with pytest.raises(muster.MusterError, match=r"attack: Bare has no among; .*parts\.Honest"):
        muster.simulate(FED, muster.methods.fedavg(), **HOW, attack=Bare())
    with pytest.raises(muster.MusterError, match=r"participation: Nobody has no starts; .*Part"):
        muster.simulate(FED, muster.methods.fedavg(), **HOW, participation=Nobody())


def test_an_attack_of_before_is_refused_and_not_honest_in_silence():
    with pytest.raises(muster.MusterError, match="`say` is called `report` now"):

        class Old(muster.parts.Honest):
            def say(self, offer, appraisal, requirement):
                return appraisal


MESSAGES = {
    "offer": (Offer,),
    "roster": (Roster,),
    "appraisal": (Appraisal,),
    "replies": (Replies, Roster, Appraisal),
}


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_the_fields_that_a_role_documents_exist(role):
    """`offer`, `roster`, ...: every name in backticks under Args is a field of that message, or of
    the role itself."""
    text = inspect.getdoc(role.__call__) or ""
    args = re.split(r"\n(?=\w)", text.partition("Args:\n")[2])[0]
    documented = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", args, re.M)
    assert documented, "the call says what it gets"
    for name, about in documented:
        messages = MESSAGES.get(name, ())
        known = {f.name for m in messages for f in fields(m)} | {
            n for m in messages for n in dir(m)
        }
        for field in re.findall(r"`([a-z_]+)`", about) if messages else ():
            assert field in known or hasattr(role, field) or field in role.__doc__, field

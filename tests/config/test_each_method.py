"""What each method of a comparison may have of its own: local work, a server step, a solver."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from helpers import same_bits
from muster.base.errors import MusterError
from muster.base.registry import kinds
from muster.config import load
from muster.methods import METHODS
from muster.parts import Average, ControlVariates, Scaffold, Solver
from muster.study.experiment_runs import compare_experiment

DATA = {"name": "digits", "clients": 6, "priority": 2}
BASE = {"data": DATA, "rounds": 3, "seeds": 1, "local": {"steps": 2, "batch_size": 8}}


def chosen(*methods, **more):
    return load({**BASE, **more, "methods": list(methods)})


def alone(method, local=None):
    """The last model of a run by itself."""
    fed = muster.data.digits(clients=6, priority=2)
    return muster.simulate(
        fed, method, muster.models.Softmax(), 3, local or muster.Local(steps=2, batch_size=8)
    )


def test_a_methods_local_is_laid_over_the_one_for_all():
    found = chosen(
        "fedavg",
        {"name": "fedavg", "label": "fast", "local": {"lr": 0.5}},
        {"name": "fedavg", "label": "epochs", "local": {"epochs": 1}},
    )
    assert found.jobs["fedavg"].local == found.local == muster.Local(steps=2, batch_size=8)
    assert found.jobs["fast"].local == muster.Local(steps=2, batch_size=8, lr=0.5)
    assert found.jobs["epochs"].local == muster.Local(epochs=1, batch_size=8)
    again = load(found.resolve())
    assert again.resolve() == found.resolve(), "written out and read again"
    assert again.own_local == found.own_local


def test_runs_have_the_local_of_their_label(tmp_path):
    found = chosen("fedavg", {"name": "fedavg", "label": "fast", "local": {"lr": 0.5}})
    done = compare_experiment(found, tmp_path)
    assert same_bits(done["fedavg"][0], alone(muster.methods.fedavg()))
    fast = muster.Local(steps=2, batch_size=8, lr=0.5)
    assert same_bits(done["fast"][0], alone(muster.methods.fedavg(), fast))
    other = chosen("fedavg", {"name": "fedavg", "label": "fast", "local": {"lr": 0.6}})
    with pytest.raises(MusterError, match=r"made with local fast = .*lr=0.5.*give another folder"):
        compare_experiment(other, tmp_path)
    with pytest.raises(MusterError, match="made with settings local = by method"):
        compare_experiment(chosen("fedavg"), tmp_path)


def test_local_by_label_in_python_names_every_method():
    fed = muster.data.digits(clients=6, priority=2)
    both = {"a": muster.methods.fedavg(), "b": muster.methods.fedavg()}
    mine = muster.Local(steps=1)
    for wrong, said in (({"a": mine}, "local: none for 'b'"), ({"c": mine}, "method in local 'c'")):
        with pytest.raises(MusterError, match=said):
            muster.compare(fed, both, muster.models.Softmax(), 1, wrong)


def test_a_wrong_local_names_its_method():
    with pytest.raises(MusterError, match=r"unknown key 'methods.fast.local.rate'"):
        chosen({"name": "fedavg", "label": "fast", "local": {"rate": 0.5}})


@pytest.mark.parametrize("name", ["fedalign", "fedavg", "fedavg_priority", "fedprox"])
def test_the_servers_step(name):
    maker = METHODS[name]
    assert maker() == maker(server_lr=1.0)
    assert maker(server_lr=0.5).step == Average(0.5)
    assert chosen({"name": name, "server_lr": 0.5}).jobs[name].method.step == Average(0.5)
    full, none, half = (alone(maker(server_lr=lr)) for lr in (1.0, 1e-12, 0.5))
    assert none.rounds["loss"][0] > half.rounds["loss"][0] > full.rounds["loss"][0]


ALONE = [name for name, part in kinds(Solver).items() if not getattr(part, "needs", ())]


@pytest.mark.parametrize("kind", ALONE)
def test_fedalign_runs_on_any_solver(kind):
    found = chosen({"name": "fedalign", "warmup": 0, "epsilon": 9.0, "solver": kind})
    method = found.jobs["fedalign"].method
    assert type(method.solver) is kinds(Solver)[kind]
    run = alone(method)
    assert run.rounds["admitted_nonpriority"].min() == 4
    assert run.rounds["loss"].is_finite().all()
    plain = alone(muster.methods.fedalign(9.0, warmup=0))
    differs = any(not np.array_equal(plain.weights[n], run.weights[n]) for n in run.weights)
    assert differs == (kind not in ("sgd", "ditto")), "ditto trains the common model as sgd does"


def test_fedalign_on_scaffold_is_scaffold_where_everyone_is_admitted():
    both = {"solver": "control_variates", "step": "scaffold", "weigh": "uniform"}
    aligned = (
        chosen({"name": "fedalign", "warmup": 0, "epsilon": 1e9, **both}).jobs["fedalign"].method
    )
    assert aligned.solver == ControlVariates()
    assert aligned.step == Scaffold()
    ours, theirs = alone(aligned), alone(muster.methods.scaffold())
    assert all(np.array_equal(ours.weights[n], theirs.weights[n]) for n in ours.weights)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            {"name": "fedalign", "solver": "control_variates"},
            "method: solver ControlVariates needs server state 'control', but step Average does "
            'not keep it; use step = "scaffold"',
        ),
        (
            {"name": "fedalign", "step": "scaffold"},
            "method: step Scaffold needs each client's 'change', but solver SGD does not send it; "
            'use solver = "control_variates"',
        ),
        ({"name": "afl", "step": "average"}, "Mixture needs server state 'mixture'"),
        ({"name": "mwfed", "step": "average"}, "ByWeight needs server state 'multiplicative'"),
        (
            {"name": "fedalign", "prox": 0.1, "solver": "ditto"},
            "method.prox: 0.1 is part of the solver that method.solver replaces",
        ),
        (
            {"name": "maxfl", "server_lr": 2.0, "step": "average"},
            "method.server_lr: 2.0 is part of the step that method.step replaces",
        ),
    ],
)
def test_parts_that_do_not_go_together(method, said):
    with pytest.raises(MusterError) as stop:
        chosen(method)
    assert said in str(stop.value)


def test_importance_from_a_table():
    fed = chosen("fedavg", data={**DATA, "importance": 0.3}).federation(0)
    assert fed.importance.tolist() == [1.0, 1.0, 0.3, 0.3, 0.3, 0.3]
    each = [0, 0, 0.1, 0.2, 0.3, 0.4]
    found = chosen("fedavg", data={**DATA, "importance": each})
    assert found.federation(0).importance.tolist() == [1.0, 1.0, 0.1, 0.2, 0.3, 0.4]
    again = load(found.resolve())
    assert again.importance == found.importance == tuple(each)
    mixed = chosen("fedavg", data={"name": "fmnist", "importance": 0.5})
    assert mixed.importance == 0.5, "of any data set"
    for wrong in (2.0, [0.1, 0.2]):
        with pytest.raises(MusterError, match="importance"):
            chosen("fedavg", data={**DATA, "importance": wrong}).federation(0)
    with pytest.raises(MusterError, match=r"data.importance"):
        chosen("fedavg", data={**DATA, "importance": "much"})

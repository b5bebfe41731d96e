"""muster: federated learning for clients who may say no.

>>> import muster
>>> fed = muster.data.digits(clients=10, priority=2)
>>> run = muster.simulate(fed, muster.methods.fedalign(), muster.models.Softmax(), rounds=3)
>>> run
Run(fedalign, seed 0, 3 rounds)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base.lazy import provide

if TYPE_CHECKING:
    from . import data, methods, models, optimizers, parts, privacy, schedules, tasks, trackers
    from .base.errors import MusterError, MusterWarning
    from .base.registry import part
    from .engines import Compute
    from .federation import Federation
    from .local import Local
    from .methods import Method
    from .parts.participation import Flexible
    from .parts.threats import attacks
    from .protocol import Decision
    from .report.advice_content import Advice
    from .results.measures import Measure
    from .results.run import Interrupted, Run
    from .results.store import load_runs, save
    from .run.checkpoint import Keep
    from .run.job import Job
    from .run.simulate import run_job, simulate
    from .run.solo import solo, with_solo
    from .study.advice_runs import advise
    from .study.compare import ComparisonInterrupted, compare
    from .study.comparison import Comparison
    from .study.load import load
    from .study.sweep import SweepInterrupted, sweep
    from .study.sweep_result import Sweep
    from .study.tune import TuningInterrupted, tune
    from .study.tuning_result import Tuning

__version__ = "0.2.0"

# Where each name is: a module, or module:name. It is loaded when the name is first used.
_HOME = {
    "Advice": "report.advice_content:Advice",
    "Comparison": "study.comparison:Comparison",
    "ComparisonInterrupted": "study.compare:ComparisonInterrupted",
    "Compute": "engines:Compute",
    "Decision": "protocol:Decision",
    "Federation": "federation:Federation",
    "Flexible": "parts.participation:Flexible",
    "Interrupted": "results.run:Interrupted",
    "Job": "run.job:Job",
    "Keep": "run.checkpoint:Keep",
    "Local": "local:Local",
    "Measure": "results.measures:Measure",
    "Method": "methods:Method",
    "MusterError": "base.errors:MusterError",
    "MusterWarning": "base.errors:MusterWarning",
    "Run": "results.run:Run",
    "Sweep": "study.sweep_result:Sweep",
    "SweepInterrupted": "study.sweep:SweepInterrupted",
    "Tuning": "study.tuning_result:Tuning",
    "TuningInterrupted": "study.tune:TuningInterrupted",
    "advise": "study.advice_runs:advise",
    "attacks": "parts.threats.attacks",
    "compare": "study.compare:compare",
    "data": "data",
    "load": "study.load:load",
    "load_runs": "results.store:load_runs",
    "methods": "methods",
    "models": "models",
    "optimizers": "optimizers",
    "part": "base.registry:part",
    "parts": "parts",
    "privacy": "privacy",
    "run_job": "run.simulate:run_job",
    "save": "results.store:save",
    "schedules": "schedules",
    "simulate": "run.simulate:simulate",
    "solo": "run.solo:solo",
    "sweep": "study.sweep:sweep",
    "tasks": "tasks",
    "trackers": "trackers",
    "tune": "study.tune:tune",
    "with_solo": "run.solo:with_solo",
}

__all__ = [
    "Advice",
    "Comparison",
    "ComparisonInterrupted",
    "Compute",
    "Decision",
    "Federation",
    "Flexible",
    "Interrupted",
    "Job",
    "Keep",
    "Local",
    "Measure",
    "Method",
    "MusterError",
    "MusterWarning",
    "Run",
    "Sweep",
    "SweepInterrupted",
    "Tuning",
    "TuningInterrupted",
    "advise",
    "attacks",
    "compare",
    "data",
    "load",
    "load_runs",
    "methods",
    "models",
    "optimizers",
    "part",
    "parts",
    "privacy",
    "run_job",
    "save",
    "schedules",
    "simulate",
    "solo",
    "sweep",
    "tasks",
    "trackers",
    "tune",
    "with_solo",
]


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package, when it is first asked for."""
    module, _, inner = _HOME.get(name, name).partition(":")
    missing = AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if name.startswith("_"):
        raise missing
    try:
        value: Any = import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{module}":
            raise
        raise missing from None
    value = getattr(value, inner) if inner else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


provide("report", "muster.report.html.page")

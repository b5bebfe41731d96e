"""muster: federated learning for clients who may say no.

>>> import muster
>>> fed = muster.data.digits(clients=10, priority=2)
>>> run = muster.simulate(fed, muster.methods.fedalign(), muster.models.Softmax(), rounds=3)
>>> run
Run(fedalign, seed 0, 3 rounds)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import moved

if TYPE_CHECKING:
    from . import data, methods, models, optimizers, parts, schedules, tasks, trackers
    from .config.sweeps import SweepInterrupted, sweep
    from .config.tuning import TuningInterrupted, tune
    from .engines import Compute
    from .errors import MusterError, MusterWarning
    from .federation import Federation
    from .local import Local
    from .methods import Method
    from .parts import attacks
    from .parts.participation import Flexible
    from .protocol import Decision
    from .registry import part
    from .run.conduct import Keep
    from .run.job import Job
    from .run.measures import Measure
    from .run.result import Interrupted, Run
    from .run.simulate import run_job, simulate
    from .run.solo import solo, with_solo
    from .run.store import load_runs, save
    from .study.compare import ComparisonInterrupted, compare
    from .study.comparison import Comparison
    from .study.results import load
    from .study.sweep import Sweep
    from .study.tuning import Tuning

__version__ = "0.1.0"

# Where each name is: a module, or module:name. It is loaded when the name is first used.
_HOME = {
    "Comparison": "study.comparison:Comparison",
    "ComparisonInterrupted": "study.compare:ComparisonInterrupted",
    "Compute": "engines:Compute",
    "Decision": "protocol:Decision",
    "Federation": "federation:Federation",
    "Flexible": "parts.participation:Flexible",
    "Interrupted": "run.result:Interrupted",
    "Job": "run.job:Job",
    "Keep": "run.conduct:Keep",
    "Local": "local:Local",
    "Measure": "run.measures:Measure",
    "Method": "methods:Method",
    "MusterError": "errors:MusterError",
    "MusterWarning": "errors:MusterWarning",
    "Run": "run.result:Run",
    "Sweep": "study.sweep:Sweep",
    "SweepInterrupted": "config.sweeps:SweepInterrupted",
    "Tuning": "study.tuning:Tuning",
    "TuningInterrupted": "config.tuning:TuningInterrupted",
    "attacks": "parts.attacks",
    "compare": "study.compare:compare",
    "data": "data",
    "load": "study.results:load",
    "load_runs": "run.store:load_runs",
    "methods": "methods",
    "models": "models",
    "optimizers": "optimizers",
    "part": "registry:part",
    "parts": "parts",
    "run_job": "run.simulate:run_job",
    "save": "run.store:save",
    "schedules": "schedules",
    "simulate": "run.simulate:simulate",
    "solo": "run.solo:solo",
    "sweep": "config.sweeps:sweep",
    "tasks": "tasks",
    "trackers": "trackers",
    "tune": "config.tuning:tune",
    "with_solo": "run.solo:with_solo",
}

__all__ = [
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


moved.install()

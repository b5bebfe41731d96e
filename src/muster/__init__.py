"""muster: federated learning for clients who may say no.

>>> import muster
>>> fed = muster.data.digits(clients=10, priority=2)
>>> run = muster.simulate(fed, muster.methods.fedalign(), muster.models.Softmax(), rounds=3)
>>> run
Run(fedalign, seed 0, 3 rounds)
"""

from . import data, methods, models, moved, optimizers, parts, schedules, tasks
from .engines import Compute
from .errors import MusterError, MusterWarning
from .federation import Federation
from .local import Local
from .methods import Method
from .parts import attacks
from .parts.participation import Flexible
from .run.result import Interrupted, Run
from .run.simulate import simulate
from .run.solo import solo, with_solo
from .run.store import load_runs, save
from .study.compare import ComparisonInterrupted, compare
from .study.comparison import Comparison, load

__version__ = "0.1.0"

moved.install()

__all__ = [
    "Comparison",
    "ComparisonInterrupted",
    "Compute",
    "Federation",
    "Flexible",
    "Interrupted",
    "Local",
    "Method",
    "MusterError",
    "MusterWarning",
    "Run",
    "attacks",
    "compare",
    "data",
    "load",
    "load_runs",
    "methods",
    "models",
    "optimizers",
    "parts",
    "save",
    "schedules",
    "simulate",
    "solo",
    "tasks",
    "with_solo",
]

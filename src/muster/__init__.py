"""muster: federated learning for clients who may say no.

>>> import muster
>>> fed = muster.data.digits(clients=10, priority=2)
>>> run = muster.simulate(fed, muster.methods.fedalign(), muster.models.Softmax(), rounds=3)
>>> run
Run(fedalign, seed 0, 3 rounds)
"""

from . import attacks, data, methods, models, schedules
from .errors import MusterError, MusterWarning
from .federation import Federation
from .local import Local
from .methods import Method
from .participation import Flexible
from .simulate import Interrupted, Run, simulate
from .solo import solo, with_solo
from .store import load, load_runs, save

__version__ = "0.1.0"

__all__ = [
    "Federation",
    "Flexible",
    "Interrupted",
    "Local",
    "Method",
    "MusterError",
    "MusterWarning",
    "Run",
    "attacks",
    "data",
    "load",
    "load_runs",
    "methods",
    "models",
    "save",
    "schedules",
    "simulate",
    "solo",
    "with_solo",
]

"""The parts of a method, one module for each step of a round.

invite   which clients are asked                  join     a client's own decision to train
solvers  how it trains                            claim    what it works out from what only it knows
guard    what is malformed is refused             admit    the server's own rule
weigh    how much each reply counts               step     how the model moves
effort   how many local steps each takes          participation, attacks   who leaves, who lies
task     what a model is to be good at            optimizer   how a client's weights move

`from muster.parts import Aligned, Band, SGD` serves a method of your own.
"""

from .admit import Admit, Band, Everyone, Objective
from .attacks import Attack, ForgeLoss, InflateAndNoise, LabelFlip, ScaleUpdate, sign_flip
from .claim import Appeal, Claim, Nothing, Unmet
from .effort import AsAsked, ByWeight, Effort
from .invite import Apart, Fraction, Full, Invite, PowerOfChoice, Sample, WithReplacement
from .join import Aligned, Always, Available, Join, Straggling
from .optimizer import GradientDescent, Optimizer
from .participation import Flexible, Participation
from .solvers import SGD, ControlVariates, Ditto, MetaGradient, Moreau, Solo, Solver
from .step import (
    Adaptive,
    AdaptiveMoments,
    Agnostic,
    Average,
    Estimate,
    Momentum,
    Multiplicative,
    QFair,
    Scaffold,
    Stay,
    Step,
)
from .task import Multiclass, Task
from .weigh import Claimed, DataShare, LossPower, Mixture, Uniform, Weigh

__all__ = [
    "SGD",
    "Adaptive",
    "AdaptiveMoments",
    "Admit",
    "Agnostic",
    "Aligned",
    "Always",
    "Apart",
    "Appeal",
    "AsAsked",
    "Attack",
    "Available",
    "Average",
    "Band",
    "ByWeight",
    "Claim",
    "Claimed",
    "ControlVariates",
    "DataShare",
    "Ditto",
    "Effort",
    "Estimate",
    "Everyone",
    "Flexible",
    "ForgeLoss",
    "Fraction",
    "Full",
    "GradientDescent",
    "InflateAndNoise",
    "Invite",
    "Join",
    "LabelFlip",
    "LossPower",
    "MetaGradient",
    "Mixture",
    "Momentum",
    "Moreau",
    "Multiclass",
    "Multiplicative",
    "Nothing",
    "Objective",
    "Optimizer",
    "Participation",
    "PowerOfChoice",
    "QFair",
    "Sample",
    "Scaffold",
    "ScaleUpdate",
    "Solo",
    "Solver",
    "Stay",
    "Step",
    "Straggling",
    "Task",
    "Uniform",
    "Unmet",
    "Weigh",
    "WithReplacement",
    "sign_flip",
]

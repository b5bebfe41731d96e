"""The parts of a method, one module for each decision of a round.

invite     the clients asked                   join           a client's own decision to train
solvers    a client's local training           claim          a number from a client's private facts
guard      malformed replies are refused       admit          the server's rule for replies
weigh      the weight of each reply            step           the server's update
effort     the local steps of each client      participation  clients that leave and return
threats    attacks, collusion, faults          defences       robust steps, mixing, trust audit

Optimizers (`muster.optimizers`) and tasks (`muster.tasks`) are here by name too. Each role (`Join`,
`Step`, ...) documents what a part gets and returns, and has defaults to inherit.
"""

from ..optimizers import GradientDescent, Optimizer
from ..tasks.classification import Binary, Multiclass, Multilabel, NextToken
from ..tasks.regression import Huber, Poisson, Regression, Survival
from ..tasks.task import Task
from .admit import Admit, Band, Everyone, Objective
from .claim import Appeal, Claim, Nothing, Spread, Unmet
from .defences.mixing import Bucketing, NearestNeighbours, NormBound
from .defences.robust import CentredClipping, GeometricMedian, Krum, Median, TrimmedMean
from .defences.trust import Audit
from .effort import AsAsked, ByWeight, Effort
from .evidence import CrossFit, FedDA, FedFomo, Stein
from .invite import Apart, Fraction, Full, Invite, PowerOfChoice, Sample, WithReplacement
from .join import Aligned, Always, Available, Join, Straggling
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
from .threats.adversary import Attack, Honest
from .threats.attacks import (
    Backdoor,
    EdgeCase,
    ForgeLoss,
    InflateAndNoise,
    LabelFlip,
    Liars,
    Minority,
    ScaleUpdate,
    sign_flip,
)
from .threats.collusion import ALIE, IPM, Drift, Mimic
from .threats.faults import Faults
from .weigh import Claimed, DataShare, LossPower, Mixture, Uniform, Weigh

__all__ = [
    "ALIE",
    "IPM",
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
    "Audit",
    "Available",
    "Average",
    "Backdoor",
    "Band",
    "Binary",
    "Bucketing",
    "ByWeight",
    "CentredClipping",
    "Claim",
    "Claimed",
    "ControlVariates",
    "CrossFit",
    "DataShare",
    "Ditto",
    "Drift",
    "EdgeCase",
    "Effort",
    "Estimate",
    "Everyone",
    "Faults",
    "FedDA",
    "FedFomo",
    "Flexible",
    "ForgeLoss",
    "Fraction",
    "Full",
    "GeometricMedian",
    "GradientDescent",
    "Honest",
    "Huber",
    "InflateAndNoise",
    "Invite",
    "Join",
    "Krum",
    "LabelFlip",
    "Liars",
    "LossPower",
    "Median",
    "MetaGradient",
    "Mimic",
    "Minority",
    "Mixture",
    "Momentum",
    "Moreau",
    "Multiclass",
    "Multilabel",
    "Multiplicative",
    "NearestNeighbours",
    "NextToken",
    "NormBound",
    "Nothing",
    "Objective",
    "Optimizer",
    "Participation",
    "Poisson",
    "PowerOfChoice",
    "QFair",
    "Regression",
    "Sample",
    "Scaffold",
    "ScaleUpdate",
    "Solo",
    "Solver",
    "Spread",
    "Stay",
    "Stein",
    "Step",
    "Straggling",
    "Survival",
    "Task",
    "TrimmedMean",
    "Uniform",
    "Unmet",
    "Weigh",
    "WithReplacement",
    "sign_flip",
]

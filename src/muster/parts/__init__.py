"""The parts of a method, one module for each step of a round.

invite   which clients are asked                  join     a client's own decision to train
solvers  how it trains                            claim    what it works out from what only it knows
guard    what is malformed is refused             admit    the server's own rule
weigh    how much each reply counts               step     how the model moves
effort   how many local steps each takes          participation, attacks   who leaves, who lies
robust   steps that liars cannot drag far          collusion   attackers who work together
mixing   what is done to replies before           updates     replies as points
faults   replies broken by nobody's intent
trust    what strangers may do, and its check
task     what a model is to be good at            optimizer   how a client's weights move
other_tasks   numbers, labels, survival, tokens

`from muster.parts import Aligned, Band, SGD` serves a method of your own.
"""

from ..optimizers import GradientDescent, Optimizer
from ..tasks.base import Task
from ..tasks.classification import Binary, Multiclass, Multilabel
from ..tasks.regression import Huber, Poisson, Regression
from ..tasks.survival import Survival
from ..tasks.tokens import NextToken
from .admit import Admit, Band, Everyone, Objective
from .claim import Appeal, Claim, Nothing, Unmet
from .defences.mixing import Bucketing, NearestNeighbours, NormBound
from .defences.robust import CentredClipping, GeometricMedian, Krum, Median, TrimmedMean
from .defences.trust import Audit
from .effort import AsAsked, ByWeight, Effort
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
from .threats.attacks import (
    Attack,
    Backdoor,
    ForgeLoss,
    Honest,
    InflateAndNoise,
    LabelFlip,
    Liars,
    ScaleUpdate,
    sign_flip,
)
from .threats.collusion import ALIE, IPM, Mimic
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
    "DataShare",
    "Ditto",
    "Effort",
    "Estimate",
    "Everyone",
    "Faults",
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
    "Stay",
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

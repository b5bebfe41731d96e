"""What passes between the server and the clients in a round, and what is written down of it.

Everything has a leading client axis: the simulator fills it with everyone asked, a deployed
client with a stack of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base.arrays import Bool, Float64, Int64, Text
from .base.client_states import ClientStates
from .base.params import Params, State, select
from .federation import Federation, Population


@dataclass(frozen=True)
class Roster:
    """What the server knows of some clients; every array has one entry per client.

    Attributes:
        clients: their places in the population
        importance: a_k, the client's weight in the objective; 1 for priority clients
        share: what a reply counts by for its place in the objective: p_k, or what the invitation
            made of it (eq. 55)
        full: what it counts by beyond that, while it is aligned: p_k, or what the invitation made
            of it
        ids: the numbers by which their randomness is keyed; as a rule their places
    """

    clients: Int64
    priority: Bool
    importance: Float64
    share: Float64
    full: Float64 = field(default_factory=lambda: np.empty(0))
    ids: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        for name, rule in (("full", self.share), ("ids", self.clients)):
            if len(getattr(self, name)) != len(self.clients):
                object.__setattr__(self, name, rule)

    @classmethod
    def of(
        cls,
        who: Population | Federation,
        clients: Int64,
        share: Float64 | None = None,
        full: Float64 | None = None,
    ) -> Roster:
        """These clients of a population."""
        population = who.population if isinstance(who, Federation) else who
        p = population.share[clients]
        return cls(
            clients,
            population.priority[clients],
            population.importance[clients],
            p if share is None else share,
            p if full is None else full,
            population.ids[clients],
        )

    def weight(self, extent: Float64) -> Float64:
        """How much replies count that were admitted to this extent (0 to 1): up to a_k by their
        share, and what is beyond a_k by their full p_k. Without an invitation that draws by p_k
        both are p_k, and this is `extent_k p_k`."""
        within = np.minimum(extent, self.importance)
        return within * self.share + (extent - within) * self.full

    def pick(self, rows: Bool | Int64) -> Roster:
        """Some of them."""
        return Roster(*(getattr(self, f)[rows] for f in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: Sequence[Roster]) -> Roster:
        """One group of clients after another."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(p, f) for p in parts]) for f in names))

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Appraisal:
    """What clients measure of a model on their own data: F_k(w), the task's score, and what other
    scores it has, by name."""

    loss: Float64
    score: Float64
    more: dict[str, Float64] = field(default_factory=dict)

    @property
    def accuracy(self) -> Float64:
        """The score of a task whose score it is."""
        return self.score

    def pick(self, rows: Bool | Int64) -> Appraisal:
        """Some clients' measurements."""
        more = {name: values[rows] for name, values in self.more.items()}
        return Appraisal(self.loss[rows], self.score[rows], more)

    @classmethod
    def joined(cls, parts: Sequence[Appraisal]) -> Appraisal:
        """The measurements of one group of clients after another's."""
        more = {n: np.concatenate([p.more[n] for p in parts]) for n in parts[0].more}
        return cls(
            np.concatenate([p.loss for p in parts]), np.concatenate([p.score for p in parts]), more
        )

    def among(self, some: Bool) -> Appraisal:
        """The same among more clients, of which only these (a mask) measured anything."""

        def spread(values: Float64) -> Float64:
            every = np.full(len(some), np.nan)
            every[some] = values
            return every

        more = {name: spread(values) for name, values in self.more.items()}
        return Appraisal(spread(self.loss), spread(self.score), more)

    @classmethod
    def unknown(cls, n: int) -> Appraisal:
        """Nobody measured anything."""
        return cls(np.full(n, np.nan), np.full(n, np.nan))


@dataclass(frozen=True)
class Offer:
    """What the server broadcasts: the model, and what clients need to decide.

    Attributes:
        loss: F(w) and its score on the priority clients (NaN when no rule needs them)
        score: F(w) and its score on the priority clients (NaN when no rule needs them)
        eps: eps_t, how far a client may be from F(w) and still be aligned
        lr: the clients' learning rate this round; where it changes with every step, the first
        population: how many clients may ever take part, N
        trainable: names of the parameters that move by gradient (the rest are statistics)
        server: the server's memory that clients need (a control variate, say)
        called: what the score is called
        higher: whether more of it is better
        frozen: what tells the frozen parameters from others, which do not travel
    """

    seed: int
    round: int
    rounds: int
    model: Params
    loss: float = float("nan")
    score: float = float("nan")
    eps: float = float("nan")
    lr: float = float("nan")
    population: int = 0
    trainable: tuple[str, ...] = ()
    server: State = field(default_factory=dict)
    called: str = "accuracy"
    higher: bool = True
    frozen: str = ""

    @property
    def accuracy(self) -> float:
        """The score of a task whose score it is."""
        return self.score


@dataclass(frozen=True)
class Decision:
    """Yes or no for each client, and why."""

    yes: Bool
    reason: Text


@dataclass(frozen=True)
class Replies:
    """What came back from the clients that trained: a stack of models, and their word on it.

    Attributes:
        appraisal: F_k(w) and the score, as the client reports them
        claim: the one number a client works out from what only it knows (q_k, say); else NaN
        extra: what else the solver sends (a change of control variate, say)
        trainable: names of the parameters that move by gradient; empty: all
    """

    roster: Roster
    models: Params
    appraisal: Appraisal
    claim: Float64
    extra: State = field(default_factory=dict)
    trainable: tuple[str, ...] = ()

    def pick(self, rows: Bool) -> Replies:
        """Some of them; themselves when that is all."""
        if rows.all():
            return self
        return Replies(
            self.roster.pick(rows),
            select(self.models, rows),
            self.appraisal.pick(rows),
            self.claim[rows],
            {part: select(table, rows) for part, table in self.extra.items()},
            self.trainable,
        )


@dataclass(frozen=True)
class HonestReplies:
    """What the clients that replied would have said and claimed honestly, and whether they would
    have joined: known only where attackers are simulated."""

    joins: Bool
    appraisal: Appraisal
    claim: Float64


@dataclass(frozen=True)
class Traffic:
    """Bytes that crossed the network in a round: to and from each asked client, and between the
    server and everyone else."""

    up: Int64
    down: Int64
    others_up: int = 0
    others_down: int = 0


@dataclass(frozen=True)
class Answers:
    """What came of asking: an entry for each asked client, and the replies of those who trained.

    Attributes:
        decision: who joined, and each one's reason
        replies: of those who joined, as far as they could be read
        measured: what is known of each asked client's appraisal of the model
        steps: how many each reply took
        memory: the new memory of those who replied, where it is kept on this side
        failed: who gave no answer at all (the decision's reason says why); silence by choice is an
            answer
        truth: of the replies, where some of them are lies
        traffic: bytes counted on the wire; None: worked out from sizes
        events: what else happened to a client (or, as -1, to somebody who is none), for the ledger
    """

    decision: Decision
    replies: Replies
    measured: Appraisal
    steps: Int64
    memory: State
    failed: Bool
    truth: HonestReplies | None = None
    traffic: Traffic | None = None
    events: tuple[tuple[int, str], ...] = ()

    def without_models(self) -> Answers:
        """The same, with nothing left of the models that came with it."""
        return replace(self, replies=replace(self.replies, models={}, extra={}))

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """The answers of one portion of clients after another's, without their models; the answers
        themselves when there is one portion."""
        if len(parts) == 1:
            return parts[0]
        replies = [p.replies for p in parts]
        truths = [p.truth for p in parts if p.truth is not None]
        decided = [p.decision for p in parts]
        return cls(
            Decision(
                np.concatenate([d.yes for d in decided]),
                np.concatenate([d.reason for d in decided]),
            ),
            Replies(
                Roster.joined([r.roster for r in replies]),
                {},
                Appraisal.joined([r.appraisal for r in replies]),
                np.concatenate([r.claim for r in replies]),
            ),
            Appraisal.joined([p.measured for p in parts]),
            np.concatenate([p.steps for p in parts]),
            {},
            np.concatenate([p.failed for p in parts]),
            truths[0] if truths else None,
            events=tuple(event for p in parts for event in p.events),
        )


@dataclass(frozen=True)
class Trial:
    """What appraisers say of the round's model and of others that might follow it.

    Attributes:
        words: `[model, appraiser]`, lower is better: F_k, or what a client's requirement makes of
            it; NaN where there is no answer. The round's model comes first.
        clients: the appraisers
        traffic: bytes counted on the wire, up and down, for each; None: worked out from sizes
        events: what else happened to a client, for the ledger
    """

    words: Float64
    clients: Int64
    traffic: tuple[Int64, Int64] | None = None
    events: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """What each client makes of a model; NaN where it was not asked or did not answer.

    Attributes:
        train: loss and scores on its training and held-out rows
        test: loss and scores on its training and held-out rows
        useful: 1 where the model is better than what it has without it, else 0
        meets: 1 where its requirement is met, on its training rows (None: nobody has one)
        meets_test: the same on its held-out rows, against its own model there
        preferred: held-out score of whichever it uses: the model if it appeals, else its own
        own: the same measures of the model it keeps for itself, where the method has one
        own_test: the same measures of the model it keeps for itself, where the method has one
        meets_tuned: as `meets`, after a few local steps from the model, where they are taken
        tuned: held-out score after those steps
        called: what the score is called
    """

    train: Appraisal
    test: Appraisal | None
    useful: Float64
    meets: Float64 | None = None
    meets_test: Float64 | None = None
    preferred: Float64 | None = None
    own: Appraisal | None = None
    own_test: Appraisal | None = None
    meets_tuned: Float64 | None = None
    tuned: Float64 | None = None
    called: str = "accuracy"

    def of(self, score: str) -> Evaluation | None:
        """The same view with another of its scores as the score; None where it has no such."""
        if score == self.called:
            return self
        if score not in self.train.more:
            return None

        def turned(appraisal: Appraisal | None) -> Appraisal | None:
            if appraisal is None:
                return None
            nothing = np.full(len(appraisal.loss), np.nan)
            return Appraisal(appraisal.loss, appraisal.more.get(score, nothing))

        train = Appraisal(self.train.loss, self.train.more[score])
        return replace(
            self, train=train, test=turned(self.test), own=turned(self.own),
            own_test=turned(self.own_test), preferred=None, tuned=None, called=score,
        )  # fmt: skip


@dataclass
class RunState:
    """All that lasts between rounds: the model, the server's memory, and each client's.

    Attributes:
        server: the server's memory, by part
        clients: what clients remember, where it is kept on this side; None: nothing
        present: who is in the pool (everyone, until clients may leave)
    """

    round: int
    model: Params
    server: State = field(default_factory=dict)
    clients: ClientStates | None = None
    present: Bool = field(default_factory=lambda: np.ones(0, np.bool_))


@dataclass(frozen=True)
class LedgerEntry:
    """One round in the ledger: a row for the round, and columns with a row for each asked client,
    each client that left or returned, and each attacker.

    Attributes:
        heard: the share of the objective's weight, among those asked, that gave a sound answer: a
            reply that counts, or an abstention
    """

    round: dict[str, Any]
    clients: dict[str, NDArray[Any]]
    moves: dict[str, NDArray[Any]] = field(default_factory=dict)
    attackers: dict[str, NDArray[Any]] = field(default_factory=dict)
    heard: float = 1.0

"""The messages of a round between the server and its clients, and the state between rounds.

Parts receive and return these values. Every array has a leading client axis: the simulator fills it
with everyone asked, a deployed client with a stack of one.
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
    """The server's facts about some clients; every array has one entry per client.

    Attributes:
        clients: positions of the clients in the population
        priority: True for priority clients
        importance: a_k, the client's weight in the objective; 1 for priority clients
        share: weight of a reply for its place in the objective: p_k, or p_k as the invitation
            changed it (eq. 55)
        full: weight of a reply beyond that, while it is aligned: p_k, or p_k as the invitation
            changed it
        ids: numbers that key the clients' randomness; by default their positions
        group: the sum that each contributes to in a private round; by default there is one
    """

    clients: Int64
    priority: Bool
    importance: Float64
    share: Float64
    full: Float64 = field(default_factory=lambda: np.empty(0))
    ids: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    group: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        one = np.zeros(len(self.clients), np.int64)
        for name, rule in (("full", self.share), ("ids", self.clients), ("group", one)):
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
        """Return the roster of these clients of a population."""
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
        """Return the weight of replies admitted to this extent (0 to 1): `share` up to a_k, `full`
        beyond it. Without an invitation that draws by p_k both are p_k, and this is
        `extent_k p_k`."""
        within = np.minimum(extent, self.importance)
        return within * self.share + (extent - within) * self.full

    def pick(self, rows: Bool | Int64) -> Roster:
        """Return some of the clients; the object itself when that is all."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        return Roster(*(getattr(self, f)[rows] for f in self.__dataclass_fields__))

    @classmethod
    def concat(cls, parts: Sequence[Roster]) -> Roster:
        """Return one group of clients after another."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(p, f) for p in parts]) for f in names))

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Appraisal:
    """Clients' measurements of a model on their own data; NaN where a client measured nothing.

    Attributes:
        loss: F_k(w)
        score: the task's first score
        more: the task's other scores, by name
    """

    loss: Float64
    score: Float64
    more: dict[str, Float64] = field(default_factory=dict)

    @property
    def accuracy(self) -> Float64:
        """The score, under the name it has in classification."""
        return self.score

    def pick(self, rows: Bool | Int64) -> Appraisal:
        """Return some clients' measurements; the object itself when that is all."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        more = {name: values[rows] for name, values in self.more.items()}
        return Appraisal(self.loss[rows], self.score[rows], more)

    @classmethod
    def concat(cls, parts: Sequence[Appraisal]) -> Appraisal:
        """Return the measurements of one group of clients after another's."""
        more = {n: np.concatenate([p.more[n] for p in parts]) for n in parts[0].more}
        return cls(
            np.concatenate([p.loss for p in parts]), np.concatenate([p.score for p in parts]), more
        )

    def among(self, some: Bool) -> Appraisal:
        """Return it for more clients, of which only these (a mask) measured anything."""

        def spread(values: Float64) -> Float64:
            every = np.full(len(some), np.nan)
            every[some] = values
            return every

        more = {name: spread(values) for name, values in self.more.items()}
        return Appraisal(spread(self.loss), spread(self.score), more)

    @classmethod
    def unknown(cls, n: int) -> Appraisal:
        """Return the appraisal of n clients that measured nothing."""
        return cls(np.full(n, np.nan), np.full(n, np.nan))


@dataclass(frozen=True)
class Offer:
    """The server's broadcast at the start of a round: the model, and what clients need to decide.

    Attributes:
        seed: seed of the run, which keys every random draw
        round: number of the round, from 0
        rounds: rounds of the whole run
        model: the model w, by parameter name
        loss: F(w), the loss on the priority clients (NaN when no rule needs it)
        score: the score on the priority clients (NaN when no rule needs it)
        eps: eps_t, how far a client may be from F(w) and still be aligned
        lr: the clients' learning rate this round; where it changes with every step, the first
        population: number of clients that may ever take part, N
        trainable: names of the parameters that move by gradient (the rest are statistics)
        server: server state that clients need (a control variate, say)
        score_name: name of the score
        higher: True if a higher score is better
        frozen: digest of the frozen parameters, which are not sent
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
    score_name: str = "accuracy"
    higher: bool = True
    frozen: str = ""

    @property
    def accuracy(self) -> float:
        """The score, under the name it has in classification."""
        return self.score


@dataclass(frozen=True)
class Decision:
    """A yes or no for each client, with the reason.

    Attributes:
        yes: True where the client joins (or the server admits its reply)
        reason: a short reason for each client, for the ledger
    """

    yes: Bool
    reason: Text


@dataclass(frozen=True)
class Replies:
    """The replies of the clients that trained: a stack of models, and what clients report.

    Attributes:
        roster: the clients that replied
        models: their trained models, stacked: `[client, ...]` by parameter name
        appraisal: F_k(w) and the score of the offered model, as the client reports them
        claim: the number a client derives from private facts (q_k, say); else NaN
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
        """Return some of the replies; the object itself when that is all."""
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
    """The replies that clients would have sent honestly; known only where attackers are simulated.

    Attributes:
        joins: True where the client would have joined
        appraisal: the appraisal it would have reported
        claim: the claim it would have sent
    """

    joins: Bool
    appraisal: Appraisal
    claim: Float64


@dataclass(frozen=True)
class Traffic:
    """Bytes that crossed the network in a round.

    Attributes:
        up: from each asked client
        down: to each asked client
        others_up: from everyone else
        others_down: to everyone else
    """

    up: Int64
    down: Int64
    others_up: int = 0
    others_down: int = 0


@dataclass(frozen=True)
class ModelFetch:
    """Models that clients sent after their sketches, one entry for each that was asked.

    Attributes:
        models: a stack; the offer's model stands for one that is missing
        missing: why it is missing ("": it is not)
        up: bytes from each, counted on the wire
        down: bytes to each
    """

    models: Params
    missing: Text
    up: Int64
    down: Int64


@dataclass(frozen=True)
class Answers:
    """The answers to a request to train: an entry for each asked client, and the replies.

    Attributes:
        decision: who joined, and each one's reason
        replies: replies of those who joined, as far as they could be read
        appraisal: each asked client's appraisal of the model, where it is known
        steps: local steps behind each reply
        state: the new client state of those who replied, where the server side stores it
        failed: True where a client gave no answer at all (the decision's reason says why);
            abstaining is an answer
        truth: the honest replies, where some clients are attackers
        traffic: bytes counted on the wire; None: computed from sizes
        events: other events for the ledger, as (client, text); client -1: an unknown sender
        missing: why a reply is without its model ("": it has one); None: all have theirs
    """

    decision: Decision
    replies: Replies
    appraisal: Appraisal
    steps: Int64
    state: State
    failed: Bool
    truth: HonestReplies | None = None
    traffic: Traffic | None = None
    events: tuple[tuple[int, str], ...] = ()
    missing: Text | None = None

    def without_models(self) -> Answers:
        """Return the answers without the models that came with them."""
        return replace(self, replies=replace(self.replies, models={}, extra={}))

    @classmethod
    def concat(cls, parts: Sequence[Answers]) -> Answers:
        """Return the answers of one portion of clients after another's, without their models; the
        answers themselves when there is one portion."""
        if len(parts) == 1:
            return parts[0]
        replies = [p.replies for p in parts]
        truths = [p.truth for p in parts if p.truth is not None]
        decisions = [p.decision for p in parts]
        return cls(
            Decision(
                np.concatenate([d.yes for d in decisions]),
                np.concatenate([d.reason for d in decisions]),
            ),
            Replies(
                Roster.concat([r.roster for r in replies]),
                {},
                Appraisal.concat([r.appraisal for r in replies]),
                np.concatenate([r.claim for r in replies]),
            ),
            Appraisal.concat([p.appraisal for p in parts]),
            np.concatenate([p.steps for p in parts]),
            {},
            np.concatenate([p.failed for p in parts]),
            truths[0] if truths else None,
            events=tuple(event for p in parts for event in p.events),
        )


@dataclass(frozen=True)
class Admission:
    """The server's admission of replies, one entry per reply.

    Attributes:
        extent: how far each was admitted, 0 (refused) to 1 (in full)
        weight: its share of the step
        reason: why it was refused
    """

    extent: Float64
    weight: Float64
    reason: Text

    @property
    def admitted(self) -> Bool:
        """True for replies that were not refused."""
        return self.extent > 0

    def normalize(self) -> Admission:
        """Return the same with weights that sum to 1, unless all are 0."""
        total = float(self.weight.sum())
        return replace(self, weight=self.weight / total) if total > 0 else self

    @classmethod
    def concat(cls, parts: Sequence[Admission]) -> Admission:
        """Concatenate the admissions of portions of replies."""
        fields = ("extent", "weight", "reason")
        return cls(*(np.concatenate([getattr(p, f) for p in parts]) for f in fields))


@dataclass(frozen=True)
class Trial:
    """Appraisals of the round's model and of candidates to follow it.

    Attributes:
        values: `[model, appraiser]`, lower is better: F_k, or F_k measured against the client's
            requirement; NaN where there is no answer. The round's model comes first.
        clients: the appraisers
        traffic: bytes counted on the wire, up and down, for each; None: computed from sizes
        events: other events for the ledger, as (client, text)
    """

    values: Float64
    clients: Int64
    traffic: tuple[Int64, Int64] | None = None
    events: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """Each client's evaluation of a model; NaN where it was not asked or did not answer.

    Attributes:
        train: loss and scores on the client's training rows
        test: loss and scores on its held-out rows
        useful: 1 where the model is better than what the client has without it, else 0
        meets: 1 where its requirement is met, on its training rows (None: nobody has one)
        meets_test: the same on its held-out rows, against its own model there
        preferred: held-out score of the model it uses: this one if it appeals, else its own
        own: loss and scores on training rows of the client's personal model, where it has one
        own_test: the same on its held-out rows
        meets_tuned: as `meets`, after a few local steps from the model, where they are taken
        tuned: held-out score after those steps
        score_name: name of the score
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
    score_name: str = "accuracy"

    def with_score(self, score: str) -> Evaluation | None:
        """Return it with another of its scores as the score; None if it has no such score."""
        if score == self.score_name:
            return self
        if score not in self.train.more:
            return None

        def swap(appraisal: Appraisal | None) -> Appraisal | None:
            if appraisal is None:
                return None
            nothing = np.full(len(appraisal.loss), np.nan)
            return Appraisal(appraisal.loss, appraisal.more.get(score, nothing))

        return replace(
            self,
            train=Appraisal(self.train.loss, self.train.more[score]),
            test=swap(self.test),
            own=swap(self.own),
            own_test=swap(self.own_test),
            preferred=None,
            tuned=None,
            score_name=score,
        )


@dataclass
class RunState:
    """The state between rounds: the model, the server's state, and each client's.

    Attributes:
        round: rounds played so far
        model: the global model
        server: server state, by part
        clients: client states, where the server side stores them; None: there are none
        present: True for clients in the pool (everyone, until clients may leave)
    """

    round: int
    model: Params
    server: State = field(default_factory=dict)
    clients: ClientStates | None = None
    present: Bool = field(default_factory=lambda: np.ones(0, np.bool_))


@dataclass(frozen=True)
class LedgerEntry:
    """One round in the ledger.

    Attributes:
        round: the row of the round, by column
        clients: columns with a row for each asked client
        moves: columns with a row for each client that left or returned
        attackers: columns with a row for each attacker
        answered: share of the objective's weight, among those asked, that gave a sound answer: a
            reply that counts, or an abstention
    """

    round: dict[str, Any]
    clients: dict[str, NDArray[Any]]
    moves: dict[str, NDArray[Any]] = field(default_factory=dict)
    attackers: dict[str, NDArray[Any]] = field(default_factory=dict)
    answered: float = 1.0

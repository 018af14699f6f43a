"""What one turn's credit is made of: records whose parts add up to the number the turn was trained with."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A weight times a number of one tick."""

    player: str
    tick: int
    weight: float
    amount: float

    @property
    def product(self) -> float:
        """What it adds."""
        return self.weight * self.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A branch that a return was averaged over."""

    branch: str
    tick: int
    """Where it leaves its line."""
    weight: float
    """Its share, discounted."""
    returns: float
    """The player's return in it from there on."""
    step: int
    """Id of its first step."""
    reply: str = ""
    """What was answered there in place of the main line's reply, and who did."""

    @property
    def product(self) -> float:
        """What it adds."""
        return self.weight * self.returns


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """One temporal difference of GAE: delta_k = r_k + gamma V_{k+1} - V_k, weighed by (gamma lambda)^(k-t)."""

    tick: int
    weight: float
    reward: float
    following: float
    """gamma V_{k+1}; after a truncated game's last tick, gamma times the value read there."""
    value: float

    @property
    def delta(self) -> float:
        """How much better the tick went than the critic had said."""
        return self.reward + self.following - self.value

    @property
    def product(self) -> float:
        """What it adds to the advantage."""
        return self.weight * self.delta


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """Another path of the same group, or another reply at the same fork."""

    episode: str
    branch: str
    returns: float
    """Its return at the tick."""
    step: int | None = None
    """Id of the step in which the reply stands; None for a path of the group, which is taken at the tick."""
    reply: str = ""
    """What the player answered there; of a path of the group at the tick, all his replies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was subtracted from the return."""

    kind: Literal["leave_one_out", "group_mean", "replies", "running_mean", "none", "critic"]
    """`group_mean`: the game itself among the others; `replies`: those of the same fork; `running_mean` also where a
    path was alone in its group (rule 1)."""
    amount: float
    siblings: tuple[Sibling, ...] = ()
    """Whose mean it is, for leave-one-out, group means and replies."""
    seen: float = 0.0
    """How many earlier returns a running mean is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalising:
    """A number before and after whitening or centring, and the statistics of all that were normalised with it."""

    before: float
    after: float
    mean: float
    deviation: float | None
    """None if only the mean was taken away."""
    over: str
    """Which cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAdvantage:
    """One own past advantage in an alignment weight whose past is expected over fresh replies."""

    tick: int
    kind: Literal["expected", "taken", "zero", "no reply"]
    """`taken`, `zero`: no reply was resampled there; `no reply`: he gave none, so there is nothing to expect."""
    replies: tuple[Sibling, ...] = ()
    """Whose mean return was expected."""
    baseline: Baseline | None = None
    """What was subtracted from it."""

    @property
    def amount(self) -> float:
        """The expected advantage."""
        assert self.baseline is not None
        return math.fsum(one.returns for one in self.replies) / len(self.replies) - self.baseline.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentWeight:
    """w_t of Advantage Alignment: the own past, and what the settings then made of it."""

    beta: float
    past: tuple[Term, ...]
    """Own advantages by tick, with their weights."""
    steps: tuple[tuple[str, float], ...]
    """The weight after each option that acted on it, `sum` first."""
    expected: tuple[PastAdvantage, ...] = ()
    """What made each own past advantage, where they are expected."""

    @property
    def weight(self) -> float:
        """The weight that the opponents' advantages were multiplied by, beta aside."""
        return self.steps[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredit:
    """One sampled token as stored."""

    row: int
    position: int
    token: int
    log_prob: float
    """When it was sampled."""
    importance_weight: float
    credit: float
    text: str = ""
    """Untrusted; empty where the tokenizer is nowhere to be found, and after the first token of a character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A named summand."""

    what: str
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One turn's credit, stage by stage, in scaled reward units."""

    episode: str
    branch: str
    step: int
    player: str
    attempt: int
    policy: str
    tick: int
    calls: tuple[str, ...]
    """Tool calls before the reply, each with its outcome; they share its credit, what tools told has none."""
    reply: str
    trained: bool
    """False for players whose policy does not learn: they have an advantage, which others' credit uses."""
    reward_scale: float
    rewards: tuple[Term, ...]
    """Of the tick and later, with their discounts, a KL taken off: with the lines, they add up to the return."""
    lines: tuple[Line, ...]
    """Branches at this fork and later ones that the return was averaged over."""
    beyond: tuple[Term, ...]
    """The critic's value of what lies beyond a horizon or a truncated game, as far as it is in the return."""
    share: float
    """What the turn's loss is multiplied by: 1, unless the game branches (rule 11)."""
    baseline: Baseline
    errors: tuple[Surprise, ...]
    """With a critic: they add up to the advantage."""
    before: Normalising | None
    """Of the advantage, before it is sent to others and shaped."""
    alignment: AlignmentWeight | None
    others: tuple[Term, ...]
    """The opponents' advantages at the tick, with what shaping multiplied them by."""
    after: Normalising | None
    """Of the shaped credit."""
    penalty: float
    """Of a malformed attempt."""
    visitation: float
    """gamma^t, or 1 if it is off."""
    tokens: tuple[TokenCredit, ...]
    """Empty if nothing was sampled or trained."""
    scaled: Normalising | None = None
    """With GRPO, of the advantage by its group's deviation."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """Tick -> what a reward model added to the reward, on the own path."""
    taken: Mapping[int, float] = field(default_factory=dict)
    """Tick -> what a KL took off the reward, on the own path."""
    tokenizer: str = ""
    """Digest of the one that the turn's tokens are of."""

    @property
    def returns(self) -> float:
        """The discounted return from the tick on."""
        terms = [one.product for one in (*self.rewards, *self.beyond)]
        return math.fsum(terms + [one.product for one in self.lines])

    @property
    def advantage(self) -> float:
        """The player's own, as estimated."""
        if self.errors:
            return math.fsum(error.product for error in self.errors)
        return self.returns - self.baseline.amount + (_change(self.scaled) if self.scaled else 0.0)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Summands of the credit."""
        if self.errors:
            parts = [part for error in self.errors for part in self._split("surprise", error)]
        else:
            parts = [part for reward in self.rewards for part in self._split("reward", reward)]
            parts += [Part(what=f"branch {one.branch}", amount=one.product) for one in self.lines]
            parts += [Part(what=f"value at tick {one.tick}", amount=one.product) for one in self.beyond]
            parts.append(Part(what="baseline", amount=-self.baseline.amount))
        if self.scaled:
            parts.append(Part(what="divided by the group's deviation", amount=_change(self.scaled)))
        if self.before:
            parts.append(Part(what="normalising before shaping", amount=_change(self.before)))
        parts += [Part(what=f"advantage of {one.player}", amount=one.product) for one in self.others]
        if self.after:
            parts.append(Part(what="normalising after shaping", amount=_change(self.after)))
        if self.penalty:
            parts.append(Part(what="penalty of a malformed attempt", amount=-self.penalty))
        if self.visitation != 1:
            so_far = math.fsum(part.amount for part in parts)
            parts.append(Part(what="weight of late ticks", amount=(self.visitation - 1) * so_far))
        return tuple(parts)

    def _split(self, what: str, term: Term | Surprise) -> Iterator[Part]:
        """The game's part of a tick's reward, or of the surprise at it, a reward model's, and what a KL took off it."""
        scored = term.weight * self.scores.get(term.tick, 0.0)
        taken = -term.weight * self.taken.get(term.tick, 0.0)
        yield Part(what=f"{what} of tick {term.tick}", amount=term.product - scored - taken)
        if term.tick in self.scores:
            yield Part(what=f"reward model at tick {term.tick}", amount=scored)
        if term.tick in self.taken:
            yield Part(what=f"KL at tick {term.tick}", amount=taken)

    @property
    def credit(self) -> float:
        """The sum of the parts; for players who do not learn, the advantage that others were told."""
        return math.fsum(part.amount for part in self.parts)

    @property
    def stored(self) -> float | None:
        """The credit that the turn's tokens were trained with; None if there are none."""
        return self.tokens[0].credit if self.tokens else None

    def plain(self) -> dict[str, Any]:
        """Everything as JSON knows it, sums included."""
        sums = ("returns", "advantage", "credit", "stored")
        parts = [asdict(part) for part in self.parts]
        return asdict(self) | {name: getattr(self, name) for name in sums} | {"parts": parts}


def _change(one: Normalising) -> float:
    return one.after - one.before

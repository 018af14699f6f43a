"""Players whose chances are known, so that what a reply is worth can be enumerated."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import log
from typing import Any

from rollout_fakes import plan_for

from coplay.agents.base import Agent, AgentFactory, Reply, Sampling, Seat, Segment, TurnKey
from coplay.games import Chance, Game, Move, Observation, derive_seed
from coplay.rollout_tree import BranchPlan, RolloutTree, collect_sync

Chances = Callable[[tuple[str, ...], Observation], Mapping[str, float]]
"""From own moves so far and what is seen to the chance of each label."""

SITUATIONS: dict[tuple[tuple[str, ...], str], int] = {}
"""Own moves and facts seen -> a number."""


@dataclass
class Tabular:
    """Draws labels by known chances, from its own moves so far (a memory of its own) and what it sees.

    Tells its entropy if asked, and names its situation by a token. A wordy one spends more tokens on later labels.
    """

    seat: Seat
    chances: Chances
    mine: tuple[str, ...] = ()
    policy: str = "table@0"
    wordy: bool = False

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        seed = derive_seed(self.seat.seed, key.branch, key.step, key.attempt)
        lot, chances = seed / 2**63, self.chances(self.mine, observation)
        labels = list(chances)
        place = 0
        while place < len(labels) - 1 and lot >= chances[labels[place]]:
            lot -= chances[labels[place]]
            place += 1
        label = labels[place]
        self.mine = (*self.mine, label)
        ids = (3 + place,) * (1 + 3 * place if self.wordy else 1)
        situation = SITUATIONS.setdefault((self.mine[:-1], str(observation.facts)), len(SITUATIONS))
        entropy = -sum(chance * log(chance) for chance in chances.values())
        return Reply(
            text=observation.grammar.write(observation.grammar.parse(label).value),
            policy=self.policy,
            segments=(Segment((1, 100 + situation)), Segment(ids, True, (-1.0,) * len(ids))),
            sampling=Sampling(temperature=1.0, max_new_tokens=1, seed=seed, constrained=True),
            tokenizer="fake",
            entropy=entropy if self.seat.tells_entropy else None,
        )

    def close(self, observation: Observation) -> Reply:
        closing = (Segment((1, 7)),)
        return Reply(text="", policy=self.policy, finish="none", segments=closing, tokenizer="fake")

    def fork(self) -> Agent:
        return replace(self)


def uneven(mine: tuple[str, ...], observation: Observation) -> dict[str, float]:
    """Depends on the own first move and on whether the others cooperated."""
    labels = observation.grammar.labels()
    last = observation.facts.get("last", {})
    cooperate = observation.facts["cooperate"]
    kind = sum(move == cooperate[name] for name, move in last.items()) / max(len(last), 1)
    chance = 0.6 if not mine else 0.15 + 0.5 * kind + 0.2 * (mine[0] == labels[0])
    return {labels[0]: chance, labels[1]: 1 - chance}


def tabular(seat: Seat) -> Tabular:
    return Tabular(seat, uneven)


def play_branches(
    game: Game[Any],
    agents: Mapping[str, AgentFactory] | AgentFactory = tabular,
    *,
    branching: BranchPlan | None = None,
    **options: Any,
) -> list[RolloutTree]:
    seats = agents if isinstance(agents, Mapping) else dict.fromkeys(game.spec.players, agents)
    return collect_sync(plan_for(game, seats, branching=branching, **options))


def continuations(
    game: Game[Any], state: Any, step: int, mine: Mapping[str, tuple[str, ...]], first: Mapping[str, str] = {}
) -> Iterator[tuple[float, dict[str, str], dict[str, float]]]:
    """Every way on with its chance under `uneven`, the moves of its first step and the players' returns.

    `first` fixes moves of the first step, whose chance is then 1. Games without chance only.
    """
    movers = game.to_move(state)
    if not movers:
        yield 1.0, {}, dict.fromkeys(game.spec.players, 0.0)
        return
    chances = {}
    for player in movers:
        seen = game.observe(state, player)
        fixed = first.get(player)
        chances[player] = {fixed: 1.0} if fixed else uneven(mine[player], seen)
    for labels in product(*chances.values()):
        chosen = dict(zip(movers, labels, strict=True))
        chance = 1.0
        for player, label in chosen.items():
            chance *= chances[player][label]
        actions = {player: Move(value=label, text=label) for player, label in chosen.items()}
        after, outcome = game.step(state, actions, Chance(0, step + 1))
        history = {player: (*moves, chosen[player]) for player, moves in mine.items()}
        for later, _, returns in continuations(game, after, step + 1, history):
            total = {player: outcome.rewards[player] + returns[player] for player in returns}
            yield chance * later, chosen, total

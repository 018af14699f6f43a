"""Where one line of an episode forks: kept while it is played, decided when it is over."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coplay.agents.base import Agent
from coplay.games import Action
from coplay.games.chance import SEED_BITS
from coplay.rollout_tree.branching import BranchPlan, Luck, Moment, Origin
from coplay.rollout_tree.records import Step, Turn


@dataclass(slots=True, kw_only=True)
class _Place:
    """A step of a line at which players were drawn to be resampled."""

    tick: int
    players: tuple[str, ...]
    """In the order in which a budget is spent on them."""
    before: Moment
    actions: Mapping[str, Action] | None = None
    """What was played; None until the step is complete."""
    agents_after: Mapping[str, Agent] | None = None
    entropies: Mapping[str, float] | None = None
    """Of the players' first replies, as far as they say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepForks:
    """The forks of one step of a line, which are decided together."""

    line: str
    step: int
    origins: tuple[tuple[Origin, ...], ...]
    """For each player who is resampled there, in the order in which a budget is spent, his alternatives."""


class Forks:
    """Keeps what branches of one line start from, while the line is played."""

    def __init__(self, plan: BranchPlan, luck: Luck, origin: Origin | None = None) -> None:
        """Of the main line, or of the branch that starts at `origin`."""
        self._plan, self._luck, self._origin = plan, luck, origin
        self._first = 0 if origin is None else origin.step + 1  # siblings of its first reply fork elsewhere
        self._places: dict[int, _Place] = {}

    def before(
        self,
        step: int,
        tick: int,
        state: Any,
        movers: tuple[str, ...],
        snapshot: Callable[[], Mapping[str, Agent]],
    ) -> None:
        """Keep the episode as it stands before a step, if somebody is drawn there."""
        drawn = self._drawn(step, tick, movers) if step >= self._first else ()
        if drawn:
            last = self._places.get(step - 1)
            agents = snapshot() if last is None or last.agents_after is None else last.agents_after
            moment = Moment(state=state, round=tick, movers=movers, agents=agents)
            self._places[step] = _Place(tick=tick, players=drawn, before=moment)

    def after(
        self,
        step: int,
        actions: Mapping[str, Action],
        entropies: Mapping[str, float],
        snapshot: Callable[[], Mapping[str, Agent]],
    ) -> None:
        """Keep what was played at a step and the agents as they stand after it, if the step is a fork."""
        place = self._places.get(step)
        if place is not None:
            place.actions, place.agents_after, place.entropies = actions, snapshot(), entropies

    def candidates(self, steps: Sequence[Step]) -> dict[int, tuple[str, ...]]:
        """Step -> whom coin and entropy let be resampled there, on the line when it is complete.

        Raises:
            ValueError: if entropy or value is asked for and there is none of a player.
        """
        plan, found, by_number = self._plan, dict[int, tuple[str, ...]](), {one.index: one for one in steps}
        for number, place in sorted(self._places.items()):
            if number not in by_number or place.entropies is None:
                continue  # the line ended before this step was complete
            chosen = []
            for player in place.players:
                has_tokens = any(turn.segments for turn in by_number[number].turns if turn.player == player)
                if plan.players is None and not has_tokens:
                    continue
                entropy = place.entropies.get(player)
                if (plan.reads_entropy and entropy is None) or (plan.reads_value and not has_tokens):
                    signal = "entropy" if plan.reads_entropy and entropy is None else "value"
                    raise ValueError(
                        f"branches are to be chosen by {signal}, and replies of player {player!r} have none; expected"
                        " players in branching.players whose replies have tokens, from an engine that tells it"
                    )
                if plan.admits_entropy(entropy):
                    chosen.append(player)
            if chosen:
                found[number] = tuple(chosen)
        return found

    def step_forks(
        self, steps: Sequence[Step], values: Mapping[tuple[int, str], float]
    ) -> tuple[StepForks, ...]:
        """All forks of a complete line by step.

        Args:
            values: what a critic says before a reply, by (step, player); not read where the plan asks for none.
        """
        found, by_number = [], {step.index: step for step in steps}
        for number, players in self.candidates(steps).items():
            held = _held(by_number[number])
            origins = [
                self._origins(number, player, held, values.get((number, player)))
                for player in players
                if self._plan.admits_value(values.get((number, player)))
            ]
            if origins:
                line = "" if self._origin is None else self._origin.branch
                found.append(StepForks(line=line, step=number, origins=tuple(origins)))
        return tuple(found)

    def _origins(
        self, number: int, player: str, held: Sequence[Turn], value: float | None
    ) -> tuple[Origin, ...]:
        plan, place, line = self._plan, self._places[number], self._origin
        assert place.actions is not None and place.agents_after is not None and place.entropies is not None
        last = None if plan.horizon is None else place.tick + plan.horizon - 1
        if last is not None and line is not None and line.last_tick is not None:
            last = min(last, line.last_tick)  # the taken reply's line goes no further
        known = {
            "entropy": place.entropies[player] if plan.reads_entropy else None,
            "value": value if plan.reads_value else None,
            "last_tick": last,
        }
        return tuple(
            Origin(
                branch=f"{line.branch}/s{number}.{player}.{count}" if line else f"s{number}.{player}.{count}",
                line="" if line is None else line.branch,
                level=1 if line is None else line.level + 1,
                step=number,
                player=player,
                before=place.before,
                agents_after=place.agents_after,
                held=tuple(turn for turn in held if turn.player != player),
                actions={name: action for name, action in place.actions.items() if name != player},
                fresh_luck=plan.fresh_luck,
                last_tick=last,
                facts={name: fact for name, fact in known.items() if fact is not None},
            )
            for count in range(1, plan.num_alternatives + 1)
        )

    def _drawn(self, step: int, tick: int, movers: Sequence[str]) -> tuple[str, ...]:
        """Who is to be resampled at a step, by ascending coin; known before anyone replies."""
        plan = self._plan
        if tick % plan.every:
            return ()
        coins = {
            player: self._luck.coin(step, player)
            for player in movers
            if plan.players is None or player in plan.players
        }
        drawn = [player for player, coin in coins.items() if coin < plan.share * (1 << SEED_BITS)]
        return tuple(sorted(drawn, key=lambda player: (coins[player], player)))


def _held(step: Step) -> tuple[Turn, ...]:
    """The turns of a step as a branch holds them: they train there, once. `make_tree` knows the step's id."""
    return tuple([replace(turn, trains_once_for=str(step.id)) for turn in step.turns])

"""From a stored iteration and the name of a turn to what its credit is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coplay.games.names import nearest
from coplay.rollout_tree import RolloutTree, Step, Trajectory, Turn
from coplay.rollout_tree.paths import branch_paths
from coplay.rollout_tree.plan import episode_name, parse_episode
from coplay.rollout_tree.records import SCORES
from coplay.training.explain_branches import branch_parts
from coplay.training.explain_parts import (
    after_of,
    baseline_of,
    before_of,
    rewards_of,
    scaled_of,
    shaping_of,
    surprises_of,
)
from coplay.training.explain_past import past_of
from coplay.training.explain_texts import with_texts
from coplay.training.explanation import Explanation, TokenCredit
from coplay.training.extract import path_key
from coplay.training.messages import ConfigError
from coplay.training.records import PathKey
from coplay.training.recredit import Recredited, StoredIteration, trained_labels
from coplay.training.schemes import BranchesEstimator


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnName:
    """Which turn of an episode."""

    step: int
    """The step's id: on the main line its number."""
    player: str
    attempt: int | None = None
    """From 0; None: the last one, whose move was played."""


def parse_turn(text: str, players: Sequence[str]) -> TurnName:
    """`STEP.PLAYER` or `STEP.PLAYER.ATTEMPT`; a player's name may have dots in it.

    Raises:
        ConfigError: if it names no turn of these players.
    """
    step, _, rest = text.partition(".")
    player, _, attempt = rest.rpartition(".")
    if rest in players:
        player, attempt = rest, ""
    if not step.isdecimal() or player not in players or not (attempt.isdecimal() or rest == player):
        raise ConfigError(
            f"turn {text!r} is none; expected STEP.PLAYER[.ATTEMPT] with a player of"
            f" {', '.join(map(repr, players))}, as in '2.{players[0]}'{nearest(player or rest, players)}"
        )
    return TurnName(step=int(step), player=player, attempt=int(attempt) if attempt else None)


def find_episode(text: str) -> tuple[int, str]:
    """Iteration and full name of an episode, given as `000003/00012` or shorter, `3/12`.

    Raises:
        ConfigError: if it is no such name.
    """
    found = parse_episode(text)
    if found is None:
        raise ConfigError(f"episode {text!r} is none; expected ITERATION/NUMBER, as in '3/12'")
    return found[0], episode_name(*found)


def explain_turn(stored: StoredIteration, result: Recredited, episode: str, name: TurnName) -> Explanation:
    """Everything that the credit of one turn is made of.

    Args:
        result: the iteration credited again under the run's own settings.
        episode: its full name.

    Raises:
        ConfigError: if there is no such episode or turn, or nothing was learnt from it.
    """
    tree = _find_tree(stored, episode)
    step = _find_step(tree, name.step)
    turn = _find_turn(tree, step, name)
    key = PathKey(episode, step.branch, name.player)
    trajectory = next((one for one in stored.trajectories if path_key(one) == key), None)
    if trajectory is None:
        raise ConfigError(
            f"step {step.id} of episode {episode!r} is of branch {step.branch!r}, which nobody was trained on;"
            " expected a step of the main line"
        )
    number = next(place for place, one in enumerate(trajectory.turns) if one is turn)
    tick, config = trajectory.turn_ticks[number], result.config
    row = result.table.keys.index(key)
    learner = next((n for n, one in trained_labels(config, result.table).items() if one == turn.policy), None)
    trained = learner is not None
    branches = isinstance(config.estimator, BranchesEstimator)
    split = branch_parts(result, row, number, tick) if branches else None
    alignment, others = shaping_of(result, row, tick) if trained else (None, ())
    if alignment is not None:
        ticks = [term.tick for term in alignment.past]
        alignment = replace(alignment, expected=past_of(result, row, ticks))
    found = Explanation(
        episode=episode,
        branch=step.branch,
        step=name.step,
        player=name.player,
        attempt=turn.attempt,
        policy=turn.policy,
        tick=tick,
        calls=tuple([f"{call.text} ({call.outcome})" for call in turn.calls]),
        reply=turn.reply,
        trained=trained,
        reward_scale=config.estimator.reward_scale,
        rewards=rewards_of(result, row, tick) if split is None else split.followed.rewards,
        lines=() if split is None else split.followed.lines,
        beyond=() if split is None else split.followed.beyond,
        share=1.0 if split is None else split.share,
        baseline=baseline_of(result, row, tick) if split is None else split.baseline,
        errors=surprises_of(result, row, tick),
        before=before_of(result, row, tick),
        alignment=alignment,
        others=others,
        after=after_of(result, learner, row, tick) if learner is not None else None,
        penalty=turn.penalty / config.estimator.reward_scale if trained else 0.0,
        visitation=config.estimator.discount**tick if trained and config.objective.visitation else 1.0,
        tokens=_tokens(stored, trajectory, number),
        scaled=scaled_of(result, row, tick),
        scores=_scores(tree, key, config.estimator.reward_scale),
        taken=_taken(result, row),
        tokenizer=turn.tokenizer,
    )
    return with_texts(stored.trees, found)


def _taken(result: Recredited, row: int) -> dict[int, float]:
    """What a KL took off the rewards of a path's player, by tick, scaled."""
    penalty = result.estimate.penalty
    if penalty is None:
        return {}
    return dict(enumerate(penalty[row, : int(result.table.mask[row].sum())].tolist()))


def _scores(tree: RolloutTree, key: PathKey, reward_scale: float) -> dict[int, float]:
    """What a reward model added along a path, by tick, scaled."""
    if not any(SCORES in step.info for step in tree.steps):
        return {}
    found: dict[int, float] = {}
    for step in branch_paths(tree)[key.branch]:
        if key.player in step.info.get(SCORES, {}):
            found[step.tick] = found.get(step.tick, 0.0) + step.info[SCORES][key.player] / reward_scale
    return found


def _find_tree(stored: StoredIteration, episode: str) -> RolloutTree:
    names = [tree.episode for tree in stored.trees]
    if episode not in names:
        raise ConfigError(
            f"iteration {stored.number} has no episode {episode!r}; expected one of {names[0]!r} to {names[-1]!r}"
        )
    tree = stored.trees[names.index(episode)]
    if tree.failure is not None:
        raise ConfigError(f"episode {episode!r} failed ({tree.failure.reason}); it was never trained on")
    return tree


def _find_step(tree: RolloutTree, number: int) -> Step:
    steps = {step.id: step for step in tree.steps}
    if number not in steps:
        raise ConfigError(f"episode {tree.episode!r} has no step {number}; expected 0 to {max(steps)}")
    return steps[number]


def _find_turn(tree: RolloutTree, step: Step, name: TurnName) -> Turn:
    turns = [turn for turn in step.turns if turn.player == name.player]
    attempts = [turn.attempt for turn in turns]
    if not turns:
        raise ConfigError(f"{name.player!r} has no turn at step {name.step} of episode {tree.episode!r}")
    wanted = attempts[-1] if name.attempt is None else name.attempt
    if wanted not in attempts:
        raise ConfigError(
            f"{name.player!r} has no attempt {wanted} at step {name.step} of episode {tree.episode!r}; expected one"
            f" of {attempts}"
        )
    turn = turns[attempts.index(wanted)]
    if turn.trains_once_for:
        raise ConfigError(
            f"the turn of {name.player!r} at step {step.id} is held from step {turn.trains_once_for} of the line that"
            f" forks there, where it trains; expected '{turn.trains_once_for}.{name.player}'"
        )
    return turn


def _tokens(stored: StoredIteration, trajectory: Trajectory, number: int) -> tuple[TokenCredit, ...]:
    """The turn's stored tokens; none if its policy does not learn."""
    found = []
    for place, row in enumerate(trajectory.rows):
        credit = stored.credits.get((path_key(trajectory), place))
        if credit is None:
            continue
        columns = [credit.position, credit.token, credit.turn, credit.importance_weight, credit.credit]
        for position, token, turn, weight, amount in zip(*columns, strict=True):
            if turn == number:
                found.append(
                    TokenCredit(
                        row=place,
                        position=int(position),
                        token=int(token),
                        log_prob=float(row.log_probs[position]),
                        importance_weight=float(weight),
                        credit=float(amount),
                    )
                )
    return tuple(found)

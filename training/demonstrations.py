"""Whose dialogues are imitated: games played on the spot, stored games, files of chats."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from coplay.agents.desk import make_desk
from coplay.agents.named import named_agent
from coplay.agents.runs import find_run
from coplay.games import derive_seed
from coplay.rollout_tree import (
    CollectPlan,
    RolloutTree,
    Turn,
    collect_sync,
    main_line,
    plan_mixture,
    read_rollouts,
)
from coplay.rollout_tree.chats import Chat, read_chats
from coplay.rollout_tree.storage import parts
from coplay.training.imitation_config import ChatsSource, GamesSource, ImitationConfig, RolloutsSource
from coplay.training.messages import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """What one player heard and said in one game, in the order of his turns."""

    name: str
    """Unique in an imitation: source, game and player."""
    game: str
    """All demonstrations of one luck (of chats: all equal ones) share it, and with it their side of the split."""
    turns: tuple[Turn, ...]
    learnt: tuple[bool, ...]
    """False for replies that stand in the context and are not imitated: malformed ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """Everything that the sources gave."""

    found: tuple[Demonstration, ...]
    counts: Mapping[str, int]
    """`SOURCE/taken`, and by reason what was left out; `malformed` counts replies."""
    played: tuple[RolloutTree, ...]
    """The games that were played on the spot."""

    @property
    def digest(self) -> str:
        """Names every text: a resumed imitation must find the same."""
        content = hashlib.blake2b(digest_size=8)
        for one in self.found:
            content.update(repr((one.name, one.game, one.learnt, *map(_texts, one.turns))).encode())
        return content.hexdigest()


def _texts(turn: Turn) -> tuple[object, ...]:
    seen = turn.observation
    ids = [(segment.ids, segment.sampled) for segment in turn.segments]
    calls = [(call.text, call.result) for call in turn.calls]
    told = (seen.system, seen.text, seen.fresh_context, turn.reply, turn.tokenizer, ids)
    return (*told, calls) if calls else told


def gather(config: ImitationConfig) -> Demonstrations:
    """The dialogues of all sources, by name; a function of the configuration and the files that it names.

    Raises:
        ConfigError: if a source holds nothing that can be imitated.
        FileNotFoundError: if there is no such file or rollouts.
        ValueError: if a file is damaged.
    """
    found: list[Demonstration] = []
    counts: Counter[str] = Counter()
    played: list[RolloutTree] = []
    for name, source in config.sources.items():
        known: Counter[str] = Counter(taken=0)
        if isinstance(source, ChatsSource):
            taken = list(_from_chats(name, read_chats(source.path), known))
        elif isinstance(source, GamesSource):
            trees = _play(config, name, source, iteration=len({tree.iteration for tree in played}))
            played += trees
            taken = list(_from_trees(name, trees, source, known))
        else:
            taken = list(_from_trees(name, _stored(name, source), source, known))
        if not taken:
            raise ConfigError(f"'sources.{name}' holds no reply that can be imitated; it has {dict(known)}")
        known["taken"] = len(taken)
        found += taken
        counts.update({f"{name}/{key}": number for key, number in known.items()})
    return Demonstrations(found=tuple(found), counts=dict(counts), played=tuple(played))


def _play(config: ImitationConfig, name: str, source: GamesSource, *, iteration: int) -> list[RolloutTree]:
    """Games of luck of their own: neither training from the same seed nor another source draws it."""
    mixture = config.run(num_steps=1).make_mixture()
    desk = make_desk(config.agents.tools)
    episodes = plan_mixture(
        mixture,
        run_seed=derive_seed(config.seed, "imitation", name),
        iteration=iteration,
        num_groups=source.num_games,
        group_size=1,
        seats={player: named_agent(agent, tools=desk) for player, agent in source.seats.items()},
        seat_names=source.seats,
    )
    return collect_sync(CollectPlan(game=mixture.variants[0].game, episodes=episodes))


def _stored(name: str, source: RolloutsSource) -> Iterator[RolloutTree]:
    folder = Path(source.path)
    if not (folder / "rollouts").is_dir():
        folder = find_run(source.path)
    iterations = sorted({number for number, _ in parts(folder, "episodes", None)})
    for iteration in iterations[-(source.last_iterations or 0) :]:
        yield from read_rollouts(folder, iteration)


def _from_trees(
    name: str, trees: Iterable[RolloutTree], source: GamesSource | RolloutsSource, counts: Counter[str]
) -> Iterator[Demonstration]:
    """Main lines, by player; what is left out is counted under its reason."""
    for tree in trees:
        if tree.failure is not None:
            counts["failed"] += len(tree.seats)
            continue
        path = main_line(tree)
        for player, policy in tree.seats.items():
            total = fsum(step.rewards[player] for step in path)
            reason = _left_out(source, player, policy, total)
            turns = tuple(turn for step in path for turn in step.turns if turn.player == player)
            learnt = tuple(not turn.malformed for turn in turns)
            reason = reason or ("" if any(learnt) else "silent")
            if reason:
                counts[reason] += 1
                continue
            counts["malformed"] += learnt.count(False)
            yield Demonstration(
                name=f"{name}/{tree.iteration}/{tree.episode}/{player}",
                game=f"{name}/{tree.iteration}/{tree.group}",
                turns=turns,
                learnt=learnt,
            )


def _left_out(source: GamesSource | RolloutsSource, player: str, policy: str, total: float) -> str:
    """Why a player's dialogue is not asked for; empty: it is."""
    if source.players and player not in source.players:
        return "other_player"
    if isinstance(source, GamesSource):
        return ""
    if source.policies and not {policy, policy.partition("@")[0]} & set(source.policies):
        return "other_policy"
    return "low_return" if source.min_return is not None and total < source.min_return else ""


def _from_chats(name: str, chats: Iterable[Chat], counts: Counter[str]) -> Iterator[Demonstration]:
    for chat in chats:
        reason = "failed" if chat.failed else "" if any(chat.learnt) else "silent"
        if reason:
            counts[reason] += 1
            continue
        yield Demonstration(
            name=f"{name}/{chat.line}",
            game=f"{name}/{_digest(chat.turns)}",
            turns=chat.turns,
            learnt=chat.learnt,
        )


def _digest(turns: Sequence[Turn]) -> str:
    return hashlib.blake2b(repr([_texts(turn) for turn in turns]).encode(), digest_size=8).hexdigest()

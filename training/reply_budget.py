"""Whether policies have the tokens to say what their game takes: `agents.sampling.max_new_tokens` and the grammars."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from coplay.agents.constraint import label_paths
from coplay.games import Chance, Game, Grammar
from coplay.games.random_moves import UndrawableError, random_move

if TYPE_CHECKING:
    from coplay.agents.chat import ChatFormat
    from coplay.training.run import Run

NUM_STEPS = 32
"""Of one play by lot, in which the grammars of a game are met."""
NUM_GAMES = 16
"""Of a mixture, the first ones."""


def too_long_replies(run: "Run") -> str | None:
    """One sentence about the longest listed reply that the sampling settings would cut off; None if there is none."""
    sampling, seats = run.config.agents.sampling, run.config.seats()
    needed, what = sampling.max_new_tokens, None
    for variant in run.mixture.variants[:NUM_GAMES]:
        seen: set[tuple[str, Grammar]] = set()
        for player, grammar in _grammars(variant.game):
            if seats[player] not in run.policies or (seats[player], grammar) in seen:
                continue
            seen.add((seats[player], grammar))
            reply, size = _longest(grammar, run.policies[seats[player]].chat, sampling.constrained)
            if size > needed:
                needed, what = size, (reply, player, variant.game.name)
    if what is None:
        return None
    reply, player, name = what
    return (
        f"'agents.sampling.max_new_tokens' is {sampling.max_new_tokens}, but the reply {reply!r} of {player!r} in game"
        f" {name!r} takes {needed} tokens of this model, so it would be cut off and malformed; expected"
        f" --agents.sampling.max-new-tokens {needed} or more, or moves in shorter words"
    )


def _longest(grammar: Grammar, chat: "ChatFormat", constrained: bool) -> tuple[str, int]:
    """The listed reply of most tokens, and how many it takes until it counts as finished; 0 if none is listed."""
    labels = grammar.labels()
    if not labels:
        return "", 0
    paths = label_paths(labels, chat.encode_label, chat.stop_ids[0])
    size, place = max((len(path), place) for place, path in enumerate(paths))
    ends_freely = not constrained and paths[place][-1] not in chat.stop_ids
    return labels[place], size + ends_freely


def _grammars(game: Game[Any]) -> Iterator[tuple[str, Grammar]]:
    """What is asked of whom in one play by lot, as far as it goes."""
    state = game.initial_state(Chance(0))
    for step in range(1, NUM_STEPS + 1):
        movers = game.to_move(state)
        grammars = {player: game.observe(state, player).grammar for player in movers}
        yield from grammars.items()
        if not movers or step == game.spec.max_steps:
            return
        try:
            replies = {
                player: grammar.write(random_move(grammar, ("reply_budget", step, player)))
                for player, grammar in grammars.items()
            }
        except UndrawableError:
            return
        actions = {player: grammars[player].parse(reply) for player, reply in replies.items()}
        state, _ = game.step(state, actions, Chance(0, step))

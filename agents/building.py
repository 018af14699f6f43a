"""What a configuration calls a model, and policies over it: language models, or tables of a game's situations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coplay.agents.base_model import BaseModel, load_base
from coplay.agents.chat import ChatFormat
from coplay.agents.critic import Critic, build_critic
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.policy import Policy, build_policies
from coplay.agents.runs import find_policy_folder
from coplay.agents.settings import ModelSettings, PolicySettings, TabularModel
from coplay.agents.tabular import tabular_chat, tabular_policy
from coplay.games import Game
from coplay.games.chance_outcomes import EnumerationError
from coplay.games.game_tree import GameTree, TooLargeError, game_tree


@dataclass(frozen=True, kw_only=True)
class TabularBase:
    """What tables of one game share: its tree, and how dialogues become tokens."""

    tree: GameTree
    tokenizer: Any
    chat: ChatFormat

    @property
    def digest(self) -> str:
        """Of the tokenizer that ids belong to."""
        return self.chat.digest


Base = BaseModel | TabularBase


def make_base(settings: ModelSettings, *, game: Callable[[], Game[Any]], seed: int) -> Base:
    """The base model of a configuration, or the tree of its game for tables.

    Args:
        settings: which model.
        game: makes the game, if a table asks for it.
        seed: of fresh weights.

    Raises:
        ValueError: as `load_base`; or if the game is too large for a table, or cannot be enumerated.
    """
    if not isinstance(settings, TabularModel):
        return load_base(settings, seed=seed)
    tokenizer: Any = embedded_tokenizer()
    try:
        tree = game_tree(game(), max_nodes=settings.max_nodes)
    except TooLargeError:
        raise ValueError(
            f"a table's game has at most agents.model.max_nodes = {settings.max_nodes} nodes and this one has more;"
            " expected fewer rounds or moves, a larger max_nodes, or agents.model.kind = 'embedded'"
        ) from None
    except EnumerationError as error:
        raise ValueError(
            f"agents.model.kind = 'tabular' lists every situation: {error}, or agents.model.kind = 'embedded'"
        ) from None
    return TabularBase(tree=tree, tokenizer=tokenizer, chat=tabular_chat(tokenizer))


def make_policies(
    base: Base, settings: Mapping[str, PolicySettings], *, seed: int, keep_reference: bool
) -> dict[str, Policy]:
    """All policies of a configuration; fresh tables are uniform and can play every seat.

    Raises:
        ValueError: as `build_policies`; or if tokens of one move begin another's.
    """
    if isinstance(base, BaseModel):
        return build_policies(base, settings, seed=seed, keep_reference=keep_reference)
    policies = {}
    for name, chosen in settings.items():
        start = None if chosen.start is None else find_policy_folder(chosen.start)
        policies[name] = tabular_policy(
            name,
            base.tree,
            trained=chosen.trained,
            keep_reference=keep_reference and chosen.trained,
            start=start,
        )
    return policies


def make_critic(base: Base, *, seed: int) -> Critic:
    """A fresh critic beside a language model.

    Raises:
        ValueError: if there is none.
    """
    if isinstance(base, TabularBase):
        raise ValueError("a critic reads a model's states and tables have none; expected a language model")
    return build_critic(base, seed=seed)

"""A trained agent out of a run folder, ready to talk or to sit down at a game.

agent = load_agent("runs/pd", "alice")
agent.reply("Your move?", choices=("A", "B"))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from coplay.agents.base import AgentFactory, Desk
from coplay.agents.building import make_base, make_policies
from coplay.agents.chat import ChatFormat
from coplay.agents.constraint import build_trie
from coplay.agents.desk import make_desk
from coplay.agents.engine import SampleRequest
from coplay.agents.language import SamplingSettings, language_agent_factory
from coplay.agents.local_engine import LocalEngine
from coplay.agents.policy import Policy
from coplay.agents.runs import Iteration, find_checkpoint, policy_of, read_config
from coplay.agents.settings import ModelSettings, PolicySettings, at_temperature
from coplay.agents.tool_settings import ToolSettings
from coplay.games import Game, make_game


@dataclass(frozen=True, kw_only=True)
class LoadedAgent:
    """One policy of a run with its base model, tokenizer and engine."""

    policy: Policy
    engine: LocalEngine
    sampling: SamplingSettings
    """How the run drew replies."""
    tools: Desk | None = None
    """Who ran the tools that its games offer."""

    @property
    def chat(self) -> ChatFormat:
        """The chat format of its tokenizer."""
        return self.policy.chat

    def reply(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        choices: Sequence[str] | None = None,
        seed: int = 0,
        temperature: float = 1.0,
        max_new_tokens: int = 64,
    ) -> str:
        """Sample one reply to a text or a chat.

        Args:
            messages: the user's text, or a chat of `role` (system, user, assistant) and `content`, user last.
            choices: the replies to choose from; None samples freely.
            seed: equal seeds give equal replies.
            temperature: divides the logits.
            max_new_tokens: longest reply.

        Raises:
            ValueError: if the chat does not alternate, or two choices have the same tokens.
        """
        chat = self.chat
        trie = None if choices is None else build_trie(choices, chat.encode_label, chat.stop_ids[0])
        request = SampleRequest(
            key=("", "", "", 0, 0, 0),
            policy=self.policy.label,
            context=chat.history(*_parts(messages)),
            dialogue="",
            seed=seed,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            stop_ids=chat.stop_ids,
            trie=trie,
        )
        return chat.decode(self.engine.sample_all([request])[0].ids)

    def factory(
        self, sampling: SamplingSettings | None = None, *, seed: int = 0, temperature: float | None = None
    ) -> AgentFactory:
        """Make agents for seats of games, with the run's way of sampling unless told otherwise.

        Args:
            sampling: another way of sampling.
            seed: equal seeds give equal replies.
            temperature: in place of that of `sampling`; 0: always the likeliest token.
        """
        return language_agent_factory(
            self.engine,
            self.chat,
            self.policy.label,
            at_temperature(sampling or self.sampling, temperature),
            run_seed=seed,
            tools=self.tools,
        )


def load_agent(run: str | Path, player: str, *, iteration: Iteration = None) -> LoadedAgent:
    """Load the policy that plays a seat of a run.

    Args:
        run: the run's folder, or its name in `runs/`.
        player: a player, or a policy's own name.
        iteration: of the checkpoint; "best": of the one that evaluations found best; None: the newest complete one.

    Raises:
        ValueError: if run, player or checkpoint is missing, or its weights do not fit.
    """
    config = read_config(run)
    name = policy_of(config, player)
    checkpoint = find_checkpoint(run, iteration)
    agents: dict[str, Any] = config["agents"]
    model: ModelSettings = TypeAdapter(ModelSettings).validate_python(agents["model"])
    settings = PolicySettings.model_validate({**agents["policies"][name], "trained": False, "start": None})

    def game() -> Game[Any]:
        rules: dict[str, Any] = config["game"]
        return make_game(rules["kind"], **{field: value for field, value in rules.items() if field != "kind"})

    base = make_base(model, game=game, seed=config["seed"])
    policies = make_policies(base, {name: settings}, seed=config["seed"], keep_reference=False)
    policies[name].load(checkpoint.policy(name))
    policies[name].version = checkpoint.version(name)
    return LoadedAgent(
        policy=policies[name],
        engine=LocalEngine(policies),
        sampling=SamplingSettings.model_validate(agents.get("sampling", {})),
        tools=make_desk(TypeAdapter(dict[str, ToolSettings]).validate_python(agents.get("tools", {}))),
    )


def _parts(messages: str | Sequence[Mapping[str, str]]) -> tuple[str, list[str], list[str]]:
    """System text, user texts and replies of a chat."""
    if isinstance(messages, str):
        return "", [messages], []
    system = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
    turns = messages[1:] if system else messages
    roles = [message["role"] for message in turns]
    if len(roles) % 2 == 0 or roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
        raise ValueError(
            f"the chat has roles {roles!r}; expected user and assistant in turn, a user first and last"
        )
    return system, [m["content"] for m in turns[::2]], [m["content"] for m in turns[1::2]]

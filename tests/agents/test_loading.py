"""Trained agents out of run folders: the right checkpoint, sentences where something is missing."""

import asyncio
import json
from pathlib import Path

import pytest
import torch

from coplay.agents import Seat, TurnKey, load_agent
from coplay.agents.base_model import load_base
from coplay.agents.policy import Policy, build_policies
from coplay.agents.runs import find_policy_folder, parse_entrant, pin_entrant
from coplay.agents.settings import EmbeddedModel, FullWeights, LoraWeights, PolicySettings, WeightSettings
from coplay.games import Choice, Observation

MODEL = EmbeddedModel(hidden=16, intermediate=32)


def make_run(folder: Path, weights: WeightSettings, iterations: dict[int, bool]) -> dict[int, Policy]:
    """A run with one policy for two players; checkpoints are complete or not; returns the policies."""
    settings = PolicySettings(weights=weights)
    agents = {
        "model": MODEL.model_dump(),
        "policies": {"both": settings.model_dump()},
        "seats": {"alice": "both", "bob": "both", "carol": "tit_for_tat"},
    }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"seed": 7, "agents": agents}))
    saved = {}
    for iteration, complete in iterations.items():
        base = load_base(MODEL, seed=7)
        policy = build_policies(base, {"both": settings}, seed=7, keep_reference=False)["both"]
        generator = torch.Generator().manual_seed(iteration)
        policy.load_state(
            {k: v + 0.2 * torch.randn(v.shape, generator=generator) for k, v in policy.state().items()}
        )
        path = folder / "checkpoints" / f"{iteration:06d}"
        policy.save(path / "policies" / "both")
        (path / "state.json").write_text(json.dumps({"policy_versions": {"both": iteration}}))
        if complete:
            (path / "COMPLETE").touch()
        saved[iteration] = policy
    return saved


def scores(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return policy.logits(policy.hidden(torch.tensor([[3, 1, 4, 1, 5]])))


@pytest.mark.parametrize("weights", [LoraWeights(rank=2, alpha=4), FullWeights()])
def test_agent_when_loaded_is_the_newest_complete_checkpoint(weights: WeightSettings, tmp_path: Path) -> None:
    """Issue 2, line 6; B77: the same scores as before saving; folders without COMPLETE do not count."""
    saved = make_run(tmp_path / "run", weights, {5: True, 10: True, 15: False})
    agent = load_agent(tmp_path / "run", "alice")
    assert torch.equal(scores(agent.policy), scores(saved[10]))
    assert agent.policy.label == "both@10"
    assert not agent.policy.named_parameters()
    older = load_agent(tmp_path / "run", "bob", iteration=5)
    assert torch.equal(scores(older.policy), scores(saved[5]))


def test_agent_replies_to_text_and_to_chats(tmp_path: Path) -> None:
    make_run(tmp_path / "run", LoraWeights(rank=2, alpha=4), {1: True})
    agent = load_agent(tmp_path / "run", "alice")
    assert agent.reply("Your move?", choices=("A", "B")) in ("A", "B")
    chat = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "and now?"},
    ]
    first = agent.reply(chat, max_new_tokens=5, seed=3)
    assert agent.reply(chat, max_new_tokens=5, seed=3) == first
    with pytest.raises(ValueError, match="expected user and assistant in turn"):
        agent.reply(chat[:3])


def test_agent_sits_down_at_a_game(tmp_path: Path) -> None:
    make_run(tmp_path / "run", LoraWeights(rank=2, alpha=4), {1: True})
    agent = load_agent(tmp_path / "run", "alice")
    seat = Seat(game="g", player="alice", players=("alice", "bob"), episode="0/0", seed=1)
    player = agent.factory()(seat)
    observation = Observation(text="Your move?", grammar=Choice(("A", "B")))
    reply = asyncio.run(player.reply(observation, TurnKey(episode="0/0", branch="", player="alice", step=0)))
    assert reply.text in ("A", "B")
    assert reply.policy == "both@1"


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "first", LoraWeights(rank=2, alpha=4), {1: True, 2: False})
    assert load_agent("first", "alice").policy.version == 1
    with pytest.raises(ValueError, match="did you mean 'first'"):
        load_agent("frist", "alice")
    with pytest.raises(ValueError, match="did you mean 'alice'"):
        load_agent("first", "alcie")
    with pytest.raises(ValueError, match="no policy plays 'carol'"):
        load_agent("first", "carol")
    with pytest.raises(ValueError, match=r"no complete checkpoint of iteration 2; expected one of \[1\]"):
        load_agent("first", "alice", iteration=2)
    assert find_policy_folder("first@1:bob").name == "both"
    assert find_policy_folder("first").name == "both"
    assert pin_entrant("first:bob") == pin_entrant("first") == "runs/first@1:both"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("pd", ("pd", None, None)),
        ("runs/pd@50", ("runs/pd", 50, None)),
        ("pd:alice", ("pd", None, "alice")),
        ("a/b@7:bob", ("a/b", 7, "bob")),
    ],
)
def test_entrant_splits_into_run_iteration_and_player(
    text: str, parts: tuple[str, int | None, str | None]
) -> None:
    assert parse_entrant(text) == parts


def test_entrant_with_an_iteration_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="names iteration 'x'"):
        parse_entrant("pd@x:alice")
    with pytest.raises(ValueError, match="names iteration '²'"):
        parse_entrant("pd@²:alice")

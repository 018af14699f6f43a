"""Tabular policies on the road of every other policy."""

from pathlib import Path
from typing import Any

import pytest
import torch

from coplay.agents.engine import SampleRequest
from coplay.agents.language import SamplingSettings, language_agent_factory
from coplay.agents.local_engine import LocalEngine
from coplay.agents.tabular import TabularError, TabularWeights, tabular_policy, tabular_strategy
from coplay.games import make_game
from coplay.games.game_tree import GameTree, game_tree
from coplay.games.solve import nash_conv, uniform, values
from coplay.rollout_tree import CollectPlan, collect_sync, plan_episodes
from coplay.scripts.settings import read_settings
from coplay.training.estimators import estimate
from coplay.training.extract import extract, tick_table
from coplay.training.packets import make_packets
from coplay.training.trainer import Trainer


@pytest.fixture(scope="module")
def kuhn() -> GameTree:
    return game_tree(make_game("kuhn_poker", wording="terse"))


def table_of(policy: Any) -> TabularWeights:
    assert isinstance(policy.weights, TabularWeights)
    return policy.weights


def test_table_when_a_reply_begins_another_then_refused() -> None:
    game = make_game("iterated_matrix", wording="terse", num_rounds=1, moves=["zq", "zqx"])
    with pytest.raises(TabularError, match=r"one of \('zq', 'zqx'\) begin another's"):
        tabular_policy("both", game_tree(game))


def test_table_when_made_then_one_row_an_information_and_uniform(kuhn: GameTree) -> None:
    policy = tabular_policy("both", kuhn)
    assert tuple(policy.state()["logits"].shape) == (12, 2)
    strategy = tabular_strategy(policy)
    both = dict.fromkeys(kuhn.players, strategy)
    assert values(kuhn, both)["Ada"] == pytest.approx(1 / 8)
    assert nash_conv(kuhn, both) == pytest.approx(11 / 12)


@pytest.mark.parametrize("name", ["leduc_poker", "two_round_bargaining", "rock_paper_scissors"])
def test_table_when_of_another_game_then_uniform_too(name: str) -> None:
    tree = game_tree(make_game(name, wording="terse"))
    both = dict.fromkeys(tree.players, tabular_strategy(tabular_policy("both", tree)))
    expected = values(tree, dict.fromkeys(tree.players, uniform))
    assert values(tree, both) == pytest.approx(expected)


def test_labels_when_of_several_tokens_then_the_product_of_their_choices() -> None:
    """In the full wording a move stands in a tag: forced tokens around one choice."""
    tree = game_tree(make_game("kuhn_poker"))
    policy = tabular_policy("ada", tree, players=("Ada",))
    policy.load_state({"logits": torch.randn(policy.state()["logits"].shape)})
    strategy = tabular_strategy(policy)
    for node, *_ in tree.decisions("Ada").values():
        assert sum(strategy(tree.nodes[node]).values()) == pytest.approx(1)  # type: ignore[arg-type]


def test_rows_when_packed_into_a_tree_then_those_of_the_plain_rows(kuhn: GameTree) -> None:
    """Law 4: two contexts that share a beginning, laid out in one row under an ancestor mask."""
    policy = tabular_policy("ada", kuhn, players=("Ada",))
    policy.load_state({"logits": torch.randn(policy.state()["logits"].shape)})
    first, second = list(table_of(policy).rows)[:2]
    shared = next(place for place, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
    packed = torch.tensor([[*first, *second[shared:]]])
    size, start = packed.shape[1], len(first)
    mask = torch.ones(size, size, dtype=torch.bool).tril()
    mask[start:, shared:start] = False
    positions = torch.tensor([[*range(len(first)), *range(shared, len(second))]])
    hidden = policy.hidden(packed, positions, mask[None, None])
    for ids, place in ((first, start - 1), (second, size - 1)):
        plain = policy.hidden(torch.tensor([ids]))[0, -1]
        assert torch.equal(plain, hidden[0, place]) and torch.isfinite(plain).all()


def test_sample_when_the_context_is_unknown_then_refused(kuhn: GameTree) -> None:
    policy = tabular_policy("ada", kuhn, players=("Ada",))
    node = kuhn.nodes[next(iter(kuhn.decisions("Ada").values()))[0]]
    trie = policy.chat.trie(node.observation.grammar)  # type: ignore[union-attr]
    request = SampleRequest(
        key=("0", "", "Ada", 1, 0, 0),
        policy=policy.label,
        context=(1, 2, 3),
        dialogue="0",
        seed=1,
        temperature=1.0,
        max_new_tokens=4,
        stop_ids=(),
        trie=trie,
    )
    with pytest.raises(ValueError, match="not finite"):
        LocalEngine({"ada": policy}).sample_all([request])


def test_strategy_when_asked_beyond_the_table_then_one_clear_sentence(kuhn: GameTree) -> None:
    strategy = tabular_strategy(tabular_policy("ada", kuhn, players=("Ada",)))
    with pytest.raises(TabularError, match="expected one of the game that it was made for"):
        values(kuhn, {"Ada": uniform, "Bo": strategy})


def test_weights_when_saved_and_read_then_the_same_and_the_reference_stays(
    kuhn: GameTree, tmp_path: Path
) -> None:
    policy = tabular_policy("both", kuhn, keep_reference=True)
    before = policy.state()["logits"]
    policy.load_state({"logits": torch.randn(before.shape)})
    policy.save(tmp_path)
    twin = tabular_policy("both", kuhn)
    twin.load(tmp_path)
    assert torch.equal(twin.state()["logits"], policy.state()["logits"])
    row = torch.tensor([next(iter(table_of(policy).rows))])
    with policy.reference():
        assert torch.equal(policy.hidden(row)[0, -1], before[0])
    assert not torch.equal(policy.hidden(row)[0, -1], before[0])
    with pytest.raises(ValueError, match="holds no table"):
        twin.load(tmp_path / "nowhere")


def test_training_when_kuhn_is_played_then_log_probs_agree_and_exploitability_falls(
    kuhn: GameTree, tmp_path: Path
) -> None:
    """In small, through engine, agents, trees, rows and the policy step; laws 2 and 6."""
    game = make_game("kuhn_poker", wording="terse")
    flags = ["--estimator.discount", "1.0", "--estimator.reward-scale", "1.0", "--update.lr", "0.2"]
    config = read_settings("dilemma_independent", flags)
    policies = {player: tabular_policy(player.lower(), kuhn, players=(player,)) for player in kuhn.players}
    engine = LocalEngine({policy.name: policy for policy in policies.values()})
    trainers = {player: Trainer(policy, config, kuhn.players) for player, policy in policies.items()}
    for update in range(25):
        seats = {
            player: language_agent_factory(
                engine, policy.chat, policy.label, SamplingSettings(max_new_tokens=2), run_seed=1
            )
            for player, policy in policies.items()
        }
        episodes = plan_episodes(
            game,
            run_seed=1,
            iteration=update,
            num_groups=16,
            group_size=8,
            seats=seats,
            seat_names={player: policy.label for player, policy in policies.items()},
        )
        trajectories = extract(collect_sync(CollectPlan(game=game, episodes=episodes)))
        table = tick_table(trajectories, reward_scale=1.0, has_chance=True)
        found = estimate(config.estimator, table, running_means={})
        packets = make_packets(table, found.advantages)
        for player, trainer in trainers.items():
            credit = trainer.credit(trajectories, table, found, packets, update=update)
            assert credit is not None
            done = trainer.step(credit, update=update, folder=tmp_path)
            assert done.metrics["ratio_gap_max"] < 1e-6
            engine.publish(policies[player].name)
    after = nash_conv(kuhn, {player: tabular_strategy(policy) for player, policy in policies.items()})
    assert after < 0.6

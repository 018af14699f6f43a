"""`coplay evaluate --exact`: reference values, whatever holds the seats, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from coplay.agents.base import Seat, TurnKey
from coplay.agents.loading import load_agent
from coplay.agents.policy_strategies import policy_strategy
from coplay.agents.scripted import scripted_agent, scripted_players
from coplay.agents.scripted_strategies import LOTS, decisions_of, scripted_strategy
from coplay.games import make_game
from coplay.games.game_tree import Decision, GameTree, game_tree
from coplay.rollout_tree import CollectPlan, collect_sync, plan_episodes, returns
from coplay.scripts.cli import main as command
from coplay.scripts.exact import evaluate_exactly
from coplay.scripts.train import main as train
from coplay.training.messages import ConfigError

KUHN = {"kind": "kuhn_poker"}
DILEMMA = {"kind": "iterated_matrix", "num_rounds": 2}
SMALL: dict[str, dict[str, Any]] = {
    "iterated_matrix": {"num_rounds": 2},
    "kuhn_poker": {},
    "rock_paper_scissors": {"num_rounds": 2},
    "two_round_bargaining": {"coins": 2},
    "public_goods": {"num_rounds": 2, "endowment": 1},
    "commons": {"num_rounds": 1, "capacity": 4, "initial_stock": 3, "collapse_below": 1},
}


def test_kuhn_when_uniform_then_the_reference_exploitability() -> None:
    """NashConv of uniform play is 11/12, its value to the first player 1/8."""
    report = evaluate_exactly(["random", "kuhn_equilibrium"], against=(), changes=KUHN)
    uniform, best = report.results
    assert uniform.values["Ada"] == pytest.approx(1 / 8)
    assert uniform.exploitability == pytest.approx(11 / 24, abs=1e-12)
    assert best.values["Ada"] == pytest.approx(-1 / 18)
    assert best.exploitability == pytest.approx(0, abs=1e-12)
    assert report.pareto_front is None


def test_dilemma_when_agents_meet_then_best_responses_are_the_reference_ones() -> None:
    report = evaluate_exactly(["tit_for_tat"], against=["always_defect", "grim"], changes=DILEMMA)
    found = {(result.opponent, result.own): result for result in report.results}
    alone = found["self-play", ("Ada", "Bo")]
    assert alone.values == {"Ada": 6, "Bo": 6} and alone.best_responses == {"Ada": 8, "Bo": 8}
    assert alone.exploitability is None and alone.nash_conv == 4
    met = found["always_defect", ("Ada",)]
    assert met.values == {"Ada": 1, "Bo": 6} and met.best_responses == {"Ada": 2, "Bo": 8}
    assert found["grim", ("Bo",)].seats == {"Ada": "grim", "Bo": "tit_for_tat"}
    assert report.pareto_front == [(0, 10), (6, 6), (10, 0)]
    assert report.nash_bargaining == (6, 6) and report.welfare == 12


def test_bargaining_when_enumerated_then_the_nash_solution_follows_the_disagreement() -> None:
    changes = {"kind": "two_round_bargaining", "coins": 2, "values": (1,)}
    even = evaluate_exactly(["even_bargainer"], against=(), changes=changes)
    assert even.nash_bargaining == pytest.approx((1, 1))
    pressed = evaluate_exactly(["even_bargainer"], against=(), changes=changes, disagreement=(1, 0))
    assert pressed.nash_bargaining == pytest.approx((1.5, 0.5))


@pytest.mark.parametrize("kind", list(SMALL))
def test_scripted_strategies_when_agents_are_asked_often_then_the_same_law(kind: str) -> None:
    """Agents that draw lots in the shares written down; the others always alike."""
    game = make_game(kind, **SMALL[kind])
    tree = game_tree(game)
    for name in scripted_players(kind):
        player = game.spec.players[0]
        strategy = scripted_strategy(name, game, tree, player)
        decisions = decisions_of(tree, player)
        for information in list(decisions)[:3]:
            told = strategy(decisions[information])
            assert sum(told.values()) == pytest.approx(1)
            draws = 400 if name in LOTS else 6
            counts = _counts(name, game, decisions, information, draws)
            assert set(counts) <= {reply for reply, chance in told.items() if chance}
            for reply, chance in told.items():
                allowed = 4 * (chance * (1 - chance) / draws) ** 0.5 + 1e-12
                assert abs(counts.get(reply, 0) / draws - chance) <= allowed, (name, reply)


def _counts(
    name: str, game: Any, decisions: dict[Any, Decision], information: Any, draws: int
) -> dict[str, int]:
    found: dict[str, int] = {}
    for seed in range(draws):
        seat = Seat(
            game=game.name,
            player=decisions[information].player,
            players=game.spec.players,
            episode="",
            seed=seed,
            parameters=game.parameters,
        )
        agent, said = scripted_agent(name)(seat), ""
        for place in range(1, len(information) + 1, 2):
            one = decisions[information[:place]]
            key = TurnKey(episode="", branch="", player=one.player, step=one.level[0])
            try:
                agent.reply(one.observation, key).send(None)
            except StopIteration as answer:
                said = answer.value.text
        found[said] = found.get(said, 0) + 1
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the embedded model over one update, two rounds."""
    folder = tmp_path_factory.mktemp("runs")
    flags = ["--name", "small", "--storage.folder", str(folder), "--update.num-updates", "1"]
    flags += ["--game.num-rounds", "2", "--collect.num-groups", "2", "--collect.group-size", "2"]
    flags += ["--evaluate.every", "0", "--agents.model.hidden", "16"]
    assert train(["dilemma_independent", *flags]) == 0
    return folder / "small"


def test_value_when_a_trained_model_plays_then_the_sampled_mean(run: Path) -> None:
    """400 games through the engine, within four standard errors of the exact value."""
    report = evaluate_exactly([str(run)], against=["tit_for_tat"], changes={})
    home = report.results[0]
    agent = load_agent(run, "shared")
    game = make_game(report.game.pop("kind"), **report.game)
    seats = dict.fromkeys(game.spec.players, agent.factory(seed=5))
    names = dict.fromkeys(game.spec.players, agent.policy.label)
    plan = plan_episodes(
        game, run_seed=5, iteration=0, num_groups=100, group_size=4, seats=seats, seat_names=names
    )
    paid = [returns([tree])["return/Ada"] for tree in collect_sync(CollectPlan(game=game, episodes=plan))]
    mean = sum(paid) / len(paid)
    deviation = (sum((one - mean) ** 2 for one in paid) / (len(paid) - 1)) ** 0.5
    assert abs(mean - home.values["Ada"]) < 4 * deviation / len(paid) ** 0.5
    assert all(home.best_responses[player] >= home.values[player] for player in game.spec.players)
    assert {result.opponent for result in report.results} == {"self-play", "tit_for_tat"}


def test_probabilities_when_read_then_those_that_replies_were_sampled_with(run: Path) -> None:
    """The engine's log-probs of what it sampled, reply by reply (law 1)."""
    agent = load_agent(run, "shared")
    game = make_game("iterated_matrix", num_rounds=2, wording="terse")
    tree: GameTree = game_tree(game)
    strategy = policy_strategy(agent.policy, agent.sampling, tree, "Ada")
    decisions = decisions_of(tree, "Ada")
    seats = dict.fromkeys(game.spec.players, agent.factory(seed=1))
    names = dict.fromkeys(game.spec.players, agent.policy.label)
    plan = plan_episodes(
        game, run_seed=1, iteration=0, num_groups=4, group_size=4, seats=seats, seat_names=names
    )
    checked = 0
    for played in collect_sync(CollectPlan(game=game, episodes=plan)):
        heard: tuple[str, ...] = ()
        for step in played.steps:
            turn = next(one for one in step.turns if one.player == "Ada")
            heard = (*heard, turn.observation.text)
            sampled = sum(sum(segment.log_probs) for segment in turn.segments)
            assert turn.action is not None
            heard_from = strategy(decisions[heard])[turn.action.text]
            assert 2.718281828459045**sampled == pytest.approx(heard_from, rel=1e-4)
            heard, checked = (*heard, turn.action.text), checked + 1
    assert checked == 32


def test_refusals_when_asked_for_too_much_then_one_sentence(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"more than 2000 nodes; expected a smaller game.*--max-nodes"):
        evaluate_exactly(["grim"], against=(), changes={"kind": "iterated_matrix"}, max_nodes=2000)
    with pytest.raises(ConfigError, match=r"names no run, so no game; expected .* --game.kind"):
        evaluate_exactly(["grim"], against=(), changes={})
    with pytest.raises(ConfigError, match="did you mean 'random'"):
        evaluate_exactly(["randem"], against=(), changes=KUHN)
    with pytest.raises(ConfigError, match="expected a grammar that lists its moves"):
        evaluate_exactly(["fair"], against=(), changes={"kind": "trust_and_split"})
    with pytest.raises(ConfigError, match=r"--disagreement 40\.0 0\.0: no point of the front"):
        evaluate_exactly(["grim"], against=(), changes=DILEMMA, disagreement=(40.0, 0.0))
    assert command(["evaluate", str(run), "--exact", "--matrix"]) == 2
    assert "not allowed with argument --exact" in capsys.readouterr().err
    with pytest.raises(ValueError, match="is cut after 4 tokens"):  # none of the dilemma's parameters is left
        evaluate_exactly([str(run)], against=(), changes={"kind": "kuhn_poker"})
    assert command(["evaluate", str(run), "--game.num-rounds", "3"]) == 2
    assert (
        "unrecognized arguments: --game.num-rounds 3; --game.NAME goes with --exact only"
        in capsys.readouterr().err
    )


def test_policy_when_its_replies_are_not_listed_then_refused(run: Path) -> None:
    agent = load_agent(run, "shared")
    tree = game_tree(make_game("iterated_matrix", num_rounds=1, wording="terse"))
    free = agent.sampling.model_copy(update={"constrained": False})
    with pytest.raises(ValueError, match="samples without constraint"):
        policy_strategy(agent.policy, free, tree, "Ada")
    full = game_tree(make_game("iterated_matrix", num_rounds=1))
    short = agent.sampling.model_copy(update={"max_new_tokens": 1})
    with pytest.raises(ValueError, match="is cut after 1 tokens"):
        policy_strategy(agent.policy, short, full, "Ada")


def test_command_when_run_then_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "exact.json"
    words = ["evaluate", "random", "--exact", "--json", str(out), "--game.kind", "kuhn_poker"]
    assert command(words) == 0
    said = capsys.readouterr().out
    assert "exploitability 0.458333" in said and "best response" in said
    written = json.loads(out.read_text())
    assert written["results"][0]["exploitability"] == pytest.approx(11 / 24)
    assert written["game"]["kind"] == "kuhn_poker"

"""What people do with trees: graphs, numbers, transcripts; and how long all of it takes for long episodes."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import networkx as nx
import pytest
from rollout_fakes import Counting, Scripted, play, play_one

from coplay.agents.base import Reply
from coplay.games import MalformedRule, Move, StepOutcome, make_game
from coplay.rollout_tree import (
    RolloutTree,
    behaviour_rates,
    build_trajectories,
    counts,
    episode_returns,
    gini,
    main_line,
    read_rollouts,
    render_text,
    returns,
    safe_text,
    to_graphml,
    to_networkx,
    to_node_link,
    welfare,
    write_rollouts,
)


def bushy() -> RolloutTree:
    """A main line of three steps and a branch of two at its second."""
    tree = play_one(Counting(length=3))
    branch = replace(tree.steps[1], id=7, branch="b1", rewards={"ada": -50.0, "bo": 50.0})
    return replace(tree, steps=(*tree.steps, branch, replace(tree.steps[2], id=8, parent=7, branch="b1")))


def test_graph_when_built_then_an_arborescence_of_the_steps() -> None:
    """B56: states that look alike are different nodes; ids are those of the steps."""
    tree = bushy()
    graph = to_networkx(tree)
    assert nx.is_arborescence(graph) and set(graph) == {0, 1, 2, 7, 8}
    assert set(graph.edges) == {(0, 1), (1, 2), (0, 7), (7, 8)}
    assert graph.nodes[7]["branch"] == "b1" and graph.nodes[7]["reward:ada"] == -50.0
    assert json.loads(graph.nodes[0]["info"]) == tree.steps[0].info
    assert graph.graph["episode"] == tree.episode
    for _, data in graph.nodes(data=True):
        assert all(isinstance(value, str | int | float) for value in data.values())


def test_graph_when_stored_and_loaded_then_its_node_ids_stay(tmp_path: Path) -> None:
    """B56."""
    tree = bushy()
    write_rollouts(tmp_path, 0, [tree])
    (again,) = read_rollouts(tmp_path)
    assert nx.utils.graphs_equal(to_networkx(again), to_networkx(tree))


def test_exports_when_read_by_networkx_then_the_same_graph(tmp_path: Path) -> None:
    tree = bushy()
    odd = replace(tree, seats={"ada\0": "x\ud83d", "bo": "y"}, group="g\x1b")
    step = replace(odd.steps[0], info={"said": "\0\x1b\ud83d", "none": None, "list": [1]})
    odd = replace(odd, steps=(step, *odd.steps[1:]))
    to_graphml(odd, tmp_path / "tree.graphml")
    back = nx.read_graphml(tmp_path / "tree.graphml", node_type=int)
    assert set(back.edges) == set(to_networkx(odd).edges)
    assert json.loads(back.nodes[0]["info"]) == step.info
    data = json.loads(json.dumps(to_node_link(odd)))
    assert nx.utils.graphs_equal(nx.node_link_graph(data, edges="edges"), to_networkx(odd))


def test_tree_when_its_links_are_corrupt_then_refused_with_the_step() -> None:
    """B107."""
    tree = play_one(Counting(length=3))
    first, second, third = tree.steps
    cycle = replace(tree, steps=(replace(first, parent=2), second, third))
    lost = replace(tree, steps=(first, replace(second, parent=99), third))
    twice = replace(tree, steps=(first, second, replace(third, id=1)))
    fork = replace(tree, steps=(first, second, replace(third, parent=0)))
    for odd, words in (
        (cycle, "cycle through step"),
        (lost, "step 1 .* names parent 99"),
        (twice, "the id 1"),
    ):
        for reader in (to_networkx, main_line, render_text, build_trajectories):
            with pytest.raises(ValueError, match=words):
                reader(odd)
    with pytest.raises(ValueError, match="several ends"):
        main_line(fork)


@pytest.mark.parametrize(
    ("values", "expected"), [([8, 2], 0.3), ([1, 1, 4], 1 / 3), ([3, 3], 0.0), ([0, 0], 0.0)]
)
def test_gini_when_by_hand_then_golden(values: list[float], expected: float) -> None:
    """G54."""
    assert gini(values) == pytest.approx(expected, abs=1e-12)
    assert gini(values[::-1]) == pytest.approx(expected, abs=1e-12)


def test_gini_when_a_value_is_negative_then_refused() -> None:
    with pytest.raises(ValueError, match="none of them negative"):
        gini([1.0, -1.0])


def paying(amounts: list[tuple[float, float]]) -> Counting:
    """Pays ada and bo the amounts, step by step."""

    def outcome(step, actions, chance):
        ada, bo = amounts[step]
        return StepOutcome(
            rewards={"ada": ada, "bo": bo}, terminated=step == len(amounts) - 1,
            info={"cooperated": {"ada": True, "bo": step == 0}, "claims": {"ada": 5, "bo": {"apples": step}}},
        )  # fmt: skip

    return Counting(length=len(amounts), outcome=outcome)


def test_returns_when_zero_sum_then_no_seat_cancels_another() -> None:
    (tree,) = play(paying([(3.0, -3.0), (1.0, -1.0)]), Scripted)
    assert episode_returns(tree) == {"ada": 4.0, "bo": -4.0}
    assert returns([tree]) == {
        "return/ada": 4.0,
        "return/bo": -4.0,
        "return_per_tick/ada": 2.0,
        "return_per_tick/bo": -2.0,
    }
    assert welfare([tree]) == {"welfare/sum": 0.0, "welfare/min": -4.0}


def test_statistics_when_episodes_differ_in_length_then_each_counts_once() -> None:
    """B60: a long episode weighs no more than a short one."""
    (long,) = play(paying([(0.0, 0.0)] * 9 + [(1.0, 1.0)]), Scripted)
    (short,) = play(paying([(5.0, 0.0)]), Scripted)
    found = returns([long, short])
    assert found["return/ada"] == 3.0 and found["return_per_tick/ada"] == pytest.approx((0.1 + 5.0) / 2)
    rates = behaviour_rates([long, short])
    assert rates["cooperation/bo"] == pytest.approx((0.1 + 1.0) / 2) and rates["cooperation/ada"] == 1.0
    assert rates["claim/ada"] == 5.0 and rates["claim/bo/apples"] == pytest.approx((4.5 + 0.0) / 2)
    assert welfare([long, short])["welfare/gini"] == pytest.approx((0.0 + 0.5) / 2)
    assert rates["turns/ada"] == 5.5 and rates["finished"] == 1.0
    cut = replace(long, steps=(*long.steps[:-1], replace(long.steps[-1], status="truncated")))
    assert behaviour_rates([cut, short])["finished"] == 0.5


def test_malformed_rates_when_counted_then_by_player_and_reason_per_turn() -> None:
    """B36, B54: cut-off, empty and unreadable replies have counters of their own."""
    rule = MalformedRule(retries=1, consequence="counts as no")
    first = {"ada": Cut, "bo": lambda s: Scripted(s, lambda o, k: "" if k.step == 0 else "yes")}
    tree = play_one(Counting(length=2, malformed_rule=rule), first)
    rates = behaviour_rates([tree])
    assert rates["malformed/ada"] == rates["malformed/ada/cut_off"] == 1.0 and rates["retries/ada"] == 2.0
    assert rates["malformed/bo"] == rates["malformed/bo/empty"] == pytest.approx(2 / 3)
    assert rates["malformed/bo/cut_off"] == rates["malformed/bo/no_move"] == 0.0
    assert rates["turns/ada"] == 4.0 and rates["valid_moves/ada"] == 0.0
    assert rates["turns/bo"] == 3.0 and rates["valid_moves/bo"] == 1.0 and rates["finished"] == 1.0
    assert "reply_tokens/ada" not in rates
    assert behaviour_rates([play_one(Counting())])["reply_tokens/ada"] == 2.0


class Cut(Scripted):
    """Always runs into the length limit."""

    async def reply(self, observation, key) -> Reply:
        return Reply(text="ye", policy=self.policy, finish="length")


def test_failed_episodes_when_measured_then_counted_and_left_out() -> None:
    """B37, law 9."""
    (good,) = play(paying([(1.0, 1.0)]), Scripted)
    bad = play_one(Counting(length=5, max_steps=2), Scripted, max_failed_share=1.0)
    assert returns([good, bad]) == returns([good])
    found = counts([good, bad])
    assert found["count/episodes"] == 2 and found["count/failed"] == found["count/failed/game"] == 1
    assert found["count/terminated"] == 1 and returns([bad]) == {}


def test_transcript_when_rendered_then_shows_each_players_view_reply_and_reward() -> None:
    rule = MalformedRule(retries=1, consequence="counts as no")
    agents = {"ada": lambda s: Scripted(s, lambda o, k: "yes" if k.attempt else "umm"), "bo": Scripted}
    text = render_text(play_one(Counting(length=2, malformed_rule=rule), agents))
    for part in ("counting", "000000/00000", "you are ada", "step 1", "> umm", "malformed: no_move",
                 "attempt 2", "rewards  ada 1  bo 1", "returns  ada 2  bo 2", "(terminated)"):  # fmt: skip
        assert part in text
    failed = render_text(play_one(Counting(length=5, max_steps=2), Scripted, max_failed_share=1.0))
    assert "FAILED at step 2, the game" in failed and "returns" not in failed


def test_transcript_when_the_text_is_hostile_then_nothing_acts_on_a_terminal() -> None:
    """Law 10."""
    evil = "\x1b[2J\x07\u202eabc\u200b\x9b31m\ud83d\r\n<b>\0"
    tree = play_one(Counting(length=1), lambda s: Scripted(s, evil))
    step = tree.steps[0]
    turn = replace(
        step.turns[0],
        player=evil,
        observation=replace(step.turns[0].observation, text=evil, system=evil),
        action=Move(value=0, text=evil),
        policy=evil,
    )
    hostile = replace(
        tree, seats={evil: evil}, game=evil, steps=(replace(step, turns=(turn,), rewards={evil: 1.0}),)
    )
    text = render_text(hostile)
    assert all(character == "\n" or character.isprintable() for character in text)
    text.encode("utf-8")
    assert safe_text("\x1b é\u202e😀") == "\\x1b é\\u202e😀"


def test_import_when_only_trees_are_read_then_no_heavy_library() -> None:
    code = (
        "import sys, coplay.rollout_tree;"
        "print([m for m in ('torch', 'transformers', 'pyarrow', 'networkx', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def through_everything(length: int, folder: Path) -> None:
    """Play, extract, store, read, graph and print one episode."""
    tree = play_one(Counting(length=length))
    trajectories = build_trajectories(tree)
    write_rollouts(folder, 0, [tree])
    (again,) = read_rollouts(folder)
    graph = to_networkx(again)
    text = render_text(again)
    behaviour_rates([again]), returns([again]), to_node_link(again)
    assert again == tree and len(graph) == length == trajectories[0].num_ticks
    assert len(trajectories[0].rows[0].ids) == 5 * length and text.count("\nstep ") == length
    assert nx.is_arborescence(graph)


def num_calls(work: Callable[[], None]) -> int:
    """How many functions are called meanwhile, Python's and C's."""
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def test_long_episode_when_taken_through_everything_then_without_recursion(tmp_path: Path) -> None:
    """B107: 10,000 steps under a recursion limit that any recursion over steps would break."""
    through_everything(200, tmp_path)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        through_everything(10_000, tmp_path)
    finally:
        sys.setrecursionlimit(limit)


def test_long_episode_when_taken_through_everything_then_calls_grow_with_its_steps(tmp_path: Path) -> None:
    """Five times the steps are five times the calls, fixed ones aside."""
    through_everything(20, tmp_path)
    few, many = (num_calls(lambda n=n: through_everything(n, tmp_path)) for n in (300, 1_500))
    assert many < 5.5 * few


def test_shipped_matrix_when_measured_then_cooperation_is_seen() -> None:
    game = make_game("iterated_matrix")
    labels = game.spec.players
    (tree,) = play(game, dict.fromkeys(labels, First))
    rates = behaviour_rates([tree])
    assert [rates[f"cooperation/{player}"] for player in labels] == [1.0, 1.0]


def test_info_when_a_game_means_something_else_by_a_name_then_not_counted() -> None:
    """Whatever a plug-in writes into its info, a run does not stop at measuring it."""
    odd = {
        "claims": {"ada": "the ace", "bo": {"apples": "all", "pears": 2}},
        "cooperated": {"ada": None, "bo": "yes"},
    }
    game = Counting(
        length=1, outcome=lambda *_: StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, terminated=True, info=odd)
    )
    rates = behaviour_rates(play(game, Scripted))
    assert {key: rate for key, rate in rates.items() if key.startswith(("cooperation", "claim"))} == {
        "claim/bo/pears": 2.0
    }


class First(Scripted):
    """Always the first label."""

    async def reply(self, observation, key) -> Reply:
        return Reply(text=observation.grammar.labels()[0], policy=self.policy)

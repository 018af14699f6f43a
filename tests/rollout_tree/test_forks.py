"""Forks chosen by what is known before a reply, paid for by tokens, nested, and cut at a horizon."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from branch_fakes import SITUATIONS, Tabular, play_branches, tabular, uneven
from rollout_fakes import Counting, Tokens, plan_for, said

from coplay.agents.scripted import scripted_agent
from coplay.games import Observation, make_game
from coplay.rollout_tree import (
    BranchPlan,
    RolloutTree,
    Step,
    ValueRow,
    branch_steps,
    branch_trajectories,
    build_trajectories,
    collect_sync,
    forks,
    main_line,
    read_rollouts,
    render_text,
    render_tree,
    tree_conversations,
    write_report,
    write_rollouts,
)
from coplay.rollout_tree.paths import branch_paths

TWO_ROUNDS = make_game("iterated_matrix", num_rounds=2, wording="terse")
THREE_ROUNDS = make_game("iterated_matrix", num_rounds=3, wording="terse")
THREE_PLAYERS = make_game("iterated_matrix", num_rounds=2, wording="terse", players=("Ada", "Bo", "Cy"))
TRUST = make_game("trust_and_split", num_rounds=2)
NESTED = BranchPlan(depth=2, num_alternatives=2)


def settled(mine: tuple[str, ...], observation: Observation) -> dict[str, float]:
    """Surer of himself after each yes."""
    yes = min(0.5 + 0.15 * mine.count("yes"), 0.95)
    return {"yes": yes, "no": 1 - yes}


def seat_of(seat) -> Tabular:
    return Tabular(seat, settled)


def wordy(seat) -> Tabular:
    return Tabular(seat, uneven, wordy=True)


def yes_so_far(rows: Sequence[ValueRow]) -> list[list[float]]:
    """A critic that counts the own yes in the situation that its position names."""
    known = {100 + number: situation for situation, number in SITUATIONS.items()}
    return [[float(known[row.ids[place]][0].count("yes")) for place in row.positions] for row in rows]


def moves(steps: Sequence[Step], player: str) -> list[str]:
    return [said(turn.action) for step in steps for turn in step.turns if turn.player == player]


def signal(branch: Sequence[Step], name: str) -> float:
    return branch[0].info["branch_fork"][name]


def test_places_when_bounded_by_entropy_then_where_the_policy_was_unsure_and_by_nothing_later() -> None:
    """Entropy at the first chosen token, before the reply: a function of the own moves before it."""
    game, bounds = Counting(length=4), BranchPlan(min_entropy=0.6)
    trees = play_branches(game, seat_of, branching=bounds, group_size=20)
    everywhere = play_branches(game, seat_of, branching=BranchPlan(), group_size=20)
    places = 0
    for tree, whole in zip(trees, everywhere, strict=True):
        main = main_line(tree)
        expected = {
            (step, player)
            for step in range(4)
            for player in ("ada", "bo")
            if moves(main[:step], player).count("yes") < 2  # 0.8: 0.50 nats; 0.65: 0.65
        }
        assert {(fork.step.index, fork.player) for fork in forks(tree)} == expected
        assert main == main_line(whole)
        lines, all_lines = branch_steps(tree), branch_steps(whole)
        for name, line in lines.items():
            assert signal(line, "entropy") >= 0.6
            assert [step.turns for step in line] == [step.turns for step in all_lines[name]]
        places += len(expected)
    assert 0 < places < 160


def test_places_when_bounded_by_value_then_as_the_critic_says_before_the_reply() -> None:
    game = Counting(length=4)
    plan = BranchPlan(min_value=1, max_value=2, depth=2)
    (tree,) = play_branches(game, seat_of, branching=plan, values=yes_so_far)
    paths = branch_paths(tree)
    assert any("/" in name for name in paths)
    for name, path in paths.items():
        first = branch_steps(tree)[name][0].index + 1 if name else 0
        own = {(f.step.index, f.player) for f in forks(tree) if f.step.branch == name}
        expected = {
            (step, player)
            for step in range(first, 4)
            for player in ("ada", "bo")
            if 1 <= moves(path[:step], player).count("yes") <= 2
        }
        assert own == (expected if name.count("/") == 0 else set())


def test_bounds_when_together_with_players_coins_and_a_budget_then_all_hold_in_order() -> None:
    game = Counting(length=6)
    options = {"players": ("bo",), "every": 2, "share": 0.8, "min_entropy": 0.4, "max_branches": 2}
    plan = BranchPlan(max_value=2, **options)
    trees = play_branches(game, seat_of, branching=plan, group_size=30, values=yes_so_far)
    free = BranchPlan(players=("bo",), every=2, share=0.8)
    for tree, whole in zip(trees, play_branches(game, seat_of, branching=free, group_size=30), strict=True):
        drawn = [fork.step.index for fork in forks(whole)]
        main = main_line(tree)
        allowed = [step for step in drawn if moves(main[:step], "bo").count("yes") <= 2]
        assert [fork.step.index for fork in forks(tree)] == allowed[:2]


def test_bounds_when_nobody_can_tell_then_one_sentence() -> None:
    game, seats = Counting(length=2), {"ada": seat_of, "bo": scripted_agent("random")}
    bare = {"ada": Tokens, "bo": Tokens}
    for plan, who, words in (
        (
            BranchPlan(players=("bo",), min_entropy=0.1),
            seats,
            "by entropy, and replies of player 'bo' have none",
        ),
        (BranchPlan(players=("bo",), min_value=0.1), seats, "by value, and replies of player 'bo' have none"),
        (BranchPlan(min_entropy=0.1), bare, "by entropy, and replies of player '(ada|bo)' have none"),
    ):
        with pytest.raises(ValueError, match=words):
            play_branches(game, who, branching=plan, values=yes_so_far)
    with pytest.raises(ValueError, match="by value and nobody tells values"):
        play_branches(game, seats, branching=BranchPlan(min_value=0.0))
    (tree,) = play_branches(
        game, seats, branching=BranchPlan(min_entropy=0.1, max_value=9), values=yes_so_far
    )
    assert {fork.player for fork in forks(tree)} == {"ada"}


def sampled(steps: Sequence[Step]) -> int:
    return sum(
        len(s.ids) for step in steps for turn in step.turns if not turn.trains_once_for
        for s in turn.segments if s.sampled
    )  # fmt: skip


def test_tokens_when_spent_then_no_step_forks_any_more_and_the_last_one_is_whole() -> None:
    """A step forks if the branches begun before it have sampled fewer tokens; the main line's never count."""
    whole = play_branches(THREE_ROUNDS, wordy, branching=BranchPlan(), group_size=8)
    budgets = {}
    for budget in (1, 26, 40, 10_000):
        plan = BranchPlan(max_branch_tokens=budget)
        trees = play_branches(THREE_ROUNDS, wordy, branching=plan, group_size=8)
        budgets[budget] = trees
        for tree, full in zip(trees, whole, strict=True):
            kept, spent = [], 0
            for step in range(3):
                if spent >= budget:
                    break
                here = {n: line for n, line in branch_steps(full).items() if line[0].index == step}
                spent += sum(sampled(line) for line in here.values())
                kept += list(here)
            assert list(branch_steps(tree)) == kept
            assert main_line(tree) == main_line(full)
    assert budgets[10_000] == whole
    assert len({len(branch_steps(tree)) for tree in budgets[26]}) > 1


def test_tokens_when_forks_are_nested_then_a_line_is_not_charged_for_what_came_after_its_step() -> None:
    """Else whether a reply has siblings would depend on how it turned out (rule 11)."""
    plan = BranchPlan(depth=2, max_branch_tokens=30)
    cut = 0
    for tree in play_branches(THREE_ROUNDS, wordy, branching=plan, group_size=10):
        lines, begun = branch_steps(tree), list[str]()
        asked = [("", step) for step in range(3)]
        while asked:
            line, step = asked.pop(0)
            spent = sum(sampled([s for s in lines[name] if name != line or s.index < step]) for name in begun)
            here = [n for n, own in lines.items() if own[0].index == step and n.rpartition("/")[0] == line]
            assert bool(here) == (spent < 30), (line, step, spent)
            cut += not here
            begun += here
            asked += [(name, later) for name in here if not line for later in range(step + 1, 3)]
        assert begun == list(lines)
    assert cut


@pytest.mark.parametrize(
    "plan",
    [
        NESTED,
        BranchPlan(depth=3, share=0.5, fresh_luck=True),
        BranchPlan(depth=2, horizon=1),
        BranchPlan(min_entropy=0.6, depth=2),
        BranchPlan(max_value=0.0, depth=2),
        BranchPlan(max_branch_tokens=20, depth=2),
    ],
)
@pytest.mark.parametrize("game", [THREE_ROUNDS, THREE_PLAYERS])
def test_main_line_and_order_when_forks_are_nested_chosen_or_paid_then_nothing_else_changes(
    game, plan: BranchPlan, tmp_path: Path
) -> None:
    """Main lines to the last byte; the order of episodes, and what is played with them, changes nothing."""
    judge = lambda rows: [[float(sum(r.ids[: p + 1]) % 3 - 1) for p in r.positions] for r in rows]  # noqa: E731
    seats = dict.fromkeys(game.spec.players, wordy)
    asked = plan_for(game, seats, group_size=4, branching=plan, values=judge)
    trees = collect_sync(asked)
    bare = collect_sync(replace(asked, branching=None))
    cut = [replace(tree, steps=tuple(s for s in tree.steps if not s.branch)) for tree in trees]
    assert cut == bare and any(tree != one for tree, one in zip(trees, cut, strict=True))
    for name, some in (("bare", bare), ("cut", cut)):
        write_rollouts(tmp_path / name, 0, some)
    files = [sorted((tmp_path / name).rglob("*.parquet")) for name in ("bare", "cut")]
    assert files[0] and [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]
    mixed = tuple(random.Random(2).sample(asked.episodes, len(asked.episodes)))
    assert collect_sync(replace(asked, episodes=mixed)) == trees
    alone = [collect_sync(replace(asked, episodes=(episode,)))[0] for episode in asked.episodes]
    assert alone == trees


def test_nested_fork_when_taken_then_its_own_line_is_held_and_every_reply_trains_once() -> None:
    for game in (THREE_ROUNDS, THREE_PLAYERS):
        (tree,) = play_branches(game, branching=BranchPlan(depth=2, num_alternatives=2))
        lines, paths = branch_steps(tree), branch_paths(tree)
        by_id = {step.id: step for step in tree.steps}
        assert len(by_id) == len(tree.steps) and max(name.count("/") for name in lines) == 1
        for fork in forks(tree):
            assert fork.step in paths[fork.step.branch]
            for name in fork.branches:
                first = lines[name][0]
                assert name.startswith(f"{fork.step.branch}/" if fork.step.branch else "s")
                assert (first.parent, first.index) == (fork.step.parent, fork.step.index)
                for before, turn in zip(fork.step.turns, first.turns, strict=True):
                    if turn.player == fork.player:
                        assert not turn.trains_once_for and turn.observation == before.observation
                    else:
                        assert turn == replace(before, trains_once_for=str(fork.step.id))
        trajectories = [*build_trajectories(tree), *branch_trajectories(tree)]
        trained = [
            (path.player, path.turn_steps[turn])
            for path in trajectories for row in path.rows for turn in row.turn[row.sampled]
        ]  # fmt: skip
        played = [(t.player, s.id) for s in tree.steps for t in s.turns if not t.trains_once_for]
        assert sorted(trained) == sorted(played)
        assert len({t.sampling.seed for s in tree.steps for t in s.turns if not t.trains_once_for}) == len(
            played
        )
        for path in trajectories:
            steps = paths[path.branch]
            assert path.rewards.tolist() == [step.rewards[path.player] for step in steps]


def test_luck_when_forks_are_nested_then_that_of_the_main_line_or_each_branchs_own() -> None:
    for fresh in (False, True):
        plan = BranchPlan(depth=2, fresh_luck=fresh)
        (tree,) = play_branches(Counting(length=3), seat_of, branching=plan)
        luck: dict[int, set[int]] = {}
        for step in tree.steps:
            luck.setdefault(step.index, set()).add(step.info["luck"])
        assert (max(map(len, luck.values())) == 1) is not fresh


def test_horizon_when_forks_are_nested_then_no_line_goes_further_than_the_one_it_left() -> None:
    (tree,) = play_branches(Counting(length=6), seat_of, branching=BranchPlan(depth=3, horizon=2))
    lines = branch_steps(tree)
    for fork in forks(tree):
        ends = {min(fork.step.tick + 1, 5)}
        if fork.step.branch:
            ends = {min(*ends, lines[fork.step.branch][-1].tick)}
        assert {lines[name][-1].tick for name in fork.branches} == ends
        assert {signal(lines[name], "last_tick") for name in fork.branches} <= {*ends, fork.step.tick + 1}
    assert max(name.count("/") for name in lines) == 1  # after its first step a branch of two has one more


def test_seats_when_scripted_then_nested_branches_go_on_with_their_memory() -> None:
    seats = {"Ada": tabular, "Bo": scripted_agent("tit_for_tat")}
    (tree,) = play_branches(THREE_ROUNDS, seats, branching=BranchPlan(depth=3))
    assert {fork.player for fork in forks(tree)} == {"Ada"} and any(
        "/" in name for name in branch_steps(tree)
    )
    for path in branch_paths(tree).values():
        assert moves(path, "Bo") == ["A", *moves(path, "Ada")[:-1]]


@pytest.mark.parametrize("plan", [NESTED, BranchPlan(depth=2, horizon=2)])
@pytest.mark.parametrize("game", [TRUST, THREE_ROUNDS])
def test_nested_trees_when_kept_drawn_and_shown_then_whole(game, plan: BranchPlan, tmp_path: Path) -> None:
    agents = Tokens if game is TRUST else tabular
    trees = play_branches(game, agents, group_size=2, branching=plan)
    write_rollouts(tmp_path, 0, trees)
    again = list(read_rollouts(tmp_path))
    assert again == trees and [forks(tree) for tree in again] == [forks(tree) for tree in trees]
    (tree, _), names = trees, list(branch_steps(trees[0]))
    assert any("/" in name for name in names)
    drawn = render_tree(tree)
    assert all(f"[{name}]" in drawn for name in names)
    told = {one.branch for one in tree_conversations(tree)}
    for name in names:
        assert f"branch {name}" in render_text(tree, name)
    assert told == {"", *names}
    mixed = replace(tree, steps=tuple(random.Random(3).sample(tree.steps, len(tree.steps))))
    assert forks(mixed) == forks(tree)
    (page,) = [write_report(tmp_path)]
    assert names[-1] in Path(page).read_text(encoding="utf-8")


def test_branch_when_it_fails_then_it_does_not_fork_and_its_line_and_siblings_stay() -> None:
    class Falling(Tokens):
        async def reply(self, observation, key):
            if key.branch.startswith("s0.ada.1") and key.step == 2:
                raise RuntimeError("tired")
            return await super().reply(observation, key)

    plan = BranchPlan(players=("ada",), depth=2, num_alternatives=2)
    (tree,) = play_branches(Counting(length=3), Falling, branching=plan, max_failed_share=0.5)
    lines = branch_steps(tree)
    assert lines["s0.ada.1"][-1].status == "failed" and lines["s0.ada.2"][-1].status == "terminated"
    assert not any(name.startswith("s0.ada.1/") for name in lines)
    assert "s0.ada.2/s1.ada.1" in lines


def test_links_when_a_branch_leaves_a_line_at_its_first_step_then_refused() -> None:
    (tree,) = play_branches(THREE_ROUNDS, branching=NESTED)
    lines = branch_steps(tree)
    name = next(name for name in lines if "/" in name)
    torn = tuple(
        replace(step, parent=lines[name.partition("/")[0]][-1].id) if step is lines[name][0] else step
        for step in tree.steps
    )
    with pytest.raises(ValueError, match="expected a step of its line beside it"):
        forks(RolloutTree(**{**{n: getattr(tree, n) for n in tree.__dataclass_fields__}, "steps": torn}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"depth": 0}, "branching.depth is 0"),
        ({"max_branch_tokens": 0}, "branching.max_branch_tokens is 0"),
        ({"min_entropy": 1.0, "max_entropy": 0.5}, "min_entropy is 1.0 and branching.max_entropy is 0.5"),
        ({"min_value": float("nan")}, "branching.min_value is nan"),
    ],
)
def test_plan_when_a_number_is_out_of_range_then_one_sentence(changes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BranchPlan(**changes)

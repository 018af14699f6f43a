"""Branches: one player's reply sampled anew with everything else held, proved on games that can be enumerated."""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import pytest
from branch_fakes import Tabular, continuations, play_branches, tabular, uneven
from rollout_fakes import Counting, Scripted, Tokens, plan_for, said

from coplay.agents.base import Agent, Reply, TurnKey
from coplay.agents.scripted import scripted_agent
from coplay.games import Chance, MalformedRule, Observation, StepOutcome, make_game
from coplay.rollout_tree import (
    BranchPlan,
    RolloutTree,
    TooManyFailedEpisodes,
    branch_steps,
    branch_trajectories,
    build_trajectories,
    collect_sync,
    counts,
    forks,
    main_line,
    read_rollouts,
    returns,
    write_rollouts,
)

TWO_ROUNDS = make_game("iterated_matrix", num_rounds=2, wording="terse")
THREE_PLAYERS = make_game("iterated_matrix", num_rounds=2, wording="terse", players=("Ada", "Bo", "Cy"))
TRUST = make_game("trust_and_split", num_rounds=2)
THREE = BranchPlan(num_alternatives=3)


def moves(steps) -> list[dict[str, object]]:
    return [{turn.player: said(turn.action) for turn in step.turns} for step in steps]


def without_branches(trees) -> list[RolloutTree]:
    return [replace(tree, steps=tuple(s for s in tree.steps if not s.branch)) for tree in trees]


@pytest.mark.parametrize("game", [TWO_ROUNDS, THREE_PLAYERS])
def test_deviation_advantage_when_estimated_from_branches_then_the_exact_one(game) -> None:
    """Rule 11: a reply's return less the mean of its siblings' is unbiased for Q(s, a) - V(s), for every player."""
    state, nobody = game.initial_state(Chance(0)), dict.fromkeys(game.spec.players, ())
    value = dict.fromkeys(game.spec.players, 0.0)
    for chance, _, total in continuations(game, state, 0, nobody):
        value = {player: value[player] + chance * total[player] for player in value}
    seen = defaultdict(list)
    for tree in play_branches(game, branching=THREE, group_size=400):
        paths = [build_trajectories(tree), branch_trajectories(tree)]
        total = {(path.branch, path.player): path.rewards.sum() for part in paths for path in part}
        lines = branch_steps(tree)
        for fork in forks(tree):
            if fork.step.index == 0:
                names = ("", *fork.branches)
                assert len(names) == 4
                gains, by_move = [total[name, fork.player] for name in names], defaultdict(list)
                for name, gain in zip(names, gains, strict=True):
                    first = lines[name][0] if name else fork.step
                    move = next(said(t.action) for t in first.turns if t.player == fork.player)
                    by_move[move].append(gain - (sum(gains) - gain) / 3)
                for move, found in by_move.items():
                    seen[fork.player, move].append(found)  # siblings of one fork are no independent draws
    assert len(seen) == 2 * len(game.spec.players)
    for (player, move), found in seen.items():
        exact = -value[player]
        for chance, _, total in continuations(game, state, 0, nobody, {player: move}):
            exact += chance * total[player]
        size = sum(len(gains) for gains in found)
        mean = sum(sum(gains) for gains in found) / size
        error = sqrt(sum((sum(gains) - mean * len(gains)) ** 2 for gains in found)) / size
        assert abs(mean - exact) < 3 * error, (player, move, mean, exact, error)
        assert abs(exact) > 3 * error  # the interval tells the moves apart


@pytest.mark.parametrize(
    "plan",
    [
        THREE,
        BranchPlan(horizon=1),
        BranchPlan(fresh_luck=True, share=0.5),
        BranchPlan(players=("Ada",), every=2),
    ],
)
@pytest.mark.parametrize("game", [TWO_ROUNDS, THREE_PLAYERS, TRUST])
def test_main_line_when_it_has_branches_then_the_same_to_the_last_byte(game, plan, tmp_path: Path) -> None:
    agents = Tokens if game is TRUST else tabular
    bare = play_branches(game, agents, num_groups=2, group_size=2)
    bushy = play_branches(game, agents, num_groups=2, group_size=2, branching=plan)
    assert any(step.branch for tree in bushy for step in tree.steps)
    assert without_branches(bushy) == bare
    for name, trees in (("bare", bare), ("cut", without_branches(bushy))):
        write_rollouts(tmp_path / name, 0, trees)
    files = [sorted((tmp_path / name).rglob("*.parquet")) for name in ("bare", "cut")]
    assert files[0] and [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]
    assert returns(bushy) == returns(bare)


@dataclass
class Slow(Tabular):
    """Takes its turns in an order of its own."""

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        return await super().reply(observation, key)


def test_branches_when_replies_and_episodes_come_in_another_order_then_the_same_trees() -> None:
    """Law 7: no order changes a draw."""
    plan = plan_for(
        TWO_ROUNDS, dict.fromkeys(TWO_ROUNDS.spec.players, tabular), group_size=4, branching=THREE
    )
    trees = collect_sync(plan)
    for seed in range(3):
        random.seed(seed)
        mixed = random.sample(plan.episodes, len(plan.episodes))
        seats = dict.fromkeys(TWO_ROUNDS.spec.players, lambda seat: Slow(seat, uneven))
        slow = tuple(replace(episode, seats=seats) for episode in mixed)
        assert collect_sync(replace(plan, episodes=slow)) == trees
    alone = [collect_sync(replace(plan, episodes=(episode,)))[0] for episode in plan.episodes]
    assert alone == trees


def test_branches_when_more_are_asked_for_then_those_there_were_stay() -> None:
    one, three = (
        play_branches(TWO_ROUNDS, branching=BranchPlan(num_alternatives=number))[0] for number in (1, 3)
    )
    few, many = branch_steps(one), branch_steps(three)
    assert len(many) == 3 * len(few)
    for name, line in few.items():
        again = [replace(step, id=0, parent=None) for step in many[name]]
        assert again == [replace(step, id=0, parent=None) for step in line]


def test_fork_when_taken_then_others_are_held_and_the_rest_is_drawn_under_the_branch() -> None:
    """Rule 11: same action, same tokens for the others; law 7: seeds of the branch's own."""
    tree = play_branches(THREE_PLAYERS, branching=THREE)[0]
    main, lines = main_line(tree), branch_steps(tree)
    assert set(lines) == {f"s{s}.{p}.{k}" for s in (0, 1) for p in ("Ada", "Bo", "Cy") for k in (1, 2, 3)}
    assert len({step.id for step in tree.steps}) == len(tree.steps)
    seeds = {turn.sampling.seed for step in main for turn in step.turns}
    for fork in forks(tree):
        for name in fork.branches:
            first = lines[name][0]
            assert (first.parent, first.index, first.tick) == (
                fork.step.parent,
                fork.step.index,
                fork.step.tick,
            )
            for before, turn in zip(fork.step.turns, first.turns, strict=True):
                assert before.player == turn.player
                if turn.player == fork.player:
                    assert turn.trains_once_for == "" and turn.sampling.seed not in seeds
                    assert turn.observation == before.observation
                else:
                    assert turn == replace(before, trains_once_for=str(fork.step.id))
            later = [turn for step in lines[name][1:] for turn in step.turns]
            assert not {turn.sampling.seed for turn in later} & seeds
            assert not any(turn.trains_once_for for turn in later)
    assert len({turn.sampling.seed for s in tree.steps for turn in s.turns if not turn.trains_once_for}) == (
        3 * len(main) + sum(1 + 3 * (len(line) - 1) for line in lines.values())
    )


def half(mine: tuple[str, ...], observation: Observation) -> dict[str, float]:
    return {"yes": 0.5, "no": 0.5}


def test_memory_when_an_agent_has_one_then_each_branch_continues_its_own_past() -> None:
    """Forks of agents are independent, and held players have replied once at the fork."""
    game = Counting(length=4, players=("ada", "bo", "cy"))
    seen: dict[tuple[str, str, int], tuple[str, ...]] = {}

    @dataclass
    class Noting(Tabular):
        async def reply(self, observation: Observation, key: TurnKey) -> Reply:
            seen[key.branch, key.player, key.step] = self.mine
            return await super().reply(observation, key)

    branching = BranchPlan(players=("ada", "cy"), num_alternatives=2)
    (tree,) = play_branches(game, lambda seat: Noting(seat, half), branching=branching)
    assert len(branch_steps(tree)) == 16
    for paths in (build_trajectories(tree), branch_trajectories(tree)):
        for path in paths:
            past = [said(turn.action) for turn in path.turns]
            first = int(path.branch[1]) if path.branch else 0
            held = path.branch and path.player != path.branch.split(".")[1]
            for step in range(first + bool(held), 4):
                assert seen[path.branch, path.player, step] == tuple(past[:step])


def test_luck_when_common_then_that_of_the_main_line_and_when_fresh_then_the_branchs_own() -> None:
    for fresh in (False, True):
        (tree,) = play_branches(
            Counting(length=4), lambda seat: Tabular(seat, half), branching=BranchPlan(fresh_luck=fresh)
        )
        main = main_line(tree)
        for line in branch_steps(tree).values():
            same = [step.info["luck"] == main[step.index].info["luck"] for step in line]
            assert not any(same) if fresh else all(same)


def test_places_when_planned_then_by_step_and_coin_and_never_by_outcome() -> None:
    """Rule 11: whoever plays however, the same places of the same episodes fork."""

    def places(seats, **plan) -> list[list[tuple[int, str]]]:
        trees = play_branches(Counting(length=6), seats, group_size=30, branching=BranchPlan(**plan))
        return [[(fork.step.index, fork.player) for fork in forks(tree)] for tree in trees]

    yes, no = lambda s: Tokens(s, say=lambda key: "yes"), lambda s: Tokens(s, say=lambda key: "no")
    drawn = places(yes, share=0.25)
    assert drawn == places(no, share=0.25) and 60 < sum(map(len, drawn)) < 120
    assert len(set(map(tuple, drawn))) > 10
    assert {index for found in places(yes, every=3) for index, _ in found} == {0, 3}
    assert {player for found in places(yes, players=("bo",)) for _, player in found} == {"bo"}
    few = places(yes, num_alternatives=2, max_branches=5)
    assert [[index for index, _ in found] for found in few] == [[0, 0]] * 30
    assert {tuple(found) for found in places(yes, max_branches=1)} == {((0, "ada"),), ((0, "bo"),)}


def test_seats_when_scripted_then_they_branch_only_if_named() -> None:
    seats = {"Ada": scripted_agent("random"), "Bo": tabular}
    game = make_game("iterated_matrix", num_rounds=6, wording="terse")
    (tree,) = play_branches(game, seats, branching=BranchPlan())
    assert {fork.player for fork in forks(tree)} == {"Bo"}
    (tree,) = play_branches(game, seats, branching=BranchPlan(players=("Ada",), num_alternatives=5))
    lines = branch_steps(tree)
    assert {fork.player for fork in forks(tree)} == {"Ada"}
    for fork in forks(tree):
        assert len({moves(lines[name][:1])[0]["Ada"] for name in fork.branches}) == 2
    grim = {"Ada": tabular, "Bo": scripted_agent("grim")}
    (tree,) = play_branches(game, grim, branching=THREE)
    for path in branch_trajectories(tree):
        if path.player == "Ada":
            own = [said(turn.action) for turn in path.turns]
        else:  # built after Ada's, of the same branch
            expected = ["B" if "B" in own[:step] else "A" for step in range(6)]
            assert [said(turn.action) for turn in path.turns] == expected


@dataclass
class Claiming(Tokens):
    """Writes to its branch, and claims what its branch says."""

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        reply = await super().reply(observation, key)
        number = len(key.branch) + key.step + len(key.player)
        grammar = observation.grammar
        text = grammar.write(number % 11) if hasattr(grammar, "low") else grammar.write(f"hello{key.branch}")
        return replace(reply, text=text)


def test_rounds_when_a_message_forks_then_the_branch_has_the_same_ticks() -> None:
    """Steps of a round belong to one tick on every path."""
    (tree,) = play_branches(TRUST, Claiming, branching=BranchPlan(num_alternatives=2))
    main, lines = main_line(tree), branch_steps(tree)
    assert len({step.tick for step in main}) == 2 < len(main)
    assert [fork.step.index for fork in forks(tree)] == sorted(
        index for index, step in enumerate(main) for _ in step.turns
    )
    for line in lines.values():
        assert [(s.index, s.tick) for s in line] == [(s.index, s.tick) for s in main[line[0].index :]]
    for path in branch_trajectories(tree):
        assert path.num_ticks == 2 and len(path.turns) == len(set(path.turn_steps))
    (cut,) = play_branches(TRUST, Claiming, branching=BranchPlan(horizon=1))
    for fork in forks(cut):
        for name in fork.branches:
            last = branch_steps(cut)[name][-1]
            assert last.tick == fork.step.tick
            assert last.status == ("truncated" if last.tick == 0 else "terminated")


def test_horizon_when_reached_then_truncated_with_closing_turns() -> None:
    """A branch of h ticks reads on once, where the value beyond is read; the game's own end comes first."""
    game = Counting(length=4)
    (tree,) = play_branches(game, Tokens, branching=BranchPlan(horizon=2))
    assert tree.status == "terminated"
    for fork in forks(tree):
        for name in fork.branches:
            line = branch_steps(tree)[name]
            assert len(line) == min(2, 4 - fork.step.index)
            cut = fork.step.index < 2
            assert line[-1].status == ("truncated" if cut else "terminated")
            assert line[-1].info.get("branch_horizon", False) is cut
            assert [turn.player for turn in line[-1].closing] == (["ada", "bo"] if cut else [])
    ends = {path.value_points[-1].tick for path in branch_trajectories(tree) if path.truncated}
    assert ends == {2, 3}


def test_rows_when_built_then_every_reply_trains_once() -> None:
    """Rule 11: shared and held turns are context in branches."""
    (tree,) = play_branches(THREE_PLAYERS, branching=THREE)
    paths = [*build_trajectories(tree), *branch_trajectories(tree)]
    trained = [(path.player, path.turn_steps[turn]) for path in paths for row in path.rows
               for turn in row.turn[row.sampled]]  # fmt: skip
    expected = [
        (turn.player, step.id) for step in tree.steps for turn in step.turns if not turn.trains_once_for
    ]
    assert sorted(trained) == sorted(expected)
    main, lines = main_line(tree), branch_steps(tree)
    for path in paths:
        steps = main if not path.branch else (*main[: lines[path.branch][0].index], *lines[path.branch])
        assert path.rewards.tolist() == [step.rewards[path.player] for step in steps]
        (row,) = path.rows
        told = [token for step in steps for turn in step.turns if turn.player == path.player
                for segment in turn.segments for token in segment.ids]  # fmt: skip
        assert row.ids.tolist() == told and not row.log_probs[~row.sampled].any()
        assert path.acted.tolist() == [t in row.tick[row.sampled] for t in range(path.num_ticks)]
        assert [point.tick for point in path.value_points] == [0, 1]


@dataclass
class Falling(Tokens):
    """Falls over in every second alternative, from a step on."""

    at: int = 0

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        if key.branch.endswith(".2") and key.step >= self.at:
            raise RuntimeError("tired")
        return await super().reply(observation, key)


@pytest.mark.parametrize("at", [0, 2])
def test_branch_when_it_fails_then_recorded_and_its_main_line_and_siblings_stay(
    at: int, tmp_path: Path
) -> None:
    """Law 9, rule 12: a failed branch leaves its fork, is kept with the reason and counted."""
    game = Counting(length=3)
    plan = BranchPlan(num_alternatives=3, players=("ada",))
    trees = play_branches(game, lambda s: Falling(s, at=at), branching=plan, max_failed_share=0.5)
    (tree,) = trees
    assert tree.failure is None and without_branches(trees) == play_branches(game, Tokens)
    for fork in forks(tree):
        assert fork.branches == (f"s{fork.step.index}.ada.1", f"s{fork.step.index}.ada.3")
    failed = [line for name, line in branch_steps(tree).items() if name.endswith(".2")]
    assert len(failed) == 3
    for line in failed:
        assert line[-1].status == "failed" and line[-1].rewards == {} and line[-1].turns == ()
        assert line[-1].info["failure"] == {"player": "ada", "reason": "RuntimeError: tired"}
        assert [step.status for step in line[:-1]] == ["running"] * (len(line) - 1)
    numbers = counts(trees)
    assert (numbers["count/branches"], numbers["count/branches_failed"], numbers["count/failed"]) == (9, 3, 0)
    assert not {path.branch for path in branch_trajectories(tree)} & {line[0].branch for line in failed}
    write_rollouts(tmp_path, 0, trees)
    assert list(read_rollouts(tmp_path)) == trees
    with pytest.raises(
        TooManyFailedEpisodes, match=r"of 9 branches .* branch 's\d\.ada\.2' of episode"
    ) as caught:
        play_branches(game, lambda s: Falling(s, at=at), branching=plan)
    assert without_branches(caught.value.trees) == without_branches(trees)


def test_retry_when_an_alternative_or_a_held_player_needs_one_then_all_attempts_are_there() -> None:
    """Rule 9: attempts are turns; those of the held are held with them."""
    rule = MalformedRule(retries=1, penalty=0.5, consequence="counts as no")

    def say(key: TurnKey) -> str:
        wrong = "ada" in key.branch if key.player == "ada" else not key.branch
        return "eh" if wrong and not key.attempt else "yes"

    game = Counting(length=2, malformed_rule=rule)
    (tree,) = play_branches(game, lambda s: Tokens(s, say=say), branching=BranchPlan(players=("ada",)))
    for fork in forks(tree):
        first = branch_steps(tree)[fork.branches[0]][0]
        kinds = [
            (turn.player, turn.attempt, turn.penalty, bool(turn.trains_once_for)) for turn in first.turns
        ]
        assert kinds == [
            ("ada", 0, 0.5, False),
            ("ada", 1, 0, False),
            ("bo", 0, 0.5, True),
            ("bo", 1, 0, True),
        ]


def test_turns_when_players_move_in_turn_then_only_the_mover_forks() -> None:
    game = Counting(length=4, movers=lambda state: (("ada", "bo")[state.step % 2],))
    (tree,) = play_branches(game, Tokens, branching=BranchPlan())
    assert [(fork.step.index, fork.player) for fork in forks(tree)] == [
        (0, "ada"), (1, "bo"), (2, "ada"), (3, "bo"),
    ]  # fmt: skip


def test_game_when_the_alternative_goes_on_after_the_main_line_ended_then_it_is_played() -> None:
    def outcome(step, actions, chance) -> StepOutcome:
        rewards = {player: float(said(actions.get(player)) == "yes") for player in ("ada", "bo")}
        return StepOutcome(rewards=rewards, terminated=step == 4 or rewards["ada"] > 0)

    game = Counting(length=5, outcome=outcome)
    say = lambda key: "no" if key.branch else "yes"  # noqa: E731
    (tree,) = play_branches(game, lambda s: Tokens(s, say=say), branching=BranchPlan(players=("ada",)))
    assert len(main_line(tree)) == 1
    (line,) = branch_steps(tree).values()
    assert [step.index for step in line] == [0, 1, 2, 3, 4] and line[-1].status == "terminated"


def test_trees_when_written_and_read_then_branches_and_marks_come_back(tmp_path: Path) -> None:
    trees = play_branches(THREE_PLAYERS, group_size=2, branching=THREE)
    write_rollouts(tmp_path, 0, trees)
    again = list(read_rollouts(tmp_path))
    assert again == trees and [forks(tree) for tree in again] == [forks(tree) for tree in trees]


def test_links_when_steps_are_shuffled_or_broken_then_the_same_or_refused() -> None:
    """Law 5, B17, G53."""
    (tree,) = play_branches(TWO_ROUNDS, branching=THREE)
    mixed = replace(tree, steps=tuple(random.Random(3).sample(tree.steps, len(tree.steps))))
    assert forks(mixed) == forks(tree) and branch_steps(mixed) == branch_steps(tree)
    for one, other in zip(branch_trajectories(mixed), branch_trajectories(tree), strict=True):
        assert (one.branch, one.player, one.turns) == (other.branch, other.player, other.turns)
        assert one.rewards.tolist() == other.rewards.tolist()
    last = max(tree.steps, key=lambda step: step.id)
    torn = replace(tree, steps=(*tree.steps, replace(last, id=last.id + 1, parent=0)))
    with pytest.raises(ValueError, match="is not one path"):
        branch_steps(torn)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"every": 0}, "branching.every is 0"),
        ({"num_alternatives": 0}, "branching.num_alternatives is 0"),
        ({"horizon": 0}, "branching.horizon is 0"),
        ({"share": 0.0}, "branching.share is 0.0"),
        ({"share": 1.5}, "branching.share is 1.5"),
        ({"max_branches": -1}, "branching.max_branches is -1"),
    ],
)
def test_plan_when_a_number_is_out_of_range_then_one_sentence(changes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BranchPlan(**changes)


def test_plan_when_a_player_is_misnamed_then_the_nearest_is_named() -> None:
    with pytest.raises(ValueError, match=r"player 'Adda'.*'Ada'"):
        play_branches(TWO_ROUNDS, branching=BranchPlan(players=("Adda",)))


def test_agent_when_it_cannot_fork_then_its_episode_fails_with_the_reason() -> None:
    class OnlyOne(Scripted):
        def fork(self) -> Agent:
            raise RuntimeError("there is one of me")

    (tree,) = play_branches(Counting(), OnlyOne, branching=BranchPlan(), max_failed_share=1.0)
    assert tree.failure is not None and tree.failure.player == "ada" and "one of me" in tree.failure.reason
    assert build_trajectories(tree) == branch_trajectories(tree) == ()


def test_progress_when_branches_are_played_then_told_apart() -> None:
    heard = []
    play_branches(Counting(length=2), Tokens, branching=BranchPlan(), group_size=2, on_wave=heard.append)
    told = [(p.num_episodes, p.num_done, p.num_branches, p.num_branches_done, p.num_turns) for p in heard]
    assert told == [(2, 0, 0, 0, 4), (2, 2, 0, 0, 8), (2, 2, 8, 4, 16), (2, 2, 8, 8, 24)]

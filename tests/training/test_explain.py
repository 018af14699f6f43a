"""The parts of a turn's credit: they add up to what was trained with, and each is what its name says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from question_fakes import ALIGNED, CRITIC, GRID, LUCK, RUNS, SCRIPTED, finished

from coplay.training.differences import compare_credits
from coplay.training.explain import TurnName, explain_turn, find_episode, parse_turn
from coplay.training.explanation import AlignmentWeight, Explanation
from coplay.training.messages import ConfigError
from coplay.training.recredit import Recredited, StoredIteration, load_iteration, recredit


def asked(folder: Path, number: int = 2) -> tuple[StoredIteration, Recredited]:
    """A stored iteration and its credit."""
    stored = load_iteration(folder, number)
    return stored, recredit(stored, stored.config)


def all_turns(stored: StoredIteration, result: Recredited) -> list[Explanation]:
    """Every turn of an iteration, explained."""
    return [
        explain_turn(
            stored, result, tree.episode, TurnName(step=step.id, player=turn.player, attempt=turn.attempt)
        )
        for tree in stored.trees
        if tree.failure is None
        for step in tree.steps
        for turn in step.turns
        if not turn.trains_once_for and (not step.branch or result.raw.turns is not None)
    ]


def check_expected(alignment: AlignmentWeight, *, named: bool) -> None:
    """The replies of each past tick make the advantage that the weight has there, with texts."""
    assert len(alignment.expected) == (len(alignment.past) if named else 0)
    for one, term in zip(alignment.expected, alignment.past, strict=False):
        assert one.tick == term.tick
        if one.kind == "expected":
            assert one.amount == pytest.approx(term.amount, abs=1e-6)
            assert all(mate.reply and mate.step is not None for mate in one.replies)
        elif one.kind == "zero":
            assert term.amount == 0


@pytest.mark.parametrize("name", [*RUNS, *GRID])
def test_parts_when_added_up_then_the_stored_credit(name: str, tmp_path: Path) -> None:
    """Done-when 6; for the grid the same run also shows that credit comes back bit for bit."""
    folder = finished(tmp_path, (RUNS | GRID)[name])
    for number in (0, 2) if name in RUNS else (1,):
        stored, result = asked(folder, number)
        assert name in RUNS or all(one.identical for one in compare_credits(stored, result))
        told = 0
        for one in all_turns(stored, result):
            for token in one.tokens:
                assert one.credit == pytest.approx(token.credit, rel=1e-5, abs=1e-6)
                assert token.importance_weight == pytest.approx(1.0, abs=1e-3)
                told += 1
            assert bool(one.tokens) == one.trained
            shown = any(part.what.startswith("KL at tick") for part in one.parts)
            assert shown == ("lowered" in name)
            row = result.table.keys.index((one.episode, one.branch, one.player))
            if result.raw.turns is None:
                assert one.returns == pytest.approx(float(result.raw.returns[row, one.tick]), abs=1e-9)
                assert one.advantage == pytest.approx(float(result.raw.advantages[row, one.tick]), abs=1e-9)
            if one.alignment:
                past = sum(term.product for term in one.alignment.past)
                assert past == pytest.approx(one.alignment.steps[0][1], abs=1e-9)
                check_expected(one.alignment, named="expected" in name)
        assert told == sum(np.size(row.token) for row in stored.credits.values())


def test_aligned_turn_when_worked_out_by_hand_then_so(tmp_path: Path) -> None:
    """From raw rewards in the stored trees alone: returns, the others' mean, past, opponent, sum."""
    shaping = ALIGNED | {"beta": 0.5}
    stored, result = asked(finished(tmp_path, LUCK | {"shaping": shaping}))
    games = {
        tree.episode: {p: [step.rewards[p] for step in tree.steps] for p in tree.players}
        for tree in stored.trees
    }
    luck = {tree.episode: tree.group for tree in stored.trees}
    scale, gamma = result.config.estimator.reward_scale, result.config.estimator.discount

    def value(episode: str, player: str, tick: int) -> float:
        rewards = games[episode][player]
        return sum(gamma ** (k - tick) * rewards[k] / scale for k in range(tick, len(rewards)))

    def advantage(episode: str, player: str, tick: int) -> float:
        others = [e for e in games if luck[e] == luck[episode] and e != episode]
        return value(episode, player, tick) - sum(value(e, player, tick) for e in others) / len(others)

    episode = stored.trees[1].episode
    one = explain_turn(stored, result, episode, TurnName(step=2, player="Bo"))
    past = [gamma ** (2 - k) * gamma * advantage(episode, "Bo", k) for k in range(2)]
    expected = advantage(episode, "Bo", 2) + 0.5 * sum(past) * advantage(episode, "Ada", 2)
    assert one.credit == pytest.approx(expected)
    assert one.stored == pytest.approx(expected, rel=1e-6)
    assert one.baseline.kind == "leave_one_out"
    assert [sibling.episode for sibling in one.baseline.siblings] == [stored.trees[0].episode]
    assert one.baseline.siblings[0].returns == pytest.approx(value(stored.trees[0].episode, "Bo", 2))
    assert one.alignment is not None
    assert [term.product for term in one.alignment.past] == pytest.approx(past)
    assert [(term.player, term.weight) for term in one.others] == [("Ada", pytest.approx(0.5 * sum(past)))]


def test_reply_at_a_fork_when_worked_out_by_hand_then_so(tmp_path: Path) -> None:
    """Backwards through the stored tree: the mean over each fork takes the place of what was played on."""
    branching = {"players": ["Bo"], "num_alternatives": 2}
    stored, result = asked(finished(tmp_path, RUNS["branches"] | {"collect.branching": branching}))
    tree, gamma = stored.trees[1], 0.9
    lines: dict[str, list[float]] = {}
    for step in tree.steps:
        lines.setdefault(step.branch, []).append(step.rewards["Bo"] / 5)
    gains = {name: sum(gamma**k * r for k, r in enumerate(line)) for name, line in lines.items()}
    taken, later = [0.0] * 3, 0.0
    for tick in (2, 1, 0):
        taken[tick] = lines[""][tick] + gamma * later
        later = (taken[tick] + sum(gains[f"s{tick}.Bo.{number}"] for number in (1, 2))) / 3
    one = explain_turn(stored, result, tree.episode, TurnName(step=1, player="Bo"))
    assert one.returns == pytest.approx(taken[1])
    assert [(line.branch, line.tick) for line in one.lines] == [("s2.Bo.1", 2), ("s2.Bo.2", 2)]
    siblings = {mate.branch: mate.returns for mate in one.baseline.siblings}
    assert siblings == pytest.approx({f"s1.Bo.{number}": gains[f"s1.Bo.{number}"] for number in (1, 2)})
    assert one.stored == pytest.approx(taken[1] - sum(siblings.values()) / 2, rel=1e-5)
    assert one.share == pytest.approx(
        1 / 9
    )  # one line of three after the first fork, one reply of three here
    first = next(step for step in tree.steps if step.branch == "s1.Bo.1")
    other = explain_turn(stored, result, tree.episode, TurnName(step=first.id, player="Bo"))
    assert {mate.branch for mate in other.baseline.siblings} == {"", "s1.Bo.2"}
    assert other.baseline.amount == pytest.approx((taken[1] + siblings["s1.Bo.2"]) / 2)
    with pytest.raises(
        ConfigError, match=r"is held from step 1 of the line that forks there, .* expected '1.Ada'"
    ):
        explain_turn(stored, result, tree.episode, TurnName(step=first.id, player="Ada"))


def test_expected_past_when_worked_out_by_hand_then_so(tmp_path: Path) -> None:
    """From raw rewards of the stored branches: the mean of Ada's two fresh replies at tick 0, less her baseline."""
    stored, result = asked(finished(tmp_path, RUNS["expected past"]))
    tree = stored.trees[1]
    one = explain_turn(stored, result, tree.episode, TurnName(step=1, player="Ada"))
    assert one.alignment is not None
    (past,) = one.alignment.expected
    lines = {
        f"s0.Ada.{number}": [s for s in tree.steps if s.branch == f"s0.Ada.{number}"] for number in (1, 2)
    }
    gains = {
        name: sum(0.9**k * step.rewards["Ada"] / 5 for k, step in enumerate(line))
        for name, line in lines.items()
    }
    assert {mate.branch: mate.returns for mate in past.replies} == pytest.approx(gains)
    said = {name: next(t.reply for t in line[0].turns if t.player == "Ada") for name, line in lines.items()}
    assert {mate.branch: mate.reply for mate in past.replies} == said
    others = [
        sum(0.9**k * step.rewards["Ada"] / 5 for k, step in enumerate(s for s in game.steps if not s.branch))
        for game in stored.trees
        if game.episode != tree.episode
    ]
    assert past.baseline is not None and past.baseline.amount == pytest.approx(sum(others) / len(others))
    expected = sum(gains.values()) / 2 - sum(others) / len(others)
    assert past.amount == pytest.approx(expected)
    (ada,) = one.others
    assert one.stored == pytest.approx(
        one.advantage + one.alignment.beta * 0.9 * 0.9 * expected * ada.amount, rel=1e-5
    )


def test_siblings_when_named_then_with_what_they_said(tmp_path: Path) -> None:
    stored, result = asked(
        finished(tmp_path, RUNS["branches"] | {"collect.branching": {"num_alternatives": 2}})
    )
    tree = stored.trees[0]
    one = explain_turn(stored, result, tree.episode, TurnName(step=1, player="Ada"))
    by_id = {step.id: step for step in tree.steps}
    for mate in one.baseline.siblings:
        assert mate.step is not None
        assert mate.reply == next(t.reply for t in by_id[mate.step].turns if t.player == "Ada")
    assert {line.branch for line in one.lines} >= {"s1.Bo.1", "s2.Ada.1"}
    for line in one.lines:
        assert by_id[line.step].branch == line.branch
        assert line.reply == next(t.reply for t in by_id[line.step].turns if not t.trains_once_for)
    plain = explain_turn(*asked(finished(tmp_path / "b", {})), tree.episode, TurnName(step=2, player="Bo"))
    assert all(mate.reply in ("A", "B") and mate.step is None for mate in plain.baseline.siblings)


def test_branches_when_they_are_kept_and_not_trained_on_then_said(tmp_path: Path) -> None:
    stored, result = asked(finished(tmp_path, {"collect.branching": {"num_alternatives": 1}}))
    branch = next(step for step in stored.trees[0].steps if step.branch)
    with pytest.raises(ConfigError, match=r"is of branch 's0.Ada.1', which nobody was trained on"):
        explain_turn(stored, result, stored.trees[0].episode, TurnName(step=branch.id, player="Ada"))


def test_critic_turn_when_explained_then_each_surprise_is_that_of_its_tick(tmp_path: Path) -> None:
    stored, result = asked(finished(tmp_path, {"estimator": CRITIC}))
    one = explain_turn(stored, result, stored.trees[0].episode, TurnName(step=1, player="Ada"))
    rewards = [step.rewards["Ada"] / 5 for step in stored.trees[0].steps]
    row = next(place for place, key in enumerate(result.table.keys) if key == (one.episode, "", "Ada"))
    assert result.values is not None
    read = [*result.values.values[row].tolist(), 0.0]
    assert [error.delta for error in one.errors] == pytest.approx(
        [rewards[k] + 0.9 * read[k + 1] - read[k] for k in (1, 2)]
    )
    decay = 0.9 * result.raw.metrics["critic/gae_lambda"]
    assert [error.weight for error in one.errors] == pytest.approx([1.0, decay])
    assert one.baseline.kind == "critic"
    assert one.baseline.amount == pytest.approx(read[1])


def test_baseline_when_a_game_is_alone_then_the_running_mean_and_how_many_it_saw(tmp_path: Path) -> None:
    stored, result = asked(finished(tmp_path, RUNS["groups of one"]))
    one = explain_turn(stored, result, stored.trees[0].episode, TurnName(step=0, player="Ada"))
    assert (one.baseline.kind, one.baseline.seen) == ("running_mean", 6.0)  # three games in each of two
    assert one.baseline.siblings == ()


def test_scripted_player_when_explained_then_his_advantage_and_no_credit(tmp_path: Path) -> None:
    stored, result = asked(finished(tmp_path, SCRIPTED | {"estimator": CRITIC, "shaping": ALIGNED}))
    ada, bo = (
        explain_turn(stored, result, stored.trees[0].episode, TurnName(step=1, player=player))
        for player in ("Ada", "Bo")
    )
    assert (bo.trained, bo.stored, bo.errors) == (False, None, ())
    assert bo.credit == pytest.approx(bo.advantage)
    assert [term.amount for term in ada.others] == pytest.approx([bo.credit])


def test_malformed_attempt_when_explained_then_its_penalty_is_a_part(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "agents.sampling": {"max_new_tokens": 2, "constrained": False},
        "game": {
            "kind": "iterated_matrix",
            "wording": "terse",
            "num_rounds": 2,
            "retries": 1,
            "penalty": 1.5,
        },
    }
    stored, result = asked(finished(tmp_path, changes), 0)
    fined = [one for one in all_turns(stored, result) if one.penalty]
    assert {one.attempt for one in fined} == {0, 1}
    for one in fined:
        assert one.penalty == pytest.approx(1.5 / 5)
        assert [part.amount for part in one.parts if "penalty" in part.what] == [-one.penalty]
        assert one.credit == pytest.approx(one.stored, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "players", "expected"),
    [
        ("2.Ada", ["Ada", "Bo"], TurnName(step=2, player="Ada")),
        ("12.Ada.1", ["Ada", "Bo"], TurnName(step=12, player="Ada", attempt=1)),
        ("0.a.b", ["a.b", "a"], TurnName(step=0, player="a.b")),
        ("0.a.1", ["a.1", "a"], TurnName(step=0, player="a.1")),
        ("0.a.1.1", ["a.1", "a"], TurnName(step=0, player="a.1", attempt=1)),
    ],
)
def test_turn_when_named_then_found(text: str, players: list[str], expected: TurnName) -> None:
    assert parse_turn(text, players) == expected


@pytest.mark.parametrize("text", ["", "2", "Ada", "x.Ada", "2.Adda", "2.Ada.x", "2.Ada.", "-1.Ada", "2..1"])
def test_turn_when_it_is_none_then_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected STEP.PLAYER\[.ATTEMPT\]"):
        parse_turn(text, ["Ada", "Bo"])


def test_episode_when_named_then_its_full_name() -> None:
    assert find_episode("3/12") == find_episode("000003/00012") == (3, "000003/00012")
    for text in ("3", "3/", "/3", "a/b", "-1/2"):
        with pytest.raises(ConfigError, match="expected ITERATION/NUMBER"):
            find_episode(text)


def test_turn_when_there_is_none_then_refused(tmp_path: Path) -> None:
    stored, result = asked(finished(tmp_path, {}), 0)
    for name, told in (
        (TurnName(step=9, player="Ada"), "has no step 9; expected 0 to 2"),
        (TurnName(step=0, player="Ada", attempt=1), "has no attempt 1 at step 0"),
        (TurnName(step=0, player="Cy"), "'Cy' has no turn at step 0"),
    ):
        with pytest.raises(ConfigError, match=told):
            explain_turn(stored, result, "000000/00000", name)
    with pytest.raises(ConfigError, match="iteration 0 has no episode '000000/00009'"):
        explain_turn(stored, result, "000000/00009", TurnName(step=0, player="Ada"))

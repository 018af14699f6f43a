"""Playing: waves, failures, retries, cut-offs, time limits. Foreign code may do anything; the others go on."""

import asyncio
import gc
import random
import time
from dataclasses import replace

import pytest
from rollout_fakes import (
    Counting,
    Scripted,
    Sleeper,
    Tokens,
    plan_for,
    play,
    play_one,
)

from coplay.agents.base import Reply, Seat, Segment
from coplay.games import Chance, Choice, Malformed, MalformedRule, Move, Observation, StepOutcome, make_game
from coplay.rollout_tree import (
    Progress,
    TooManyFailedEpisodes,
    collect,
    collect_sync,
    counts,
    plan_episodes,
    render_text,
)


class WaveEngine:
    """Answers all requests that wait together, as a batching engine does; remembers each batch."""

    def __init__(self) -> None:
        self.batches: list[list[tuple]] = []
        self._waiting: list[tuple[tuple, asyncio.Future]] = []

    async def ask(self, key: tuple) -> str:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._flush)
        future = loop.create_future()
        self._waiting.append((key, future))
        return await future

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.batches.append([key for key, _ in waiting])
        for _, future in waiting:
            future.set_result("yes")


def batched(engine: WaveEngine):
    """Makes agents that ask the engine."""

    class Batched(Scripted):
        async def reply(self, observation: Observation, key) -> Reply:
            return Reply(
                text=await engine.ask((key.step, key.episode, key.player, key.attempt)), policy=self.policy
            )

    return Batched


def test_wave_when_an_engine_batches_then_it_sees_each_wave_at_once_in_order() -> None:
    """Law 8: the batch is a function of ids, sorted by episode, then the game's players."""
    engine, game = WaveEngine(), Counting(length=3, players=("zoe", "ada"))
    plan = plan_for(game, dict.fromkeys(game.players, batched(engine)), num_groups=2, group_size=2)
    collect_sync(replace(plan, episodes=plan.episodes[::-1]))
    expected = [
        [(step, f"000000/{n:05d}", player, 0) for n in range(4) for player in ("zoe", "ada")]
        for step in range(3)
    ]
    assert engine.batches == expected


def test_wave_when_episodes_run_apart_then_each_goes_at_its_own_pace() -> None:
    engine = WaveEngine()
    game = Counting(length=2, malformed_rule=MalformedRule(retries=1, consequence="counts as no"))
    good = batched(engine)

    class Clumsy(good):
        async def reply(self, observation, key):
            answer = await super().reply(observation, key)
            wrong = key.episode.endswith("0") and key.player == "ada" and key.attempt == 0
            return replace(answer, text="maybe") if wrong else answer

    trees = play(game, Clumsy, num_groups=1, group_size=2)
    clumsy, other = "000000/00000", "000000/00001"
    assert engine.batches[1] == [(0, clumsy, "ada", 1), (1, other, "ada", 0), (1, other, "bo", 0)]
    assert engine.batches[2:] == [[(1, clumsy, "ada", 0), (1, clumsy, "bo", 0)], [(1, clumsy, "ada", 1)]]
    assert [tree.status for tree in trees] == ["terminated", "terminated"]


def test_plan_when_shuffled_then_the_same_trees_come_in_the_same_order() -> None:
    """Law 5."""
    plan = plan_for(Counting(), dict.fromkeys(("ada", "bo"), Tokens), num_groups=3, group_size=2)
    mixed = list(plan.episodes)
    random.Random(3).shuffle(mixed)
    assert collect_sync(plan) == collect_sync(replace(plan, episodes=tuple(mixed)))


def test_luck_when_in_one_group_then_shared_and_otherwise_not() -> None:
    """Law 7, B48: draws are functions of the group's seed and the step."""
    trees = play(Counting(length=4), num_groups=2, group_size=2)
    luck = [[step.info["luck"] for step in tree.steps] for tree in trees]
    assert luck[0] == luck[1] != luck[2] == luck[3]
    assert len(set(luck[0])) > 1
    expected = [Chance(trees[0].group_seed, k).integer("luck", 1000) for k in (1, 2, 3, 4)]
    assert luck[0] == expected


def test_plan_episodes_when_the_game_has_no_chance_then_one_group() -> None:
    """Rule 1."""
    seats = dict.fromkeys(("ada", "bo"), Tokens)
    names = dict.fromkeys(seats, "tiny@0")
    options = {
        "run_seed": 1,
        "iteration": 2,
        "num_groups": 2,
        "group_size": 2,
        "seats": seats,
        "seat_names": names,
    }
    still = plan_episodes(Counting(has_chance=False), **options)
    lucky = plan_episodes(Counting(), **options)
    assert [plan.group for plan in still] == ["000002/g0000"] * 4
    assert [plan.group for plan in lucky] == ["000002/g0000"] * 2 + ["000002/g0001"] * 2
    assert [plan.episode for plan in lucky] == [f"000002/{n:05d}" for n in range(4)]
    later = plan_episodes(Counting(), **options | {"num_groups": 1, "first_group": 1})
    assert later == lucky[2:]


def test_plan_when_a_seat_is_misnamed_then_one_sentence_with_the_nearest_name() -> None:
    plan = plan_for(Counting(), dict.fromkeys(("ada", "bo"), Tokens))
    wrong = replace(plan.episodes[0], seats={"adda": Tokens, "bo": Tokens})
    with pytest.raises(ValueError, match="did you mean 'ada'"):
        replace(plan, episodes=(wrong,))
    with pytest.raises(ValueError, match="more than once"):
        replace(plan, episodes=plan.episodes * 2)


def test_retry_when_malformed_then_a_further_visible_turn_with_its_penalty() -> None:
    """Rule 9, B54: no hidden resampling; the very first reply is flagged like any other."""
    rule = MalformedRule(retries=1, penalty=0.25, consequence="counts as no")
    game = Counting(length=2, malformed_rule=rule)
    tree = play_one(
        game, {"ada": lambda s: Scripted(s, lambda o, k: "yes" if k.attempt else "hm"), "bo": Scripted}
    )
    for step in tree.steps:
        assert [(t.player, t.attempt, t.malformed, t.penalty) for t in step.turns] == [
            ("ada", 0, True, 0.25),
            ("ada", 1, False, 0.0),
            ("bo", 0, False, 0.0),
        ]
        first, again = (turn.observation for turn in step.turns[:2])
        assert again.grammar == first.grammar and "yes or no" in again.text and again.system == first.system
        assert again.facts == first.facts | {"malformed": "no_move"} and not again.fresh_context
        assert step.rewards == {"ada": 1.0, "bo": 1.0}


def test_retry_when_used_up_then_the_game_applies_its_rule() -> None:
    """Rule 9: rewards are untouched by penalties."""
    seen = []

    def outcome(step, actions, chance):
        seen.append(actions["ada"])
        return StepOutcome(rewards={"ada": 0.5, "bo": 0.0}, terminated=True)

    rule = MalformedRule(retries=2, penalty=1.0, consequence="counts as no")
    game = Counting(length=1, outcome=outcome, malformed_rule=rule)
    tree = play_one(game, {"ada": lambda s: Scripted(s, "perhaps"), "bo": Scripted})
    assert seen == [Malformed(reason="no_move", text="perhaps")]
    assert [turn.penalty for turn in tree.steps[0].turns] == [1.0, 1.0, 1.0, 0.0]
    assert tree.steps[0].rewards == {"ada": 0.5, "bo": 0.0}


def test_reply_when_cut_off_then_malformed_whatever_its_text() -> None:
    """B36, rule 9."""
    tree = play_one(
        Counting(length=1), {"ada": lambda s: Scripted(s, "yes", finish="length"), "bo": Scripted}
    )
    assert tree.steps[0].turns[0].action == Malformed(reason="cut_off", text="yes")


@pytest.mark.parametrize("text", ["", "  \n", "<think>yes</think>", "<think>yes"])
def test_reply_when_empty_or_only_reasoning_then_malformed_as_empty(text: str) -> None:
    """B34, rule 14: reasoning is no move and reaches no game."""
    tree = play_one(Counting(length=1), {"ada": lambda s: Scripted(s, text), "bo": Scripted})
    action = tree.steps[0].turns[0].action
    assert isinstance(action, Malformed) and action.reason == "empty" and "yes" not in action.text
    assert tree.steps[0].turns[0].reply == text


def test_reply_when_it_reasons_first_then_the_move_counts_and_the_thought_stays_private() -> None:
    """Rule 14."""
    text = "<think>no, or rather...</think>yes"
    tree = play_one(Counting(length=1), {"ada": lambda s: Scripted(s, text), "bo": Scripted})
    assert tree.steps[0].turns[0].action == Move(value="yes", text="yes")


def test_reply_when_cut_off_while_reasoning_then_the_game_never_sees_the_thought() -> None:
    """Rule 14: a game may show what a malformed reply said."""
    shown = []

    def outcome(step, actions, chance):
        shown.append(actions["ada"].text)
        return StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, terminated=True)

    say = "well <think>he will give in"
    game = Counting(length=1, outcome=outcome)
    play_one(game, {"ada": lambda s: Scripted(s, say, finish="length"), "bo": Scripted})
    assert shown == ["well "]


def boom(observation, key) -> str:
    if key.step == 1 and key.episode.endswith("1"):
        raise RuntimeError("wires crossed")
    return "yes"


def test_agent_when_it_raises_then_that_episode_fails_and_the_others_go_on() -> None:
    """B37, rule 12: what was played stays; the failure is no reward of 0."""
    trees = play(
        Counting(),
        {"ada": lambda s: Scripted(s, boom), "bo": Scripted},
        group_size=3,
        max_failed_share=0.5,
    )
    assert [tree.status for tree in trees] == ["terminated", "failed", "terminated"]
    failure = trees[1].failure
    assert failure and (failure.player, failure.step) == ("ada", 1)
    assert failure.reason == "RuntimeError: wires crossed"
    assert len(trees[1].steps) == 1 and trees[1].steps[0].status == "running"


def test_failures_when_too_many_then_the_first_cause_is_raised_and_named() -> None:
    """B38."""
    plan = plan_for(Counting(), {"ada": lambda s: Scripted(s, boom), "bo": Scripted}, group_size=3)
    with pytest.raises(TooManyFailedEpisodes) as caught:
        collect_sync(plan)
    text = str(caught.value)
    assert "'counting'" in text and "'scripted'" in text and "'ada'" in text and "step 1" in text
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert [tree.status for tree in caught.value.trees] == ["running", "failed", "running"]


def test_failure_when_in_any_foreign_call_then_recorded_with_its_owner() -> None:
    """B38: observe, step, to_move and the agent's making are foreign too."""

    def raising(*_):
        raise KeyError("lost")

    def build(**hooks):
        return play_one(Counting(**hooks), Scripted, max_failed_share=1.0).failure

    assert build(observed=raising).player == build(outcome=raising).player == ""
    assert build(movers=raising).reason == "KeyError: 'lost'"
    game = Counting()
    plan = plan_for(game, dict.fromkeys(game.players, Scripted), max_failed_share=1.0)
    broken = replace(plan.episodes[0], seats={"ada": Scripted, "bo": raising})
    (tree,) = collect_sync(replace(plan, episodes=(broken,)))
    assert tree.failure and tree.failure.player == "bo" and tree.steps == ()


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (StepOutcome(rewards={"ada": 1.0}), "exactly the players"),
        (StepOutcome(rewards={"ada": 1.0, "bo": 0.0, "cy": 0.0}), "exactly the players"),
        (StepOutcome(rewards={"ada": float("nan"), "bo": 0.0}), "finite"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, terminated=True, truncated=True), "one of them"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, info={"x": {1: 2}}), "expected text"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, info={"x": float("inf")}), "finite"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, info={"x": {1, 2}}), "type set"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, info=["x"]), "expected a mapping"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, info=None), "expected a mapping"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, round_ended=5), "expected True or False"),
        (StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, terminated="no"), "expected True or False"),
    ],
)
def test_outcome_when_it_breaks_the_contract_then_the_game_fails(outcome: StepOutcome, words: str) -> None:
    """B37, B42, law 9: never a reward of 0 in its place."""
    tree = play_one(Counting(outcome=lambda *_: outcome), Scripted, max_failed_share=1.0)
    assert tree.failure and tree.failure.player == "" and words in tree.failure.reason
    assert tree.steps == ()


@pytest.mark.parametrize(
    "broken",
    [
        {"text": None},
        {"text": 5},
        {"system": None},
        {"grammar": None},
        {"grammar": "yes|no"},
        {"facts": ["x"]},
        {"fresh_context": "no"},
    ],
)
def test_observation_when_of_wrong_types_then_the_game_fails_and_not_the_agent(broken) -> None:
    """B37: found before an agent reads it or a file should hold it, and put down to the game."""
    whole = {"text": "now", "grammar": Choice(("yes", "no")), "system": "rules"}
    game = Counting(observed=lambda *_: Observation(**{**whole, **broken}))
    tree = play_one(game, Scripted, max_failed_share=1.0)
    assert tree.failure and tree.failure.player == "" and "expected text" in tree.failure.reason


def test_horizon_when_passed_then_the_game_fails_and_the_rule_is_named() -> None:
    tree = play_one(Counting(length=5, max_steps=3), Scripted, max_failed_share=1.0)
    assert tree.failure and "max_steps is 3" in tree.failure.reason and len(tree.steps) == 3


class Faulty(Scripted):
    """Answers with what `answer` makes."""

    answer = staticmethod(lambda: None)

    async def reply(self, observation, key):
        return self.answer()


def test_reply_when_the_agent_cancels_it_then_that_episode_fails_and_the_others_go_on() -> None:
    """B38: a client that gives up by cancelling is a failed agent, no stop of the run."""

    class Cancelling(Scripted):
        async def reply(self, observation, key):
            if key.episode.endswith("1"):
                raise asyncio.CancelledError
            return await super().reply(observation, key)

    trees = play(Counting(), {"ada": Cancelling, "bo": Scripted}, group_size=3, max_failed_share=0.5)
    assert [tree.status for tree in trees] == ["terminated", "failed", "terminated"]
    assert trees[1].failure and trees[1].failure.player == "ada"
    assert "cancelled its own reply" in trees[1].failure.reason


def test_errors_when_several_in_one_wave_then_none_is_printed_behind_the_back(caplog) -> None:
    """A person who leaves, or two agents that raise at once, leave no traceback of asyncio."""

    def quits(*_) -> str:
        raise KeyboardInterrupt("left")

    def raises(*_) -> str:
        raise RuntimeError("no")

    for say, error in ((quits, KeyboardInterrupt), (raises, TooManyFailedEpisodes)):
        with pytest.raises(error):
            play(Counting(), lambda seat, say=say: Scripted(seat, say), group_size=2)
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: None, "expected a Reply"),
        (lambda: Reply(text="yes", policy="other@3"), "expected 'scripted'"),
        (
            lambda: Reply(text="yes", policy="scripted", segments=(Segment((1, 2), True, (-1.0,)),)),
            "1 log-probs",
        ),
        (lambda: Reply(text="yes", policy="scripted", segments=(Segment((1,), False, (-1.0,)),)), "given"),
        (
            lambda: Reply(text="yes", policy="scripted", segments=(Segment((1,), True, (float("nan"),)),)),
            "finite",
        ),
        (
            lambda: Reply(text="yes", policy="scripted", segments=(Segment((1,), True, (float("-inf"),)),)),
            "finite",
        ),
        *[
            (lambda ids=ids: Reply(text="yes", policy="scripted", segments=(Segment(ids),)), "whole numbers")
            for ids in ((1.5,), ("a",), (True,), (-1,), (2**31,))
        ],
        (lambda: Reply(text="yes", policy="scripted", segments=(Segment((1,), True, (True,)),)), "finite"),
        *[
            (
                lambda wrong=wrong: Reply(**{"text": "yes", "policy": "scripted", **wrong}),
                "expected text and tokenizer",
            )
            for wrong in (
                {"text": None},
                {"text": b"yes"},
                {"finish": "tired"},
                {"tokenizer": None},
                {"fresh_context": "no"},
                {"sampling": {"temperature": 1.0}},
            )
        ],
    ],
)
def test_reply_when_unsound_then_the_episode_is_rejected_with_the_reason(answer, words: str) -> None:
    """B09, B69, B75: a missing or NaN log-prob is never replaced; a reply of another policy is discarded."""

    class Answering(Faulty):
        pass

    Answering.answer = staticmethod(answer)
    tree = play_one(Counting(), {"ada": Answering, "bo": Scripted}, max_failed_share=1.0)
    assert tree.failure and tree.failure.player == "ada" and words in tree.failure.reason


def test_time_limit_when_an_agent_sleeps_then_only_its_episode_times_out() -> None:
    """B39: the whole collect ends soon after the limit, the others finish."""

    def maker(seat: Seat):
        return Sleeper(seat, at=1, seconds=60 if seat.episode.endswith("0") else 0.0)

    start = time.monotonic()
    trees = play(
        Counting(), {"ada": maker, "bo": Scripted}, group_size=3, time_limit=0.3, max_failed_share=0.5
    )
    assert time.monotonic() - start < 5
    assert [tree.status for tree in trees] == ["failed", "terminated", "terminated"]
    failure = trees[0].failure
    assert failure and failure.player == "ada" and failure.step == 1 and "timed out" in failure.reason
    assert counts(trees)["count/timed_out"] == 1


def test_time_limit_when_replies_trickle_then_all_turns_together_count() -> None:
    """B39: the limit does not start anew at each turn, and waiting for others is free."""
    slow = {"ada": lambda s: Scripted(s) if s.episode.endswith("1") else Slow(s), "bo": Scripted}
    trees = play(Counting(length=12), slow, group_size=2, time_limit=0.25, max_failed_share=0.5)
    assert [tree.status for tree in trees] == ["failed", "terminated"]
    assert 1 <= len(trees[0].steps) < 12


class Slow(Scripted):
    """Takes a moment for each reply."""

    async def reply(self, observation, key):
        await asyncio.sleep(0.05)
        return await super().reply(observation, key)


def test_late_reply_when_an_agent_ignores_its_cancelling_then_it_is_not_taken() -> None:
    """B88."""

    class Stubborn(Scripted):
        async def reply(self, observation, key):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.2)
            return Reply(text="yes", policy=self.policy)

    tree = play_one(Counting(), {"ada": Stubborn, "bo": Scripted}, time_limit=0.1, max_failed_share=1.0)
    assert tree.status == "failed" and tree.steps == ()


def test_cancelling_when_a_collect_waits_then_its_agents_are_cancelled_too() -> None:
    """B38: sibling tasks do not outlive the caller."""
    ended = []

    class Waiting(Scripted):
        async def reply(self, observation, key):
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(key.player)

    async def run() -> None:
        task = asyncio.create_task(collect(plan_for(Counting(), dict.fromkeys(("ada", "bo"), Waiting))))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    asyncio.run(run())
    assert sorted(ended) == ["ada", "bo"]


def test_interrupt_when_a_person_stops_the_run_then_it_passes() -> None:
    def stop(observation, key) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(Counting(), lambda s: Scripted(s, stop), max_failed_share=1.0)


def test_truncation_when_the_game_is_cut_then_each_token_player_reads_on_once() -> None:
    """B15: the state after the last step is there for a value; nobody answers it."""

    def outcome(step, actions, chance):
        return StepOutcome(rewards={"ada": 1.0, "bo": 0.0}, truncated=step == 1)

    tree = play_one(Counting(outcome=outcome), {"ada": Tokens, "bo": Scripted})
    last = tree.steps[-1]
    assert tree.status == last.status == "truncated" and len(tree.steps) == 2
    assert [(t.player, t.finish, t.reply, t.segments) for t in last.closing] == [
        ("ada", "none", "", (Segment((1, 7)),))
    ]
    assert last.closing[0].observation.text == "step 2" and not last.closing[0].malformed


def test_truncation_when_a_player_out_of_turn_sees_nothing_then_he_has_no_closing_turn() -> None:
    def observed(state, player):
        if state.step == 2 and player == "bo":
            raise LookupError("not your turn")
        return Observation(text="?", grammar=Counting().observe(state, player).grammar)

    def outcome(step, actions, chance):
        return StepOutcome(rewards={"ada": 0.0, "bo": 0.0}, truncated=step == 1)

    only_ada = Counting(
        observed=observed, outcome=outcome, movers=lambda s: ("ada",) if s.step == 2 else ("ada", "bo")
    )
    tree = play_one(only_ada)
    assert [turn.player for turn in tree.steps[-1].closing] == ["ada"]
    both = Counting(observed=observed, outcome=outcome)
    assert play_one(both, max_failed_share=1.0).status == "failed"


def test_overflow_when_a_context_is_full_then_the_last_complete_step_is_truncated() -> None:
    """Rule 13: counted; the unplayed step's observation is where the others' values are read."""
    agents = {"ada": lambda s: Tokens(s, overflow_at=2), "bo": Tokens}
    trees = play(Counting(length=9), agents, group_size=2)
    for tree in trees:
        assert tree.status == "truncated" and len(tree.steps) == 2
        last = tree.steps[-1]
        assert last.info["context_overflow"] == "ada" and "luck" in last.info
        assert [(t.player, t.segments) for t in last.closing] == [("bo", (Segment((9, 1, 102)),))]
    assert counts(trees)["count/context_overflow"] == 2 and counts(trees)["count/failed"] == 0
    assert "the context of ada is full" in render_text(trees[0])


def test_overflow_when_nothing_was_played_then_the_episode_failed() -> None:
    """Rule 13: an episode without a step is no data, and is counted."""
    tree = play_one(
        Counting(), {"ada": lambda s: Tokens(s, overflow_at=0), "bo": Tokens}, max_failed_share=1.0
    )
    assert tree.failure and tree.failure.player == "ada" and "ContextOverflowError" in tree.failure.reason


def test_rounds_when_declared_then_ticks_count_them_and_else_steps() -> None:
    """Rule 2."""

    def outcome(step, actions, chance):
        return StepOutcome(rewards={"ada": 1.0, "bo": 0.0}, round_ended=step in (1, 2), terminated=step == 3)

    rounds = Counting(length=4, outcome=outcome, has_rounds=True)
    assert [step.tick for step in play_one(rounds, Scripted).steps] == [0, 0, 1, 2]
    assert [step.tick for step in play_one(Counting(length=4), Scripted).steps] == [0, 1, 2, 3]


def test_player_when_he_leaves_early_then_his_rewards_go_on_and_his_turns_do_not() -> None:
    """B55: Cy: -5, final in round 2, nothing after; the others +1 once at the end."""
    players = ("ada", "bo", "cy")

    def outcome(step, actions, chance):
        game = dict.fromkeys(players, 0.0)
        rewards = game | ({"cy": -5.0} if step == 1 else {}) | ({"ada": 1.0, "bo": 1.0} if step == 3 else {})
        return StepOutcome(rewards=rewards, terminated=step == 3)

    game = Counting(4, players, outcome=outcome, movers=lambda s: players[:2] if s.step >= 2 else players)
    tree = play_one(game)
    totals = {p: sum(step.rewards[p] for step in tree.steps) for p in players}
    assert totals == {"ada": 1.0, "bo": 1.0, "cy": -5.0}
    assert [len(step.turns) for step in tree.steps] == [3, 3, 2, 2]


def test_game_when_nobody_is_left_to_move_then_it_is_over() -> None:
    game = Counting(
        outcome=lambda *_: StepOutcome(rewards={"ada": 0.0, "bo": 0.0}),
        movers=lambda s: ("bo", "ada")[: 2 - s.step],
    )
    tree = play_one(game, Scripted)
    assert tree.status == "terminated" and [len(step.turns) for step in tree.steps] == [2, 1]
    assert [turn.player for turn in tree.steps[0].turns] == ["ada", "bo"]


def test_games_when_two_are_played_then_they_share_no_agent_and_no_state() -> None:
    """B86: every episode has agents of its own; seeds name the seat."""
    made: list[Scripted] = []

    def maker(seat: Seat) -> Scripted:
        made.append(Scripted(seat))
        return made[-1]

    game = Counting()
    plan = plan_for(game, {"ada": Scripted, "bo": Scripted}, num_groups=2, group_size=2)
    seats = dict.fromkeys(game.players, maker)
    collect_sync(replace(plan, episodes=tuple(replace(e, seats=seats) for e in plan.episodes)))
    assert len({id(agent) for agent in made}) == 8 and len({id(agent.seen) for agent in made}) == 8
    assert len({agent.seat.seed for agent in made}) == 8
    assert all(key.episode == agent.seat.episode for agent in made for _, key in agent.seen)


def test_progress_when_watched_then_told_after_every_wave() -> None:
    seen: list[Progress] = []
    play(Counting(length=2), {"ada": lambda s: Scripted(s, boom), "bo": Scripted}, group_size=2,
         max_failed_share=0.5, on_wave=seen.append)  # fmt: skip
    assert [(p.num_done, p.num_failed, p.num_turns) for p in seen] == [(0, 0, 4), (2, 1, 8)]
    assert all(p.num_episodes == 2 for p in seen)


def test_values_when_a_game_uses_tuples_then_the_record_has_plain_json() -> None:
    """B42, B45: what is recorded reads back the same."""

    def observed(state, player):
        return Observation(
            text="?", grammar=Counting().observe(state, player).grammar, facts={"a": ({"b": (1, 2)},)}
        )

    tree = play_one(Counting(length=1, observed=observed), Scripted)
    assert tree.steps[0].turns[0].observation.facts == {"a": [{"b": [1, 2]}]}


def test_shipped_games_when_played_by_tokens_then_no_episode_fails() -> None:
    game = make_game("iterated_matrix")
    labels = {p: game.observe(game.initial_state(Chance(0)), p).grammar.labels() for p in game.spec.players}
    agents = {
        p: (lambda seat: Tokens(seat, say=lambda key: labels[key.player][key.step % 2])) for p in labels
    }
    trees = play(game, agents, num_groups=2, group_size=2)
    assert {tree.status for tree in trees} == {"terminated"}

"""Statistics with numbers worked out by hand; per episode first, per seat, never averaged where that cancels."""

from dataclasses import replace
from math import dist, log, sqrt

import numpy as np
import pytest
from rollout_fakes import Counting, Scripted, Tokens, play_one

from coplay.agents.scripted import scripted_agent
from coplay.games import StepOutcome, make_game
from coplay.rollout_tree import (
    CollectPlan,
    RolloutTree,
    collect_sync,
    exploitation,
    main_line,
    outcomes,
    plan_episodes,
    reciprocity,
    speech,
    summary,
    welfare,
)


def dilemma(moves: dict[str, str], rewards: dict[str, float] | None = None) -> RolloutTree:
    """An episode in which each player plays his word of C and D, `.` where the game says nothing."""
    length = len(next(iter(moves.values())))

    def outcome(step, actions, chance):
        told = {player: word[step] == "C" for player, word in moves.items() if word[step] != "."}
        return StepOutcome(
            rewards=rewards or dict.fromkeys(moves, 1.0),
            terminated=step == length - 1,
            info={"cooperated": told},
        )

    return play_one(Counting(length=length, players=tuple(moves), outcome=outcome), Scripted)


def test_reciprocity_when_two_play_by_hand_then_the_counted_rates() -> None:
    """ada C D D C C D, bo C C D D C C: five transitions (own, other) -> own next.

    ada: CC->D, DC->D, DD->C, CD->C, CC->D; bo: CC->C, CD->D, DD->D, DC->C, CC->C.
    """
    found = reciprocity([dilemma({"ada": "CDDCCD", "bo": "CCDDCC"})])
    assert found == {
        "opens/ada": 1.0,
        "opens/bo": 1.0,
        "cooperates_after/ada/CC": 0.0,
        "cooperates_after/ada/DC": 0.0,
        "cooperates_after/ada/DD": 1.0,
        "cooperates_after/ada/CD": 1.0,
        "reciprocity/ada": 0.0,
        "retaliation/ada": 0.0,
        "cooperates_after/bo/CC": 1.0,
        "cooperates_after/bo/CD": 0.0,
        "cooperates_after/bo/DD": 0.0,
        "cooperates_after/bo/DC": 1.0,
        "reciprocity/bo": 1.0,
        "retaliation/bo": 1.0,
        "forgiveness/bo": 1.0,
    }


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("tit_for_tat", {"reciprocity": 1.0, "retaliation": 1.0, "forgiveness": 1.0, "opens": 1.0}),
        ("grim", {"retaliation": 1.0, "forgiveness": 0.0, "opens": 1.0}),
        ("always_cooperate", {"reciprocity": 1.0, "retaliation": 0.0, "forgiveness": None}),
        ("always_defect", {"reciprocity": 0.0, "retaliation": 1.0, "forgiveness": 0.0, "opens": 0.0}),
    ],
)
def test_reciprocity_when_a_known_strategy_plays_then_its_known_character(strategy, expected) -> None:
    """Against someone who defects once, in step 2, and cooperates otherwise."""
    own = {
        "tit_for_tat": "CCCDCC",
        "grim": "CCCDDD",
        "always_cooperate": "CCCCCC",
        "always_defect": "DDDDDD",
    }[strategy]
    found = reciprocity([dilemma({"ada": own, "bo": "CCDCCC"})])
    assert {name: found.get(f"{name}/ada") for name in expected} == expected


def test_reciprocity_when_real_strategies_play_then_as_their_names_say() -> None:
    game = make_game("iterated_matrix", num_rounds=6)
    seats = {"Ada": scripted_agent("tit_for_tat"), "Bo": scripted_agent("always_defect")}
    found = reciprocity([play_one(game, seats)])
    assert found["retaliation/Ada"] == 1.0 and found["opens/Ada"] == 1.0 and found["opens/Bo"] == 0.0
    assert found["cooperates_after/Bo/DC"] == 0.0 and found["cooperates_after/Bo/DD"] == 0.0


def test_reciprocity_when_three_play_then_the_others_cooperate_only_if_all_do() -> None:
    found = reciprocity([dilemma({"ada": "CCD", "bo": "CDC", "cy": "CCC"})])
    assert found["reciprocity/ada"] == 1.0 and found["retaliation/ada"] == 1.0
    assert found["cooperates_after/bo/DC"] == 1.0 and found["retaliation/cy"] == 0.0


def test_reciprocity_when_episodes_differ_in_length_then_each_counts_once() -> None:
    """B60: 1 of 1 and 0 of 3 are 1/2, not 1/4."""
    short, long = dilemma({"ada": "CC", "bo": "CC"}), dilemma({"ada": "CDDD", "bo": "CCCC"})
    long = replace(long, episode="000000/00001")
    assert reciprocity([short, long])["reciprocity/ada"] == 0.5


def test_reciprocity_when_the_game_says_nothing_or_not_of_all_then_no_number() -> None:
    assert reciprocity([dilemma({"ada": "..", "bo": ".."})]) == {}
    assert reciprocity([dilemma({"ada": "C.", "bo": "CC"})]) == {"opens/ada": 1.0, "opens/bo": 1.0}
    assert reciprocity([play_one(Counting(), Scripted)]) == {}


def test_exploitation_when_three_play_then_every_pair_with_its_sign() -> None:
    tree = dilemma({"ada": "C", "bo": "C", "cy": "C"}, {"ada": 5.0, "bo": 1.0, "cy": 0.0})
    found = exploitation([tree])
    assert (found["exploitation/ada/bo"], found["exploitation/cy/ada"]) == (4.0, -5.0)
    assert len(found) == 6


def test_nash_product_when_somebody_loses_then_none() -> None:
    gain = dilemma({"ada": "C", "bo": "C"}, {"ada": 3.0, "bo": 2.0})
    loss = dilemma({"ada": "C", "bo": "C"}, {"ada": 3.0, "bo": -2.0})
    assert welfare([gain])["welfare/nash"] == 6.0
    assert "welfare/nash" not in welfare([loss])
    assert welfare([gain, replace(loss, episode="x")])["welfare/nash"] == 6.0


def outcome_tree(info: list[dict[str, object]], rewards: dict[str, float]) -> RolloutTree:
    def outcome(step, actions, chance):
        return StepOutcome(rewards=rewards, terminated=step == len(info) - 1, info=info[step])

    return play_one(Counting(length=len(info), outcome=outcome), Scripted)


def test_outcomes_when_a_game_tells_them_then_agreement_and_distance() -> None:
    efficient = {"ada": [2.0, 4.0], "bo": [2.0, 0.0]}
    told = [{"agreed": True, "efficient": efficient}, {"agreed": False}, {}]
    found = outcomes([outcome_tree(told, {"ada": 1.0, "bo": 1.0})])
    assert found == {"agreement": 0.5, "pareto_distance": pytest.approx(sqrt(2))}
    best = outcome_tree([{"efficient": efficient}], {"ada": 4.0, "bo": 0.0})
    assert outcomes([best]) == {"pareto_distance": 0.0}


@pytest.mark.parametrize(
    ("rewards", "distance"),
    [
        ((2.0, 2.0), 0.0),
        ((1.0, 1.0), sqrt(2)),
        ((5.0, 0.0), 1.0),
        ((0.0, 0.0), sqrt(8)),
        ((0.0, 3.5), sqrt(0.125)),
    ],
)
def test_pareto_distance_when_a_game_tells_a_line_then_to_its_nearest_point(rewards, distance) -> None:
    line = {"ada": [0.0, 4.0], "bo": [4, 0]}
    paid = dict(zip(("ada", "bo"), rewards, strict=True))
    assert outcomes([outcome_tree([{"efficient_line": line}], paid)]) == {
        "pareto_distance": pytest.approx(distance)
    }
    point = outcome_tree([{"efficient_line": {"ada": [0.0], "bo": [4.0]}}], paid)
    assert outcomes([point])["pareto_distance"] == pytest.approx(dist(rewards, (0.0, 4.0)))


def test_efficiency_when_best_totals_are_told_then_the_share_of_their_sum() -> None:
    """2 of 4 and 2 of 6 are 4 of 10; a step that says nothing is left out, and so is an episode worth nothing."""
    paid = {"ada": 1.5, "bo": 0.5}
    told = outcome_tree([{"best_total": 4.0}, {}, {"best_total": 6}], paid)
    assert outcomes([told]) == {"efficiency": pytest.approx(0.4)}
    assert outcomes([outcome_tree([{"best_total": 0.0}], paid)]) == {}
    assert outcomes([outcome_tree([{"best_total": True}, {"best_total": "4"}], paid)]) == {}


@pytest.mark.parametrize(
    ("kind", "settings", "names", "efficiency"),
    [
        ("trust_and_split", {"messages_per_player": 0}, ("greedy", "greedy"), 0.55),
        ("split", {}, ("greedy", "greedy"), 82.5 / 127.5),
        ("split", {}, ("welfare_maximising", "welfare_maximising"), 1.0),
        ("iterated_matrix", {}, ("always_cooperate", "always_cooperate"), 1.0),
        ("iterated_matrix", {}, ("always_defect", "always_defect"), 1 / 3),
    ],
)
def test_outcomes_when_reference_agents_play_then_the_reference_efficiency(
    kind, settings, names, efficiency
) -> None:
    game = make_game(kind, num_rounds=200, **settings)
    named = dict(zip(game.spec.players, names, strict=True))
    seats = {player: scripted_agent(name) for player, name in named.items()}
    plan = plan_episodes(
        game, run_seed=1, iteration=0, num_groups=1, group_size=1, seats=seats, seat_names=named
    )
    found = outcomes(collect_sync(CollectPlan(game=game, episodes=plan)))
    assert found["efficiency"] == pytest.approx(efficiency, rel=0.03)
    if efficiency == 1.0:
        assert found["pareto_distance"] == pytest.approx(0.0, abs=1e-9)
    if "greedy" in names:
        assert found["agreement"] == 0.0


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"agreed": "yes"},
        {"efficient": {"ada": [1.0]}},
        {"efficient": {"ada": [1.0], "bo": [1.0, 2.0]}},
        {"efficient": []},
        {"efficient": 3},
    ],
)
def test_outcomes_when_a_game_means_something_else_then_no_number(info) -> None:
    assert outcomes([outcome_tree([info], {"ada": 1.0, "bo": 1.0})]) == {}


def test_speech_when_lengths_and_log_probs_are_known_then_their_means() -> None:
    """ada says yes at odd steps + 3: no yes no ...; two tokens each at log-prob -0.5."""
    found = speech([play_one(Counting(length=4), Tokens)])
    assert found["token_entropy/ada"] == 0.5 and found["token_entropy/bo"] == 0.5
    assert found["reply_characters/ada"] == found["reply_characters/bo"] == 2.5
    assert "token_entropy/ada" not in speech([play_one(Counting(), Scripted)])


def test_token_entropy_when_tokens_are_drawn_from_a_known_distribution_then_its_entropy() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    drawn = np.random.default_rng(0).choice(shares, size=4000, p=shares)
    places = iter(drawn)

    class Drawing(Tokens):
        async def reply(self, observation, key):
            self.log_prob = log(next(places))
            return await super().reply(observation, key)

    found = speech([play_one(Counting(length=2000), Drawing)])
    entropy = -float((shares * np.log(shares)).sum())
    assert found["token_entropy/ada"] == pytest.approx(entropy, abs=4 * 0.4 / sqrt(2000))


def test_summary_when_taken_in_one_pass_then_all_numbers_and_failures_counted() -> None:
    trees = [dilemma({"ada": "CD", "bo": "CC"}), play_one(Counting(5, max_steps=2), max_failed_share=1.0)]
    found = summary(iter(trees))
    assert found["count/episodes"] == 2 and found["count/failed"] == 1
    for one in (reciprocity, exploitation, speech, welfare):
        assert one(trees).items() <= found.items()
    assert len(main_line(trees[0])) == 2

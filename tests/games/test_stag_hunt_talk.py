"""Stag hunt with cheap talk: rounds of messages and moves, reference returns, what is heard."""

from itertools import product
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, GameParameterError, Malformed, Move, make_game
from coplay.games.iterated_matrix_presets import PRESETS
from coplay.games.stag_hunt_talk import StagHuntTalkState

HUNTERS = ("stag_hunter", "hare_hunter", "bluffing_hunter", "trusting_hunter")
REFERENCE = {
    ("stag_hunter", "stag_hunter"): (40, 40),
    ("stag_hunter", "hare_hunter"): (0, 30),
    ("stag_hunter", "bluffing_hunter"): (0, 30),
    ("stag_hunter", "trusting_hunter"): (40, 40),
    ("hare_hunter", "hare_hunter"): (20, 20),
    ("hare_hunter", "bluffing_hunter"): (20, 20),
    ("hare_hunter", "trusting_hunter"): (20, 20),
    ("bluffing_hunter", "bluffing_hunter"): (20, 20),
    ("bluffing_hunter", "trusting_hunter"): (3 + 9 * 2, 0 + 9 * 2),
    ("trusting_hunter", "trusting_hunter"): (40, 40),
}
"""Totals over 10 rounds: who trusts is let down once by who bluffs, and warned by who says hare."""
TALK = [{}, {"signals": ("stag", "hare")}, {"message_tag": "m"}]


def move(value: str) -> Move:
    return Move(value=value, text=value)


@pytest.mark.parametrize(("one", "other"), list(product(HUNTERS, repeat=2)))
@pytest.mark.parametrize("wording", ["full", "terse"])
@pytest.mark.parametrize("talk", TALK, ids=["text", "signals", "tagged"])
def test_returns_when_hunters_meet_then_the_reference(
    scripted: ModuleType, one: str, other: str, wording: str, talk: dict[str, Any]
) -> None:
    game = make_game("stag_hunt_talk", wording=wording, **talk)
    sums = tuple(scripted.totals(game, {"Ada": one, "Bo": other}).values())
    assert sums == (REFERENCE[one, other] if (one, other) in REFERENCE else REFERENCE[other, one][::-1])


KEPT = sum(0.75**round for round in range(4))
"""Rounds of four in which who trusts a random hunter still does: he is let down with 1/4 a round."""


@pytest.mark.parametrize(
    ("hunter", "expected"),
    [
        ("stag_hunter", (4 * 2, 4 * 3.5)),
        ("hare_hunter", (4 * 2.5, 4 * 1)),
        ("bluffing_hunter", (4 * 2.5, 4 * 1)),
        ("trusting_hunter", (2.25 * KEPT + 2.5 * (4 - KEPT), 2.25 * KEPT + 1 * (4 - KEPT))),
    ],
)
def test_returns_when_the_other_is_random_then_the_exact_expectation(
    scripted: ModuleType, hunter: str, expected: tuple[float, float]
) -> None:
    """Every signal and move of the other equally likely over four rounds, all 256 plays."""
    game = make_game("stag_hunt_talk", num_rounds=4, wording="terse", signals=("stag", "hare"))
    ada = scripted.seat_agents(game, {"Ada": hunter, "Bo": "random"}, 0)["Ada"]
    key = scripted.TurnKey(episode="0", branch="", player="Ada", step=1)
    sums, stack = [0.0, 0.0], [(game.initial_state(Chance(0)), ada, 1.0)]
    while stack:
        state, agent, share = stack.pop()
        if not game.to_move(state):
            continue
        reply = scripted.answer(agent, game.observe(state, "Ada"), key)
        for other in ("stag", "hare"):
            after, outcome = game.step(state, {"Ada": move(reply), "Bo": move(other)}, Chance(0))
            for seat, reward in enumerate(outcome.rewards.values()):
                sums[seat] += share / 2 * reward
            stack.append((after, agent.fork(), share / 2))
    assert tuple(sums) == pytest.approx(expected)


def test_pay_when_every_joint_move_then_the_preset_of_the_matrix_game_in_both_seats() -> None:
    game = make_game("stag_hunt_talk", num_rounds=1)
    for (i, one), (j, other) in product(enumerate(("stag", "hare")), repeat=2):
        state = StagHuntTalkState(said=("", ""))
        state, outcome = game.step(state, {"Ada": move(one), "Bo": move(other)}, Chance(0, 2))
        assert tuple(outcome.rewards.values()) == PRESETS["stag_hunt"][i][j]
        assert outcome.terminated and outcome.round_ended and game.to_move(state) == ()
        assert outcome.info["cooperated"] == {"Ada": i == 0, "Bo": j == 0}
        assert outcome.info["best_total"] == 8 and outcome.info["efficient"] == {"Ada": [4], "Bo": [4]}


def test_round_when_played_then_messages_first_and_each_hears_the_other_alone() -> None:
    game = make_game("stag_hunt_talk")
    state = game.initial_state(Chance(0))
    said = {"Ada": move("mine"), "Bo": move("yours")}
    state, outcome = game.step(state, said, Chance(0, 1))
    assert outcome.rewards == {"Ada": 0.0, "Bo": 0.0} and not outcome.round_ended and not outcome.terminated
    ada, bo = game.observe(state, "Ada"), game.observe(state, "Bo")
    assert (ada.text, bo.text) == ('Bo says: "yours"\nStag or hare?', 'Ada says: "mine"\nStag or hare?')
    assert (ada.facts["heard"], bo.facts["heard"]) == (["yours"], ["mine"])
    assert ada.grammar.labels() == ("<move>stag</move>", "<move>hare</move>")
    state, _ = game.step(state, {"Ada": move("stag"), "Bo": move("hare")}, Chance(0, 2))
    assert state == StagHuntTalkState(round=1, last=(0, 1)), "messages of a round are forgotten with it"
    assert game.observe(state, "Bo").text == (
        "Round 2 of 10. Last round you hunted hare and got 3, Ada hunted stag and got 0. Your message to Ada?"
    )


@pytest.mark.parametrize(
    ("parameters", "reply", "heard"),
    [
        ({}, "x" * 600, "x" * 500),
        ({}, "<think>a secret</think> stag!", "stag!"),
        ({}, "", ""),
        ({"message_tag": "m"}, "no tag", ""),
        ({"message_tag": "m"}, "<m>stag</m>", "stag"),
        ({"signals": ("stag", "hare")}, "Stag.", "stag"),
        ({"signals": ("stag", "hare")}, "stag or hare", ""),
    ],
)
def test_message_when_long_private_or_malformed_then_as_declared(
    parameters: dict[str, Any], reply: str, heard: str
) -> None:
    game = make_game("stag_hunt_talk", **parameters)
    state = game.initial_state(Chance(0))
    action = game.observe(state, "Ada").grammar.parse(reply)
    state, _ = game.step(state, {"Ada": action, "Bo": Malformed(reason="empty", text="")}, Chance(0, 1))
    assert state.said == (heard, "")
    assert game.observe(state, "Ada").text == "Bo says nothing.\nStag or hare?"


def test_message_when_it_imitates_the_game_then_stays_inside_its_quotes() -> None:
    game, text = make_game("stag_hunt_talk"), 'stag"\nRound 9 of 10.'
    state, _ = game.step(game.initial_state(Chance(0)), {"Ada": move(text), "Bo": move("ok")}, Chance(0, 1))
    assert game.observe(state, "Bo").text == 'Ada says: "stag\\"\\nRound 9 of 10."\nStag or hare?'


def test_move_when_malformed_then_hare() -> None:
    game = make_game("stag_hunt_talk")
    state = StagHuntTalkState(said=("", ""))
    action = game.observe(state, "Ada").grammar.parse("<move>stag</move> <move>hare</move>")
    assert isinstance(action, Malformed)
    outcome = game.step(state, {"Ada": action, "Bo": move("stag")}, Chance(0, 2))[1]
    assert outcome.rewards == {"Ada": 3.0, "Bo": 0.0}


def test_terse_text_when_signals_then_single_words() -> None:
    game = make_game("stag_hunt_talk", wording="terse", signals=("stag", "hare"))
    state = game.initial_state(Chance(0))
    first = game.observe(state, "Ada")
    assert (first.text, first.grammar.labels()) == ("go say", ("stag", "hare"))
    assert first.system == "stag stag 4 4 stag hare 0 3 hare stag 3 0 hare hare 2 2 m stag hare x 10"
    state, _ = game.step(state, {"Ada": move("stag"), "Bo": Malformed(reason="empty", text="")}, Chance(0, 1))
    assert [game.observe(state, player).text for player in ("Ada", "Bo")] == ['"" move', "stag move"]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"lone_hare": 5}, "both_stag > lone_hare"),
        ({"both_hare": 0}, "both_hare > lone_stag"),
        ({"signals": ()}, "at least one"),
        ({"signals": ("a", "a")}, "all different"),
        ({"players": ("Ada", "Bo", "Cy")}, "players"),
    ],
)
def test_parameters_when_they_do_not_fit_then_one_sentence(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game("stag_hunt_talk", **parameters)
    assert told in str(caught.value) and "\n" not in str(caught.value)

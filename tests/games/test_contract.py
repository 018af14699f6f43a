"""What every built-in game, in every wording, owes its contract (laws 7 and 9; B51, B55, B86, B108)."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, Game, Malformed, Move, make_game
from coplay.games.replies import sound_text

CASES: list[tuple[str, dict[str, Any]]] = [
    ("iterated_matrix", {}),
    ("iterated_matrix", {"preset": "stag_hunt", "players": ("Ada", "Bo", "Cy")}),
    ("iterated_matrix", {"preset": "chicken", "continuation_probability": 0.7}),
    ("iterated_matrix", {"preset": "battle_of_the_sexes", "tag": None}),
    ("iterated_matrix", {"preset": "matching_pennies"}),
    ("iterated_matrix", {"moves": ("B", "A"), "listed": "reversed"}),
    ("iterated_matrix", {"preset": "ordinal", "row_type": "chicken", "column_type": "prisoners_dilemma"}),
    ("split", {}),
    ("split", {"players": ("Ada", "Bo", "Cy"), "value_generator": "one_to_twenty", "stock": 30}),
    (
        "split",
        {"value_generator": "five_one_exclusive", "equal_totals": False, "stock": 5, "reward_divisor": 75},
    ),
    ("trust_and_split", {}),
    ("trust_and_split", {"public_values": True, "messages_per_player": 0, "claims": (0, 5, 10)}),
    ("trust_and_split", {"messages_per_player": 3, "message_tag": "m", "alternating_mix_ratio": 0.5}),
    ("public_goods", {}),
    ("public_goods", {"players": ("Ada", "Bo"), "all_or_nothing": True, "multiplier": 1.3, "tag": None}),
    ("coin_game", {"num_rounds": 12}),
    ("coin_game", {"num_rounds": 5, "size": 2, "tag": None}),
    ("stag_hunt_talk", {}),
    ("stag_hunt_talk", {"message_tag": "m", "lone_stag": -3, "num_rounds": 4}),
    ("stag_hunt_talk", {"signals": ("stag", "hare", "hello there"), "tag": None}),
    ("commons", {}),
    (
        "commons",
        {"players": ("Ada", "Bo"), "growth": 1.5, "capacity": 20, "initial_stock": 7, "collapse_below": 0},
    ),
    ("deal_or_no_deal", {"num_rounds": 2, "max_messages": 4}),
    ("deal_or_no_deal", {"final_deal": "sequential", "max_messages": 3, "message_tag": "m"}),
    ("alternating_offers", {"num_rounds": 3, "max_offers": 4}),
    ("alternating_offers", {"tag": None, "discounts": (0.5, 1.0), "first_offer": "first player"}),
    ("bargaining", {"num_rounds": 2}),
    ("bargaining", {"messages": "symbols", "num_symbols": 2, "show_proposals": False, "tag": None}),
    ("bargaining", {"messages": "none", "reward": "raw", "min_turns": 1, "max_turns": 3}),
    ("buy_sell", {"num_rounds": 2}),
    ("buy_sell", {"talk": False, "always_gains": True, "opens": "drawn", "max_turns": 4}),
    ("buy_sell", {"message_tag": "m", "num_rounds": 3, "max_price": 1}),
    ("trading", {}),
    ("trading", {"endowment": "own", "units": 5, "num_rounds": 12, "tag": None}),
    ("ultimatum", {"num_rounds": 2}),
    ("kuhn_poker", {}),
    ("leduc_poker", {}),
    ("tic_tac_toe", {"tag": None}),
    ("rock_paper_scissors", {"num_rounds": 4, "moves": ("rock", "paper", "scissors", "spock", "lizard")}),
    ("tasks", {}),
    ("tasks", {"num_tasks": 3, "score": "number", "tag": "answer", "score_range": (-1, 1)}),
    ("two_round_bargaining", {}),
    ("search_qa", {}),
    ("search_qa", {"form": "json", "max_calls": 1, "split": "held_out", "tag": None}),
    ("two_round_bargaining", {"values": (1,), "discount": 0.9, "coins": 7}),
]
ALL = [
    (name, {**parameters, "wording": wording}) for name, parameters in CASES for wording in ("full", "terse")
]
NAMES = [f"{name}-{place // 2}-{parameters['wording']}" for place, (name, parameters) in enumerate(ALL)]


@pytest.fixture(params=ALL, ids=NAMES)
def game(request: pytest.FixtureRequest) -> Game[Any]:
    name, parameters = request.param
    return make_game(name, **parameters)


def randoms(game: Game[Any]) -> dict[str, str]:
    return dict.fromkeys(game.spec.players, "random")


def test_play_when_random_then_spec_holds_and_rewards_add_up(game: Game[Any], scripted: ModuleType) -> None:
    """B55; the spec's bounds; rounds end where declared; the last round is paid."""
    spec = game.spec
    for seed in range(5):
        steps = list(scripted.play(game, randoms(game), seed=seed))
        assert 0 < len(steps) <= spec.max_steps
        assert [step.outcome.terminated for step in steps] == [False] * (len(steps) - 1) + [True]
        assert not any(step.outcome.truncated for step in steps)
        assert steps[-1].outcome.round_ended
        assert spec.has_rounds or all(step.outcome.round_ended for step in steps)
        least, most = spec.reward_range
        for step in steps:
            assert list(step.outcome.rewards) == list(spec.players)
            assert all(least <= reward <= most for reward in step.outcome.rewards.values())
            if not step.outcome.round_ended:
                assert set(step.outcome.rewards.values()) == {0.0}


def test_play_when_seed_is_the_same_then_the_same_and_otherwise_not(
    game: Game[Any], scripted: ModuleType
) -> None:
    """Law 7."""
    one, again = (list(scripted.play(game, randoms(game), seed=3)) for _ in range(2))
    assert one == again
    if game.spec.has_chance:
        texts = {
            str([step.observations for step in scripted.play(game, randoms(game), seed=seed)])
            for seed in range(5)
        }
        assert len(texts) > 1


def walk(game: Game[Any], seed: int = 1) -> list[Any]:
    """States along one play in which everybody says his first label or some text, with every third reply malformed."""
    state, step = game.initial_state(Chance(seed)), 0
    states = [state]
    while movers := game.to_move(state):
        step += 1
        actions: dict[str, Any] = {}
        for place, player in enumerate(movers):
            labels = game.observe(state, player).grammar.labels()
            reply = (
                "nonsense \ud800 <think>x"
                if (step + place) % 3 == 0
                else labels[-1]
                if labels
                else "hé \U0001f600"
            )
            actions[player] = game.observe(state, player).grammar.parse(reply)
        state, _ = game.step(state, actions, Chance(seed, step))
        states.append(state)
    return states


def test_state_when_encoded_then_json_and_the_same_again(game: Game[Any]) -> None:
    for state in walk(game):
        data = json.loads(json.dumps(game.encode(state)))
        assert game.decode(data) == state
        assert hash(game.decode(data)) == hash(state)
        sound = json.dumps(data, ensure_ascii=False)
        assert sound_text(sound) == sound


def test_observe_when_read_twice_then_the_same_and_the_state_untouched(game: Game[Any]) -> None:
    for state in walk(game):
        before = json.dumps(game.encode(state))
        for player in game.to_move(state):
            first, second = game.observe(state, player), game.observe(state, player)
            assert first == second
            if isinstance(first.facts, dict):
                first.facts.clear()
            assert game.observe(state, player) == second
        assert json.dumps(game.encode(state)) == before


def plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return type(value) is dict and all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def test_facts_and_info_when_given_then_plain_json_values(game: Game[Any], scripted: ModuleType) -> None:
    for step in scripted.play(game, randoms(game), seed=2):
        assert plain(step.outcome.info)
        for player, observation in step.observations.items():
            assert plain(observation.facts)
            assert observation.facts["game"] == game.name
            assert observation.text and observation.system
            assert player in game.spec.players


def test_step_when_asked_twice_then_the_same_and_the_old_state_lives_on(game: Game[Any]) -> None:
    """Forking is free: a branch cannot disturb its siblings."""
    state = game.initial_state(Chance(4))
    actions = {player: Malformed(reason="empty", text="") for player in game.to_move(state)}
    before = json.dumps(game.encode(state))
    assert game.step(state, actions, Chance(4, 1)) == game.step(state, actions, Chance(4, 1))
    assert json.dumps(game.encode(state)) == before


def test_malformed_when_every_reply_is_then_the_game_still_ends(game: Game[Any]) -> None:
    """Rule 9, B34: empty replies follow the declared rule."""
    state, step = game.initial_state(Chance(0)), 0
    assert game.spec.malformed_rule.consequence
    while movers := game.to_move(state):
        step += 1
        actions = {player: game.observe(state, player).grammar.parse("") for player in movers}
        assert all(isinstance(action, Malformed) for action in actions.values())
        state, outcome = game.step(state, actions, Chance(0, step))
    assert outcome.terminated


def test_grammar_when_labels_are_listed_then_each_is_a_move_of_the_game(game: Game[Any]) -> None:
    state = game.initial_state(Chance(0))
    movers = game.to_move(state)
    for player in movers:
        for label in (game.observe(state, player).grammar.labels() or ())[:20]:
            actions = {other: game.observe(state, other).grammar.parse(label) for other in movers[:1]}
            actions |= {other: Malformed(reason="empty", text="") for other in movers if other not in actions}
            assert isinstance(next(iter(actions.values())), Move) or player != movers[0]
            game.step(state, actions, Chance(0, 1))


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_wordings_when_compared_then_the_same_facts_and_terse_is_short(name: str) -> None:
    full, terse = make_game(name), make_game(name, wording="terse")
    state = full.initial_state(Chance(1))
    while movers := full.to_move(state):
        for player in movers:
            long, short = full.observe(state, player), terse.observe(state, player)
            assert long.facts == short.facts
            assert len(short.text.split()) <= 12 and len(short.system.split()) <= 24
        state, _ = full.step(state, {p: Malformed(reason="empty", text="") for p in movers}, Chance(1, 1))


def test_play_when_hash_seeds_differ_then_the_same() -> None:
    """B108: nothing iterates over sets of text."""
    code = (
        "from coplay.games import *\n"
        "for name in (name for name in available_games() if name not in ('open_spiel', 'pettingzoo', 'text_arena')):\n"
        "    game = make_game(name)\n"
        "    state = game.initial_state(Chance(5))\n"
        "    print(game.spec, state, [game.observe(state, p) for p in game.to_move(state)])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1 and len(next(iter(told))) > 500

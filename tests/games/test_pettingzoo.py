"""Environments of PettingZoo as games of ours, and games of ours as environments of PettingZoo."""

import json
import random
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from shipped_games import OURS

from coplay.games import Chance, Game, Malformed, derive_seed, make_game
from coplay.games.adapters import codecs
from coplay.games.adapters.aec_env import aec_env
from coplay.games.adapters.codecs import TextCodec, codec_of, register_codec
from coplay.games.conformance import check_game
from coplay.games.optional import MissingLibraryError

needs_library = pytest.mark.needs("pettingzoo")
CLASSIC = ("classic/rps-v2", "classic/tictactoe-v3", "classic/connect_four-v3")
ELIMINATION = "tests/elimination-v0"
OURS_THERE = "tests/ours-v0"


def make_elimination(num_agents: int = 3) -> Any:  # noqa: C901
    """Agents stay (1) or leave (0); who leaves gets a number by lot, all others lose 1; the last one may only leave."""
    import numpy as np
    from gymnasium import spaces
    from pettingzoo import AECEnv

    class Elimination(AECEnv):  # type: ignore[misc]
        metadata = {"name": "elimination_v0"}  # noqa: RUF012

        def __init__(self) -> None:
            self.possible_agents = [f"agent_{place}" for place in range(num_agents)]
            self.spaces = {agent: spaces.Discrete(2, start=0) for agent in self.possible_agents}
            self.seen = {agent: spaces.Box(0, 100, (2,), np.int64) for agent in self.possible_agents}

        def observation_space(self, agent: str) -> Any:
            return self.seen[agent]

        def action_space(self, agent: str) -> Any:
            return self.spaces[agent]

        def observe(self, agent: str) -> Any:
            return np.array([len(self.left), self.prize])

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            self.luck = np.random.default_rng(seed)
            self.agents = list(self.possible_agents)
            self.rewards = dict.fromkeys(self.agents, 0)
            self._cumulative_rewards = dict.fromkeys(self.agents, 0)
            self.terminations = dict.fromkeys(self.agents, False)
            self.truncations = dict.fromkeys(self.agents, False)
            self.left = list(self.agents)
            self.turn, self.prize = 0, int(self.luck.integers(100))
            self._point()

        def _point(self) -> None:
            self.agent_selection = self.left[self.turn % len(self.left)]
            mask = np.array([1, int(len(self.left) > 1)])
            self.infos = {agent: {"action_mask": mask} for agent in self.agents}

        def step(self, action: int | None) -> None:
            agent = self.agent_selection
            if self.terminations[agent]:
                self._was_dead_step(action)
                return
            self._cumulative_rewards[agent] = 0
            self._clear_rewards()
            if action == 0:
                self.rewards = {a: self.prize if a == agent else -int(a in self.left) for a in self.agents}
                self.terminations[agent] = True
                self.left.remove(agent)
            else:
                self.turn += 1
            self.prize = int(self.luck.integers(100))
            if self.left:
                self._point()
            self._accumulate_rewards()
            self._deads_step_first()

    return Elimination()


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    try:
        import pettingzoo
    except ModuleNotFoundError:
        yield
        return
    pettingzoo.register("aec", ELIMINATION, entry_point=make_elimination)
    pettingzoo.register("aec", OURS_THERE, entry_point=lambda: aec_env(make_game("kuhn_poker")))
    pettingzoo.register("aec", "tests/absent-v0", entry_point="no_such_package:env")
    yield
    for env in (ELIMINATION, OURS_THERE, "tests/absent-v0"):
        del pettingzoo.aec_registry[env]


ENVS = [
    pytest.param(env, marks=pytest.mark.needs("pettingzoo", *(["pygame"] if env in CLASSIC else [])))
    for env in (*CLASSIC, ELIMINATION)
]


def game_of(env: str, **told: Any) -> Game[Any]:
    return make_game("pettingzoo", env=env, reward_range=(-1, 100), **told)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("env", ENVS)
def test_play_when_compared_with_the_librarys_own_loop_then_agrees_at_every_state(
    env: str, seed: int
) -> None:
    import pettingzoo

    game, lots, luck = game_of(env), random.Random(seed), Chance(seed)
    state, step = game.initial_state(luck), 0
    own = pettingzoo.make("aec", env)
    own.reset(seed=luck.integer("seed", 2**31 - 1))
    players = dict(zip(own.possible_agents, game.spec.players, strict=True))
    ours, theirs = dict.fromkeys(players.values(), 0.0), dict.fromkeys(players.values(), 0.0)
    outcome = None
    for agent in own.agent_iter():
        shown, reward, terminated, truncated, info = own.last()
        theirs[players[agent]] += reward
        if terminated or truncated:
            own.step(None)
            continue
        assert game.to_move(state) == (players[agent],)
        seen, mask = game.observe(state, players[agent]), info.get("action_mask")
        if isinstance(shown, dict):
            mask, shown = shown["action_mask"], shown["observation"]
        legal = [place for place in range(own.action_space(agent).n) if mask is None or mask[place]]
        labels = codec_of(env).moves or tuple("01")
        assert seen.facts["moves"] == [labels[place] for place in legal]
        assert seen.text.startswith(codec_of(env).say(shown)) and seen.facts["string"] in seen.text
        chosen = lots.choice(legal)
        own.step(chosen)
        step += 1
        actions = {players[agent]: seen.grammar.parse(seen.grammar.write(labels[chosen]))}
        state, outcome = game.step(state, actions, luck.at(step))
        for player, gain in outcome.rewards.items():
            ours[player] += gain
    assert outcome is not None and (outcome.terminated or outcome.truncated) and game.to_move(state) == ()
    assert ours == theirs
    assert env in CLASSIC or any(ours.values())
    assert outcome.truncated == (env == "classic/rps-v2")


@pytest.mark.parametrize("wording", ["full", "terse"])
@pytest.mark.parametrize("env", ENVS)
def test_fork_when_made_anywhere_then_the_same_as_a_replay_and_siblings_live_on(
    env: str, wording: str, scripted: ModuleType
) -> None:
    game, fresh = game_of(env, wording=wording), game_of(env, wording=wording)
    state, step, path = game.initial_state(Chance(3)), 0, []
    while movers := game.to_move(state):
        step += 1
        seen = game.observe(state, movers[0])
        moves = {movers[0]: seen.grammar.parse((seen.grammar.labels() or ())[-1])}
        nothing = {movers[0]: Malformed(reason="empty", text="")}
        sibling = game.step(state, nothing, Chance(3, step))
        after = game.step(state, moves, Chance(3, step))
        assert game.step(state, nothing, Chance(3, step)) == sibling
        assert sibling[1].info["moves"] == {movers[0]: seen.facts["moves"][0]}
        assert game.observe(state, movers[0]) == seen == fresh.observe(state, movers[0])
        path.append((state, moves, after))
        state = after[0]
        if step == 40:  # those who stay for ever
            break
    for number, (state, moves, after) in reversed(list(enumerate(path, 1))):
        again = fresh.decode(json.loads(json.dumps(fresh.encode(state))))
        assert again == state and hash(again) == hash(state)
        assert fresh.step(again, moves, Chance(3, number)) == after
    randoms = dict.fromkeys(game.spec.players, "random")
    for seed in range(3):
        steps = list(scripted.play(game, randoms, seed=seed))
        assert steps == list(scripted.play(game, randoms, seed=seed)) and len(steps) <= game.spec.max_steps


@pytest.mark.needs("pettingzoo", "pygame")
def test_conformance_kit_when_run_then_finds_nothing() -> None:
    assert check_game(make_game("pettingzoo", env="classic/tictactoe-v3", zero_sum=True)) == ()


@pytest.mark.needs("pettingzoo", "pygame")
def test_noughts_and_crosses_when_a_cell_is_named_then_marked_there() -> None:
    game = game_of("classic/tictactoe-v3")
    state = game.initial_state(Chance(0))
    for label in ("row 1 column 2", "row 3 column 1"):
        (player,) = game.to_move(state)
        grammar = game.observe(state, player).grammar
        state, _ = game.step(state, {player: grammar.parse(f"<move>{label}</move>")}, Chance(0))
    assert game.observe(state, "Ada").text.splitlines()[:3] == [". X .", ". . .", "O . ."]


@needs_library
def test_play_when_longer_than_max_steps_then_truncated() -> None:
    game = game_of(ELIMINATION, max_steps=2, players=("North", "East", "South"))
    state = game.initial_state(Chance(0))
    for step, player in enumerate(("North", "East"), 1):
        assert game.to_move(state) == (player,)
        stays = game.observe(state, player).grammar.parse("<move>1</move>")
        state, outcome = game.step(state, {player: stays}, Chance(0, step))
        assert (outcome.terminated, outcome.truncated) == (False, step == 2)
    assert game.to_move(state) == ()


@needs_library
@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"env": "tests/eliminaton-v0"}, "has no environment.*did you mean 'tests/elimination-v0'"),
        (
            {"env": ELIMINATION, "options": {"agents": 2}},
            "cannot be made with {'agents': 2}.*expected options",
        ),
        ({"env": "tests/absent-v0"}, "cannot be made: Failed to import.*You may need to install"),
        ({"env": ELIMINATION, "players": ("Ada", "Bo")}, "expected 3 names, or none"),
        ({"env": OURS_THERE}, "of a space AnyText; expected Discrete ones"),
        ({"env": ELIMINATION, "options": {"num_agents": 4}}, "has 1 labels for 2 actions"),
    ],
)
def test_environment_when_it_cannot_be_played_then_one_sentence(
    told: dict[str, Any], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codecs, "_CODECS", dict(codecs._CODECS))
    if "labels" in complaint:
        register_codec(ELIMINATION, TextCodec(say=str, moves=("stay",)))
        with pytest.raises(ValueError, match="has a codec already"):
            register_codec(ELIMINATION, TextCodec(say=str))
    with pytest.raises(ValueError, match=complaint) as caught:
        make_game("pettingzoo", **told)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("use", ["game 'pettingzoo'", "an environment of PettingZoo"])
def test_library_when_missing_then_one_sentence_with_the_way_out(
    use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kuhn = make_game("kuhn_poker")
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.split(".")[0] == "pettingzoo"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingLibraryError, match=rf"{use} needs the library 'pettingzoo'.*\[games\]"):
        if use.startswith("game"):
            make_game("pettingzoo")
        else:
            aec_env(kuhn)


@needs_library
@pytest.mark.parametrize("name", OURS)
def test_our_game_when_an_environment_then_it_passes_the_librarys_tests(name: str) -> None:
    from pettingzoo.test import api_test, seed_test

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        api_test(aec_env(make_game(name)), num_cycles=15)
        seed_test(lambda: aec_env(make_game(name)), num_cycles=15)
    known = (
        "Observation is not a NumPy array",
        "Observation numpy array is all zeros",
        "Environment has not defined a render() method",
        "We recommend agents to be named",
        "Action space for each agent probably",
        "Observation space for each agent probably",
    )
    assert not [str(each.message) for each in warned if not str(each.message).startswith(known)]


@needs_library
@pytest.mark.parametrize("name", OURS)
def test_our_game_when_played_as_an_environment_then_as_we_play_it(name: str, scripted: ModuleType) -> None:
    game = make_game(name)
    env, luck = aec_env(game, num_bytes=64), Chance(derive_seed("aec_env", 5, 0))
    env.reset(seed=5)
    seats = scripted.seat_agents(game, dict.fromkeys(game.spec.players, "random"), 1)
    state, step, ours = game.initial_state(luck), 0, dict.fromkeys(game.spec.players, 0.0)
    theirs = dict.fromkeys(ours, 0.0)
    while movers := game.to_move(state):
        step += 1
        actions = {}
        for player in movers:
            assert env.agent_selection == player
            shown, reward, over, cut, info = env.last()
            theirs[player] += reward
            assert not over and not cut and env.observation_space(player).contains(shown)
            seen = game.observe(state, player)
            assert (shown["text"], shown["system"]) == (seen.text, seen.system)
            assert bytes(shown["observation"]).rstrip(b"\0") == seen.text.encode()[:64]
            assert info.get("labels") == (seen.grammar.labels() and list(seen.grammar.labels()))
            key = scripted.TurnKey(episode="1", branch="", player=player, step=step)
            reply = scripted.answer(seats[player], seen, key)
            actions[player] = seen.grammar.parse(reply)
            env.step(reply)
        state, outcome = game.step(state, actions, luck.at(step))
        for player, gain in outcome.rewards.items():
            ours[player] += gain
    for agent in env.agent_iter():
        _, reward, over, _, info = env.last()
        theirs[agent] += reward
        assert over and info["info"] == outcome.info
        env.step(None)
    assert theirs == pytest.approx(ours, abs=1e-9)


@needs_library
def test_environment_when_a_reply_is_malformed_then_asked_again_as_often_as_declared() -> None:
    env = aec_env(make_game("kuhn_poker", retries=2))
    env.reset(seed=0)
    for _ in range(2):
        env.step("I would rather bet.")
        assert env.agent_selection == "Ada" and env.infos["Ada"]["malformed"] == "no_move"
    env.step("no")
    assert env.agent_selection == "Bo" and "malformed" not in env.infos["Bo"]
    with pytest.raises(ValueError, match="expected a reply, as text"):
        env.step(1)


@needs_library
def test_environment_when_reset_without_a_seed_then_other_luck_and_with_one_the_same() -> None:
    env = aec_env(make_game("kuhn_poker"), seed=4)
    deals = []
    for seed in (None, None, None, None, 4, None):
        env.reset(seed=seed)
        deals.append(env._state)
    assert deals[4] == deals[0] and deals[5] == deals[1] and len(set(deals)) > 1


@needs_library
def test_environment_when_lengths_are_no_lengths_then_refused() -> None:
    with pytest.raises(ValueError, match="num_bytes 0"):
        aec_env(make_game("kuhn_poker"), num_bytes=0)

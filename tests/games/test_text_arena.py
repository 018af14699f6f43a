"""Games of TextArena through the adapter are what the library plays, and leave no trace in the global luck."""

import contextlib
import io
import random
import sys
from typing import Any

import numpy as np
import pytest

from coplay.games import Chance, Game, GameParameterError, Malformed, make_game
from coplay.games.adapters.text_arena import FAMILIES, MAX_SEED, TextArenaState
from coplay.games.conformance import check_game
from coplay.games.optional import MissingLibraryError

SAID = {
    "ColonelBlotto": ("[A7 B7 C6]", "[A10 B5 C5]", "[A1 B1 C18]"),
    "IteratedMatchingPennies": ("[heads]", "[tails]"),
    "IteratedPrisonersDilemma": ("I say [Cooperate]", "no [Defect]"),
    "IteratedUltimatumGame": ("[Offer: $20]", "[Accept]", "[Reject]", "[Offer: $5]"),
    "KuhnPoker": ("[bet]", "[call]", "[check]", "[fold]"),
    "LiarsDice": ("[Bid: 1, 2]", "[Bid: 2, 3]", "[Call]", "[Bid: 3, 4]"),
    "NewRecruit": ("Fair. [Propose] CCAACCCC", "[Reject]", "Then: [Propose] AAAAAAAA", "[Accept]"),
    "PublicGoodsGame": ("{hi} [5]", "[20]", "{all in} [0]"),
    "SimpleBlindAuction": ("hello", "[Bid on Item 0: 250] [Bid on Item 3: 175]"),
    "SimpleNegotiation": ("[Offer: 2 Wheat -> 1 Ore]", "[Accept]", "[Deny] [Offer: 1 Ore -> 9 Wood]"),
    "TicTacToe": tuple(f"[{cell}]" for cell in range(9)),
    "TruthAndDeception": ("[Fact 1]", "I believe the first", "[Fact 2]"),
}
LOADS = {family: f"{family}-v0" for family in FAMILIES}

pytestmark = pytest.mark.filterwarnings("ignore")
needs = pytest.mark.needs("textarena")


@pytest.fixture(scope="session")
def library() -> Any:
    return pytest.importorskip("textarena")


def players(family: str) -> tuple[str, ...]:
    return ("Ada", "Bo", "Cy") if FAMILIES[family] > 2 else ("Ada", "Bo")


def texts(family: str, seed: int) -> list[str]:
    """Mostly sensible replies, in an order of their own, now and then one that is none."""
    drawn = random.Random(seed)
    return [drawn.choice((*SAID[family], *SAID[family], "what?")) for _ in range(120)]


def native(
    library: Any, load: str, number: int, seeds: list[int], said: list[str]
) -> tuple[list[Any], Any, Any]:
    """What the mover reads at each of his turns, the rewards, and the reason, by the library's own loop."""
    heard = []
    python, numpy = random.getstate(), np.random.get_state()
    with contextlib.redirect_stdout(io.StringIO()):
        random.seed(seeds[0])
        np.random.seed(seeds[0])
        env = library.make(f"{load}-raw")
        env.reset(num_players=number, seed=seeds[0])
        done = False
        for seed, text in zip(seeds[1:], said, strict=False):
            player, messages = env.get_observation()
            heard.append((player, [(sender, message) for sender, message, _ in messages]))
            random.seed(seed)
            np.random.seed(seed)
            done, _ = env.step(text)
            if done:
                break
    random.setstate(python)
    np.random.set_state(numpy)
    assert done, "no end"
    rewards, info = env.close()
    return heard, [rewards.get(seat, 0) for seat in range(number)], info[0]["reason"]


@needs
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("luck", [1, 2])
def test_play_when_the_same_texts_are_said_then_as_the_library_itself_plays(
    library: Any, family: str, luck: int
) -> None:
    """Equal observations, movers, end, rewards and reason; forks in the middle equal replay."""
    load, names = LOADS[family], players(family)
    game = make_game("text_arena", load=load, players=names)
    said = texts(family, luck)
    seeds = [Chance(luck, step).integer("library", MAX_SEED) for step in range(len(said) + 1)]
    heard, rewards, reason = native(library, load, len(names), seeds, said)

    state, step = game.initial_state(Chance(luck)), 0
    states, first = [state], set()
    while movers := game.to_move(state):
        (player,) = movers
        seat, theirs = heard[step]
        assert names[seat] == player
        seen = game.observe(state, player)
        assert seen == game.observe(state, player)
        if player not in first:  # the rules come with the first message, and stay
            first.add(player)
            assert seen.system.startswith(theirs[0][1])
            theirs = theirs[1:]
        assert [message for _, message in seen.facts["messages"]] == [message for _, message in theirs]
        assert all(message in seen.text for _, message in theirs)
        step += 1
        action = seen.grammar.parse(said[step - 1])
        state, outcome = game.step(state, {player: action}, Chance(luck, step))
        states.append(state)
        assert outcome.terminated or set(outcome.rewards.values()) == {0.0}
    assert step == len(heard)
    assert outcome.terminated and list(outcome.rewards.values()) == [float(reward) for reward in rewards]
    assert outcome.info["reason"] == reason
    anew: Game[Any] = make_game("text_arena", load=load, players=names)  # remembers nothing: replays
    for at in (states[len(states) // 2], states[-2], states[0]):
        for one in (game, anew):
            assert one.decode(one.encode(at)) == at
            (mover,) = one.to_move(at)
            assert one.observe(at, mover) == game.observe(at, mover)
        number = len(at.replies)
        action = game.observe(at, mover).grammar.parse(said[number])
        assert (
            game.step(at, {mover: action}, Chance(luck, number + 1))
            == anew.step(at, {mover: action}, Chance(luck, number + 1))
            and game.step(at, {mover: action}, Chance(luck, number + 1))[0] == states[number + 1]
        )


@needs
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_game_when_checked_by_the_kit_then_no_finding(library: Any, family: str) -> None:
    game = make_game("text_arena", load=LOADS[family], players=players(family))
    assert [finding.line() for finding in check_game(game, other_processes=False)] == []


@needs
def test_global_luck_when_games_are_played_then_untouched_and_without_effect(library: Any) -> None:
    def played(disturbed: bool) -> tuple[list[str], object]:
        game = make_game("text_arena", load="LiarsDice-v0", players=("Ada", "Bo", "Cy"))
        state, seen = game.initial_state(Chance(4)), []
        for step, text in enumerate(texts("LiarsDice", 3), 1):
            if disturbed:
                random.random()
                np.random.rand()
            movers = game.to_move(state)
            if not movers:
                break
            seen.append(game.observe(state, movers[0]).text)
            state, _ = game.step(
                state, {movers[0]: game.observe(state, movers[0]).grammar.parse(text)}, Chance(4, step)
            )
        return seen, state

    random.seed(7)
    np.random.seed(7)
    before = random.getstate(), np.random.get_state()[1].tolist()
    calm = played(False)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert played(True) == calm


@needs
def test_luck_when_a_branch_asks_for_fresh_luck_then_its_own_from_there_on(library: Any) -> None:
    game = make_game("text_arena", load="KuhnPoker-v0")

    def cards(branch: str) -> list[str]:
        state, step, told = game.initial_state(Chance(3)), 0, []
        while movers := game.to_move(state):
            seen = game.observe(state, movers[0])
            told += [line for line in seen.text.splitlines() if "Your card is" in line]
            step += 1
            word = "[check]" if "[check]" in seen.text.rsplit("available", maxsplit=1)[-1] else "[call]"
            state, _ = game.step(
                state, {movers[0]: seen.grammar.parse(word)}, Chance(3, step, branch if step > 1 else "")
            )
        return told

    assert cards("") == cards("")
    drawn = [cards(branch) for branch in ("", "b1", "b2", "b3", "b4")]
    assert len({told[0] for told in drawn}) == 1
    assert len({str(told) for told in drawn}) > 1


@needs
def test_reply_when_too_long_then_cut_and_judged_by_the_library(library: Any) -> None:
    game = make_game("text_arena", max_characters=3)
    state = game.initial_state(Chance(0))
    action = game.observe(state, "Ada").grammar.parse("[4] is mine")
    assert isinstance(action, Malformed)
    state, _ = game.step(state, {"Ada": action}, Chance(0, 1))
    assert state.replies == ("[4]",)
    assert game.to_move(state) == ("Bo",)
    assert "[4]" not in game.observe(state, "Bo").text.rsplit("Available", maxsplit=1)[-1]


@needs
def test_play_when_it_takes_too_many_turns_then_truncated_without_reward(library: Any) -> None:
    game = make_game("text_arena", load="IteratedPrisonersDilemma-v0", max_turns=3)
    state = game.initial_state(Chance(0))
    for step in range(1, 4):
        (player,) = game.to_move(state)
        said = game.observe(state, player).grammar.parse("hello")
        state, outcome = game.step(state, {player: said}, Chance(0, step))
        assert (outcome.truncated, outcome.terminated) == (step == 3, False)
    assert set(outcome.rewards.values()) == {0.0} and game.to_move(state) == ()
    assert game.observe(state, "Bo").text
    assert make_game("text_arena", load="IteratedPrisonersDilemma-v0", max_turns=3).to_move(state) == ()


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (
            {"load": "Wordle-v0"},
            "'Wordle-v0' is not among the games of TextArena that can be loaded; expected one",
        ),
        ({"load": "TicTacTo-v0"}, "did you mean 'TicTacToe'"),
        ({"load": "TicTacToe"}, "and a version, as 'TicTacToe-v0'"),
    ],
)
def test_game_when_it_is_not_allowed_then_one_sentence(told: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GameParameterError, match=sentence):
        make_game("text_arena", **told)


@needs
def test_game_when_the_library_does_not_have_it_then_one_sentence(library: Any) -> None:
    with pytest.raises(ValueError, match="TextArena has no game 'TicTacToe-v7'; expected another version"):
        make_game("text_arena", load="TicTacToe-v7")
    with pytest.raises(ValueError, match="for 'TicTacToe-v0'; expected 2 names"):
        make_game("text_arena", players=("Ada", "Bo", "Cy"))


def test_library_when_it_is_missing_then_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(
        MissingLibraryError, match=r"game 'text_arena' needs the library 'textarena'.*\[games\]"
    ):
        make_game("text_arena")


def test_state_when_empty_then_hashable_by_value() -> None:
    assert TextArenaState((1,), ("a",)) == TextArenaState((1,), ("a",))
    assert hash(TextArenaState((1,), ("a",))) == hash(TextArenaState((1,), ("a",)))

"""The rules of scripted agents for the small games that can be solved: poker, tic-tac-toe, bargaining, hand signs."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

from coplay.agents.base import Seat, TurnKey
from coplay.games import Choice, Observation, derive_seed
from coplay.games.chance import SEED_BITS
from coplay.games.tic_tac_toe import free_cells, sign_to_move, winner

KUHN_ALPHA = 1 / 3
"""Probability α with which the first player in equilibrium bets the jack; he bets the king with 3α."""


class Seated(Protocol):
    """What a rule may know of its agent."""

    @property
    def seat(self) -> Seat:
        """Where it sits."""
        ...


def _options(observation: Observation) -> tuple[str, ...]:
    grammar = observation.grammar
    assert isinstance(grammar, Choice)
    return grammar.options


def lot(agent: Seated, key: TurnKey) -> float:
    """A fraction in [0, 1), another for each turn."""
    branch = (key.branch,) if key.branch else ()
    return derive_seed(agent.seat.seed, key.step, key.attempt, *branch) / (1 << SEED_BITS)


def first_option(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """The first move of the list: in poker to pass or fold, and to check where there is nothing to fold to."""
    return _options(observation)[0]


def last_option(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """The last move of the list: in poker to bet or raise, and to call where no raise is left."""
    return _options(observation)[-1]


def kuhn_equilibrium(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """The equilibrium of Kuhn poker (Kuhn 1950) with α = `KUHN_ALPHA`, in either seat."""
    options = _options(observation)
    chance = kuhn_bet_probability(observation.facts["card"], observation.facts["history"], KUHN_ALPHA)
    return options[int(lot(agent, key) < chance)]


def kuhn_bet_probability(card: str, history: Iterable[str], alpha: float) -> float:
    """Probability to bet (or call) in the equilibrium of parameter α in [0, 1/3], after the moves of `history`."""
    table = {
        (): {"jack": alpha, "queen": 0.0, "king": 3 * alpha},
        ("pass", "bet"): {"jack": 0.0, "queen": alpha + 1 / 3, "king": 1.0},
        ("pass",): {"jack": 1 / 3, "queen": 0.0, "king": 1.0},
        ("bet",): {"jack": 0.0, "queen": 1 / 3, "king": 1.0},
    }
    return table[tuple(history)][card]


def minimax(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """Perfect tic-tac-toe; of moves that are equally good, each equally likely."""
    board = "".join(observation.facts["board"])
    cells = best_cells(board)
    return str(cells[int(lot(agent, key) * len(cells))] + 1)


def best_cells(board: str) -> tuple[int, ...]:
    """The places that are worth most against a perfect opponent."""
    worth = {cell: -_worth(_put(board, cell)) for cell in free_cells(board)}
    return tuple(cell for cell, value in worth.items() if value == max(worth.values()))


@lru_cache(maxsize=8192)
def _worth(board: str) -> int:
    """1 if who is to move can win, -1 if he must lose, 0 for a draw."""
    cells = free_cells(board)
    if not cells:
        return -1 if winner(board) else 0
    return max(-_worth(_put(board, cell)) for cell in cells)


def _put(board: str, cell: int) -> str:
    return board[:cell] + sign_to_move(board) + board[cell + 1 :]


def cycle(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """All moves in their order, one a round."""
    options = _options(observation)
    played: int = observation.facts["round"] - 1
    return options[played % len(options)]


def beat_last(observation: Observation, agent: Seated, key: TurnKey) -> str:
    """The next move of the circle after the other's last one, which beats it; the first move to begin with."""
    options = _options(observation)
    last: dict[str, str] = observation.facts.get("last", {})
    theirs = [move for player, move in last.items() if player != agent.seat.player]
    return options[(options.index(theirs[0]) + 1) % len(options)] if theirs else options[0]


def even_bargainer(observation: Observation, agent: Seated, key: TurnKey) -> Any:
    """Offer half of the coins, rounded up; accept at least half."""
    facts = observation.facts
    if "offer" in facts:
        return "accept" if 2 * facts["offer"] >= facts["coins"] else "reject"
    return (facts["coins"] + 1) // 2


def hard_bargainer(observation: Observation, agent: Seated, key: TurnKey) -> Any:
    """Offer nothing; accept more than half."""
    facts = observation.facts
    if "offer" in facts:
        return "accept" if 2 * facts["offer"] > facts["coins"] else "reject"
    return 0

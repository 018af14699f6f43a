"""Write the golden transcripts again: `python tests/games/regenerate_transcripts.py`. Read the difference."""

import sys
from pathlib import Path
from typing import Any

from scripted_play import play

from coplay.games import make_game

FOLDER = Path(__file__).with_name("transcripts")

TWO = {"Ada": "tit_for_tat", "Bo": "random"}
SPLIT_TWO = {"Ada": "welfare_maximising", "Bo": "greedy"}
CASES: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "iterated_matrix": ("iterated_matrix", TWO, {"num_rounds": 4}),
    "iterated_matrix_three": (
        "iterated_matrix",
        {"Ada": "tit_for_tat", "Bo": "random", "Cy": "grim"},
        {"num_rounds": 4, "players": ("Ada", "Bo", "Cy"), "preset": "stag_hunt", "show_name": True},
    ),
    "iterated_matrix_cake": (
        "iterated_matrix",
        {"Ada": "random", "Bo": "random"},
        {
            "preset": "custom",
            "payoffs": (((4, 1), (2, 2), (0, 5)), ((1, 0.5), (3, -1), (2, 2))),
            "moves": ("cut", "keep"),
            "column_moves": ("left", "middle", "right"),
            "continuation_probability": 0.75,
            "num_rounds": 8,
        },
    ),
    "iterated_matrix_ordinal": (
        "iterated_matrix",
        {"Ada": "win_stay_lose_shift", "Bo": "random"},
        {
            "preset": "ordinal",
            "row_type": "chicken",
            "column_type": "prisoners_dilemma",
            "show_name": True,
            "num_rounds": 3,
        },
    ),
    "iterated_matrix_counterbalanced": (
        "iterated_matrix",
        TWO,
        {"num_rounds": 3, "moves": ("B", "A"), "listed": "reversed", "players": ("Bo", "Ada")},
    ),
    "split": ("split", SPLIT_TWO, {"num_rounds": 3}),
    "split_three": (
        "split",
        {"Ada": "welfare_maximising", "Bo": "fair", "Cy": "greedy"},
        {"num_rounds": 2, "players": ("Ada", "Bo", "Cy"), "value_generator": "ten_one_exclusive"},
    ),
    "split_exchange": (
        "split",
        {"Ada": "greedy", "Bo": "welfare_maximising"},
        {
            "value_generator": "five_one_exclusive",
            "equal_totals": False,
            "stock": 5,
            "reward_divisor": 75,
            "num_rounds": 2,
        },
    ),
    "trust_and_split": ("trust_and_split", SPLIT_TWO, {"num_rounds": 3}),
    "trust_and_split_no_talk": (
        "trust_and_split",
        SPLIT_TWO,
        {"num_rounds": 3, "messages_per_player": 0, "public_values": True, "claims": (0, 5, 10)},
    ),
    "public_goods": (
        "public_goods",
        {"Ada": "full_contributor", "Bo": "free_rider", "Cy": "conditional_contributor", "Di": "random"},
        {"num_rounds": 3},
    ),
    "coin_game": ("coin_game", {"Ada": "coin_cooperator", "Bo": "coin_greedy"}, {"num_rounds": 6}),
    "stag_hunt_talk": (
        "stag_hunt_talk",
        {"Ada": "trusting_hunter", "Bo": "bluffing_hunter"},
        {"num_rounds": 3},
    ),
    "stag_hunt_talk_signals": (
        "stag_hunt_talk",
        {"Ada": "trusting_hunter", "Bo": "random"},
        {"num_rounds": 3, "signals": ("stag", "hare")},
    ),
    "commons": (
        "commons",
        {"Ada": "sustainable_harvester", "Bo": "planning_harvester", "Cy": "random"},
        {"players": ("Ada", "Bo", "Cy"), "num_rounds": 4, "initial_stock": 80},
    ),
    "deal_or_no_deal": ("deal_or_no_deal", {"Ada": "fair", "Bo": "bayesian"}, {"num_rounds": 2}),
    "deal_or_no_deal_sequential": (
        "deal_or_no_deal",
        {"Ada": "hardliner", "Bo": "fair"},
        {"final_deal": "sequential", "max_messages": 2},
    ),
    "alternating_offers": (
        "alternating_offers",
        {"Ada": "subgame_perfect", "Bo": "fair"},
        {"num_rounds": 2, "max_offers": 4, "discounts": (0.9, 0.8)},
    ),
    "bargaining": ("bargaining", {"Ada": "fair", "Bo": "greedy"}, {"num_rounds": 2}),
    "bargaining_symbols": (
        "bargaining",
        {"Ada": "fair", "Bo": "greedy"},
        {"messages": "symbols", "show_proposals": False, "reward": "raw", "max_turns": 4},
    ),
    "buy_sell": (
        "buy_sell",
        {"Ada": "conceding", "Bo": "conceding"},
        {"num_rounds": 2, "always_gains": True},
    ),
    "buy_sell_random": ("buy_sell", {"Ada": "random", "Bo": "bayesian"}, {"opens": "buyer"}),
    "trading": ("trading", {"Ada": "fair", "Bo": "greedy", "Cy": "fair"}, {"num_rounds": 5}),
    "trading_own": (
        "trading",
        {"Ada": "fair", "Bo": "random", "Cy": "greedy", "Di": "fair"},
        {
            "players": ("Ada", "Bo", "Cy", "Di"),
            "goods": ("wheat", "salt", "gold", "corn"),
            "endowment": "own",
            "units": 4,
        },
    ),
    "ultimatum": ("ultimatum", {"Ada": "hardliner", "Bo": "fair"}, {"num_rounds": 2}),
    "kuhn_poker": ("kuhn_poker", {"Ada": "always_fold", "Bo": "always_bet"}, {}),
    "leduc_poker": ("leduc_poker", {"Ada": "always_bet", "Bo": "always_bet"}, {}),
    "rock_paper_scissors": ("rock_paper_scissors", {"Ada": "cycle", "Bo": "random"}, {"num_rounds": 3}),
    "tic_tac_toe": ("tic_tac_toe", {"Ada": "minimax", "Bo": "random"}, {}),
    "tasks": ("tasks", {"Ada": "random"}, {"tag": "answer"}),
    "two_round_bargaining": ("two_round_bargaining", {"Ada": "hard_bargainer", "Bo": "even_bargainer"}, {}),
    "search_qa": ("search_qa", {"Ada": "guesser"}, {}),
}
SEED = 7


def transcript(case: str, wording: str) -> str:
    """The dialogue of every seat, as one text."""
    name, agents, parameters = CASES[case]
    game = make_game(name, wording=wording, **parameters)
    lines: list[str] = []
    introduced: set[str] = set()
    for number, played in enumerate(play(game, agents, seed=SEED), start=1):
        lines.append(f"--- step {number}")
        for player, observation in played.observations.items():
            if player not in introduced:
                introduced.add(player)
                lines += [f"{player} [rules] {line}" for line in observation.system.split("\n")]
            lines += [f"{player} < {line}" for line in observation.text.split("\n")]
            lines.append(f"{player} > {played.replies[player]}")
        rewards = ", ".join(f"{player} {reward:.6g}" for player, reward in played.outcome.rewards.items())
        ended = " (end of round)" if played.outcome.round_ended else ""
        lines.append(f"rewards: {rewards}{ended}{' (end)' if played.outcome.terminated else ''}")
    return "\n".join(lines) + "\n"


def path_of(case: str, wording: str) -> Path:
    return FOLDER / f"{case}.{wording}.txt"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        for wording in ("full", "terse"):
            path_of(case, wording).write_text(transcript(case, wording), encoding="utf-8")
            sys.stdout.write(f"{path_of(case, wording).name}\n")


if __name__ == "__main__":
    main()

"""Golden transcripts, one text file per game and wording; regenerate_transcripts.py rewrites them."""

from types import ModuleType

import pytest

CASES = (
    "iterated_matrix",
    "iterated_matrix_three",
    "iterated_matrix_cake",
    "iterated_matrix_ordinal",
    "iterated_matrix_counterbalanced",
    "split",
    "split_three",
    "split_exchange",
    "trust_and_split",
    "trust_and_split_no_talk",
    "public_goods",
    "coin_game",
    "stag_hunt_talk",
    "stag_hunt_talk_signals",
    "commons",
    "deal_or_no_deal",
    "deal_or_no_deal_sequential",
    "alternating_offers",
    "bargaining",
    "bargaining_symbols",
    "buy_sell",
    "buy_sell_random",
    "trading",
    "trading_own",
    "ultimatum",
    "kuhn_poker",
    "leduc_poker",
    "rock_paper_scissors",
    "tic_tac_toe",
    "tasks",
    "two_round_bargaining",
    "search_qa",
)


def test_cases_when_listed_then_those_of_the_command(regenerate: ModuleType) -> None:
    assert tuple(regenerate.CASES) == CASES
    kept = {path.name for path in regenerate.FOLDER.iterdir()}
    assert kept == {f"{case}.{wording}.txt" for case in CASES for wording in ("full", "terse")}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wording", ["full", "terse"])
def test_transcript_when_played_again_then_line_by_line_the_same(
    regenerate: ModuleType, case: str, wording: str
) -> None:
    golden = regenerate.path_of(case, wording).read_text(encoding="utf-8").split("\n")
    played = regenerate.transcript(case, wording).split("\n")
    for number, (expected, line) in enumerate(zip(golden, played, strict=False), start=1):
        assert line == expected, f"line {number} of {case}.{wording}.txt"
    assert len(played) == len(golden)

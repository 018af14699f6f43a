"""Done when 3 of the issue, one seed: a warm start, reinforcement with what tools say masked, and without the mask."""

from pathlib import Path

import pytest

from coplay.scripts.search_study import Share, imitate, learn


def test_share_when_told_then_with_wilsons_interval() -> None:
    """Worked out by hand: p = 0.1, n = 100, z = 1.959964: centre 0.11480, half-width 0.05957."""
    assert Share(right=10, asked=100).interval == pytest.approx((0.05523, 0.17437), abs=1e-5)
    assert str(Share(right=10, asked=100)) == "0.100 [0.055, 0.174]"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.needs("bm25s")
def test_search_when_learnt_from_a_warm_start_then_answers_questions_never_asked(tmp_path: Path) -> None:
    warm = imitate(str(tmp_path), 1)
    masked = learn(str(tmp_path), warm, 1, masked=True)
    assert masked.after.mean - masked.before.mean >= 0.2
    assert masked.after.interval[0] > masked.before.interval[1]
    assert masked.cpu_seconds < 20 * 60
    unmasked = learn(str(tmp_path), warm, 1, masked=False)
    assert unmasked.before == masked.before
    assert unmasked.after.mean < masked.after.mean

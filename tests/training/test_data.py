"""Files that games and tools were made from: counted, and held to be the same when a run goes on."""

import json
from pathlib import Path

import pytest

from coplay.agents.desk import make_desk
from coplay.agents.tool_settings import Bm25Tool
from coplay.games import GameData, Mixture, Variant, make_game
from coplay.games.search_qa import read_questions
from coplay.training.data import check_data, data_metrics, data_record, read_data
from coplay.training.messages import ConfigError


def write(path: Path, *lines: dict[str, object]) -> str:
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


def test_questions_and_corpus_when_changed_then_the_run_does_not_go_on_law_8(tmp_path: Path) -> None:
    questions = write(tmp_path / "q.jsonl", {"question": "who?", "golden_answers": ["me"]})
    corpus = write(tmp_path / "c.jsonl", {"contents": "me\nIt was me."}, {"contents": "you\nNot you."})

    def found() -> tuple[Mixture, dict[str, GameData]]:
        game = make_game("search_qa", questions=questions)
        mixture = Mixture(variants=(Variant(name="qa", label="qa", game=game),))
        desk = make_desk({"search": Bm25Tool(corpus=corpus)})
        assert desk is not None
        return mixture, read_data(mixture, [], desk.data)

    mixture, data = found()
    assert {label: one.counts for label, one in data.items()} == {
        "qa": {"questions": 1},
        "tools/search": {"passages": 2},
    }
    metrics = data_metrics(data, mixture, run_seed=1, update=0, num_groups=2)
    assert metrics == {"data/questions": 1.0}, "a drawn question has no epochs"
    (tmp_path / "environment.json").write_text(json.dumps({"data": data_record(data)}), encoding="utf-8")
    check_data(tmp_path, found()[1])
    for path, name in ((corpus, "tools/search"), (questions, "qa")):
        before = Path(path).read_text(encoding="utf-8")
        Path(path).write_text(before.replace("me", "us"), encoding="utf-8")
        read_questions.cache_clear()
        with pytest.raises(
            ConfigError, match=rf"\({name}\) has the digest .* the same data only; put the old"
        ):
            check_data(tmp_path, found()[1])
        Path(path).write_text(before, encoding="utf-8")
        read_questions.cache_clear()
    check_data(tmp_path, found()[1])

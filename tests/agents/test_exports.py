"""What `coplay.agents` exports, and what it loads to do so."""

import subprocess
import sys
from pathlib import Path

import pytest

import coplay.agents
from coplay.agents import ChatFormat, LanguageAgent
from coplay.agents.chat import ChatFormat as ChatFormatAtHome


def test_package_when_imported_then_loads_no_heavy_library() -> None:
    code = (
        "import coplay.agents, coplay.agents.language, coplay.agents.transcript, coplay.agents.human, sys;"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(sys.prefix)
    )
    assert done.stdout.strip() == "[]"


def test_names_when_asked_for_then_come_from_their_modules() -> None:
    assert ChatFormat is ChatFormatAtHome and LanguageAgent.__module__ == "coplay.agents.language"


def test_name_when_unknown_then_the_sentence_lists_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"'Polity'.*Policy"):
        _ = coplay.agents.Polity

"""Questions with a search tool, one player: look things up, then answer; 1 point for the exact answer.

The setting of Search-R1 (Jin et al. 2025, arXiv 2503.09516): calls to a retriever inside a turn, a reward by exact
match after the usual normalisation (Rajpurkar et al. 2016: case, articles, punctuation). The questions that ship are
made up: who sells what in which town, 100 pairs of 10 people and 10 towns, each of 10 goods sold by 10 pairs at
random, so that an answer without search is right in one case of ten. 40 pairs are held out (`split`): memory of the
others does not help with them. The same facts ship as corpora for a retriever, `search_qa` and `search_qa_terse`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from coplay.games.base import Game, GameData, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, FreeText, Malformed
from coplay.games.parameters import OnePlayer, SeatsParameters, Tag
from coplay.games.rewards import exact_match
from coplay.games.tools import CallForm, Tool, Tools

SHIPPED = "shipped"
MAX_CHARACTERS = 200
Split = Literal["train", "held_out", "all"]


class SearchQaParameters(SeatsParameters):
    """What question answering with search can be told."""

    kind: Literal["search_qa"] = "search_qa"
    players: OnePlayer = ("Ada",)
    """Name of the one seat."""
    questions: str = SHIPPED
    """`shipped`, or a JSON Lines file with `question`, a list `golden_answers` and perhaps `split` in each line."""
    split: Split = "train"
    """Which questions are asked: those marked so, `train` where nothing is marked; or all."""
    max_calls: int = Field(2, ge=1, le=100)
    """Searches before the answer."""
    form: CallForm = "tagged"
    """How a search is called in the full wording; terse calls are a word and what is looked up."""
    tool: str = "search"
    """Name of the tool in the full wording."""
    tag: Tag = "answer"
    """In the full wording, the tag that an answer stands in; None for the answer alone."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """Which question is asked, and whether it was answered."""

    question: int
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """One question with the answers that count as right."""

    prompt: str
    answers: tuple[str, ...]
    terse: str
    split: str
    source: str = "search_qa"


@lru_cache(maxsize=16)
def read_questions(source: str) -> tuple[Question, ...]:
    """The questions of a file, or those that ship.

    Raises:
        ValueError: if there is no such file, or a line is no question.
    """
    if source == SHIPPED:
        text = (resources.files("coplay.games") / "data" / "search_qa_questions.jsonl").read_text("utf-8")
    elif Path(source).is_file():
        try:
            text = Path(source).read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"parameter 'questions' is {source!r}, which cannot be read: {error}; expected JSON Lines in UTF-8"
            ) from None
    else:
        raise ValueError(f"parameter 'questions' is {source!r}; expected {SHIPPED!r} or a JSON Lines file")
    return tuple(
        _question(line, f"line {number} of {source!r}")
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    )


def _question(line: str, where: str) -> Question:
    try:
        data = json.loads(line)
        asked, answers = data["question"], data["golden_answers"]
        told = (asked, data.get("terse", asked), data.get("split", "train"), *answers)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        asked, answers, told = None, (), (None,)
    if not answers or not all(isinstance(part, str) and part.strip() for part in told):
        raise ValueError(
            f"{where} is {line[:60]!r}; expected a JSON object with the text 'question' and a list 'golden_answers' of"
            " texts"
        )
    return Question(asked, tuple(answers), told[1], told[2])


class SearchQa(Game[SearchState]):
    """One question, calls of a search tool, one answer."""

    Parameters: ClassVar[type[SearchQaParameters]] = SearchQaParameters
    name: ClassVar[str] = "search_qa"

    def __init__(self, parameters: SearchQaParameters) -> None:
        super().__init__(parameters)
        known, split = read_questions(parameters.questions), parameters.split
        self._questions = [one for one in known if split in ("all", one.split)]
        if not self._questions:
            found = sorted({one.split for one in known})
            raise ValueError(
                f"parameter 'split' is {split!r}, but {parameters.questions!r} has the splits {found!r}; expected one"
                " of them, or 'all'"
            )
        self._full = parameters.wording == "full"
        self._grammar, self._tools = self._forms(known)
        self._spec = GameSpec(
            players=parameters.players,
            max_steps=1,
            has_chance=True,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(0.0, 1.0),
            malformed_rule=MalformedRule(
                retries=parameters.retries, penalty=parameters.penalty, consequence="counts as a wrong answer"
            ),
        )

    def _forms(self, known: tuple[Question, ...]) -> tuple[Choice | FreeText, Tools]:
        parameters: SearchQaParameters = self.parameters
        if self._full:
            tool = Tool(name=parameters.tool, description="what is found about a query")
            tools = Tools(
                offered=(tool,),
                form=parameters.form,
                max_calls=parameters.max_calls,
                around=("<information>", "</information>"),
                spent="No searches are left: reply with your answer.",
            )
            return FreeText(MAX_CHARACTERS, parameters.tag), tools
        if parameters.questions != SHIPPED:
            tool = Tool(name="search")
            return FreeText(MAX_CHARACTERS), Tools(
                offered=(tool,), form="plain", max_calls=parameters.max_calls, spent="reply"
            )
        goods = tuple(dict.fromkeys(one.answers[0] for one in known))
        tool = Tool(name="book", terms=tuple(one.terse for one in known))
        tools = Tools(
            offered=(tool,), form="plain", max_calls=parameters.max_calls, spent="reply", refusal="no"
        )
        return Choice(goods), tools

    @property
    def data(self) -> GameData:
        """The questions."""
        told = [repr((one.prompt, one.answers, one.terse)).encode() for one in self._questions]
        hashes = [hashlib.blake2b(one, digest_size=8).digest() for one in told]
        return GameData(
            name=self.parameters.questions,
            digest=hashlib.blake2b(b"".join(hashes), digest_size=8).hexdigest(),
            counts={"questions": len(hashes)},
            parts=frozenset(int.from_bytes(one) for one in hashes),
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> SearchState:
        """Draw the question."""
        return SearchState(chance.integer("question", len(self._questions)))

    def to_move(self, state: SearchState) -> tuple[str, ...]:
        """The player, once."""
        return () if state.answered else self._spec.players

    def observe(self, state: SearchState, player: str) -> Observation:
        """The question."""
        question = self._questions[state.question]
        return Observation(
            text=f"Question: {question.prompt}" if self._full else question.terse,
            grammar=self._grammar,
            system=self._rules(player),
            facts={"game": self.name, "question": question.prompt},
            tools=self._tools,
        )

    def _rules(self, player: str) -> str:
        tools = self._tools
        if not self._full:
            listed = self._grammar.labels()
            return (
                f"{tools.example(tools.offered[0].name)} x {tools.max_calls} reply {' '.join(listed or ())}"
            )
        times = "once" if tools.max_calls == 1 else f"up to {tools.max_calls} times"
        return (
            f"You are {player}. You answer a question.\n"
            f"Before you answer you may search {times}: reply with {tools.describe()}, and you are told what is"
            " found.\n"
            f"Then reply with your answer, as short as possible: {self._grammar.describe()}. The right answer is worth"
            " 1 point, any other reply nothing; capitals, articles and punctuation do not matter."
        )

    def step(
        self, state: SearchState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[SearchState, StepOutcome]:
        """Compare the answer with the right ones."""
        (player,) = self._spec.players
        action, question = actions[player], self._questions[state.question]
        correct = 0.0 if isinstance(action, Malformed) else exact_match(action.value, question)
        return SearchState(state.question, True), StepOutcome(
            rewards={player: correct},
            terminated=True,
            info={"correct": bool(correct), "question": question.prompt, "answers": list(question.answers)},
        )

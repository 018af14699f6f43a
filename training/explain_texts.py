"""What was said where an explanation names a reply or a token by its number."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coplay.rollout_tree import RolloutTree, Step, main_line
from coplay.rollout_tree.pieces import Pieces
from coplay.training.explanation import Baseline, Explanation, Sibling


def with_texts(trees: Iterable[RolloutTree], found: Explanation) -> Explanation:
    """The explanation with the text of every reply it names, as it was sampled: untrusted."""
    texts = _Texts({tree.episode: tree for tree in trees}, found.player)
    alignment = found.alignment
    if alignment is not None:
        past = [
            replace(
                one,
                replies=tuple([texts.sibling(mate, one.tick) for mate in one.replies]),
                baseline=one.baseline and texts.baseline(one.baseline, one.tick),
            )
            for one in alignment.expected
        ]
        alignment = replace(alignment, expected=tuple(past))
    return replace(
        found,
        baseline=texts.baseline(found.baseline, found.tick),
        lines=tuple([replace(one, reply=texts.first(found.episode, one.step)) for one in found.lines]),
        alignment=alignment,
    )


def with_pieces(found: Explanation, pieces: Pieces) -> Explanation:
    """The explanation with the text of every token, by the tokenizer it is of: untrusted."""
    texts = pieces([one.token for one in found.tokens])
    tokens = [replace(one, text=text) for one, text in zip(found.tokens, texts, strict=True)]
    return replace(found, tokens=tuple(tokens))


class _Texts:
    """Looks replies of one player up."""

    def __init__(self, trees: Mapping[str, RolloutTree], player: str) -> None:
        self._trees, self._player = trees, player
        self._steps: dict[str, dict[int, Step]] = {}
        self._main: dict[str, tuple[Step, ...]] = {}

    def baseline(self, one: Baseline, tick: int) -> Baseline:
        return replace(one, siblings=tuple([self.sibling(mate, tick) for mate in one.siblings]))

    def sibling(self, one: Sibling, tick: int) -> Sibling:
        if one.step is not None:
            steps = [self._step(one.episode, one.step)]
        else:
            if one.episode not in self._main:
                self._main[one.episode] = main_line(self._trees[one.episode])
            steps = [step for step in self._main[one.episode] if step.tick == tick]
        said = [turn.reply for step in steps for turn in step.turns if turn.player == self._player]
        return replace(one, reply=" / ".join(said))

    def first(self, episode: str, step: int) -> str:
        """The new reply of a branch's first step."""
        turns = self._step(episode, step).turns
        return " / ".join(turn.reply for turn in turns if not turn.trains_once_for)

    def _step(self, episode: str, number: int) -> Step:
        if episode not in self._steps:
            self._steps[episode] = {step.id: step for step in self._trees[episode].steps}
        return self._steps[episode][number]

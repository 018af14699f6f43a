"""Dialogues as training rows: the ids that the policy would have seen and, had it said so, sampled."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coplay.agents.base import ContextOverflowError, Sampling, Segment, TurnKey
from coplay.agents.chat import ChatFormat
from coplay.agents.constraint import TokenTrie
from coplay.agents.engine import Sample
from coplay.agents.language import SamplingSettings, reply_segments
from coplay.agents.transcript import Transcript
from coplay.games import Grammar, Malformed
from coplay.rollout_tree import RolloutTree, Step, Trajectory, Turn, build_trajectories
from coplay.training.demonstrations import Demonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A demonstration as rows of one tokenizer."""

    game: str
    """As the demonstration says."""
    trajectory: Trajectory
    num_tokens: int
    """Tokens that are learnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scribe:
    """Writes down dialogues as a policy would have lived through them."""

    chat: ChatFormat
    sampling: SamplingSettings
    constrained: bool
    """Replies of a grammar that lists them are the choice among these; else they end with the end token."""
    policy: str
    """In whose name rows are made."""

    def lesson(self, demonstration: Demonstration) -> Lesson | str:
        """The rows; or why there are none.

        `too_long`: the context; `reply_too_long`: a reply; `no_choice`: a grammar left nothing to learn.
        """
        turns = self._own(demonstration)
        if turns is None:
            try:
                turns = self._written(demonstration)
            except ContextOverflowError:
                return "too_long"
        if any(_longest(turn) > self.sampling.max_new_tokens for turn in turns):
            return "reply_too_long"
        path = _as_path(demonstration, turns, self.policy)
        if max(len(row.ids) for row in path.rows) > self._transcript().max_context:
            return "too_long"
        num_tokens = sum(int(row.sampled.sum()) for row in path.rows)
        return (
            Lesson(game=demonstration.game, trajectory=path, num_tokens=num_tokens)
            if num_tokens
            else "no_choice"
        )

    def _transcript(self) -> Transcript:
        return Transcript(self.chat, max_context=self.sampling.max_context, overflow=self.sampling.overflow)

    def _own(self, demonstration: Demonstration) -> tuple[Turn, ...] | None:
        """The stored ids as they are, if this tokenizer's and drawn in the way that is imitated; None: they are not."""
        for turn in demonstration.turns:
            drawn = turn.sampling
            if drawn is None or turn.tokenizer != self.chat.digest or drawn.constrained != self._binds(turn):
                return None
            if not drawn.constrained and turn.finish != "stop" and not turn.malformed:
                return None
            bound = [self._trie(turn, number) is not None for number in range(len(turn.calls))]
            if bound != [call.constrained for call in turn.calls]:
                return None
        return tuple(
            replace(
                turn,
                policy=self.policy,
                segments=turn.segments if learnt else _as_context(turn.segments),
                sampling=self._drawn(constrained=self._binds(turn)),
            )
            for turn, learnt in zip(demonstration.turns, demonstration.learnt, strict=True)
        )

    def _written(self, demonstration: Demonstration) -> tuple[Turn, ...]:
        transcript, turns = self._transcript(), []
        for turn, learnt in zip(demonstration.turns, demonstration.learnt, strict=True):
            heard = transcript.observe(turn.observation)
            segments, calls = [Segment(heard.ids)], list(turn.calls)
            for number, call in enumerate(turn.calls):
                if call.outcome == "too_long":
                    break  # it stands as the reply, and nothing was told
                segments += self._said(transcript, turn, number)
                told = transcript.hear(call.result)
                if told is None:
                    raise ContextOverflowError("the result of a tool does not fit the context")
                calls[number] = replace(
                    call, constrained=self._trie(turn, number) is not None, place=len(segments)
                )
                segments.append(Segment(told))
            segments += self._said(transcript, turn, len(turn.calls))
            turns.append(
                replace(
                    turn,
                    policy=self.policy,
                    segments=tuple(segments) if learnt else _as_context(segments),
                    fresh_context=heard.fresh,
                    tokenizer=self.chat.digest,
                    sampling=self._drawn(constrained=self._binds(turn)),
                    calls=tuple(calls),
                )
            )
        return tuple(turns)

    def _binds(self, turn: Turn) -> bool:
        return self._trie(turn, len(turn.calls)) is not None

    def _trie(self, turn: Turn, number: int) -> TokenTrie | None:
        """What a turn's sample after `number` calls is the choice of; None: it is free."""
        seen, grammar = turn.observation, self._grammar(turn, number)
        if not self.constrained or grammar is None:
            return None
        if number == len(turn.calls):
            return None if turn.malformed else self.chat.trie(grammar)
        listed = seen.tools is not None and turn.calls[number].text in (seen.tools.labels() or ())
        return self.chat.trie(grammar) if listed else None

    def _grammar(self, turn: Turn, number: int) -> Grammar | None:
        tools, grammar = turn.observation.tools, turn.observation.grammar
        return grammar if tools is None else tools.grammar_of(number, grammar)

    def _said(self, transcript: Transcript, turn: Turn, number: int) -> tuple[Segment, ...]:
        """Take down the call of this number, or the reply after the last one."""
        is_call = number < len(turn.calls)
        said = self._sample(turn, number)
        transcript.record(said.ids, turn.calls[number].text if is_call else turn.reply)
        return reply_segments(said, TurnKey(episode="", branch="", player=turn.player, step=0))

    def _sample(self, turn: Turn, number: int) -> Sample:
        """The canonical ids of a call or reply as an engine would give them, forced tokens marked."""
        chat, trie, is_call = self.chat, self._trie(turn, number), number < len(turn.calls)
        if trie is None:
            text = turn.calls[number].text if is_call else turn.reply
            tools = turn.observation.tools
            whole = tools is not None and tools.is_whole(text)  # such a call ends without an end token
            ids = (*chat.encode_label(text), *(() if whole else chat.stop_ids[:1]))
            return Sample(ids, (0.0,) * len(ids), (True,) * len(ids), "stop")
        if is_call:
            ids = chat.encode_label(turn.calls[number].text)
        else:
            assert not isinstance(turn.action, Malformed)
            ids = chat.encode_label(turn.observation.grammar.write(turn.action.value))
        ids = trie.sampled(ids, chat.stop_ids[0])
        chosen = tuple(len(allowed) > 1 for allowed in trie.walk(ids))
        return Sample(ids, (0.0,) * len(ids), chosen, "grammar")

    def _drawn(self, *, constrained: bool) -> Sampling:
        settings = self.sampling
        return Sampling(
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            seed=0,
            constrained=constrained,
        )


def lessons(
    scribe: Scribe, demonstrations: Iterable[Demonstration]
) -> tuple[tuple[Lesson, ...], Counter[str]]:
    """Those that can be written down, and how many could not, by reason."""
    found, dropped = [], Counter[str]()
    for demonstration in demonstrations:
        lesson = scribe.lesson(demonstration)
        if isinstance(lesson, str):
            dropped[lesson] += 1
        else:
            found.append(lesson)
    return tuple(found), dropped


def _as_context(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    return tuple(Segment(segment.ids) for segment in segments)


def _longest(turn: Turn) -> int:
    """Tokens of the longest sample of a turn: its reply, or a call before it."""
    ends = [call.place for call in turn.calls if call.place is not None]
    starts = [1, *[end + 1 for end in ends]]
    return max(
        sum(len(segment.ids) for segment in turn.segments[start:end])
        for start, end in zip(starts, [*ends, len(turn.segments)], strict=True)
    )


def _as_path(demonstration: Demonstration, turns: Sequence[Turn], policy: str) -> Trajectory:
    """One player's way through a game in which nothing else happened."""
    player = turns[0].player
    steps = tuple(
        Step(
            id=number,
            parent=number - 1 if number else None,
            branch="",
            index=number,
            tick=number,
            turns=(turn,),
            rewards={player: 0.0},
            status="running" if number < len(turns) - 1 else "terminated",
        )
        for number, turn in enumerate(turns)
    )
    tree = RolloutTree(
        episode=demonstration.name,
        iteration=0,
        game="",
        group=demonstration.game,
        group_seed=0,
        seats={player: policy},
        steps=steps,
    )
    return build_trajectories(tree)[0]

"""A language model in a seat: observations become tokens, sampled tokens become replies. No torch here."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from pydantic import Field

from coplay.agents.base import (
    AgentFactory,
    ContextOverflowError,
    Desk,
    Finish,
    Reply,
    Sampling,
    Seat,
    Segment,
    ToolCall,
    TurnKey,
)
from coplay.agents.engine import Engine, Sample, SampleRequest
from coplay.agents.settings import Settings
from coplay.agents.tools import answer_call, ends_call
from coplay.agents.transcript import Transcript
from coplay.games import Grammar, Observation, derive_seed
from coplay.games.tools import Tools

if TYPE_CHECKING:
    from coplay.agents.chat import ChatFormat

PolicyReference = str | Callable[[], str]
"""`name@version`, or where to ask for the current one when an agent sits down."""

_FINISHES = frozenset(("stop", "length", "grammar"))


class SamplingSettings(Settings):
    """How learners draw replies: temperature and grammar only, no top-k or top-p (rule 10)."""

    temperature: float = Field(1.0, gt=0)
    """Divides the logits; the trainer divides by the same."""
    max_new_tokens: int = Field(64, ge=1)
    """Most tokens of a reply; a reply cut there is malformed, with a counter of its own."""
    constrained: bool = True
    """Draw only tokens that continue a reply of the grammar, where its replies can be listed; else freely."""
    max_context: int | None = Field(None, ge=2)
    """Most tokens of context and reply together; None: what the model holds."""
    overflow: Literal["truncate", "window"] = "truncate"
    """A full context ends the episode as truncated, or starts a new row with the system text and the newest
    observation, all earlier turns dropped."""


class _Said(NamedTuple):
    """One sample and what it says."""

    sample: Sample
    text: str
    segments: tuple[Segment, ...]
    sampling: Sampling


class _Called(NamedTuple):
    """A turn with its calls: the last thing said, and all segments."""

    said: _Said
    segments: tuple[Segment, ...]
    calls: tuple[ToolCall, ...]
    finish: str


class LanguageAgent:
    """A policy in one seat of one episode; holds the seat's transcript and samples through an engine."""

    __slots__ = (
        "_chat",
        "_dialogue",
        "_engine",
        "_place",
        "_policy",
        "_run_seed",
        "_settings",
        "_tells_entropy",
        "_tools",
        "_transcript",
    )

    def __init__(
        self,
        engine: Engine,
        chat: "ChatFormat",
        policy: str,
        settings: SamplingSettings,
        *,
        run_seed: int,
        transcript: Transcript | None = None,
        tells_entropy: bool = False,
        tools: Desk | None = None,
    ) -> None:
        self._engine = engine
        self._chat = chat
        self._policy = policy
        self._settings = settings
        self._run_seed = run_seed
        self._tells_entropy = tells_entropy
        self._tools = tools
        self._transcript = transcript or Transcript(
            chat, max_context=settings.max_context, overflow=settings.overflow
        )
        self._place: tuple[str, str, str, int] | None = None
        self._dialogue = ""

    @property
    def policy(self) -> str:
        """`name@version` of every reply of this episode."""
        return self._policy

    @property
    def transcript(self) -> Transcript:
        """The seat's context so far."""
        return self._transcript

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        """Read what is new and sample an answer.

        Raises:
            ContextOverflowError: if the context is full.
            ValueError: if the engine's answer is no reply (no token, or columns of unequal length).
        """
        heard = self._transcript.observe(observation)
        said = await self._say(observation, key)
        calls: tuple[ToolCall, ...] = ()
        segments = (Segment(heard.ids), *said.segments)
        entropy, finish = said.sample.entropy, said.sample.finish
        if observation.tools is not None:
            turn = await self._call(observation, observation.tools, key, said, segments)
            said, segments, calls, finish = turn.said, turn.segments, turn.calls, turn.finish
        return Reply(
            text=said.text,
            policy=self._policy,
            finish=cast(Finish, finish),
            segments=segments,
            fresh_context=heard.fresh,
            sampling=said.sampling,
            tokenizer=self._chat.digest,
            entropy=entropy,
            calls=calls,
        )

    async def _say(self, observation: Observation, key: TurnKey, call: int = 0) -> "_Said":
        """Sample what follows `call` tool calls."""
        settings, chat, transcript = self._settings, self._chat, self._transcript
        grammar: Grammar | None = observation.grammar
        is_whole = None
        if observation.tools is not None:
            grammar = observation.tools.grammar_of(call, observation.grammar)
            is_whole = ends_call(observation.tools, chat.decode)
        trie = None if grammar is None or not settings.constrained else chat.trie(grammar)
        seed = derive_seed(self._run_seed, key.episode, key.branch, key.player, key.step, call, key.attempt)
        budget = transcript.budget(settings.max_new_tokens)
        sample = await self._engine.sample(
            SampleRequest(
                key=(key.episode, key.branch, key.player, key.step, call, key.attempt),
                policy=self._policy,
                context=transcript.context,
                dialogue=self._dialogue_name(key),
                seed=seed,
                temperature=settings.temperature,
                max_new_tokens=budget,
                stop_ids=chat.stop_ids,
                trie=trie,
                tells_entropy=self._tells_entropy,
                is_whole=is_whole,
            )
        )
        text = chat.decode(sample.ids)
        segments = reply_segments(sample, key)
        transcript.record(sample.ids, text)
        sampling = Sampling(
            temperature=settings.temperature,
            max_new_tokens=budget,
            seed=seed,
            constrained=trie is not None,
        )
        return _Said(sample, text, segments, sampling)

    async def _call(
        self,
        observation: Observation,
        tools: Tools,
        key: TurnKey,
        said: "_Said",
        segments: tuple[Segment, ...],
    ) -> "_Called":
        """Answer a reply that is a call, and ask again, until one is none or the budget is spent.

        A call beyond the budget is told so once; what is said then stands.
        """
        calls: list[ToolCall] = []
        kept_to_moves = self._settings.constrained and observation.grammar.labels() is not None
        while said.sample.finish != "length" and len(calls) <= tools.max_calls:
            call = await answer_call(self._tools, tools, said.text, number=len(calls), reminded=kept_to_moves)
            if call is None:
                break
            call = replace(call, constrained=said.sampling.constrained)
            told = self._transcript.hear(call.result)
            if told is None:
                calls.append(replace(call, outcome="too_long"))
                return _Called(said, segments, tuple(calls), "length")
            calls.append(replace(call, place=len(segments)))
            said = await self._say(observation, key, len(calls))
            segments = (*segments, Segment(told), *said.segments)
        return _Called(said, segments, tuple(calls), said.sample.finish)

    def close(self, observation: Observation) -> Reply | None:
        """Read the last observation of a truncated game; None if it does not fit the context."""
        try:
            heard = self._transcript.observe(observation, reply_tokens=0)
        except ContextOverflowError:
            return None  # no value is read there, and the record shows that by the missing turn
        return Reply(
            text="",
            policy=self._policy,
            finish="none",
            segments=(Segment(heard.ids),),
            fresh_context=heard.fresh,
            tokenizer=self._chat.digest,
        )

    def fork(self) -> "LanguageAgent":
        """An independent copy with the same context."""
        return LanguageAgent(
            self._engine,
            self._chat,
            self._policy,
            self._settings,
            run_seed=self._run_seed,
            transcript=self._transcript.fork(),
            tells_entropy=self._tells_entropy,
            tools=self._tools,
        )

    def _dialogue_name(self, key: TurnKey) -> str:
        """Name the row that the request extends; a branch and a new row are dialogues of their own."""
        place = (key.episode, key.branch, key.player, self._transcript.row)
        if place != self._place:
            self._place = place
            self._dialogue = "\x1f".join(map(str, place))
        return self._dialogue


def reply_segments(sample: Sample, key: TurnKey) -> tuple[Segment, ...]:
    """Cut a reply into runs of sampled tokens (actions) and forced ones (context).

    Raises:
        ValueError: if the sample is no reply.
    """
    ids, log_probs, sampled = sample.ids, sample.log_probs, sample.sampled
    if not ids or len(ids) != len(log_probs) or len(ids) != len(sampled) or sample.finish not in _FINISHES:
        raise ValueError(
            f"the engine answered {key} with {len(ids)} ids, {len(log_probs)} log-probs, {len(sampled)} marks"
            f" and finish {sample.finish!r}; expected as many of each, at least one, and a finish of"
            f" {sorted(_FINISHES)}"
        )
    if all(sampled):
        return (Segment(ids, True, log_probs),)
    segments = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or sampled[end] != sampled[start]:
            chosen = sampled[start]
            segments.append(Segment(ids[start:end], chosen, log_probs[start:end] if chosen else ()))
            start = end
    return tuple(segments)


def language_agent_factory(
    engine: Engine,
    chat: "ChatFormat",
    policy: PolicyReference,
    settings: SamplingSettings,
    *,
    run_seed: int,
    tools: Desk | None = None,
) -> AgentFactory:
    """Make language agents for any number of seats; each keeps the policy version it sat down with."""

    def sit(seat: Seat) -> LanguageAgent:
        name = policy if isinstance(policy, str) else policy()
        return LanguageAgent(
            engine,
            chat,
            name,
            settings,
            run_seed=run_seed,
            tells_entropy=seat.tells_entropy,
            tools=tools or seat.tools,
        )

    return sit

"""A language model in a seat: observations become tokens, sampled tokens become replies. No torch here."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from coplay.agents.base import (
    AgentFactory,
    ContextOverflowError,
    Finish,
    Reply,
    Sampling,
    Seat,
    Segment,
    TurnKey,
)
from coplay.agents.engine import Engine, Sample, SampleRequest
from coplay.agents.settings import Settings
from coplay.agents.transcript import Transcript
from coplay.games import Observation, derive_seed

if TYPE_CHECKING:
    from coplay.agents.chat import ChatFormat

PolicyReference = str | Callable[[], str]
"""`name@version`, or where to ask for the current one when an agent sits down."""

_FINISHES = frozenset(("stop", "length", "grammar"))


class SamplingSettings(Settings):
    """How learners draw replies: temperature and grammar only, no top-k or top-p (rule 10)."""

    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
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


def at_temperature(settings: SamplingSettings, temperature: float | None) -> SamplingSettings:
    """The same way of sampling at another temperature, for evaluation: 0 takes the likeliest token; None: the same."""
    return settings if temperature is None else settings.model_copy(update={"temperature": temperature})


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
    ) -> None:
        self._engine = engine
        self._chat = chat
        self._policy = policy
        self._settings = settings
        self._run_seed = run_seed
        self._tells_entropy = tells_entropy
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
        settings, chat, transcript = self._settings, self._chat, self._transcript
        heard = transcript.observe(observation)
        trie = chat.trie(observation.grammar) if settings.constrained else None
        call = 0
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
            )
        )
        text = chat.decode(sample.ids)
        segments = (Segment(heard.ids), *reply_segments(sample, key))
        transcript.record(sample.ids, text)
        return Reply(
            text=text,
            policy=self._policy,
            finish=cast(Finish, sample.finish),
            segments=segments,
            fresh_context=heard.fresh,
            sampling=Sampling(
                temperature=settings.temperature,
                max_new_tokens=budget,
                seed=seed,
                constrained=trie is not None,
            ),
            tokenizer=chat.digest,
            entropy=sample.entropy,
        )

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
) -> AgentFactory:
    """Make language agents for any number of seats; each keeps the policy version it sat down with."""

    def sit(seat: Seat) -> LanguageAgent:
        name = policy if isinstance(policy, str) else policy()
        return LanguageAgent(
            engine, chat, name, settings, run_seed=run_seed, tells_entropy=seat.tells_entropy
        )

    return sit

"""Fakes that tests of agents share: tokenizers with chosen chat templates, engines with written answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from coplay.agents.chat import ChatFormat
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.engine import Sample, SampleRequest

CONTROLS = ("<|bos|>", "<|start|>", "<|end|>", "<|eos|>", "<think>", "</think>")

CHATML = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def build_tokenizer(
    template: str, *, eos: str = "<|eos|>", adds_start: bool = False
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with control tokens; `adds_start` makes its encoder write <|bos|> by itself."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate((*alphabet, "hi", "Ġhi", "ĊĊ"))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ċ", "Ċ"), ("h", "i"), ("Ġ", "hi")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(token, normalized=False, special="think" not in token) for token in CONTROLS]
    backend.add_tokens(special)
    backend.add_special_tokens([token for token in special if token.special])
    if adds_start:
        start = backend.token_to_id("<|bos|>")
        backend.post_processor = processors.TemplateProcessing(
            single="<|bos|> $A", special_tokens=[("<|bos|>", start)]
        )
    make: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = make(tokenizer_object=backend, model_max_length=1000)
    tokenizer.add_special_tokens({"bos_token": "<|bos|>", "eos_token": eos})
    tokenizer.chat_template = template
    return tokenizer


@dataclass
class WrittenEngine:
    """Gives the answers written for it, in order, and keeps the requests."""

    answers: list[Sample]
    requests: list[SampleRequest] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> Sample:
        self.requests.append(request)
        return self.answers[len(self.requests) - 1]

    def publish(self, policy: str) -> str:
        return policy

    def close(self) -> None:
        self.answers.clear()


def answer(ids: Sequence[int], finish: str = "stop", sampled: Sequence[bool] | None = None) -> Sample:
    """An answer with log-prob -0.5 at each sampled token."""
    marks = tuple(sampled) if sampled is not None else (True,) * len(ids)
    return Sample(tuple(ids), tuple(-0.5 if mark else 0.0 for mark in marks), marks, finish)


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    return build_tokenizer


@pytest.fixture(scope="session")
def chatml() -> ChatFormat:
    """END then NEWLINE after every message (B03)."""
    return ChatFormat(build_tokenizer(CHATML))


@pytest.fixture(scope="session")
def chatml_template() -> str:
    return CHATML


@pytest.fixture(scope="session")
def terse() -> ChatFormat:
    """The embedded model's tokenizer."""
    return ChatFormat(embedded_tokenizer(), max_positions=4096)


@pytest.fixture
def written_engine() -> Callable[[list[Sample]], WrittenEngine]:
    return WrittenEngine


@pytest.fixture
def make_answer() -> Callable[..., Sample]:
    return answer

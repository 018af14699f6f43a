"""What `bench_end_to_end` plays: one reply to one prompt, paid for its distinct characters; and a tiny chat model.

No game of the shelf: it is registered by importing this module, which both sides of the benchmark do, so that they
read the same prompts and pay the same rewards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from coplay.games import Chance, Game, derive_seed
from coplay.games.base import GameParameters, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.grammar import Action, FreeText
from coplay.games.registry import register_game

PLAYER = "Writer"
MAX_CHARACTERS = 100_000
NUM_PROMPTS = 1 << 20
END = "<|im_end|>"
SYSTEM = (
    "You write one short text. It is paid by the number of different characters in it: letters, digits, signs"
    " and spaces each count once, capital and small letters are not the same, and what stands in it twice counts"
    " only once. Nothing else is paid. Do not explain what you do, do not greet, and do not repeat the words that"
    " you are given. The text has no title and no list, and it ends when you have nothing new to add."
)
_NOUNS = """
    river stone lamp garden window paper silver copper winter summer market bridge letter island mirror forest
    engine button carpet planet harbor candle bottle ladder basket hammer pepper saddle tunnel valley
"""
NOUNS = tuple(_NOUNS.split())

Message = dict[str, str]


class SingleTurnParameters(GameParameters):
    """What the game can be told."""

    kind: Literal["distinct_characters"] = "distinct_characters"
    num_words: int = Field(40, ge=1)
    """Words in the prompt, which make it as long as wanted."""


def prompt_text(number: int, num_words: int) -> str:
    """The words of prompt `number`."""
    words = [NOUNS[derive_seed("word", number, place) % len(NOUNS)] for place in range(num_words)]
    return f"Words: {', '.join(words)}. Your text:"


def prompt_messages(number: int, num_words: int) -> list[Message]:
    """The same prompt as a chat."""
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": prompt_text(number, num_words)},
    ]


def distinct_characters(text: str) -> float:
    """The reward."""
    return float(len(set(text)))


@dataclass(frozen=True, slots=True)
class SingleTurnState:
    """Which prompt, and whether it has been answered."""

    prompt: int
    over: bool = False


@register_game
class SingleTurn(Game[SingleTurnState]):
    """One player replies once; games of a group have one prompt."""

    Parameters: ClassVar[type[SingleTurnParameters]] = SingleTurnParameters
    name: ClassVar[str] = "distinct_characters"

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return GameSpec(
            players=(PLAYER,),
            max_steps=1,
            has_chance=True,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(0.0, float(MAX_CHARACTERS)),
            malformed_rule=MalformedRule(consequence="is paid like any other text"),
        )

    def initial_state(self, chance: Chance) -> SingleTurnState:
        """The prompt is the luck of the group."""
        return SingleTurnState(chance.integer("prompt", NUM_PROMPTS))

    def to_move(self, state: SingleTurnState) -> tuple[str, ...]:
        """The player, once."""
        return () if state.over else (PLAYER,)

    def observe(self, state: SingleTurnState, player: str) -> Observation:
        """The rules and the words."""
        text = prompt_text(state.prompt, self.parameters.num_words)
        return Observation(text=text, grammar=FreeText(MAX_CHARACTERS), system=SYSTEM)

    def step(
        self, state: SingleTurnState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[SingleTurnState, StepOutcome]:
        """Pay the text; one that the length limit cut counts as it is, as it does elsewhere."""
        reward = distinct_characters(actions[PLAYER].text)
        return SingleTurnState(state.prompt, True), StepOutcome(rewards={PLAYER: reward}, terminated=True)


def words_for(folder: str, prompt_tokens: int) -> int:
    """How many words bring the mean prompt of the model in `folder` nearest to `prompt_tokens`."""

    def mean_length(num_words: int) -> float:
        return sum(prompt_lengths(folder, [prompt_messages(n, num_words) for n in range(8)])) / 8

    few, many = mean_length(1), mean_length(41)
    return max(1, round(1 + (prompt_tokens - few) / ((many - few) / 40)))


def prompt_lengths(folder: str, prompts: list[list[Message]]) -> list[int]:
    """Tokens of each chat, header of the reply included."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts = [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in prompts
    ]
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


def make_tiny_model(folder: Path) -> None:
    """Write a chat model of 803,968 random parameters: 4 layers, hidden 128, 512 byte-level tokens, ChatML."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    texts = [SYSTEM, *(prompt_text(number, 40) for number in range(20))]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>", "<|im_start|>", END],
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    make: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = make(
        tokenizer_object=backend, eos_token=END, pad_token=END, model_max_length=2048
    )
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    end = backend.token_to_id(END)
    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=end, pad_token_id=end,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)

"""The tokenizer of the embedded model, made in code: one token per terse word, bytes for everything else."""

from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

START, END, PAD = "<|start|>", "<|end|>", "<|pad|>"

LABELS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
NUMBERS = tuple(str(number) for number in range(101))
_WORDS = """
    go x n you your other they their me my new end start round last next hand hands value values item
    items move moves play reply claim claims offer offers keep give take split share pay payoff points got
    won lost win lose draw tie wins yes no deal accept reject pass fair both all none half more less high
    low rock paper scissors cooperate defect stag hare swerve straight hat hats ball balls book books coin
    coins opera football silver gold salt wheat corn said says to and or of the is are was a i u p q r s t
    = -
"""
WORDS = tuple(_WORDS.split())
"""Single tokens of the terse wordings, whether they start a text or follow a space."""

CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Contents and nothing else: replies ended by their grammar need no end token, free replies sample END."""


def embedded_tokenizer() -> "PreTrainedTokenizerFast":
    """Make the tokenizer; every call gives an equal one.

    A space is put before every text and taken away on decoding, so that a word has one id wherever it
    stands: `"10 5"` is two tokens, `"A A 3 3"` four. Any text decodes to itself. Vocabulary: 3 controls, 256
    bytes, words.
    """
    from transformers import PreTrainedTokenizerFast

    make: Any = PreTrainedTokenizerFast  # its __init__ has no types
    tokenizer: PreTrainedTokenizerFast = make(
        tokenizer_object=embedded_backend(),
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def embedded_backend() -> Tokenizer:
    """The same tokenizer without transformers, down to the post-processor that it adds: enough to read tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"Ġ{word}" for word in dict.fromkeys((*LABELS, *NUMBERS, *WORDS))]
    vocabulary = {token: place for place, token in enumerate((START, END, PAD, *alphabet, *words))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    backend.normalizer = normalizers.Prepend(" ")
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1")
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    backend.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in (START, END, PAD)]
    )
    return backend

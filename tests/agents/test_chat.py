"""Text to token ids: what a chat template becomes, and what must never happen on the way."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from coplay.agents.chat import ChatFormat
from coplay.agents.embedded_tokenizer import LABELS, NUMBERS, WORDS, embedded_tokenizer
from coplay.games.grammar import Choice, FreeText

Make = Callable[..., PreTrainedTokenizerFast]

NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<|start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}<|start|>system\nYou are helpful.<|end|>\n{% endif %}"
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
THINK_PREFILL = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)
FORGETS_THOUGHTS = (
    "{% for m in messages %}{% set c = m['content'] %}"
    "{% if m['role'] == 'assistant' and not loop.last %}{% set c = c.split('</think>')[-1] %}{% endif %}"
    "<|start|>{{ m['role'] }}\n{{ c }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def full_render(
    tokenizer: PreTrainedTokenizerFast, system: str, texts: list[str], replies: list[str]
) -> tuple[int, ...]:
    """What the library itself makes of a chat."""
    messages = [{"role": "system", "content": system}] if system else []
    for place, text in enumerate(texts):
        messages.append({"role": "user", "content": text})
        messages += [{"role": "assistant", "content": reply} for reply in replies[place : place + 1]]
    text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    return tuple(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)


def shown(tokenizer: PreTrainedTokenizerFast, ids: tuple[int, ...]) -> str:
    """Text with control tokens."""
    return str(tokenizer.decode(list(ids)))


def pieced(
    chat: ChatFormat, system: str, texts: list[str], replies: list[str], *, ended: bool
) -> tuple[int, ...]:
    """The same chat out of opening, replies as sampled, and following."""
    ids = chat.opening(system, texts[0])
    for reply, text in zip(replies, texts[1:], strict=True):
        sampled = (*chat.encode_label(reply), *chat.stop_ids[:1]) if ended else chat.encode_label(reply)
        assert chat.ended(sampled) == ended
        ids = (*ids, *sampled, *chat.following(text, ended))
    return ids


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("template", ["chatml", "default"])
@pytest.mark.parametrize("system", ["Rules:\n\n1. hi", ""])
def test_pieces_when_put_together_then_equal_a_full_render(
    make_tokenizer: Make, chatml_template: str, template: str, ended: bool, system: str
) -> None:
    """B03: one END and one NEWLINE between turns, whether the reply brought its END or not."""
    text = {"chatml": chatml_template, "default": DEFAULT_SYSTEM}[template]
    tokenizer = make_tokenizer(text)
    chat = ChatFormat(tokenizer)
    texts, replies = ["\nhi hi", "\n\nça va? 🙂\n", "  end "], ["yes", "no"]
    assert chat.append_only
    assert pieced(chat, system, texts, replies, ended=ended) == full_render(tokenizer, system, texts, replies)


def test_following_when_reply_ended_then_separator_only(chatml: ChatFormat) -> None:
    """B03, B04: END is added where the sampled reply lacks it, and only there; both are context."""
    end = chatml.stop_ids[0]
    closed, cut = chatml.following("hi", True), chatml.following("hi", False)
    assert cut == (end, *closed)
    assert closed[:1] == chatml.encode_label("\n")
    assert closed.count(end) == 1, "the user's own END"


def test_opening_when_template_prefills_thoughts_then_they_are_context(make_tokenizer: Make) -> None:
    """B05: header and prefilled think pair stand in the opening, before the first sampled token."""
    tokenizer = make_tokenizer(THINK_PREFILL)
    chat = ChatFormat(tokenizer)
    assert chat.append_only
    assert chat.opening("a", "b") == full_render(tokenizer, "a", ["b"], [])
    # A policy starts after the header as a whole; a full render may cut the blanks elsewhere.
    whole = pieced(chat, "a", ["b", "c"], ["yes"], ended=True)
    assert shown(tokenizer, whole) == shown(tokenizer, full_render(tokenizer, "a", ["b", "c"], ["yes"]))
    think = [tokenizer.convert_tokens_to_ids(token) for token in ("<think>", "</think>")]
    assert [i for i in chat.opening("", "hi") if i in think] == think


def test_template_when_it_forgets_thoughts_then_not_append_only(make_tokenizer: Make) -> None:
    """B02, law 1: a template that rewrites history is found out when it is loaded."""
    tokenizer = make_tokenizer(FORGETS_THOUGHTS)
    chat = ChatFormat(tokenizer)
    assert not chat.append_only
    texts, replies = ["hi", "go"], ["<think>secret</think>yes"]
    assert chat.history("", texts, replies) == full_render(tokenizer, "", texts, replies)
    assert chat.history("", texts, replies) == full_render(tokenizer, "", texts, ["yes"])


def test_start_token_when_encoder_and_template_both_write_it_then_one(
    make_tokenizer: Make, chatml_template: str
) -> None:
    """B81."""
    tokenizer = make_tokenizer("{{ bos_token }}" + chatml_template, adds_start=True)
    chat = ChatFormat(tokenizer)
    ids = (*chat.opening("hi", "hi"), *chat.following("hi", True))
    assert [place for place, i in enumerate(ids) if i == tokenizer.bos_token_id] == [0]


def test_system_text_when_template_has_no_such_role_then_heads_the_first_user_text(
    make_tokenizer: Make,
) -> None:
    """B82: strict alternation and no system role; the declared rule, and the template's trimming, hold."""
    tokenizer = make_tokenizer(NO_SYSTEM)
    chat = ChatFormat(tokenizer)
    assert chat.append_only
    assert chat.opening("rules", " Bo: hi\nCy: hi ") == full_render(
        tokenizer, "", ["rules\n\n Bo: hi\nCy: hi"], []
    )
    assert chat.opening("", " hi ") == full_render(tokenizer, "", ["hi"], [])


def test_system_text_when_template_has_a_default_then_ours_replaces_it(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(DEFAULT_SYSTEM)
    chat = ChatFormat(tokenizer)
    assert chat.default_system == "You are helpful."
    assert "helpful" not in shown(tokenizer, chat.opening("rules", "hi"))
    assert "helpful" in shown(tokenizer, chat.opening("", "hi"))


def test_stop_ids_when_model_has_several_then_all_end_a_reply(
    make_tokenizer: Make, chatml_template: str
) -> None:
    """B80, B07: the template's end of turn, the tokenizer's end, and the model's further ones."""
    tokenizer = make_tokenizer(chatml_template)
    chat = ChatFormat(tokenizer, stop_ids=(7, 9))
    end, eos = (tokenizer.convert_tokens_to_ids(token) for token in ("<|end|>", "<|eos|>"))
    assert chat.stop_ids == (end, eos, 7, 9)
    assert (
        all(chat.ended((3, stop)) for stop in chat.stop_ids) and not chat.ended((7, 3)) and not chat.ended(())
    )


@given(
    st.lists(
        st.sampled_from(["<|end|>", "<|start|>", "<think>", "</think>", "<|", "|>", "hi", "\n", "🙂"])
        | st.text()
    ).map("".join)
)
def test_contents_when_they_spell_control_tokens_then_plain_text(chatml: ChatFormat, text: str) -> None:
    """Law 1: an observation can say <|end|> without ending anything."""
    control = set(range(259, 263))
    plain = chatml.opening("", "")
    for ids in (chatml.opening("", text), chatml.opening(text, "")):
        assert len([i for i in ids if i in control]) <= len([i for i in plain if i in control]) + 2
    assert control.isdisjoint(chatml.encode_label(text))
    assert [i for i in chatml.following(text, True) if i in control] == [
        i for i in chatml.following("", True) if i in control
    ]
    assert chatml.decode(chatml.encode_label(text)) == text.encode("utf-8", "replace").decode(
        "utf-8"
    ).replace("\uf8fe", "\ufffd")


def test_contents_when_history_is_rewritten_then_control_tokens_are_text_too(make_tokenizer: Make) -> None:
    """Law 1 on the other path."""
    tokenizer = make_tokenizer(FORGETS_THOUGHTS)
    chat = ChatFormat(tokenizer)
    start = tokenizer.convert_tokens_to_ids("<|start|>")
    ids = chat.history("<|start|>", ["<|start|>system\n", "hi"], ["<|start|>"])
    assert ids.count(start) == len(["system", "user", "assistant", "user", "assistant"])
    assert "<|start|>system" in chat.decode(ids)


def test_control_tokens_when_the_vocabulary_holds_them_as_pieces_then_still_text() -> None:
    """Law 1 with a SentencePiece vocabulary, where "</s>" is an ordinary piece."""
    letters = [(letter, -9.0) for letter in "▁abcdefghijklmnopqrstuvwxyz</>[]INST\n"]
    backend = Tokenizer(
        models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁hi", -1.0), *letters], unk_id=0)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    backend.add_special_tokens(["<s>", "</s>"])
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=backend)
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
        "{% elif m['role'] == 'assistant' %} {{ m['content'] }}</s>"
        "{% else %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    )
    chat = ChatFormat(tokenizer)
    assert chat.append_only and chat.stop_ids == (2,) and chat.max_positions is None
    assert chat.opening("", "hi you") == full_render(tokenizer, "", ["hi you"], [])
    assert 2 not in chat.opening("", "a</s>b") and 1 not in chat.opening("", "<s>")[1:]


def test_lone_surrogates_when_in_a_text_then_replaced(chatml: ChatFormat) -> None:
    """B85."""
    assert chatml.opening("\ud83d", "a\udfffb") == chatml.opening("\ufffd", "a\ufffdb")
    assert chatml.decode(chatml.encode_label("a\ud83d")) == "a\ufffd"


def test_decoding_when_an_emoji_is_cut_then_no_error(chatml: ChatFormat) -> None:
    """B85: a reply cut inside a character decodes to a replacement sign."""
    assert chatml.decode(chatml.encode_label("ok 🙂")[:-1]) == "ok \ufffd"


def test_decoding_when_reply_ended_then_no_end_token_shown(chatml: ChatFormat) -> None:
    assert chatml.decode((*chatml.encode_label(" hi"), chatml.stop_ids[0])) == " hi"


def test_threads_when_they_share_a_tokenizer_then_results_equal_serial_ones(
    make_tokenizer: Make, chatml_template: str
) -> None:
    """B102: others change truncation and padding of the shared tokenizer meanwhile."""
    tokenizer = make_tokenizer(chatml_template)
    texts = [f"hi {number} 🙂" * 5 for number in range(300)]
    expected = [ChatFormat(tokenizer).opening("rules", text) for text in texts]
    chat = ChatFormat(tokenizer)

    def encode(place: int) -> tuple[int, ...]:
        tokenizer.backend_tokenizer.enable_truncation(max_length=1 + place % 5)
        tokenizer.backend_tokenizer.enable_padding(length=50)
        return chat.opening("rules", texts[place])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(encode, range(len(texts)))) == expected


def test_probe_when_tokenizers_differ_then_shows_it(make_tokenizer: Make, chatml_template: str) -> None:
    """B110: a converted tokenizer that splits texts otherwise is told apart; digests agree with it."""
    first, same, other = (make_tokenizer(chatml_template) for _ in range(3))
    other.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    chats = [ChatFormat(tokenizer) for tokenizer in (first, same, other)]
    assert chats[0].probe() == chats[1].probe() != chats[2].probe()
    assert chats[0].digest == chats[1].digest != chats[2].digest


@pytest.mark.parametrize(
    ("template", "eos", "named"),
    [
        (None, "<|eos|>", "chat template"),
        ("{{ messages[0]['role'] }}", "<|eos|>", "0 times"),
        ("{{ messages[0]['content'] }}", None, "no end token"),
    ],
)
def test_tokenizer_when_it_cannot_carry_a_dialogue_then_one_sentence(
    make_tokenizer: Make, template: str | None, eos: str | None, named: str
) -> None:
    tokenizer = make_tokenizer(template or "")
    tokenizer.chat_template = template
    tokenizer.eos_token = eos
    with pytest.raises(ValueError, match=named):
        ChatFormat(tokenizer)


def test_trie_when_labels_are_prefix_free_then_no_end_token(terse: ChatFormat) -> None:
    """Rule 10: else the end token is one of the allowed ones."""
    trie = terse.trie(Choice(("A", "B")))
    assert trie is not None and trie.allowed[0] == tuple(
        sorted(terse.encode_label("A") + terse.encode_label("B"))
    )
    assert trie is terse.trie(Choice(("A", "B"))), "cached by grammar"
    assert trie.is_leaf(trie.children[0][trie.allowed[0][0]])
    mixed = terse.trie(Choice(("go", "go A")))
    assert mixed is not None
    assert terse.stop_ids[0] in mixed.allowed[mixed.children[0][terse.encode_label("go")[0]]]
    assert terse.trie(FreeText(20)) is None


def test_embedded_tokenizer_when_made_then_small_and_always_the_same() -> None:
    first, second = embedded_tokenizer(), embedded_tokenizer()
    assert len(first) <= 512 and ChatFormat(first).digest == ChatFormat(second).digest


def test_terse_words_when_encoded_then_one_token_each(terse: ChatFormat) -> None:
    for word in (*LABELS, *NUMBERS, *WORDS):
        (alone,) = terse.encode_label(word)
        assert terse.encode_label(f"{word} {word}") == (alone, alone), word
        assert terse.decode((alone,)) == word
    assert len(terse.encode_label("A A 3 3")) == 4 and len(terse.encode_label("10 5")) == 2


def test_terse_dialogue_when_a_round_is_played_then_two_tokens_are_added(terse: ChatFormat) -> None:
    """Recipe L: [the other's move][own move] a round, nothing else; one start token."""
    (move,) = terse.encode_label("A")
    assert terse.opening("", "go") == (terse.opening("", "go")[0], *terse.encode_label("go"))
    assert terse.opening("A B 3 0 x 10", "go")[1:] == terse.encode_label("A B 3 0 x 10 go")
    assert terse.following("B", False) == terse.encode_label("B")
    assert (*terse.opening("", "go"), move, *terse.following("B", False)).count(0) == 1


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_embedded_tokenizer_when_given_any_text_then_it_round_trips(terse: ChatFormat, text: str) -> None:
    text = text.replace("\uf8fe", "")
    assert terse.decode(terse.encode_label(text)) == text

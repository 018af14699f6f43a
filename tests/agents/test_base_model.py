"""The base model: made from a seed, loaded from a folder, refused where its parts do not fit."""

import json
from pathlib import Path

import pytest
import torch

from coplay.agents import tree_attention
from coplay.agents.base_model import load_base
from coplay.agents.settings import EmbeddedModel, FolderModel

SMALL = EmbeddedModel(hidden=16, intermediate=32)


def save(path: Path) -> FolderModel:
    base = load_base(SMALL, seed=1)
    base.model.save_pretrained(str(path))
    base.tokenizer.save_pretrained(str(path))
    return FolderModel(path=str(path))


def test_embedded_model_is_a_function_of_its_seed_and_leaves_luck_alone() -> None:
    """Law 7."""
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, two, three = (load_base(SMALL, seed=seed).model.state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], three["lm_head.weight"])


def test_embedded_model_is_frozen_untied_and_in_evaluation_mode() -> None:
    base = load_base(EmbeddedModel(), seed=0)
    assert not any(parameter.requires_grad for parameter in base.model.parameters())
    assert not base.model.training
    assert base.model.lm_head.weight is not base.model.get_input_embeddings().weight
    assert base.model.config._attn_implementation == tree_attention.NAME
    assert base.chat.max_positions == 4096
    assert base.digest == base.chat.digest


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"agents\.model\.num_heads"):
        load_base(EmbeddedModel(hidden=16, num_heads=3), seed=0)


def test_folder_model_when_loaded_equals_the_saved_one(tmp_path: Path) -> None:
    base = load_base(save(tmp_path), seed=0)
    assert torch.equal(base.model.lm_head.weight, load_base(SMALL, seed=1).model.lm_head.weight)
    assert base.digest == load_base(SMALL, seed=1).digest


def test_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no config\.json"):
        load_base(FolderModel(path=str(tmp_path)), seed=0)


def test_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    """B110: model and tokenizer are checked together."""
    settings = save(tmp_path)
    base = load_base(SMALL, seed=1)
    base.model.resize_token_embeddings(300)
    base.model.save_pretrained(str(tmp_path))
    with pytest.raises(ValueError, match="rows for 300"):
        load_base(settings, seed=0)


def test_tokenizer_that_loses_its_role_markers_is_refused(tmp_path: Path) -> None:
    """B110: a probe chat with accents, emoji and markers must come back."""
    settings = save(tmp_path)
    file = tmp_path / "tokenizer.json"
    data = json.loads(file.read_text())
    data["decoder"] = None
    file.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"reads .* back as"):
        load_base(settings, seed=0)


def test_model_with_windowed_attention_is_refused(tmp_path: Path) -> None:
    settings = save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["layer_types"] = ["full_attention", "sliding_attention"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="sliding_attention"):
        load_base(settings, seed=0)

"""Policies: own tensors only, strict weights, references that stay, names that mix nothing up."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from coplay.agents.base_model import BaseModel, load_base
from coplay.agents.critic import build_critic
from coplay.agents.policy import Policy, build_policies, check_trainable
from coplay.agents.settings import EmbeddedModel, FolderModel, FullWeights, LoraWeights, PolicySettings
from coplay.agents.trunk import positions_and_mask

SMALL = EmbeddedModel(hidden=16, intermediate=32)
LORA = PolicySettings(weights=LoraWeights(rank=4, alpha=8))
FULL = PolicySettings(weights=FullWeights())
IDS = torch.tensor([[5, 9, 3, 7, 300, 20, 11]])


def build(
    policies: dict[str, PolicySettings],
    *,
    seed: int = 0,
    keep_reference: bool = True,
    base: BaseModel | None = None,
) -> tuple[BaseModel, dict[str, Policy]]:
    base = base or load_base(SMALL, seed=0)
    return base, build_policies(base, policies, seed=seed, keep_reference=keep_reference)


def scores(policy: Policy, ids: Tensor = IDS) -> Tensor:
    with torch.no_grad():
        return policy.logits(policy.hidden(ids)).log_softmax(-1)


def push(policy: Policy, amount: float = 0.05) -> None:
    """Move every tensor of a policy, each cell by its own amount."""
    generator = torch.Generator().manual_seed(1)
    state = {k: v + amount * torch.randn(v.shape, generator=generator) for k, v in policy.state().items()}
    policy.load_state(state)


def bytes_of(tensors: dict[str, Any]) -> dict[str, bytes]:
    return {name: tensor.detach().cpu().float().numpy().tobytes() for name, tensor in tensors.items()}


def folder_model(path: Path, **changes: Any) -> FolderModel:
    """Save a small model as transformers does and say where."""
    base = load_base(SMALL, seed=3)
    for name, value in changes.items():
        setattr(base.model.config, name, value)
    base.model.save_pretrained(str(path))
    base.tokenizer.save_pretrained(str(path))
    return FolderModel(path=str(path))


@pytest.mark.parametrize("mover", ["ada", "bo", "cy", "dan"])
def test_step_of_one_policy_moves_no_other_and_no_base(mover: str) -> None:
    """Law 6, B30: after one policy's optimiser step only its weights changed, and they did change."""
    base, policies = build({"ada": LORA, "bo": LORA, "cy": FULL, "dan": FULL})
    critic = build_critic(base, seed=0)
    inner = {id(t) for p in policies.values() for t in p.weights.tensors().values()}
    frozen = {name: t for name, t in base.model.named_parameters() if id(t) not in inner}
    before = {name: bytes_of(policy.state()) for name, policy in policies.items()}
    base_before, critic_before = bytes_of(frozen), bytes_of(critic.state())
    replies = {name: scores(policy) for name, policy in policies.items()}
    policy = policies[mover]
    optimizer = torch.optim.SGD(list(policy.named_parameters().values()), lr=1.0)
    for _ in range(2):  # B of LoRA is zero at first, so A moves with the second step
        optimizer.zero_grad()
        policy.logits(policy.hidden(IDS)).log_softmax(-1)[0, -1, 7].backward()
        optimizer.step()
    for name, other in policies.items():
        same = bytes_of(other.state()) == before[name]
        assert same == (name != mover)
        assert torch.equal(scores(other), replies[name]) == (name != mover)
    assert bytes_of(frozen) == base_before
    assert bytes_of(critic.state()) == critic_before
    assert all(t.grad is None for t in frozen.values())


def test_second_role_scored_after_first_update_needs_stored_log_probs() -> None:
    """B29: two roles share a policy; log-probs taken before the first role's step differ from those after it."""
    _, policies = build({"both": LORA})
    before = scores(policies["both"])
    push(policies["both"])
    assert not torch.allclose(scores(policies["both"]), before, atol=1e-3)


@pytest.mark.parametrize("weights", [LoraWeights(rank=4, alpha=8), FullWeights()])
def test_trainable_tensors_after_load_are_exactly_the_learners(
    weights: LoraWeights | FullWeights, tmp_path: Path
) -> None:
    """B31: load the frozen opponent, then the learner, switch between them, and check."""
    base, policies = build(
        {"bo-old": PolicySettings(weights=weights, trained=False), "ada": PolicySettings(weights=weights)}
    )
    for name, policy in policies.items():
        policy.save(tmp_path / name)
    for name, policy in policies.items():
        policy.load(tmp_path / name)
        scores(policy)
        with policies["ada"].reference():
            scores(policies["ada"])
        check_trainable(base, policies)
    assert not policies["bo-old"].named_parameters()
    assert all(t.requires_grad for t in policies["ada"].named_parameters().values())


def test_check_trainable_when_peft_switches_adapters_then_names_the_policy() -> None:
    """B31: PEFT's own switch moves requires_grad; the check says whose."""
    base, policies = build({"ada": LORA, "bo": LORA})
    base.adapters.peft.set_adapter("p1")
    with pytest.raises(RuntimeError, match="ada: "):
        check_trainable(base, policies)


def gradients(policy: Policy) -> dict[str, Tensor]:
    policy.logits(policy.hidden(IDS)).log_softmax(-1)[0, :, 7].sum().backward()
    return {
        name: tensor.grad.clone()
        for name, tensor in policy.named_parameters().items()
        if tensor.grad is not None
    }


@pytest.mark.parametrize("weights", [LoraWeights(rank=4, alpha=8), FullWeights()])
def test_gradient_checkpointing_gives_the_gradients_without_it(
    weights: LoraWeights | FullWeights, tmp_path: Path
) -> None:
    """B32: every LoRA B tensor gets a gradient, the same as without checkpointing, whatever is active by then."""
    plain = folder_model(tmp_path / "m")
    found = {}
    for on in (False, True):
        base = load_base(plain.model_copy(update={"gradient_checkpointing": on}), seed=0)
        policies = build_policies(
            base,
            {"ada": PolicySettings(weights=weights), "bo": PolicySettings()},
            seed=0,
            keep_reference=True,
        )
        push(policies["ada"])
        push(policies["bo"], 0.3)
        loss = policies["ada"].logits(policies["ada"].hidden(IDS)).log_softmax(-1)[0, :, 7].sum()
        policies["bo"].hidden(IDS)  # another adapter is active when the backward pass recomputes
        loss.backward()
        found[on] = {n: t.grad for n, t in policies["ada"].named_parameters().items()}
    assert found[False].keys() == found[True].keys()
    for name, gradient in found[False].items():
        assert gradient is not None
        assert gradient.abs().sum() > 0 or "embed" in name
        torch.testing.assert_close(found[True][name], gradient, rtol=1e-5, atol=1e-6)


def test_checkpointing_when_on_really_recomputes(tmp_path: Path) -> None:
    """B32: the switch does something: fewer tensors are saved for the backward pass."""
    counts = {}
    for on in (False, True):
        base = load_base(
            folder_model(tmp_path / str(on)).model_copy(update={"gradient_checkpointing": on}), seed=0
        )
        policy = build_policies(base, {"ada": LORA}, seed=0, keep_reference=False)["ada"]
        saved: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=saved: s.append(1) or t, lambda t: t):
            policy.hidden(IDS)
        counts[on] = len(saved)
    assert counts[True] < counts[False] / 2


def test_scoring_twice_gives_equal_bytes() -> None:
    """B70: no dropout anywhere; modes are the same after training and scoring."""
    _, policies = build({"ada": LORA, "cy": FULL})
    for policy in policies.values():
        first = scores(policy)
        gradients(policy)
        assert torch.equal(scores(policy), first)


def test_dropout_of_a_checkpoint_when_loaded_then_is_off(tmp_path: Path) -> None:
    """B70: attention dropout written in the model's config is not used."""
    base = load_base(folder_model(tmp_path, attention_dropout=0.5), seed=0)
    assert base.model.config.attention_dropout == 0.0
    policy = build_policies(base, {"ada": LORA}, seed=0, keep_reference=False)["ada"]
    assert torch.equal(policy.hidden(IDS), policy.hidden(IDS))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", [LORA, FULL])
def test_log_probs_of_a_short_row_do_not_depend_on_padding_side(side: str, kind: PolicySettings) -> None:
    """B72, B71: rows of 3 and 7 tokens, padded left or right, equal the rows alone."""
    _, policies = build({"ada": kind})
    policy = policies["ada"]
    push(policy)
    short = IDS[:, :3]
    ids, mask = torch.zeros(2, 7, dtype=torch.long), torch.zeros(2, 7, dtype=torch.bool)
    ids[1], mask[1] = IDS[0], True
    place = slice(4, 7) if side == "left" else slice(0, 3)
    ids[0, place], mask[0, place] = short[0], True
    with torch.no_grad():
        hidden = policy.hidden(ids, None, mask)
        both = policy.logits(hidden).log_softmax(-1)
    assert torch.isfinite(hidden).all()
    torch.testing.assert_close(both[0, place], scores(policy, short)[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(both[1], scores(policy)[0], rtol=0, atol=1e-5)


def test_positions_of_a_left_padded_row_count_its_own_tokens() -> None:
    """B72: rotary positions hide a shift, learned ones would not; padding still sees itself."""
    real = torch.tensor([[False, False, True, True], [True, True, True, True]])
    positions, mask = positions_and_mask(torch.zeros(2, 4, dtype=torch.long), None, real)
    assert positions is not None
    assert mask is not None
    assert positions.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]


def test_explicit_positions_and_tree_masks_equal_the_rows_they_stand_for() -> None:
    """Law 4: two continuations of one prefix in one row, ancestors only, restarted positions."""
    _, policies = build({"ada": LORA})
    policy = policies["ada"]
    push(policy)
    first, second = [5, 9, 3, 7], [5, 9, 20, 11]
    ids = torch.tensor([[5, 9, 3, 7, 20, 11]])
    positions = torch.tensor([[0, 1, 2, 3, 2, 3]])
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    mask[4:, 2:4] = False
    with torch.no_grad():
        tree = policy.logits(policy.hidden(ids, positions, mask[None, None])).log_softmax(-1)[0]
    torch.testing.assert_close(tree[:4], scores(policy, torch.tensor([first]))[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(
        tree[[0, 1, 4, 5]], scores(policy, torch.tensor([second]))[0], rtol=0, atol=1e-5
    )


def test_plain_positions_equal_none_and_shifted_ones_stay_causal() -> None:
    """Positions without a mask never turn a row into packed ones."""
    _, policies = build({"ada": FULL})
    policy = policies["ada"]
    plain = torch.arange(7)[None]
    with torch.no_grad():
        assert torch.equal(policy.hidden(IDS, plain), policy.hidden(IDS))
        jumped = policy.hidden(IDS, torch.tensor([[0, 1, 2, 0, 1, 2, 3]]))
        again = policy.hidden(IDS[:, 3:])
    assert not torch.allclose(jumped[:, 3:], again, atol=1e-4)  # still sees the first three


def test_head_when_asked_for_some_tokens_gives_the_same_scores() -> None:
    _, policies = build({"ada": FULL})
    with torch.no_grad():
        hidden = policies["ada"].hidden(IDS)
        some = torch.tensor([7, 300, 5])
        torch.testing.assert_close(
            policies["ada"].logits(hidden, some), policies["ada"].logits(hidden)[..., some], rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("kind", [LORA, FULL])
def test_weights_when_saved_and_loaded_elsewhere_give_the_same_forward_pass(
    kind: PolicySettings, tmp_path: Path
) -> None:
    """B77: one forward pass before save equals one after load."""
    _, policies = build({"ada": kind})
    push(policies["ada"])
    policies["ada"].save(tmp_path)
    _, others = build({"bo": kind}, seed=9)
    others["bo"].load(tmp_path)
    assert torch.equal(scores(others["bo"]), scores(policies["ada"]))


def test_adapter_folder_when_read_by_plain_peft_gives_the_same_scores(tmp_path: Path) -> None:
    """Issue 2, line 6: the trained adapter loads with plain PEFT."""
    _, policies = build({"ada": LORA, "bo": LORA})
    push(policies["ada"])
    policies["ada"].save(tmp_path)
    model = PeftModel.from_pretrained(load_base(SMALL, seed=0).model, str(tmp_path))
    with torch.no_grad():
        plain = model(input_ids=IDS).logits.log_softmax(-1)
    torch.testing.assert_close(plain, scores(policies["ada"]), rtol=0, atol=1e-6)


def test_whole_model_folder_when_read_by_transformers_gives_the_same_scores(tmp_path: Path) -> None:
    _, policies = build({"cy": FULL})
    push(policies["cy"])
    policies["cy"].save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(model(input_ids=IDS).logits.log_softmax(-1), scores(policies["cy"]))
    assert (tmp_path / "tokenizer.json").is_file()


def test_saved_adapter_config_lists_its_modules_in_order(tmp_path: Path) -> None:
    """Law 8: the modules are a set in PEFT, in another order in every process; that must not reach the disk."""
    base, policies = build({"ada": LORA})
    policies["ada"].save(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == sorted(config["target_modules"])
    assert len(config["target_modules"]) == 14
    assert config["inference_mode"]
    assert not base.adapters.config("p0").inference_mode


@pytest.mark.parametrize("kind", [LORA, FULL])
def test_load_when_a_layer_is_renamed_then_names_missing_and_unexpected(
    kind: PolicySettings, tmp_path: Path
) -> None:
    """B77: nothing is loaded halfway."""
    _, policies = build({"ada": kind})
    policies["ada"].save(tmp_path)
    file = next(tmp_path.glob("*.safetensors"))
    state = load_file(file)
    name = next(key for key in state if "q_proj" in key)
    state[name.replace("q_proj", "q_porj")] = state.pop(name)
    save_file(state, file)
    before = bytes_of(policies["ada"].state())
    with pytest.raises(ValueError, match=r"missing \['.*q_proj.*unexpected \['.*q_porj"):
        policies["ada"].load(tmp_path)
    assert bytes_of(policies["ada"].state()) == before


def test_load_when_rank_differs_then_says_which_field() -> None:
    _, policies = build({"ada": LORA, "bo": PolicySettings(weights=LoraWeights(rank=2, alpha=8))})
    with pytest.raises(ValueError, match=r"shapes \["):
        policies["ada"].load_state(policies["bo"].state())


def test_load_when_scale_differs_then_says_which_field(tmp_path: Path) -> None:
    """The scale is no tensor: an adapter read under another alpha would be another policy."""
    _, policies = build({"ada": LORA, "bo": PolicySettings(weights=LoraWeights(rank=4, alpha=16))})
    policies["ada"].save(tmp_path)
    with pytest.raises(ValueError, match=r"weights\.alpha"):
        policies["bo"].load(tmp_path)
    with pytest.raises(ValueError, match="holds no LoRA adapter"):
        policies["bo"].load(tmp_path / "elsewhere")


def test_policies_with_names_inside_each_other_keep_apart(tmp_path: Path) -> None:
    """B78: 'ada', 'ada2', 'lora', 'default', names with dots: each comes back bitwise equal, none touches another."""
    names = ("ada", "ada2", "lora", "default", "lora_A", "p0", "a.b")
    _, policies = build(dict.fromkeys(names, LORA))
    for place, policy in enumerate(policies.values()):
        push(policy, 0.01 * (place + 1))
        policy.save(tmp_path / policy.name)
    _, others = build(dict.fromkeys(reversed(names), LORA), seed=5)
    for name in names:
        others[name].load(tmp_path / name)
    for name in names:
        assert bytes_of(others[name].state()) == bytes_of(policies[name].state())
        assert torch.equal(scores(others[name]), scores(policies[name]))
    assert len({scores(policy).numpy().tobytes() for policy in policies.values()}) == len(names)


@pytest.mark.parametrize("name", ["", "a/b", "a@1", "a:b", "../x", ".x", "a b", "x" * 65])
def test_policy_name_that_cannot_be_a_label_or_folder_is_refused(name: str) -> None:
    """B78: refused with a sentence."""
    with pytest.raises(ValueError, match=r"no name for a policy.*agents\.policies"):
        build({name: LORA})


def test_fresh_adapter_is_a_function_of_seed_and_name() -> None:
    """Law 7: neither other policies nor their order nor global luck changes it; B is zero, A is not."""
    torch.manual_seed(1)
    _, one = build({"ada": LORA})
    torch.manual_seed(2)
    before = torch.get_rng_state()
    _, two = build({"bo": LORA, "cy": FULL, "ada": LORA})
    assert torch.equal(torch.get_rng_state(), before)
    assert bytes_of(one["ada"].state()) == bytes_of(two["ada"].state())
    assert bytes_of(two["bo"].state()) != bytes_of(two["ada"].state())
    _, three = build({"ada": LORA}, seed=1)
    assert bytes_of(three["ada"].state()) != bytes_of(one["ada"].state())
    for name, tensor in one["ada"].state().items():
        assert ("lora_B" in name) == bool((tensor == 0).all())


@pytest.mark.parametrize("kind", [LORA, FULL])
def test_reference_stays_and_is_left_even_on_an_error(kind: PolicySettings) -> None:
    """B79: KL is exactly 0 before the first step; the reference does not follow; after an error all is as before."""
    _, policies = build({"ada": kind})
    policy = policies["ada"]
    with policy.reference():
        reference = scores(policy)
    assert torch.equal(reference, scores(policy))
    push(policy)
    moved = scores(policy)
    with pytest.raises(KeyError), policy.reference():
        assert torch.equal(scores(policy), reference)
        raise KeyError
    assert torch.equal(scores(policy), moved)
    assert policy.hidden(IDS).requires_grad
    assert not torch.equal(moved, reference)


@pytest.mark.parametrize("kind", [LORA, FULL])
def test_reference_of_a_policy_that_started_elsewhere_is_that_start(
    kind: PolicySettings, tmp_path: Path
) -> None:
    """B79: the reference is the starting adapter, not the bare base, and stays when a checkpoint is loaded."""
    _, first = build({"ada": kind})
    push(first["ada"])
    folder = tmp_path / "checkpoints" / "000004"
    first["ada"].save(folder / "policies" / "ada")
    (folder / "COMPLETE").touch()
    policies = {"ada": kind.model_dump()}
    agents = {"model": SMALL.model_dump(), "policies": policies, "seats": {"alice": "ada"}}
    (tmp_path / "config.json").write_text(json.dumps({"seed": 0, "agents": agents}))
    started = kind.model_copy(update={"start": f"{tmp_path}@4:alice"})
    base, second = build({"bo": started, "cy": LORA})
    with second["bo"].reference():
        assert torch.equal(scores(second["bo"]), scores(first["ada"]))
    assert torch.equal(scores(second["bo"]), scores(first["ada"]))
    push(second["bo"])
    assert not torch.equal(scores(second["bo"]), scores(first["ada"]))
    with second["bo"].reference():
        assert torch.equal(scores(second["bo"]), scores(first["ada"]))
    check_trainable(base, second)


def test_frozen_policy_when_references_are_kept_then_holds_no_second_copy_of_itself() -> None:
    _, policies = build({"ada": FULL, "old": FULL.model_copy(update={"trained": False})})
    with policies["ada"].reference():
        pass
    with pytest.raises(ValueError, match="and train it"), policies["old"].reference():
        pass


@pytest.mark.parametrize("targets", [("lm_head",), ("q_proj", "lm_head"), ("embed_tokens",)])
def test_adapter_of_the_head_or_the_embedding_is_refused(targets: tuple[str, ...]) -> None:
    """A head asked for a grammar's few tokens, and merged weights, would pass it by."""
    with pytest.raises(ValueError, match=rf"names '{targets[-1]}'.*expected linear layers between"):
        build({"ada": PolicySettings(weights=LoraWeights(targets=targets))})


@pytest.mark.parametrize(
    ("targets", "name"),
    [
        (("q_proj", "k_prj"), "k_prj"),
        (("all-linear", "q_proj"), "all-linear"),
        (("mlp",), "mlp"),
        (("proj",), "proj"),
        (("base_layer",), "base_layer"),
    ],
)
def test_adapter_of_what_is_no_linear_layer_is_refused_with_the_layers_there_are(
    targets: tuple[str, ...], name: str
) -> None:
    """Beside a name that fits PEFT would pass another one by in silence."""
    wrong = PolicySettings(weights=LoraWeights(targets=targets))
    with pytest.raises(
        ValueError, match=rf"names '{name}', no linear layer.*some of \['down_proj', .*'v_proj'\]"
    ):
        build({"ada": LORA, "bo": wrong})


def test_adapter_of_a_layer_by_its_whole_path_adapts_that_one_alone() -> None:
    target = "model.layers.0.self_attn.q_proj"
    _, policies = build({"ada": LORA, "bo": PolicySettings(weights=LoraWeights(targets=(target,)))})
    assert len(policies["bo"].named_parameters()) == 2


def test_reference_when_not_kept_is_refused_with_the_way_out() -> None:
    _, policies = build({"ada": LORA}, keep_reference=False)
    with pytest.raises(ValueError, match="keep_reference=True"), policies["ada"].reference():
        pass


def test_base_bytes_after_hundred_switches_are_unchanged() -> None:
    """B74: adapters are never merged into the base, so nothing wanders in 16 bits."""
    base = load_base(SMALL, seed=0)
    base.model.to(torch.bfloat16)
    before = {n: t.clone() for n, t in base.model.state_dict().items()}
    _, policies = build({"ada": LORA, "bo": LORA}, base=base)
    for policy in policies.values():
        push(policy, 0.3)
    for _ in range(100):
        for policy in policies.values():
            with policy.reference():
                policy.hidden(IDS)
            policy.hidden(IDS)
    after = {n.replace(".base_layer", ""): t for n, t in base.model.state_dict().items() if "lora" not in n}
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_adapter_on_16_bit_base_stays_in_32_bit(tmp_path: Path) -> None:
    """B111: small steps are not lost to rounding, and the type survives saving."""
    settings = folder_model(tmp_path / "m").model_copy(update={"dtype": "bfloat16"})
    base = load_base(settings, seed=0)
    assert base.model.get_input_embeddings().weight.dtype == torch.bfloat16
    policy = build_policies(base, {"ada": LORA}, seed=0, keep_reference=True)["ada"]
    assert {tensor.dtype for tensor in policy.named_parameters().values()} == {torch.float32}
    before = policy.state()
    optimizer = torch.optim.Adam(list(policy.named_parameters().values()), lr=1e-6)
    for _ in range(10):
        optimizer.zero_grad()
        policy.logits(policy.hidden(IDS))[..., 7].sum().backward()
        optimizer.step()
    moved = [(policy.state()[n] - t).abs().max().item() for n, t in before.items() if "lora_B" in n]
    assert all(9e-6 < amount < 1.1e-5 for amount in moved)
    assert policy.logits(policy.hidden(IDS)).dtype == torch.float32
    policy.save(tmp_path / "a")
    assert {t.dtype for t in load_file(tmp_path / "a" / "adapter_model.safetensors").values()} == {
        torch.float32
    }


def test_optimizer_state_kept_by_name_when_adapters_are_made_in_another_order_then_steps_alike() -> None:
    """B95: names do not depend on registration, so each moment finds its own parameter."""

    def step(policy: Policy, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        policy.logits(policy.hidden(IDS)).log_softmax(-1)[0, :, 7].sum().backward()
        optimizer.step()

    _, policies = build({"ada": LORA, "bo": LORA})
    names = sorted(policies["ada"].named_parameters())
    first = torch.optim.Adam([policies["ada"].named_parameters()[n] for n in names], lr=0.01)
    step(policies["ada"], first)
    weights, moments = policies["ada"].state(), copy.deepcopy(first.state_dict())
    step(policies["ada"], first)
    _, others = build({"bo": LORA, "ada": LORA}, seed=4)
    others["ada"].load_state(weights)
    second = torch.optim.Adam([others["ada"].named_parameters()[n] for n in names], lr=0.01)
    second.load_state_dict(moments)
    step(others["ada"], second)
    assert bytes_of(others["ada"].state()) == bytes_of(policies["ada"].state())


def test_version_counts_updates() -> None:
    _, policies = build({"ada": LORA})
    assert policies["ada"].label == "ada@0"
    assert policies["ada"].bump() == "ada@1" == policies["ada"].label


def test_whole_model_with_padding_id_trains_that_embedding(tmp_path: Path) -> None:
    """Law 6: padding is often the end token; transformers would freeze its embedding."""
    base = load_base(folder_model(tmp_path, pad_token_id=9), seed=0)
    policy = build_policies(base, {"cy": FULL}, seed=0, keep_reference=False)["cy"]
    found = gradients(policy)
    assert found["model.embed_tokens.weight"][9].abs().sum() > 0


def test_whole_policy_built_after_adapters_copies_the_bare_base() -> None:
    base, first = build({"ada": LORA})
    bare = scores(first["ada"])
    push(first["ada"], 0.5)
    _, second = build({"cy": FULL}, base=base)
    assert torch.equal(scores(second["cy"]), bare)
    assert not any("lora" in name for name in second["cy"].state())


def test_reference_of_the_first_policy_before_any_other_call_is_the_bare_base() -> None:
    """B79: PEFT switches a new adapter on; it must be off again even if nothing was switched before."""
    base = load_base(EmbeddedModel(hidden=32, intermediate=64), seed=0)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        bare = base.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    policy = build_policies(base, {"ada": PolicySettings()}, seed=0, keep_reference=True)["ada"]
    policy.load_state({name: tensor + 0.5 for name, tensor in policy.state().items()})
    with policy.reference():
        assert torch.equal(policy.hidden(ids), bare)

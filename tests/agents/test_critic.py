"""The critic: values at chosen places, a trunk of its own, everything saved."""

from pathlib import Path

import pytest
import torch

from coplay.agents.base_model import BaseModel, load_base
from coplay.agents.critic import Critic, build_critic
from coplay.agents.linear import Linear, available
from coplay.agents.policy import build_policies
from coplay.agents.settings import EmbeddedModel, FolderModel, PolicySettings

IDS = torch.tensor([[5, 9, 3, 7, 0, 0, 0], [4, 8, 15, 16, 23, 42, 99]])
MASK = torch.tensor([[True] * 4 + [False] * 3, [True] * 7])
ROWS, COLUMNS = torch.tensor([0, 1, 1]), torch.tensor([3, 2, 6])


@pytest.fixture(params=["embedded", "folder"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> BaseModel:
    embedded = load_base(EmbeddedModel(hidden=16, intermediate=32), seed=0)
    if request.param == "embedded":
        return embedded
    embedded.model.save_pretrained(str(tmp_path / "m"))
    embedded.tokenizer.save_pretrained(str(tmp_path / "m"))
    return load_base(FolderModel(path=str(tmp_path / "m")), seed=0)


def fit(critic: Critic, steps: int = 3) -> None:
    optimizer = torch.optim.Adam(list(critic.named_parameters().values()), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        (
            critic.values(IDS, None, MASK, ROWS, COLUMNS) - torch.tensor([1.0, 2.0, 3.0])
        ).square().sum().backward()
        optimizer.step()


def test_values_are_zero_at_first_and_learn_at_every_tensor(base: BaseModel) -> None:
    critic = build_critic(base, seed=0)
    values = critic.values(IDS, None, MASK, ROWS, COLUMNS)
    assert values.tolist() == [0.0, 0.0, 0.0]
    assert values.dtype == torch.float32
    before = critic.state()
    fit(critic)
    changed = [name for name, tensor in critic.state().items() if not torch.equal(tensor, before[name])]
    assert changed == list(before)


def test_values_do_not_depend_on_padding_or_on_what_stands_behind(base: BaseModel) -> None:
    """Laws 3 and 4: right padding, left padding and the row alone agree; later tokens are invisible."""
    critic = build_critic(base, seed=0)
    fit(critic)
    with torch.no_grad():
        right = critic.values(IDS, None, MASK, ROWS, COLUMNS)
        left_ids, left_mask = IDS.clone(), MASK.clone()
        left_ids[0], left_mask[0] = IDS[0].roll(3), MASK[0].roll(3)
        left = critic.values(left_ids, None, left_mask, ROWS, torch.tensor([6, 2, 6]))
        alone = critic.values(IDS[:1, :4], None, None, torch.tensor([0]), torch.tensor([3]))
        other = IDS.clone()
        other[0, 4:] = 77
        behind = critic.values(other, None, MASK, ROWS, COLUMNS)
    torch.testing.assert_close(left, right, rtol=0, atol=1e-5)
    torch.testing.assert_close(alone[0], right[0], rtol=0, atol=1e-5)
    assert torch.equal(behind, right)


def test_fresh_critic_is_a_function_of_its_seed(base: BaseModel) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, three = (build_critic(base, seed=seed).state() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], three[name]) for name in one)


def test_critic_step_moves_no_policy(base: BaseModel) -> None:
    """Law 6."""
    policies = build_policies(base, {"ada": PolicySettings()}, seed=0, keep_reference=True)
    critic = build_critic(base, seed=0)
    before = policies["ada"].state()
    hidden = policies["ada"].hidden(IDS)
    fit(critic)
    assert all(torch.equal(policies["ada"].state()[name], tensor) for name, tensor in before.items())
    assert torch.equal(policies["ada"].hidden(IDS), hidden)
    own = {id(tensor) for tensor in critic.named_parameters().values()}
    assert not own & {id(tensor) for tensor in policies["ada"].named_parameters().values()}


def test_critic_when_saved_and_loaded_gives_the_same_values(base: BaseModel, tmp_path: Path) -> None:
    """The head is saved, too (B77)."""
    critic = build_critic(base, seed=0)
    fit(critic)
    critic.save(tmp_path / "critic")
    other = build_critic(base, seed=9)
    other.load(tmp_path / "critic")
    arguments = (IDS, None, MASK, ROWS, COLUMNS)
    assert torch.equal(other.values(*arguments), critic.values(*arguments))
    state = critic.state()
    state.pop("head.weight")
    with pytest.raises(ValueError, match=r"missing \['head.weight'\]"):
        other.load_state(state)
    with pytest.raises(ValueError, match="holds no critic"):
        other.load(tmp_path / "nowhere")


@pytest.mark.skipif(not available(), reason="this build of torch is without oneDNN")
def test_trunk_of_its_own_when_large_then_multiplies_as_policies_do() -> None:
    base = load_base(EmbeddedModel(hidden=384, intermediate=384, num_layers=1, num_heads=2), seed=0)
    for decoder in (base.model.get_decoder(), build_critic(base, seed=0).trunk.decoder):
        layers = [module for module in decoder.modules() if isinstance(module, torch.nn.Linear)]
        assert layers and all(isinstance(layer, Linear) for layer in layers)

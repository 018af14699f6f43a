"""Dense layers through oneDNN: torch's own numbers to float32 rounding, forward, backward, packed and copied."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from coplay.agents import linear
from coplay.agents.linear import LARGE, OPERATORS, Linear, available, pack, product, speed_up

pytestmark = pytest.mark.skipif(not available(), reason="this build of torch is without oneDNN")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1, 300), (2, 7, 300), (65, 300)])
def test_large_layer_when_sped_up_gives_the_outputs_and_gradients_of_torch(
    shape: tuple[int, ...], biased: bool
) -> None:
    layer = nn.Sequential(nn.Linear(300, 400, bias=biased))
    exact = copy.deepcopy(layer).double()
    speed_up(layer)
    assert type(layer[0]) is Linear
    inputs = torch.randn(shape, requires_grad=True)
    doubled = inputs.detach().double().requires_grad_()
    weights = torch.randn(*shape[:-1], 400)
    (layer(inputs) * weights).sum().backward()
    (exact(doubled) * weights).sum().backward()
    torch.testing.assert_close(inputs.grad, doubled.grad.float())
    for mine, theirs in zip(layer.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad.float(), rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(layer(inputs), exact(doubled).float())


def test_frozen_layer_when_inputs_learn_keeps_no_inputs() -> None:
    """A frozen base under LoRA: activations are not kept for gradients that nobody wants."""
    layer = nn.Sequential(nn.Linear(300, 400)).requires_grad_(False)
    speed_up(layer)
    kept: list[tuple[int, ...]] = []
    inputs = torch.randn(9, 300, requires_grad=True)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = layer(inputs)
    assert kept == [(400, 300)]
    result.sum().backward()
    torch.testing.assert_close(inputs.grad, layer[0].weight.sum(0).expand(9, 300))
    assert layer[0].weight.grad is None


def test_small_layers_and_other_types_when_sped_up_stay_torch_s_own_bit_for_bit() -> None:
    small, other = nn.Linear(64, 512), nn.Linear(300, 400)
    assert small.weight.numel() < LARGE <= other.weight.numel()
    model = nn.ModuleList([small, other])
    speed_up(model)
    assert type(small) is nn.Linear
    inputs = torch.randn(5, 300)
    before = functional.linear(inputs.double(), other.weight.double(), other.bias.double())
    assert torch.equal(other.double()(inputs.double()), before)
    other.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert other(inputs).dtype == torch.bfloat16
    assert other(torch.zeros(0, 300)).shape == (0, 400)


def test_packed_weights_when_multiplied_give_the_same_product() -> None:
    weight, inputs = torch.randn(400, 300), torch.randn(17, 300)
    torch.testing.assert_close(product(inputs, pack(weight, 17)), inputs @ weight.t(), rtol=1e-5, atol=1e-4)


def test_copy_of_a_sped_up_model_keeps_its_layers_and_its_names() -> None:
    model = nn.Sequential(nn.Linear(300, 400))
    names = list(model.state_dict())
    speed_up(model)
    twin = copy.deepcopy(model)
    assert type(twin[0]) is Linear
    assert list(twin.state_dict()) == names
    with torch.no_grad():
        twin[0].weight.zero_()
    assert model[0].weight.abs().sum() > 0


@pytest.mark.parametrize("missing", OPERATORS)
def test_build_without_one_of_the_operators_is_left_to_torch(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are private: a build may keep the product and drop the packing that merged weights need."""
    there = tuple(name if name != missing else "gone" for name in OPERATORS)
    monkeypatch.setattr(linear, "OPERATORS", there)
    layer = nn.Sequential(nn.Linear(300, 400))
    speed_up(layer)
    assert not available() and type(layer[0]) is nn.Linear

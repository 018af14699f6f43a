"""Dense layers on a CPU: oneDNN's float32 product instead of MKL's, which leaves half of some processors idle.

Same numbers to float32 rounding, forward and backward; only large float32 matrices on a CPU take it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

OPERATORS = ("_linear_pointwise", "_reorder_linear_weight")
"""What `product` and `pack` call; neither is part of torch's public interface."""
LARGE = 100_000
"""Fewer weights than this are left to torch: calling oneDNN would cost more than it saves."""


def available() -> bool:
    """True if this build of torch has oneDNN's product and its packing of weights as operators."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and all(hasattr(torch.ops.mkldnn, name) for name in OPERATORS)


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`inputs @ weight.T + bias` by oneDNN, without gradients.

    Args:
        inputs: (..., I) float32 on a CPU.
        weight: (O, I), of any strides or packed by `pack`.
        bias: (O,).

    Returns:
        (..., O).
    """
    result: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return result


def pack(weight: Tensor, rows: int) -> Tensor:
    """A copy of (O, I) weights in oneDNN's own order, fastest for `rows` rows of inputs; only `product` reads it."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
    return packed


class _Product(torch.autograd.Function):
    """`product` with gradients; keeps the inputs only if the weights learn."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `product`."""
        ctx.save_for_backward(inputs if ctx.needs_input_grad[1] else None, weight)
        return product(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of inputs, weight and bias, as far as they are wanted."""
        inputs, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.shape[-1])
        return (
            product(grad, weight.t()) if wanted[0] else None,
            product(rows.t(), inputs.reshape(-1, inputs.shape[-1]).t()) if wanted[1] else None,
            rows.sum(0) if wanted[2] else None,
        )


class Linear(nn.Linear):
    """`nn.Linear` whose large float32 products on a CPU are oneDNN's."""

    packed: Tensor | None = None
    """Weights from `pack` to use in place of its own, while no gradients are wanted."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        weight, bias = self.weight, self.bias
        plain = input.dtype == weight.dtype == torch.float32 and weight.device.type == "cpu" and input.numel()
        if not plain or torch.is_autocast_enabled("cpu"):
            assert self.packed is None or not input.numel(), (
                "merged weights multiply in float32, not under autocast"
            )
            return functional.linear(input, weight, bias)
        if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
            result: Tensor = _Product.apply(input, weight, bias)  # type: ignore[no-untyped-call]
            return result
        return product(input, weight if self.packed is None else self.packed, bias)


def speed_up(model: nn.Module) -> None:
    """Let the large dense layers of a model use oneDNN; copies of the model keep it, files do not know of it."""
    if available():
        for module in model.modules():
            if type(module) is nn.Linear and module.weight.numel() >= LARGE:
                module.__class__ = Linear

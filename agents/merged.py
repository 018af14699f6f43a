"""Weights made ready for sampling on a CPU: adapter merged into copies of the large layers, in oneDNN's own order."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from coplay.agents.linear import Linear, pack
from coplay.agents.weights import Network

ROWS = 16
"""Rows of inputs that the packed order is chosen for: a batch of replies."""


class Merged:
    """Packed copies of a network's large layers, W + scale B A each, as they are now; the network stays as it is.

    Sampling with them shifts log-probs by rounding only (about 1e-5 in float32), and spares two small products per
    adapted layer and token, and the repacking of W.
    """

    def __init__(self, network: Network, layers: list[tuple[Linear, Tensor]]) -> None:
        self._network = network
        self._layers = layers

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the network's large layers use the copies inside; no gradients."""
        trunk = self._network.trunk
        for layer, packed in self._layers:
            layer.packed = packed
        trunk.merged = True
        try:
            yield
        finally:
            trunk.merged = False
            for layer, _ in self._layers:
                layer.packed = None


def merge(network: Network) -> Merged | None:
    """Merge and pack; None where that cannot be done: not on a CPU in float32, or an adapted layer is small."""
    layers: list[tuple[Linear, Tensor]] = []
    names = network.trunk.names
    adapted: set[int] = set()
    with torch.no_grad():
        for module in network.trunk.decoder.modules():
            chosen = [name for name in names if name in getattr(module, "lora_A", ())]
            if chosen:
                base: Any = module.base_layer
                if not _packable(base):
                    return None
                weight = base.weight + sum(module.get_delta_weight(name) for name in chosen)
                layers.append((base, pack(weight, ROWS)))
                adapted.add(id(base))
        plain = [m for m in (*network.trunk.decoder.modules(), network.head) if id(m) not in adapted]
        layers += [(module, pack(module.weight, ROWS)) for module in plain if _packable(module)]
    return Merged(network, layers) if layers else None


def _packable(module: Any) -> bool:
    if not isinstance(module, Linear):
        return False
    weight = module.weight
    return weight.device.type == "cpu" and weight.dtype == torch.float32

"""The critic that all agents share: expected return read at a token, from a trunk of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaModel

from coplay.agents.adapters import fill, forked_rng
from coplay.agents.base_model import BaseModel, embedded_config
from coplay.agents.linear import speed_up
from coplay.agents.settings import EmbeddedModel, LoraWeights
from coplay.agents.tree_attention import TreeMask, read_by_blocks
from coplay.agents.trunk import Trunk
from coplay.agents.weights import read_tensors
from coplay.games.chance import derive_seed

CRITIC_FILE = "critic.safetensors"


class Critic:
    """V of the state that a context describes, at chosen tokens. Shares no trained tensor with a policy."""

    def __init__(self, trunk: Trunk, tensors: Mapping[str, nn.Parameter], width: int) -> None:
        self._trunk = trunk
        self._weight = nn.Parameter(torch.zeros(1, width, device=trunk.device))
        self._bias = nn.Parameter(torch.zeros(1, device=trunk.device))
        self._tensors = {
            **{f"trunk.{name}": tensor for name, tensor in tensors.items()},
            "head.weight": self._weight,
            "head.bias": self._bias,
        }

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._trunk.device

    @property
    def trunk(self) -> Trunk:
        """What makes hidden states."""
        return self._trunk

    def values(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | TreeMask | None,
        rows: Tensor,
        columns: Tensor,
    ) -> Tensor:
        """Values (N,) in float32 at the places (rows[n], columns[n]).

        Args:
            input_ids: (B, T).
            position_ids: (B, T) or None.
            attention_mask: as `Trunk.hidden` takes it.
            rows: (N,) in [0, B).
            columns: (N,) in [0, T).
        """
        hidden = self._trunk.hidden(input_ids, position_ids, attention_mask)[rows, columns]
        return functional.linear(hidden.float(), self._weight, self._bias).squeeze(-1)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """What an optimiser of the critic steps: its own trunk (or adapter) and head."""
        return dict(self._tensors)

    def state(self) -> dict[str, Tensor]:
        """Copies of the critic's tensors."""
        return {name: tensor.detach().clone() for name, tensor in self._tensors.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Set the critic's tensors.

        Raises:
            ValueError: naming missing, unexpected or wrongly shaped tensors.
        """
        fill(self._tensors, dict(state), whose="the critic")

    def save(self, folder: str | Path) -> None:
        """Write trunk (or adapter) and head."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        state = {name: tensor.cpu().contiguous() for name, tensor in self.state().items()}
        save_file(state, Path(folder) / CRITIC_FILE)

    def load(self, folder: str | Path) -> None:
        """Read what `save` wrote, strictly.

        Raises:
            ValueError: if the folder holds no critic, or one that does not fit.
        """
        path = Path(folder) / CRITIC_FILE
        if not path.is_file():
            raise ValueError(f"{str(folder)!r} holds no critic; expected a file {CRITIC_FILE!r}")
        self.load_state(read_tensors(path))


def build_critic(base: BaseModel, *, seed: int) -> Critic:
    """A fresh critic, a function of `seed`; V is 0 everywhere at first.

    Beside the embedded model it is a trunk of the same size, initialised anew; beside a model from a folder
    it is an adapter of its own over the shared base.
    """
    own = derive_seed(seed, "critic")
    width = base.model.config.hidden_size
    if isinstance(base.settings, EmbeddedModel):
        with forked_rng(own):
            model: Any = LlamaModel(embedded_config(base.settings, base.model.config.vocab_size))
        speed_up(model)
        read_by_blocks(model)
        model.to(base.model.device).eval()
        return Critic(Trunk(model), dict(model.named_parameters()), width)
    adapter = base.add_adapter(LoraWeights(), seed=own)
    base.adapters.train(adapter, trained=True)
    trunk = Trunk(base.model.get_decoder(), base.adapters, (adapter,))
    return Critic(trunk, base.adapters.tensors(adapter), width)

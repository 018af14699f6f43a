"""Where a policy's own tensors live, and their form on disk: one adapter over the base, or a whole model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from coplay.agents.adapters import fill
from coplay.agents.base_model import BaseModel
from coplay.agents.settings import LoraWeights
from coplay.agents.trunk import Trunk

ADAPTER_FILE = "adapter_model.safetensors"
MODEL_FILE = "model.safetensors"
CONFIG_FILE = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class Network:
    """A trunk and the output head over it."""

    trunk: Trunk
    head: Any


class Weights(Protocol):
    """A policy's own tensors, where they act, and their form on disk."""

    network: Network

    def tensors(self) -> dict[str, nn.Parameter]:
        """The policy's own parameters, by names that do not depend on the policy's name."""
        ...

    def train(self, *, trained: bool) -> None:
        """Set whether they require grad, and touch no other tensor."""
        ...

    def save(self, folder: Path) -> None:
        """Write them so that the libraries they come from read them."""
        ...

    def read(self, folder: Path) -> dict[str, Tensor]:
        """The tensors that `save` wrote.

        Raises:
            ValueError: if the folder holds no such file.
        """
        ...


class AdapterWeights:
    """One LoRA adapter over the shared base."""

    def __init__(self, base: BaseModel, settings: LoraWeights, *, seed: int) -> None:
        self.base = base
        self.settings = settings
        self.adapter = base.add_adapter(settings, seed=seed)
        self.network = self._network((self.adapter,))

    def _network(self, names: tuple[str, ...]) -> Network:
        model = self.base.model
        return _network(model, Trunk(model.get_decoder(), self.base.adapters, names))

    def tensors(self) -> dict[str, nn.Parameter]:
        """LoRA A and B of every adapted layer, float32."""
        return self.base.adapters.tensors(self.adapter)

    def train(self, *, trained: bool) -> None:
        """Set whether the adapter requires grad."""
        self.base.adapters.train(self.adapter, trained=trained)

    def reference(self, *, started: bool) -> Network:
        """The bare base; or, for a policy that started from an adapter, a frozen copy of that one."""
        return self._network((self.base.adapters.copy(self.adapter, self.settings),) if started else ())

    def save(self, folder: Path) -> None:
        """Write the adapter as PEFT does: `PeftModel.from_pretrained(base, folder)` reads it."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors().items()}
        save_file(state, folder / ADAPTER_FILE, metadata={"format": "pt"})
        config = self.base.adapters.config(self.adapter)
        inference_mode, config.inference_mode = config.inference_mode, True
        config.save_pretrained(str(folder))
        config.inference_mode = inference_mode
        described = folder / CONFIG_FILE
        content = json.loads(described.read_text(encoding="utf-8"))
        if isinstance(content["target_modules"], list):
            content["target_modules"].sort()  # PEFT writes a set: its order changes from process to process
        described.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    def read(self, folder: Path) -> dict[str, Tensor]:
        """The adapter's tensors; its rank and scale must be those of these settings."""
        path, described = folder / ADAPTER_FILE, folder / CONFIG_FILE
        if not path.is_file() or not described.is_file():
            raise ValueError(
                f"{str(folder)!r} holds no LoRA adapter; expected {ADAPTER_FILE!r}, config beside it"
            )
        saved = json.loads(described.read_text(encoding="utf-8"))
        if (saved["r"], saved["lora_alpha"]) != (self.settings.rank, self.settings.alpha):
            raise ValueError(
                f"the adapter in {str(folder)!r} has rank {saved['r']} and alpha {saved['lora_alpha']};"
                f" expected {self.settings.rank} and {self.settings.alpha}: set the policy's weights.rank and"
                " weights.alpha"
            )
        return read_tensors(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        ValueError: if the file is damaged.
    """
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{str(path)!r} is damaged ({error}); delete its checkpoint's folder to go on from an earlier one"
        ) from error


class WholeWeights:
    """A copy of the base model, trained whole."""

    def __init__(self, base: BaseModel) -> None:
        self.base = base
        self.model = base.copy_model()
        self.network = _network(self.model)

    def tensors(self) -> dict[str, nn.Parameter]:
        """All parameters of the model, tied ones once."""
        return dict(self.model.named_parameters())

    def train(self, *, trained: bool) -> None:
        """Set whether the model requires grad."""
        self.model.requires_grad_(trained)

    def reference(self, *, started: bool) -> Network:
        """The base, which nobody trains; or a frozen copy of the weights the policy started from."""
        if not started:
            model = self.base.model
            return _network(model, Trunk(model.get_decoder(), self.base.adapters))
        twin = self.base.copy_model()
        start = {name: tensor.detach() for name, tensor in self.tensors().items()}
        fill(dict(twin.named_parameters()), start, whose="the reference")
        twin.requires_grad_(False)
        return _network(twin)

    def save(self, folder: Path) -> None:
        """Write a transformers folder: config, weights, tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors().items()}
        save_file(state, folder / MODEL_FILE, metadata={"format": "pt"})
        self.model.config.architectures = [type(self.model).__name__]
        self.model.config.save_pretrained(str(folder))
        self.base.tokenizer.save_pretrained(str(folder))

    def read(self, folder: Path) -> dict[str, Tensor]:
        """The model's tensors."""
        path = folder / MODEL_FILE
        if not path.is_file():
            raise ValueError(f"{str(folder)!r} holds no whole model; expected a file {path.name!r}")
        return read_tensors(path)


def _network(model: Any, trunk: Trunk | None = None) -> Network:
    return Network(trunk or Trunk(model.get_decoder()), model.get_output_embeddings())

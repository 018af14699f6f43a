"""LoRA adapters over one shared base model: adding, switching, freezing, naming. One PeftModel holds all."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from coplay.agents.settings import LoraWeights
from coplay.games.chance import derive_seed
from coplay.games.names import nearest


@contextmanager
def forked_rng(seed: int) -> Iterator[None]:
    """Draw from `seed` inside and leave the global torch generators as they were."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


class SharedAdapters:
    """The adapters of one base model.

    Adapters are called `p0`, `p1`, ... inside, whatever their policies are called: a name that clashes with
    one of PEFT's own prefixes, or contains another, can mix nothing up. Switching sets which adapter
    the layers apply and nothing else; PEFT's own `set_adapter` would also move `requires_grad`.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.peft: Any = None
        self.active: tuple[str, ...] = ()
        self._layers: list[tuple[str, Any]] = []
        self._trained: dict[str, bool] = {}
        self._count = 0
        ends = (model.get_input_embeddings(), model.get_output_embeddings())
        modules = list(model.named_modules())
        self._ends = [path for path, module in modules if any(module is end for end in ends)]
        self._linear = [
            path
            for path, module in modules
            if isinstance(module, (nn.Linear, Conv1D)) and path not in self._ends
        ]

    def add(self, weights: LoraWeights, *, seed: int) -> str:
        """Add a fresh adapter, a function of `seed`: A uniform as in PEFT, B zero; float32 always.

        Raises:
            ValueError: if a target names no linear layer of the model, or its embedding or head.
        """
        self._check_targets(weights.targets)
        name = f"p{self._count}"
        self._count += 1
        config = LoraConfig(
            r=weights.rank,
            lora_alpha=weights.alpha,
            lora_dropout=0.0,
            bias="none",
            target_modules="all-linear" if weights.targets == ("all-linear",) else list(weights.targets),
            task_type="CAUSAL_LM",
        )
        with forked_rng(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name that is going
            if self.peft is None:
                self.peft = PeftModel(self.model, config, adapter_name=name)
            else:
                self.peft.add_adapter(name, config)
        self._layers = [
            (path, module) for path, module in self.peft.named_modules() if hasattr(module, "lora_A")
        ]
        self._initialise(name, seed)
        self._apply(())  # PEFT has switched the new adapter on
        self.train(name, trained=False)
        return name

    def _check_targets(self, targets: tuple[str, ...]) -> None:
        """Heads are asked for a few ids alone and embeddings multiply nothing: an adapter there would be passed by.

        PEFT itself says nothing of a name that fits no layer as long as another one does.
        """
        for target in () if targets == ("all-linear",) else targets:
            if _named(target, self._ends):
                raise ValueError(
                    f"weights.targets of a LoRA adapter names {target!r}, the model's embedding or head; expected"
                    " linear layers between them: leave it out, or train the whole model with weights.kind = 'full'"
                )
            if not _named(target, self._linear):
                known = sorted({path.rpartition(".")[2] for path in self._linear})
                raise ValueError(
                    f"weights.targets of a LoRA adapter names {target!r}, no linear layer of the model; expected"
                    f" 'all-linear' alone, or some of {known!r}{nearest(target, known)}"
                )

    def _initialise(self, name: str, seed: int) -> None:
        """Fill A from a CPU generator per layer, so that neither device nor order of modules matters."""
        with torch.no_grad():
            for path, layer in self._layers:
                if name in layer.lora_A:
                    weight = layer.lora_A[name].weight
                    generator = torch.Generator().manual_seed(derive_seed(seed, path))
                    bound = weight.shape[1] ** -0.5
                    weight.copy_(torch.empty(weight.shape).uniform_(-bound, bound, generator=generator))
                    layer.lora_B[name].weight.zero_()

    def activate(self, names: tuple[str, ...]) -> None:
        """Make the layers apply these adapters; none means the bare base."""
        if names != self.active:
            self._apply(names)

    def _apply(self, names: tuple[str, ...]) -> None:
        for _, layer in self._layers:
            layer._active_adapter = list(names)  # the public setter would change requires_grad
        self.active = names

    @contextmanager
    def activated(self, names: tuple[str, ...]) -> Iterator[None]:
        """Apply these adapters inside, and the former ones after, even on an error."""
        before = self.active
        self.activate(names)
        try:
            yield
        finally:
            self.activate(before)

    def tensors(self, name: str) -> dict[str, nn.Parameter]:
        """The parameters of one adapter under the names PEFT gives them in a file."""
        found: dict[str, nn.Parameter] = {}
        for path, layer in self._layers:
            for part in ("lora_A", "lora_B"):
                if name in getattr(layer, part):
                    found[f"{path}.{part}.weight"] = getattr(layer, part)[name].weight
        return found

    def train(self, name: str, *, trained: bool) -> None:
        """Set whether one adapter's tensors require grad; no other tensor is touched."""
        self._trained[name] = trained
        for parameter in self.tensors(name).values():
            parameter.requires_grad_(trained)

    def wrong(self) -> list[str]:
        """Parameters that require grad or not against what was set; those of the bare base never do."""
        meant = {
            id(tensor): trained
            for name, trained in self._trained.items()
            for tensor in self.tensors(name).values()
        }
        return [
            name
            for name, tensor in self.model.named_parameters()
            if tensor.requires_grad != meant.get(id(tensor), False)
        ]

    def config(self, name: str) -> Any:
        """The PEFT configuration of one adapter."""
        return self.peft.peft_config[name]

    def copy(self, name: str, weights: LoraWeights) -> str:
        """A frozen copy of an adapter as it is now."""
        twin = self.add(weights, seed=0)
        source = self.tensors(name)
        with torch.no_grad():
            for key, parameter in self.tensors(twin).items():
                parameter.copy_(source[key])
        return twin

    def checkpoint_contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """For gradient checkpointing: the backward pass recomputes with the adapter of the forward pass."""
        return nullcontext(), self.activated(self.active)


def _named(target: str, paths: Sequence[str]) -> bool:
    """Whether a target, as PEFT reads it, is one of some layers: its whole path, or the end of it."""
    return any(f".{path}".endswith(f".{target}") for path in paths)


def enable_checkpointing(model: Any, contexts: Callable[[], Any] | None = None) -> None:
    """Recompute layers in the backward pass; non-reentrant, else a frozen base cuts LoRA off."""
    options: dict[str, Any] = {"use_reentrant": False}
    if contexts is not None:
        options["context_fn"] = contexts
    if hasattr(model, "activation_checkpointing_enable"):  # older releases of transformers 5 say gradient
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def fill(tensors: dict[str, nn.Parameter], state: dict[str, Tensor], *, whose: str) -> None:
    """Copy `state` into `tensors`, all of it or nothing.

    Raises:
        ValueError: naming missing, unexpected or wrongly shaped tensors.
    """
    missing = sorted(tensors.keys() - state.keys())
    unexpected = sorted(state.keys() - tensors.keys())
    wrong = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(tensors[name].shape)}"
        for name in sorted(tensors.keys() & state.keys())
        if state[name].shape != tensors[name].shape
    ]
    if missing or unexpected or wrong:
        raise ValueError(
            f"weights for {whose} do not fit: missing {missing!r}, unexpected {unexpected!r}, shapes"
            f" {wrong!r}; expected the tensors of the same base model and settings: load them with those they"
            " were trained under"
        )
    with torch.no_grad():
        for name, parameter in tensors.items():
            parameter.copy_(state[name])

"""Trainable policies: a base model with one adapter, or a whole model; each with its frozen reference."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from coplay.agents.adapters import fill
from coplay.agents.base_model import BaseModel
from coplay.agents.chat import ChatFormat
from coplay.agents.common_attention import Common
from coplay.agents.merged import Merged, merge
from coplay.agents.runs import find_policy_folder
from coplay.agents.settings import LoraWeights, PolicySettings, check_name
from coplay.agents.tree_attention import TreeMask
from coplay.agents.trunk import Trunk
from coplay.agents.weights import AdapterWeights, Network, Weights, WholeWeights
from coplay.games.chance import derive_seed


class Policy:
    """A distribution over replies with weights of its own, a name and a version."""

    def __init__(
        self,
        *,
        name: str,
        weights: Weights,
        chat: ChatFormat,
        trained: bool,
        reference: Network | None,
        version: int = 0,
    ) -> None:
        self.name = check_name(name)
        self.version = version
        self.trained = trained
        self.chat = chat
        self.weights = weights
        self._reference = reference
        self._network = weights.network
        self._tensors = weights.tensors()
        weights.train(trained=trained)

    @property
    def label(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._network.trunk.device

    @property
    def trunk(self) -> Trunk:
        """What makes hidden states: this policy's, or inside `reference` the reference's."""
        return self._network.trunk

    @property
    def vocabulary(self) -> int:
        """V of the logits."""
        size: int = self._network.head.weight.shape[0]
        return size

    def bump(self) -> str:
        """Count one update of the weights; returns the new label."""
        self.version += 1
        return self.label

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """What an optimiser of this policy steps: its own tensors only; none if it is frozen."""
        return dict(self._tensors) if self.trained else {}

    def hidden(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | TreeMask | None = None,
    ) -> Tensor:
        """Last hidden states (B, T, H) under this policy's weights; see `Trunk.hidden`."""
        return self._network.trunk.hidden(input_ids, position_ids, attention_mask)

    def extend(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        mask: Tensor,
        cache: Any,
        *,
        common: Sequence[Common] = (),
    ) -> Tensor:
        """Hidden states (B, Q, H) of new tokens after cached ones; see `Trunk.extend`."""
        return self._network.trunk.extend(input_ids, position_ids, mask, cache, common=common)

    def cache_bytes(self) -> int:
        """Memory that the keys and values of one token take."""
        config, weight = self._network.trunk.decoder.config, self._network.head.weight
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        kept = getattr(config, "num_key_value_heads", None) or heads
        return int(2 * config.num_hidden_layers * kept * width * weight.element_size())

    def merged(self) -> Merged | None:
        """The weights as they are now, ready for sampling on a CPU; None where there is nothing to gain."""
        return merge(self._network)

    def logits(self, hidden: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Scores (..., V) of the next token in float32.

        Args:
            hidden: (..., H).
            tokens: (A,) ids; then only their scores, (..., A), in this order.
        """
        head = self._network.head
        if tokens is None:
            scores: Tensor = head(hidden)
        else:
            bias = None if head.bias is None else head.bias[tokens]
            scores = functional.linear(hidden, head.weight[tokens], bias)
        return scores.float()

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Let `hidden` and `logits` be the frozen reference policy's inside, without gradients.

        After, even on an error, they are this policy's again.

        Raises:
            ValueError: if the policy was built without a reference.
        """
        before, self._network = self._network, self._kept_reference()
        try:
            with torch.no_grad():
                yield
        finally:
            self._network = before

    def shares_reference(self, other: "Policy") -> bool:
        """True if both have the same frozen reference, as adapters over one base that started fresh do.

        Raises:
            ValueError: if either was built without a reference.
        """
        mine, theirs = (policy._kept_reference().trunk for policy in (self, other))
        return mine.decoder is theirs.decoder and mine.names == theirs.names

    def _kept_reference(self) -> Network:
        if self._reference is None:
            raise ValueError(
                f"policy {self.name!r} keeps no reference; expected one where a KL term is on: build policies"
                " with keep_reference=True, and train it"
            )
        return self._reference

    def state(self) -> dict[str, Tensor]:
        """Copies of this policy's own tensors."""
        return {name: tensor.detach().clone() for name, tensor in self._tensors.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Set this policy's tensors.

        Raises:
            ValueError: naming missing, unexpected or wrongly shaped tensors.
        """
        fill(self._tensors, dict(state), whose=f"policy {self.name!r}")
        self.weights.train(trained=self.trained)

    def save(self, folder: str | Path) -> None:
        """Write the weights: an adapter as PEFT reads it, a whole model as transformers does."""
        self.weights.save(Path(folder))

    def load(self, folder: str | Path) -> None:
        """Read what `save` wrote, strictly."""
        self.load_state(self.weights.read(Path(folder)))


def build_policies(
    base: BaseModel, settings: Mapping[str, PolicySettings], *, seed: int, keep_reference: bool
) -> dict[str, Policy]:
    """Make every policy over one base: adapters share it, whole models copy it.

    Fresh weights of a policy are a function of (seed, name): other policies change nothing.

    Args:
        base: of all.
        settings: by name.
        seed: of fresh weights.
        keep_reference: let policies that are trained keep what they start as, for a KL term.

    Raises:
        ValueError: if a name or a start is no good, weights do not fit, or an adapter was learnt over another base.
    """
    policies: dict[str, Policy] = {}
    for name, chosen in settings.items():
        check_name(name)
        weights: AdapterWeights | WholeWeights
        if isinstance(chosen.weights, LoraWeights):
            weights = AdapterWeights(base, chosen.weights, seed=derive_seed(seed, "policy", name))
        else:
            weights = WholeWeights(base)
        if chosen.start is not None:
            if isinstance(weights, AdapterWeights):
                base.check_start(chosen.start)
            fill(weights.tensors(), weights.read(find_policy_folder(chosen.start)), whose=f"policy {name!r}")
        keeps = keep_reference and chosen.trained  # of a frozen one it would be a second copy
        reference = weights.reference(started=chosen.start is not None) if keeps else None
        policies[name] = Policy(
            name=name, weights=weights, chat=base.chat, trained=chosen.trained, reference=reference
        )
    check_trainable(base, policies)
    return policies


def check_trainable(base: BaseModel, policies: Mapping[str, Policy]) -> None:
    """Check that exactly the trained policies' own tensors require grad.

    Raises:
        RuntimeError: naming a tensor where it is otherwise.
    """
    wrong = [
        f"{name}: {key}"
        for name, policy in policies.items()
        for key, tensor in policy.weights.tensors().items()
        if tensor.requires_grad != policy.trained
    ]
    wrong += [f"base model: {key}" for key in base.adapters.wrong()]
    if wrong:
        raise RuntimeError(
            f"requires_grad is wrong at {wrong[0]!r} and {len(wrong) - 1} more; expected it on the trained"
            " policies' own tensors and nowhere else: something outside coplay switched adapters"
        )

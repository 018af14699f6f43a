"""The base model that policies share, with its tokenizer and chat format, checked together."""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from coplay.agents.adapters import SharedAdapters, enable_checkpointing, forked_rng
from coplay.agents.chat import ChatFormat
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.linear import speed_up
from coplay.agents.runs import parse_entrant, read_config
from coplay.agents.settings import EmbeddedModel, FolderModel, LanguageModelSettings, ModelSettings
from coplay.agents.tree_attention import read_by_blocks
from coplay.games.chance import derive_seed

PROBE = "Na\u00efve caf\u00e9 \u2013 12 345,\n\n1. \U0001f642 ok?"


@dataclass(kw_only=True)
class BaseModel:
    """A causal language model that nobody trains: policies copy it or put adapters over it."""

    model: Any
    """A transformers causal language model in evaluation mode, without dropout, frozen."""
    tokenizer: Any
    chat: ChatFormat
    digest: str
    """Of the tokenizer that ids belong to."""
    settings: LanguageModelSettings
    seed: int
    """Of the embedded model's weights."""
    adapters: SharedAdapters = field(init=False)

    def __post_init__(self) -> None:
        self.adapters = SharedAdapters(self.model)

    @property
    def checkpointing(self) -> bool:
        """True if training recomputes activations."""
        return isinstance(self.settings, FolderModel) and self.settings.gradient_checkpointing

    def add_adapter(self, weights: Any, *, seed: int) -> str:
        """Put a fresh LoRA adapter over the base and return its inner name."""
        name = self.adapters.add(weights, seed=seed)
        if self.checkpointing:
            enable_checkpointing(self.model, self.adapters.checkpoint_contexts)
        return name

    def check_start(self, entrant: str) -> None:
        """Refuse an adapter that a run learnt over another base, where it would be other behaviour.

        Of a model in a folder only the shapes can be held against each other, as adapters are filled.

        Raises:
            ValueError: if the embedded models differ, or only one of both is one.
        """
        theirs = read_config(parse_entrant(entrant)[0])
        model: ModelSettings = TypeAdapter(ModelSettings).validate_python(theirs["agents"]["model"])
        if isinstance(model, EmbeddedModel) and isinstance(self.settings, EmbeddedModel):
            # positions make no weights
            model = model.model_copy(update={"max_positions": self.settings.max_positions})
            if theirs["seed"] == self.seed and model == self.settings:
                return
        elif type(model) is type(self.settings):
            return
        raise ValueError(
            f"the adapter of {entrant!r} was learnt over the base model {_told(model, theirs['seed'])}, and this run's"
            f" is {_told(self.settings, self.seed)}; expected the same 'agents.model' and, of the embedded model, the"
            " same 'seed', from which its weights are drawn"
        )

    def copy_model(self) -> Any:
        """A copy of the bare base with weights of its own, without adapters."""
        peft = self.adapters.peft
        twin = copy.deepcopy(self.model) if peft is None else copy.deepcopy(peft).unload()
        # else the embedding of the padding token, often the end token, never trains
        twin.get_input_embeddings().padding_idx = None
        if self.checkpointing:
            enable_checkpointing(twin)
        return twin


def load_base(settings: LanguageModelSettings, *, seed: int) -> BaseModel:
    """Make or load the base model; the embedded one is a function of `seed`. Global luck is left alone.

    Raises:
        ValueError: if the folder holds no such model, or model, tokenizer and template do not fit.
    """
    if isinstance(settings, EmbeddedModel):
        tokenizer: Any = embedded_tokenizer()
        with forked_rng(derive_seed(seed, "base")):
            model: Any = LlamaForCausalLM(embedded_config(settings, len(tokenizer)))
    else:
        model, tokenizer = _load_folder(settings)
    if torch.cuda.is_available():
        model = model.to("cuda")
    model.eval()
    model.requires_grad_(False)
    speed_up(model)
    read_by_blocks(model)
    ends = model.config.eos_token_id
    chat = ChatFormat(
        tokenizer,
        stop_ids=() if ends is None else (ends,) if isinstance(ends, int) else tuple(ends),
        max_positions=getattr(model.config, "max_position_embeddings", None),
    )
    _check_together(model, tokenizer)
    return BaseModel(
        model=model, tokenizer=tokenizer, chat=chat, digest=chat.digest, settings=settings, seed=seed
    )


def _told(model: ModelSettings, seed: int) -> str:
    if not isinstance(model, EmbeddedModel):
        return repr(model.path if isinstance(model, FolderModel) else model.kind)
    shape = ", ".join(f"{name} {value}" for name, value in model if name not in ("kind", "max_positions"))
    return f"'embedded' of seed {seed} ({shape})"


def embedded_config(settings: EmbeddedModel, vocabulary: int) -> LlamaConfig:
    """The shape of the embedded model.

    Raises:
        ValueError: if `num_heads` does not divide `hidden` into heads of even width.
    """
    if settings.hidden % (2 * settings.num_heads):
        raise ValueError(
            f"agents.model.num_heads = {settings.num_heads} does not divide hidden = {settings.hidden} into heads"
            " of even width; expected hidden to be a multiple of twice the heads, e.g. hidden 64 and heads 2"
        )
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        num_key_value_heads=settings.num_heads,
        max_position_embeddings=settings.max_positions,
        tie_word_embeddings=False,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,  # a padding id would freeze that row of the embedding
    )


def _load_folder(settings: FolderModel) -> tuple[Any, Any]:
    folder = Path(settings.path)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"agents.model.path = {settings.path!r} holds no config.json; expected a folder as transformers"
            " saves it (config.json, model.safetensors, tokenizer.json, chat template)"
        )
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    for name, value in config.to_dict().items():
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, float):
            setattr(config, name, 0.0)
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise ValueError(
            f"the model in {settings.path!r} has layers of kind {sorted(kinds)!r}; expected full attention in"
            " every layer: the local engine keeps no other cache"
        )
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=getattr(torch, settings.dtype),
        attn_implementation="sdpa",
        local_files_only=True,
    )
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _check_together(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer of another model and a model whose logits are not head(trunk)."""
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens and the model rows for {rows}; expected the tokenizer"
            " that the model was saved with"
        )
    read = tokenizer.decode(tokenizer(PROBE, add_special_tokens=False)["input_ids"])
    if read.strip() != PROBE:
        raise ValueError(
            f"the tokenizer reads {PROBE!r} back as {read!r}; expected the same text: it is broken"
        )
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    for marker in set(tokenizer.all_special_tokens):
        if text.count(marker) > ids.count(tokenizer.convert_tokens_to_ids(marker)):
            raise ValueError(
                f"the role marker {marker!r} of the chat template is not one token; expected a tokenizer that"
                " knows the template's markers: it was converted from another format, convert it again"
            )
    probe = torch.tensor([ids], device=model.device)
    with torch.inference_mode():
        whole = model(input_ids=probe, use_cache=False).logits
        parts = model.get_output_embeddings()(
            model.get_decoder()(input_ids=probe, use_cache=False).last_hidden_state
        )
    if not torch.allclose(whole, parts, rtol=1e-3, atol=1e-3):
        raise ValueError(
            f"the logits of {type(model).__name__} are not its head applied to its trunk (scaled or capped);"
            " expected a model of the Llama kind"
        )

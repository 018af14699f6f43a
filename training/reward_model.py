"""A reward model in use: conversations to token ids of its own tokenizer, ids to scores, scores into trees.

It only judges, so text is encoded anew, by its own chat template, with what players say as plain text: a control token
spelled out in a reply is no control token. Without a template, `role: text` lines are read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from coplay.agents.adapters import forked_rng
from coplay.agents.chat import ChatFormat
from coplay.rollout_tree import RolloutTree, Step, Turn
from coplay.rollout_tree.paths import branch_paths
from coplay.rollout_tree.records import SCORES
from coplay.training.masked import segment_spread
from coplay.training.messages import ConfigError
from coplay.training.metrics import fetch
from coplay.training.reward_model_settings import RewardModelSettings

Place = tuple[str, int, str]
"""(episode, step, player)."""


class RewardModel:
    """Judges conversations; frozen, in evaluation mode, so that a score is a function of the text alone."""

    def __init__(self, settings: RewardModelSettings) -> None:
        """Load it.

        Raises:
            ConfigError: if the folder holds no such model, or not the output asked for.
        """
        self.settings = settings
        folder = Path(settings.path)
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"'reward_model.path' is {settings.path!r}, which holds no config.json; expected the folder of a"
                " sequence classifier as transformers saves it, with its tokenizer"
            )
        with forked_rng(0):
            model, told = AutoModelForSequenceClassification.from_pretrained(
                folder,
                dtype=getattr(torch, settings.dtype),
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
        if told["missing_keys"]:
            raise ConfigError(
                f"'reward_model.path' is {settings.path!r}, whose weights lack {sorted(told['missing_keys'])[:3]};"
                " expected a sequence classifier, whose head was trained and saved"
            )
        outputs = int(model.config.num_labels)
        if (settings.label is None and outputs != 1) or (settings.label or 0) >= outputs:
            raise ConfigError(
                f"'reward_model.label' is {settings.label} and the model in {settings.path!r} has {outputs} output(s);"
                f" expected {'no label' if outputs == 1 else f'a label from 0 to {outputs - 1}'}"
            )
        cuda = settings.device == "cuda" or (settings.device == "auto" and torch.cuda.is_available())
        self._model: Any = model.to("cuda" if cuda else "cpu").eval().requires_grad_(False)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._tokenizer = tokenizer
        self._longest = getattr(model.config, "max_position_embeddings", None)
        templated = isinstance(tokenizer.chat_template, str)
        self._chat = ChatFormat(tokenizer, max_positions=self._longest) if templated else None

    def ids(self, turns: Sequence[Turn]) -> tuple[int, ...]:
        """A conversation as the model reads it, up to and with the last reply."""
        system, texts = turns[0].observation.system, [turn.observation.text for turn in turns]
        replies, chat = [turn.reply for turn in turns], self._chat
        if chat is None:
            lines = [f"system: {system}"] if system else []
            for text, reply in zip(texts, replies, strict=True):
                lines += [f"user: {text}", f"assistant: {reply}"]
            return tuple(self._tokenizer("\n".join(lines), split_special_tokens=True)["input_ids"])
        if not chat.append_only:
            said = chat.history(system, texts, replies[:-1])
        else:
            said = chat.opening(system, texts[0])
            for text, reply in zip(texts[1:], replies, strict=False):
                said += (*chat.encode_label(reply), *chat.following(text, last_reply_ended=False))
        return (*said, *chat.encode_label(replies[-1]), chat.stop_ids[0])

    def scores(self, conversations: Sequence[tuple[int, ...]]) -> list[float]:
        """One score each. Equal conversations are read once, and only those of equal length together.

        Raises:
            ValueError: if one is longer than the model reads, or its score is not finite.
        """
        distinct = sorted(set(conversations), key=lambda ids: (len(ids), ids))
        if distinct and self._longest is not None and len(distinct[-1]) > self._longest:
            raise ValueError(
                f"a conversation has {len(distinct[-1])} tokens for the reward model in {self.settings.path!r}, which"
                f" reads {self._longest}; expected at most so many: shorten the game, or take another model"
            )
        known: dict[tuple[int, ...], float] = {}
        for batch in self._batches(distinct):
            with torch.inference_mode():
                ids = torch.tensor(batch, device=self._model.device)
                logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
            known.update(zip(batch, logits[:, self.settings.label or 0].double().tolist(), strict=True))
        found = [known[ids] for ids in conversations]
        if not all(map(math.isfinite, found)):
            raise ValueError(
                f"the reward model in {self.settings.path!r} gives a score that is not finite; expected finite ones:"
                " its weights are broken"
            )
        return found

    def _batches(self, distinct: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        batch: list[tuple[int, ...]] = []
        together = (
            getattr(self._model.config, "pad_token_id", None) is not None
        )  # else one at a time is all it takes
        for ids in distinct:
            full = (len(batch) + 1) * len(ids) > self.settings.batch_tokens
            if batch and (full or not together or len(ids) != len(batch[0])):
                yield batch
                batch = []
            batch.append(ids)
        if batch:
            yield batch

    def judge(self, trees: Sequence[RolloutTree]) -> list[RolloutTree]:
        """The same trees, their steps' info with each judged player's score times the weight."""
        asked = {place: self.ids(turns) for tree in trees for place, turns in self._heard(tree)}
        scores = dict(zip(asked, self.scores(list(asked.values())), strict=True))
        return [
            replace(tree, steps=tuple([self._told(tree, s, scores) for s in tree.steps])) for tree in trees
        ]

    def _heard(self, tree: RolloutTree) -> Iterator[tuple[Place, list[Turn]]]:
        """What is judged: each player's turns since his context last began anew, up to a step."""
        if tree.failure is not None:
            return
        players = self.settings.players or tree.players
        for branch, path in branch_paths(tree).items():
            if path and path[-1].status == "failed":
                continue
            turns: dict[str, list[Turn]] = {player: [] for player in players}
            for step in path:
                for turn in step.turns:
                    if turn.player in turns:
                        kept = [] if turn.observation.fresh_context else turns[turn.player]
                        turns[turn.player] = [*kept, turn]
                spoke = {turn.player for turn in step.turns}
                for player, heard in turns.items():
                    due = player in spoke if self.settings.per == "turn" else step is path[-1]
                    if heard and due and step.branch == branch:
                        yield (tree.episode, step.id, player), heard

    def _told(self, tree: RolloutTree, step: Step, scores: Mapping[Place, float]) -> Step:
        found = {
            player: self.settings.weight * scores[place]
            for player in tree.players
            if (place := (tree.episode, step.id, player)) in scores
        }
        return replace(step, info={**step.info, SCORES: found}) if found else step


def score_metrics(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """`reward_model/PLAYER/STATISTIC`: `mean`, `max`, `min`, `deviation` of what was added, by judged conversation."""
    told = [one for tree in trees for step in tree.steps for one in step.info.get(SCORES, {}).items()]
    players = list(dict.fromkeys(player for player, _ in told))
    if not told:
        return {}
    spreads = segment_spread(
        torch.tensor([score for _, score in told], dtype=torch.float64),
        torch.tensor([players.index(player) for player, _ in told]),
        len(players),
    )
    found: dict[str, torch.Tensor] = {}
    for place, player in enumerate(players):
        found |= spreads.told(place, f"reward_model/{player}/")
    return fetch(found)

"""The engine in this process: samples for all waiting requests at once, with caches kept between turns."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.kv_cache import Block, Store, join
from coplay.agents.policy import Policy
from coplay.agents.replies import ReplyState, choose

SHARED_PREFIX = 8
"""Fewer common first tokens than this are not worth a forward pass of their own."""
COMPACT = 0.75
"""A batch is copied to a smaller one when no more than this share of its rows still samples."""


class _Wave:
    """Requests that are answered together."""

    __slots__ = ("answers", "futures", "requests")

    def __init__(self) -> None:
        self.requests: list[SampleRequest] = []
        self.futures: list[asyncio.Future[Sample]] = []
        """Where each one's sample is waited for."""
        self.answers: asyncio.Task[list[Sample]]

    def hand_out(self, answers: asyncio.Task[list[Sample]]) -> None:
        """Tell everyone who still waits: his sample, or the error that all share (B38)."""
        waiting = [(place, future) for place, future in enumerate(self.futures) if not future.done()]
        error = None if answers.cancelled() else answers.exception()
        for place, future in waiting:
            if answers.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(answers.result()[place])


class LocalEngine:
    """Samples from policies that it holds; deterministic: requests are sorted, luck comes from their seeds.

    Args:
        policies: by name.
        max_batch_tokens: most new tokens, padding included, in one forward pass (one row is never cut).
        max_cache_tokens: most tokens whose keys and values are kept; the longest unused dialogues go first.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        *,
        max_batch_tokens: int = 16384,
        max_cache_tokens: int = 1 << 20,
    ) -> None:
        self._policies = policies
        self._max_batch_tokens = max_batch_tokens
        self._store = Store(max_cache_tokens)
        self._wave: _Wave | None = None

    async def sample(self, request: SampleRequest) -> Sample:
        """Sample one reply, together with all requests made in the same turn of the event loop.

        An error reaches all of them: nobody is left waiting (B38).
        """
        loop = asyncio.get_running_loop()
        if self._wave is None or self._wave.answers.done():
            self._wave = _Wave()
            self._wave.answers = loop.create_task(self._answer(self._wave))
            self._wave.answers.add_done_callback(self._wave.hand_out)
        future: asyncio.Future[Sample] = loop.create_future()
        self._wave.requests.append(request)
        self._wave.futures.append(future)
        return await future

    async def _answer(self, wave: "_Wave") -> list[Sample]:
        """Runs after everyone who was ready has asked."""
        self._wave = None
        return self.sample_all(wave.requests)

    def sample_all(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """Sample replies to all requests, in their order.

        Raises:
            ValueError: if a policy version is not held, or a model gives scores that are no numbers.
        """
        order = sorted(range(len(requests)), key=lambda index: requests[index].key)
        groups: dict[str, list[int]] = {}
        for index in order:
            groups.setdefault(requests[index].policy, []).append(index)
        policies = {label: self._held(label, requests[chosen[0]]) for label, chosen in groups.items()}
        states: dict[int, ReplyState] = {}
        with torch.inference_mode():
            for label, chosen in groups.items():
                for part in self._parts(chosen, requests):
                    fresh = [ReplyState(requests[index]) for index in part]
                    self._reply(policies[label], fresh)
                    states.update(zip(part, fresh, strict=True))
        return [states[index].sample() for index in range(len(requests))]

    def publish(self, policy: str) -> str:
        """Drop what older weights of a policy have read; returns the label to ask for now."""
        if policy not in self._policies:
            raise ValueError(
                f"the engine holds no policy {policy!r}; expected one of {sorted(self._policies)!r}"
            )
        self._store.forget(policy)
        return self._policies[policy].label

    def clear(self) -> None:
        """Drop all caches, as at the end of an iteration."""
        self._store.forget()

    def close(self) -> None:
        """Drop all caches."""
        self.clear()

    def _held(self, label: str, request: SampleRequest) -> Policy:
        policy = self._policies.get(label.rpartition("@")[0])
        if policy is None or policy.label != label:
            held = [policy.label for policy in self._policies.values()]
            raise ValueError(
                f"request {request.key!r} asks for policy {label!r}; the engine holds {held!r}: publish"
                " the weights before asking for them, and never ask for a version that is gone"
            )
        return policy

    def _parts(self, chosen: list[int], requests: Sequence[SampleRequest]) -> Iterator[list[int]]:
        """Cut a batch so that each part's keys and values fit the cache budget."""
        part: list[int] = []
        longest = 0
        for index in chosen:
            need = len(requests[index].context) + requests[index].max_new_tokens
            if part and max(longest, need) * (len(part) + 1) > self._store.max_cells:
                yield part
                part, longest = [], 0
            part.append(index)
            longest = max(longest, need)
        yield part

    def _reply(self, policy: Policy, states: list[ReplyState]) -> None:
        """Sample until every reply is finished; rows that are done leave when enough of them are."""
        active = [state for state in states if not state.finish]
        if not active:
            return
        block = self._gather(policy, active)
        rows = list(range(len(active)))
        while active:
            if len(active) <= COMPACT * len(block.dialogues):
                block = block.select(rows, [block.dialogues[row] for row in rows])
                self._store.put(block)
                rows = list(range(len(active)))
            choose(policy, active, self._read(policy, block, rows, [state.pending for state in active]))
            if any(state.finish for state in active):
                rows = [row for state, row in zip(active, rows, strict=True) if not state.finish]
                active = [state for state in active if not state.finish]

    def _gather(self, policy: Policy, states: list[ReplyState]) -> Block:
        """A block with the dialogues' rows in this order: that of the last turn as it is, where it fits."""
        dialogues = [state.request.dialogue for state in states]
        if len(set(dialogues)) < len(dialogues):  # asked twice at once: each request reads for itself
            dialogues = [
                f"{name}\0{row}" if name in dialogues[:row] else name for row, name in enumerate(dialogues)
            ]
        places = [
            self._store.find(name, policy.label, state.request.context)
            for name, state in zip(dialogues, states, strict=True)
        ]
        fresh = [row for row, place in enumerate(places) if place is None]
        runs: list[tuple[Block, list[int]]] = []
        if fresh:
            begun = self._begin(
                policy, [states[row].request for row in fresh], [dialogues[row] for row in fresh]
            )
            for row, source in enumerate(fresh):
                places[source] = (begun, row)
        for place in places:
            assert place is not None
            if runs and runs[-1][0] is place[0]:
                runs[-1][1].append(place[1])
            else:
                runs.append((place[0], [place[1]]))
        block = runs[0][0]
        if len(runs) > 1 or runs[0][1] != list(range(len(block.dialogues))):
            block = join(runs, policy.label, dialogues)
        self._store.put(block)
        for state, tokens in zip(states, block.tokens, strict=True):
            state.resume(len(tokens))
        return block

    def _begin(self, policy: Policy, requests: list[SampleRequest], dialogues: list[str]) -> Block:
        """A block for new dialogues; what their contexts share is read once and copied.

        Equal contexts are read once but for their last token; of different ones, the common beginning.
        """
        contexts = [tuple(request.context[:-1]) for request in requests]
        numbers = {context: number for number, context in enumerate(dict.fromkeys(contexts))}
        distinct = list(numbers)
        shared = _common_prefix(distinct)
        block = Block(policy.label, [""] * len(distinct))
        if len(distinct) > 1 and shared >= SHARED_PREFIX:
            block = Block(policy.label, [""])
            self._read(policy, block, [0], [distinct[0][:shared]])
            block = block.select([0] * len(distinct), [""] * len(distinct))
        if len(distinct) < len(contexts):
            rest = [context[len(read) :] for context, read in zip(distinct, block.tokens, strict=True)]
            rows = [row for row, tokens in enumerate(rest) if tokens]
            if rows:
                self._read(policy, block, rows, [rest[row] for row in rows])
            return block.select([numbers[context] for context in contexts], dialogues)
        block.dialogues = dialogues
        return block

    def _read(self, policy: Policy, block: Block, rows: list[int], news: Sequence[tuple[int, ...]]) -> Tensor:
        """Feed new tokens to some rows of a block; returns the hidden state (N, H) at the last one of each.

        The other rows read a dummy behind their last token, which their next real token overwrites.
        """
        starts = [len(tokens) for tokens in block.tokens]
        feeds: list[tuple[int, ...]] = [()] * len(starts)
        for row, new in zip(rows, news, strict=True):
            feeds[row] = new
            block.tokens[row] += new
        width = max(map(len, news))
        equal = len(set(starts)) == 1 and (width == 1 or all(len(feed) == width for feed in feeds))
        block.reserve(max(starts) + width)
        padded = [feed + (0,) * (width - len(feed)) for feed in feeds]
        size = max(1, self._max_batch_tokens // width)
        parts = [
            self._forward(policy, block, slice(start, start + size), padded, starts, equal)
            for start in range(0, len(starts), size)
        ]
        hidden = parts[0] if len(parts) == 1 else torch.cat(parts)
        if equal and len(rows) == len(starts):
            return hidden[:, -1]
        device = hidden.device
        last = torch.tensor([len(new) - 1 for new in news], device=device)
        return hidden[torch.tensor(rows, device=device), last]

    def _forward(
        self,
        policy: Policy,
        block: Block,
        rows: slice,
        padded: list[tuple[int, ...]],
        starts: list[int],
        equal: bool,
    ) -> Tensor:
        device = policy.device
        ids = torch.tensor(padded[rows], device=device)
        if equal:
            start, end = starts[0], starts[0] + ids.shape[1]
            positions = torch.arange(start, end, device=device)[None]
            block.aim(rows, None, start, end)
        else:
            end = max(starts[rows]) + ids.shape[1]
            positions = torch.tensor(starts[rows], device=device)[:, None] + torch.arange(
                ids.shape[1], device=device
            )
            block.aim(rows, positions, 0, end)
        mask = (torch.arange(end, device=device) <= positions[:, :, None])[:, None]
        return policy.extend(ids, positions, mask, block)


def _common_prefix(contexts: Sequence[tuple[int, ...]]) -> int:
    """Number of first tokens that all contexts share."""
    first, last = min(contexts), max(contexts)
    for place, token in enumerate(first):
        if place >= len(last) or last[place] != token:
            return place
    return len(first)

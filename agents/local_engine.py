"""The engine in this process: samples for all waiting requests at once, with caches kept between turns."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.kv_cache import Block, Store
from coplay.agents.merged import Merged
from coplay.agents.policy import Policy
from coplay.agents.reader import COMPACT, Read, Reader
from coplay.agents.replies import ReplyState, choose


class _Wave:
    """Requests that are answered together."""

    __slots__ = ("answers", "futures", "requests")

    def __init__(self) -> None:
        self.requests: list[SampleRequest] = []
        self.futures: list[asyncio.Future[Sample]] = []
        """Where each one's sample is waited for."""
        self.answers: asyncio.Task[list[Sample]]

    def hand_out(self, answers: asyncio.Task[list[Sample]]) -> None:
        """Tell everyone who still waits: his sample, or the error that all share."""
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
        max_cache_tokens: most tokens whose keys and values are kept between calls, room for more to come included;
            the longest unused go first. None: what fits into a quarter of the memory, a million at most.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        *,
        max_batch_tokens: int = 16384,
        max_cache_tokens: int | None = None,
    ) -> None:
        self._policies = policies
        self._store = Store(_default_budget(policies) if max_cache_tokens is None else max_cache_tokens)
        self._reader = Reader(self._store, max_batch_tokens)
        self._merged: dict[str, Merged | None] = {}
        self._wave: _Wave | None = None

    @property
    def tokens_read(self) -> int:
        """Tokens that went through a model so far, padding not counted."""
        return self._reader.tokens_read

    @property
    def cached_tokens(self) -> int:
        """Tokens that caches have room for now; at most `max_cache_tokens`."""
        return self._store.cells

    async def sample(self, request: SampleRequest) -> Sample:
        """Sample one reply, together with all requests made in the same turn of the event loop.

        An error reaches all of them: nobody is left waiting.
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
        self._store.begin_wave()
        with torch.inference_mode():
            for label, chosen in groups.items():
                with self._ready(policies[label]):
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
        self._merged = {k: held for k, held in self._merged.items() if k.rpartition("@")[0] != policy}
        return self._policies[policy].label

    def clear(self) -> None:
        """Drop all caches and merged weights, as at the end of an iteration."""
        self._store.forget()
        self._merged.clear()

    def close(self) -> None:
        """Drop all caches."""
        self.clear()

    def _ready(self, policy: Policy) -> AbstractContextManager[None]:
        """Sample from merged weights inside, where there are any: made once a version."""
        if policy.label not in self._merged:
            held = {one.label for one in self._policies.values()}
            self._merged = {label: merged for label, merged in self._merged.items() if label in held}
            self._merged[policy.label] = policy.merged()
        merged = self._merged[policy.label]
        return nullcontext() if merged is None else merged.applied()

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
        names = [state.request.dialogue for state in active]
        read = self._reader.open(policy, names, [state.whole() for state in active])
        choose(policy, active, read.hidden)
        home, seats = _own_rows(read, active)
        if home is not read.block:
            for row in set(read.rows):
                self._store.retire((read.block, row))
        self._decode(
            policy,
            home,
            [(state, seat) for state, seat in zip(active, seats, strict=True) if not state.finish],
        )
        self._store.put(home, dict(zip(names, seats, strict=True)))

    def _decode(self, policy: Policy, home: Block, seated: list[tuple[ReplyState, int]]) -> None:
        """Sample the rest of replies that have rows of their own in a block, working on copies of ever fewer rows."""
        work, origin = home, list(range(len(home)))
        work.compare()
        while seated:
            if len(seated) <= COMPACT * len(work):
                smaller = work.select([seat for _, seat in seated], room=_room(state for state, _ in seated))
                smaller.compare()
                if work is not home:
                    home.absorb(work, origin)
                origin = [origin[seat] for _, seat in seated]
                work, seated = smaller, [(state, seat) for seat, (state, _) in enumerate(seated)]
            active = [state for state, _ in seated]
            rows = [seat for _, seat in seated]
            choose(policy, active, self._reader.read(policy, work, rows, [state.pending for state in active]))
            seated = [(state, seat) for state, seat in seated if not state.finish]
        if work is not home:
            home.absorb(work, origin)


def _room(states: Iterable[ReplyState]) -> int:
    """Most tokens that any of some replies has to read yet, if it becomes as long as it may."""
    return max(
        [
            state.request.max_new_tokens - len(state.ids) + len(state.pending)
            for state in states
            if not state.finish
        ],
        default=0,
    )


def _own_rows(read: Read, states: Sequence[ReplyState]) -> tuple[Block, list[int]]:
    """A block where every reply that goes on has a row of its own, and the row of each reply.

    Replies that end with their first token may share a row, also with one that goes on.
    """
    going = [not state.finish for state in states]
    owners = [row for row, goes in zip(read.rows, going, strict=True) if goes]
    if len(set(owners)) == len(owners):
        return read.block, read.rows
    rest = sorted(set(read.rows) - set(owners))
    order = sorted(range(len(owners)), key=owners.__getitem__)  # copies of a row lie side by side
    sources = [*[owners[number] for number in order], *rest]
    block = read.block.select(sources, room=_room(states))
    first = {row: place for place, row in reversed(list(enumerate(sources)))}
    own = iter(sorted(range(len(order)), key=order.__getitem__))
    return block, [next(own) if goes else first[row] for row, goes in zip(read.rows, going, strict=True)]


def _default_budget(policies: Mapping[str, Policy]) -> int:
    """Tokens whose keys and values fill a quarter of the memory under the largest model, a million at most."""
    sizes = [policy.cache_bytes() for policy in policies.values()]
    memory = min([_memory(device) for device in {policy.device for policy in policies.values()}], default=0)
    return max(1, min(1 << 20, memory // 4 // max(sizes, default=1)))


def _memory(device: torch.device) -> int:
    """Bytes of memory on a device."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 8 << 30  # no way to ask without another package: what any machine has

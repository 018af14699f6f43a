"""Credit of stored rollouts, computed again: under the run's own settings to the bit, or under others.

Nothing is generated: rewards come from the rollouts; running means, critic readings and what a KL took off rewards from
`estimates`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coplay.agents.constraint import TokenTrie
from coplay.games import Grammar
from coplay.rollout_tree import CreditRow, RolloutTree, Trajectory, read_credits, read_rollouts
from coplay.rollout_tree.estimates import EstimateRow, read_estimates
from coplay.rollout_tree.storage import parts
from coplay.training.baselines import RunningMeans
from coplay.training.config import RunConfig
from coplay.training.estimators import estimate, estimate_players, lowered, mean_keys
from coplay.training.extract import extract, in_table_order, tick_table, token_batch
from coplay.training.inner_expectation import Beside, expect_past, expects_past, paths_beside
from coplay.training.messages import ConfigError
from coplay.training.packets import AdvantagePacket, make_packets
from coplay.training.record import credit_rows
from coplay.training.records import Estimate, PathKey, TickTable, TickValues, UpdateResult
from coplay.training.schemes import BranchesEstimator, CriticEstimator, critic_learning
from coplay.training.stored_config import read_config
from coplay.training.tool_tokens import TrieOf
from coplay.training.trainer import Credit, Done, TickCredit, make_credit, shape_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIteration:
    """All that a run stored of one iteration."""

    config: RunConfig
    """The run's own settings."""
    number: int
    """The iteration, and the number of updates that its policies had had."""
    trees: tuple[RolloutTree, ...]
    trajectories: tuple[Trajectory, ...]
    known: Mapping[PathKey, EstimateRow]
    """What the estimator knew before, by path."""
    credits: Mapping[tuple[PathKey, int], CreditRow]
    """By path and number of the row in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recredited:
    """The credit of a stored iteration under some settings, with every stage on the way."""

    config: RunConfig
    number: int
    """The iteration."""
    table: TickTable
    """Rewards less what a KL took off them (`estimate.penalty`)."""
    values: TickValues | None
    running_means: RunningMeans
    """Before the iteration."""
    raw: Estimate
    """As estimated from that table."""
    estimate: Estimate
    """After whitening or centring before shaping; packets carry its `exchanged`."""
    packets: tuple[AdvantagePacket, ...]
    ticks: Mapping[str, TickCredit]
    """By trained policy."""
    credits: Mapping[str, Credit]
    """By trained policy."""
    notes: tuple[str, ...] = ()
    """What differs from a run that had had these settings from the start, as far as it matters here."""


def load_iteration(folder: Path, iteration: int | None = None) -> StoredIteration:
    """Read one stored iteration of a run; None takes the newest.

    Raises:
        ConfigError: if the folder is no run folder, or the iteration's credits or estimates were not stored.
        FileNotFoundError: if the iteration was not stored.
    """
    config = read_config(folder)
    number = parts(folder, "episodes", iteration)[-1][0]
    trees = tuple(read_rollouts(folder, number))
    try:
        credits = {
            (PathKey(one.episode, one.branch, one.player), one.row): one
            for one in read_credits(folder, number)
        }
        known = {PathKey(one.episode, one.branch, one.player): one for one in read_estimates(folder, number)}
    except FileNotFoundError as error:
        raise ConfigError(
            f"iteration {number} of '{folder}' was stored without its credits or what the estimator knew ({error});"
            " expected one that was stored with storage.credits = true, by this version"
        ) from error
    return StoredIteration(
        config=config,
        number=number,
        trees=trees,
        trajectories=extract(trees, branches=isinstance(config.estimator, BranchesEstimator)),
        known=known,
        credits=credits,
    )


def recredit(
    stored: StoredIteration, config: RunConfig, *, tries: Mapping[str, TrieOf] | None = None
) -> Recredited:
    """Estimate, exchange and shape a stored iteration under any settings.

    Args:
        config: the run's own, with other estimator, shaping or objective.
        tries: by trained policy, how constrained replies are spelled; needed for gradients only.

    Raises:
        ConfigError: if the settings need readings of a critic and the run had none, or train on branches and the run
            did not, or the reverse; or lower rewards by a KL that the run did not measure.
    """
    settings, players = config.estimator, config.make_game().spec.players
    kinds = [one.estimator.kind for one in (config, stored.config)]
    if kinds.count("branches") == 1:
        raise ConfigError(
            f"'estimator.kind' is {kinds[0]!r}, but the run's own is {kinds[1]!r}, whose rows are others; expected"
            " 'branches' for both or for neither"
        )
    table = tick_table(
        stored.trajectories, reward_scale=settings.reward_scale, has_chance=config.has_chance()
    )
    rescale = stored.config.estimator.reward_scale / settings.reward_scale
    means = _running_means(table, stored.known, rescale)
    values = _tick_values(table, stored.known, rescale)
    if critic_learning(settings) is not None and values is None:
        raise ConfigError(
            f"'estimator.kind' is {settings.kind!r} with a critic, but iteration {stored.number} holds no readings of"
            " one; expected an estimator without, or a run that trained a critic"
        )
    penalty = _penalty(stored, config, table)
    known: dict[str, Any] = {"running_means": means, "values": values, "update": stored.number}
    raw = estimate(settings, lowered(table, penalty), **known)
    normalised = estimate_players(settings, config.shaping, table, penalty=penalty, **known)
    normalised = _with_past(stored, config, table, normalised, rescale)
    packets = make_packets(table, normalised.exchanged)
    ordered = in_table_order(stored.trajectories, table)
    credits, ticks = {}, {}
    for name, label in trained_labels(config, table).items():
        batch = token_batch(
            ordered,
            policy=label,
            trie_of=(tries or {}).get(name, _unconstrained),
            reward_scale=settings.reward_scale,
            entropy_mask_regex=config.objective.entropy_mask_regex,
        )
        ticks[name] = shape_ticks(config, label, players, table, normalised, packets, update=stored.number)
        if batch is not None:
            credits[name] = make_credit(config, table, normalised, batch, ticks[name])
    return Recredited(
        config=config,
        number=stored.number,
        table=lowered(table, penalty),
        values=values,
        running_means=means,
        raw=raw,
        estimate=normalised,
        packets=packets,
        ticks=ticks,
        credits=credits,
        notes=_notes(stored.config, config, table, means),
    )


def _penalty(stored: StoredIteration, config: RunConfig, table: TickTable) -> Tensor | None:
    """(B, S) what the run's own KL took off rewards, in scaled units; None where settings have no KL there."""
    wanted, own = config.objective.kl_in_reward, stored.config.objective.kl_in_reward
    if wanted is None:
        return None
    if wanted != own:
        whose = "no KL in the rewards" if own is None else "another KL there"
        raise ConfigError(
            f"'objective.kl.place' is 'reward' in the new settings, and the run had {whose}, so that this one was not"
            " measured when the iteration was played; expected the run's own 'objective.kl', or none in the rewards:"
            " --objective.kl null, or --objective.kl.place loss"
        )
    penalty = torch.zeros_like(table.rewards)
    for row, key in enumerate(table.keys):
        taken = _known(stored.known, key).penalty
        if taken is None:
            raise ConfigError(
                f"iteration {stored.number} was stored without what its KL took off rewards; expected one that was"
                " stored by this version"
            )
        penalty[row, : len(taken)] = torch.from_numpy(taken)
    return penalty


def _with_past(
    stored: StoredIteration, config: RunConfig, table: TickTable, estimate: Estimate, rescale: float
) -> Estimate:
    """The estimate with the own past as alignment weights take it, from the stored branches."""
    past, settings = expects_past(config.shaping), config.estimator
    if past is None:
        return estimate
    trains = isinstance(settings, BranchesEstimator)
    paths, beside = () if trains else paths_beside(stored.trees), None
    if paths:
        branches = tick_table(paths, reward_scale=settings.reward_scale, has_chance=config.has_chance())
        values = None
        if isinstance(settings, CriticEstimator):
            known = all(key in stored.known for key in branches.keys)
            values = _tick_values(branches, stored.known, rescale) if known else None
            if values is None:
                raise ConfigError(
                    f"'shaping.past.kind' is 'expected' and 'estimator.kind' is 'critic', but iteration {stored.number}"
                    " holds no readings along branches; expected a run that was trained with both"
                )
        beside = Beside(trajectories=paths, table=branches, values=values)
    return expect_past(
        settings,
        past,
        stored.trajectories,
        table,
        estimate,
        beside,
        policies=set(trained_labels(config, table).values()),
        update=stored.number,
    )


def trained_labels(config: RunConfig, table: TickTable) -> dict[str, str]:
    """`name@version` of every trained policy that played, by name."""
    found = {label.partition("@")[0]: label for label in table.policies}
    return {
        name: found[name]
        for name, policy in config.agents.policies.items()
        if policy.trained and name in found
    }


def recredited_rows(result: Recredited) -> Iterator[CreditRow]:
    """The credits in the form in which they are stored; importance weights, which no settings give, are 1."""
    for credit in result.credits.values():
        ones = torch.ones(credit.batch.num_tokens)
        done = Done(credit=credit, result=UpdateResult(weights=ones))
        yield from credit_rows(result.table, result.estimate, done)


def _unconstrained(grammar: Grammar) -> TokenTrie | None:
    return None


def _running_means(
    table: TickTable, known: Mapping[PathKey, EstimateRow], rescale: float
) -> dict[str, tuple[list[float], list[float]]]:
    """The state that the stored means were read from, as far as this iteration reads it."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for key, name in zip(table.keys, mean_keys(table), strict=True):
        row = _known(known, key)
        if len(row.running_mean) > len(found.get(name, ((), ()))[0]):
            found[name] = ((row.running_mean * rescale).tolist(), row.running_count.tolist())
    return found


def _tick_values(table: TickTable, known: Mapping[PathKey, EstimateRow], rescale: float) -> TickValues | None:
    rows = [_known(known, key).value for key in table.keys]
    if not rows or any(row is None for row in rows):
        return None
    values = torch.full(table.mask.shape, float("nan"), dtype=table.rewards.dtype)
    bootstrap = torch.zeros(len(rows), dtype=table.rewards.dtype)
    for place, row in enumerate(rows):
        assert row is not None
        laid = torch.from_numpy(row * rescale)
        values[place, : len(laid) - 1] = laid[:-1]
        bootstrap[place] = laid[-1]
    return TickValues(values=values, bootstrap=bootstrap)


def _known(known: Mapping[PathKey, EstimateRow], key: PathKey) -> EstimateRow:
    if key not in known:
        raise ValueError(
            f"what the estimator knew of {key} is not stored; expected every path that was played"
        )
    return known[key]


def _notes(own: RunConfig, config: RunConfig, table: TickTable, means: RunningMeans) -> tuple[str, ...]:
    """Running means were gathered under the run's own discount, and no stored iteration can say otherwise."""
    if own.estimator.discount == config.estimator.discount:
        return ()
    alive = torch.zeros_like(table.rewards).index_add(0, table.group_ids, table.mask.to(table.rewards.dtype))
    baseline = getattr(config.estimator, "baseline", "leave_one_out")
    lone = baseline == "leave_one_out" and bool((alive == 1).any())
    if not any(any(counts) for _, counts in means.values()) or not (lone or baseline == "running_mean"):
        return ()
    return (
        f"running means are those of earlier iterations under discount {own.estimator.discount};"
        f" a run with {config.estimator.discount} from the start would have had others",
    )

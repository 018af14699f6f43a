"""What a run of tables (`agents.model.kind = "tabular"`) may not ask for; its game's tree says if it is too large."""

from collections.abc import Iterable, Mapping, Sequence

from coplay.agents.language import SamplingSettings
from coplay.agents.settings import ModelSettings, PolicySettings, TabularModel
from coplay.training.messages import ConfigError
from coplay.training.schemes import EstimatorSettings, critic_learning


def check_tables(
    model: ModelSettings,
    policies: Mapping[str, PolicySettings],
    sampling: SamplingSettings,
    tools: Iterable[str],
) -> None:
    """Refuse what only a language model can do.

    Raises:
        ConfigError: if a table is to have an adapter, to say anything, or to forget.
    """
    if not isinstance(model, TabularModel):
        return
    for name, policy in policies.items():
        if policy.weights.kind != "full":
            raise ConfigError(
                f"'agents.policies.{name}.weights.kind' is {policy.weights.kind!r} and 'agents.model.kind' is"
                " 'tabular', which has no layers to adapt; expected 'full': the table itself"
            )
    if named := sorted(tools):
        raise ConfigError(
            f"'agents.tools' names {named!r} and 'agents.model.kind' is 'tabular', which knows the listed moves only;"
            " expected none"
        )
    if not sampling.constrained:
        raise ConfigError(
            "'agents.sampling.constrained' is false and 'agents.model.kind' is 'tabular', which knows the listed moves"
            " only; expected true"
        )
    if sampling.max_context is not None:
        raise ConfigError(
            f"'agents.sampling.max_context' is {sampling.max_context} and 'agents.model.kind' is 'tabular', which reads"
            " dialogues of any length; expected none"
        )


def check_table_run(
    model: ModelSettings,
    estimator: EstimatorSettings,
    *,
    games: Mapping[str, Sequence[object]],
    precision: str,
) -> None:
    """Refuse what goes with language models only, or with several games.

    Args:
        model: the run's.
        estimator: the run's.
        games: by section, those besides that of section `game`.
        precision: of the update.

    Raises:
        ConfigError: if there is a critic, a mixture, something held out, or half precision.
    """
    if not isinstance(model, TabularModel):
        return
    if critic_learning(estimator) is not None:
        raise ConfigError(
            f"'estimator.kind' is {estimator.kind!r} with a critic and 'agents.model.kind' is 'tabular', which"
            " leaves a critic no states to read; expected 'returns', or 'branches' without a critic"
        )
    for section, named in games.items():
        if named:
            raise ConfigError(
                f"{section!r} names games and 'agents.model.kind' is 'tabular', whose table is of section 'game' alone;"
                " expected none, or another model"
            )
    if precision != "float32":
        raise ConfigError(
            f"'update.precision' is {precision!r} and 'agents.model.kind' is 'tabular', whose logits it would round;"
            " expected 'float32'"
        )

"""Words of a command line that are taken out before flags of settings are read."""

from coplay.training.messages import ConfigError


def take(words: list[str], switch: str) -> bool:
    """Whether a switch is among the words, and no longer after."""
    if switch in words:
        words.remove(switch)
        return True
    return False


def take_value(words: list[str], option: str) -> str | None:
    """The word after an option, both taken out; None where the option is not given."""
    if option not in words:
        return None
    place = words.index(option)
    if place + 1 >= len(words):
        raise ConfigError(f"{option} needs a value, e.g. {option} runs/NAME")
    value = words[place + 1]
    del words[place : place + 2]
    return value

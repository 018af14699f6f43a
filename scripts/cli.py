"""The console command `coplay`: find the subcommand, run it, turn user mistakes into one sentence and exit code 2."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from coplay.games.names import nearest
from coplay.games.optional import MissingLibraryError
from coplay.scripts.own_games import import_games

COMMANDS = {
    "train": "train agents against each other from a configuration",
    "imitate": "teach a policy to say what scripted, stored or human players said",
    "play": "watch agents play one game, or sit in",
    "evaluate": "returns and behaviour rates of trained agents against named opponents",
    "recredit": "the credit of stored rollouts under other settings, beside the stored one",
    "explain": "what the credit of one stored turn is made of",
    "variance": "what groups and branches do for the variance of the gradient",
    "export": "rollouts as chats, graphs, verifiers episodes or an Inspect log",
    "view": "a run as one page to look at, or its games as text",
    "games": "list the games, or describe one",
    "check-game": "hold a game to every rule of its contract",
    "new-game": "write a small working game to begin from",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code: 0 done, 1 failed on the way, 2 asked for something impossible."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(_overview())
        return 0 if words else 2
    if words[0] not in COMMANDS:
        hint = nearest(words[0], COMMANDS)
        return _say(f"unknown command {words[0]!r}; expected one of {', '.join(COMMANDS)}{hint}", 2)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return _guarded(lambda: _run(words[0], words[1:]))


def _run(command: str, words: list[str]) -> int:
    left = import_games(words)
    return int(importlib.import_module(f"coplay.scripts.{command.replace('-', '_')}").main(left))


def _guarded(command: Callable[[], int]) -> int:
    """Run a command; what a person can mend becomes one sentence on stderr."""
    try:
        return command()
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return _say("stopped; what was saved stays", 130)
    except (ValueError, MissingLibraryError) as error:
        if os.environ.get("COPLAY_TRACEBACK"):
            raise
        return _say(_sentence(error), 2)
    except (ArithmeticError, KeyError, RuntimeError, OSError, ImportError) as error:
        if os.environ.get("COPLAY_TRACEBACK"):
            raise
        return _say(f"{_sentence(error)} (COPLAY_TRACEBACK=1 shows where)", 1)


def _say(sentence: str, code: int) -> int:
    """One line, in which nothing acts on the terminal: a reason may quote what a model said (law 10)."""
    from coplay.rollout_tree.render import safe_text

    sys.stderr.write(f"coplay: {safe_text(' '.join(sentence.splitlines()))}\n")
    return code


def _sentence(error: Exception) -> str:
    text = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
    return str(text) or type(error).__name__


def _overview() -> str:
    lines = [f"  coplay {name:<11} {text}" for name, text in COMMANDS.items()]
    return (
        "Train language-model agents against each other.\n\n"
        + "\n".join(lines)
        + "\n\ncoplay COMMAND --help tells more; --import module:Class makes a game of your own known to any of them.\n"
    )


if __name__ == "__main__":
    sys.exit(main())

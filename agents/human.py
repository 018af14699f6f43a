"""A person at the terminal in any seat."""

from collections.abc import Callable

from coplay.agents.base import AgentFactory, Desk, Reply, Seat, ToolCall, TurnKey
from coplay.agents.tools import answer_call
from coplay.games import Malformed, Observation

Read = Callable[[str], str]
"""Shows a prompt and returns one line; raises EOFError at the end of input, as the built-in `input` does."""
Write = Callable[[str], None]

_REASONS = {
    "empty": "it is empty",
    "cut_off": "it was cut off",
    "no_move": "it holds no move",
    "ambiguous": "it holds several different moves",
    "out_of_range": "its number is out of range",
    "too_long": "it is too long",
}


class PlayerQuitError(KeyboardInterrupt):
    """The person left the game; like Ctrl-C it passes the boundary that records failed episodes."""


class HumanAgent:
    """Shows observations and reads replies; asks again, with the reason, until a reply is a move."""

    def __init__(
        self, player: str, *, read: Read = input, write: Write = print, tools: Desk | None = None
    ) -> None:
        """Sit down.

        Args:
            player: the seat's name, shown in the prompt.
            read: reads one line.
            write: shows one text.
            tools: runs what the game lets its players call.
        """
        self._player = player
        self._read = read
        self._write = write
        self._tools = tools
        self._system = ""

    @property
    def policy(self) -> str:
        """The name of an agent without weights."""
        return "human"

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        """Ask the person; a line that is a call of a tool is answered, and he is asked again.

        Raises:
            PlayerQuitError: at `/quit` or the end of input.
        """
        if observation.system and observation.system != self._system:
            self._write(printable(observation.system))
        self._system = observation.system
        self._write(printable(observation.text))
        calls: list[ToolCall] = []
        while True:
            line = self._line()
            if line == "/help":
                self._write(f"Reply with {printable(observation.grammar.describe())}. /quit leaves the game.")
                if observation.system:
                    self._write(printable(observation.system))
                continue
            if (call := await self._called(observation, line, len(calls))) is not None:
                calls.append(call)
                self._write(printable(call.result))
                continue
            action = observation.grammar.parse(line)
            if not isinstance(action, Malformed):
                return Reply(text=line, policy=self.policy, calls=tuple(calls))
            reason = _REASONS[action.reason]
            expected = printable(observation.grammar.describe())
            self._write(f"{line!r} is no move: {reason}. Expected {expected}. /help, /quit")

    async def _called(self, observation: Observation, line: str, number: int) -> ToolCall | None:
        tools = observation.tools
        return None if tools is None else await answer_call(self._tools, tools, line, number=number)

    def close(self, observation: Observation) -> None:
        """Show how the game stopped."""
        self._write(printable(observation.text))

    def fork(self) -> "HumanAgent":
        """A copy that asks the same person."""
        copy = HumanAgent(self._player, read=self._read, write=self._write, tools=self._tools)
        copy._system = self._system
        return copy

    def _line(self) -> str:
        try:
            line = self._read(f"{self._player}> ").strip()
        except EOFError as end:
            raise PlayerQuitError(f"{self._player!r} left: the input ended") from end
        if line == "/quit":
            raise PlayerQuitError(f"{self._player!r} left the game")
        return line


def human_factory(*, read: Read = input, write: Write = print, tools: Desk | None = None) -> AgentFactory:
    """Make human players, one for each seat asked for; `tools` runs what a game lets them call."""

    def sit(seat: Seat) -> HumanAgent:
        return HumanAgent(seat.player, read=read, write=write, tools=tools or seat.tools)

    return sit


def printable(text: str) -> str:
    """Replace control characters: others' messages must not drive the terminal (law 10)."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)

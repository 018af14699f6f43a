"""One episode as text to read. Rollout text is untrusted: nothing in it acts on a terminal (law 10)."""

from collections.abc import Iterator, Mapping

from coplay.games import Malformed, nearest
from coplay.rollout_tree.paths import branch_paths, main_line
from coplay.rollout_tree.records import RolloutTree, Step, Turn


def safe_text(text: str) -> str:
    r"""Escape everything that a terminal might act on or that cannot be seen; line ends stay.

    Control characters (colours, cursor moves, bells), direction marks, zero-width and unpaired surrogate
    characters become `\xNN` or `\uNNNN`.
    """
    if text.isprintable():
        return text
    return "".join([c if c == "\n" or c.isprintable() else _escaped(c) for c in text])


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _indented(text: str, mark: str) -> Iterator[str]:
    for number, line in enumerate(safe_text(text).split("\n")):
        yield f"    {mark if number == 0 else ' ' * len(mark)} {line}"


def render_text(tree: RolloutTree, branch: str = "") -> str:
    """Render the main line, or the path to a branch's end: private views, replies, malformed marks, rewards.

    Raises:
        ValueError: if the tree's links are broken, or it has no such branch.
    """
    lines = [safe_text(f"{tree.game}  episode {tree.episode}  group {tree.group}  {tree.status}")]
    lines += [safe_text(f"  branch {branch}")] if branch else []
    lines += [safe_text(f"  {player}: {policy}") for player, policy in tree.seats.items()]
    systems: dict[str, str] = {}
    totals = dict.fromkeys(tree.seats, 0.0)
    for step in _path(tree, branch):
        lines += ["", _head(step)]
        for turn in step.turns:
            if systems.get(turn.player) != turn.observation.system:
                systems[turn.player] = turn.observation.system
                lines += [safe_text(f"  {turn.player} is told"), *_indented(turn.observation.system, "|")]
            lines += _turn_lines(turn)
        lines.append(f"  rewards  {_numbers(step.rewards)}")
        for player, reward in step.rewards.items():
            totals[player] = totals.get(player, 0.0) + reward
        for turn in step.closing:
            lines += [safe_text(f"  {turn.player} (cut here)"), *_indented(turn.observation.text, "<")]
    if tree.failure is not None:
        who = tree.failure.player or "the game"
        lines += ["", safe_text(f"FAILED at step {tree.failure.step}, {who}: {tree.failure.reason}")]
    else:
        lines += ["", f"returns  {_numbers(totals)}"]
    return "\n".join(lines) + "\n"


def _path(tree: RolloutTree, branch: str) -> tuple[Step, ...]:
    if not branch:
        return main_line(tree)
    paths = branch_paths(tree)
    if branch not in paths:
        known = [name for name in paths if name]
        raise ValueError(
            f"episode {tree.episode!r} has no branch {branch!r}; expected one of {known!r}{nearest(branch, known)}"
        )
    return paths[branch]


def render_tree(tree: RolloutTree) -> str:
    """Draw the main line and its branches, one line a step: the replies and the rewards.

    Raises:
        ValueError: if the tree's links are broken.
    """
    import networkx as nx

    from coplay.rollout_tree.graph import to_networkx

    graph = to_networkx(tree)
    nx.set_node_attributes(graph, {step.id: _label(step) for step in tree.steps}, "label")
    lines: list[str] = []
    nx.write_network_text(graph, path=lines.append, end="", with_labels="label", vertical_chains=True)
    return "\n".join(lines) + "\n"


def _label(step: Step) -> str:
    said = "  ".join(f"{turn.player} {_clipped(turn.reply)}" for turn in step.turns)
    branch = f" [{step.branch}]" if step.branch else ""
    ended = "" if step.status == "running" else f"  ({step.status})"
    return f"step {step.index}{safe_text(branch)}  {safe_text(said)}  rewards {_numbers(step.rewards)}{ended}"


def _clipped(text: str, length: int = 24) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"


def _head(step: Step) -> str:
    overflow = step.info.get("context_overflow")
    why = f", the context of {overflow} is full" if overflow else ""
    ended = "" if step.status == "running" else safe_text(f"  ({step.status}{why})")
    return f"step {step.index}  tick {step.tick}{ended}"


def _turn_lines(turn: Turn) -> list[str]:
    attempt = f", attempt {turn.attempt + 1}" if turn.attempt else ""
    lines = [safe_text(f"  {turn.player}{attempt}"), *_indented(turn.observation.text, "<")]
    for call in turn.calls:
        lines += _indented(call.text, "?")
        lines += [] if call.outcome == "ok" else [f"    ! call: {call.outcome}"]
        lines += [] if call.outcome == "too_long" else _indented(call.result, "<")
    lines += _indented(turn.reply, ">")
    if isinstance(turn.action, Malformed):
        lines.append(f"    ! malformed: {safe_text(turn.action.reason)}")
    elif turn.action.text != turn.reply:
        lines += _indented(turn.action.text, "=")
    return lines


def _numbers(values: Mapping[str, float]) -> str:
    return "  ".join(f"{safe_text(player)} {value:g}" for player, value in values.items())

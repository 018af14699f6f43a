"""A process that keeps writing iterations until it is killed, and what it writes.

`python writing_fakes.py RUN FIRST` waits for a line, then writes iterations FIRST, FIRST + 1, ... to the folder RUN,
those of odd number as they come, and before each the one before it again, as a resumed run does; says each number when
it is finished.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rollout_fakes import Counting, Tokens, play

from coplay.rollout_tree import CreditRow, RolloutTree, RolloutWriter, write_credits, write_rollouts


def trees_of(iteration: int) -> list[RolloutTree]:
    """Different in number and content from iteration to iteration, in an order of names."""
    game = Counting(length=3 + iteration % 4)
    return play(game, Tokens, num_groups=5 + 7 * (iteration % 5), iteration=iteration)


def credits_of(iteration: int) -> list[CreditRow]:
    """Two tokens of each episode."""
    return [
        CreditRow(
            episode=tree.episode,
            branch="",
            player="ada",
            row=0,
            position=[3, 4],
            token=[iteration, number],
            tick=[0, 0],
            turn=[0, 0],
            credit=[0.5 * iteration, -float(number)],
        )
        for number, tree in enumerate(trees_of(iteration))
    ]


def write(run: Path, iteration: int) -> None:
    """All tables of one iteration."""
    trees = trees_of(iteration)
    write_credits(run, iteration, credits_of(iteration))
    if iteration % 2:
        with RolloutWriter(run, iteration, max_turns=40) as writer:
            for tree in trees:
                writer.add(tree)
    else:
        write_rollouts(run, iteration, trees)


def say(word: object) -> None:
    """One line to whoever started this."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    with TemporaryDirectory() as elsewhere:  # what is imported only to write is here by then
        write(Path(elsewhere), 0)
    say("ready")
    sys.stdin.readline()
    while True:
        if number:
            write(folder, number - 1)
        write(folder, number)
        say(number)
        number += 1

"""Names for the seats of games that number their players."""

NAMES = ("Ada", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal", "Ida", "Jo")


def seat_names(players: tuple[str, ...], number: int, load: str) -> tuple[str, ...]:
    """Names of all seats: those given, or ours.

    Raises:
        ValueError: if not as many as there are seats are given.
    """
    if players and len(players) != number:
        raise ValueError(f"players {players!r} for {load!r}; expected {number} names, or none")
    return players or (*NAMES, *(f"P{seat}" for seat in range(len(NAMES), number)))[:number]

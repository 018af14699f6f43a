"""Games of other libraries as ours, and ours as theirs. Each library is imported when its first game is made."""

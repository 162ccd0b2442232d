"""How long the rows of a batch are: a few lengths, since each is a program of its own."""

STEPS = 8  # lengths at most
SHORTEST = 16  # rows below this cost as much


def row_lengths(length: int) -> tuple[int, ...]:
    """At most `STEPS` lengths up to `length`, the last: multiples of one number."""
    # To eights, which devices multiply fastest.
    step = -(-length // (STEPS * 8)) * 8
    step = max(step, SHORTEST)
    return (*range(step, length, step), length)


def padded_length(tokens: int, length: int) -> int:
    """The least of `row_lengths` that `tokens` fit in."""
    for padded in row_lengths(length):
        if tokens <= padded:
            return padded
    return length

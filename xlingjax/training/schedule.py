"""Which objectives run at a step: a function of (step, seed), so that resumed runs agree."""

import bisect
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm

from xlingjax.errors import UserError
from xlingjax.training.stages import at, latest, starts

MODES = ("alternate", "weighted", "summed")

# A weight, or weights by the step from which they hold (see `stages`).
Weight = float | Mapping[int, float]


def turns(
    step: int, seed: int, weights: Sequence[Weight], mode: str = "alternate"
) -> dict[int, float]:
    """{index of an objective that runs at `step`: the factor of its loss}.

    "alternate": one of them, by a fixed cycle in which objective i has turns in proportion to its
    weight, spread evenly; equal weights take turns in order; a new stage begins a new cycle.
    "weighted": one, drawn with probability proportional to the weights. "summed": all of positive
    weight, which is the factor. Raises UserError when no weight is positive.
    """
    if mode not in MODES:
        raise UserError(f"schedule {mode!r} is not one of {', '.join(MODES)}")
    # A cycle begins with its stage, or the first turns of the stage would depend on the one before.
    start = latest(starts(weights), step)
    now = [at(weight, step) for weight in weights]
    if min(now) < 0 or max(now) <= 0:
        raise UserError(
            f"objective weights {now} at step {step} must be >= 0, and one must be positive"
        )
    # What has weight 0 is left out, so that its batch is not even read.
    if mode == "summed":
        return {index: float(weight) for index, weight in enumerate(now) if weight}
    if mode == "weighted":
        # By the step and not from a generator: a resumed run draws the same.
        point = draw(step, seed) * sum(now)
        ends = list(itertools.accumulate(now))
        # Rounding may leave a rest behind all of them: the last that has a share.
        last = max(index for index, weight in enumerate(now) if weight)
        return {min(bisect.bisect_right(ends, point), last): 1.0}
    order = cycle(tuple(now))
    return {order[(step - start) % len(order)]: 1.0}


def check(weights: Sequence[Weight], mode: str, steps: int) -> None:
    """Raises before the first step what `turns` would raise at any of `steps`."""
    for step in starts(weights):
        if step < max(steps, 1):
            turns(step, 0, weights, mode)


def draw(step: int, seed: int) -> float:
    """A number in [0, 1) that depends on (step, seed) alone, the same on every machine."""
    # Not Python's hash, which differs between processes, nor NumPy's generator, between versions.
    digest = hashlib.blake2b(f"{seed}:{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@lru_cache(maxsize=64)
def cycle(weights: tuple[float, ...]) -> tuple[int, ...]:
    """One period of the alternation: at each turn whoever is furthest behind its share goes; ties
    go to the first. Weights count as fractions with denominators up to 100; raises UserError for a
    positive one that so becomes 0."""
    fractions = [Fraction(weight).limit_denominator(100) for weight in weights]
    for weight, fraction in zip(weights, fractions, strict=True):
        if weight and not fraction:
            raise UserError(
                f"objective weights {list(weights)}: {weight} is too small to get a turn; multiply"
                ' them all (the smallest must be at least 0.01), or set schedule="weighted"'
            )
    scale = lcm(*[fraction.denominator for fraction in fractions])
    counts = [int(fraction * scale) for fraction in fractions]
    total = sum(counts)
    taken = [0] * len(counts)
    order = []
    for turn in range(total):
        # How far each is behind, in whole numbers: no rounding decides. Weight 0 is below all.
        behind = [
            count * (turn + 1) - total * done if count else -total
            for count, done in zip(counts, taken, strict=True)
        ]
        # `index` gives the first of equals, and so objectives of equal weight take turns in order.
        furthest = behind.index(max(behind))
        order.append(furthest)
        taken[furthest] += 1
    return tuple(order)

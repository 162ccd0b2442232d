"""How sure a share of few cases is."""

import math

FEW = 1000  # cases, below which a share is shown with its interval
_Z = 1.959964  # of the normal distribution: 95 % lie within so many deviations


def of_share(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (0..1) of `count` cases (Wilson 1927): within 0..1, and not
    empty where all cases are alike."""
    spread = _Z**2 / count
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    half /= 1 + spread
    return max(0.0, middle - half), min(1.0, middle + half)

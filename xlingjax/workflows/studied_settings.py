"""Settings by text, for `pretrain --hours` of `own_text`: what the study found
(docs/results/defaults.md). Model, optimizer and masking serve every text and time tried."""

import itertools
from collections.abc import Mapping, Sequence

from xlingjax.data.text.sources import find_pairs

STUDIED = {
    "MODEL": "'mini'",
    "BATCH": "8",
    "LENGTH": "64",
    "INIT_FROM": "None",
    "HARDEST_WEIGHT": "4.5",
    "RETRIEVAL_BATCH": "128",
    "hardest_negative.weight": "%HARDEST_WEIGHT",
    "hardest_negative.batch": "%RETRIEVAL_BATCH",
}
"""The recipe of the study: of another, steps alone are chosen."""
FEW_PAIRS = 4_000
"""Of some two languages: with fewer, more steps on fewer negatives find more."""
FEWER_NEGATIVES = ("RETRIEVAL_BATCH=32", "HARDEST_WEIGHT=2.0")


def is_studied(lines: Mapping[str, str], overrides: Sequence[str]) -> bool:
    """Whether a recipe is that of the study, with nothing given that would be chosen. lines: as of
    `bindings`."""
    given = {override.partition("=")[0] for override in overrides}
    as_studied = all(lines.get(name) == STUDIED[name] for name in STUDIED)
    return as_studied and not given & STUDIED.keys()


def fewest_pairs(patterns: str | Sequence[str]) -> int:
    """Lines of the two languages that have fewest of them, counted to `FEW_PAIRS` in each file; 0
    where there are no translations. Raises UserError as `find_pairs`."""
    counts: dict[tuple[str, ...], int] = {}
    for pair in find_pairs(patterns):
        if not pair.translates:
            continue
        languages = tuple(sorted(pair.languages))
        found = sum(1 for _ in itertools.islice(pair.lines(), FEW_PAIRS))
        counts[languages] = counts.get(languages, 0) + found
    return min(counts.values(), default=0)

"""Which steps clean a corpus, and how."""

from __future__ import annotations

from dataclasses import dataclass

UNITS = ("lines", "documents")


@dataclass(frozen=True)
class CleanSettings:
    """Each step has a value that leaves it out."""

    characters: bool = True
    """What was decoded wrongly and HTML's entities repaired; NFC, without control characters and
    invisible marks."""
    punctuation: bool = False
    """Moses' normalisation of punctuation, as XLM reads text. XLM-R, VECO and ERNIE-M do not."""
    sentences: bool = True  # lines of monolingual text are split into sentences
    length: tuple[int, int] | None = (1, 5000)  # characters of a line
    tokens: tuple[int, int] | None = (1, 250)  # words of a line (`words_in`)
    script_share: float = 0.5
    """At least this share of the letters is in the script of the language; 0: any."""
    copies: bool = True  # pairs whose sides are the same are left out
    ratio: float | None = 9.0
    """Words of the longer side of a pair over those of the shorter, at most (Moses'
    clean-corpus-n)."""
    identify: str | None = None  # a model of fastText (lid.176.bin), or "py3langid"
    identify_threshold: float = 0.5  # the probability that its language must have (CCNet)
    exact: bool = True  # repetitions are left out but for the first; as CCNet compares (`key_of`)
    near: float | None = 0.8
    """Jaccard similarity of shingles from which on a text repeats an earlier one."""
    unit: str = "lines"
    """What is identified and compared as one text: `lines` or `documents`."""

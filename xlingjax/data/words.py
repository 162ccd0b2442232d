"""Sentences given as words: their pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
"""Languages written without spaces between words: the model reads their words joined."""


def base_language(code: str) -> str:
    """ "zh" of "zh", "zh_TW", "zh-Hant"."""
    return code.split("-")[0].split("_")[0]


def pieces_of_words(words: Sequence[str], language: str, vocabulary) -> tuple[list[int], list[int]]:
    """(ids, the word of each): the sentence's pieces; a piece that covers several words belongs to the first."""
    joiner = "" if base_language(language) in UNSPACED else " "
    text = joiner.join(words)
    begins = np.cumsum([0, *(len(word) + len(joiner) for word in words)])
    ids, spans = vocabulary.encode_with_spans(text)
    found, owners = [], []
    for piece, (begin, end) in zip(ids, spans, strict=True):
        inside = [i for i in range(begin, end) if not text[i].isspace()]
        if inside:
            found.append(piece)
            owners.append(int(np.searchsorted(begins, inside[0], side="right")) - 1)
    return found, owners

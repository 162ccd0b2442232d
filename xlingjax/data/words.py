"""Sentences given as words: their pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
"""Languages written without spaces between words: the model reads their words joined."""


def base_language(code: str) -> str:
    """ "zh" of "zh", "zh_TW", "zh-Hant"."""
    return code.split("-")[0].split("_")[0]


def pieces_of_words(
    words: Sequence[str], language: str, vocabulary, apart: bool = False
) -> tuple[list[int], list[int]]:
    """(ids, the word of each): the sentence's pieces; a piece that covers several words belongs to the first.

    apart: in languages without spaces each word has pieces of its own, as in XTREME's and XGLUE's scripts, which
    tokenise word by word. (Where there are spaces no piece covers two words.)
    """
    if apart and base_language(language) in UNSPACED:
        alone = [pieces_of_words((word,), language, vocabulary)[0] for word in words]
        return [piece for ids in alone for piece in ids], [i for i, ids in enumerate(alone) for _ in ids]
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

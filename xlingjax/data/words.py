"""Sentences given as words: files of `word TAB tag`, and the pieces of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xlingjax.data.sources import read_lines
from xlingjax.errors import UserError

UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
"""Languages written without spaces between words: the model reads their words joined."""


def base_language(code: str) -> str:
    """ "zh" of "zh", "zh_TW", "zh-Hant"."""
    return code.split("-")[0].split("_")[0]


@dataclass(frozen=True)
class Tagged:
    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_tagged(path: str | Path) -> list[Tagged]:
    """Sentences of lines `word TAB tag`, a blank line after each (XTREME's POS and NER). Raises UserError naming the
    line."""
    sentences, words, tags = [], [], []
    if not Path(path).is_file():
        raise UserError(f"missing file: {path}; in TRAIN_FILES, DEV_FILES and TEST_FILES {{language}} is the code")
    for number, line in [*read_lines(path), (0, "")]:
        if not line.strip():
            if words:
                sentences.append(Tagged(tuple(words), tuple(tags)))
            words, tags = [], []
            continue
        cells = line.split("\t")
        if len(cells) < 2 or not cells[0].strip() or not cells[1].strip():
            raise UserError(f"{path}, line {number}: {line!r} is not a word, a tab and its tag")
        words.append(cells[0].strip())
        tags.append(cells[1].strip())
    if not sentences:
        raise UserError(
            f"{path}: no sentences in this file; a line is word, tab, tag, and a blank line ends a sentence"
        )
    return sentences


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

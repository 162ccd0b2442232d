"""Sentences given as words: their pieces."""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Sequence

import numpy as np

from xlingjax.errors import UserError

UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
"""Languages written without spaces between words: the model reads their words joined."""
MARK = "▁"
"""What SentencePiece writes for the space before a word; a piece of its own where no longer one
begins with it."""
MARKS = ("kept", "xglue")
"""What becomes of it in words that are to be tagged."""
_XGLUE_UNMARKED = ("zh", "th")


def base_language(code: str) -> str:
    """ "zh" of "zh", "zh_TW", "zh-Hant"."""
    return code.split("-")[0].split("_")[0]


def pieces_of_words(
    words: Sequence[str], language: str, vocabulary, apart: bool = False, marks: str = "kept"
) -> tuple[list[int], list[int]]:
    """(ids, the word of each): the pieces that the vocabulary's tokenizer makes, none left out.

    apart: each word is tokenised alone, as in XTREME's and XGLUE's scripts and by transformers
    (`is_split_into_words`); a word that the tokenizer makes nothing of (characters that are not
    printed) is `<unk>`, as in XTREME's. Otherwise the words are read as a text, joined in languages
    without spaces, where a piece that covers several words belongs to the first and the others may
    have none. marks: "kept"; "xglue": in zh and th no piece has a `MARK`, as in XGLUE's script
    (utils_ner.py), so that one of the mark alone is left out and "▁ab" is "ab", `<unk>` where that
    is no piece. Raises UserError for other `marks`.
    """
    if marks not in MARKS:
        raise UserError(f"marks={marks!r} is not one of {', '.join(MARKS)}; set WORD_MARKS")
    ids, owners = _alone(words, vocabulary) if apart else _together(words, language, vocabulary)
    if marks == "xglue" and base_language(language) in _XGLUE_UNMARKED:
        ids, owners = _unmarked(ids, owners, vocabulary)
    if not apart:
        return ids, owners
    missing = {*range(len(words))} - {*owners}
    if not missing:
        return ids, owners
    found = [*zip(owners, ids, strict=True), *((word, vocabulary.unk_id) for word in missing)]
    found.sort(key=operator.itemgetter(0))  # pieces of a word stay in their order
    return [piece for _, piece in found], [word for word, _ in found]


def _alone(words: Sequence[str], vocabulary) -> tuple[list[int], list[int]]:
    pieces = vocabulary.encode_words(words)
    return [piece for ids in pieces for piece in ids], [
        word for word, ids in enumerate(pieces) for _ in ids
    ]


def _together(words: Sequence[str], language: str, vocabulary) -> tuple[list[int], list[int]]:
    joiner = "" if base_language(language) in UNSPACED else " "
    text = joiner.join(words)
    begins = np.cumsum([0, *(len(word) + len(joiner) for word in words)])
    ids, spans = vocabulary.encode_with_spans(text)
    # No piece is of a space, nor of a word that the tokenizer makes nothing of, though either may
    # lie in its span.
    silent = [not own for own in vocabulary.encode_words(words)]
    word_at = [int(np.searchsorted(begins, i, side="right")) - 1 for i in range(len(text))]
    seen = [i for i, c in enumerate(text) if not c.isspace() and not silent[word_at[i]]] or [0]
    owners = []
    for begin, _ in spans:
        # A piece of no character, of a space or of what a ligature begins with, belongs to the
        # character after it.
        after = min(bisect.bisect_left(seen, begin), len(seen) - 1)
        owners.append(word_at[seen[after]])
    return ids, owners


def _unmarked(ids: Sequence[int], owners: Sequence[int], vocabulary) -> tuple[list[int], list[int]]:
    table = _ids_of_pieces(vocabulary)
    bare = [name.replace(MARK, "") for name in vocabulary.pieces(ids)]
    kept = [
        (table.get(name, vocabulary.unk_id), word)
        for name, word in zip(bare, owners, strict=True)
        if name
    ]
    return [piece for piece, _ in kept], [word for _, word in kept]


@functools.lru_cache(maxsize=4)
def _ids_of_pieces(vocabulary) -> dict[str, int]:
    return {name: i for i, name in enumerate(vocabulary.pieces(range(vocabulary.size)))}

"""Sentences given as words: their pieces."""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Sequence

import numpy as np

from xlingjax.data.languages import base_language
from xlingjax.data.scripts import is_unspaced

MARK = "▁"  # SentencePiece's space before a word; a piece itself where no longer one begins with it
MARKS = ("kept", "xglue")  # what becomes of it in words that are to be tagged
_XGLUE_UNMARKED = ("zh", "th")


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
    is no piece.
    """
    if apart:
        pieces = [(i, word) for word, ids in enumerate(vocabulary.encode_words(words)) for i in ids]
        ids, owners = [i for i, _ in pieces], [word for _, word in pieces]
    else:
        ids, owners = _together(words, language, vocabulary)
    if marks == "xglue" and base_language(language) in _XGLUE_UNMARKED:
        ids, owners = _unmarked(ids, owners, vocabulary)
    if not apart:
        return ids, owners
    # Every word has a tag to predict, so it needs a piece to predict it at.
    missing = sorted(set(range(len(words))) - set(owners))
    if not missing:
        return ids, owners
    owned = list(zip(owners, ids, strict=True))
    owned += [(word, vocabulary.unk_id) for word in missing]
    # By the word alone, so that the pieces of a word stay in their order.
    owned.sort(key=operator.itemgetter(0))
    owners, ids = zip(*owned, strict=True)
    return list(ids), list(owners)


def _together(words: Sequence[str], language: str, vocabulary) -> tuple[list[int], list[int]]:
    joiner = " "
    if is_unspaced(language):
        joiner = ""
    text = joiner.join(words)
    # Offsets are the tokenizer's, in the text; a search in these tells the word.
    begins = np.cumsum([0, *(len(word) + len(joiner) for word in words)])
    ids, spans = vocabulary.encode_with_spans(text)
    word_at = (np.searchsorted(begins, np.arange(len(text)), side="right") - 1).tolist()
    # No piece is of a space, or of a word that gives none, though its span may hold them.
    silent = [not ids_of_word for ids_of_word in vocabulary.encode_words(words)]
    seen = []
    for i, character in enumerate(text):
        if not character.isspace() and not silent[word_at[i]]:
            seen.append(i)
    # Pieces of a text in which no character is seen belong to the first word.
    if not seen:
        seen = [0]
    owners = []
    for begin, _ in spans:
        # A piece of no character, of a space or a ligature's part goes with the character after it.
        after = min(bisect.bisect_left(seen, begin), len(seen) - 1)
        owners.append(word_at[seen[after]])
    return ids, owners


def _unmarked(ids: Sequence[int], owners: Sequence[int], vocabulary) -> tuple[list[int], list[int]]:
    id_of_piece = _ids_of_pieces(vocabulary)
    unmarked_ids = []
    unmarked_owners = []
    for name, word in zip(vocabulary.pieces(ids), owners, strict=True):
        bare = name.replace(MARK, "")
        if bare:
            unmarked_ids.append(id_of_piece.get(bare, vocabulary.unk_id))
            unmarked_owners.append(word)
    return unmarked_ids, unmarked_owners


# The whole table takes long to make, and a task asks for it with every sentence.
@functools.lru_cache(maxsize=4)
def _ids_of_pieces(vocabulary) -> dict[str, int]:
    return {name: i for i, name in enumerate(vocabulary.pieces(range(vocabulary.size)))}

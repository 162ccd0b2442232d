"""Labelled text pairs and tagged sentences to rows: the pair layouts of XLM and XLM-R."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from xlingjax.data.features import Batch
from xlingjax.data.labelled.records import Example, Tagged
from xlingjax.data.vocabulary.sentencepiece import Encoded
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError
from xlingjax.runtime.workers import default_processes

PIECES = ("first", "all")  # which pieces of a word have its tag
_MANY = 1024  # texts that are worth several threads
Rows = Batch
Places = list[tuple[int, float]]
"""(example, where in it the middle of a row stands: 0 its begin, 1 its end) of every row."""


def pair_rows(
    first: Encoded,
    second: Encoded,
    vocabulary,
    length: int,
    reset_positions: bool = False,
    single: np.ndarray | bool = False,
) -> Rows:
    """Pairs of texts as arrays [N, length]: input_ids, position_ids, pack_ids, sides.

    The layout is the vocabulary's. "xlm": `</s>A</s>B</s>`, three separators, the inner two of TLM
    merged into one; "xlmr": `<s>A</s></s>B</s>`. Positions run on over both texts; `sides` is 1
    from the separator that opens B in "xlmr", from B's first piece in "xlm". With `reset_positions`
    the row is TLM's (XLM's concat_batches): four separators in either layout, positions and `sides`
    starting anew with the one that opens B. A `single` text (bool [N]; its second one is empty) is
    `<bos>A<eos>`. Too long a pair loses tokens from the longer side, one by one, of two equally
    long texts from the second. Raises UserError when `length` leaves no room for a token of each.
    """
    first_ids, first_lengths = first
    second_ids, second_lengths = second
    between = pair_separators(vocabulary, reset_positions)
    separators = np.where(single, 2, np.full(first_lengths.shape, between))
    least = int(separators.max(initial=2)) + 2
    if length < least:
        raise UserError(
            f"length {length} leaves no room for a pair between {least - 2} separators: use at"
            f" least {least}"
        )
    # In closed form: one token at a time takes long for documents.
    budgets = length - separators
    kept = np.maximum(budgets - second_lengths, (budgets + 1) // 2)
    first_kept = np.minimum(first_lengths, kept)
    second_kept = np.minimum(second_lengths, budgets - first_kept)

    columns = np.arange(length, dtype=np.int32)
    turns = (first_kept + 2)[:, None]
    lengths = first_kept + second_kept + separators
    valid = columns < lengths[:, None]
    # What is no piece of a text stands between or behind them.
    ids = np.where(valid, vocabulary.eos_id, vocabulary.pad_id)
    ids[:, 0] = vocabulary.bos_id
    ones = np.ones_like(first_kept)
    ids[_between(columns, ones, first_kept)] = _begins(first_ids, first_lengths, first_kept)
    ids[_between(columns, lengths - 1 - second_kept, second_kept)] = _begins(
        second_ids, second_lengths, second_kept
    )
    positions = np.broadcast_to(columns, ids.shape)
    if reset_positions:
        positions = np.where(columns >= turns, columns - turns, columns)
    return {
        "input_ids": ids.astype(np.int32),
        # 0 where there is padding, so that no row reads beyond the model's table.
        "position_ids": np.where(valid, positions, 0).astype(np.int32),
        "pack_ids": valid.astype(np.int32),
        "sides": (valid & (columns >= turns)).astype(np.int32),
    }


def pair_separators(vocabulary, reset_positions: bool) -> int:
    """Special tokens of a row of `pair_rows` with two texts."""
    # TLM's rows are the same in every layout: each text between two of its own.
    return 4 if reset_positions else vocabulary.pair_separators


def _between(columns: np.ndarray, begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """bool[N, L]: so many columns of each row, from that where it begins."""
    return (columns >= begins[:, None]) & (columns < (begins + counts)[:, None])


def _begins(ids: np.ndarray, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The first so many ids of each text, one text behind the other."""
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(ids)) - np.repeat(starts, lengths)
    return ids[places < np.repeat(kept, lengths)]


def joined(texts: Sequence[Sequence[int]]) -> Encoded:
    """Texts that are encoded already."""
    flat = [piece for text in texts for piece in text]
    return np.array(flat, np.int64), np.array([len(text) for text in texts], np.int64)


def classification_rows(
    examples: Sequence[Example],
    vocabulary,
    length: int,
    labels: Sequence[str],
    language_id: int,
    reset_positions: bool = False,
) -> Rows:
    """All examples of one language as arrays [N, length] and [N]: the features that
    `Classification` reads (see `pair_rows`). An example without a hypothesis is a single text; one
    without a label has weight 0."""

    def encoded(texts: Sequence[str]) -> Encoded:
        threads = default_processes() if len(texts) >= _MANY else 1
        ids, lengths = vocabulary.encode_lines(texts, threads)
        return ids, lengths.astype(np.int64)

    index: dict[str | None, int] = {label: i for i, label in enumerate(labels)}
    # Its weight is 0, so any class will do.
    index[None] = 0
    rows = pair_rows(
        encoded([one.premise for one in examples]),
        encoded([one.hypothesis or "" for one in examples]),
        vocabulary,
        length,
        reset_positions,
        single=np.array([one.hypothesis is None for one in examples], bool),
    )
    return rows | {
        "language_ids": language_id * rows["pack_ids"],
        "labels": np.array([index[one.label] for one in examples], np.int32),
        "example_weights": np.array([one.label is not None for one in examples], np.float32),
    }


Parts = list[tuple[int, list[int], list[int]]]
"""(sentence, its pieces, the word of each piece) for every row."""


def tagged_parts(
    sentences: Sequence[Tagged],
    vocabulary,
    length: int,
    language: str,
    apart: bool = True,
    marks: str = "kept",
) -> Parts:
    """A sentence whose pieces do not fit a row goes on in the next, and no word stands in two
    (XTREME's preprocessing); of a word that is longer than a row the first pieces stay. apart,
    marks: see `pieces_of_words`. Raises UserError for a `length` without room for a piece."""
    if length < 3:
        raise UserError(
            f"length {length} leaves no room for a piece between 2 separators: use at least 3"
        )
    parts: Parts = []
    room = length - 2
    for number, sentence in enumerate(sentences):
        ids, owners = pieces_of_words(sentence.words, language, vocabulary, apart, marks)
        # A sentence without pieces has a row too: every one stands in some.
        parts.append((number, [], []))
        # Rows are cut between words: at a cut within one its tag would have two places.
        begins = [i for i in range(len(ids)) if i == 0 or owners[i] != owners[i - 1]]
        for begin, end in zip(begins, [*begins[1:], len(ids)], strict=False):
            end = min(end, begin + room)
            if len(parts[-1][1]) + end - begin > room:
                parts.append((number, [], []))
            parts[-1][1].extend(ids[begin:end])
            parts[-1][2].extend(owners[begin:end])
    return parts


def places_of_parts(parts: Parts) -> Places:
    whole: Counter[int] = Counter()
    for number, ids, _ in parts:
        whole[number] += len(ids)
    before: Counter[int] = Counter()
    places = []
    for number, ids, _ in parts:
        # A sentence without pieces has one part, of none.
        places.append((number, (before[number] + len(ids) / 2) / max(whole[number], 1)))
        before[number] += len(ids)
    return places


def tagged_rows(
    sentences: Sequence[Tagged],
    vocabulary,
    length: int,
    tags: Sequence[str],
    language: str,
    language_id: int,
    pieces: str = "first",
    apart: bool = True,
    marks: str = "kept",
) -> tuple[Rows, Parts]:
    """(all sentences of one language as arrays [N, length], the features that `Tagging` reads; the
    part that each row holds, see `tagged_parts`).

    pieces: "first": the tag of a word stands at its first piece alone (XTREME, XGLUE); "all": at
    every piece, B-X going on as I-X (ERNIE-M). apart, marks: see `pieces_of_words`. Sentences
    without tags have weight 0. Raises UserError for a tag that is not one of `tags`.
    """
    parts = tagged_parts(sentences, vocabulary, length, language, apart, marks)
    texts = joined([ids for _, ids, _ in parts])
    none = joined([[] for _ in parts])
    rows = pair_rows(texts, none, vocabulary, length, single=True)
    labels = np.zeros((len(parts), length), np.int32)
    weights = np.zeros((len(parts), length), np.float32)
    index = {tag: i for i, tag in enumerate(tags)}
    for row, (number, _, owners) in enumerate(parts):
        tags_of_words = sentences[number].tags
        # Test sets: every column keeps weight 0.
        if not tags_of_words:
            continue
        for column, word in enumerate(owners):
            tag = tags_of_words[word]
            if column > 0 and owners[column - 1] == word:
                if pieces == "first":
                    continue
                # Only a word's first piece begins an entity.
                if tag.startswith("B-"):
                    tag = f"I-{tag[2:]}"
            if tag not in index:
                raise UserError(f"tag {tag!r} is not one of {', '.join(tags)}: add it to LABELS")
            # One further: the row begins with a special token.
            labels[row, column + 1] = index[tag]
            weights[row, column + 1] = 1
    rows |= {
        "language_ids": language_id * rows["pack_ids"],
        "tag_labels": labels,
        "tag_weights": weights,
    }
    return rows, parts

"""Labelled text pairs and tagged sentences to rows: the pair layouts of XLM and XLM-R."""

from collections.abc import Sequence

import numpy as np

from xlingjax.data.labelled.records import Example, Tagged
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError
from xlingjax.runtime.workers import default_processes

PIECES = ("first", "all")
"""Which pieces of a word have its tag."""
_MANY = 1024
"""Texts that are worth several threads."""


def kept_lengths(first: int, second: int, budget: int) -> tuple[int, int]:
    """How many tokens of each text stay when the longer one loses its last token, again and again,
    until both fit `budget`; of two equally long texts the second loses."""
    # In closed form: one token at a time takes long for documents.
    kept = min(first, max(budget - second, (budget + 1) // 2))
    return kept, min(second, budget - kept)


def pair_row(
    first: Sequence[int],
    second: Sequence[int] | None,
    vocabulary,
    length: int,
    reset_positions: bool = False,
) -> dict[str, np.ndarray]:
    """One example as arrays of `length`: input_ids, position_ids, pack_ids, sides.

    The layout is the vocabulary's. "xlm": `</s>A</s>B</s>`, three separators, the inner two of TLM
    merged into one; "xlmr": `<s>A</s></s>B</s>`. Positions run on over both texts; `sides` is 1
    from the separator that opens B in "xlmr", from B's first piece in "xlm". With `reset_positions`
    the row is TLM's (XLM's concat_batches): four separators in either layout, positions and `sides`
    starting anew with the one that opens B. A single text (`second` None) is `<bos>A<eos>`. Too
    long a pair loses tokens from the longer side. Raises UserError when `length` leaves no room for
    a token of each text.
    """
    separators = pair_separators(vocabulary, reset_positions)
    if second is None:
        separators = 2
    _require_room(length, separators)
    if second is None:
        ids = [vocabulary.bos_id, *first[: length - 2], vocabulary.eos_id]
        turn = len(ids)
    else:
        a, b = kept_lengths(len(first), len(second), length - separators)
        ids = [vocabulary.bos_id, *first[:a], vocabulary.eos_id]
        turn = len(ids)
        # Two ends and a beginning are there in any case;
        # what is beyond three stands between the texts.
        ids += [vocabulary.eos_id] * (separators - 3) + [*second[:b], vocabulary.eos_id]
    columns = np.arange(length, dtype=np.int32)
    valid = columns < len(ids)
    positions = columns
    if reset_positions:
        positions = np.where(columns >= turn, columns - turn, columns)
    return {
        "input_ids": np.array(ids + [vocabulary.pad_id] * (length - len(ids)), np.int32),
        # 0 where there is padding, so that no row reads beyond the model's table.
        "position_ids": np.where(valid, positions, 0).astype(np.int32),
        "pack_ids": valid.astype(np.int32),
        "sides": (valid & (columns >= turn)).astype(np.int32),
    }


def _require_room(length: int, separators: int) -> None:
    if length < separators + 2:
        raise UserError(
            f"length {length} leaves no room for a pair between {separators} separators: use at"
            f" least {separators + 2}"
        )


def pair_separators(vocabulary, reset_positions: bool) -> int:
    """Special tokens of a row of `pair_row` with two texts."""
    if reset_positions:
        # TLM's rows are the same in every layout: each text between two of its own.
        return 4
    return vocabulary.pair_separators


def stacked(rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays with one more axis in front, of rows of the same fields."""
    arrays = {}
    for name in rows[0]:
        arrays[name] = np.stack([row[name] for row in rows])
    return arrays


# --- Labelled texts -------------------------------------------------------------------------------


def classification_rows(
    examples: Sequence[Example],
    vocabulary,
    length: int,
    labels: Sequence[str],
    language_id: int,
    reset_positions: bool = False,
) -> dict[str, np.ndarray]:
    """All examples of one language as arrays [N, length] and [N]: the features that
    `Classification` reads (see `pair_row`). An example without a hypothesis is a single text; one
    without a label has weight 0.
    """

    index: dict[str | None, int] = {label: i for i, label in enumerate(labels)}
    # Its weight is 0, so any class will do.
    index[None] = 0
    classes = [index[example.label] for example in examples]
    weights = [example.label is not None for example in examples]
    arrays = _pair_rows(examples, vocabulary, length, reset_positions)
    return arrays | {
        "language_ids": language_id * arrays["pack_ids"],
        "labels": np.array(classes, np.int32),
        "example_weights": np.array(weights, np.float32),
    }


def _pair_rows(
    examples: Sequence[Example], vocabulary, length: int, reset_positions: bool
) -> dict[str, np.ndarray]:
    """The rows of `pair_row`, all at once: one at a time they take longer than their tokens."""
    single = np.array([one.hypothesis is None for one in examples], bool)
    between = pair_separators(vocabulary, reset_positions)
    separators = np.where(single, 2, between)
    _require_room(length, int(separators.max(initial=2)))
    first_ids, first_lengths = _encoded([example.premise for example in examples], vocabulary)
    second_ids, second_lengths = _encoded(
        [example.hypothesis or "" for example in examples], vocabulary
    )
    # As `kept_lengths`, of a single text too: its second one is empty.
    budgets = length - separators
    kept = np.maximum(budgets - second_lengths, (budgets + 1) // 2)
    first = np.minimum(first_lengths, kept)
    second = np.minimum(second_lengths, budgets - first)

    columns = np.arange(length, dtype=np.int32)
    turns = (first + 2)[:, None]
    lengths = (first + second + separators)[:, None]
    valid = columns < lengths
    # What is no piece of a text stands between or behind them.
    ids = np.where(valid, vocabulary.eos_id, vocabulary.pad_id)
    ids[:, 0] = vocabulary.bos_id
    ids[_between(columns, 1, first)] = _begins(first_ids, first_lengths, first)
    ids[_between(columns, lengths[:, 0] - 1 - second, second)] = _begins(
        second_ids, second_lengths, second
    )
    positions = np.broadcast_to(columns, ids.shape)
    if reset_positions:
        positions = np.where(columns >= turns, columns - turns, columns)
    return {
        "input_ids": ids.astype(np.int32),
        "position_ids": np.where(valid, positions, 0).astype(np.int32),
        "pack_ids": valid.astype(np.int32),
        "sides": (valid & (columns >= turns)).astype(np.int32),
    }


def _encoded(texts: Sequence[str], vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """(ids of all texts, one behind the other; int64[N]: how many each has)."""
    threads = 1
    if len(texts) >= _MANY:
        threads = default_processes()
    ids, lengths = vocabulary.encode_lines(texts, threads)
    return ids, lengths.astype(np.int64)


def _between(columns: np.ndarray, begins: int | np.ndarray, counts: np.ndarray) -> np.ndarray:
    """bool[N, L]: so many columns of each row, from that where it begins."""
    begins_N1 = np.broadcast_to(begins, counts.shape)[:, None]
    return (columns >= begins_N1) & (columns < begins_N1 + counts[:, None])


def _begins(ids: np.ndarray, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The first so many ids of each text, one text behind the other."""
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(ids)) - np.repeat(starts, lengths)
    return ids[places < np.repeat(kept, lengths)]


# --- Tagged sentences -----------------------------------------------------------------------------


def tagged_parts(
    sentences: Sequence[Tagged],
    vocabulary,
    length: int,
    language: str,
    apart: bool = True,
    marks: str = "kept",
) -> list[tuple[int, list[int], list[int]]]:
    """(sentence, its pieces, the word of each piece) for every row. A sentence whose pieces do not
    fit a row goes on in the next, and no word stands in two (XTREME's preprocessing); of a word
    that is longer than a row the first pieces stay. apart, marks: see `pieces_of_words`. Raises
    UserError for a `length` without room for a piece.
    """
    if length < 3:
        raise UserError(
            f"length {length} leaves no room for a piece between 2 separators: use at least 3"
        )
    parts = []
    room = length - 2
    for number, sentence in enumerate(sentences):
        ids, owners = pieces_of_words(sentence.words, language, vocabulary, apart, marks)
        # Where each word begins, so that rows are cut between words.
        begins = []
        for i in range(len(ids)):
            if i == 0 or owners[i] != owners[i - 1]:
                begins.append(i)
        # Rows of this sentence begin here: no row goes on from the sentence before.
        first = len(parts)
        # Of a sentence without pieces there is an end and no begin.
        ends = [*begins[1:], len(ids)]
        for begin, end in zip(begins, ends, strict=False):
            end = min(end, begin + room)
            # A word is not divided between rows: at the cut its tag would have two places.
            if len(parts) == first or len(parts[-1][1]) + end - begin > room:
                parts.append((number, [], []))
            parts[-1][1].extend(ids[begin:end])
            parts[-1][2].extend(owners[begin:end])
        # A sentence without pieces has a row too: every one stands in some.
        if len(parts) == first:
            parts.append((number, [], []))
    return parts


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
) -> dict[str, np.ndarray]:
    """All sentences of one language as arrays [N, length], the features that `Tagging` reads, in
    the rows of `tagged_parts`.

    pieces: "first": the tag of a word stands at its first piece alone (XTREME, XGLUE); "all": at
    every piece, B-X going on as I-X (ERNIE-M). apart, marks: see `pieces_of_words`. Sentences
    without tags have weight 0. Raises UserError for a tag that is not one of `tags`.
    """
    if pieces not in PIECES:
        raise UserError(f"pieces={pieces!r} is not one of {', '.join(PIECES)}; set TAGGED_PIECES")
    parts = tagged_parts(sentences, vocabulary, length, language, apart, marks)
    shape = (len(parts), length)
    rows = {}
    for name in ("position_ids", "language_ids", "pack_ids", "sides"):
        rows[name] = np.zeros(shape, np.int32)
    rows["input_ids"] = np.full(shape, vocabulary.pad_id, np.int32)
    rows["tag_labels"] = np.zeros(shape, np.int32)
    rows["tag_weights"] = np.zeros(shape, np.float32)
    index = {tag: i for i, tag in enumerate(tags)}
    for row, (number, ids, owners) in enumerate(parts):
        used = len(ids) + 2
        rows["input_ids"][row, :used] = [vocabulary.bos_id, *ids, vocabulary.eos_id]
        rows["position_ids"][row, :used] = np.arange(used)
        rows["language_ids"][row, :used] = language_id
        rows["pack_ids"][row, :used] = 1
        tags_of_words = sentences[number].tags
        # Test sets: every column keeps weight 0.
        if not tags_of_words:
            continue
        for column, word in enumerate(owners):
            tag = tags_of_words[word]
            goes_on = column > 0 and owners[column - 1] == word
            if goes_on and pieces == "first":
                continue
            if goes_on and tag.startswith("B-"):
                # Only a word's first piece begins an entity.
                tag = f"I-{tag[2:]}"
            if tag not in index:
                raise UserError(f"tag {tag!r} is not one of {', '.join(tags)}: add it to LABELS")
            # One further: the row begins with a special token.
            rows["tag_labels"][row, column + 1] = index[tag]
            rows["tag_weights"][row, column + 1] = 1
    return rows

"""Labelled text pairs and tagged sentences to rows: the pair layouts of XLM and XLM-R, and sources
of shuffled batches.

Fine-tuning sets are small, so they are tokenised once and kept in memory.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.data.features import batch_hash
from xlingjax.data.labelled.records import Example, Tagged
from xlingjax.data.loader import BatchSource, CountedSource
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError

_ENDLESS = 2**62  # batches
PIECES = ("first", "all")
"""Which pieces of a word have its tag."""


def kept_lengths(first: int, second: int, budget: int) -> tuple[int, int]:
    """How many tokens of each text stay when the longer one loses its last token, again and again,
    until both fit `budget`; of two equally long texts the second loses."""
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
    separators = (
        2 if second is None else 4 if reset_positions else vocabulary.pair_separators
    )
    if length < separators + 2:
        raise UserError(
            f"length {length} leaves no room for a pair between {separators} separators: use at"
            f" least {separators + 2}"
        )
    if second is None:
        ids = [vocabulary.bos_id, *first[: length - 2], vocabulary.eos_id]
        turn = len(ids)
    else:
        a, b = kept_lengths(len(first), len(second), length - separators)
        ids = [vocabulary.bos_id, *first[:a], vocabulary.eos_id]
        turn = len(ids)
        ids += [vocabulary.eos_id] * (separators - 3) + [*second[:b], vocabulary.eos_id]
    columns = np.arange(length, dtype=np.int32)
    valid = columns < len(ids)
    positions = (
        np.where(columns >= turn, columns - turn, columns)
        if reset_positions
        else columns
    )
    return {
        "input_ids": np.array(
            ids + [vocabulary.pad_id] * (length - len(ids)), np.int32
        ),
        "position_ids": np.where(valid, positions, 0).astype(np.int32),
        "pack_ids": valid.astype(np.int32),
        "sides": (valid & (columns >= turn)).astype(np.int32),
    }


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

    def row(e: Example) -> dict[str, np.ndarray]:
        second = None if e.hypothesis is None else vocabulary.encode(e.hypothesis)
        return pair_row(
            vocabulary.encode(e.premise), second, vocabulary, length, reset_positions
        )

    rows = [row(e) for e in examples]
    arrays = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    index = {label: i for i, label in enumerate(labels)} | {None: 0}
    return arrays | {
        "language_ids": (language_id * arrays["pack_ids"]).astype(np.int32),
        "labels": np.array([index[example.label] for example in examples], np.int32),
        "example_weights": np.array(
            [example.label is not None for example in examples], np.float32
        ),
    }


# --- Batches --------------------------------------------------------------------------------------


def shuffled_rows(
    parts: Sequence[dict[str, np.ndarray]],
    batch_size: int,
    *,
    languages: Sequence[str],
    seed: int,
    identity: dict[str, Any],
    names: Sequence[str] = (),
) -> BatchSource:
    """An endless source over the rows of all `parts`, in memory: every epoch is a fresh permutation
    of all rows, and batches run on over its end.

    Epoch e orders rows by a number drawn for each from (seed, e, the name of its part, its place
    there), so that the rows of a part come in one order whatever other parts there are: English
    alone reads what translate-train-all reads without the other languages. names: of the parts,
    each its own, as their languages; default: their numbers. The position is one number, so that a
    restored source goes on exactly.
    """
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    examples = len(rows["input_ids"])
    drawn = [
        (list(str(name).encode()), len(part["input_ids"]))
        for name, part in zip(names or range(len(parts)), parts, strict=True)
    ]
    order: dict[int, np.ndarray] = {}

    def row(n: int) -> int:
        epoch, offset = divmod(n, examples)
        if epoch not in order:
            order.clear()
            numbers = [
                np.random.default_rng((seed, epoch, *name)).random(count)
                for name, count in drawn
            ]
            order[epoch] = np.argsort(np.concatenate(numbers), kind="stable")
        return order[epoch][offset]

    def read(index: int) -> dict[str, np.ndarray]:
        chosen = np.array(
            [row(n) for n in range(index * batch_size, (index + 1) * batch_size)]
        )
        return {name: values[chosen] for name, values in rows.items()}

    identity = identity | {
        "examples": examples,
        "sha256": batch_hash(rows),
        "batch_size": batch_size,
        "seed": seed,
    }
    identity |= {"order": "by part"}
    return CountedSource(
        read, _ENDLESS, languages=languages, identity=identity, epochs=None
    )


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
    parts, room = [], length - 2
    for number, sentence in enumerate(sentences):
        ids, owners = pieces_of_words(
            sentence.words, language, vocabulary, apart, marks
        )
        begins = [i for i in range(len(ids)) if not i or owners[i] != owners[i - 1]]
        first = len(parts)
        for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True):
            end = min(end, begin + room)
            if len(parts) == first or len(parts[-1][1]) + end - begin > room:
                parts.append((number, [], []))
            parts[-1][1].extend(ids[begin:end])
            parts[-1][2].extend(owners[begin:end])
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
        raise UserError(
            f"pieces={pieces!r} is not one of {', '.join(PIECES)}; set TAGGED_PIECES"
        )
    parts = tagged_parts(sentences, vocabulary, length, language, apart, marks)
    shape = (len(parts), length)
    rows = {
        name: np.zeros(shape, np.int32)
        for name in ("position_ids", "language_ids", "pack_ids", "sides")
    }
    rows |= {
        "input_ids": np.full(shape, vocabulary.pad_id, np.int32),
        "tag_labels": np.zeros(shape, np.int32),
    }
    rows["tag_weights"] = np.zeros(shape, np.float32)
    index = {tag: i for i, tag in enumerate(tags)}
    for row, (number, ids, owners) in enumerate(parts):
        used = len(ids) + 2
        rows["input_ids"][row, :used] = [vocabulary.bos_id, *ids, vocabulary.eos_id]
        rows["position_ids"][row, :used] = np.arange(used)
        rows["language_ids"][row, :used] = language_id
        rows["pack_ids"][row, :used] = 1
        for column, word in enumerate(owners if sentences[number].tags else ()):
            tag, goes_on = (
                sentences[number].tags[word],
                column > 0 and owners[column - 1] == word,
            )
            if goes_on and pieces == "first":
                continue
            tag = f"I-{tag[2:]}" if goes_on and tag.startswith("B-") else tag
            if tag not in index:
                raise UserError(
                    f"tag {tag!r} is not one of {', '.join(tags)}: add it to LABELS"
                )
            rows["tag_labels"][row, column + 1] = index[tag]
            rows["tag_weights"][row, column + 1] = 1
    return rows

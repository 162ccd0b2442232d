"""Rows of a source and a target, for encoder-decoders: pairs to translate, and texts to restore.

A row has room for `length` tokens of each side. The reader gives the tokens of both together;
`side` takes one of them out; `decoder_fields` gives what the decoder reads and predicts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlingjax.data.features import DECODER_FIELDS, TOKEN_FIELDS
from xlingjax.data.rows.documents import documents, windows
from xlingjax.data.rows.plan import (
    Batch,
    LeftOut,
    Rows,
    apart,
    plan_rows,
    rows_of,
    starts_and_lengths,
)
from xlingjax.data.store.tokenise import Records
from xlingjax.errors import UserError

SEQ2SEQ_FIELDS = TOKEN_FIELDS[:4] + DECODER_FIELDS  # those of an encoder-decoder


def translation_rows(
    records: Records,
    length: int,
    *,
    directions: Sequence[str] = (),
    max_pieces: int = 100,
    packing: bool = True,
    truncate: bool = False,
) -> Rows:
    """Rows of pairs, source first, each side `</s> x </s>` with positions from 0, at most `length`
    tokens a side.

    directions: "de-en" translates from de to en; none given: every pair both ways (within one
    language from the first text to the second). Pairs with an empty side or one of more than
    `max_pieces` are left out. Pairs share rows (`packing`) as far as both sides have room.
    truncate: a longer first text is cut instead, and lacks its `</s>`.
    """
    starts, lengths = starts_and_lengths(records)
    # Lengths count the `</s>` at the end; the one that opens a side takes a column of its own.
    longest = min(max_pieces + 1, length - 1)
    if truncate:
        # Before pairs are left out, or long articles would take their titles with them.
        lengths[:, 0] = np.minimum(lengths[:, 0], longest)
    whole = (lengths > 0).all(axis=1)
    keep = whole & (lengths <= longest).all(axis=1)
    tokens = lengths.sum(axis=1)
    pairs = int(keep.sum())
    order = apart(pairs)
    # One token early: the `</s>` before a sentence opens it.
    starts = (starts[keep] - 1)[order]
    lengths = (lengths[keep] + 1)[order]
    # Within one language the sides are not alike (an article and its title): only forwards.
    ways = [[0, 1]] if records.languages[0] == records.languages[1] else [[0, 1], [1, 0]]
    if directions:
        ways = [way for way in ways if direction(records, way) in directions]
    # Nothing, where no direction of these records is read.
    both = np.array(ways, np.int64).reshape(-1, 2)
    all_lengths = lengths[:, both].swapaxes(0, 1).reshape(-1, 2)
    return plan_rows(
        rows_of(all_lengths, length, packing),
        pairs * bool(ways),
        max(len(ways), 1),
        # What no direction reads is not left out for its length.
        left_out=LeftOut.of(whole, keep, tokens) if ways else LeftOut(),
        starts=starts[:, both].swapaxes(0, 1).reshape(-1, 2),
        lengths=all_lengths,
        sides=np.arange(2),
        languages=np.repeat(both, pairs, axis=0),
        opens=True,
    )


def direction(records: Records, way: Sequence[int]) -> str:
    return "-".join(records.languages[side] for side in way)


def check_directions(directions: Sequence[str], pairs: Sequence[tuple[str, str]]) -> None:
    """Raises UserError for a direction between languages that no pair has."""
    known = set()
    for first, second in pairs:
        # Files name a pair in one order, and it is translated both ways.
        known.add(f"{first}-{second}")
        known.add(f"{second}-{first}")
    names = ", ".join(sorted(known)) or "none"
    for one in directions:
        if one not in known:
            raise UserError(
                f"DIRECTIONS: no pairs for {one!r}; there are {names}:"
                " write source-target as the files' languages, or add pairs to PARALLEL"
            )


def sentence_rows(
    records: Records, length: int, *, max_pieces: int = 100, packing: bool = True
) -> Rows:
    """Rows of single sentences `</s> x </s>`, longer ones than `max_pieces` or the row left out."""
    starts, tokens = (of_side[:, 0] for of_side in starts_and_lengths(records))
    whole = tokens > 0
    longest = min(max_pieces + 1, length - 1)
    keep = whole & (tokens <= longest)
    order = apart(int(keep.sum()))
    # One token early: the `</s>` before a sentence opens it.
    starts = starts[keep][order] - 1
    lengths = tokens[keep][order] + 1
    row = rows_of(lengths, length, packing)
    left_out = LeftOut.of(whole, keep, tokens)
    return plan_rows(
        row, lengths.size, left_out=left_out, starts=starts, lengths=lengths, opens=True
    )


def block_rows(records: Records, length: int, *, packing: bool = False) -> Rows:
    """Examples of consecutive sentences of one document, `</s> x1 </s> x2 </s>`, as many sentences
    as fit in `length` tokens (XGLUE §4.1); a longer one is cut. An example has its own row, or what
    room another leaves (`packing`)."""
    lines, document = documents(records.sides)
    starts, tokens = (of_side[lines, 0] for of_side in starts_and_lengths(records))
    size = np.minimum(tokens, length - 1)
    # Positions are not needed: they run from 0 in each slice.
    window, _, _ = windows(document, size, length)
    first = np.flatnonzero(np.diff(window, prepend=-1))
    # The sentences of a window stand one after the other in the text, so it is one slice.
    lengths = np.add.reduceat(size, first) + 1
    # Rows of one example each are shuffled by the stream; only packed ones need it before.
    if packing:
        order = apart(first.size)
        first = first[order]
        lengths = lengths[order]
    row = rows_of(lengths, length, packing)
    begins = starts[first] - 1
    return plan_rows(row, int(lines.size), starts=begins, lengths=lengths, opens=True)


def columns_where(chosen: np.ndarray) -> np.ndarray:
    """[B, L]: the chosen columns in order, then L."""
    # Sorting moves the chosen columns together without a loop or a ragged shape.
    length = chosen.shape[1]
    return np.sort(np.where(chosen, np.arange(length), length), axis=1)


def side(batch: Batch, number: int, length: int, pad_id: int) -> Batch:
    """The token fields [B, length] of the tokens of one side, moved together."""
    # Padding bears side 0, too, so the side alone does not tell.
    chosen = (batch["pack_ids"] > 0) & (batch["sides"] == number)
    columns = columns_where(chosen)[:, :length]
    used = columns < chosen.shape[1]
    columns = np.where(used, columns, 0)
    fields = {}
    for name in TOKEN_FIELDS[:4]:
        of_side = np.take_along_axis(batch[name], columns, axis=1)
        pad = pad_id if name == "input_ids" else 0
        fields[name] = np.where(used, of_side, np.int32(pad))
    return fields


def following(x_BL: np.ndarray) -> np.ndarray:
    """The next column's value in each; 0 in the last."""
    return np.pad(x_BL[:, 1:], [(0, 0), (0, 1)])


def preceding(x_BL: np.ndarray) -> np.ndarray:
    """The value of the column before each one; 0 in the first."""
    return np.pad(x_BL[:, :-1], [(0, 0), (1, 0)])


def begun(source: Batch, starts: np.ndarray) -> Batch:
    """The same, each example with `starts` [B, L] for its first token."""
    packs = source["pack_ids"]
    first = (packs > 0) & (packs != preceding(packs))
    return {**source, "input_ids": np.where(first, starts, source["input_ids"])}


def decoder_fields_behind(target: Batch, start_id: int, pad_id: int) -> Batch:
    """As `decoder_fields`, of examples that are read whole but their last token, behind `start_id`:
    nothing is predicted there, since the first token says the language."""
    packs = target["pack_ids"]
    inside = (packs > 0) & (packs == preceding(packs))
    return {
        **written(target, np.int32(start_id), pad_id),
        "decoder_weights": inside.astype(np.float32),
    }


def written(target: Batch, starts: np.ndarray, pad_id: int) -> Batch:
    """As `decoder_fields`, of examples that are predicted whole: the decoder reads `starts`, [B, 1]
    or one for all, and all tokens but the last."""
    packs = target["pack_ids"]
    real = packs > 0
    ids = np.where(packs != preceding(packs), starts, preceding(target["input_ids"]))
    names = ("position_ids", "language_ids", "pack_ids")
    return {
        "decoder_ids": np.where(real, ids, np.int32(pad_id)),
        **{f"decoder_{name}": target[name] for name in names},
        "decoder_targets": np.where(real, target["input_ids"], 0),
        "decoder_weights": real.astype(np.float32),
    }


def one_text(ids: np.ndarray, used: np.ndarray, language_B1: np.ndarray) -> Batch:
    """The token fields [B, T] of one text a row, the ids of its columns that are `used`."""
    return {
        "input_ids": ids,
        "position_ids": np.where(used, np.arange(used.shape[1]), 0),
        "language_ids": np.where(used, language_B1, 0),
        "pack_ids": used.astype(np.int32),
    }


def decoder_fields(target: Batch, starts: np.ndarray, pad_id: int) -> Batch:
    """The decoder's fields [B, L] from those of the target's tokens (`input_ids`, `position_ids`,
    `language_ids`, `pack_ids`): at each column of an example but the last it reads the token, of
    the first column `starts` [B, L] instead, and predicts the next. Padding stands in the last
    column."""
    packs = target["pack_ids"]
    # The last token of an example is only predicted: nothing of the example comes after it.
    reads = (packs > 0) & (packs == following(packs))
    # Packs change number where an example begins, also right behind another.
    ids = np.where(packs != preceding(packs), starts, target["input_ids"])
    return {
        "decoder_ids": np.where(reads, ids, np.int32(pad_id)),
        "decoder_position_ids": np.where(reads, target["position_ids"], 0),
        "decoder_language_ids": np.where(reads, target["language_ids"], 0),
        "decoder_pack_ids": np.where(reads, packs, 0),
        "decoder_targets": np.where(reads, following(target["input_ids"]), 0),
        "decoder_weights": reads.astype(np.float32),
    }

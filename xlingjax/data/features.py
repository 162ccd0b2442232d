"""The batch contract: every field that may stand in a batch.

A batch is a `dict[str, np.ndarray]` of rows padded to fixed lengths. Letters: B rows, L tokens, T
tokens of the decoder (as many as L, if a preprocessor does not say), M prediction slots, P
placeholders for pseudo tokens, Z special tokens, E the three ids of `edge_ids`, Q pairs that are
compared as vectors, D numbers of a vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from xlingjax.errors import UserError

Batch = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
"""Of a batch's fields, by name."""


class Field(NamedTuple):
    shape: str  # in letters
    dtype: np.dtype


_INT, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)
# fmt: off
# Behind each: its meaning; who writes it (a paper: its preprocessors), who reads it.
FIELDS: dict[str, Field] = {
    "input_ids": Field("BL", _INT),  # what the model reads (after masking); preprocessors, model
    "position_ids": Field("BL", _INT),  # 0-based index in its sequence; the model adds its offset; rows, model
    "language_ids": Field("BL", _INT),  # index in the sorted run languages; 0 at pads; rows, model, metrics
    "pack_ids": Field("BL", _INT),  # 0 = padding, 1.. = number of the example inside the row; rows, masks
    "sides": Field("BL", _INT),  # 0, or 1 in the second sentence of a pair; rows, masks
    "is_mask": Field("BL", _INT),  # 1 at a MASK that masks treat apart; ernie_m, masks
    "original_ids": Field("BL", _INT),  # the text before masking; ernie_m, btmlm
    "target_weights": Field("BL", _FLOAT),  # 1 = this token itself is predicted; unicoder, clwr
    "pseudo_positions": Field("BP", _INT),  # column of each placeholder; 0 in unused slots; ernie_m, btmlm
    "special_ids": Field("BZ", _INT),  # ids of the special tokens, again and again; ernie_m, translation, generation
    "edge_ids": Field("BE", _INT),  # ids of: a source's start, a text's end, padding; translation, back_translation
    "pivot_languages": Field("B", _INT),  # language to translate the row into; translation, back_translation
    "pseudo_weights": Field("BP", _FLOAT),  # 1 = a placeholder, 0 = an unused slot; ernie_m, btmlm
    "masked_positions": Field("BM", _INT),  # column of each prediction; 0 in unused slots; preprocessors, masked LMs
    "masked_targets": Field("BM", _INT),  # original id; 0 in unused slots; preprocessors, masked LMs
    "masked_weights": Field("BM", _FLOAT),  # 1 = a prediction, 0 = an unused slot; preprocessors, masked LMs
    "decoder_ids": Field("BT", _INT),  # what the decoder reads; xglue, translation, decoder
    "decoder_position_ids": Field("BT", _INT),  # as position_ids; xglue, translation, decoder
    "decoder_language_ids": Field("BT", _INT),  # as language_ids; xglue, translation, decoder, metrics
    "decoder_pack_ids": Field("BT", _INT),  # as pack_ids, the source's numbers; xglue, translation, masks
    "decoder_targets": Field("BT", _INT),  # the next token; 0 at pads; xglue, translation, decoder's losses
    "decoder_weights": Field("BT", _FLOAT),  # 1 = a prediction; xglue, translation, decoder's losses
    "run_offsets": Field("BT", _INT),  # place of the target in its hidden run, from 0; xglue, xfnp
    "labels": Field("B", _INT),  # class of the row; finetuning, unicoder, classifiers
    "tag_labels": Field("BL", _INT),  # tag of the word whose first piece this is; 0 elsewhere; finetuning, tagging
    "tag_weights": Field("BL", _FLOAT),  # 1 = first piece of a word; finetuning, tagging
    "answer_columns": Field("BL", _INT),  # 1 = an answer may begin or end here; span_qa, span_qa
    "start_positions": Field("B", _INT),  # column of the answer's first piece; 0: not in the row; span_qa, span_qa
    "end_positions": Field("B", _INT),  # column of its last piece; 0: not in the row; span_qa, span_qa
    "beside_start_positions": Field("B", _INT),  # start_positions of side 1; its first token: not in the row; plug_in, plug_in
    "beside_end_positions": Field("B", _INT),  # end_positions of side 1; plug_in, plug_in
    "teacher_vectors": Field("BQD", _FLOAT),  # what a teacher makes of one of the texts; retrieval, distillation
    "example_weights": Field("B", _FLOAT),  # 0 for rows that only fill the batch; finetuning, unicoder, classifiers
}
# fmt: on

DECODER_FIELDS = tuple(name for name in FIELDS if name.startswith("decoder_"))
TOKEN_FIELDS = ("input_ids", "position_ids", "language_ids", "pack_ids", "sides")
SPECIAL_IDS = 16
"""Z: room for the special tokens of a vocabulary; one with more is refused by `special_row`."""
SLOT_FIELDS = ("masked_positions", "masked_targets", "masked_weights")


def batch_shapes(
    names: Iterable[str],
    *,
    batch: int,
    length: int = 0,
    targets: int | None = None,
    slots: int = 0,
    placeholders: int = 0,
    pairs: int = 1,
    width: int = 0,
) -> Shapes:
    """Shapes of fields, as a `BatchSource` publishes them: B=batch, L=length, T=targets (None: L),
    M=slots, P=placeholders, Q=pairs, D=width."""
    if targets is None:
        targets = length
    sizes = {
        "B": batch,
        "L": length,
        "T": targets,
        "M": slots,
        "P": placeholders,
        "Z": SPECIAL_IDS,
        "E": 3,
        "Q": pairs,
        "D": width,
    }
    return {name: tuple(sizes[letter] for letter in FIELDS[name].shape) for name in names}


def pairs_of_row(length: int) -> int:
    """How many pairs a packed row of so many tokens can hold: a text has 3 tokens at least."""
    return max(length // 6, 1)


def special_row(special_ids: Iterable[int], user: str) -> np.ndarray:
    """The ids again and again, int32 [Z]: those that a generation by `user` may not write. Fields
    have one shape for every vocabulary. Raises UserError for more ids than it holds."""
    ids = sorted(special_ids)
    if len(ids) > SPECIAL_IDS:
        raise UserError(
            f"{user}: the vocabulary has {len(ids)} special tokens, and there is room for"
            f" {SPECIAL_IDS} that must not be written: use a vocabulary with fewer (of `xlingjax"
            " vocab`: without --sentinels)"
        )
    return np.resize(ids, SPECIAL_IDS).astype(np.int32)


def batch_hash(batch: Batch) -> str:
    """sha256 (hex) over sorted names, dtypes, shapes and bytes: equal iff the batches are equal."""
    digest = hashlib.sha256()
    for name in sorted(batch):
        array = np.ascontiguousarray(batch[name])
        # With dtype and shape, since arrays of other shapes may have the same bytes.
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

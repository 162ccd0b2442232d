"""The batch contract: every field that may stand in a batch, and the checks on it. No TensorFlow
here.

A batch is a `dict[str, np.ndarray]` of rows padded to fixed lengths. Letters: B rows, L tokens, T
tokens of the decoder (as many as L, if a preprocessor does not say), M prediction slots, P
placeholders for pseudo tokens, Z special tokens, E the three ids of `edge_ids`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from xlingjax.errors import UserError


@dataclass(frozen=True)
class Field:
    """One field: its shape in letters, its dtype, and who is at either end of it (a paper: its
    preprocessors)."""

    name: str
    shape: str
    dtype: np.dtype
    meaning: str
    written_by: str
    read_by: str


def _fields(*rows: tuple[str, str, type, str, str, str]) -> dict[str, Field]:
    return {name: Field(name, shape, np.dtype(dtype), *rest) for name, shape, dtype, *rest in rows}


# fmt: off
FIELDS: dict[str, Field] = _fields(
    ("input_ids", "BL", np.int32, "what the model reads (after masking)", "preprocessors", "model"),
    ("position_ids", "BL", np.int32, "0-based index in its sequence; the model adds its offset", "rows", "model"),
    ("language_ids", "BL", np.int32, "index in the sorted run languages; 0 at pads", "rows", "model, metrics"),
    ("pack_ids", "BL", np.int32, "0 = padding, 1.. = number of the example inside the row", "rows", "masks"),
    ("sides", "BL", np.int32, "0, or 1 in the second sentence of a pair", "rows", "masks"),
    ("is_mask", "BL", np.int32, "1 at a MASK that masks treat apart", "ernie_m", "masks"),
    ("original_ids", "BL", np.int32, "the text before masking", "ernie_m", "btmlm"),
    ("target_weights", "BL", np.float32, "1 = this token itself is predicted", "unicoder", "clwr"),
    ("pseudo_positions", "BP", np.int32, "column of each placeholder; 0 in unused slots", "ernie_m", "btmlm"),
    ("special_ids", "BZ", np.int32, "ids of the special tokens, again and again", "ernie_m, translation", "generation"),
    ("edge_ids", "BE", np.int32, "ids of: a source's start, a text's end, padding", "translation", "back_translation"),
    ("pivot_languages", "B", np.int32, "language to translate the row into", "translation", "back_translation"),
    ("pseudo_weights", "BP", np.float32, "1 = a placeholder, 0 = an unused slot", "ernie_m", "btmlm"),
    ("masked_positions", "BM", np.int32, "column of each prediction; 0 in unused slots", "preprocessors", "masked LMs"),
    ("masked_targets", "BM", np.int32, "original id; 0 in unused slots", "preprocessors", "masked LMs"),
    ("masked_weights", "BM", np.float32, "1 = a prediction, 0 = an unused slot", "preprocessors", "masked LMs"),
    ("decoder_ids", "BT", np.int32, "what the decoder reads", "xglue, translation", "decoder"),
    ("decoder_position_ids", "BT", np.int32, "as position_ids", "xglue, translation", "decoder"),
    ("decoder_language_ids", "BT", np.int32, "as language_ids", "xglue, translation", "decoder, metrics"),
    ("decoder_pack_ids", "BT", np.int32, "as pack_ids, the source's numbers", "xglue, translation", "masks"),
    ("decoder_targets", "BT", np.int32, "the next token; 0 at pads", "xglue, translation", "decoder's losses"),
    ("decoder_weights", "BT", np.float32, "1 = a prediction", "xglue, translation", "decoder's losses"),
    ("run_offsets", "BT", np.int32, "place of the target in its hidden run, from 0", "xglue", "xfnp"),
    ("labels", "B", np.int32, "class of the row", "finetuning, unicoder", "classifiers"),
    ("tag_labels", "BL", np.int32, "tag of the word whose first piece this is; 0 elsewhere", "finetuning", "tagging"),
    ("tag_weights", "BL", np.float32, "1 = first piece of a word", "finetuning", "tagging"),
    ("answer_columns", "BL", np.int32, "1 = an answer may begin or end here", "span_qa", "span_qa"),
    ("start_positions", "B", np.int32, "column of the answer's first piece; 0: not in the row", "span_qa", "span_qa"),
    ("end_positions", "B", np.int32, "column of its last piece; 0: not in the row", "span_qa", "span_qa"),
    ("beside_start_positions", "B", np.int32, "start_positions of side 1; its first token: not in the row", "plug_in", "plug_in"),
    ("beside_end_positions", "B", np.int32, "end_positions of side 1", "plug_in", "plug_in"),
    ("example_weights", "B", np.float32, "0 for rows that only fill the batch", "finetuning, unicoder", "classifiers"),
)
# fmt: on

DECODER_FIELDS = tuple(name for name in FIELDS if name.startswith("decoder_"))
TOKEN_FIELDS = ("input_ids", "position_ids", "language_ids", "pack_ids", "sides")
SPECIAL_IDS = 16
"""Z: room for the special tokens of a vocabulary; one with more is refused by `special_row`."""
SLOT_FIELDS = ("masked_positions", "masked_targets", "masked_weights")


def field_shape(
    name: str,
    *,
    batch: int,
    length: int = 0,
    targets: int | None = None,
    slots: int = 0,
    placeholders: int = 0,
) -> tuple[int, ...]:
    """The shape of field `name` for B=batch, L=length, T=targets (None: as many as L), M=slots,
    P=placeholders."""
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
    }
    return tuple(sizes[letter] for letter in FIELDS[name].shape)


def batch_shapes(names: Iterable[str], **sizes: int) -> dict[str, tuple[int, ...]]:
    """`field_shape` of several fields; what a `BatchSource` publishes as `shapes`."""
    return {name: field_shape(name, **sizes) for name in names}


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


def batch_hash(batch: Mapping[str, np.ndarray]) -> str:
    """sha256 (hex) over names, dtypes, shapes and bytes, in sorted order of names: equal iff the
    batches are equal."""
    digest = hashlib.sha256()
    for name in sorted(batch):
        array = np.ascontiguousarray(batch[name])
        # With dtype and shape, since arrays of other shapes may have the same bytes.
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def check_batch(
    batch: Mapping[str, np.ndarray],
    reads: Iterable[str],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Refuses a batch that cannot feed an objective.

    `reads` are the fields the objective needs; `shapes` (global, as published by the source) is
    compared beyond the row axis, and the rows present must divide the global number of rows. Raises
    UserError naming the field.
    """
    rows = None
    # Only what is read: a batch may have fields for other objectives.
    for name in reads:
        if name not in FIELDS:
            raise UserError(f"unknown batch field '{name}'; the fields are {', '.join(FIELDS)}")
        if name not in batch:
            raise UserError(
                f"the batch has no field '{name}' (it has {', '.join(sorted(batch))}); "
                "use a data source of the objective's own kind"
            )
        array = batch[name]
        field = FIELDS[name]
        if array.dtype != field.dtype:
            raise UserError(f"batch field '{name}' has dtype {array.dtype}, expected {field.dtype}")
        if array.ndim != len(field.shape):
            raise UserError(
                f"batch field '{name}' has shape {array.shape}, expected axes"
                f" {' '.join(field.shape)}"
            )
        if rows is None:
            rows = array.shape[0]
        # Sharding cuts every field at the same rows.
        if array.shape[0] != rows:
            raise UserError(
                f"batch field '{name}' has {array.shape[0]} rows, the fields before it have {rows}"
            )
        if shapes is None:
            continue
        expected = shapes.get(name)
        if expected is None:
            raise UserError(f"the data source does not publish a shape for field '{name}'")
        if array.shape[1:] != tuple(expected[1:]) or rows == 0 or expected[0] % rows:
            raise UserError(
                f"batch field '{name}' has shape {array.shape}, the source promised"
                f" {tuple(expected)}"
            )

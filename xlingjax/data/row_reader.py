"""Planned rows, looked up in TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xlingjax.data.rows import SLICES, Rows


class RowReader:
    """Looks rows up in TensorFlow: row numbers [B] -> token fields [B, L], and labels and
    example_weights [B] where the plan has labels. A negative row number gives a padded row."""

    def __init__(
        self,
        ids: np.ndarray,
        rows: Rows,
        length: int,
        *,
        pad_id: int,
        bos_id: int,
    ):
        import tensorflow as tf

        self._ids = tf.constant(ids)
        self._splits = tf.constant(rows.splits)
        self._starts = tf.constant(rows.starts)
        # One table of all other fields: one look-up per slice instead of six.
        self._slices = tf.constant(
            np.stack([getattr(rows, name) for name in SLICES], axis=1),
        )
        self._length = length
        self._pad_id = pad_id
        self._bos_id = bos_id
        self._labels = None
        if rows.labels is not None:
            self._labels = tf.constant(rows.labels, tf.int32)

    def __call__(self, row: Any) -> Mapping[str, Any]:
        import tensorflow as tf

        # A negative row number reads row 0's splits, as any would do, and no slice of it.
        real = tf.maximum(row, 0)
        first = tf.gather(self._splits, real)
        last = tf.where(row >= 0, tf.gather(self._splits, real + 1), first)
        slices_of_row = tf.ragged.range(first, last)  # [B, slices]
        of_slice = self._of_slice(slices_of_row.flat_values)
        starts = tf.gather(self._starts, slices_of_row.flat_values)
        ends = starts + tf.cast(of_slice["lengths"], tf.int64)
        places = tf.ragged.range(starts, ends)  # [slices, tokens]

        slice_of_token = places.value_rowids()
        within = tf.cast(
            places.flat_values - tf.gather(starts, slice_of_token),
            tf.int32,
        )
        of_token = {
            name: tf.gather(of_slice[name], slice_of_token)
            for name in SLICES[1:]
        }
        ids = tf.cast(tf.gather(self._ids, places.flat_values), tf.int32)
        ids = tf.where(
            (within == 0) & (of_token["opens"] > 0),
            self._bos_id,
            ids,
        )

        splits = tf.gather(places.row_splits, slices_of_row.row_splits)

        def padded(values: Any, pad: int = 0) -> Any:
            ragged = tf.RaggedTensor.from_row_splits(
                values,
                splits,
                validate=False,
            )
            return ragged.to_tensor(
                default_value=pad,
                shape=[row.shape[0], self._length],
            )

        fields = {
            "input_ids": padded(ids, self._pad_id),
            "position_ids": padded(of_token["positions"] + within),
            "language_ids": padded(of_token["languages"]),
            "pack_ids": padded(of_token["packs"]),
            "sides": padded(of_token["sides"]),
        }
        if self._labels is not None:
            # An empty row has a label like any other, and a weight of 0.
            fields["example_weights"] = tf.cast(row >= 0, tf.float32)
            fields["labels"] = tf.where(
                row >= 0,
                tf.gather(self._labels, real),
                0,
            )
        return fields

    def _of_slice(self, numbers: Any) -> dict[str, Any]:
        """The fields of the slices numbered `numbers`."""
        import tensorflow as tf

        columns = tf.unstack(tf.gather(self._slices, numbers), axis=1)
        return dict(zip(SLICES, columns, strict=True))

"""Rows of labelled tasks without their padding.

A row in several languages has its texts side by side, each padded and kept up to its last token.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.features import FIELDS

Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RaggedRows:
    """Rows without their padding, in memory or mapped.

    arrays: "lengths" [N * H]: the tokens of each text, H of a row; numbers of a row [N]; fields of
    tokens [T], one text behind the other.
    """

    length: int  # columns of a text when it is padded
    texts: int  # H: of a row
    pad_id: int
    arrays: Rows

    @classmethod
    def joined(cls, parts: Sequence[RaggedRows]) -> RaggedRows:
        """The rows of all parts, one or more, one after the other."""
        first = parts[0]
        arrays = {
            name: np.concatenate([part.arrays[name] for part in parts]) for name in first.arrays
        }
        return cls(first.length, first.texts, first.pad_id, arrays)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """int64[N * H]: where the tokens of each text begin."""
        lengths = self.arrays["lengths"].astype(np.int64)
        return np.cumsum(lengths) - lengths

    @classmethod
    def of(cls, rows: Rows, length: int, pad_id: int) -> RaggedRows:
        """The same rows. rows: arrays [N, H * length] and [N], of padding 0 but for the ids."""
        texts = rows["pack_ids"].shape[1] // length
        valid = rows["pack_ids"].reshape(-1, length) > 0
        arrays = {"lengths": valid.sum(axis=1)}
        for name, values in rows.items():
            # Of every token alike.
            if name in ("pack_ids", "language_ids"):
                continue
            arrays[name] = values if values.ndim == 1 else values.reshape(-1, length)[valid]
        for name, values in arrays.items():
            if values.dtype.kind == "i":
                arrays[name] = values.astype(np.min_scalar_type(values.max(initial=0)))
        return cls(length, texts, pad_id, arrays)

    def __len__(self) -> int:
        return self.arrays["lengths"].size // self.texts

    @property
    def sizes(self) -> np.ndarray:
        """[N]: tokens of the longest text of each row."""
        return self.arrays["lengths"].reshape(-1, self.texts).max(axis=1)

    def take(self, rows: np.ndarray, language_ids: Sequence[int]) -> dict[str, np.ndarray]:
        """Arrays [n, H * length] and [n] of the rows numbered so. language_ids: of a row's text."""
        places = (rows[:, None] * self.texts + np.arange(self.texts)).ravel()
        columns = np.arange(self.length)
        valid = columns < self.arrays["lengths"][places][:, None]
        at = (self.offsets[places][:, None] + columns)[valid]
        languages = np.tile(np.array(language_ids, np.int32), len(rows))
        made = {"pack_ids": valid, "language_ids": valid * languages[:, None]}
        for name, stored in self.arrays.items():
            if name == "lengths":
                continue
            if len(FIELDS[name].shape) == 1:
                made[name] = stored[rows]
                continue
            fill = self.pad_id if name == "input_ids" else 0
            made[name] = np.full(valid.shape, fill, FIELDS[name].dtype)
            made[name][valid] = stored[at]
        shape = (len(rows), self.texts * self.length)
        return {
            name: (values.reshape(shape) if values.ndim > 1 else values).astype(
                FIELDS[name].dtype, copy=False
            )
            for name, values in made.items()
        }

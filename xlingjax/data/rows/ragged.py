"""Rows of labelled tasks without their padding.

A row is kept up to its last token; what follows from that (padding, positions, sides) is a number
or nothing. A row that is read in several languages has several texts side by side, each padded by
itself, and each is kept so.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.features import FIELDS

_IDS = np.dtype(np.int32)
_DERIVED = ("pack_ids", "language_ids")
"""Of every token alike: not kept."""

Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RaggedRows:
    """Rows without their padding, in memory or mapped.

    arrays: "lengths" uint16[N * H]: the tokens of each text, H of a row; "restarts": the column
    where its positions begin anew, "turns": where side 1 begins (`length`: nowhere); numbers of a
    row [N]; fields of tokens [T], one text behind the other.
    """

    length: int
    """Columns of a text when it is padded."""
    texts: int
    """H: of a row."""
    pad_id: int
    arrays: Rows

    @classmethod
    def joined(cls, parts: Sequence[RaggedRows]) -> RaggedRows:
        """The rows of all parts, one or more, one after the other."""
        arrays = {}
        for name in parts[0].arrays:
            arrays[name] = np.concatenate([part.arrays[name] for part in parts])
        return cls(parts[0].length, parts[0].texts, parts[0].pad_id, arrays)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """int64[N * H]: where the tokens of each text begin."""
        lengths = self.arrays["lengths"].astype(np.int64)
        return np.cumsum(lengths) - lengths

    @classmethod
    def of(cls, rows: Rows, length: int, pad_id: int, id_dtype: np.dtype = _IDS) -> RaggedRows:
        """The same rows. rows: arrays [N, H * length] and [N]. id_dtype: that their ids fit in.
        Raises ValueError for rows that cannot be stored so."""
        count, width = rows["pack_ids"].shape
        texts = width // length
        valid = rows["pack_ids"].reshape(-1, length) > 0
        lengths = valid.sum(axis=1)
        arrays = {"lengths": lengths.astype(np.uint16)}
        for name, values in rows.items():
            if name in _DERIVED:
                continue
            if values.ndim == 1:
                arrays[name] = values
                continue
            by_text = values.reshape(-1, length)
            if name == "position_ids":
                again = valid & (by_text == 0)
                again[:, :1] = False
                arrays["restarts"] = _first(again)
            elif name == "sides":
                arrays["turns"] = _first(valid & (by_text == 1))
            elif name == "input_ids":
                arrays[name] = by_text[valid].astype(id_dtype)
            else:
                arrays[name] = by_text[valid].astype(_stored(name))
        made = cls(length, texts, pad_id, arrays)
        again = made.take(np.arange(count), (0,) * texts)
        for name, values in rows.items():
            # The store says nothing of languages.
            if name == "language_ids":
                continue
            if not np.array_equal(again[name], values):
                raise ValueError(f"rows whose {name} cannot be stored")
        return made

    def __len__(self) -> int:
        return self.arrays["lengths"].size // self.texts

    @property
    def sizes(self) -> np.ndarray:
        """uint16[N]: tokens of the longest text of each row."""
        return self.arrays["lengths"].reshape(-1, self.texts).max(axis=1)

    def take(self, rows: np.ndarray, language_ids: Sequence[int]) -> dict[str, np.ndarray]:
        """Arrays [n, H * length] and [n] of the rows of these numbers. language_ids: of the texts
        of a row."""
        length = self.length
        places = (rows[:, None] * self.texts + np.arange(self.texts)).ravel()
        lengths = self.arrays["lengths"][places].astype(np.int64)
        columns = np.arange(length)
        valid = columns < lengths[:, None]
        at = (self.offsets[places][:, None] + columns)[valid]
        shape = (len(rows), self.texts * length)
        languages = np.tile(np.array(language_ids, np.int32), len(rows))
        made = {"pack_ids": valid.astype(np.int32), "language_ids": valid * languages[:, None]}
        for name, stored in self.arrays.items():
            if name == "lengths":
                continue
            if name == "restarts":
                restarts = stored[places].astype(np.int64)[:, None]
                begins = np.where(columns >= restarts, restarts, 0)
                made["position_ids"] = (columns - begins) * valid
            elif name == "turns":
                turns = stored[places].astype(np.int64)[:, None]
                made["sides"] = (columns >= turns) & valid
            elif len(FIELDS[name].shape) == 1:
                made[name] = stored[rows]
            else:
                fill = 0
                if name == "input_ids":
                    fill = self.pad_id
                dense = np.full(valid.shape, fill, FIELDS[name].dtype)
                dense[valid] = stored[at]
                made[name] = dense
        for name, values in made.items():
            if len(FIELDS[name].shape) > 1:
                values = values.reshape(shape)
            made[name] = values.astype(FIELDS[name].dtype, copy=False)
        return made


def _first(where: np.ndarray) -> np.ndarray:
    """uint16[N]: the first true column of each row; without one the number of columns."""
    found = np.where(where.any(axis=1), where.argmax(axis=1), where.shape[1])
    return found.astype(np.uint16)


def _stored(name: str) -> np.dtype:
    """How a field of tokens is kept. What does not fit is found by `RaggedRows.of`."""
    if name == "tag_labels":
        return np.dtype(np.uint16)
    # What is 0 or 1.
    return np.dtype(np.uint8)

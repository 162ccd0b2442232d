"""Labelled texts as bytes: millions of examples in as much memory as their files take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.labelled.records import Example

Packed = Mapping[str, np.ndarray]
_FIELDS = 3
"""Texts of an example: premise, hypothesis, label."""


def pack(sides: Sequence[Sequence[Example]]) -> dict[str, np.ndarray]:
    """Examples, side by side where there are several that belong together: "bytes" uint8[T], UTF-8;
    "ends" int64[N * S * 3]: where each of their texts ends there; "none" bool[N * S * 3]: which of
    them are None."""
    contents = []
    none = []
    for beside in zip(*sides, strict=True):
        for one in beside:
            for text in (one.premise, one.hypothesis, one.label):
                none.append(text is None)
                contents.append((text or "").encode())
    sizes = np.fromiter(map(len, contents), np.int64, len(contents))
    return {
        "bytes": np.frombuffer(b"".join(contents), np.uint8),
        "ends": np.cumsum(sizes),
        "none": np.array(none, bool),
    }


@dataclass(frozen=True)
class PackedExamples:
    """What `pack` made of examples with so many sides."""

    arrays: Packed
    sides: int

    def __len__(self) -> int:
        return self.arrays["none"].size // (_FIELDS * self.sides)

    @property
    def sizes(self) -> np.ndarray:
        """int64[N]: bytes of the longest of the sides of each."""
        ends = self.arrays["ends"].reshape(-1, _FIELDS)[:, 1]
        begins = np.concatenate([[0], self.arrays["ends"][_FIELDS - 1 :: _FIELDS][:-1]])
        return (ends - begins).reshape(-1, self.sides).max(axis=1, initial=0)

    def take(self, rows: np.ndarray) -> list[list[Example]]:
        """Of each side the examples of these rows."""
        sides: list[list[Example]] = [[] for _ in range(self.sides)]
        content = self.arrays["bytes"]
        ends = self.arrays["ends"]
        none = self.arrays["none"]
        for row in rows.tolist():
            for number, side in enumerate(sides):
                first = (row * self.sides + number) * _FIELDS
                begin = int(ends[first - 1]) if first else 0
                texts: list[str | None] = []
                for field in range(first, first + _FIELDS):
                    end = int(ends[field])
                    text = content[begin:end].tobytes().decode()
                    texts.append(None if none[field] else text)
                    begin = end
                premise, hypothesis, label = texts
                side.append(Example(premise or "", hypothesis, label))
        return sides

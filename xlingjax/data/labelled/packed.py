"""Labelled texts as bytes: millions of examples in as much memory as their files take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.labelled.records import Example

Packed = Mapping[str, np.ndarray]


def pack(sides: Sequence[Sequence[Example]]) -> dict[str, np.ndarray]:
    """Examples, side by side where there are several that belong together: "bytes" uint8[T], JSON;
    "ends" int64[N]: where each ends there; "sizes" int64[N]: bytes of the texts of its longest
    side."""
    contents = []
    sizes = []
    for beside in zip(*sides, strict=True):
        texts = [(one.premise, one.hypothesis, one.label) for one in beside]
        contents.append(json.dumps(texts, ensure_ascii=False).encode())
        sizes.append(max(len(f"{one.premise}{one.hypothesis or ''}".encode()) for one in beside))
    lengths = np.fromiter(map(len, contents), np.int64, len(contents))
    return {
        "bytes": np.frombuffer(b"".join(contents), np.uint8),
        "ends": np.cumsum(lengths),
        "sizes": np.array(sizes, np.int64),
    }


@dataclass(frozen=True)
class PackedExamples:
    """What `pack` made of examples with so many sides."""

    arrays: Packed
    sides: int

    def __len__(self) -> int:
        return self.arrays["ends"].size

    @property
    def sizes(self) -> np.ndarray:
        """int64[N]: bytes of the longest of the sides of each."""
        return self.arrays["sizes"]

    def take(self, rows: np.ndarray) -> list[list[Example]]:
        """Of each side the examples of these rows."""
        ends = self.arrays["ends"]
        found = []
        for row in rows.tolist():
            begin = ends[row - 1] if row else 0
            found.append(json.loads(self.arrays["bytes"][begin : ends[row]].tobytes()))
        return [[Example(*one[side]) for one in found] for side in range(self.sides)]

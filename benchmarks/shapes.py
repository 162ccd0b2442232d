"""What is measured: model shapes, batch shapes, and synthetic batches that both sides read."""

import dataclasses
import math

import numpy as np

MASK_RATE = 0.15
FIRST_ID = 4  # of ordinary pieces in the XLM-R id map


@dataclasses.dataclass(frozen=True)
class Shape:
    """One MLM training step: an XLM-R-shaped model and B rows of L tokens, none of them padding."""

    name: str
    layers: int
    dim: int
    heads: int
    ffn: int
    vocab: int
    rows: int
    length: int
    dtype: str = "float32"

    @property
    def slots(self) -> int:
        """M: prediction slots of a row."""
        return math.ceil(MASK_RATE * self.length)

    @property
    def tokens(self) -> int:
        return self.rows * self.length


@dataclasses.dataclass(frozen=True)
class GenerationShape:
    """A model of as many layers on either side, and what it is to write: B rows, T columns, W
    beams."""

    name: str
    layers: int
    dim: int
    heads: int
    ffn: int
    vocab: int
    rows: int
    source: int
    columns: int
    beams: int

    @property
    def tokens(self) -> int:
        """Written in a call."""
        return self.rows * self.columns


CPU = (
    Shape("base-250k 8x128", 12, 768, 12, 3072, 250_002, 8, 128),
    Shape("small-32k 32x128", 4, 256, 4, 1024, 32_000, 32, 128),
)
# PyTorch's logits of all positions, in float32 and more than once, must fit beside the others.
GPU = (
    Shape("base 64x128", 12, 768, 12, 3072, 250_002, 64, 128, "bfloat16"),
    Shape("base 16x512", 12, 768, 12, 3072, 250_002, 16, 512, "bfloat16"),
    Shape("large 64x128", 24, 1024, 16, 4096, 250_002, 64, 128, "bfloat16"),
    Shape("large 16x512", 24, 1024, 16, 4096, 250_002, 16, 512, "bfloat16"),
)
QUICK = (Shape("quick 4x32", 2, 64, 2, 128, 1_000, 4, 32),)


def batch(shape: Shape, seed: int) -> dict[str, np.ndarray]:
    """A masked batch with the fields that MLM reads (`xlingjax.data.features`)."""
    rng = np.random.default_rng(seed)
    ids_BL = rng.integers(FIRST_ID, shape.vocab - 1, (shape.rows, shape.length), dtype=np.int32)
    # Column 0 is protected.
    order_BL = rng.random((shape.rows, shape.length - 1)).argsort(1) + 1
    positions_BM = np.sort(order_BL[:, : shape.slots], axis=1).astype(np.int32)
    targets_BM = np.take_along_axis(ids_BL, positions_BM, 1)
    np.put_along_axis(ids_BL, positions_BM, shape.vocab - 1, 1)
    return {
        "input_ids": ids_BL,
        "position_ids": np.tile(np.arange(shape.length, dtype=np.int32), (shape.rows, 1)),
        "language_ids": np.zeros_like(ids_BL),
        "pack_ids": np.ones_like(ids_BL),
        "masked_positions": positions_BM,
        "masked_targets": targets_BM,
        "masked_weights": np.ones_like(targets_BM, np.float32),
    }

"""Tiny seeded batches in NumPy, one builder for every objective (used by fixtures and by the scripts that tests start
as processes)."""

import numpy as np

ROWS, LENGTH, SLOTS, VOCAB, LANGUAGES = 8, 16, 3, 96, ("de", "en", "zh")
BOS, EOS, PAD, MASK = 0, 0, 2, 5
FIRST_PIECE = 14


def batch(
    objective: str, seed: int = 0, rows: int = ROWS, length: int = LENGTH, slots: int = SLOTS, vocab: int = VOCAB
):
    """One batch of `objective` ("clm", "mlm", "tlm"): rows end in padding of unequal width, slots are unequally
    used."""
    rng = np.random.default_rng([seed, {"clm": 0, "mlm": 1, "tlm": 2}[objective]])
    fields = {
        name: np.zeros((rows, length), np.int32) for name in ("position_ids", "language_ids", "pack_ids", "sides")
    }
    input_ids = np.full((rows, length), PAD, np.int32)
    positions, targets = np.zeros((rows, slots), np.int32), np.zeros((rows, slots), np.int32)
    weights = np.zeros((rows, slots), np.float32)
    for row in range(rows):
        used = int(rng.integers(length // 2, length + 1)) if row else length
        second = used // 2 if objective == "tlm" else used  # where the second sentence starts
        language, other = rng.choice(len(LANGUAGES), 2, replace=False)
        input_ids[row, :used] = rng.integers(FIRST_PIECE, vocab, used)
        input_ids[row, [0, used - 1]] = EOS
        fields["position_ids"][row, :used] = np.r_[:second, 0 : used - second]
        fields["language_ids"][row, :used] = np.where(np.arange(used) < second, language, other)
        fields["sides"][row, second:used] = 1
        fields["pack_ids"][row, :used] = 1
        if objective != "clm":
            count = int(rng.integers(1, slots + 1))
            positions[row, :count] = np.sort(rng.choice(np.arange(1, used), count, replace=False))
            targets[row, :count] = input_ids[row, positions[row, :count]]
            weights[row, :count] = 1
            input_ids[row, positions[row, :count]] = MASK
    slot_fields = {} if objective == "clm" else {
        "masked_positions": positions, "masked_targets": targets, "masked_weights": weights
    }  # fmt: skip
    return {"input_ids": input_ids, **fields, **slot_fields}

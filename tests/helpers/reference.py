"""What the tests of objectives share: small models, and losses in NumPy from states in NumPy."""

import functools

import jax
import numpy as np

from tests.helpers import numpy_transformer as transformer
from tests.helpers import tiny
from xlingjax.model.build import build_model
from xlingjax.model.config import preset

LANGUAGES = len(tiny.LANGUAGES)
CONFIG = preset(
    "tiny", layers=2, dim=16, heads=2, ffn=32, vocab_size=90, max_positions=24,
    num_languages=LANGUAGES, dropout=0.0, cross_attention=True, word_recovery=True,
    paraphrase=True, unroll=1,  # a loop compiles faster
)  # fmt: skip
GENERATOR = CONFIG.replace(
    decoder_layers=2, cross_attention=False, word_recovery=False, paraphrase=False
)
"""For objectives with a decoder."""
NGRAM = GENERATOR.replace(streams=2)
"""For those of several streams."""


@functools.cache
def random_model(config=CONFIG):
    """(model, parameters none of which is 0 or 1)."""
    model = build_model(config)
    return model, tiny.params(model, noise=0.2)


@functools.partial(jax.jit, static_argnums=(0, 1))
def loss_of(objective, model, params, batch, rng=None):
    """The objective's loss, compiled once for all tests that ask for it: faster than operation by
    operation."""
    return objective.loss(model, params, batch, rng, LANGUAGES)


def make_batch(name, packed=True, **options):
    """The tiny batch of an objective; packed: its first row holds a second example, the copy of the
    second row's."""
    if (
        name == "camlm_slots"
    ):  # the MASKs behind the text of two examples fill the position table's 24 columns
        return tiny.in_slots(make_batch("camlm", packed, length=8, slots=2, **options))
    batch = tiny.batch(name, **{"rows": 3, "length": 12, "vocab": 90, **options})
    if name in tiny.GENERATED:
        return batch if packed else {field: values[:1] for field, values in batch.items()}
    if not packed or name == "clpc":
        return batch
    return pack(batch, name in tiny.SIDE_BY_SIDE)


def pack(batch, side_by_side):
    """The batch with rows 0 and 1 in one row of twice the length; the other rows padded."""
    slots = [name for name in batch if name.startswith(("masked_", "pseudo_"))]
    length, packed = batch["input_ids"].shape[1], {}
    for name, value in batch.items():
        first, second, rest = value[0], value[1].copy(), value[2:]
        if name == "pack_ids":
            second[second > 0] += 1
        if name.endswith("_positions") and name in slots:
            second = np.where(
                batch[name.replace("positions", "weights")][1] > 0, second + length, 0
            )
        if name in slots and side_by_side:
            half = first.size // 2
            row = np.concatenate([first[:half], second[:half], first[half:], second[half:]])
            more = [np.concatenate([r[:half], r[:half] * 0, r[half:], r[half:] * 0]) for r in rest]
        else:
            row = np.concatenate([first, second])
            fill = tiny.PAD if name in ("input_ids", "original_ids") else 0
            more = [np.concatenate([r, np.full_like(r, fill)]) for r in rest]
        packed[name] = np.stack([row, *more]).astype(value.dtype)
    return packed


def masked_nll(params, h, batch, slots=slice(None), config=CONFIG):
    """(sum of negative log-likelihoods, their number) at prediction slots, from states [B, L,
    D]."""
    total, count = 0.0, 0
    columns, targets, weights = (
        batch[f"masked_{name}"][:, slots] for name in ("positions", "targets", "weights")
    )
    for row, slot in zip(*np.nonzero(weights), strict=True):
        log_p = transformer.log_probabilities(config, params, h[row, columns[row, slot]])
        total, count = total - log_p[targets[row, slot]], count + 1
    return total, count

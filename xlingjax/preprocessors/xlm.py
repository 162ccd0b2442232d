"""CLM, MLM and TLM features from text (XLM §3): which rows an objective reads and what is masked in
them.

Each class is what `mixture_source` asks of a preprocessor: its fields, its rows, and a stateless
TensorFlow map over a whole batch. Masking a batch at a time costs a few operations however many
rows it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xlingjax.data.features import SLOT_FIELDS, TOKEN_FIELDS
from xlingjax.data.preprocessor import Preprocessor
from xlingjax.data.rows import Rows, pair_rows, stream_rows
from xlingjax.data.tokens import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError, require_choice, require_numbers

Batch = dict[str, Any]


@dataclass(frozen=True)
class Masking:
    """What MLM and TLM hide (BERT's 80/10/10, XLM §3.3).

    rate: share of a row's tokens predicted. mask, random: shares of those shown as MASK and as a
    random token; the
    rest stay. count: `exact`, ceil(rate * tokens) positions in every row, or `bernoulli`, each
    token by its own draw (XLM's code). random_range: random tokens are `ordinary` (no special ids)
    or from `all` ids (XLM's code). subsampling: exponent a of the weight count^-a with which a
    token is chosen (XLM §3.3: 0.5), so that frequent tokens are chosen less; above 0, special
    tokens are never chosen. None: 0.5 for vocabularies of layout `xlm`, 0 for `xlmr`. validation:
    seed 0 whatever the run's, Bernoulli draws with at least one prediction in every row, all shown
    as MASK.
    """

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    count: str = "exact"
    random_range: str = "ordinary"
    subsampling: float | None = None
    validation: bool = False

    def __post_init__(self):
        require_numbers(self, "(0, 1)", "rate", "masking: ")
        require_numbers(self, "[0, 1]", "mask random", "masking: ")
        require_numbers(self, "[0, inf)", "subsampling", "masking: ")
        require_choice(self, ("exact", "bernoulli"), "count", "masking: ")
        require_choice(self, ("ordinary", "all"), "random_range", "masking: ")
        # Shares such as 0.7 and 0.3 may sum to a hair more than 1 in floating point.
        if self.mask + self.random > 1 + 1e-9:
            raise UserError(
                f"masking: mask={self.mask} and random={self.random} must sum to at most 1"
            )
        if self.count == "bernoulli" and self.subsampling:
            raise UserError(
                "frequency subsampling draws an exact number of positions; set count='exact' or"
                " subsampling=0"
            )

    def exponent(self, vocabulary: Vocabulary) -> float:
        """The exponent of frequency subsampling that holds for this vocabulary."""
        if self.validation or self.count == "bernoulli":
            return 0.0
        if self.subsampling is not None:
            return self.subsampling
        if vocabulary.layout == "xlm":
            return 0.5
        return 0.0

    def slots(self, length: int) -> int:
        """Prediction slots for `length` tokens; Bernoulli draws pass their number less than once in
        10^4 rows."""
        mean = length * self.rate
        if self.count == "bernoulli" or self.validation:
            deviation = math.sqrt(mean * (1 - self.rate))
            return min(length, math.ceil(mean + 4 * deviation))
        # 0.15 * 20 is 3.0000000000000004 in floating point and means 3.
        return math.ceil(mean - 1e-6)


def is_special(vocabulary: Vocabulary) -> np.ndarray:
    """bool [V]: which ids are special tokens."""
    return np.isin(np.arange(vocabulary.size), sorted(vocabulary.special_ids))


def replacer(masking: Masking, vocabulary: Vocabulary) -> Callable[[Any, Any], Any]:
    """The map (ids [B, W], `Draws`) -> what is shown in their place [B, W]."""
    import tensorflow as tf

    from xlingjax.data import draws as random

    if masking.random_range == "all":
        # XLM's code: special tokens among them.
        pieces = np.arange(vocabulary.size)
    else:
        pieces = np.flatnonzero(~is_special(vocabulary))
    piece_R = tf.constant(pieces, tf.int32)

    def show(ids: Any, draws: Any) -> Any:
        if masking.validation:
            return tf.fill(ids.shape, vocabulary.mask_id)
        width = ids.shape[1]
        # One draw says mask, random or kept; a second one which random token.
        kind = draws.uniform(random.REPLACE, width)
        number = draws.uniform(random.TOKENS, width, maxval=len(pieces))
        random_ids = tf.gather(piece_R, number)
        shown = tf.where(kind < masking.mask + masking.random, random_ids, ids)
        return tf.where(kind < masking.mask, vocabulary.mask_id, shown)

    return show


def masker(
    masking: Masking,
    vocabulary: Vocabulary,
    counts: np.ndarray,
    slots: int,
    side_by_side: bool = False,
    words_alone: bool = False,
) -> Callable[[Batch, Any], Batch]:
    """The map that masks a batch of token fields [B, L] and adds its prediction slots [B, M].

    `counts` [V] are token frequencies for subsampling. The first token of every example and pads
    are never chosen.
    When more positions are drawn than there are `slots`, a random choice of them is kept.
    side_by_side: choose on each side of a pair for itself, never its first token; M is then 2 *
    `slots`, those of side 0 first. words_alone: special tokens are never chosen.

    `Draws` are a function of (seed, step, row): a batch can be made again from its step alone, by
    any number of hosts, and every epoch has masks of its own.
    """
    import tensorflow as tf

    from xlingjax.data import draws as random

    log_weight_V = tf.constant(_log_weights(masking, vocabulary, counts, words_alone), tf.float32)
    show = replacer(masking, vocabulary)

    def mask(batch: Batch, draws: Any) -> Batch:
        ids = batch["input_ids"]
        packs = batch["pack_ids"]
        rows, length = ids.shape
        real = packs > 0
        if side_by_side:
            # So each side begins an example of its own, whose first token is never chosen.
            example = packs * 2 + batch["sides"]
            groups = [real & (batch["sides"] == 0), real & (batch["sides"] == 1)]
        else:
            example = packs
            groups = [real]
        left_neighbour = tf.concat([tf.zeros_like(packs[:, :1]), example[:, :-1]], axis=1)
        # The first token of an example says where it begins and is no word to predict.
        starts = example != left_neighbour
        log_weight = tf.gather(log_weight_V, ids)
        eligible = real & ~starts & (log_weight > -np.inf)
        # Gumbel-top-k: the k largest of log w + Gumbel noise are k draws without replacement in
        # proportion to w.
        # The double logarithm below is infinite at 0 and at 1.
        uniform = tf.clip_by_value(draws.uniform(random.SELECT, length), 1e-7, 1 - 1e-7)
        score = log_weight - tf.math.log(-tf.math.log(uniform))
        positions_of_groups = []
        used_of_groups = []
        for group in groups:
            of_group = eligible & group
            count = _number_to_choose(masking, group, of_group, uniform)
            columns, in_use = _choose(count, of_group, score, slots)
            positions_of_groups.append(columns)
            used_of_groups.append(in_use)
        positions = tf.concat(positions_of_groups, axis=1)
        used = tf.concat(used_of_groups, axis=1)
        # Before they are replaced: targets are the words of the text.
        original = tf.gather(ids, positions, batch_dims=1)
        shown = tf.where(used, show(original, draws), original)
        # Several unused slots write the token of column 0 over itself.
        row_numbers = tf.broadcast_to(tf.range(rows)[:, None], positions.shape)
        row_and_column = tf.stack([row_numbers, positions], axis=-1)
        return {
            **batch,
            "input_ids": tf.tensor_scatter_nd_update(ids, row_and_column, shown),
            "masked_positions": positions,
            "masked_targets": tf.where(used, original, 0),
            "masked_weights": tf.cast(used, tf.float32),
        }

    return mask


def _log_weights(
    masking: Masking, vocabulary: Vocabulary, counts: np.ndarray, words_alone: bool
) -> np.ndarray:
    """[V]: the logarithm of the weight with which each token is chosen."""
    exponent = masking.exponent(vocabulary)
    log_weights = -exponent * np.log(np.maximum(counts, 1))
    if exponent > 0 or words_alone:
        # By frequency those that hardly ever stand in a text would come first.
        return np.where(is_special(vocabulary), -np.inf, log_weights)
    return log_weights


def _number_to_choose(masking: Masking, real: Any, eligible: Any, uniform: Any) -> Any:
    """[B]: how many positions are predicted of those that are `eligible` [B, L]. real [B, L]: no
    padding. uniform [B, L]: the draws that the scores of `_choose` are made of."""
    import tensorflow as tf

    eligible_tokens = tf.reduce_sum(tf.cast(eligible, tf.int32), axis=1)
    if masking.count == "exact" and not masking.validation:
        tokens = tf.reduce_sum(tf.cast(real, tf.float32), axis=1)
        # Less a hair before rounding up, as in `Masking.slots`; float32 needs a wider one.
        count = tf.cast(tf.math.ceil(masking.rate * tokens - 1e-4), tf.int32)
    else:
        # The scores rise with the same draw, for without subsampling all weights are equal: the
        # highest are those of the tokens that are hit.
        hit = eligible & (uniform > 1 - masking.rate)
        count = tf.reduce_sum(tf.cast(hit, tf.int32), axis=1)
    if masking.validation:
        # A row without a prediction would be measured as nothing.
        count = tf.maximum(count, 1)
    return tf.minimum(count, eligible_tokens)


def _choose(count: Any, eligible: Any, score: Any, slots: int) -> tuple[Any, Any]:
    """(positions [B, slots] in order, which of them are used): the `count` [B] of highest score
    [B, L] among those that are `eligible` [B, L]."""
    import tensorflow as tf

    # `top_k` gives the best first, so a row that draws fewer uses its first slots.
    used = tf.range(slots)[None, :] < count[:, None]
    columns = tf.math.top_k(tf.where(eligible, score, -np.inf), slots).indices
    # In order of position, unused slots last and on column 0, which is never masked.
    beyond = eligible.shape[1]
    columns = tf.sort(tf.where(used, columns, beyond), axis=1)
    return tf.where(used, columns, 0), used


def slots_of_a_side(masking: Masking, length: int) -> int:
    """Prediction slots for one side of the pairs in a row of `length` tokens, which may fill two
    thirds of it; of what is drawn beyond that a random choice is kept."""
    return masking.slots(math.ceil(length * 2 / 3))


def _masked_map(
    masking: Masking, slots: int, vocabulary: Vocabulary, counts: np.ndarray
) -> Callable[[Batch, Any], Batch]:
    mask = masker(masking, vocabulary, counts, slots)

    def masked(batch: Batch, draws: Any) -> Batch:
        # Validation draws do not follow the run's seed: the same positions are hidden in every run.
        return mask(batch, replace(draws, seed=0))

    if masking.validation:
        return masked
    return mask


def _checked_slots(slots: int | None, masking: Masking, length: int) -> int:
    if slots is None:
        return masking.slots(length)
    # Fewer would lower the mask rate without a word.
    least = math.ceil(length * masking.rate - 1e-6)
    if slots < least:
        raise UserError(
            f"{slots} prediction slots cannot hold {masking.rate:.0%} of {length} tokens; set at"
            f" least {least}"
        )
    return min(slots, length)


@dataclass(frozen=True)
class ClmFeatures(Preprocessor):
    """Streams for the causal objective (XLM §3.2): no masking; the objective predicts each next
    token of the row."""

    stream_length: int | None = None
    name = "clm"
    sides = 1
    fields = TOKEN_FIELDS[:4]

    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        # XLM-R opens each chunk with `<s>`; XLM has no token of its own for that.
        bos = vocabulary.bos_id != vocabulary.eos_id
        return stream_rows(records, bases[0], length, stream_length=self.stream_length, bos=bos)

    def map(
        self, vocabulary: Vocabulary, counts: np.ndarray, length: int
    ) -> Callable[[Batch, Any], Batch]:
        return lambda batch, draws: batch


@dataclass(frozen=True)
class MlmFeatures(Preprocessor):
    """Masked streams (XLM §3.3). `prediction_slots` (default: as many as the masking needs) fixes
    M."""

    masking: Masking = field(default_factory=Masking)
    stream_length: int | None = None
    prediction_slots: int | None = None
    name = "mlm"
    sides = 1
    fields = TOKEN_FIELDS + SLOT_FIELDS

    def slots(self, length: int) -> int:
        return _checked_slots(self.prediction_slots, self.masking, length)

    # The same stream as CLM's: the objectives differ in what they hide of it.
    rows = ClmFeatures.rows

    def map(
        self, vocabulary: Vocabulary, counts: np.ndarray, length: int
    ) -> Callable[[Batch, Any], Batch]:
        return _masked_map(self.masking, self.slots(length), vocabulary, counts)


@dataclass(frozen=True)
class TlmFeatures(Preprocessor):
    """Masked pairs (XLM §3.4): `</s> x </s> </s> y </s>`, `<s> x </s> </s> y </s>` for layout xlmr.

    The switches are those of `rows.pair_rows`.
    """

    masking: Masking = field(default_factory=Masking)
    prediction_slots: int | None = None
    max_pieces: int = 100
    # XLM §3.4 restarts the positions at y, which makes the two sentences easier to align.
    reset_positions: bool = True
    # A language is then as often first as second.
    both_orders: bool = True
    packing: bool = True
    partner_visible: bool = True
    shuffled_pairs: bool = False
    name = "tlm"
    sides = 2
    fields = TOKEN_FIELDS + SLOT_FIELDS

    def slots(self, length: int) -> int:
        return _checked_slots(self.prediction_slots, self.masking, length)

    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        return pair_rows(
            records,
            bases,
            length,
            max_pieces=self.max_pieces,
            reset_positions=self.reset_positions,
            both_orders=self.both_orders,
            packing=self.packing,
            partner_visible=self.partner_visible,
            shuffled=self.shuffled_pairs,
        )

    def map(
        self, vocabulary: Vocabulary, counts: np.ndarray, length: int
    ) -> Callable[[Batch, Any], Batch]:
        return _masked_map(self.masking, self.slots(length), vocabulary, counts)

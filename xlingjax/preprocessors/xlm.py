"""CLM, MLM and TLM features from text (XLM §3): which rows an objective reads and what is masked in
them.

Each class is a `Preprocessor`: its fields, its rows, and a stateless map over a whole batch, in
NumPy. Masking a batch at a time costs a few operations however many rows it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from xlingjax.data.features import SLOT_FIELDS, TOKEN_FIELDS
from xlingjax.data.rows.draws import REPLACE, ROUNDING, SELECT, TOKENS, Draws, gumbel
from xlingjax.data.rows.plan import (
    Batch,
    BatchMap,
    PairPreprocessor,
    Preprocessor,
    Rows,
    stream_rows,
)
from xlingjax.data.rows.targets import preceding
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError, require_choice, require_numbers


@dataclass(frozen=True)
class Masking:
    """What MLM and TLM hide (BERT's 80/10/10, XLM §3.3).

    rate: share of a row's tokens predicted. mask, random: shares of those shown as MASK and as a
    random token; the
    rest stay. count: `exact`, rate * tokens positions in every row (of a pair side by side, on each
    side), rounded up or down by a draw so that the mean is the rate, or `bernoulli`, each token by
    its own draw (XLM's code). random_range: random tokens are `ordinary` (no special ids)
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


def replacer(masking: Masking, vocabulary: Vocabulary) -> Callable[[np.ndarray, Draws], np.ndarray]:
    """The map (ids [B, W], `Draws`) -> what is shown in their place [B, W]."""
    if masking.random_range == "all":
        # XLM's code: special tokens among them.
        pieces = np.arange(vocabulary.size, dtype=np.int32)
    else:
        pieces = np.flatnonzero(~is_special(vocabulary)).astype(np.int32)

    def show(ids: np.ndarray, draws: Draws) -> np.ndarray:
        if masking.validation:
            return np.full_like(ids, vocabulary.mask_id)
        width = ids.shape[1]
        # One draw says mask, random or kept; a second one which random token.
        kind = draws.uniform(REPLACE, width)
        number = draws.uniform(TOKENS, width, maxval=len(pieces))
        shown = np.where(kind < masking.mask + masking.random, pieces[number], ids)
        return np.where(kind < masking.mask, np.int32(vocabulary.mask_id), shown)

    return show


def masker(
    masking: Masking,
    vocabulary: Vocabulary,
    counts: np.ndarray,
    slots: int,
    side_by_side: bool = False,
    words_alone: bool = False,
) -> BatchMap:
    """The map that masks a batch of token fields [B, L] and adds its prediction slots [B, M].

    `counts` [V] are token frequencies for subsampling. The first token of every example and pads
    are never chosen.
    When more positions are drawn than there are `slots`, a random choice of them is kept.
    side_by_side: choose on each side of a pair for itself, never its first token; M is then 2 *
    `slots`, those of side 0 first. words_alone: special tokens are never chosen.

    `Draws` are a function of (seed, step, row): a batch can be made again from its step alone, by
    any number of hosts, and every epoch has masks of its own.
    """
    log_weight_V = _log_weights(masking, vocabulary, counts, words_alone)
    show = replacer(masking, vocabulary)

    def mask(batch: Batch, draws: Draws) -> Batch:
        ids = batch["input_ids"]
        packs = batch["pack_ids"]
        real = packs > 0
        if side_by_side:
            # So each side begins an example of its own, whose first token is never chosen.
            example = packs * 2 + batch["sides"]
            groups = [real & (batch["sides"] == 0), real & (batch["sides"] == 1)]
        else:
            example = packs
            groups = [real]
        # The first token of an example says where it begins and is no word to predict.
        eligible = real & (example == preceding(example))
        uniform = draws.uniform(SELECT, ids.shape[1])
        score = uniform
        if log_weight_V is not None:
            # Gumbel-top-k: the k largest of log w + Gumbel noise are k draws without replacement in
            # proportion to w. Of equal weights the noise alone decides, and it rises with the draw.
            log_weight = log_weight_V[ids]
            eligible &= log_weight > -np.inf
            score = log_weight + gumbel(uniform)
        chosen = []
        rounding = draws.uniform(ROUNDING, len(groups))
        for number, group in enumerate(groups):
            of_group = eligible & group
            count = _number_to_choose(masking, group, of_group, uniform, rounding[:, number])
            chosen.append(_choose(count, of_group, score, slots))
        positions = np.concatenate([columns for columns, _ in chosen], axis=1)
        used = np.concatenate([in_use for _, in_use in chosen], axis=1)
        # Before they are replaced: targets are the words of the text.
        original = np.take_along_axis(ids, positions, axis=1)
        shown = np.where(used, show(original, draws), original)
        masked = ids.copy()
        # Several unused slots write the token of column 0 over itself.
        np.put_along_axis(masked, positions, shown, axis=1)
        return {
            **batch,
            "input_ids": masked,
            "masked_positions": positions.astype(np.int32),
            "masked_targets": np.where(used, original, 0),
            "masked_weights": used.astype(np.float32),
        }

    return mask


def _log_weights(
    masking: Masking, vocabulary: Vocabulary, counts: np.ndarray, words_alone: bool
) -> np.ndarray | None:
    """float32 [V]: the logarithm of the weight with which each token is chosen; None: all weights
    are equal."""
    exponent = masking.exponent(vocabulary)
    if not (exponent or words_alone):
        return None
    log_weights = (-exponent * np.log(np.maximum(counts, 1))).astype(np.float32)
    # By frequency those that hardly ever stand in a text would come first.
    return np.where(is_special(vocabulary), np.float32(-np.inf), log_weights)


def _number_to_choose(
    masking: Masking,
    real: np.ndarray,
    eligible: np.ndarray,
    uniform: np.ndarray,
    rounding: np.ndarray,
) -> np.ndarray:
    """[B]: how many positions are predicted of those that are `eligible` [B, L]. real [B, L]: no
    padding. uniform [B, L]: the draws that the scores of `_choose` are made of; rounding [B]: a
    draw that says whether to round up."""
    eligible_tokens = np.count_nonzero(eligible, axis=1)
    if masking.count == "exact" and not masking.validation:
        tokens = np.count_nonzero(real, axis=1)
        # Always up would be 28 % for 25 % of short sides. Within a hair of a whole number it is
        # that, as in `Masking.slots`.
        up = 1e-6 + (1 - 2e-6) * rounding.astype(np.float64)
        count = np.floor(masking.rate * tokens + up).astype(np.int64)
    else:
        # The scores rise with the same draw, for without subsampling all weights are equal: the
        # highest are those of the tokens that are hit.
        count = np.count_nonzero(eligible & (uniform > 1 - masking.rate), axis=1)
    if masking.validation:
        # A row without a prediction would be measured as nothing.
        count = np.maximum(count, 1)
    return np.minimum(count, eligible_tokens)


def _choose(
    count: np.ndarray, eligible: np.ndarray, score: np.ndarray, slots: int
) -> tuple[np.ndarray, np.ndarray]:
    """(positions [B, slots] in order, which of them are used): the `count` [B] of highest score
    [B, L] among those that are `eligible` [B, L]."""
    columns = highest(np.where(eligible, score, -np.inf), slots)
    # The best come first, so a row that draws fewer uses its first slots.
    used = np.arange(slots) < count[:, None]
    # In order of position, unused slots last and on column 0, which is never masked.
    columns = np.sort(np.where(used, columns, score.shape[1]), axis=1)
    return np.where(used, columns, 0), used


def highest(score: np.ndarray, number: int) -> np.ndarray:
    """int64 [B, number]: the columns of the highest scores of each row [B, L], the best first."""
    width = score.shape[1]
    # A full sort would take most of the time of a batch.
    columns = np.argpartition(score, width - number, axis=1)[:, width - number :]
    order = np.argsort(-np.take_along_axis(score, columns, axis=1), axis=1)
    return np.take_along_axis(columns, order, axis=1)


def slots_of_a_side(masking: Masking, length: int) -> int:
    """Prediction slots for one side of the pairs in a row of `length` tokens, which may fill two
    thirds of it; of what is drawn beyond that a random choice is kept."""
    return masking.slots(math.ceil(length * 2 / 3))


class MaskedFeatures(Preprocessor):
    """Token fields with prediction slots, masked by `masking`."""

    masking: Masking
    fields = TOKEN_FIELDS + SLOT_FIELDS

    def slots(self, length: int) -> int:
        return self.masking.slots(length)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        mask = masker(self.masking, vocabulary, counts, self.slots(length))
        if not self.masking.validation:
            return mask
        # Validation draws do not follow the run's seed: the same positions are hidden in every run.
        return lambda batch, draws: mask(batch, replace(draws, seed=0))


@dataclass(frozen=True)
class ClmFeatures(Preprocessor):
    """Streams for the causal objective (XLM §3.2): no masking; the objective predicts each next
    token of the row."""

    documents: bool = False
    """Whether each document of a row is an example of its own, which attends to no other."""
    name = "clm"
    sides = 1
    fields = TOKEN_FIELDS[:4]

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        # XLM-R opens each chunk with `<s>`; XLM has no token of its own for that.
        bos = vocabulary.bos_id != vocabulary.eos_id
        return stream_rows(records, length, bos=bos, documents=self.documents)


@dataclass(frozen=True)
class MlmFeatures(MaskedFeatures):
    """Masked streams (XLM §3.3)."""

    masking: Masking = Masking()
    documents: bool = False
    name = "mlm"
    sides = 1

    # The same stream as CLM's: the objectives differ in what they hide of it.
    rows = ClmFeatures.rows


@dataclass(frozen=True)
class TlmFeatures(MaskedFeatures, PairPreprocessor):
    """Masked pairs (XLM §3.4): `</s> x </s> </s> y </s>`, `<s> x </s> </s> y </s>` for layout xlmr.

    The switches are those of `PairPreprocessor`.
    """

    masking: Masking = Masking()
    max_pieces: int = 100
    # XLM §3.4 restarts the positions at y, which makes the two sentences easier to align.
    reset_positions: bool = True
    # A language is then as often first as second.
    both_orders: bool = True
    packing: bool = True
    shuffled_pairs: bool = False
    name = "tlm"

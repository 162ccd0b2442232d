"""ERNIE-M's features (ERNIE-M §3.1): pairs for cross-attention masked LM, texts with placeholders
for pseudo tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.features import SLOT_FIELDS, TOKEN_FIELDS, special_row
from xlingjax.data.rows.draws import LANGUAGE, PLACES, Draws, gumbel
from xlingjax.data.rows.plan import (
    Batch,
    BatchMap,
    PairPreprocessor,
    Preprocessor,
    Rows,
    stream_rows,
)
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError, require_choice, require_numbers
from xlingjax.preprocessors.veco import SideBySide
from xlingjax.preprocessors.xlm import Masking, highest, masker, slots_of_a_side

LAYOUTS = ("in_place", "slots")
PLACEMENTS = ("behind", "scattered")
# Every chosen word is MASK: one that is kept or replaced would be evidence on its own side.
ALL_MASK = Masking(mask=1.0, random=0.0)


@dataclass(frozen=True)
class CamlmFeatures(SideBySide, PairPreprocessor):
    """Masked pairs for CAMLM, positions running on over the pair (or restarting,
    `reset_positions`).

    layout "in_place": MASK stands where the word stood, so the other side does not see it either
    (the paper's loss). "slots": both sentences stay whole, and the MASKs stand behind them with the
    positions of the words they hide (the paper's examples). masking must show every chosen word as
    MASK.
    """

    masking: Masking = ALL_MASK
    layout: str = "in_place"
    max_pieces: int = 100
    reset_positions: bool = False
    packing: bool = True
    name = "camlm"
    fields = (*TOKEN_FIELDS, "is_mask", *SLOT_FIELDS)

    def __post_init__(self):
        require_choice(self, LAYOUTS, "layout", "camlm: ")
        # A word that is kept or replaced would be evidence on its own side.
        if self.masking.mask < 1:
            raise UserError(
                "CAMLM shows every chosen word as MASK; set mask=1.0, random=0.0"
                f" (mask={self.masking.mask})"
            )

    def text_length(self, length: int) -> int:
        if self.layout == "in_place":
            return length
        return text_beside(length, lambda text: 2 * slots_of_a_side(self.masking, text))

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        text = self.text_length(length)
        mask = super().map(vocabulary, counts, length)

        def is_mask(ids: np.ndarray) -> np.ndarray:
            return (ids == vocabulary.mask_id).astype(np.int32)

        def in_place(batch: Batch, draws: Draws) -> Batch:
            masked = mask(batch, draws)
            return {**masked, "is_mask": is_mask(masked["input_ids"])}

        def in_slots(batch: Batch, draws: Draws) -> Batch:
            masked = mask(batch, draws)
            hidden_columns = masked["masked_positions"]
            used = masked["masked_weights"] > 0
            # A MASK has the position, language and side of the word that it stands for: all that
            # tells the model which one to predict.
            masks = {"input_ids": np.where(used, vocabulary.mask_id, vocabulary.pad_id)}
            for name in TOKEN_FIELDS[1:]:
                of_hidden = np.take_along_axis(batch[name], hidden_columns, axis=1)
                masks[name] = np.where(used, of_hidden, 0)
            # Of `batch` and not of `masked`: the sentences
            # stay whole, and the MASKs stand behind them.
            row = append(batch, masks, text, length, vocabulary.pad_id)
            columns = text + np.arange(hidden_columns.shape[1])
            return {
                **masked,
                **row,
                "is_mask": is_mask(row["input_ids"]),
                "masked_positions": np.where(used, columns, 0),
            }

        return in_place if self.layout == "in_place" else in_slots


@dataclass(frozen=True)
class BtmlmFeatures(Preprocessor):
    """Masked text with placeholders behind it for pseudo tokens of another language.

    proportion: placeholders per token of the text. targets: (language id, share) of the languages
    they are in; a row draws one that is not its own. placement "behind": their positions are those
    right behind the text, m_{s+1} ... m_{s+p} (§3.1). "scattered": drawn places of a second
    sentence as long as the text. reset_positions: positions restart behind the text, or run on.
    """

    masking: Masking = Masking()
    proportion: float = 0.15
    placement: str = "behind"
    reset_positions: bool = False
    targets: tuple[tuple[int, float], ...] | None = None
    name = "btmlm"
    sides = 1
    beside_pairs = True  # the languages of its pseudo tokens are those of pairs
    fields = (
        *TOKEN_FIELDS,
        "is_mask",
        "original_ids",
        "pseudo_positions",
        "pseudo_weights",
        "special_ids",
        *SLOT_FIELDS,
    )

    def __post_init__(self):
        require_numbers(self, "(0, 1)", "proportion", "btmlm: ")
        require_choice(self, PLACEMENTS, "placement", "btmlm: ")

    def placeholders(self, length: int) -> int:
        """P for rows of `length` tokens."""
        return self._placeholders_of(self.text_length(length))

    def _placeholders_of(self, text: int) -> int:
        return int(placeholder_count(self.proportion, text))

    def text_length(self, length: int) -> int:
        return text_beside(length, self._placeholders_of)

    def slots(self, length: int) -> int:
        return self.masking.slots(self.text_length(length))

    def positions(self, length: int) -> int:
        """How many positions of the model rows of `length` tokens use."""
        text = self.text_length(length)
        if self.reset_positions:
            return text
        if self.placement == "behind":
            return text + self._placeholders_of(text)
        # Of a second sentence, which is as long.
        return 2 * text

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        # As MLM's streams: XLM has no token of its own that opens a text.
        bos = vocabulary.bos_id != vocabulary.eos_id
        return stream_rows(records, self.text_length(length), bos=bos)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        # Not in __post_init__: the languages are known once the corpus is open.
        if not self.targets or len(self.targets) < 2:
            raise UserError(
                "BTMLM needs pairs in at least two languages to write pseudo tokens in; give pairs,"
                " or targets=((0, 0.5), (1, 0.5))"
            )
        mask = masker(self.masking, vocabulary, counts, self.slots(length))
        text = self.text_length(length)
        places = self.placeholders(length)
        drawn_language = _language_drawer(self.targets)

        def extended(batch: Batch, draws: Draws) -> Batch:
            masked = mask(batch, draws)
            used, positions = self._placed(batch, draws, text, places)
            languages = drawn_language(batch, draws)
            return with_placeholders(
                batch, masked, used, positions, languages, text, length, vocabulary
            )

        return extended

    def _placed(
        self, batch: Batch, draws: Draws, text: int, places: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(which placeholders of each row are used, their position ids), both [B, places]."""
        real = batch["pack_ids"][:, :text] > 0
        tokens = np.count_nonzero(real, axis=1)[:, None]
        # A short text has fewer: the share holds for each row.
        used = np.arange(places) < placeholder_count(self.proportion, tokens)
        start = 0 if self.reset_positions else tokens
        if self.placement == "behind":
            return used, start + np.arange(places) * np.ones_like(tokens)
        # Distinct places of the text, in order: where its words would stand in a translation.
        score = np.where(real, draws.uniform(PLACES, text), -1.0)
        # Unused places sort behind all others.
        offsets = np.sort(np.where(used, highest(score, places), text), axis=1)
        return used, start + offsets


def placeholder_count(proportion: float, tokens: Any) -> Any:
    """How many placeholders stand behind so many tokens, one text's number or an array."""
    # Less a hair, since 0.15 * 20 is 3.0000000000000004 in floating point and means 3.
    return np.ceil(proportion * tokens - 1e-6).astype(int)


def with_placeholders(
    batch: Batch,
    masked: Batch,
    used: np.ndarray,
    positions: np.ndarray,
    languages: np.ndarray,
    text: int,
    length: int,
    vocabulary: Vocabulary,
) -> Batch:
    """The fields of `BtmlmFeatures`: masked text of `text` columns and the text of `batch` that it
    was, placeholders behind them where `used` [B, P] says, of these positions [B, P] and languages
    [B, 1]."""
    placeholders = {
        "input_ids": np.where(used, vocabulary.mask_id, vocabulary.pad_id),
        "position_ids": np.where(used, positions, 0),
        "language_ids": np.where(used, languages, 0),
        "pack_ids": used.astype(np.int32),
        "sides": used.astype(np.int32),
    }
    # The pseudo tokens are written from the text as it is, and help to restore the masked
    # one (§3.1, eq. 4-6).
    row = append(masked, placeholders, text, length, vocabulary.pad_id)
    whole = append(batch, placeholders, text, length, vocabulary.pad_id)
    # Not the MASKs of the text: in the first stage they do not stand there.
    is_mask = np.zeros_like(row["input_ids"])
    columns = text + np.arange(used.shape[1])
    is_mask[:, columns] = used
    special_Z = special_row(vocabulary.special_ids, "btmlm")
    return {
        **row,
        "masked_positions": masked["masked_positions"],
        "masked_targets": masked["masked_targets"],
        "masked_weights": masked["masked_weights"],
        "original_ids": whole["input_ids"],
        "is_mask": is_mask,
        "special_ids": np.tile(special_Z, (len(used), 1)),
        "pseudo_positions": np.where(used, columns, 0),
        "pseudo_weights": used.astype(np.float32),
    }


def text_beside(length: int, extra: Callable[[int], int]) -> int:
    """The longest text that leaves room in a row for what it needs besides, which grows with it."""
    # A loop and no formula: shares are rounded up.
    text = length - 1
    while text + extra(text) > length:
        text -= 1
    return text


def _language_drawer(targets: Sequence[tuple[int, float]]) -> Callable[[Batch, Draws], np.ndarray]:
    """The map to [B, 1]: a language by its share, not the row's own (Gumbel-max)."""
    target_T = np.array([language for language, _ in targets])
    log_share_T = np.log([share for _, share in targets])

    def drawn_language(batch: Batch, draws: Draws) -> np.ndarray:
        own = batch["language_ids"][:, :1]
        score = log_share_T + gumbel(draws.uniform(LANGUAGE, len(targets)))
        # Back-translation into the text's own language would only copy it.
        number = np.argmax(np.where(own == target_T, -np.inf, score), axis=1)
        return target_T[number][:, None]

    return drawn_language


def append(batch: Batch, behind: Batch, text: int, length: int, pad_id: int) -> Batch:
    """The first `text` columns of the token fields of a batch, then those of `behind`, padded to
    `length`."""
    # Ids alone have a padding of their own; in layout "xlm" 0 is `<s>`.
    padding = dict.fromkeys(TOKEN_FIELDS, 0) | {"input_ids": pad_id}
    rows = {}
    for name in TOKEN_FIELDS:
        x = np.full((len(batch[name]), length), padding[name], np.int32)
        x[:, :text] = batch[name][:, :text]
        x[:, text : text + behind[name].shape[1]] = behind[name]
        rows[name] = x
    return rows

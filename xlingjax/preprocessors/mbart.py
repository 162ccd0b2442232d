"""The encoder-decoder that VECO compares with, "under the framework of" mBART (VECO §7): a masked
text, from which the decoder writes its masked words or, of a pair, the other side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xlingjax.data.features import TOKEN_FIELDS
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.plan import Batch, BatchMap, Preprocessor, Rows
from xlingjax.data.rows.targets import SEQ2SEQ_FIELDS, block_rows, one_text, written
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.preprocessors.translation import TranslationFeatures, start_ids
from xlingjax.preprocessors.xlm import Masking, masker


# By its MASKs the decoder knows how many words it has to write, and where they stood.
@dataclass(frozen=True)
class MaskedWordsFeatures(Preprocessor):
    """Consecutive sentences of one document, masked, one such text to a row (VECO §7's "MLM task").

    The decoder writes the masked words one behind the other, and `</s>`. Special tokens are never
    masked.
    """

    masking: Masking = Masking(0.15, mask=1.0, random=0.0)
    language_tokens: bool = False
    name = "masked_words"
    sides = 1
    fields = SEQ2SEQ_FIELDS

    def decoder_columns(self, length: int) -> int:
        """T."""
        return self.masking.slots(length) + 1

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        return block_rows(records, length)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        slots = self.masking.slots(length)
        mask = masker(self.masking, vocabulary, counts, slots, words_alone=True)

        def words(masked: Batch) -> Batch:
            """The decoder's fields [B, M + 1] of the masked words and `</s>`."""
            count_B = np.count_nonzero(masked["masked_weights"], axis=1)
            column = np.arange(slots + 1)
            # A row without text has no end either.
            end_B = np.where(masked["pack_ids"][:, 0] > 0, count_B, -1)
            end_B1 = end_B[:, None]
            used = column <= end_B1
            target_BT = np.pad(masked["masked_targets"], [(0, 0), (0, 1)])
            target_BT = np.where(column == end_B1, vocabulary.eos_id, target_BT)
            # A row is of one text.
            language_B1 = masked["language_ids"][:, :1]
            start_B1 = start_ids(language_B1, vocabulary, self.language_tokens)
            return written(one_text(target_BT, used, language_B1), start_B1, vocabulary.pad_id)

        def masked_words(batch: Batch, draws: Draws) -> Batch:
            masked = mask(batch, draws)
            source = {name: masked[name] for name in TOKEN_FIELDS[:4]}
            return {**source, **words(masked)}

        return masked_words


@dataclass(frozen=True)
class MaskedTranslationFeatures(TranslationFeatures):
    """Pairs, the source masked, the target as it is (VECO §7's "TLM task"). The others: see
    `TranslationFeatures`."""

    name: str = "masked_translation"
    masking: Masking = Masking(0.25, mask=1.0, random=0.0)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        divided = super().map(vocabulary, counts, length)
        mask = masker(
            self.masking, vocabulary, counts, self.masking.slots(length), words_alone=True
        )

        def masked_source(batch: Batch, draws: Draws) -> Batch:
            sides = divided(batch, draws)
            shown = mask(sides, draws)["input_ids"]
            return {**sides, "input_ids": shown}

        return masked_source

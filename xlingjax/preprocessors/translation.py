"""Features of encoder-decoders: pairs to translate (XLM §4.3), texts to restore from noise (XLM
§4.2, XGLUE §4.1), and from the model's own translation of them (XLM §4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xlingjax.data.features import special_row
from xlingjax.data.rows.draws import LANGUAGE, Draws
from xlingjax.data.rows.plan import Batch, BatchMap, Preprocessor, Rows
from xlingjax.data.rows.targets import (
    SEQ2SEQ_FIELDS,
    begun,
    block_rows,
    decoder_fields,
    decoder_fields_behind,
    following,
    sentence_rows,
    side,
    translation_rows,
)
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary, start_id
from xlingjax.errors import require_choice
from xlingjax.preprocessors.noise import Examples, Noise, Noiser, Text
from xlingjax.preprocessors.xlm import is_special

BOTH = "both"


def start_ids(
    language_ids: np.ndarray, vocabulary: Vocabulary, language_tokens: bool
) -> np.ndarray:
    """What the decoder begins with: `start_id`, which leaves the language to its embedding (XLM),
    or the token of the target's language, a row behind the vocabulary's (XGLUE §4.1)."""
    if language_tokens:
        return vocabulary.size + language_ids
    return np.full_like(language_ids, start_id(vocabulary))


@dataclass(frozen=True)
class TranslationFeatures(Preprocessor):
    """Pairs, source and target; the switches are those of `targets.translation_rows` and
    `start_ids`. within: reads the pairs of texts within one language, and not the translations;
    truncate: and cuts their sources if too long; language_tokens="both": sources begin with theirs,
    too, and targets with `</s>` before it (NLLB)."""

    # A field, not a constant: a run may have several such stages, each with draws of its own.
    name: str = "translation"
    directions: tuple[str, ...] = ()
    max_pieces: int = 100
    packing: bool = True
    language_tokens: bool | str = False
    within: bool = False
    truncate: bool = False
    sides = 2
    fields = SEQ2SEQ_FIELDS

    def __post_init__(self):
        require_choice(self, (False, True, BOTH), "language_tokens", f"{self.name}: ")

    def columns(self, length: int) -> int:
        # Source and target stand side by side in the reader's row, and are divided in `map`.
        return 2 * length

    def takes(self, languages: tuple[str, str]) -> bool:
        """Whether it reads pairs of these languages."""
        first, second = languages
        # A title task and translation may read the same PARALLEL; each takes its own pairs.
        if (first == second) != self.within:
            return False
        if not self.directions:
            return True
        return f"{first}-{second}" in self.directions or f"{second}-{first}" in self.directions

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        return translation_rows(
            records,
            length,
            directions=self.directions,
            max_pieces=self.max_pieces,
            packing=self.packing,
            truncate=self.truncate,
        )

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        def divided(batch: Batch, draws: Draws) -> Batch:
            source = side(batch, 0, length, vocabulary.pad_id)
            target = side(batch, 1, length, vocabulary.pad_id)
            if self.truncate:
                # Every source ends in </s>, as a truncated one does at decoding.
                pack = source["pack_ids"]
                last = (pack > 0) & (pack != following(pack))
                source["input_ids"] = np.where(last, vocabulary.eos_id, source["input_ids"])
            starts = start_ids(target["language_ids"], vocabulary, bool(self.language_tokens))
            if self.language_tokens == BOTH:
                source = begun(source, start_ids(source["language_ids"], vocabulary, True))
                edges = vocabulary.eos_id, vocabulary.pad_id
                return {**source, **decoder_fields_behind(begun(target, starts), *edges)}
            return {**source, **decoder_fields(target, starts, vocabulary.pad_id)}

        return divided


@dataclass(frozen=True)
class DenoisingFeatures(Preprocessor):
    """Text and, as its source, what `noise` makes of it; by default xDAE (XGLUE §4.1), infilling
    alone. unit: "sentences", or "blocks" of as many consecutive ones as fit in a row. languages: of
    the run, sorted (it tells how their words are written)."""

    noise: Noise = Noise(infill=0.3)
    unit: str = "blocks"
    max_pieces: int = 100
    packing: bool = True
    language_tokens: bool = True
    languages: tuple[str, ...] | None = None
    name: str = "xdae"
    sides = 1
    fields = SEQ2SEQ_FIELDS

    def __post_init__(self):
        require_choice(self, ("sentences", "blocks"), "unit", f"{self.name}: ")

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        if self.unit == "blocks":
            return block_rows(records, length)
        return sentence_rows(records, length, max_pieces=self.max_pieces, packing=self.packing)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        # Made once, when the map is: it lays out tables over the vocabulary.
        noiser = Noiser(self.noise, vocabulary, self.languages or ())
        special_V = is_special(vocabulary)

        def noised(batch: Batch, draws: Draws) -> Batch:
            real = batch["pack_ids"] > 0
            # What marks where a text begins and ends is not moved or lost.
            content = real & ~special_V[batch["input_ids"]]
            text = Text(batch["input_ids"], batch["pack_ids"], batch["language_ids"], content)
            source = noiser(text, draws)
            # Noise has moved, dropped and inserted tokens: positions are counted anew.
            position = Examples(source.pack).before(np.ones_like(source.pack))
            starts = start_ids(batch["language_ids"], vocabulary, self.language_tokens)
            return {
                "input_ids": source.ids,
                "position_ids": np.where(source.pack > 0, position, 0),
                "language_ids": source.language,
                "pack_ids": source.pack,
                # Of `batch`, the text without noise, which the decoder is to restore.
                **decoder_fields(batch, starts, vocabulary.pad_id),
            }

        return noised


@dataclass(frozen=True)
class BackTranslationFeatures(Preprocessor):
    """Single sentences, one in a row: the target, and at first the source too, which the model
    translates into `pivot_languages` before it learns to translate that back.

    pivots: {language id: those that its text is translated into, one drawn evenly}.
    """

    pivots: tuple[tuple[int, tuple[int, ...]], ...] = ()
    max_pieces: int = 100
    language_tokens: bool = False
    name = "back_translation"
    sides = 1
    fields = SEQ2SEQ_FIELDS + ("special_ids", "edge_ids", "pivot_languages")

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        return sentence_rows(records, length, max_pieces=self.max_pieces, packing=False)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        # Options are tuples, since they are hashed and go through JSON.
        pivots = dict(self.pivots)
        languages = max(pivots, default=0) + 1
        # A language without pivots is translated into itself.
        choices_of_language = [pivots.get(own, (own,)) for own in range(languages)]
        counts_of_language = [len(choices) for choices in choices_of_language]
        # [G, C]: a list shorter than the longest begins again; only its own number is drawn from.
        most = max(counts_of_language)
        pivot_GC = np.stack([np.resize(choices, most) for choices in choices_of_language])
        count_G = np.array(counts_of_language)
        special_Z = special_row(vocabulary.special_ids, self.name)
        edges_E = np.array([vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id], np.int32)

        def with_pivots(batch: Batch, draws: Draws) -> Batch:
            # A row is one sentence: all its tokens have its language, padding has 0.
            own_B = batch["language_ids"].max(axis=1)
            choice_B = (draws.uniform(LANGUAGE, 1)[:, 0] * count_G[own_B]).astype(np.int64)
            starts = start_ids(batch["language_ids"], vocabulary, self.language_tokens)
            return {
                **batch,
                **decoder_fields(batch, starts, vocabulary.pad_id),
                "special_ids": np.tile(special_Z, (own_B.size, 1)),
                "edge_ids": np.tile(edges_E, (own_B.size, 1)),
                "pivot_languages": pivot_GC[own_B, choice_B],
            }

        return with_pivots

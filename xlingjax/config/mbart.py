"""The encoder-decoder that VECO compares with (VECO §7) on the text of a run: masked words of text,
and translation of masked pairs."""

from xlingjax.config.evaluators import Files
from xlingjax.config.text import TextSource
from xlingjax.config.translation import translation_batches
from xlingjax.data.text.sources import split_list
from xlingjax.objectives.translation import Translation
from xlingjax.preprocessors.mbart import (
    MaskedTranslationFeatures,
    MaskedWordsFeatures,
)
from xlingjax.preprocessors.xlm import Masking
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def masked_words(
    text: TextSource,
    batch: int = 16,
    length: int = 128,
    masking: Masking = Masking(0.15, mask=1.0, random=0.0),
    target: str = "words",
    language_tokens: bool = False,
    smoothing: float = 0.0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """The masked words of the corpus's monolingual text (VECO §7). masking, target: see
    `MaskedWordsFeatures`. The others: see `translation`."""
    features = MaskedWordsFeatures(masking, target, language_tokens)
    return ObjectiveRun(
        Translation("masked_words", smoothing, chunk=chunk),
        text.batches(features, batch, length),
        weight,
    )


def masked_translation(
    text: TextSource,
    batch: int = 16,
    length: int = 128,
    directions: Files = None,
    max_pieces: int = 100,
    packing: bool = True,
    masking: Masking = Masking(0.25, mask=1.0, random=0.0),
    language_tokens: bool = False,
    smoothing: float = 0.0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Translation of the corpus's pairs from a masked source (VECO §7). masking: of the source. The
    others: see `translation`."""
    features = MaskedTranslationFeatures(
        directions=split_list(directions),
        max_pieces=max_pieces,
        packing=packing,
        language_tokens=language_tokens,
        masking=masking,
    )
    return ObjectiveRun(
        Translation("masked_translation", smoothing, chunk=chunk),
        translation_batches(text, features, batch, length),
        weight,
    )


OBJECTIVES = {"masked_words": masked_words, "masked_translation": masked_translation}

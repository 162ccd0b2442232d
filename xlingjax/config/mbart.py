"""The encoder-decoder that VECO compares with (VECO §7) on the text of a run: masked words of text,
and translation of masked pairs."""

from xlingjax.config.evaluators import Files
from xlingjax.config.text import TextSource, of_text
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


OBJECTIVES = {
    "masked_words": of_text(
        Translation, MaskedWordsFeatures, length=128, name="masked_words", chunk=0
    ),
    "masked_translation": masked_translation,
}

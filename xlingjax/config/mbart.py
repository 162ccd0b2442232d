"""The encoder-decoder that VECO compares with (VECO §7): masked words, and masked translation."""

from xlingjax.config.text import of_text
from xlingjax.config.translation import of_pairs
from xlingjax.objectives.translation import Translation
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures

OBJECTIVES = {
    "masked_words": of_text(
        Translation, MaskedWordsFeatures, length=128, name="masked_words", chunk=0
    ),
    "masked_translation": of_pairs("masked_translation", MaskedTranslationFeatures),
}

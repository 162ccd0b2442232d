"""Fine-tuning for sentence retrieval on the pairs of a run (ERNIE-M, its fine-tuned Tatoeba)."""

from xlingjax.config.text import of_text
from xlingjax.objectives.retrieval import HardestNegative
from xlingjax.preprocessors.retrieval import SentencePairFeatures

OBJECTIVES = {
    "hardest_negative": of_text(HardestNegative, SentencePairFeatures, batch=64, length=128)
}

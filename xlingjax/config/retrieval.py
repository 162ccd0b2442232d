"""Fine-tuning for sentence retrieval on the pairs of a run."""

from xlingjax.config.text import TextSource
from xlingjax.objectives.retrieval import HardestNegative
from xlingjax.preprocessors.retrieval import SentencePairFeatures
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def hardest_negative(
    text: TextSource,
    batch: int = 64,
    length: int = 128,
    max_pieces: int = 100,
    layer: int | None = None,
    scale: float = 20.0,
    bias: float = 0.0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Binary cross-entropy of translations and of the hardest negatives of the batch (ERNIE-M, its
    fine-tuned Tatoeba). layer, scale, bias: see `HardestNegative`."""
    objective = HardestNegative(layer=layer, scale=scale, bias=bias)
    features = SentencePairFeatures(max_pieces)
    return ObjectiveRun(objective, text.batches(features, batch, length), weight)


OBJECTIVES = {"hardest_negative": hardest_negative}

"""T5's span corruption (Raffel et al. 2020) on the text of a run."""

from xlingjax.config.text import TextSource
from xlingjax.objectives.translation import Translation
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def span_corruption(
    text: TextSource,
    batch: int = 16,
    length: int = 128,
    density: float = 0.15,
    mean_span: float = 3.0,
    language_tokens: bool = False,
    smoothing: float = 0.0,
    factor: str | float = 1.0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Span corruption of the corpus's monolingual text. density, mean_span: see
    `SpanCorruptionFeatures`. The others: see `translation`."""
    features = SpanCorruptionFeatures(density, mean_span, language_tokens)
    return ObjectiveRun(
        Translation("span_corruption", smoothing, factor, chunk),
        text.batches(features, batch, length),
        weight,
    )


OBJECTIVES = {"span_corruption": span_corruption}

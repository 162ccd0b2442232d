"""T5's span corruption (Raffel et al. 2020) on the text of a run."""

from xlingjax.config.text import of_text
from xlingjax.objectives.translation import Translation
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures

OBJECTIVES = {
    "span_corruption": of_text(
        Translation, SpanCorruptionFeatures, length=128, name="span_corruption", chunk=0
    )
}

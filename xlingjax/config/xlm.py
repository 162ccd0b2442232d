"""XLM (Lample & Conneau 2019): CLM, MLM and TLM on the text of a run."""

from xlingjax.config.text import TextSource
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def clm(
    text: TextSource,
    batch: int = 64,
    length: int = 256,
    stream_length: int | None = None,
    context_size: int = 0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """CLM (XLM §3.2) on the corpus's monolingual text."""
    objective = CLM(
        context_size=context_size,
        # Without stream_length a row is one stretch of
        # text, and no mask has to keep examples apart.
        packed=bool(stream_length),
        chunk=chunk,
    )
    features = ClmFeatures(stream_length)
    return ObjectiveRun(objective, text.batches(features, batch, length), weight)


def mlm(
    text: TextSource,
    batch: int = 64,
    length: int = 256,
    masking: Masking = Masking(),
    stream_length: int | None = None,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """MLM (XLM §3.3) on the corpus's monolingual text."""
    features = MlmFeatures(masking, stream_length)
    objective = MLM(packed=bool(stream_length), chunk=chunk)
    return ObjectiveRun(objective, text.batches(features, batch, length), weight)


def tlm(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    masking: Masking = Masking(),
    max_pieces: int = 100,
    reset_positions: bool = True,
    both_orders: bool = True,
    packing: bool = True,
    shuffled_pairs: bool = False,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """TLM (XLM §3.4) on the corpus's pairs; the switches are those of `TlmFeatures`."""
    features = TlmFeatures(
        masking,
        max_pieces,
        reset_positions,
        both_orders,
        packing,
        shuffled_pairs,
    )
    objective = TLM(packed=packing, chunk=chunk)
    return ObjectiveRun(objective, text.batches(features, batch, length), weight)


OBJECTIVES = {"clm": clm, "mlm": mlm, "tlm": tlm}

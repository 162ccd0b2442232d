"""XLM (Lample & Conneau 2019): CLM, MLM and TLM on the text of a run."""

from typing import Unpack

from xlingjax.config.corpus import Corpus
from xlingjax.config.text import Reading, text_source
from xlingjax.data.sampling import Sampling
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def clm(
    corpus: Corpus,
    batch: int = 64,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    stream_length: int | None = None,
    context_size: int = 0,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Unpack[Reading],
) -> ObjectiveRun:
    """CLM (XLM §3.2) on the corpus's monolingual text. reading: see `text_source`."""
    objective = CLM(context_size=context_size, packed=bool(stream_length), chunk=chunk)
    features = ClmFeatures(stream_length)
    return ObjectiveRun(
        objective,
        text_source(corpus, features, batch, length, sampling, **reading),
        weight,
    )


def mlm(
    corpus: Corpus,
    batch: int = 64,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    stream_length: int | None = None,
    prediction_slots: int | None = None,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Unpack[Reading],
) -> ObjectiveRun:
    """MLM (XLM §3.3) on the corpus's monolingual text. reading: see `text_source`."""
    features = MlmFeatures(masking, stream_length, prediction_slots)
    objective = MLM(packed=bool(stream_length), chunk=chunk)
    return ObjectiveRun(
        objective,
        text_source(corpus, features, batch, length, sampling, **reading),
        weight,
    )


def tlm(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    prediction_slots: int | None = None,
    max_pieces: int = 100,
    reset_positions: bool = True,
    both_orders: bool = True,
    packing: bool = True,
    partner_visible: bool = True,
    shuffled_pairs: bool = False,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Unpack[Reading],
) -> ObjectiveRun:
    """TLM (XLM §3.4) on the corpus's pairs; the switches are those of `TlmFeatures`. reading: see
    `text_source`."""
    features = TlmFeatures(
        masking,
        prediction_slots,
        max_pieces,
        reset_positions,
        both_orders,
        packing,
        partner_visible,
        shuffled_pairs,
    )
    objective = TLM(packed=packing or not partner_visible, chunk=chunk)
    return ObjectiveRun(
        objective,
        text_source(corpus, features, batch, length, sampling, **reading),
        weight,
    )


OBJECTIVES = {"clm": clm, "mlm": mlm, "tlm": tlm}

"""VECO (Luo et al. 2021) on the text of a run: pairs, and adjacent segments."""

from typing import Unpack

from xlingjax.config.corpus import Corpus
from xlingjax.config.text import Reading, text_source
from xlingjax.data.sampling import Sampling
from xlingjax.objectives.veco import VECO
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xlm import Masking
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def veco(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(rate=0.25),  # noqa: B008 - frozen
    max_pieces: int = 100,
    packing: bool = True,
    plug_out: bool = True,
    tlm: bool = True,
    stop_gradient: bool = True,
    query: str = "self_attention",
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Unpack[Reading],
) -> ObjectiveRun:
    """VECO (§2.1-2.2) on the corpus's pairs. plug_out False: the first phase, without the terms
    that have no gradient there; tlm: with TLM as a fifth term. reading: see `text_source`."""
    objective = VECO(
        plug_out=plug_out,
        stop_gradient=stop_gradient,
        tlm=tlm and plug_out,
        query=query,
        chunk=chunk,
    )
    features = VecoFeatures(masking, max_pieces, packing)
    return ObjectiveRun(
        objective,
        text_source(corpus, features, batch, length, sampling, **reading),
        weight,
    )


def veco_text(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    packing: bool = True,
    plug_out: bool = True,
    stop_gradient: bool = True,
    query: str = "self_attention",
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Unpack[Reading],
) -> ObjectiveRun:
    """VECO (§2.1-2.2) on adjacent segments of the corpus's monolingual text. reading: see
    `text_source`."""
    objective = VECO(
        "veco_text",
        plug_out=plug_out,
        stop_gradient=stop_gradient,
        query=query,
        chunk=chunk,
    )
    features = VecoTextFeatures(masking, packing)
    return ObjectiveRun(
        objective,
        text_source(corpus, features, batch, length, sampling, **reading),
        weight,
    )


OBJECTIVES = {"veco": veco, "veco_text": veco_text}

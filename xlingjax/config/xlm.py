"""XLM (Lample & Conneau 2019): CLM, MLM and TLM on the text of a run."""

from xlingjax.config.text import of_text
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.xlm import ClmFeatures, MlmFeatures, TlmFeatures


def _is_stream(features: ClmFeatures | MlmFeatures) -> bool:
    # Without stream_length a row is one stretch of text, and no mask has to keep examples apart.
    return bool(features.stream_length)


OBJECTIVES = {
    "clm": of_text(CLM, ClmFeatures, batch=64, packed=_is_stream, chunk=0),
    "mlm": of_text(MLM, MlmFeatures, batch=64, packed=_is_stream, chunk=0),
    "tlm": of_text(TLM, TlmFeatures, packed=lambda rows: rows.packing, chunk=0),
}

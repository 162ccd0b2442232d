"""XLM (Lample & Conneau 2019): CLM, MLM and TLM on the text of a run."""

from xlingjax.config.text import of_text
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.xlm import ClmFeatures, MlmFeatures, TlmFeatures

OBJECTIVES = {
    "clm": of_text(CLM, ClmFeatures, batch=64, chunk=0),
    "mlm": of_text(MLM, MlmFeatures, batch=64, chunk=0),
    "tlm": of_text(TLM, TlmFeatures, chunk=0),
}

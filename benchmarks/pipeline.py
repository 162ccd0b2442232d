"""Tokens per second of the input pipeline alone: SeqIO mixtures of the embedded corpus, masked
rows, no model."""

import json
import tempfile
import time
from pathlib import Path

from xlingjax.data.batches.text import BatchSettings, file_batches
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.demo import write
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures


def measure(batches: int = 200, batch: int = 64, length: int = 128) -> str:
    """JSON: tokens per second of each objective's source after its first batches, one thread."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root / "data", ("en", "de"), {"mono": 2000, "pairs": 1000, "rewordings": 0})
        files = {
            "mono": str(root / "data/mono/*.txt"),
            "parallel": str(root / "data/parallel/de-en.*"),
        }
        vocabulary = train_vocabulary(root / "vocab", size=1500, **files)
        rates = {}
        for name, features in (("mlm", MlmFeatures()), ("tlm", TlmFeatures())):
            source = file_batches(
                features, vocabulary, batch, length, BatchSettings(prefetch=0), **files
            )
            for _ in range(5):
                source.next()
            started = time.perf_counter()
            tokens = sum(int((source.next()["pack_ids"] > 0).sum()) for _ in range(batches))
            rates[name] = tokens / (time.perf_counter() - started)
            source.close()
    return json.dumps(rates)

"""What a run costs: seconds that count, peak memory, useful floating-point operations."""

import contextlib
import resource
import sys
import time
from collections.abc import Iterator, Mapping

import jax

from xlingjax.model.config import ModelConfig
from xlingjax.objectives.base import INPUTS, SLOTS


class Stopwatch:
    """Seconds of training, without what happens inside `paused()` (compilation, evaluation)."""

    def __init__(self):
        self._total, self._since, self._lap = 0.0, time.perf_counter(), 0.0

    def seconds(self) -> float:
        """Counted seconds since the start."""
        return self._total + time.perf_counter() - self._since

    def lap(self) -> float:
        """Counted seconds since the last lap."""
        now = self.seconds()
        self._lap, before = now, self._lap
        return now - before

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self._total += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()


def peak_memory_bytes() -> int:
    """The largest peak over this process's devices; on CPU, where devices keep no count, the process's own peak."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peaks = [s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s]
    if peaks:
        return max(peaks)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def flops_of_batch(config: ModelConfig, shapes: Mapping[str, tuple[int, ...]]) -> float | None:
    """`flops_per_token` of the objective that reads fields of these shapes, if one pass through the encoder is all that
    it takes: causal with predictions at every token (CLM), predictions at slots (MLM, TLM, CL-MLM, CAMLM), or none
    (labels of rows or words). None for what takes more and is not counted: VECO, BTMLM, word recovery, the DAN, and
    labels where the model has a cross-attention, which plug-in fine-tuning uses."""
    length, more = shapes["input_ids"][1], {*shapes} - {*INPUTS}
    if not more:
        return flops_per_token(config, length, 1.0, causal=True)
    if more - {*SLOTS} in (set(), {"sides", "is_mask"}):
        return flops_per_token(config, length, shapes["masked_positions"][1] / length)
    if more & {"labels", "tag_labels"} and not config.cross_attention:
        return flops_per_token(config, length, 0.0)
    return None


def flops_per_token(config: ModelConfig, length: int, predictions: float, causal: bool = False) -> float:
    """Useful floating-point operations per token of one training step, forward and backward (3 x forward; a
    multiply-add is 2).

    length: tokens in a row, for the attention products (causal: half of them are useful). predictions: vocabulary
    predictions per token (slots M / length L for MLM, about 1 for CLM). Counted with the true vocabulary, without
    recomputation, embedding look-ups, norms and softmax.
    """
    block = 8 * config.dim**2 + 4 * config.dim * config.ffn + (2 if causal else 4) * length * config.dim
    head = 2 * config.dim * config.vocab_size + (2 * config.dim**2 if config.head == "transform" else 0)
    return 3.0 * (config.layers * block + predictions * head)

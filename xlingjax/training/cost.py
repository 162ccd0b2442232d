"""What a run costs: seconds that count, peak memory, useful floating-point operations."""

import contextlib
import resource
import sys
import time
from collections.abc import Iterator, Mapping

import jax

from xlingjax.data.features import DECODER_FIELDS
from xlingjax.model.config import ModelConfig
from xlingjax.objectives.base import INPUTS, SLOTS


class Stopwatch:
    """Seconds of training, without what happens inside `paused()` (compilation, evaluation)."""

    def __init__(self):
        self._total = 0.0
        self._since = time.perf_counter()
        self._lap = 0.0

    def seconds(self) -> float:
        """Counted seconds since the start."""
        return self._total + time.perf_counter() - self._since

    def lap(self) -> float:
        """Counted seconds since the last lap."""
        before = self._lap
        self._lap = self.seconds()
        return self._lap - before

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self._total += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()


def peak_memory_bytes() -> int:
    """The largest peak over this process's devices; on CPU, where devices keep no count, the
    process's own peak."""
    peaks = []
    for device in jax.local_devices():
        stats = device.memory_stats() or {}
        if "peak_bytes_in_use" in stats:
            peaks.append(stats["peak_bytes_in_use"])
    if peaks:
        return max(peaks)
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def flops_of_batch(config: ModelConfig, shapes: Mapping[str, tuple[int, ...]]) -> float | None:
    """`flops_per_token` of the objective that reads fields of these shapes, if one pass through the
    model is all that it takes: causal with predictions at every token (CLM), predictions at slots
    (MLM, TLM, CL-MLM, CAMLM), none (labels of rows, words or spans), or a decoder's (translation,
    denoising). None for what takes more and is not counted: VECO, BTMLM, word recovery, the DAN,
    back-translation, predicting streams, and labels where the model has a cross-attention, which
    plug-in fine-tuning uses."""
    length = shapes["input_ids"][1]
    more = set(shapes) - set(INPUTS)
    if more == set(DECODER_FIELDS) and not config.streams:
        return decoder_flops_per_token(config, length, shapes["decoder_ids"][1])
    if not more:
        return flops_per_token(config, length, 1.0, causal=True)
    if more - set(SLOTS) in (set(), {"sides", "is_mask"}):
        return flops_per_token(config, length, shapes["masked_positions"][1] / length)
    if more & {"labels", "tag_labels", "start_positions"} and not config.cross_attention:
        return flops_per_token(config, length, 0.0)
    return None


def flops_per_token(
    config: ModelConfig, length: int, predictions: float, causal: bool = False
) -> float:
    """Useful floating-point operations per token of one training step, forward and backward (3 x
    forward; a multiply-add is 2).

    length: tokens in a row, for the attention products (causal: half of them are useful).
    predictions: vocabulary predictions per token (slots M / length L for MLM, about 1 for CLM).
    Counted with the true vocabulary, without recomputation, embedding look-ups, norms and softmax.
    """
    blocks = config.layers * _block(config, length, causal)
    return 3.0 * (blocks + predictions * _head(config))


def decoder_flops_per_token(config: ModelConfig, source: int, target: int) -> float:
    """As `flops_per_token`, of rows of so many source and target tokens, a prediction at each
    target: the mean over both kinds of tokens."""
    # Cross-attention: queries and outputs of the target, keys and values of the source, both
    # products.
    projections = 4 * config.dim**2 * (target + source)
    products = 4 * target * source * config.dim
    own = target * _block(config, target, causal=True)
    decoder = config.decoder_layers * (own + projections + products)
    encoder = config.layers * source * _block(config, source, causal=False)
    return 3.0 * (encoder + decoder + target * _head(config)) / (source + target)


def _block(config: ModelConfig, length: int, causal: bool) -> float:
    """Forward, per token: projections of the attention, feed-forward, products of the attention."""
    per_column = 2 if causal else 4
    projections = 8 * config.dim**2
    feed_forward = 4 * config.dim * config.ffn
    return projections + feed_forward + per_column * length * config.dim


def _head(config: ModelConfig) -> float:
    """Forward, per prediction."""
    logits = 2 * config.dim * config.vocab_size
    if config.head == "transform":
        return logits + 2 * config.dim**2
    return logits

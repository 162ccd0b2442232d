"""Useful floating-point operations of a step, counted from the shape of the model."""

from xlingjax.model.config import ModelConfig


def flops_per_token(
    config: ModelConfig, length: int, predictions: float, causal: bool = False
) -> float:
    """Useful floating-point operations per token of one training step, forward and backward (3 x
    forward; a multiply-add is 2).

    length: tokens in a row, for the attention products (causal: half of them are useful).
    predictions: vocabulary predictions per token (slots M / length L for MLM, about 1 for CLM).
    Counted with the true vocabulary, without recomputation, embedding look-ups, norms and softmax.
    """
    layers = config.layers * _block(config, length, causal)
    forward = layers + predictions * _head(config)
    # Backward takes twice what forward does: a product for the inputs and one for the weights.
    return 3.0 * forward


def decoder_flops_per_token(
    config: ModelConfig, source: int, target: int, predictions: float = 1.0
) -> float:
    """As `flops_per_token`, of rows of so many source and target tokens, so many predictions at
    each target: the mean over both kinds of tokens."""
    # Cross-attention: queries and outputs of the target, keys and values of the source, both
    # products.
    crossing = 4 * config.dim**2 * (target + source) + 4 * target * source * config.dim
    decoder = config.decoder_layers * (target * _block(config, target, causal=True) + crossing)
    encoder = config.layers * source * _block(config, source, causal=False)
    head = predictions * target * _head(config)
    return 3.0 * (encoder + decoder + head) / (source + target)


def _block(config: ModelConfig, length: int, causal: bool) -> float:
    # Query, key, value and output; both layers of the feed-forward; scores and their products with
    # the values.
    projections = 8 * config.dim**2
    feed_forward = 4 * config.dim * config.ffn
    attention = 4 * length * config.dim
    if causal:
        attention = 2 * length * config.dim
    return projections + feed_forward + attention


def _head(config: ModelConfig) -> float:
    # Of the true vocabulary: rows that only fill the table do no useful work.
    logits = 2 * config.dim * config.vocab_size
    if config.head == "transform":
        return logits + 2 * config.dim**2
    return logits

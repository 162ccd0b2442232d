"""How many parameters a model of a configuration has."""

from xlingjax.model.config import ModelConfig


def count_parameters(config: ModelConfig) -> int:
    """Number of parameters, LM head included, with the table's true rows (not the padded ones)."""
    c = config
    norm = 2 * c.dim
    attention = 4 * (c.dim * c.dim + c.dim)
    feed_forward = 2 * c.dim * c.ffn + c.ffn + c.dim
    plain_layer = attention + norm + feed_forward + norm
    crossing_layer = plain_layer + attention + norm

    # Everything but the tokens, which decoders may share.
    other_embeddings = c.dim * c.max_positions
    if c.has_languages:
        other_embeddings += c.dim * c.num_languages
    if c.segments:
        other_embeddings += c.dim * c.segments
    if c.embedding_norm:
        other_embeddings += norm
    embeddings = c.dim * c.true_rows + other_embeddings

    head = 0
    if c.head != "plain":
        head += c.true_rows
    if c.head == "transform":
        head += c.dim * c.dim + c.dim + norm
    final_norm = 0
    if c.norm_order == "pre":
        final_norm = norm

    encoder_layer = plain_layer
    if c.cross_attention:
        encoder_layer = crossing_layer
    total = embeddings + c.layers * encoder_layer + final_norm + head
    if c.decoder_layers:
        decoder_layer = crossing_layer
        if c.tied_self_attention:
            decoder_layer -= attention
        total += c.decoder_layers * decoder_layer + final_norm
        if c.decoder_embeddings == "shared_tokens":
            total += other_embeddings
        if c.decoder_embeddings == "separate":
            total += embeddings + head
    if c.streams:
        distances = (c.dim + 1) * c.relative_buckets * c.heads
        total += c.streams * c.dim + c.decoder_layers * distances
    if c.word_recovery:
        total += 3 * c.dim
    if c.paraphrase:
        total += c.dim + 1
    if c.dan:
        total += (c.dim + 1) * c.dan + (c.dan + 1) * c.dan
    for labels in (c.num_labels, *dict(c.task_labels or ()).values()):
        if labels:
            total += _count_classifier(c, labels)
    return total


def _count_classifier(c: ModelConfig, labels: int) -> int:
    if c.classifier in ("xlmr", "pooler", "decoder"):
        dense = (c.dim, c.dim)
    elif c.classifier == "difference":
        dense = (2 * c.dim, c.ffn)
    elif c.classifier == "plug_in":
        dense = (2 * c.dim, c.dim)
    elif c.plugged_in:
        return (2 * c.dim + 1) * labels
    else:
        return (c.dim + 1) * labels
    inputs, outputs = dense
    return (inputs + 1) * outputs + (outputs + 1) * labels

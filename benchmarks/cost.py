"""What a training step of an objective must compute: matrix products of its passes, counted from
the model's shape.

Of one product of a layer with its weights, forward is 1, the gradient of its input 1, that of its
weights 1: 3 in all, and less where a gradient is not wanted. Products of attention have two
activations and no weights: 3, or 1 without gradient. Left out: norms, softmax, GELU, dropout,
look-ups, optimizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xlingjax.model.config import ModelConfig

GRADIENTS = ("all", "cross_attention", "none")


@dataclass(frozen=True)
class Pass:
    """One way through the encoder, from the embeddings to the vocabulary."""

    predictions: int
    """Per row: states that are projected onto the vocabulary."""
    gradients: str = "all"
    """Of which parameters: "all"; those of the "cross_attention" alone (VECO's first phase);
    "none"."""
    plugged_in: bool = False
    """With the cross-attention, to which the memory is a constant (VECO's stop-gradient)."""


def step_flops(
    config: ModelConfig, rows: int, length: int, passes: Sequence[Pass], mixtures: bool = False
) -> float:
    """Floating-point operations of one step on `rows` rows of `length` columns (a multiply-add is
    2). mixtures: with Unicoder's word recovery beneath the first layer. Attention is counted over
    the whole row, whatever its mask.
    """
    total = sum(_pass(config, length, one) for one in passes)
    if mixtures:
        total += 3 * _attention(config, length)
    return float(rows * total)


def _product(config: ModelConfig, length: int) -> float:
    """Of a row with a D x D matrix."""
    return 2 * length * config.dim**2


def _attention(config: ModelConfig, length: int) -> float:
    """Scores and weighted values of a row, all heads."""
    return 4 * length**2 * config.dim


def _pass(c: ModelConfig, length: int, one: Pass) -> float:
    product, attention = _product(c, length), _attention(c, length)
    feed_forward = 4 * length * c.dim * c.ffn
    # Gradients of weights and of inputs, 1 where they are wanted.
    weights, inputs = {"all": (1, 1), "cross_attention": (0, 1), "none": (0, 0)}[one.gradients]
    block = (1 + weights + inputs) * (4 * product + feed_forward) + (1 + 2 * inputs) * attention
    layers = c.layers * block
    if one.plugged_in:
        trained = one.gradients != "none"
        # Query and output pass a gradient on; key and value end in the memory.
        slot = (1 + 2 * trained) * (2 * product + attention) + (1 + trained) * 2 * product
        layers += c.layers * slot
    if one.gradients == "cross_attention":
        # Nothing is trained beneath the first cross-attention: no gradient passes its query or what
        # lies under it.
        layers -= 4 * product + 2 * attention + product
    head = 2 * c.dim * c.padded_vocab_size
    if c.head == "transform":
        head += 2 * c.dim**2
    return layers + (1 + weights + inputs) * one.predictions * head

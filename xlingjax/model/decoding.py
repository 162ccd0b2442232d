"""How an encoder-decoder's text is searched for, and what is found.

Letters beside the model's: W beams, T columns.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError, require_numbers, require_whole

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How text is searched for. Lengths count what is generated, the end among it, but not the
    start.

    beams: 1 is greedy. length_penalty: a finished text scores its log-probability / length **
    length_penalty. no_repeat_ngram: no n-gram of this order twice; 0: any. min_length: no end
    before so many tokens.
    max_length: (a, b): at most a * (source tokens) + b. n_best: texts returned per source.
    temperature: above 0, tokens are drawn instead (beams must be 1); top_k: from the k likeliest,
    0: all.
    """

    beams: int = 1
    length_penalty: float = 1.0
    no_repeat_ngram: int = 0
    min_length: int = 0
    max_length: tuple[float, int] = (1.5, 10)
    n_best: int = 1
    temperature: float = 0.0
    top_k: int = 0

    def __post_init__(self):
        if self.beams < 1 or not 1 <= self.n_best <= self.beams:
            raise UserError(f"decoding: n_best={self.n_best} must be from 1 to beams={self.beams}")
        if self.temperature and self.beams > 1:
            raise UserError(
                f"decoding: temperature={self.temperature} draws tokens; set beams=1, not"
                f" {self.beams}"
            )
        counts = "no_repeat_ngram min_length top_k"
        require_whole(self, "[0, inf)", counts, "decoding: ")
        require_numbers(self, "[0, inf)", "temperature max_length", "decoding: ")

    def longest(self, source_B: Array, columns: int) -> Array:
        """int32 [B]: the most tokens for sources of so many, within the columns there are; 0 for a
        row of padding."""
        scale, more = self.max_length
        longest_B = (scale * source_B).astype(jnp.int32) + more
        return jnp.where(source_B > 0, jnp.clip(longest_B, 1, columns), 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Texts:
    """The best first. ids: int32 [B, W, T], padded; lengths: [B, W], the end included; scores:
    float32 [B, W], the log-probability, as `Decoding` divides it by the length."""

    ids: Array
    lengths: Array
    scores: Array


@dataclasses.dataclass(frozen=True)
class Ids:
    """The ids that a search must know: what ends a text, what fills the rest, and what is never
    written (as rows of languages never are)."""

    end: int | Array
    pad: int | Array
    banned: Sequence[int | Array] = ()

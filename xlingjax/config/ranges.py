"""Which values a setting may have, beside the type that its function declares: numbers between
bounds, words of a list. No gin here.

By the name of the parameter, which means the same wherever it stands; `OWN` has those that do not.
Functions and dataclasses check what they are given themselves; this is what a recipe is refused for
where its line is known, before anything is built.
"""

import difflib
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from xlingjax.config.bindings import declared
from xlingjax.data.vocabulary.word_pieces import MARKS
from xlingjax.inference.encode import POOLINGS
from xlingjax.model.config import CHOICES
from xlingjax.objectives.xglue import SKIPS
from xlingjax.preprocessors.ernie_m import LAYOUTS
from xlingjax.preprocessors.finetuning import PIECES
from xlingjax.preprocessors.noise import UNITS
from xlingjax.preprocessors.unicoder import PARITIES
from xlingjax.training.optimizer import SCHEDULES
from xlingjax.training.schedule import MODES

MOST = 2**31 - 1
"""Of whole numbers that have no other bound: what an int32 of JAX, TensorFlow and files holds."""


@dataclass(frozen=True)
class Range:
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """`low` itself is none."""
    below: bool = False
    """`high` itself is none."""

    def holds(self, value: Any) -> bool:
        if not isinstance(value, numbers.Real):
            return True
        # Not true of nan.
        if not self.low <= value <= self._high(value):
            return False
        if math.isinf(value) or (self.above and value == self.low):
            return False
        return not (self.below and value == self.high)

    def _high(self, value: Any) -> float:
        if isinstance(value, numbers.Integral):
            return min(self.high, MOST)
        return self.high

    def needed(self, value: Any, kind: str) -> str:
        """What is needed instead, in words. kind: "a number"."""
        high = self.high
        if value > self._high(value):
            high = self._high(value)
        if math.isinf(self.low) and math.isinf(high):
            return f"{kind} that is finite"
        if math.isinf(self.low):
            return f"{kind} of {high} or less"
        if math.isinf(high):
            if self.above:
                return f"{kind} above {self.low}"
            return f"{kind} of {self.low} or more"
        if self.above and self.below:
            return f"{kind} above {self.low} and below {high}"
        if self.above:
            return f"{kind} above {self.low} and at most {high}"
        if self.below:
            return f"{kind} from {self.low} to below {high}"
        return f"{kind} from {self.low} to {high}"


@dataclass(frozen=True)
class Words:
    """One of these words."""

    words: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        return not isinstance(value, str) or value in self.words

    def needed(self, value: Any, kind: str) -> str:
        """What is needed instead, in words."""
        *others, last = [repr(word) for word in self.words]
        words = f"{', '.join(others)} or {last}"
        near = difflib.get_close_matches(value, self.words, 1, 0.5)
        if near:
            return f"{words} (did you mean {near[0]!r}?)"
        return words


@dataclass(frozen=True)
class Mesh(Range):
    """Devices along an axis."""

    def holds(self, value: Any) -> bool:
        return value == -1 or super().holds(value)

    def needed(self, value: Any, kind: str) -> str:
        return f"{super().needed(value, kind)}, or -1,"


COUNT = NOT_NEGATIVE = Range(0)
SIZE = Range(1)
SEED = Range(0, MOST)
# Attention is quadratic in it: a million tokens in a row is a slip of the hand.
LENGTH = Range(1, 2**20)
ANY = Range()
POSITIVE = Range(0, above=True)
SHARE = Range(0, 1)
BELOW_1 = Range(0, 1, below=True)
BETWEEN = Range(0, 1, above=True, below=True)

RANGES: dict[str, Range | Words] = {
    # ---- sizes of batches and rows ---------------------------------------------------------------
    "batch": Range(1, 2**24),
    "length": LENGTH,
    "stream_length": LENGTH,
    "pair_length": LENGTH,
    "max_pieces": SIZE,
    "max_question": SIZE,
    "stride": SIZE,
    "longest": SIZE,
    "prediction_slots": SIZE,
    "chunk": COUNT,
    "context_size": COUNT,
    "microbatches": SIZE,
    "data_shards": SIZE,
    "threads": SIZE,
    "prefetch": COUNT,
    # ---- what is hidden, drawn or changed --------------------------------------------------------
    "rate": BETWEEN,
    "mask": SHARE,
    "random": SHARE,
    "count": Words(("exact", "bernoulli")),
    "random_range": Words(("ordinary", "all")),
    "subsampling": NOT_NEGATIVE,
    "density": BETWEEN,
    "mean_span": Range(1),
    "block": SIZE,
    "span": SIZE,
    "infill": BELOW_1,
    "drop": BELOW_1,
    "poisson": Range(0, 10),
    "shuffle": NOT_NEGATIVE,
    "proportion": BETWEEN,
    "most": BELOW_1,
    "shares": BELOW_1,
    "holdout": BELOW_1,
    "negatives": SIZE,
    "alpha": NOT_NEGATIVE,
    "counts": Words(("sentences", "tokens", "mixture")),
    "weights": NOT_NEGATIVE,
    "seed": SEED,
    "seeds": SEED,
    "parity": Words(PARITIES),
    "layout": Words(LAYOUTS),
    "own_masks": Words(("all", "self")),
    "decode": Words(("argmax", "sample")),
    "target_languages": Words(("share", "uniform")),
    "unit": Words(("sentences", "blocks")),
    "pieces": Words(PIECES),
    "marks": Words(MARKS),
    # ---- losses ----------------------------------------------------------------------------------
    "weight": NOT_NEGATIVE,
    "factor": NOT_NEGATIVE,
    "alphas": NOT_NEGATIVE,
    "factors": NOT_NEGATIVE,
    "smoothing": BELOW_1,
    "scale": POSITIVE,
    "bias": ANY,
    "layer": COUNT,
    "query": Words(CHOICES["cross_attention_query"]),
    # ---- the model -------------------------------------------------------------------------------
    **{name: Words(words) for name, words in CHOICES.items()},
    "dim": Range(1, 2**20),
    "heads": SIZE,
    "ffn": Range(1, 2**24),
    "layers": Range(1, 2**12),
    "decoder_layers": Range(0, 2**12),
    "encoder_layers": COUNT,
    "streams": COUNT,
    "vocab_size": SIZE,
    "table_rows": SIZE,
    "vocab_multiple": SIZE,
    "max_positions": SIZE,
    "position_offset": COUNT,
    "num_languages": COUNT,
    "num_labels": COUNT,
    "segments": Range(2),
    "relative_buckets": SIZE,
    "relative_max_distance": SIZE,
    "dan": COUNT,
    "unroll": COUNT,
    "dropout": BELOW_1,
    "attention_dropout": BELOW_1,
    "classifier_dropout": BELOW_1,
    "init_std": NOT_NEGATIVE,
    "norm_eps": POSITIVE,
    # ---- the optimizer ---------------------------------------------------------------------------
    "learning_rate": POSITIVE,
    "warmup_steps": COUNT,
    "warmup_share": BELOW_1,
    "warmup_from": NOT_NEGATIVE,
    "b1": BELOW_1,
    "b2": BELOW_1,
    "eps": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "clip_norm": NOT_NEGATIVE,
    "skip_norm": NOT_NEGATIVE,
    "loss_scale": NOT_NEGATIVE,
    "layer_decay": Range(0, 1, above=True),
    # ---- the run ---------------------------------------------------------------------------------
    "steps": COUNT,
    "eval_every": COUNT,
    "log_every": COUNT,
    "every": COUNT,
    "keep_last": SIZE,
    "keep_best": COUNT,
    "best_mode": Words(("min", "max")),
    "mode": Words(("min", "max")),
    "patience": COUNT,
    "max_bad_steps": SIZE,
    "rng_impl": Words(("threefry2x32", "rbg", "unsafe_rbg")),
    "data": Mesh(1),
    "fsdp": Mesh(1),
    "tensor": Mesh(1),
    # ---- what is measured and written ------------------------------------------------------------
    "poolings": Words(POOLINGS),
    "limit": COUNT,
    "per_language": COUNT,
    "samples": COUNT,
    "beams": SIZE,
    "test_beams": SIZE,
    "length_penalty": ANY,
    "no_repeat_ngram": COUNT,
    "min_length": COUNT,
    "max_length": NOT_NEGATIVE,
    "temperature": NOT_NEGATIVE,
    # ---- many runs -------------------------------------------------------------------------------
    "epochs": POSITIVE,
    "evaluations": SIZE,
    "tokens": COUNT,
    "jobs": SIZE,
}

OWN: dict[str, Range | Words] = {
    "noise.mask": BELOW_1,
    "noise.unit": Words(UNITS),
    "optimizer.schedule": Words(SCHEDULES),
    "train.schedule": Words(MODES),
    "sampling.temperature": POSITIVE,
    "xfnp.streams": SIZE,
    "xfnp.skip": Words(SKIPS),
    "table.seeds": SIZE,
}


def range_of(name: str, parameter: str) -> Range | Words:
    """What a recipe may bind to a parameter of what it calls `name`; any finite number where
    nothing is said of it."""
    own = OWN.get(f"{name}.{parameter}")
    return own or RANGES.get(parameter, ANY)


def needed(value: Any, function: Callable, name: str, parameter: str) -> str:
    """What is needed instead of `value`, in words; "": it may stand there. function: what recipes
    call `name`. value: a literal, `Made`, lists, dicts and stages of them, whose type fits."""
    # Parameters of a user's own functions may have the same names and mean something else.
    if not function.__module__.startswith("xlingjax."):
        return ""
    allowed = range_of(name, parameter)
    for one in _scalars(value):
        if not allowed.holds(one):
            annotation = declared(function).parameters[parameter].annotation
            return allowed.needed(one, _kind(annotation))
    return ""


def _kind(annotation: Any) -> str:
    if annotation is float or "float" in str(annotation):
        return "a number"
    return "a whole number"


def _scalars(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return [scalar for one in value for scalar in _scalars(one)]
    # Python counts True as an integer.
    if isinstance(value, bool):
        return []
    return [value]

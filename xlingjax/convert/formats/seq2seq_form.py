"""An encoder-decoder of ours in the form that the classes of transformers have, and back: nothing
shared but the words, and their epsilon in every norm.

Both ways are exact. What is shared or tied here is written twice there. A class adds 1e-5 to every
variance; where ours adds next to nothing, all states are written 512 times as large, so that its
epsilon counts 2^-18 as much beside them. Norms take the factor out again; and a factor that is a
power of two changes no bit of a float but its exponent.
"""

import re
from typing import Any

import numpy as np

from xlingjax.convert.formats.tensors import Arrays
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested

NORM_EPS = 1e-5  # what the classes add to a variance
_NOTHING = 1e-10  # beside the variance of a float32 state an epsilon up to here does not show
_FACTOR = 512.0
_LAYERS = re.compile("(encoder|decoder)/layers/")
_ATTENTION = "decoder/layers/attention/"
_OF_ENCODER = "encoder/layers/attention/"
_TABLES = "embeddings/"
_OF_DECODER = "decoder_embeddings/"
_WORDS = ("embeddings/tokens/", "embeddings/languages/")
# What reads a state where no norm stands before it.
_READERS = ("attention/query", "attention/key", "attention/value", "attention/relative", "ffn/in")
_WRITERS = ("attention/out", "ffn/out")
_STATES = ("tokens", "positions", "norm", "streams")


def form_of(config: ModelConfig) -> ModelConfig:
    """The configuration of the same model in that form; an encoder alone stays as it is, and T5."""
    if _stays(config):
        return config
    tables = config.decoder_embeddings
    if tables == "shared":
        tables = "shared_tokens"
    return config.replace(norm_eps=NORM_EPS, tied_self_attention=False, decoder_embeddings=tables)


def _stays(config: ModelConfig) -> bool:
    # T5's classes have tables of words alone, and say their epsilon.
    return not config.decoder_layers or config.has_biases


def unlike(config: ModelConfig) -> str:
    """The setting of an encoder-decoder that no class has whatever is written; "": none."""
    if _stays(config) or config.norm_eps == NORM_EPS or config.norm_eps <= _NOTHING:
        return ""
    return f"norm_eps={config.norm_eps!r}"


def formed(config: ModelConfig, params: Any) -> Any:
    """The parameters of `form_of(config)`, in NumPy."""
    flat = {name: np.asarray(value) for name, value in flattened(params).items()}
    if _stays(config):
        return nested(flat)
    for copy, name in _copies(config, flat).items():
        flat[copy] = _copied(config, copy, flat[name])
    return nested(_scaled(config, flat, _factor(config)))


def unformed(config: ModelConfig, params: Any) -> Any:
    """The parameters of `config` of those of its form. Raises UserError where two that are one
    there differ."""
    flat = flattened(params)
    if _stays(config):
        return nested(flat)
    flat = _scaled(config, flat, 1 / _factor(config))
    for copy, name in _copies(config, flat).items():
        if not np.array_equal(flat.pop(copy), _copied(config, copy, flat[name])):
            raise UserError(
                f"{copy} and {name} were one weight in the run that was exported, and differ:"
                " delete xlingjax.json to read them as two"
            )
    return nested(flat)


def _copies(config: ModelConfig, flat: dict[str, Any]) -> dict[str, str]:
    """{what the form has beside: the parameter of ours that it is a copy of}."""
    copies = {}
    for name in flat:
        of_tables = name.startswith(_TABLES) and not name.startswith(_WORDS)
        if config.decoder_embeddings == "shared" and of_tables:
            copies[name.replace(_TABLES, _OF_DECODER, 1)] = name
        if config.tied_self_attention and name.startswith(_OF_ENCODER):
            copies[name.replace(_OF_ENCODER, _ATTENTION, 1)] = name
    return copies


def _copied(config: ModelConfig, copy: str, value: np.ndarray) -> np.ndarray:
    # A tied decoder has the attention of the encoder's last layers.
    return value[-config.decoder_layers :] if copy.startswith(_ATTENTION) else value


def _factor(config: ModelConfig) -> float:
    return 1.0 if config.norm_eps == NORM_EPS else _FACTOR


def _scaled(config: ModelConfig, flat: Arrays, factor: float) -> Arrays:
    """All states `factor` times as large, logits as they are."""
    if factor == 1:
        return flat
    scaled = {}
    for name, value in flat.items():
        exponent = _exponent(config, name)
        if exponent:
            value = value * np.float32(factor**exponent)
        # Its states meet the table of words, which is larger now, in the logits.
        if config.norm_order == "post" and name.startswith("decoder/layers/ffn_norm/"):
            value[-1] *= np.float32(factor**-2)
        scaled[name] = value
    return scaled


def _exponent(config: ModelConfig, name: str) -> int:
    """Of the factor that a parameter is written with."""
    module, _, part = name.rpartition("/")
    in_layers = _LAYERS.match(name)
    if not in_layers:
        tables = name.startswith((_TABLES, _OF_DECODER, "decoder/streams"))
        return 1 if tables and module.endswith(_STATES) else -int(module == "decoder/final_norm")
    if module.endswith(_WRITERS):
        return 1
    # Of pre-LN, norms take the factor out before anything is read.
    if config.norm_order == "pre":
        return 0
    if module.endswith("norm"):
        return 1
    return -int(part == "kernel" and module.endswith(_READERS))

"""ERNIE-M under Paddle's names, as PaddleNLP publishes it. Its linear layers are [in, out]."""

from xlingjax.convert.formats import ernie_m
from xlingjax.convert.formats.ernie_m import HEAD, LEFT, WITHOUT_MEANING, config_of, usual
from xlingjax.convert.formats.names import Names
from xlingjax.model.config import ModelConfig

__all__ = ["HEAD", "LEFT", "WITHOUT_MEANING", "config_of", "names_of", "usual"]


def names_of(config: ModelConfig) -> Names:
    modules = ernie_m.names_of(config).modules
    modules = {
        ours: theirs.replace(".self_attn.self_attn.", ".self_attn.")
        for ours, theirs in modules.items()
    }
    return Names(modules, transposed=False)

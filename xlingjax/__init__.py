"""xlingjax: cross-lingual pretraining in JAX.

    from xlingjax import open_run

    vectors = open_run("runs/x").embed(["Guten Morgen."], "de")[-1]

The names of `__all__` are imported when they are first used: TensorFlow alone takes seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from xlingjax.data.seqio.mixture import mixture_source
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.errors import UserError
    from xlingjax.inference.run import TrainedRun, open_run
    from xlingjax.model.config import ModelConfig
    from xlingjax.model.partition import MeshConfig
    from xlingjax.training.checkpoint import CheckpointConfig
    from xlingjax.training.evaluator import Evaluator
    from xlingjax.training.feed import ObjectiveRun
    from xlingjax.training.initialisation import Initialisation
    from xlingjax.training.loop import train
    from xlingjax.training.optimizer import OptimizerConfig
    from xlingjax.training.stopping import StoppingConfig

_HOMES = {
    "CheckpointConfig": "training.checkpoint",
    "Evaluator": "training.evaluator",
    "Initialisation": "training.initialisation",
    "MeshConfig": "model.partition",
    "ModelConfig": "model.config",
    "ObjectiveRun": "training.feed",
    "OptimizerConfig": "training.optimizer",
    "StoppingConfig": "training.stopping",
    "TrainedRun": "inference.run",
    "UserError": "errors",
    "Vocabulary": "data.vocabulary.sentencepiece",
    "mixture_source": "data.seqio.mixture",
    "open_run": "inference.run",
    "train": "training.loop",
}

__all__ = [
    "CheckpointConfig",
    "Evaluator",
    "Initialisation",
    "MeshConfig",
    "ModelConfig",
    "ObjectiveRun",
    "OptimizerConfig",
    "StoppingConfig",
    "TrainedRun",
    "UserError",
    "Vocabulary",
    "mixture_source",
    "open_run",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

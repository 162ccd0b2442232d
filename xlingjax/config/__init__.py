"""From files and numbers to the parts of a run: what recipes bind. No gin here.

`bindable()` lists every name that a recipe may use; a module of this folder adds its own in
`BINDABLE`, in `EVALUATORS` what measures, and in `OBJECTIVES` functions whose arguments may be
stages. Objectives come as
`ObjectiveRun`s whose source opens when training starts, evaluators as functions still to be called,
so that a recipe is built where none of its files exist.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

from xlingjax.config.evaluators import Evaluators
from xlingjax.data.sampling import Sampling
from xlingjax.errors import require_choice, require_whole
from xlingjax.model.partition import MeshConfig
from xlingjax.preprocessors.xlm import Masking
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.initialisation import Initialisation
from xlingjax.training.loop import train
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.schedule import MODES
from xlingjax.training.stages import of_last_stage, staged
from xlingjax.training.stopping import StoppingConfig


def planned_train() -> Callable:
    """`train` with its arguments bound, not yet called; recipes bind what its signature has."""

    def plan(**arguments: Any) -> functools.partial:
        require_whole(arguments, "[0, inf)", "steps seed eval_every log_every")
        require_whole(arguments, "[1, inf)", "microbatches max_bad_steps")
        require_choice(arguments, MODES, "schedule")
        require_choice(arguments, ("threefry2x32", "rbg", "unsafe_rbg"), "rng_impl")
        return functools.partial(train, **arguments)

    signature = inspect.signature(train)
    parameters = dict(signature.parameters)
    # They read their files, which a recipe that is only looked at must not.
    made_later = parameters["evaluators"].replace(annotation=Sequence[Evaluators])
    parameters["evaluators"] = made_later
    # It is --to, and one that a recipe bound would be passed over.
    del parameters["workdir"]
    # gin and the check of types read the signature; that of `plan` itself would take any name.
    plan.__signature__ = signature.replace(parameters=[*parameters.values()])
    plan.__name__, plan.__doc__ = train.__name__, train.__doc__
    return plan


def bindable() -> dict[str, Callable]:
    """Every name that a recipe may use."""
    names = {
        "train": planned_train(),
        "optimizer": OptimizerConfig,
        "mesh": MeshConfig,
        "checkpoint": CheckpointConfig,
        "stopping": StoppingConfig,
        "initialisation": Initialisation,
        "sampling": staged(Sampling),
        "masking": staged(Masking),
    }
    # A new paper is found by its file alone: no list here has to name it.
    for found in pkgutil.iter_modules(__path__, f"{__name__}."):
        module = importlib.import_module(found.name)
        for name, function in getattr(module, "BINDABLE", {}).items():
            names[name] = function
        for name, function in getattr(module, "EVALUATORS", {}).items():
            # What is measured is measured as the last stage of the run has it.
            names[name] = of_last_stage(function)
        for name, function in getattr(module, "OBJECTIVES", {}).items():
            # A weight that changes by the step is the schedule's: no reason to open new batches.
            names[name] = staged(function, keep=("weight",), anew="text")
    return names

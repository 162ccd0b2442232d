"""What an objective is where nothing is set."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

from xlingjax import objectives, preprocessors
from xlingjax.objectives import plug_in
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.base import CHUNK, LabelObjective, Objective, TokenObjective
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.objectives.finetuning import Classification, SpanQA, Tagging
from xlingjax.objectives.plug_in import PlugIn, PlugInSpans, PlugInTagging
from xlingjax.objectives.retrieval import HardestNegative
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.unicoder import CLMLM, CLPC, CLWR, DAN
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xglue import XFNP
from xlingjax.objectives.xlm import CLM, MLM, TLM

PLUGGED_IN = ("cross_attention",)
ADDS = {
    CLWR: ("word_recovery",),
    CLPC: ("paraphrase",),
    VECO: PLUGGED_IN,
    PlugIn: PLUGGED_IN,
    PlugInTagging: PLUGGED_IN,
    PlugInSpans: PLUGGED_IN,
}
CONTINUES = {MLM, TLM, CAMLM, BTMLM, CLWR, CLPC, CLMLM, VECO}
"""A released encoder."""
GENERATES = {"smoothing": 0.0, "factor": 1.0}
SETTINGS = {
    MLM: {"packed": True},
    TLM: {"packed": True},
    CLM: {"packed": True, "context_size": 0},
    CLMLM: {"packed": True},
    CLWR: {"raw": False},
    CLPC: {},
    DAN: {"scale": 20.0},
    CAMLM: {"own_masks": "all"},
    BTMLM: {"decode": "argmax", "special": False, "own_masks": "self"},
    VECO: {
        "plug_out": True,
        "stop_gradient": True,
        "tlm": False,
        "query": "self_attention",
        "factors": (),
        "reset_positions": False,
    },
    Translation: GENERATES,
    BackTranslation: {**GENERATES, "max_length": (1.3, 5), "temperature": 0.0},
    XFNP: {**GENERATES, "alphas": (1.0, 1.0), "skip": "target"},
    HardestNegative: {"layer": None, "scale": 20.0, "bias": 0.0},
    Classification: {"apart": False, "task": None},
    Tagging: {},
    SpanQA: {},
    PlugIn: {"stop_gradient": True},
    PlugInTagging: {"stop_gradient": True},
    PlugInSpans: {"stop_gradient": True},
}


def made(kind):
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    ]
    return kind(**dict.fromkeys(needed, 3))


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_the_settings_and_the_coefficients_of_an_objective(kind):
    objective = made(kind)
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if field.name not in ("name", "reads", "chunk") and field.default is not dataclasses.MISSING
    }
    assert defaults == SETTINGS[kind]
    assert getattr(objective, "chunk", CHUNK) == CHUNK == 2048
    assert objective.coefficients and {*objective.coefficients.values()} == {1.0}
    assert objective.adds == ADDS.get(kind, ())
    assert objective.continues_encoder == (kind in CONTINUES)
    # In-batch negatives: a microbatch would have fewer.
    assert objective.whole_batch == (kind in (DAN, HardestNegative))
    # A step is compiled for an objective.
    assert hash(objective) == hash(made(kind))


def classes():
    for room in (objectives, preprocessors):
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            module = importlib.import_module(found.name)
            for value in vars(module).values():
                if inspect.isclass(value) and value.__module__ == found.name:
                    yield value


def test_every_objective_is_in_this_table():
    found = {kind for kind in classes() if issubclass(kind, Objective)}
    assert found == {*SETTINGS, Objective, TokenObjective, LabelObjective, plug_in._Plugged}


def test_what_a_program_was_compiled_for_cannot_change_under_it():
    found = [kind for kind in classes() if dataclasses.is_dataclass(kind)]
    assert len(found) > 40
    assert [kind for kind in found if not kind.__dataclass_params__.frozen] == []

"""What every objective says of itself."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

from xlingjax import objectives, preprocessors
from xlingjax.objectives import plug_in
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.base import LabelObjective, Objective, TokenObjective
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.objectives.finetuning import Classification, OfColumns, SpanQA, Tagging
from xlingjax.objectives.plug_in import PlugIn, PlugInSpans, PlugInTagging
from xlingjax.objectives.retrieval import (
    Distillation,
    HardestNegative,
    SentencePairs,
    TranslationRanking,
)
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
IN_BATCH = (HardestNegative, TranslationRanking)
CONTINUES = {MLM, TLM, CAMLM, BTMLM, CLWR, CLPC, CLMLM, VECO, Distillation, *IN_BATCH}
"""A released encoder."""
KINDS = (
    *(MLM, TLM, CLM, CLMLM, CLWR, CLPC, DAN, CAMLM, BTMLM, VECO, Translation, BackTranslation),
    *(
        XFNP,
        *IN_BATCH,
        Distillation,
        Classification,
        Tagging,
        SpanQA,
        PlugIn,
        PlugInTagging,
        PlugInSpans,
    ),
)


def made(kind):
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    ]
    return kind(**dict.fromkeys(needed, 3))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_an_objective_adds_and_whom_it_continues(kind):
    objective = made(kind)
    assert objective.coefficients and {*objective.coefficients.values()} == {1.0}
    assert objective.adds == ADDS.get(kind, ())
    assert objective.continues_encoder == (kind in CONTINUES)
    # In-batch negatives: a microbatch would have fewer.
    assert objective.whole_batch == (kind in (DAN, *IN_BATCH))
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
    assert found == {
        *KINDS,
        Objective,
        TokenObjective,
        LabelObjective,
        SentencePairs,
        OfColumns,
        plug_in._Plugged,
    }


def test_what_a_program_was_compiled_for_cannot_change_under_it():
    found = [kind for kind in classes() if dataclasses.is_dataclass(kind)]
    assert len(found) > 40
    assert [kind for kind in found if not kind.__dataclass_params__.frozen] == []

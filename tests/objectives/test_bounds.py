"""Where the options of objectives end, which model each asks for, and what it promises of its rows
to the attention."""

import types

import numpy as np
import pytest

from tests.helpers import bounds
from tests.helpers.reference import CONFIG
from tests.objectives.test_defaults import KINDS, made
from xlingjax.errors import UserError
from xlingjax.model.masks import (
    Fields,
    bidirectional,
    camlm,
    camlm_alone,
    causal,
    own_side,
    prefix,
    pseudo_tokens,
    pseudo_tokens_together,
    same_side,
)
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.objectives.finetuning import Classification, SpanQA, Tagging
from xlingjax.objectives.plug_in import PlugIn, PlugInSpans, PlugInTagging
from xlingjax.objectives.ramp import Ramp
from xlingjax.objectives.retrieval import Distillation, HardestNegative, TranslationRanking
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.unicoder import CLMLM, CLPC, CLWR, DAN
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xglue import XFNP
from xlingjax.objectives.xlm import CLM, MLM, TLM

REFUSED = [
    (Translation, {"smoothing": 1.0}, "smoothing=1.0: a number from 0 to below 1"),
    (Translation, {"factor": "1:1"}, "steps rising from 0"),
    (XFNP, {"alphas": (0.0, 0.0)}, "must not be all 0"),
    (XFNP, {"alphas": (1.0, -0.001)}, "a number of 0 or more"),
    (XFNP, {"skip": "words"}, "skip='words': 'target', 'runs' or 'none' is needed"),
    (VECO, {"factors": (("tlm", "0:1,10:-1"),)}, "factors={'tlm': .*}: a number of 0 or more"),
    (VECO, {"factors": (("plug_in_x", 1.0),)}, "factors of 'plug_in_x': the terms are plug_out"),
    (VECO, {"plug_out": False, "factors": (("plug_in", 0.0),)}, "leaves no term"),
    (HardestNegative, {"scale": 0.0}, "scale=0.0: a number above 0"),
    (HardestNegative, {"layer": -1}, "layer=-1: a number of 0 or more"),
    (TranslationRanking, {"margin": -0.1}, "margin=-0.1: a number from 0 to 2"),
    (CAMLM, {"own_masks": "none"}, "own_masks='none': 'all' or 'self' is needed"),
    (BTMLM, {"own_masks": "none"}, "own_masks='none': 'self' or 'all' is needed"),
    (BTMLM, {"decode": "beam"}, "decode='beam': 'argmax' or 'sample' is needed"),
]


@pytest.mark.parametrize(("kind", "options", "message"), REFUSED)
def test_the_first_value_that_is_refused(kind, options, message):
    bounds.refused(kind, options, message)


@pytest.mark.parametrize("text", ["0:1,5:2,5:3", "0:1,5:2,4:3", "-1:1", "1:1", "0:1,", "x", None])
def test_ramps_that_cannot_be_read(text):
    with pytest.raises(UserError, match="write a number, or STEP:VALUE"):
        Ramp.parse(text)


# --- Whom the encoder lets see whom ---------------------------------------------------------------

APART = bidirectional & same_side
ATTENTION = {
    MLM: bidirectional,
    TLM: bidirectional,
    CLMLM: bidirectional,
    CLM: (causal & bidirectional),
    CAMLM: camlm,
    BTMLM: bidirectional,
    CLWR: own_side,
    CLPC: bidirectional,
    DAN: own_side,
    VECO: own_side,
    Translation: bidirectional,
    BackTranslation: bidirectional,
    XFNP: bidirectional,
    HardestNegative: APART,
    TranslationRanking: APART,
    Distillation: APART,
    Classification: bidirectional,
    Tagging: bidirectional,
    SpanQA: bidirectional,
    PlugIn: own_side,
    PlugInTagging: own_side,
    PlugInSpans: own_side,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_who_sees_whom_and_what_a_kernel_may_take_for_it(kind):
    assert made(kind).attention() == ATTENTION[kind]


def test_attention_by_the_options():
    assert Classification(3, apart=True).attention() == APART
    assert CAMLM(own_masks="self").attention() == camlm_alone
    assert MLM().attention() == bidirectional
    assert CLM().attention() == causal & bidirectional
    assert BTMLM().masks()["first stage"] == pseudo_tokens
    assert BTMLM(own_masks="all").masks()["first stage"] == pseudo_tokens_together
    assert Translation().masks() == {"attention": prefix}


SAME = "q.pack == k.pack"
OTHER = f"{SAME} and q.side != k.side"
EVIDENCE = [
    # (objective, of each prediction whether that of column q may depend on the word at column k);
    # test_leak.py holds the others to what they promise.
    (
        CAMLM(own_masks="self"),
        dict.fromkeys(("camlm_x", "camlm_y"), f"({OTHER} and not k.mask) or q.column == k.column"),
    ),
    (BTMLM(own_masks="all"), {"btmlm": SAME, "btmlm_pseudo": SAME}),
    (
        VECO(query="input", plug_out=False),
        dict.fromkeys(("veco_plug_in_x", "veco_plug_in_y"), f"({OTHER}) or q.column == k.column"),
    ),
]


@pytest.mark.parametrize(("objective", "promised"), EVIDENCE)
def test_what_each_prediction_may_depend_on(objective, promised):
    rows = {
        "input_ids": [30, 31, 32, 33, 34, 35, 36, 37],
        "pack_ids": [1, 1, 1, 1, 1, 2, 2, 2],
        "sides": [0, 0, 1, 1, 1, 0, 1, 1],
        "is_mask": [0, 1, 0, 1, 1, 1, 0, 1],
    }
    fields = Fields.from_batch({name: np.array([values]) for name, values in rows.items()})
    tokens = [
        types.SimpleNamespace(column=column, pack=pack, side=side, mask=mask)
        for column, (_, pack, side, mask) in enumerate(zip(*rows.values(), strict=True))
    ]
    evidence = objective.evidence()
    assert [*evidence] == [*promised]
    assert [*evidence][: len(objective.coefficients)] == [*objective.coefficients]
    for name, mask in evidence.items():
        want = np.array([[eval(promised[name], {"q": q, "k": k}) for k in tokens] for q in tokens])
        nothing = ~want.any(1)
        want[nothing, nothing] = True
        np.testing.assert_array_equal(mask(fields, fields)[0], want)


def test_what_predicts_no_hidden_word_promises_nothing():
    found = {kind for kind in KINDS if kind is not XFNP and made(kind).evidence()}
    hidden = {MLM, TLM, CLMLM, CLM, CLWR, CLPC, CAMLM, BTMLM, VECO}
    assert found == hidden | {Translation, BackTranslation}
    assert {*XFNP().evidence()} == {"xfnp_0", "xfnp_1"}


# --- Which model ----------------------------------------------------------------------------------

PLUGGED = CONFIG.replace(num_labels=3, classifier="plug_in_tagging")
TAGGER = CONFIG.replace(num_labels=3, classifier="tagging")
SPANS = CONFIG.replace(num_labels=2, classifier="spans")
PAIRS = CONFIG.replace(num_labels=3, classifier="xlmr")
SEVERAL = CONFIG.replace(task_labels=(("a", 3), ("b", 2)), classifier="xlmr")
MODELS = [
    (Tagging(3), TAGGER, {"num_labels": 2}, "num_labels=2, .*; the objective needs num_labels=3"),
    (Tagging(3), TAGGER, {"classifier": "xlmr"}, "classifier='xlmr'; .* classifier=\"tagging\""),
    (SpanQA(), SPANS, {"num_labels": 3}, "num_labels=3, .*; the objective needs num_labels=2"),
    (PlugInTagging(3), PLUGGED, {"classifier": "tagging"}, 'needs .* classifier="plug_in_tagging'),
    (PlugInTagging(3), PLUGGED, {"cross_attention": False}, "has no cross-attention"),
    (Classification(3), PAIRS, {"num_labels": 2}, "num_labels=2 for .* the task has 3 labels"),
    (Classification(3), PAIRS, {"classifier": "difference"}, "'difference' and the objective apar"),
    (Classification(3), PAIRS, {"classifier": "spans"}, "'spans' and the objective apart"),
    (
        Classification(3, task="a"),
        SEVERAL,
        {"num_labels": 3, "task_labels": None},
        "for classification_a",
    ),
    (
        Classification(3, apart=True),
        CONFIG.replace(num_labels=3, classifier="difference"),
        {"classifier": "pooler"},
        "'pooler' and the objective apart=True: set CLASSIFIER",
    ),
]


class Fits(Exception):
    """Raised by a model that is asked for states."""


def model_of(config):
    def encode(*arguments, **options):
        raise Fits

    return types.SimpleNamespace(config=config, encode=encode)


BATCH = {
    name: np.array([[1, 1]])
    for name in ("input_ids", "position_ids", "language_ids", "pack_ids", "sides")
}


@pytest.mark.parametrize(("objective", "config", "other", "message"), MODELS)
def test_a_model_that_fits_is_asked_and_another_is_refused(objective, config, other, message):
    with pytest.raises(Fits):
        objective.logits(model_of(config), {}, BATCH)
    with pytest.raises(UserError, match=message):
        objective.logits(model_of(config.replace(**other)), {}, BATCH)

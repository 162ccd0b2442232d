"""Seconds that count, and floating-point operations by the books."""

import time

import numpy as np

from tests.helpers import tiny
from xlingjax.data.features import DECODER_FIELDS
from xlingjax.model.config import preset
from xlingjax.model.flops import flops_per_token
from xlingjax.objectives.finetuning import SpanQA, Tagging
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.unicoder import DAN
from xlingjax.training.progress import Stopwatch


def test_stopwatch_leaves_pauses_out():
    clock = Stopwatch()
    with clock.paused():
        time.sleep(0.2)
    time.sleep(0.05)
    first = clock.lap()
    assert 0.05 <= first < 0.2
    with clock.paused():
        time.sleep(0.2)
    assert clock.lap() < 0.2 and clock.seconds() < 0.4


def test_flops_are_six_per_matrix_weight_plus_attention():
    """6 x the weights of all matrix products (the blocks' and the head's share) is the well-known
    count."""
    config = preset("xlmr_base")
    blocks = 12 * (4 * 768**2 + 2 * 768 * 3072)
    np.testing.assert_allclose(flops_per_token(config, 0, 0), 6 * blocks)
    head = 250_002 * 768 + 768**2
    np.testing.assert_allclose(
        flops_per_token(config, 0, 1) - flops_per_token(config, 0, 0), 6 * head
    )
    attention = flops_per_token(config, 512, 0) - flops_per_token(config, 0, 0)
    np.testing.assert_allclose(
        attention, 3 * 12 * (2 * 2 * 512 * 768)
    )  # scores and values, 2 per multiply-add
    assert (
        flops_per_token(config, 512, 0, causal=True) - flops_per_token(config, 0, 0)
        == attention / 2
    )


def test_flops_of_a_decoder_are_six_per_matrix_weight_plus_attention():
    config = preset("xlmr_base", decoder_layers=2)
    source, target, block, crossing = 100, 60, 4 * 768**2 + 2 * 768 * 3072, 4 * 768**2
    shapes = {
        field: (8, target if field in DECODER_FIELDS else source) for field in Translation().reads
    }
    # A layer's cross-attention: half of its weights work on the source's states, half on the
    # target's.
    products = 12 * source * block + 2 * target * block + 2 * crossing / 2 * (source + target)
    products += target * (250_002 * 768 + 768**2)
    attention = 12 * 2 * source**2 + 2 * (target**2 + 2 * target * source)
    expected = (6 * products + 3 * 2 * attention * 768) / (source + target)
    objective = Translation()
    np.testing.assert_allclose(objective.flops_per_token(config, shapes), expected)
    assert objective.flops_per_token(config.replace(streams=2), shapes) is None
    back = tiny.objective("back_translation")
    assert back.flops_per_token(config, {field: (8, 9) for field in back.reads}) is None


def test_flops_are_those_of_the_objective_or_none():
    config = preset("tiny")
    whole = config.replace(cross_attention=True)
    at_slots, none = flops_per_token(config, 100, 0.15), flops_per_token(config, 100, 0.0)
    expected = dict.fromkeys(("mlm", "tlm", "cl_mlm", "camlm"), at_slots) | {"clpc": none}
    # Of several passes, or with parts that flops_per_token does not know.
    expected |= dict.fromkeys(("veco", "btmlm", "clwr", "plug_in"))
    expected |= {"clm": flops_per_token(config, 100, 1.0, causal=True)}
    objectives = [(tiny.objective(name), cost) for name, cost in expected.items()]
    objectives += [(Tagging(3), none), (SpanQA(), none), (DAN(), None)]
    for objective, cost in objectives:
        lengths = {field: 100 for field in objective.reads} | {"masked_positions": 15}
        shapes = {field: (8, lengths[field]) for field in objective.reads}
        model = whole if objective.name in ("veco", "plug_in") else config
        assert objective.flops_per_token(model, shapes) == cost, objective.name

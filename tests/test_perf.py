"""Seconds that count, and floating-point operations by the books."""

import os
import time

import numpy as np

from xlingjax.model.config import count_parameters, preset
from xlingjax.perf import Stopwatch, flops_of_batch, flops_per_token, peak_memory_bytes


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
    """6 x the weights of all matrix products (the blocks' and the head's share) is the well-known count."""
    config = preset("xlmr_base")
    blocks = 12 * (4 * 768**2 + 2 * 768 * 3072)
    np.testing.assert_allclose(flops_per_token(config, 0, 0), 6 * blocks)
    head = 250_002 * 768 + 768**2
    np.testing.assert_allclose(flops_per_token(config, 0, 1) - flops_per_token(config, 0, 0), 6 * head)
    attention = flops_per_token(config, 512, 0) - flops_per_token(config, 0, 0)
    np.testing.assert_allclose(attention, 3 * 12 * (2 * 2 * 512 * 768))  # scores and values, 2 per multiply-add
    assert flops_per_token(config, 512, 0, causal=True) - flops_per_token(config, 0, 0) == attention / 2
    # The design's figure: with the full head at a 250k vocabulary it is 67 % of base-model FLOPs, masked it is 23 %.
    full, masked, none = (flops_per_token(config, 512, share) for share in (1, 0.15, 0))
    assert abs((full - none) / full - 0.67) < 0.03 and abs((masked - none) / masked - 0.23) < 0.03
    assert count_parameters(config) > blocks


def test_flops_follow_the_fields_that_an_objective_reads():
    config = preset("tiny")
    ids = {"input_ids": (8, 100)}
    assert flops_of_batch(config, ids | {"masked_positions": (8, 15)}) == flops_per_token(config, 100, 0.15)
    assert flops_of_batch(config, ids) == flops_per_token(config, 100, 1.0, causal=True)
    assert flops_of_batch(config, ids | {"labels": (8,)}) == flops_per_token(config, 100, 0.0)


def test_peak_memory_is_in_bytes():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 50e6 < peak_memory_bytes() < total

"""Sums become means once, per interval and per language."""

import hashlib
import math

import jax.numpy as jnp
import numpy as np

from xlingjax.training.progress import Interval, perplexity, summarise


def sums(loss, weight, by_language, weights, good=1.0):
    metrics = {
        "mlm/loss": (jnp.float32(loss), jnp.float32(weight)),
        "mlm/loss_by_language": (
            jnp.array(by_language, jnp.float32),
            jnp.array(weights, jnp.float32),
        ),
    }
    scalars = {"total": jnp.float32(7 * good), "grad_norm": jnp.float32(2 * good)}
    scalars |= {"good": jnp.float32(good), "steps": jnp.float32(1), "tokens": jnp.float32(100)}
    return {"metrics": metrics, **scalars}


def test_interval_weights_by_predictions_and_starts_again():
    interval = Interval()
    interval.add(sums(2.0, 2, [2.0, 0, 0], [2, 0, 0]), "aa")
    interval.add(sums(6.0, 1, [0, 6.0, 0], [0, 1, 0]), "bb")
    interval.add(sums(0, 0, [0] * 3, [0] * 3, good=0.0), "cc")  # a skipped step
    line, tokens = interval.close(("de", "en", "zh"))
    np.testing.assert_allclose(line["loss"], 8 / 3)  # not the mean of 1 and 6
    np.testing.assert_allclose(line["perplexity"], math.exp(8 / 3))
    assert line["loss_by_language"] == {"de": 1.0, "en": 6.0}  # zh was not seen
    assert (line["total"], line["grad_norm"], line["steps"]) == (7.0, 2.0, 3)
    assert (line["skipped"], tokens) == (1, 300)
    assert line["batch_hash"] == hashlib.sha256(b"aabbcc").hexdigest()
    assert interval.close(("de", "en", "zh")) is None
    interval.add(sums(3.0, 1, [3.0, 0, 0], [1, 0, 0]), "dd")
    line, _ = interval.close(("de", "en", "zh"))
    assert line["loss"] == 3.0 and line["batch_hash"] == hashlib.sha256(b"dd").hexdigest()
    # Only skipped steps leave no numbers.
    interval.add(sums(0, 0, [0] * 3, [0] * 3, good=0.0))
    line, _ = interval.close(("de", "en", "zh"))
    assert line == {"total": None, "grad_norm": None, "steps": 1, "skipped": 1}


def test_perplexity():
    np.testing.assert_allclose(
        perplexity(math.log(95_000)), 95_000
    )  # a uniform model has the vocabulary's size
    assert perplexity(1e6) == math.inf
    assert summarise({"clm/accuracy": (np.float32(1), np.float32(4))}, ()) == {"accuracy": 0.25}


def test_several_terms_are_pooled_and_stand_beside_it():
    by_language = np.array([1.0, 3.0]), np.array([1.0, 1.0])
    metrics = {
        "veco_x/loss": (4.0, 2.0),
        "veco_y/loss": (6.0, 8.0),
        "veco_x/loss_by_language": by_language,
        "veco_y/loss_by_language": (np.array([5.0, 1.0]), np.array([2.0, 7.0])),
    }
    found = summarise(metrics, ("de", "en"))
    assert found["loss"] == 1.0 and found["veco_x/loss"] == 2.0 and found["veco_y/loss"] == 0.75
    assert (
        found["loss_by_language"] == {"de": 2.0, "en": 0.5}
        and "veco_x/loss_by_language" not in found
    )
    assert "perplexity" in found and "veco_x/perplexity" not in found

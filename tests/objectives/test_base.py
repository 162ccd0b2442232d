import jax
import numpy as np

from xlingjax.objectives.base import Loss, metrics_by_language


def test_losses_of_two_batches_add_leaf_by_leaf():
    a = Loss({"mlm": np.float32(1)}, {"mlm/loss": (np.float32(1), np.float32(2))})
    b = Loss({"mlm": np.float32(3)}, {"mlm/loss": (np.float32(5), np.float32(6))})
    both = jax.tree.map(lambda x, y: x + y, a, b)
    assert both == Loss({"mlm": 4}, {"mlm/loss": (6, 8)})


def test_metrics_by_language():
    nll = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    weights, languages = np.array([1, 1, 0, 0.5], np.float32), np.array([0, 2, 2, 2])
    metrics = metrics_by_language("x", {"loss": nll}, weights, languages, 4)
    assert set(metrics) == {"x/loss", "x/loss_by_language"}
    np.testing.assert_array_equal(metrics["x/loss"], [7, 2.5])
    np.testing.assert_array_equal(metrics["x/loss_by_language"], [[1, 0, 6, 0], [1, 0, 1.5, 0]])

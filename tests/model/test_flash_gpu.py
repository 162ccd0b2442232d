"""`flash` beside `xla` on an NVIDIA GPU, for every mask of the papers:
`XLINGJAX_TEST_PLATFORM=cuda pytest tests/model/test_flash_gpu.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import attention as cases
from xlingjax.model.attention import bind

if jax.default_backend() != "gpu":
    pytest.skip("needs an NVIDIA GPU (XLINGJAX_TEST_PLATFORM=cuda)", allow_module_level=True)

ROWS, LENGTH, HEADS, SIZE = 3, 128, 2, 64


def inputs():
    keys = jax.random.split(jax.random.key(0), 4)
    return [jax.random.normal(key, (ROWS, LENGTH, HEADS, SIZE), jnp.bfloat16) for key in keys]


def computed(mask, fields, backend, q, k, v, w):
    """(states, gradients) in float32."""

    def loss(q, k, v):
        out = bind(mask, fields, fields, backend)(q, k, v)
        real = (fields.pack > 0)[..., None, None]
        out = jnp.where(real, out.astype(jnp.float32), 0)
        return (out * w).sum(), out

    grads, out = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(q, k, v)
    return [np.asarray(x, np.float32) for x in (out, *grads)]


@pytest.mark.parametrize("name", list(cases.MASKS))
def test_states_and_gradients_are_those_of_xla(name):
    mask = cases.MASKS[name]
    fields = cases.fields(name, ROWS, LENGTH)
    q, k, v, w = inputs()
    exact = computed(mask, fields, "xla", *(x.astype(jnp.float32) for x in (q, k, v, w)))
    ours = computed(mask, fields, "flash", q, k, v, w.astype(jnp.float32))
    plain = computed(mask, fields, "xla", q, k, v, w.astype(jnp.float32))
    for found, beside, want in zip(ours, plain, exact, strict=True):
        scale = np.linalg.norm(want)
        error, usual = (np.linalg.norm(x - want) / scale for x in (found, beside))
        assert error < max(2 * usual, 5e-3)


@pytest.mark.parametrize("name", list(cases.MASKS))
def test_what_a_query_may_not_see_changes_no_bit(name):
    """Leak test: keys and values of a column, replaced: who may see it moves, all others keep their
    bits."""
    mask = cases.MASKS[name]
    fields = cases.fields(name, ROWS, LENGTH)
    q, k, v, w = inputs()
    seen_BLS = np.asarray(mask(fields, fields))
    attend = jax.jit(lambda q, k, v: bind(mask, fields, fields, "flash")(q, k, v))
    before = np.asarray(attend(q, k, v), np.float32)
    for column in (5, LENGTH // 2, LENGTH - 3):
        other = np.asarray(
            attend(q, k.at[:, column].set(w[:, column] * 50), v.at[:, column].set(w[:, column])),
            np.float32,
        )
        real_BL = np.asarray(fields.pack > 0)
        hidden_BL = ~seen_BLS[:, :, column] & real_BL
        shown_BL = seen_BLS[:, :, column] & real_BL
        np.testing.assert_array_equal(other[hidden_BL], before[hidden_BL])
        assert (other[shown_BL] != before[shown_BL]).any(axis=(-1, -2)).all()

"""Rows in, rows out: the last batch, meshes, and what is compiled again."""

import jax
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.inference.encode import rows_of
from xlingjax.inference.forward import by_batch, by_row, compiled, place, row_multiple
from xlingjax.model.masks import bidirectional
from xlingjax.model.partition import MeshConfig, make_mesh

SENTENCES = [[1, *range(20, 20 + size), 1] for size in (3, 7, 1, 5, 9, 2, 6, 4, 8, 3, 5)]
ROWS = rows_of(SENTENCES, 1, 2, len(SENTENCES), 12)


def states(model, layer, params, batch):
    h_NBLD = model.encode(params, batch, bidirectional, all_layers=True)
    return h_NBLD[layer], batch["input_ids"].sum(1)


def doubled(params, batch):
    return params * batch["input_ids"]


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))


@pytest.mark.parametrize("size", [1, 3, 4, 11, 64])
def test_rows_come_back_in_order_and_those_that_fill_a_batch_up_do_not(size):
    found = by_row(doubled, 2, {"input_ids": np.arange(1, 12)[:, None]}, size)
    assert found[:, 0].tolist() == list(range(2, 24, 2))


def test_every_batch_has_one_shape_and_the_last_ends_in_zeros():
    rows = {"input_ids": np.ones((5, 3), int), "labels": np.ones(5, int)}
    (first, whole), (last, left) = by_batch(lambda params, batch: batch, None, rows, 3)
    assert (whole, left) == (3, 2)
    assert first["input_ids"].tolist() == [[1] * 3] * 3
    assert last["input_ids"].tolist() == [[1] * 3] * 2 + [[0] * 3]
    assert last["labels"].tolist() == [1, 1, 0]


@pytest.mark.parametrize("size", [4, 5])
def test_a_mesh_gives_what_one_device_gives(mesh, size):
    """A batch of 5 becomes one of 8 rows: a multiple of what the mesh divides."""
    assert row_multiple(None) == 1 and row_multiple(mesh) == 4
    model, params = toy.model()
    alone = by_row(compiled(states, model, None, 2), params, ROWS, size)
    spread = by_row(compiled(states, model, mesh, 2), params, ROWS, size, mesh)
    assert spread[0].shape == (len(SENTENCES), 12, model.config.dim)
    np.testing.assert_allclose(spread[0], alone[0], atol=1e-5)
    np.testing.assert_array_equal(spread[1], [sum(ids) + 2 * (12 - len(ids)) for ids in SENTENCES])


def test_what_comes_back_is_whole_on_every_device_of_a_mesh(mesh):
    model, params = toy.model()
    first = {name: values[:4] for name, values in ROWS.items()}
    h_BLD, _ = compiled(states, model, mesh, 2)(params, place(first, mesh))
    assert len(h_BLD.sharding.device_set) == jax.device_count() and h_BLD.is_fully_replicated


def test_one_program_for_equal_arguments_and_one_shape():
    model, params = toy.model()
    run = compiled(states, model, None, 1)
    assert compiled(states, model, None, 1) is run is not compiled(states, model, None, 2)
    by_row(run, params, ROWS, 4)
    assert run._cache_size() == 1  # the odd last batch too


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="no rows"):
        by_row(doubled, 1, {"input_ids": np.zeros((0, 3), int)}, 4)

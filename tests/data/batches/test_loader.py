import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.helpers.sources import array_source
from xlingjax.data.batches.loader import BatchSource, first_batch, to_global
from xlingjax.data.features import FIELDS, batch_hash, batch_shapes
from xlingjax.errors import UserError


def batches(count=3):
    rng = np.random.default_rng(0)
    fields = ("input_ids", "pack_ids", "masked_weights", "labels")
    shapes = batch_shapes(fields, batch=8, length=6, slots=2)

    def batch():
        return {n: rng.integers(0, 9, s).astype(FIELDS[n].dtype) for n, s in shapes.items()}

    return [batch() for _ in range(count)]


def test_array_source_repeats_restores_and_ends():
    data = batches()
    source = array_source(data, languages=("de", "en"))
    assert isinstance(source, BatchSource) and source.languages == ("de", "en")
    assert source.shapes["input_ids"] == (8, 6) and source.shapes["labels"] == (8,)
    seen = [batch_hash(source.next()) for _ in range(4)]
    assert seen == [batch_hash(data[i]) for i in (0, 1, 2, 0)]
    other = array_source(data)
    other.restore(source.state())
    assert batch_hash(other.next()) == batch_hash(data[1])
    finite = array_source(data, epochs=1)
    for _ in data:
        finite.next()
    with pytest.raises(StopIteration):
        finite.next()


def test_the_first_batch_can_be_looked_at_when_it_is_gone():
    data = batches()
    for taken in range(3):
        source = array_source(data)
        for _ in range(taken):
            source.next()
        assert batch_hash(first_batch(source)) == batch_hash(data[0])
        # And looking changes nothing of the stream.
        assert source.state() == taken and batch_hash(source.next()) == batch_hash(data[taken])


def test_to_global_places_every_row_on_its_device():
    devices = np.array(jax.devices())
    sharding = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))
    source = array_source(batches())
    rows = source.next()
    arrays = to_global(rows, sharding, source.shapes)
    for name, array in arrays.items():
        assert array.sharding == sharding and array.dtype == FIELDS[name].dtype
        np.testing.assert_array_equal(np.asarray(array), rows[name])
        for shard in array.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), rows[name][shard.index])
    with pytest.raises(UserError, match="read 4 of 8 rows"):
        to_global({name: array[:4] for name, array in rows.items()}, sharding, source.shapes)

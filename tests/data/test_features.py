import numpy as np

from xlingjax.data.features import FIELDS, SLOT_FIELDS, TOKEN_FIELDS, batch_hash, batch_shapes


def make(batch=4, length=8, slots=2):
    shapes = batch_shapes((*TOKEN_FIELDS, *SLOT_FIELDS), batch=batch, length=length, slots=slots)
    return {
        name: np.arange(np.prod(s)).reshape(s).astype(FIELDS[name].dtype)
        for name, s in shapes.items()
    }, shapes


def test_every_field_has_known_letters_and_a_32_bit_dtype():
    for field in FIELDS.values():
        assert set(field.shape) <= set("BLTMPZEQD") and field.shape[0] == "B"
        assert field.dtype.itemsize == 4


def test_hash_sees_values_names_dtypes_and_shapes_but_not_order():
    batch, _ = make()
    base = batch_hash(batch)
    assert base == batch_hash(dict(reversed(batch.items())))
    changed = {name: array.copy() for name, array in batch.items()}
    changed["sides"][3, 7] += 1
    assert batch_hash(changed) != base
    assert batch_hash({**batch, "sides": batch["sides"].astype(np.int64)}) != base
    assert batch_hash({**batch, "sides": batch["sides"].reshape(8, 4)}) != base
    first = {**batch, "sides": batch["pack_ids"], "pack_ids": batch["sides"] + 1}
    swapped = {**first, "sides": first["pack_ids"], "pack_ids": first["sides"]}
    assert batch_hash(first) != batch_hash(swapped)
    assert batch_hash({**batch, "sides": np.asfortranarray(batch["sides"])}) == base

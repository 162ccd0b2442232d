import numpy as np
import pytest

from xlingjax.data.features import (
    FIELDS,
    SLOT_FIELDS,
    TOKEN_FIELDS,
    batch_hash,
    batch_shapes,
    check_batch,
)
from xlingjax.errors import UserError


def make(batch=4, length=8, slots=2):
    shapes = batch_shapes((*TOKEN_FIELDS, *SLOT_FIELDS), batch=batch, length=length, slots=slots)
    return {
        name: np.arange(np.prod(s)).reshape(s).astype(FIELDS[name].dtype)
        for name, s in shapes.items()
    }, shapes


def test_every_field_has_known_letters_and_a_32_bit_dtype():
    for name, field in FIELDS.items():
        assert field.name == name and set(field.shape) <= set("BLTMPZE") and field.shape[0] == "B"
        assert field.dtype.itemsize == 4 and field.written_by and field.read_by


def test_hash_sees_values_names_dtypes_and_shapes_but_not_order():
    batch, _ = make()
    base = batch_hash(batch)
    assert base == batch_hash(dict(reversed(batch.items())))
    changed = {name: array.copy() for name, array in batch.items()}
    changed["sides"][3, 7] += 1
    assert batch_hash(changed) != base
    assert batch_hash({**batch, "sides": batch["sides"].astype(np.int64)}) != base
    assert batch_hash({**batch, "sides": batch["sides"].reshape(8, 4)}) != base
    swapped = {**batch, "sides": batch["pack_ids"], "pack_ids": batch["sides"] + 1}
    assert batch_hash(swapped) != batch_hash(
        {**swapped, "sides": swapped["pack_ids"], "pack_ids": swapped["sides"]}
    )
    assert batch_hash({"sides": np.asfortranarray(batch["sides"])}) == batch_hash(
        {"sides": batch["sides"]}
    )


def test_a_good_batch_passes_whole_and_as_a_hosts_share():
    batch, shapes = make()
    check_batch(batch, batch, shapes)
    check_batch({name: array[:2] for name, array in batch.items()}, batch, shapes)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda b: b.pop("masked_targets"), "no field 'masked_targets'"),
        (
            lambda b: b.update(sides=b["sides"].astype(np.int64)),
            "'sides' has dtype int64, expected int32",
        ),
        (
            lambda b: b.update(pack_ids=b["pack_ids"][:, :7]),
            r"'pack_ids' has shape \(4, 7\).*\(4, 8\)",
        ),
        (lambda b: b.update(pack_ids=b["pack_ids"][:3]), "'pack_ids' has 3 rows"),
        (lambda b: b.update(input_ids=b["input_ids"][0]), "expected axes B L"),
    ],
)
def test_a_bad_batch_is_refused_by_name(spoil, message):
    batch, shapes = make()
    spoil(batch)
    with pytest.raises(UserError, match=message):
        check_batch(batch, shapes, shapes)


def test_rows_that_do_not_divide_the_batch_are_refused():
    batch, shapes = make()
    with pytest.raises(UserError, match="promised"):
        check_batch({name: array[:3] for name, array in batch.items()}, batch, shapes)
    with pytest.raises(UserError, match="unknown batch field 'tokens'"):
        check_batch(batch, ["tokens"], shapes)

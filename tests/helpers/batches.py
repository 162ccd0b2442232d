from xlingjax.data.features import FIELDS


def check_batch(batch, reads, shapes=None):
    """The fields that an objective reads are there, as declared."""
    for name in reads:
        array, field = batch[name], FIELDS[name]
        assert (array.dtype, array.ndim) == (field.dtype, len(field.shape)), name
        if shapes:
            assert array.shape == shapes[name], name

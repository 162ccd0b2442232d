"""Records written out by hand, and rows of them read back as lists."""

from types import SimpleNamespace

import numpy as np

from xlingjax.data.rows.plan import RowReader
from xlingjax.data.store.tokenise import Tokens

EOS, BOS, PAD = 1, 0, 2


def side(*sentences):
    ids = np.array([i for s in sentences for i in ([*s, EOS] if s else [])], np.uint16)
    return Tokens(ids, np.array([len(s) + 1 if s else 0 for s in sentences], np.int32))


def read(records, rows, length, which, *, bos=EOS, languages=(0, 1)):
    """Token fields of rows `which` as lists."""
    vocabulary = SimpleNamespace(pad_id=PAD, bos_id=bos, eos_id=EOS)
    reader = RowReader.of_records(records, rows, languages, length, vocabulary)
    fields = reader(np.array(which))
    assert all(
        value.shape == (len(which), length) and value.dtype == np.int32 for value in fields.values()
    )
    return {name: value.tolist() for name, value in fields.items()}

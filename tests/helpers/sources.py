"""Sources of batches held in memory."""

from xlingjax.data.batches.loader import ENDLESS, NumberedSource


class _Repeated:
    """Batches again and again: for ever (None), or so many times."""

    def __init__(self, batches, epochs):
        self._batches = batches
        self._steps = ENDLESS if epochs is None else epochs * len(batches)

    def __len__(self):
        return self._steps

    def __getitem__(self, step):
        # A copy, so that a caller who adds a field does not change what the next epoch reads.
        return dict(self._batches[step % len(self._batches)])


def array_source(batches, *, languages=("en",), identity=None, epochs=None):
    """A source over batches held in memory, in order, repeated `epochs` times (None: for ever)."""
    return NumberedSource(
        _Repeated(batches, epochs),
        shapes={name: array.shape for name, array in batches[0].items()},
        languages=languages,
        identity=identity or {"kind": "arrays", "batches": len(batches)},
    )

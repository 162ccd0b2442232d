"""A vocabulary of whitespace words and a tiny model over it, shared by the evaluation, report and
fine-tuning tests."""

import functools

import numpy as np

PIECES = tuple("abcdefghijklmnopqrstuvwxyz")
LANGUAGES = ("de", "en", "fr")


class ToyVocabulary:
    """One letter is one piece, in XLM's or XLM-R's layout."""

    unk_id = 3

    def __init__(self, layout: str = "xlm"):
        self.layout, self.pair_separators = layout, 3 if layout == "xlm" else 4
        first = 14 if layout == "xlm" else 4
        self.bos_id, self.eos_id, self.pad_id = (1, 1, 2) if layout == "xlm" else (0, 2, 1)
        self._ids = {piece: first + i for i, piece in enumerate(PIECES)}
        self._names = {i: piece for piece, i in self._ids.items()}
        self.size = first + len(PIECES) + (layout == "xlmr")
        self.mask_id = 5 if layout == "xlm" else self.size - 1
        self.special_ids = frozenset(set(range(self.size)) - set(self._names))
        self.sha256 = f"toy-{layout}"

    def encode(self, text):
        return [self._ids.get(piece, self.unk_id) for piece in text.split()]

    def encode_lines(self, lines, threads=1):
        encoded = [self.encode(line) for line in lines]
        lengths = np.array([len(ids) for ids in encoded], np.int32)
        return np.array([i for ids in encoded for i in ids], np.int32), lengths

    def encode_words(self, words):
        return [self.encode(word) for word in words]

    def decode(self, ids):
        return " ".join(self.pieces(ids))

    def pieces(self, ids):
        return [self._names.get(i, f"<{i}>") for i in ids]


@functools.cache
def model(**overrides):
    """(Encoder, params) of two layers; one per set of options in a test session."""
    from tests.helpers import tiny
    from xlingjax.model.config import preset
    from xlingjax.model.encoder import Encoder

    options = dict(
        layers=2, dim=16, heads=2, ffn=32, vocab_size=ToyVocabulary().size, max_positions=64,
        num_languages=len(LANGUAGES),
        dropout=0.0, attention_dropout=0.0, init_std=0.2, vocab_multiple=16, unroll=1,
    )  # fmt: skip
    encoder = Encoder(preset("tiny", **(options | overrides)))
    return encoder, tiny.params(encoder, 1)


def run(made=None, vocabulary=None, mesh=None):
    """A `TrainedRun` of `model()`, or of the model and parameters given."""
    from xlingjax.inference.run import TrainedRun

    return TrainedRun(*(made or model()), vocabulary or ToyVocabulary(), LANGUAGES, mesh)


def sentences(count: int, seed: int = 0, longest: int = 12):
    import numpy as np

    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(PIECES, rng.integers(2, longest + 1))) for _ in range(count)]

"""How text becomes the fields of one objective: the contract of `preprocessors/<paper>.py`."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence

import numpy as np

from xlingjax.data.features import batch_shapes
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.plan import Rows
from xlingjax.data.store.tokens import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

Batch = dict[str, np.ndarray]
BatchMap = Callable[[Batch, Draws], Batch]


class Preprocessor(abc.ABC):
    """Turns records into rows, and rows into fields. Its subclasses are frozen dataclasses, whose
    options are part of a run's identity."""

    # Part of the seed and of a run's identity, so it stays when a class is renamed.
    name: str
    sides: int
    """1: reads text of one language; 2: pairs; 3: pairs with negatives."""
    fields: tuple[str, ...]
    beside_pairs: bool = False
    """Of one that reads text: it needs the run to have pairs, too."""
    aligned_documents: bool = False
    """Of one that reads pairs: they are the lines of documents, with blank lines between these."""

    @property
    def lacks(self) -> str:
        """What else text may lack of which no row comes, as the message goes on: " beside ..."."""
        return ""

    @property
    def needs_pairs(self) -> bool:
        """Whether a run without pairs has nothing for it."""
        return self.sides > 1 or self.beside_pairs

    @abc.abstractmethod
    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        """The rows of one text; `bases[i]` is where side i of the records begins in the array of
        ids."""

    @abc.abstractmethod
    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        """The map (token fields [B, L], `Draws`) -> at least `fields`; `counts` [V] are token
        frequencies. It changes no array that it is given."""

    def slots(self, length: int) -> int:
        """Prediction slots M for rows of `length` tokens."""
        return 0

    def columns(self, length: int) -> int:
        """How wide the reader's rows are, before `map` makes rows of `length` tokens of them."""
        return length

    def decoder_columns(self, length: int) -> int:
        """T, what the decoder of an encoder-decoder reads."""
        return length

    def placeholders(self, length: int) -> int:
        """P for pseudo tokens."""
        return 0

    def positions(self, length: int) -> int:
        """How many of the model's positions the rows use, where these are more than their columns;
        0: they are not."""
        return 0

    def takes(self, languages: tuple[str, ...]) -> bool:
        """Whether it reads text in these languages."""
        return True

    def shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        """The global shapes of its batches."""
        return batch_shapes(
            self.fields,
            batch=batch,
            length=length,
            slots=self.slots(length),
            targets=self.decoder_columns(length),
            placeholders=self.placeholders(length),
        )

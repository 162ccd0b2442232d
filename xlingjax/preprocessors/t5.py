"""Span corruption (Raffel et al. 2020, §3.1.4 and §3.3): spans of a text are hidden behind one
sentinel each, and the decoder writes every sentinel and what it hides.

Which tokens are hidden and what becomes of them is T5's own code, `t5.data.preprocessors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from xlingjax.data.features import DECODER_FIELDS, TOKEN_FIELDS
from xlingjax.data.preprocessor import Preprocessor
from xlingjax.data.rows import Rows, stream_rows
from xlingjax.data.tokens import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors.translation import start_ids

Batch = dict[str, Any]


@dataclass(frozen=True)
class SpanCorruptionFeatures(Preprocessor):
    """Running text, cut so that what is left of it fills a row: `length` tokens of the encoder, a
    sentinel for each span and `</s>` among them.

    density: share of the tokens that are hidden; mean_span: their number by that of the spans. A
    row has no opening token, as T5's. Sentinels are special tokens of the vocabulary that nothing
    else uses, from the last on (see `sentinel_ids`).
    """

    density: float = 0.15
    mean_span: float = 3.0
    language_tokens: bool = False
    name = "span_corruption"
    sides = 1
    fields = TOKEN_FIELDS[:4] + DECODER_FIELDS

    def __post_init__(self):
        if not 0 < self.density < 1:
            raise UserError(f"span_corruption: density={self.density} must be above 0 and below 1")
        if self.mean_span < 1:
            raise UserError(f"span_corruption: mean_span={self.mean_span} must be at least 1")

    def hidden(self, tokens: int) -> tuple[int, int]:
        """(tokens that are hidden, spans) of a text of so many tokens."""
        # In float32 and to even numbers, as T5's masks count.
        share = np.float32(tokens) * np.float32(self.density)
        hidden = min(max(int(np.round(share)), 1), tokens - 1)
        spans = int(np.round(np.float32(hidden) / np.float32(self.mean_span)))
        return hidden, max(spans, 1)

    def columns(self, length: int) -> int:
        """Tokens of the text of a row (T5's `random_spans_helper`)."""
        if length < 4:
            raise UserError(
                f"span_corruption: rows of {length} tokens hold no text with a span hidden: set"
                " LENGTH to 4 or more"
            )
        tokens = length - 1
        while self._left(tokens + 1) <= length:
            tokens += 1
        return tokens

    def _left(self, tokens: int) -> int:
        """What the encoder reads of a text, `</s>` behind it."""
        hidden, spans = self.hidden(tokens)
        return tokens - hidden + spans + 1

    def decoder_columns(self, length: int) -> int:
        hidden, spans = self.hidden(self.columns(length))
        return hidden + spans + 1

    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        self._require_sentinels(length, vocabulary)
        return stream_rows(records, bases[0], self.columns(length))

    def _require_sentinels(self, length: int, vocabulary: Vocabulary) -> None:
        _, spans = self.hidden(self.columns(length))
        free = len(sentinel_ids(vocabulary))
        if spans <= free:
            return
        what = f"span_corruption: rows of {length} tokens hide {spans} spans, and the vocabulary"
        longest = length
        while longest > 4 and self.hidden(self.columns(longest))[1] > free:
            longest -= 1
        if not free:
            raise UserError(
                f"{what} (layout {vocabulary.layout}) has no special token left to stand for them:"
                f" train one with `xlingjax vocab --sentinels {spans}`"
            )
        raise UserError(
            f"{what} has {free} special tokens left to stand for them: set LENGTH to {longest} or"
            f" less, or a longer SPAN_MEAN, or train a vocabulary with `xlingjax vocab --sentinels"
            f" {spans - free}` or more"
        )

    def map(
        self, vocabulary: Vocabulary, counts: np.ndarray, length: int
    ) -> Callable[[Batch, Any], Batch]:
        import tensorflow as tf

        from xlingjax.data import draws as random

        self._require_sentinels(length, vocabulary)
        t5 = _t5_preprocessors()
        sentinels = sentinel_ids(vocabulary)
        # T5's stand behind the pieces, the first one last.
        theirs = SimpleNamespace(vocab_size=vocabulary.size + len(sentinels))
        ours_V = tf.constant([*range(vocabulary.size), *sentinels[::-1]], tf.int32)
        columns = self.columns(length)
        targets = self.decoder_columns(length)
        end = vocabulary.eos_id
        tokens_of_side = tf.TensorSpec([], tf.int32)

        def corrupted(row: Any) -> Any:
            ids_C, tokens, seeds = row
            text = ids_C[:tokens]
            mask = t5.random_spans_noise_mask(tokens, self.density, seeds, self.mean_span)
            sides = []
            for replaced, size in (
                (t5.noise_span_to_unique_sentinel, length),
                (t5.nonnoise_span_to_unique_sentinel, targets),
            ):
                ids = tf.gather(ours_V, replaced(text, mask, theirs, seeds))
                ids = tf.concat([ids, [end]], axis=0)
                # A row without text has no end either.
                ids = ids[: tf.where(tokens > 0, tf.size(ids), 0)]
                sides += [tf.pad(ids, [[0, size - tf.size(ids)]]), tf.size(ids)]
            return tuple(sides)

        def with_spans(batch: Batch, draws: Any) -> Batch:
            tokens_B = tf.reduce_sum(tf.cast(batch["pack_ids"] > 0, tf.int32), 1)
            seeds = draws.uniform(random.SPANS, 4, maxval=2**31 - 1)
            source_BL, source_B, target_BT, target_B = tf.map_fn(
                corrupted,
                (
                    tf.ensure_shape(batch["input_ids"], [None, columns]),
                    tokens_B,
                    tf.reshape(seeds, [-1, 2, 2]),
                ),
                fn_output_signature=(
                    tf.TensorSpec([length], tf.int32),
                    tokens_of_side,
                    tf.TensorSpec([targets], tf.int32),
                    tokens_of_side,
                ),
            )
            # A row is of one text; padding has 0.
            language_B1 = tf.reduce_max(batch["language_ids"], axis=1, keepdims=True)
            source = _side(source_B, language_B1, length)
            target = _side(target_B, language_B1, targets)
            used = target["pack_ids"] > 0
            starts = start_ids(target["language_ids"], vocabulary, self.language_tokens)
            read = tf.concat([starts[:, :1], target_BT[:, :-1]], axis=1)
            return {
                "input_ids": tf.where(source["pack_ids"] > 0, source_BL, vocabulary.pad_id),
                **source,
                "decoder_ids": tf.where(used, read, vocabulary.pad_id),
                **{f"decoder_{name}": x for name, x in target.items()},
                "decoder_targets": tf.where(used, target_BT, 0),
                "decoder_weights": tf.cast(used, tf.float32),
            }

        return with_spans


def _side(size_B: Any, language_B1: Any, columns: int) -> dict[str, Any]:
    """The fields beside the ids of texts of so many tokens, one in a row."""
    import tensorflow as tf

    position = tf.range(columns)[None, :]
    used = position < size_B[:, None]
    return {
        "position_ids": tf.where(used, position, 0),
        "language_ids": tf.where(used, language_B1, 0),
        "pack_ids": tf.cast(used, tf.int32),
    }


def sentinel_ids(vocabulary: Vocabulary) -> list[int]:
    """The special tokens without a role, the last first, as T5 counts its own. Of layout `xlm`
    `<special9>` to `<special0>` but MASK's, behind those of `xlingjax vocab --sentinels`; of `xlmr`
    none."""
    roles = {
        # To SeqIO 0 is padding, whatever it is here (`<s>`, of layout `xlm`).
        0,
        vocabulary.bos_id,
        vocabulary.eos_id,
        vocabulary.pad_id,
        vocabulary.unk_id,
        vocabulary.mask_id,
    }
    return sorted({*vocabulary.special_ids} - roles, reverse=True)


def _t5_preprocessors() -> Any:
    try:
        from t5.data import preprocessors
    except ImportError as error:
        raise UserError(
            f"span_corruption needs t5 ({error}): pip install --no-deps t5==0.9.4 and pip install"
            " 'xlingjax[t5-needs]'"
        ) from None
    return preprocessors

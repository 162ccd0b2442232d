"""Span corruption (Raffel et al. 2020, §3.1.4 and §3.3): spans of a text are hidden behind one
sentinel each, and the decoder writes every sentinel and what it hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.rows.draws import SPANS, Draws
from xlingjax.data.rows.plan import Batch, BatchMap, Preprocessor, Rows, stream_rows
from xlingjax.data.rows.targets import SEQ2SEQ_FIELDS, one_text, written
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError, require_numbers
from xlingjax.preprocessors.translation import start_ids


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
    fields = SEQ2SEQ_FIELDS

    def __post_init__(self):
        require_numbers(self, "(0, 1)", "density", "span_corruption: ")
        require_numbers(self, "[1, inf)", "mean_span", "span_corruption: ")

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

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        return stream_rows(records, self.columns(length))

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        sentinels = np.array(sentinel_ids(vocabulary), np.int32)
        _, spans = self.hidden(self.columns(length))
        if spans > sentinels.size:
            raise UserError(
                f"span_corruption: rows of {length} tokens hide {spans} spans, and the vocabulary"
                f" has {sentinels.size} special tokens left to stand for them: set a shorter LENGTH"
                " or longer spans (mean), or train a vocabulary with `xlingjax vocab --sentinels"
                f" {spans - sentinels.size}` or more"
            )
        targets = self.decoder_columns(length)

        def with_spans(batch: Batch, draws: Draws) -> Batch:
            ids_BC = batch["input_ids"]
            tokens_B = np.count_nonzero(batch["pack_ids"], axis=1)
            uniform_BC = draws.uniform(SPANS, 2 * ids_BC.shape[1])
            sources = []
            texts = []
            for ids, tokens, uniform in zip(ids_BC, tokens_B.tolist(), uniform_BC, strict=True):
                text = ids[:tokens]
                hidden = self._hidden_tokens(tokens, uniform)
                sources.append(_behind_sentinels(text, hidden, sentinels, vocabulary.eos_id))
                texts.append(_behind_sentinels(text, ~hidden, sentinels, vocabulary.eos_id))
            # A row is of one text; padding has 0.
            language_B1 = batch["language_ids"].max(axis=1, keepdims=True)
            source = _side(sources, language_B1, length, vocabulary.pad_id)
            target = _side(texts, language_B1, targets, 0)
            start_B1 = start_ids(language_B1, vocabulary, self.language_tokens)
            return {**source, **written(target, start_B1, vocabulary.pad_id)}

        return with_spans

    def _hidden_tokens(self, tokens: int, uniform: np.ndarray) -> np.ndarray:
        """bool [tokens]: those of random spans (T5's `random_spans_noise_mask`): as many spans that
        stay as spans that are hidden, in turn, both of random lengths. uniform: twice as many draws
        as tokens or more."""
        # Of one token T5 hides none; of none there is none to hide.
        if tokens < 2:
            return np.zeros(tokens, bool)
        hidden, spans = self.hidden(tokens)
        kept = _segments(tokens - hidden, spans, uniform[:tokens])
        lost = _segments(hidden, spans, uniform[tokens:])
        lengths = np.stack([kept, lost], axis=1).reshape(-1)
        return np.repeat(np.tile([False, True], spans), lengths)


def _segments(items: int, segments: int, uniform: np.ndarray) -> np.ndarray:
    """int [segments]: how many of the items each has, at least one, all divisions alike."""
    # A division is a choice of the items, but the first, that begin a segment.
    begins = np.argsort(uniform[: items - 1])[: segments - 1] + 1
    return np.diff(np.sort(begins), prepend=0, append=items)


def _behind_sentinels(
    text: np.ndarray, hidden: np.ndarray, sentinels: np.ndarray, eos_id: int
) -> np.ndarray:
    """The text with a sentinel in place of each hidden span, and `</s>`; nothing of no text."""
    if not text.size:
        return text
    begins = hidden & ~np.concatenate([[False], hidden[:-1]])
    shown = np.where(begins, sentinels[np.cumsum(begins) - 1], text)
    return np.append(shown[begins | ~hidden], eos_id)


def _side(texts: Sequence[np.ndarray], language_B1: np.ndarray, columns: int, pad_id: int) -> Batch:
    """The token fields [B, columns] of texts, one in a row."""
    used = np.arange(columns) < np.array([text.size for text in texts])[:, None]
    ids = np.full(used.shape, pad_id, np.int32)
    ids[used] = np.concatenate(texts)
    return one_text(ids, used, language_B1)


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

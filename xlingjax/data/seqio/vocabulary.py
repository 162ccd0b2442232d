"""Our vocabulary as SeqIO's features want it."""

from __future__ import annotations

from collections.abc import Sequence

import seqio
import tensorflow as tf
import tensorflow_text as tf_text

from xlingjax.data.vocabulary.sentencepiece import Vocabulary


class SeqioVocabulary(seqio.Vocabulary):
    """`Vocabulary` as a `seqio.Vocabulary`; `encode_tf` runs in TensorFlow, with `encode`'s ids."""

    def __init__(self, vocabulary: Vocabulary):
        # T5's sentinels are extra ids; our special pieces are in the model itself.
        super().__init__(extra_ids=0)
        self.vocabulary = vocabulary

    @property
    def bos_id(self) -> int:
        return self.vocabulary.bos_id

    @property
    def eos_id(self) -> int:
        return self.vocabulary.eos_id

    @property
    def unk_id(self) -> int:
        return self.vocabulary.unk_id

    @property
    def pad_id(self) -> int:
        return self.vocabulary.pad_id

    @property
    def _base_vocab_size(self) -> int:
        return self.vocabulary.size

    def _encode(self, s: str) -> list[int]:
        return self.vocabulary.encode(s)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.vocabulary.decode(ids)

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
        # TensorFlow Text reads SentencePiece models alone.
        if self.vocabulary.model_bytes is None:
            return self._encode_outside(s)
        # Made anew: a tokenizer resource belongs to the graph that made it.
        pieces = tf_text.SentencepieceTokenizer(self.vocabulary.model_bytes).tokenize(s)
        table = tf.constant(self.vocabulary.to_model)
        # A batch of texts gives a ragged tensor, one text a plain one.
        if isinstance(pieces, tf.RaggedTensor):
            return pieces.with_flat_values(tf.gather(table, pieces.flat_values))
        return tf.gather(table, pieces)

    def _encode_outside(self, s: tf.Tensor) -> tf.Tensor:
        """By a call from the graph into Python: only SentencePiece has a TensorFlow operation."""

        def encode(lines):
            return self.vocabulary.encode_lines([line.decode() for line in lines])

        lines = tf.reshape(s, [-1])
        flat, lengths = tf.numpy_function(encode, [lines], (tf.int32, tf.int32), stateful=False)
        # What comes out of Python has no shape of its own.
        flat = tf.ensure_shape(flat, [None])
        lengths = tf.ensure_shape(lengths, [None])
        if s.shape.rank == 0:
            return flat
        return tf.RaggedTensor.from_row_lengths(flat, lengths)

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        def decode(ids):
            return self.vocabulary.decode(ids).encode()

        return tf.numpy_function(decode, [ids], tf.string, stateful=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeqioVocabulary) and self.vocabulary == other.vocabulary

    def __hash__(self) -> int:
        return hash(self.vocabulary)

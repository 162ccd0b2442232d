"""xFNP features from text (XGLUE §4.2, §6.1): a run of words of every block is hidden, and the
decoder predicts it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xlingjax.data.rows.draws import STARTS, Draws
from xlingjax.data.rows.plan import Batch, BatchMap, Preprocessor, Rows
from xlingjax.data.rows.targets import SEQ2SEQ_FIELDS, block_rows, columns_where, preceding
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors.noise import Examples
from xlingjax.preprocessors.xlm import Masking, replacer


@dataclass(frozen=True)
class XfnpFeatures(Preprocessor):
    """Consecutive sentences of one document, of which the decoder predicts the hidden runs, one
    behind the other.

    The tokens of an example, its opening one apart, are cut into blocks of `block`; a run of `span`
    of each is hidden, wherever it fits, all places alike. Of a last block of r < `block` tokens it
    has floor(span * r / block), so that floor(span * L / block) of an example's L tokens are
    hidden. Any token may be, `</s>` between sentences too.
    random_range: of what the encoder sees of them, token by token, 80/10/10 as in `Masking`.
    packing: several examples share a row.

    Before each target the decoder reads the token that stands there in the text, at its position
    there: the model's predicting streams stand one position further, the target's own. What opens
    the text is `</s>` to the decoder.
    """

    block: int = 64
    span: int = 9
    random_range: str = "ordinary"
    packing: bool = True
    name = "xfnp"
    sides = 1
    fields = SEQ2SEQ_FIELDS + ("run_offsets",)

    def __post_init__(self):
        if not 0 < self.span < self.block:
            raise UserError(
                f"xfnp: span={self.span} must be at least 1 and below block={self.block}"
            )
        # For its errors, which are said now and not at the first batch.
        self._masking()

    def _masking(self) -> Masking:
        return Masking(self.span / self.block, random_range=self.random_range)

    def decoder_columns(self, length: int) -> int:
        """T: so many tokens are hidden in a row of one full example; where several share it, no
        more. Raises UserError for rows without room for any."""
        # Less one column: the token that opens the row is never hidden.
        targets = self.span * (length - 1) // self.block
        if not targets:
            raise UserError(
                f"xfnp: rows of {length} tokens have no room for a run of {self.span} in"
                f" {self.block}: set length to {self.block + 1} or more, or a smaller block"
            )
        return targets

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        return block_rows(records, length, packing=self.packing)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        show = replacer(self._masking(), vocabulary)
        targets = self.decoder_columns(length)

        def offsets(batch: Batch, draws: Draws) -> np.ndarray:
            """[B, L]: the place of each token in its run, -1 where it is not hidden."""
            # Blocks are counted from behind the opening token, which is never hidden.
            position = batch["position_ids"] - 1
            text = (batch["pack_ids"] > 0) & (position >= 0)
            place = position % self.block
            block_start = position - place
            tokens = Examples(batch["pack_ids"]).total(text.astype(np.int32))
            size = np.minimum(tokens - block_start, self.block)
            # In whole numbers, so that the sum over blocks is that of `decoder_columns` at most.
            run = self.span * size // self.block
            # A block has one draw, that of its first column.
            first = np.maximum(np.arange(length) - place, 0)
            uniform = np.take_along_axis(draws.uniform(STARTS, length), first, axis=1)
            starts = size - run + 1
            start = (uniform * starts).astype(np.int32)
            # A draw just below 1 may round up to the number of starts.
            start = np.minimum(start, starts - 1)
            hidden = text & (start <= place) & (place < start + run)
            return np.where(hidden, place - start, -1)

        def with_hidden_runs(batch: Batch, draws: Draws) -> Batch:
            ids = batch["input_ids"]
            position = batch["position_ids"]
            offset = offsets(batch, draws)
            hidden = offset >= 0
            # `decoder_columns` is the most there can be, so nothing is cut off here.
            columns = columns_where(hidden)[:, :targets]
            used = columns < length
            columns = np.where(used, columns, 0)

            def of_targets(x: np.ndarray, pad: int = 0) -> np.ndarray:
                return np.where(used, np.take_along_axis(x, columns, axis=1), pad)

            # Before its first word the decoder reads `</s>`, with which it also begins to write.
            before = np.where(position == 1, vocabulary.eos_id, preceding(ids))
            return {
                "input_ids": np.where(hidden, show(ids, draws), ids),
                "position_ids": position,
                "language_ids": batch["language_ids"],
                "pack_ids": batch["pack_ids"],
                "decoder_ids": of_targets(before, vocabulary.pad_id),
                # True positions in the text, of the token that is read: the predicting streams
                # stand one further (ProphetNet's pretraining).
                "decoder_position_ids": of_targets(position - 1),
                "decoder_language_ids": of_targets(batch["language_ids"]),
                "decoder_pack_ids": of_targets(batch["pack_ids"]),
                "decoder_targets": of_targets(ids),
                "decoder_weights": used.astype(np.float32),
                "run_offsets": of_targets(offset),
            }

        return with_hidden_runs

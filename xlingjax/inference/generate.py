"""What an encoder-decoder writes for each line of a text, and how likely it finds given lines.

Sources are tokenised as in training, `</s> x </s>`, and sorted into a few fixed lengths, so that a
whole file costs one compilation per length. Rows lie on the mesh's data axes; what comes back is in
the order of the lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xlingjax.data.text.given import require_list
from xlingjax.data.vocabulary.sentencepiece import Vocabulary, start_id
from xlingjax.errors import UserError
from xlingjax.inference.encode import rows_of
from xlingjax.inference.forward import compiled, place, row_multiple
from xlingjax.model.decoding import Decoding, Ids
from xlingjax.model.encoder import Encoder
from xlingjax.model.generation import generate
from xlingjax.model.masks import bidirectional
from xlingjax.model.seq2seq import Seq2Seq
from xlingjax.objectives.base import CHUNK
from xlingjax.objectives.losses import cross_entropy

LENGTHS = (16, 32, 64, 128, 256, 512)  # of a source, `</s>` twice; the last is the model's own


@dataclass(frozen=True)
class Generated:
    """ids: the tokens, the end among them where it was written; score: log_probability / tokens **
    length_penalty. Of an empty line: no tokens, and 0."""

    text: str = ""
    ids: tuple[int, ...] = ()
    log_probability: float = 0.0
    score: float = 0.0


def search_texts(
    model: Encoder,
    ids: Ids,
    decoding: Decoding,
    columns: int,
    params,
    batch,
    start,
    language,
    seed,
    numbers_B,
):
    """`Texts`. start: the id that a text begins with; numbers_B: of the lines."""
    # By the number of the line, so that what is drawn does not depend on the batch.
    fold_each = jax.vmap(jax.random.fold_in, (None, 0))
    keys_B = fold_each(jax.random.key(seed), numbers_B)
    start_B = jnp.full_like(numbers_B, start)
    language_B = jnp.full_like(numbers_B, language)
    return generate(model, params, batch, start_B, language_B, ids, decoding, columns, key=keys_B)


def _forced(model: Encoder, params, batch):
    """log-probability_B of the rows' targets."""
    # Language tokens follow the pieces in the table, and no text holds one.
    pieces = model.config.vocab_size - model.config.language_tokens
    memory_BSD = model.encode(params, batch, bidirectional)
    h_BTD = model.decode(params, batch, memory_BSD)
    g_BTD, table_VD, bias_V = model.decoder_head(params, h_BTD)
    targets_BT, weights_BT = batch["decoder_targets"], batch["decoder_weights"]
    nll_T = cross_entropy(
        g_BTD.reshape(-1, g_BTD.shape[-1]),
        table_VD,
        bias_V,
        targets_BT.reshape(-1),
        weights_BT.reshape(-1),
        vocab_size=pieces,
        chunk=CHUNK,
    ).nll_T
    return -nll_T.reshape(targets_BT.shape).sum(1)


@dataclass
class Generator:
    """An encoder-decoder that writes. tokens_per_batch: of the sources, times the beams, so that
    short lines come in larger batches; truncate: cut sources that are too long, instead of refusing
    them; seed: of drawn tokens, which depend on it and the number of their line alone. Raises
    UserError for a model without a decoder."""

    model: Encoder
    params: Any
    vocabulary: Vocabulary
    languages: Sequence[str]
    decoding: Decoding = Decoding()  # noqa: RUF009 - frozen
    mesh: Mesh | None = None
    tokens_per_batch: int = 4096
    truncate: bool = False
    seed: int = 0
    _rows: dict[int, int] = field(default_factory=dict, repr=False)
    """Of a batch of each length so far; it only grows, so that few shapes are compiled."""

    def __post_init__(self):
        c = self.model.config
        if not isinstance(self.model, Seq2Seq):
            raise UserError(
                f"model {c.name} has no decoder, it is an encoder alone: give a run that was"
                " trained with DECODER_LAYERS above 0"
            )
        self.longest_source = c.max_positions - c.position_offset

    @property
    def ids(self) -> Ids:
        """Of all that is no piece, only the end may be written."""
        v = self.vocabulary
        # Rows behind the vocabulary: tokens of languages, which begin a text and stand in none.
        beyond = range(v.size, self.model.config.vocab_size)
        banned = {*v.special_ids, *beyond}
        # The search itself puts padding behind the end.
        banned -= {v.eos_id, v.pad_id}
        return Ids(v.eos_id, v.pad_id, tuple(sorted(banned)))

    def language(self, code: str) -> int:
        """A language's id; 0 where the run names none. Raises UserError for an unknown one."""
        if not self.languages and not self.model.config.tells_languages():
            return 0
        if code not in self.languages:
            raise UserError(
                f"language {code!r} is not one of the run's: {', '.join(self.languages)}"
            )
        return list(self.languages).index(code)

    def generate(
        self,
        lines: Sequence[str | Sequence[int]],
        source: str,
        target: str,
        *,
        first: int = 1,
    ) -> list[list[Generated]]:
        """n_best texts in language `target` for each line in language `source`, the best first.

        lines: texts, or ids without those that open and close them. first: the number of the first.
        Raises UserError: an unknown language, and, unless `truncate`, a line that is too long.
        """
        # Before any line is tokenised: an unknown language costs nothing.
        from_id, to_id = self.language(source), self.language(target)
        sources = self.tokens(lines, first)
        # Filled by number, since batches are of like lengths and not in the order of the lines.
        found = [[Generated()] * self.decoding.n_best for _ in lines]
        for members, length, rows in self._batches([*map(len, sources)], self.decoding.beams):
            batch = self._sources([sources[i] for i in members], from_id, rows, length)
            numbers_B = np.zeros(rows, np.int32)
            numbers_B[: len(members)] = [first + i for i in members]
            run = compiled(
                search_texts, self.model, self.mesh, self.ids, self.decoding, self._columns(length)
            )
            batch = place(batch, self.mesh)
            texts = run(self.params, batch, self._start(to_id), to_id, self.seed, numbers_B)
            # Each once for the batch: row by row the host would wait for every line.
            of_rows = zip(*map(np.asarray, (texts.ids, texts.lengths, texts.scores)), strict=True)
            for i, row in zip(members, of_rows, strict=False):
                found[i] = [
                    # The search divides by the length, which is undone here.
                    self._generated(ids_T[:count].tolist(), float(score) * self._divisor(count))
                    for ids_T, count, score in zip(*row, strict=True)
                ]
        return found

    def score(
        self,
        lines: Sequence[str | Sequence[int]],
        references: Sequence[str | Sequence[int]],
        source: str,
        target: str,
        *,
        first: int = 1,
    ) -> list[Generated]:
        """How likely the model finds each reference, by teacher forcing, as the search says it.

        references: texts, or ids as of `Generated`. An empty line has no score. Raises UserError as
        `generate` does, for a reference that is too long, and for another number of them.
        """
        require_list(lines, "lines")
        require_list(references, "references")
        # Pairs would shift, and every score be of another line.
        if len(lines) != len(references):
            raise UserError(
                f"{len(lines)} lines but {len(references)} references: give one of each per line,"
                " in order"
            )
        from_id, to_id = self.language(source), self.language(target)
        sources = self.tokens(lines, first)
        end = self.vocabulary.eos_id
        targets = [
            [*self.vocabulary.encode(given), end] if isinstance(given, str) else [*given]
            for given in references
        ]
        for number, ids in enumerate(targets, first):
            if len(ids) > self.model.longest_target:
                raise UserError(
                    f"reference {number}: {len(ids)} tokens, and the model's position table takes"
                    f" {self.model.longest_target}: shorten it"
                )
        found = [Generated() for _ in lines]
        sizes = [
            max(len(source_ids), len(target_ids)) if source_ids else 0
            for source_ids, target_ids in zip(sources, targets, strict=True)
        ]
        run = compiled(_forced, self.model, self.mesh)
        for members, length, rows in self._batches(sizes):
            batch = self._sources([sources[i] for i in members], from_id, rows, length)
            # Rows have room for the longer side; the decoder's positions may be fewer.
            columns = min(length, self.model.longest_target)
            batch |= self._targets([targets[i] for i in members], to_id, rows, columns)
            total_B = np.asarray(run(self.params, place(batch, self.mesh)))
            for i, total in zip(members, total_B.tolist(), strict=False):
                given = references[i]
                found[i] = self._generated(
                    targets[i], total, given if isinstance(given, str) else None
                )
        return found

    def _divisor(self, tokens: int) -> float:
        return max(int(tokens), 1) ** self.decoding.length_penalty

    def _generated(self, ids: list[int], total: float, text: str | None = None) -> Generated:
        if text is None:
            text = self.vocabulary.decode([i for i in ids if i != self.vocabulary.eos_id])
        return Generated(text, tuple(ids), total, total / self._divisor(len(ids)))

    def _sources(
        self, rows_of_ids: Sequence[Sequence[int]], language: int, rows: int, length: int
    ) -> dict[str, np.ndarray]:
        batch = rows_of(rows_of_ids, language, self.vocabulary.pad_id, rows, length)
        if self.model.config.source_tokens:
            batch["input_ids"][: len(rows_of_ids), 0] = self._start(language)
        return batch

    def _start(self, language: int) -> int:
        # A language token says what to write in (XLM's decoder: `</s>`, and a language embedding).
        if self.model.config.language_tokens:
            return self.vocabulary.size + language
        return start_id(self.vocabulary)

    def tokens(self, lines: Sequence[str | Sequence[int]], first: int = 1) -> list[list[int]]:
        """As in training, `</s> pieces </s>` (XLM-R's vocabulary: `<s> pieces </s>`) of each line;
        of an empty one nothing. Raises UserError, unless `truncate`, for one that is too long;
        `first` is the number of the first."""
        require_list(lines, "lines")
        limit = self.longest_source
        found = []
        for number, line in enumerate(lines, first):
            pieces = self.vocabulary.encode(line) if isinstance(line, str) else line
            if len(pieces) + 2 > limit and not self.truncate:
                raise UserError(
                    f"line {number}: {len(pieces) + 2} tokens, and the model's position table takes"
                    f" {limit}: shorten the line, or cut such lines with --truncate"
                )
            # The end stays, since training has shown no source without one.
            ids = [self.vocabulary.bos_id, *pieces[: limit - 2], self.vocabulary.eos_id]
            found.append(ids if len(pieces) else [])
        return found

    def _targets(self, targets: Sequence[Sequence[int]], language: int, rows: int, length: int):
        """The decoder's fields, of one target per row."""
        # Shifted by one: what stands in a column is predicted from those before it.
        reads = [[self._start(language), *ids[:-1]] for ids in targets]
        before = int(self.model.config.source_tokens)
        if before:
            reads = [[self.vocabulary.eos_id, *ids] for ids in reads]
            targets = [[0, *ids] for ids in targets]
        fields = rows_of(reads, language, self.vocabulary.pad_id, rows, length + before)
        wanted = rows_of(targets, language, 0, rows, length + before)["input_ids"]
        weights = fields["pack_ids"].astype(np.float32)
        weights[:, :before] = 0
        return {
            "decoder_position_ids": fields["position_ids"],
            "decoder_language_ids": fields["language_ids"],
            "decoder_pack_ids": fields["pack_ids"],
            "decoder_ids": fields["input_ids"],
            "decoder_targets": wanted,
            "decoder_weights": weights,
        }

    def _columns(self, length: int) -> int:
        """The most tokens of a text whose source has at most `length`."""
        scale, more = self.decoding.max_length
        return max(1, min(int(scale * length) + more, self.model.longest_target))

    def _batches(
        self, sizes: Sequence[int], beams: int = 1
    ) -> Iterator[tuple[list[int], int, int]]:
        """(lines, longest first, the length of their rows, the number of rows) of each batch; lines
        of size 0 are left out."""
        lengths = [length for length in LENGTHS if length < self.longest_source]
        lengths.append(self.longest_source)
        bucket_of = np.searchsorted(lengths, sizes)
        multiple = row_multiple(self.mesh)
        # Texts of like length end at about the same column, where a batch's search stops.
        order = np.argsort(sizes, kind="stable")[::-1].tolist()
        for bucket, length in enumerate(lengths):
            members = [i for i in order if bucket_of[i] == bucket and sizes[i]]
            if not members:
                continue
            most = max(1, self.tokens_per_batch // (length * beams * multiple))
            # A power of 2, so that few lines do not wait for a full batch and shapes stay few.
            enough = 1 << (-(-len(members) // multiple) - 1).bit_length()
            rows = max(self._rows.get(length, 0), multiple * min(most, enough))
            # Kept for the next call: a smaller batch would be a shape of its own.
            self._rows[length] = rows
            for start in range(0, len(members), rows):
                yield members[start : start + rows], length, rows

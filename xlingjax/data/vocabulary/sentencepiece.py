"""The shared vocabulary: a SentencePiece model and the rule from its ids to the model's ids.

Three layouts (XLM §3.1 and its code; XLM-R; XLM-ProphetNet):
- `xlm`: `<s>` 0, `</s>` 1, `<pad>` 2, `<unk>` 3, `<special0..9>` 4-13, further ones where it was
  trained with sentinels, then pieces; MASK is `<special1>` = 5 and
  `</s>` both begins and ends a sentence. The SentencePiece model itself has these ids; `xlingjax
  vocab` writes such a model.
- `xlmr`: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, piece i of the SentencePiece model (0 unk, 1 bos,
  2 eos) -> i + 1, `<mask>` after the last piece (250001 for the XLM-R model).
- `xprophetnet`: `[PAD]` 0, `[CLS]` 1, `[SEP]` 2, `[UNK]` 3, `[MASK]` 4, `[unused0..9]` 5-14, piece
  i of the SentencePiece model (0 unk, 1 bos, 2 eos) -> i + 12.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.text.given import require_list
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

LAYOUTS = ("xlm", "xlmr", "xprophetnet")
XLM_SPECIAL_PIECES = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10)))
XLM_MASK_ID = 5
_FIRST = {
    "xlmr": ("<s>", "<pad>", "</s>", "<unk>"),
    "xprophetnet": (
        *("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
        *(f"[unused{i}]" for i in range(10)),
    ),
}
"""Names of the first ids, in place of those of the first three pieces."""
VOCABULARY_FILES = (
    "vocab.model",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
)
"""What a run's folder holds of its vocabulary, as far as it has them."""


Encoded = tuple[np.ndarray, np.ndarray]
"""(ids of all lines, one behind the other; how many each has)."""


def _written(side: Path) -> dict[str, Any]:
    """The content of our own vocab.json; other programs' files of that name have others."""
    try:
        written = parsed_json(side.read_bytes())
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return {}
    is_ours = isinstance(written, dict) and written.get("layout") in LAYOUTS
    return written if is_ours else {}


def _flat(encoded: Sequence[Sequence[int]]) -> Encoded:
    """(ids of all lines one after the other, int32; number of each line's, int32)."""
    lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
    # With its size, so that NumPy need not make the array anew as it grows.
    ids = itertools.chain.from_iterable(encoded)
    return np.fromiter(ids, np.int32, int(lengths.sum())), lengths


def start_id(vocabulary: Vocabulary) -> int:
    """What a decoder begins with where no language is said: `</s>`, or T5's padding."""
    opened_by_padding = vocabulary.bos_id == vocabulary.pad_id
    return vocabulary.pad_id if opened_by_padding else vocabulary.eos_id


class Vocabulary:
    """Text <-> model ids.

    Attributes: `size` (rows of the embedding table), `pad_id`, `bos_id` and `eos_id` (in `xlm` both
    `</s>`), `unk_id`, `mask_id`, `special_ids` (never drawn as a random replacement), `layout`,
    `sha256` (of the model and layout: equal hashes mean equal ids for every text), `model_bytes`
    (None: no SentencePiece model), `marks_ends` (of
    `begins_word`), `pair_separators` (special tokens around and between the texts of a pair:
    `</s>A</s>B</s>` and BERT's `[CLS]A[SEP]B[SEP]` have 3, XLM-R's `<s>A</s></s>B</s>` has 4).
    """

    bos_id: int
    eos_id: int
    pad_id: int
    unk_id: int
    mask_id: int
    model_bytes: bytes | None
    marks_ends = False
    pair_separators = 3

    def __init__(self, model: bytes, layout: str):
        import sentencepiece

        if layout not in LAYOUTS:
            raise UserError(
                f"unknown vocabulary layout '{layout}'; use one of {', '.join(LAYOUTS)}"
            )
        # SentencePiece takes no bytes for no model at all, and then ends the process.
        if not model:
            raise UserError("an empty file is no SentencePiece model: `xlingjax vocab` makes one")
        self.model_bytes = model
        self.layout = layout
        # With the layout: the same model gives other ids in another one.
        self.sha256 = hashlib.sha256(model + layout.encode()).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        count = self._processor.get_piece_size()
        pieces = [self._processor.id_to_piece(i) for i in range(count)]
        if layout == "xlm":
            self._take_xlm(pieces)
            return
        ids = (self._processor.unk_id(), self._processor.bos_id(), self._processor.eos_id())
        if ids != (0, 1, 2):
            raise UserError(
                f"layout '{layout}' needs a SentencePiece model with unk, bos, eos = 0, 1, 2;"
                f" it has {ids}"
            )
        first = _FIRST[layout]
        roles = {"bos": 0, "pad": 1, "eos": 2, "unk": 3, "mask": count + 1}
        self._pieces = [*first, *pieces[3:], "<mask>"]
        special: Iterable[int] = ()
        if layout == "xprophetnet":
            roles = {"pad": 0, "bos": 1, "eos": 2, "unk": 3, "mask": 4}
            self._pieces = [*first, *pieces[3:]]
            special = range(len(first))
        else:
            self.pair_separators = 4
        self._take(special, **roles)
        # The names stand in place of the three special pieces.
        self.to_model = np.arange(count, dtype=np.int32) + np.int32(len(first) - 3)
        self.to_model[:3] = self.unk_id, self.bos_id, self.eos_id

    def _take_xlm(self, pieces: list[str]) -> None:
        special = len(XLM_SPECIAL_PIECES)
        if tuple(pieces[:special]) != XLM_SPECIAL_PIECES:
            raise UserError(
                "the SentencePiece model does not begin with the pieces of layout 'xlm'; "
                "load it with layout 'xlmr' or train one with `xlingjax vocab`"
            )
        # Sentinels beyond the ten; learnt of a text they would be ordinary pieces.
        while pieces[special : special + 1] == [
            f"<special{special - 4}>"
        ] and self._processor.is_control(special):
            special += 1
        self._pieces = pieces
        pieces[XLM_MASK_ID] = "<mask>"
        self._take(range(special), bos=1, eos=1, pad=2, unk=3, mask=XLM_MASK_ID)

    def _take(self, special: Iterable[int] = (), **roles: int) -> None:
        """Attributes of `_pieces`, the ids' names, by role; special: further ids, never drawn."""
        for role, i in roles.items():
            setattr(self, f"{role}_id", i)
        self.size = len(self._pieces)
        self.to_model = np.arange(self.size, dtype=np.int32)
        self.special_ids = frozenset((*roles.values(), *special))

    @classmethod
    def load(cls, path: str | os.PathLike, layout: str | None = None) -> Vocabulary:
        """Reads a SentencePiece `.model` file (or the folder that holds `vocab.model`).

        The layout is the argument, or that of `vocab.json` beside the model, or what the model's
        first pieces show. A folder without a SentencePiece model is a `TokenizerVocabulary` where
        it has `tokenizer.json` or `vocab.txt`, a `FastBpeVocabulary` where it has `merges.txt`.
        Raises UserError when the file is missing, is no SentencePiece model, or does not fit the
        layout.
        """
        path = Path(path)
        if path.is_dir():
            if layout is None and not (path / "vocab.model").is_file():
                # tokenizer.json before merges.txt, which is often beside it and says less.
                if (path / "tokenizer.json").is_file() or (path / "vocab.txt").is_file():
                    # Here, since those modules import this one.
                    from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary

                    return TokenizerVocabulary.read(path)
                if (path / "merges.txt").is_file():
                    from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary

                    return FastBpeVocabulary.read(path)
            path = path / "vocab.model"
        try:
            model = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"cannot read the vocabulary {path}: {error.strerror}; a run's is put back from a"
                " copy, `xlingjax vocab` trains another"
            ) from None
        side = path.with_name("vocab.json")
        written = _written(side) if layout is None else {}
        # Models that `xlingjax vocab` trains have XLM's special pieces; others are XLM-R's.
        shown = "xlm" if b"<special1>" in model else "xlmr"
        layout = layout or written.get("layout", shown)
        try:
            made = cls(model, layout)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        # What SentencePiece raises for bytes that are no model, and for a piece that is not UTF-8.
        except (RuntimeError, UnicodeDecodeError):
            raise UserError(f"{path} is not a SentencePiece model") from None
        if made.sha256 != written.get("sha256", made.sha256):
            raise UserError(
                f"{path} is not the model that {side.name} beside it was written with: one of them"
                " is damaged, or of another vocabulary; put both back from a copy"
            )
        return made

    def files(self) -> dict[str, bytes]:
        """{name: content} of what `load` reads from a folder, to take it elsewhere."""
        # Only a PieceTable has none, and it has files of its own.
        assert self.model_bytes is not None
        side = json.dumps({"layout": self.layout, "sha256": self.sha256}) + "\n"
        return {"vocab.model": self.model_bytes, "vocab.json": side.encode()}

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without begin or end."""
        if not text:
            return []
        return self.to_model[self._processor.encode(text)].tolist()

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """(ids, the characters `begin:end` of `text` that each piece stands for)."""
        if not text:
            return [], []
        # This form has offsets, and has them in characters, not in bytes.
        pieces = self._processor.encode(text, out_type="immutable_proto").pieces
        ids = [int(self.to_model[piece.id]) for piece in pieces]
        spans = [(piece.begin, piece.end) for piece in pieces]
        return ids, spans

    def encode_lines(self, lines: Sequence[str], threads: int = 1) -> Encoded:
        """(ids of all lines one after the other, int32; number of pieces of each line, int32)."""
        require_list(lines, "lines")
        encoded = self._processor.encode(list(lines), num_threads=threads)
        flat, lengths = _flat(encoded)
        return self.to_model[flat], lengths

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word, tokenised as within a text; transformers' `is_split_into_words`."""
        require_list(words, "words")
        return list(map(self.encode, words))

    def normalized(self, text: str) -> str:
        """The text that its pieces stand for: characters by the model's table, spaces collapsed."""
        return self._processor.normalize(text).replace("▁", " ")

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the pieces; special ids other than `<unk>` are left out."""
        return self._processor.decode(self._from_model[self._said(ids)].tolist())

    def _said(self, ids: Iterable[int]) -> list[int]:
        """Without special ids."""
        # `<unk>` stays, so that a reader of a translation sees that something is missing.
        dropped = self.special_ids - {self.unk_id}
        return [int(i) for i in ids if int(i) not in dropped]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The name of each id, special ones included. Raises UserError for an unknown id."""
        names = []
        for i in map(int, ids):
            if not 0 <= i < self.size:
                raise UserError(f"id {i} is outside the vocabulary of {self.size} pieces")
            names.append(self._pieces[i])
        return names

    def begins_word(self) -> list[bool]:
        """Whether each id opens a word; with `marks_ends`, whether the piece after it does."""
        return [name.startswith("▁") for name in self._pieces]

    @functools.cached_property
    def _from_model(self) -> np.ndarray:
        # Ids without a piece of their own (xlmr's <pad>, <mask>) fall on unk, never asked for.
        table = np.full(self.size, self._processor.unk_id(), np.int32)
        table[self.to_model] = np.arange(len(self.to_model))
        return table

    def __eq__(self, other: object) -> bool:
        # By content: SeqIO compares vocabularies of tasks that each loaded their own.
        return isinstance(other, Vocabulary) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.layout}, {self.size} pieces, {self.sha256[:12]})"


class PieceTable(Vocabulary, abc.ABC):
    """A vocabulary without SentencePiece model. Subclasses call `_take_ids` and `_take`."""

    model_bytes = None

    def _take_ids(self, ids: dict[str, int]) -> None:
        """`_pieces`, of their ids. Raises UserError where these are not places in a table."""
        self._pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in self._pieces] != list(range(len(ids))):
            raise UserError("the ids of its vocabulary have gaps or stand twice; fetch it again")

    @abc.abstractmethod
    def files(self) -> dict[str, bytes]:
        """As `Vocabulary.files`."""

    @abc.abstractmethod
    def _encode_all(self, lines: list[str]) -> list[list[int]]:
        """The ids of each line, without special ones."""

    def encode(self, text: str) -> list[int]:
        return self._encode_all([text])[0]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        require_list(words, "words")
        return self._encode_all(list(words))

    def encode_lines(self, lines: Sequence[str], threads: int = 1) -> Encoded:
        """As `Vocabulary.encode_lines`; `threads` is not heeded."""
        return _flat(self._encode_all(list(lines)))

"""A vocabulary through the `tokenizers` library: tokenizer.json, where no SentencePiece model is.

Its folder holds `tokenizer.json` and `vocab.json`, `{"layout": "tokenizer", "special": {"bos":
"[CLS]", ...}}`. Read as well is a folder of Hugging Face's with `tokenizer.json` or older files
(`tokenizer_files`), and perhaps `tokenizer_config.json`. Ids are those of the tokenizer that
transformers opens there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from xlingjax.data.vocabulary.sentencepiece import PieceTable
from xlingjax.data.vocabulary.tokenizer_files import (
    BERT,
    CONTINUED,
    ROLES,
    UNREADABLE,
    content_of,
    pieces_of,
    read_object,
    special_of,
)
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

LAYOUT = "tokenizer"
MARKERS = {"Metaspace": "▁", "ByteLevel": "Ġ"}
"""How the pieces that open a word begin, by the step that marks them; WordPiece marks others."""


class TokenizerVocabulary(PieceTable):
    """Text <-> model ids, with the attributes and methods of `Vocabulary` but for `model_bytes`;
    `layout` is "tokenizer", a pair as the file's template has it. Special tokens written in a text
    are cut up like other words."""

    def __init__(self, content: bytes, special: dict[str, str]):
        """content: of tokenizer.json; special: the token of each role. Raises UserError when it is
        no such file, marks words in no way that is known here, or lacks a token."""
        try:
            config = parsed_json(content)
            self.marker = _marker(config)
            self.tokenizer = Tokenizer.from_str(json.dumps(_unmatched(config, special["unk"])))
        except UserError:
            raise
        except Exception as error:  # tokenizers raises nothing narrower
            raise UserError(
                f"tokenizer.json cannot be read: {str(error).splitlines()[0]}"
            ) from None
        # A file may have been saved with settings of its last use, which would cut every text.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        # Text from the web may hold "</s>": it must not become an end.
        self.tokenizer.encode_special_tokens = True
        self.content = content
        self.special = {role: special[role] for role in BERT}
        self.layout = LAYOUT
        self.pair_separators = _pair_separators(config)
        # The same file with other special tokens gives other ids.
        hashed = content + json.dumps(self.special, sort_keys=True).encode() + LAYOUT.encode()
        self.sha256 = hashlib.sha256(hashed).hexdigest()
        # Added tokens have rows of the table, too.
        found = self.tokenizer.get_vocab(with_added_tokens=True)
        ids = {piece.removeprefix("\0"): i for piece, i in found.items()}
        self._take_ids(ids)
        added = config.get("added_tokens") or ()
        for token in added:
            # The library passes over an empty one.
            if ids.get(token["content"]) != token["id"]:
                raise UserError(f"the word {token['content']!r} was added under another id")
        roles = {}
        for role, token in self.special.items():
            if token not in ids:
                raise UserError(f"tokenizer.json has no piece {token!r}, its {ROLES[role]}")
            roles[role] = ids[token]
        self._take([token["id"] for token in added if token["special"]], **roles)

    @classmethod
    def read(cls, folder: Path, pieces: str = "vocab.txt") -> TokenizerVocabulary:
        """Of our folder or Hugging Face's. pieces: the file with one on each line, where there is
        no tokenizer.json. Raises UserError."""
        try:
            ours = read_object(folder / "vocab.json")
            if ours.get("layout") == LAYOUT:
                return cls((folder / "tokenizer.json").read_bytes(), ours["special"])
            content = content_of(folder, pieces)
            return cls(content, special_of(folder, content))
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        except UNREADABLE as error:
            raise UserError(
                f"{folder}: its tokenizer cannot be read ({error}); fetch it again"
            ) from None

    def files(self) -> dict[str, bytes]:
        side = {"layout": LAYOUT, "sha256": self.sha256, "special": self.special}
        return {"tokenizer.json": self.content, "vocab.json": (json.dumps(side) + "\n").encode()}

    def normalized(self, text: str) -> str:
        normalizer = self.tokenizer.normalizer
        return normalizer.normalize_str(text) if normalizer else text

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        # The space tells a tokenizer of bytes that a word begins; to others it is nothing.
        return self._encode_all([f" {word}" for word in words])

    def _encode_all(self, lines: list[str]) -> list[list[int]]:
        # The number of threads is that of RAYON_NUM_THREADS.
        # The fast form makes no offsets, which lines do not need.
        encodings = self.tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode(self._said(ids), skip_special_tokens=False)

    def begins_word(self) -> list[bool]:
        # "[CLS]" does not go on with "##" and opens no word either.
        return [
            piece.startswith(self.marker) == (self.marker != CONTINUED)
            and i not in self.special_ids
            for i, piece in enumerate(self._pieces)
        ]


def _unmatched(config: dict[str, Any], unknown: str) -> dict[str, Any]:
    """tokenizer.json whose special pieces have names that no text has: a model may know them as
    ordinary pieces (XLM-R's Unigram, of the highest score) and would find them in a text."""
    model = config["model"]
    pieces = model.get("vocab") or ()
    added = config.get("added_tokens") or ()
    # Those of the model keep their ids; others would move up if one were gone.
    special = {one["content"] for one in added if one["special"] and one["content"] != unknown}
    special &= pieces_of(model)
    if isinstance(pieces, list):
        named = [[f"\0{piece}" if piece in special else piece, score] for piece, score in pieces]
    else:
        named = {f"\0{piece}" if piece in special else piece: i for piece, i in pieces.items()}
    return {
        **config,
        "model": {**model, "vocab": named},
        "added_tokens": [one for one in added if one["content"] not in special],
        "post_processor": None,
    }


def _marker(config: Any) -> str:
    """The mark of pieces that open a word or (WordPiece) go on in one. Raises UserError."""
    model = config["model"]
    # Old files of the library give no type, and it tells them by their fields.
    kind = model.get("type") or "nameless"
    if kind == "WordPiece" and model.get("continuing_subword_prefix") == CONTINUED:
        return CONTINUED
    steps = {*_types(config.get("pre_tokenizer")), *_types(config.get("decoder"))}
    # By its steps and not by its pieces: a text's own "Ġ" would look like a marker.
    for step, marker in MARKERS.items():
        if step in steps:
            return marker
    # What SentencePiece's models of other kinds become: the marker is put in by the normalizer.
    if MARKERS["Metaspace"] in json.dumps(config.get("normalizer"), ensure_ascii=False):
        return MARKERS["Metaspace"]
    raise UserError(
        f"tokenizer.json holds a {kind} model whose pieces do not tell where words begin"
        f" (Metaspace, ByteLevel or '{CONTINUED}' do)"
    )


def _types(step: Any) -> list[str]:
    """Of a step and those that it consists of."""
    if not step:
        return []
    inner = [*step.get("pretokenizers", ()), *step.get("decoders", ())]
    return [step["type"], *(name for one in inner for name in _types(one))]


def _pair_separators(config: Any) -> int:
    """Special tokens in a pair: RoBERTa's 4, BERT's 3 (one between), 3 where none tells."""
    step = config.get("post_processor") or {}
    for one in step.get("processors", [step]):
        if one.get("type") == "RobertaProcessing":
            return 4
        if one.get("type") == "TemplateProcessing":
            first, second = [i for i, part in enumerate(one["pair"]) if "Sequence" in part]
            # One before the first text and one behind the second, and those between.
            return 2 + second - first - 1
    return 3

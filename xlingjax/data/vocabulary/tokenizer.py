"""A vocabulary through the `tokenizers` library: what a tokenizer.json holds, and no SentencePiece
model says exactly.

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
from xlingjax.data.vocabulary.tokenizer_files import BERT, CONTINUED, ROLES, content_of, special_of
from xlingjax.errors import UserError

LAYOUT = "tokenizer"
MARKERS = {"Metaspace": "▁", "ByteLevel": "Ġ"}
"""How the pieces begin that open a word, by the step that marks words; WordPiece marks those that
go on."""


class TokenizerVocabulary(PieceTable):
    """Text <-> model ids, with the attributes and methods of `Vocabulary` but for `model_bytes`;
    `layout` is "tokenizer", a pair as the file's template has it. Special tokens written in a text
    are cut up like other words.
    """

    def __init__(self, content: bytes, special: dict[str, str]):
        """content: of tokenizer.json; special: the token of each role. Raises UserError when it is
        no such file, marks words in no way that is known here, or lacks a token."""
        try:
            told = json.loads(content)
            self._marker = _marker(told)
            self._tokenizer = Tokenizer.from_str(content.decode())
        except UserError:
            raise
        except Exception as error:  # tokenizers raises nothing narrower
            raise UserError(
                f"tokenizer.json cannot be read: {str(error).splitlines()[0]}"
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.content, self.special, self.layout = (
            content,
            {role: special[role] for role in BERT},
            LAYOUT,
        )
        self.pair_separators = _pair_separators(told)
        roles_told = json.dumps(self.special, sort_keys=True)
        self.sha256 = hashlib.sha256(content + roles_told.encode() + LAYOUT.encode()).hexdigest()
        names = self._tokenizer.get_vocab(with_added_tokens=True)
        by_id = {i: name for name, i in names.items()}
        if (gap := next((i for i in range(len(by_id)) if i not in by_id), None)) is not None:
            raise UserError(f"tokenizer.json has no piece for id {gap}; its ids must have no gaps")
        self._pieces = [by_id[i] for i in range(len(by_id))]
        roles = {role: names.get(token) for role, token in self.special.items()}
        if missing := [role for role, i in roles.items() if i is None]:
            raise UserError(
                f"tokenizer.json has no piece {self.special[missing[0]]!r}, its {ROLES[missing[0]]}"
            )
        added = self._tokenizer.get_added_tokens_decoder()
        self._take([i for i, token in added.items() if token.special], **roles)

    @classmethod
    def read(cls, folder: Path, pieces: str = "vocab.txt") -> TokenizerVocabulary:
        """Of our folder or Hugging Face's. pieces: the file with one on each line, where there is
        no tokenizer.json. Raises UserError."""
        try:
            content = content_of(folder, pieces)
            return cls(content, special_of(folder, content))
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"{folder}: its tokenizer cannot be read: {error}") from None

    def files(self) -> dict[str, bytes]:
        told = {"layout": LAYOUT, "sha256": self.sha256, "special": self.special}
        return {"tokenizer.json": self.content, "vocab.json": (json.dumps(told) + "\n").encode()}

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        # The space is what tells a tokenizer of bytes that a word begins; to the others it is
        # nothing.
        return self._encode_all([f" {word}" for word in words])

    def _encode_all(self, lines: list[str]) -> list[list[int]]:
        # How many threads is told by RAYON_NUM_THREADS.
        return [
            found.ids
            for found in self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        dropped = self.special_ids - {self.unk_id}
        return self._tokenizer.decode(
            [int(i) for i in ids if int(i) not in dropped], skip_special_tokens=False
        )

    def begins_word(self) -> list[bool]:
        ordinary = (i not in self.special_ids for i in range(self.size))
        if self._marker == CONTINUED:
            opens = [not name.startswith(CONTINUED) for name in self._pieces]
        else:
            opens = [name.startswith(self._marker) for name in self._pieces]
        return [a and b for a, b in zip(opens, ordinary, strict=True)]


def _marker(told: Any) -> str:
    """What tells the pieces that open a word, or (WordPiece) go on in one. Raises UserError where
    nothing does."""
    kind = told["model"].get("type") or "nameless"
    if kind == "WordPiece":
        if told["model"].get("continuing_subword_prefix") != CONTINUED:
            raise UserError(
                "tokenizer.json holds a WordPiece model whose pieces do not go on with"
                f" '{CONTINUED}'"
            )
        return CONTINUED
    if kind not in ("Unigram", "BPE", "nameless"):
        raise UserError(f"tokenizer.json holds a {kind} model; read are Unigram, BPE and WordPiece")
    steps = {*_types(told.get("pre_tokenizer")), *_types(told.get("decoder"))}
    if marking := [marker for step, marker in MARKERS.items() if step in steps]:
        return marking[0]
    # What SentencePiece's models of other kinds become: the marker is put in by the normalizer.
    if MARKERS["Metaspace"] in json.dumps(told.get("normalizer"), ensure_ascii=False):
        return MARKERS["Metaspace"]
    raise UserError(
        f"tokenizer.json holds a {kind} model whose pieces do not tell where words begin (Metaspace"
        " or ByteLevel do)"
    )


def _types(step: Any) -> list[str]:
    """Of a step and those that it consists of."""
    if not isinstance(step, dict):
        return []
    inner = step.get("pretokenizers") or step.get("decoders") or step.get("processors") or []
    return [step["type"], *(kind for one in inner for kind in _types(one))]


def _pair_separators(told: Any) -> int:
    """Special tokens in a pair, 3 or 4: RoBERTa has two between its texts, BERT one; 3 where no
    template tells."""
    step = told.get("post_processor")
    steps = step["processors"] if isinstance(step, dict) and step["type"] == "Sequence" else [step]
    for one in steps:
        if isinstance(one, dict) and one["type"] == "RobertaProcessing":
            return 4
        if isinstance(one, dict) and one["type"] == "TemplateProcessing":
            parts = [*one["pair"]]
            first, second = (i for i, part in enumerate(parts) if "Sequence" in part)
            return 2 + second - first - 1
    return 3

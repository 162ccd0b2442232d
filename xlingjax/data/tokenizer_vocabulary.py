"""A vocabulary that is no SentencePiece model: WordPiece (BERT, mBERT), through the `tokenizers` library.

Its folder holds `tokenizer.json` and `vocab.json`, `{"layout": "tokenizer", "special": {"bos": "[CLS]", ...}}`; a
folder of Hugging Face's with `tokenizer.json` or `vocab.txt`, and perhaps `tokenizer_config.json`, is read as well. Ids
are the tokenizer's. Words are told by `##`, which begins the pieces that go on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.vocabulary import PieceTable
from xlingjax.errors import UserError

LAYOUT = "tokenizer"
CONTINUED, PROPHETNET = "##", "prophetnet.tokenizer"
SPECIAL = {"bos": "[CLS]", "eos": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
"""BERT's special tokens by role, of a folder that names none."""
ROLES = {"bos": "cls_token", "eos": "sep_token", "pad": "pad_token", "unk": "unk_token", "mask": "mask_token"}


class TokenizerVocabulary(PieceTable):
    """Text <-> model ids, with the attributes and methods of `Vocabulary` but for `model_bytes`; `layout` is
    "tokenizer", a pair `<bos> A <eos> B <eos>`. Special tokens written in a text are cut up like other words."""

    def __init__(self, content: bytes, special: dict[str, str]):
        """content: of tokenizer.json; special: the token of each role. Raises UserError when it is no such file, no
        WordPiece model, or lacks a token."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError("a vocabulary of tokenizer.json needs pip install 'xlingjax[interop]'") from None
        try:
            kind, prefix = _kind(json.loads(content))
            if kind != "WordPiece" or prefix != CONTINUED:
                raise UserError(
                    f"tokenizer.json holds a {kind} model; give one of WordPiece with '{CONTINUED}', or "
                    "SentencePiece's .model file"
                )
            self._tokenizer = Tokenizer.from_str(content.decode())
        except UserError:
            raise
        except Exception as error:  # tokenizers raises nothing narrower
            raise UserError(f"tokenizer.json cannot be read: {str(error).splitlines()[0]}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.content, self.special, self.layout = content, {role: special[role] for role in SPECIAL}, LAYOUT
        told = json.dumps(self.special, sort_keys=True)
        self.sha256 = hashlib.sha256(content + told.encode() + LAYOUT.encode()).hexdigest()
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self._pieces = [self._tokenizer.id_to_token(i) for i in range(size)]
        if None in self._pieces:
            raise UserError(f"tokenizer.json has no piece for id {self._pieces.index(None)}; its ids must have no gaps")
        roles = {role: self._tokenizer.token_to_id(token) for role, token in self.special.items()}
        if missing := [role for role, i in roles.items() if i is None]:
            raise UserError(f"tokenizer.json has no piece {self.special[missing[0]]!r}, its {ROLES[missing[0]]}")
        self._take([i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special], **roles)

    @classmethod
    def read(cls, folder: Path, pieces: str = "vocab.txt") -> TokenizerVocabulary:
        """Of our folder or Hugging Face's. pieces: the file with one on each line, where there is no tokenizer.json.
        Raises UserError."""
        try:
            config = _object(folder / "tokenizer_config.json")
            special = {role: _text(config.get(key)) or SPECIAL[role] for role, key in ROLES.items()}
            special |= _object(folder / "vocab.json").get("special", {})
            if (folder / "tokenizer.json").is_file():
                return cls((folder / "tokenizer.json").read_bytes(), special)
            if pieces == PROPHETNET:
                config.setdefault("do_lower_case", True)  # as transformers' ProphetNetTokenizer
            lines = (folder / pieces).read_text(encoding="utf-8").split("\n")
            return cls(_wordpiece(lines[:-1] if lines[-1] == "" else lines, config, special, pieces), special)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(f"{folder}: its tokenizer cannot be read: {error}") from None

    def files(self) -> dict[str, bytes]:
        told = {"layout": LAYOUT, "sha256": self.sha256, "special": self.special}
        return {"tokenizer.json": self.content, "vocab.json": (json.dumps(told) + "\n").encode()}

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        # The space is what tells a tokenizer of bytes that a word begins; to the others it is nothing.
        return self._encode_all([f" {word}" for word in words])

    def _encode_all(self, lines: list[str]) -> list[list[int]]:
        # How many threads is told by RAYON_NUM_THREADS.
        return [found.ids for found in self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        dropped = self.special_ids - {self.unk_id}
        return self._tokenizer.decode([int(i) for i in ids if int(i) not in dropped], skip_special_tokens=False)

    def begins_word(self) -> list[bool]:
        return [not name.startswith(CONTINUED) and i not in self.special_ids for i, name in enumerate(self._pieces)]


def _kind(told: Any) -> tuple[str, str | None]:
    model = told["model"]
    return model.get("type") or "nameless", model.get("continuing_subword_prefix")


def _object(path: Path) -> dict[str, Any]:
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return told if isinstance(told, dict) else {}


def _text(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _wordpiece(pieces: list[str], config: dict[str, Any], special: dict[str, str], file: str) -> bytes:
    """tokenizer.json of BERT's vocab.txt, a piece a line, as transformers' BertTokenizer reads it."""
    if len({*pieces}) < len(pieces):
        raise UserError(f"{file} has a piece twice")
    if missing := [token for token in special.values() if token not in pieces]:
        raise UserError(f"{file} has no piece {missing[0]!r}")
    if not isinstance(config.get("do_lower_case"), bool):
        raise UserError(
            f'{file} does not say whether case is folded: put {{"do_lower_case": false}} or true into '
            "tokenizer_config.json beside it"
        )
    ids = {piece: i for i, piece in enumerate(pieces)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    told = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, **flags} for t, i in ids.items() if t in special.values()],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True,
            "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
            "strip_accents": config.get("strip_accents"), "lowercase": config["do_lower_case"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": CONTINUED, "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": special["unk"], "continuing_subword_prefix": CONTINUED,
            "max_input_chars_per_word": 100, "vocab": ids,
        },
    }  # fmt: skip
    return json.dumps(told, ensure_ascii=False).encode()

"""The byte pair codes of XLM (fastBPE): the words of Moses's tokenizer, cut by merges, their ends
marked by `</w>`.

Its folder is one of transformers' `XLMTokenizer`, whose ids these are: `vocab.json` (id by piece),
`merges.txt` (two pieces a line, the first merge first) and `tokenizer_config.json`
(`do_lowercase_and_remove_accent`). XLM's own code has two files instead, `codes*` and `vocab*`. The
ids are of layout `xlm`.

Every text is read by Moses's rules of English, as transformers' are unless it is told a language.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from xlingjax.data.vocabulary.sentencepiece import XLM_MASK_ID, XLM_SPECIAL_PIECES, PieceTable
from xlingjax.errors import UserError

END = "</w>"
LANGUAGE = "en"
TOKENIZER_CLASS = "XLMTokenizer"
NOTES = (
    "every text is cut into words by Moses's rules of English, whatever its language",
    "sentences begin with </s>, as XLM trains them; transformers' XLMTokenizer puts <s> there",
)
_GOES_ON = "@@"  # at the end of a piece that does not end its word, in the files of XLM's own code
_SPECIAL = {
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "mask_token": "<special1>",
}
_OTHERS = (".json", ".model", ".txt", ".pth")
_CACHED = 1 << 18  # words


class FastBpeVocabulary(PieceTable):
    """Text <-> model ids, with the attributes and methods of `Vocabulary`; `layout` is "xlm". A
    piece that is not in the vocabulary is `<unk>`. Special tokens written in a text are cut up like
    other words."""

    marks_ends = True

    def __init__(self, ids: dict[str, int], merges: Sequence[tuple[str, str]], lowercase: bool):
        """ids: of the pieces; merges: the first goes first; lowercase: whether capitals and accents
        are removed. Raises UserError where the ids have gaps or do not begin with those of layout
        "xlm"."""
        try:
            import sacremoses
        except ImportError:
            raise UserError(
                "XLM's byte pair codes need sacremoses: pip install 'xlingjax[interop]'"
            ) from None
        self._pieces = sorted(ids, key=ids.__getitem__)
        if gap := next((i for i, piece in enumerate(self._pieces) if ids[piece] != i), None):
            raise UserError(
                f"its vocabulary has no piece, or several, for id {gap}; fetch it again"
            )
        if tuple(self._pieces[: len(XLM_SPECIAL_PIECES)]) != XLM_SPECIAL_PIECES:
            raise UserError(
                f"its pieces do not begin with {', '.join(XLM_SPECIAL_PIECES[:5])}, ..., as those"
                " of XLM do; other byte pair codes than XLM's are not read"
            )
        made = {first + second for first, second in merges}
        longer = [
            piece
            for piece in self._pieces[len(XLM_SPECIAL_PIECES) :]
            if len(piece.removesuffix(END)) > 1
        ]
        if len(missing := [piece for piece in longer if piece not in made]) > 0.01 * len(longer):
            raise UserError(
                f"no merge makes {len(missing)} of its {len(longer)} longer pieces, {missing[0]!r}"
                " for one; fetch the merges that belong to it"
            )
        self._take(range(len(XLM_SPECIAL_PIECES)), bos=1, eos=1, pad=2, unk=3, mask=XLM_MASK_ID)
        self.layout, self.lowercase, self.notes = "xlm", lowercase, NOTES
        self._ids, self._ranks = ids, {pair: rank for rank, pair in enumerate(merges)}
        files = self.files()
        self.sha256 = hashlib.sha256(b"\0".join(files[name] for name in sorted(files))).hexdigest()
        self._punctuation = sacremoses.MosesPunctNormalizer(
            lang=LANGUAGE, pre_replace_unicode_punct=True
        )
        self._moses = sacremoses.MosesTokenizer(lang=LANGUAGE)
        self._cut = functools.lru_cache(_CACHED)(self._merged)
        self._encoded = functools.lru_cache(_CACHED)(lambda word: tuple(self.encode(word)))
        self._alone = functools.lru_cache(_CACHED)(
            lambda c: "".join(self._folded(self._plain(c).split()))
        )

    @classmethod
    def read(cls, folder: Path) -> FastBpeVocabulary:
        """Of transformers' folder, or ours, which is the same. Raises UserError."""
        try:
            told = folder / "tokenizer_config.json"
            config = json.loads(told.read_text(encoding="utf-8")) if told.is_file() else {}
            lowercase = config.get("do_lowercase_and_remove_accent", True)
            if not isinstance(lowercase, bool):
                raise UserError(
                    f"do_lowercase_and_remove_accent={lowercase!r} is neither true nor false"
                )
            for role, token in _SPECIAL.items():
                given = config.get(role, token)
                given = given.get("content") if isinstance(given, dict) else given
                if given != token:
                    raise UserError(
                        f"tokenizer_config.json has {role} {given!r}; XLM's is {token!r}"
                    )
            ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
            if not isinstance(ids, dict) or not all(isinstance(i, int) for i in ids.values()):
                raise UserError("vocab.json is no table of ids by piece")
            # Whatever stands behind the last end of a line is no merge, as in transformers.
            lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")[:-1]
            return cls(ids, _pairs(lines), lowercase)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(f"{folder}: its vocabulary cannot be read: {error}") from None

    @classmethod
    def of_xlm(cls, folder: Path, words: Sequence[str] = ()) -> FastBpeVocabulary | None:
        """Of the files of XLM's own code, `codes*` and, where no `words` are given in the order of
        their ids, `vocab*`; None where `folder` has no codes. A vocabulary without capitals is of
        lower-cased text. Raises UserError.
        """
        if not [*_named(folder, "codes")]:
            return None
        try:
            codes = _lines(_only(folder, "codes"))
            words = words or [*XLM_SPECIAL_PIECES, *_words(_lines(_only(folder, "vocab")))]
            special, pieces = words[: len(XLM_SPECIAL_PIECES)], words[len(XLM_SPECIAL_PIECES) :]
            pieces = [*special, *map(_piece, pieces)]
            lowercase = not any(c.isupper() for piece in pieces for c in piece)
            made = cls({piece: i for i, piece in enumerate(pieces)}, _pairs(codes), lowercase)
        except (OSError, UnicodeDecodeError, UserError) as error:
            raise UserError(f"{folder}: {error}") from None
        seen = (
            "no capitals: capitals and accents are removed"
            if lowercase
            else "capitals: they and accents are kept"
        )
        made.notes = (f"its vocabulary has {seen}", *made.notes)
        return made

    def files(self) -> dict[str, bytes]:
        # Their <s> is told to be </s>: so AutoTokenizer puts around a text what our models are
        # given.
        config = {
            "tokenizer_class": TOKENIZER_CLASS,
            "do_lowercase_and_remove_accent": self.lowercase,
            "bos_token": "</s>",
        }
        merges = "".join(f"{a} {b}\n" for a, b in sorted(self._ranks, key=self._ranks.__getitem__))
        vocab = {piece: i for i, piece in enumerate(self._pieces)}
        return {
            "vocab.json": (json.dumps(vocab, ensure_ascii=False) + "\n").encode(),
            "merges.txt": merges.encode(),
            "tokenizer_config.json": (json.dumps(config) + "\n").encode(),
        }

    def _encode_all(self, lines: list[str]) -> list[list[int]]:
        return [[i for word in self._words(line) for i in self._cut(word)[1]] for line in lines]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return [
            [*self._encoded(word)] for word in words
        ]  # Moses's rules take long, and words come again

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """As of `Vocabulary`. Characters that Moses's rules rewrite in their context (`''`, `",`)
        are aligned by the longest runs that stayed; a piece that stands for nothing of `text` has
        an empty span."""
        words = self._words(text)
        origins, ids, spans, at = aligned(text, "".join(words), self._alone), [], [], 0
        for pieces, of_pieces in map(self._cut, words):
            for piece in pieces:
                own = origins[at : at + len(piece.removesuffix(END))]
                at += len(own)
                spans.append((min(begin for begin, _ in own), max(end for _, end in own)))
            ids += of_pieces
        return ids, spans

    def decode(self, ids: Iterable[int]) -> str:
        """The words, as Moses cut them, with a space between them; special ids other than `<unk>`
        are left out."""
        dropped = self.special_ids - {self.unk_id}
        return (
            "".join(self.pieces(i for i in ids if int(i) not in dropped)).replace(END, " ").strip()
        )

    def begins_word(self) -> list[bool]:
        """Whether the piece after each id opens a word. `<unk>` does not tell, and is taken to end
        its word."""
        return [name.endswith(END) or i == self.unk_id for i, name in enumerate(self._pieces)]

    def _plain(self, text: str) -> str:
        """With Moses's punctuation, without characters that are not printed."""
        return "".join(
            c for c in self._punctuation.normalize(text) if unicodedata.category(c)[0] != "C"
        )

    def _words(self, text: str) -> list[str]:
        return self._folded(self._moses.tokenize(self._plain(text), escape=False))

    def _folded(self, words: Iterable[str]) -> list[str]:
        return (
            [word for word in map(_without_accents, words) if word] if self.lowercase else [*words]
        )

    def _merged(self, word: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """(the pieces of a word, their ids)."""
        pieces = [*word[:-1], word[-1] + END]
        # Each merge wherever it applies, before the next is looked for. The `tokenizers` library's
        # goes on after each single one, which is not the same: of "bc", "abc a", "a bc" it makes
        # "abca bc" of abcabc, and XLM "abc abc".
        while len(pieces) > 1:
            best = min(
                itertools.pairwise(pieces), key=lambda pair: self._ranks.get(pair, len(self._ranks))
            )
            if best not in self._ranks:
                break
            left, pieces = pieces[::-1], []
            while left:
                piece = left.pop()
                pieces.append(piece + left.pop() if left and (piece, left[-1]) == best else piece)
        return tuple(pieces), tuple(self._ids.get(piece, self.unk_id) for piece in pieces)


def aligned(text: str, made: str, alone: Callable[[str], str]) -> list[tuple[int, int]]:
    """The characters `begin:end` of `text` that each one of `made` stands for. alone: what is made
    of a character by itself."""
    sources = [(c, i) for i, original in enumerate(text) for c in alone(original)]
    given = "".join(c for c, _ in sources)
    spans = [(i, i + 1) for _, i in sources]
    if given == made:
        return spans
    found = []
    for _, i, i_end, j, j_end in difflib.SequenceMatcher(
        None, given, made, autojunk=False
    ).get_opcodes():
        if i_end - i == j_end - j:
            found += spans[i:i_end]
        elif i < i_end:
            found += [(spans[i][0], spans[i_end - 1][1])] * (j_end - j)
        else:
            here = spans[i][0] if i < len(spans) else len(text)
            found += [(here, here)] * (j_end - j)
    return found


def _without_accents(word: str) -> str:
    """In lower case, as XLM's lowercase_and_remove_accent.py does it."""
    return "".join(
        c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn"
    ).lower()


def _pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    return [(cells[0], cells[1]) for cells in map(str.split, lines) if len(cells) > 1]


def _named(folder: Path, name: str) -> Iterable[Path]:
    return (
        path
        for path in sorted(folder.glob(f"{name}*"))
        if path.is_file() and path.suffix not in _OTHERS
    )


def _only(folder: Path, name: str) -> Path:
    found = [*_named(folder, name)]
    if len(found) != 1:
        names = " and ".join(path.name for path in found) or f"no {name} file"
        raise UserError(
            f"the folder has {names}; leave the one {name} file that belongs to the checkpoint"
        )
    return found[0]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def _piece(word: str) -> str:
    """Ours for a word of theirs."""
    return (
        word.removesuffix(_GOES_ON)
        if len(word) > len(_GOES_ON) and word.endswith(_GOES_ON)
        else word + END
    )


def _words(lines: Iterable[str]) -> list[str]:
    """The words of a vocabulary, `word count` a line; XLM's code passes over the lines that are
    left out here."""
    words = dict.fromkeys(XLM_SPECIAL_PIECES)
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if "\u2028" in line or len(cells) != 2:
            continue
        if not cells[1].isdigit():
            raise UserError(f"line {number} is {line!r}, not a word and its count")
        words.setdefault(cells[0])
    return [*words][len(XLM_SPECIAL_PIECES) :]

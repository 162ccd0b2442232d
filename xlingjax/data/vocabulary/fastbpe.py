"""The byte pair codes of XLM (fastBPE): Moses's words, cut by merges, their ends marked `</w>`.

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

from xlingjax.data.text.given import require_list
from xlingjax.data.vocabulary.sentencepiece import XLM_MASK_ID, XLM_SPECIAL_PIECES, PieceTable
from xlingjax.data.vocabulary.tokenizer_files import read_object
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

END = "</w>"
LANGUAGE = "en"
TOKENIZER_CLASS = "XLMTokenizer"
_GOES_ON = "@@"  # the end of a piece that does not end its word, in the files of XLM's own code
_OTHERS = (".json", ".model", ".txt", ".pth")  # of files named like XLM's codes and vocabulary
_CACHED = 1 << 18  # words and characters whose pieces are kept: Moses's rules take long


class FastBpeVocabulary(PieceTable):
    """Text <-> model ids, with the attributes and methods of `Vocabulary`; `layout` is "xlm". A
    piece that is not in the vocabulary is `<unk>`. Special tokens in a text are ordinary words."""

    marks_ends = True

    def __init__(self, ids: dict[str, int], merges: Sequence[tuple[str, str]], lowercase: bool):
        """ids: of the pieces; merges: the first goes first; lowercase: whether capitals and accents
        are removed. Raises UserError: gaps in the ids, or a begin other than layout "xlm"."""
        # Imported here: it takes a second, and of all vocabularies this one alone needs it.
        import sacremoses

        self._take_ids(ids)
        specials = len(XLM_SPECIAL_PIECES)
        if tuple(self._pieces[:specials]) != XLM_SPECIAL_PIECES:
            raise UserError(
                f"its pieces do not begin with {', '.join(XLM_SPECIAL_PIECES[:5])}, ..., as those"
                " of XLM do; other byte pair codes than XLM's are not read"
            )
        _check_merges(self._pieces[specials:], merges)
        self._take(range(specials), bos=1, eos=1, pad=2, unk=3, mask=XLM_MASK_ID)
        self.layout = "xlm"
        self.lowercase = lowercase
        self._ids = ids
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        files = self.files()
        # Of the files as we write them: a vocabulary has one hash, whichever form it came in.
        self.sha256 = hashlib.sha256(b"\0".join(files[name] for name in sorted(files))).hexdigest()
        # Unicode punctuation first, as XLM's script tokenize.sh has it.
        self._punctuation = sacremoses.MosesPunctNormalizer(
            lang=LANGUAGE, pre_replace_unicode_punct=True
        )
        self._moses = sacremoses.MosesTokenizer(lang=LANGUAGE)
        self._cut = functools.lru_cache(_CACHED)(self._merged)
        self._encoded = functools.lru_cache(_CACHED)(self._encode_word)
        self._alone = functools.lru_cache(_CACHED)(self._rewritten)

    @classmethod
    def read(cls, folder: Path) -> FastBpeVocabulary:
        """Of transformers' folder, or ours, which is the same. Raises UserError."""
        try:
            config = read_object(folder / "tokenizer_config.json")
            # XLMTokenizer's default.
            lowercase = config.get("do_lowercase_and_remove_accent", True)
            ids = parsed_json((folder / "vocab.json").read_bytes())
            # Whatever stands behind the last end of a line is no merge, as in transformers.
            lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")[:-1]
            return cls(ids, _pairs(lines), lowercase)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise UserError(f"{folder}: its vocabulary cannot be read: {error}") from None

    @classmethod
    def of_xlm(cls, folder: Path, words: Sequence[str] = ()) -> FastBpeVocabulary | None:
        """Of the files of XLM's own code, `codes*` and, where no `words` are given in the order of
        their ids, `vocab*`; None where `folder` has no codes. A vocabulary without capitals is of
        lower-cased text. Raises UserError."""
        codes = _file(folder, "codes")
        if codes is None:
            return None
        try:
            if not words:
                # A checkpoint of XLM's holds its words in order; its files beside it need not.
                vocab = _file(folder, "vocab")
                if vocab is None:
                    raise UserError("the folder has codes and no vocab file; put it beside them")
                words = [*XLM_SPECIAL_PIECES, *_words(vocab.read_text(encoding="utf-8"))]
            specials = len(XLM_SPECIAL_PIECES)
            pieces = [*words[:specials], *map(_piece, words[specials:])]
            # Nothing in the files says whether case was folded but the pieces themselves.
            lowercase = not any(map(str.isupper, "".join(pieces)))
            ids = {piece: i for i, piece in enumerate(pieces)}
            return cls(ids, _pairs(codes.read_text(encoding="utf-8").split("\n")), lowercase)
        except (OSError, UnicodeDecodeError, UserError) as error:
            raise UserError(f"{folder}: {error}") from None

    def files(self) -> dict[str, bytes]:
        # Their <s> is said to be </s>: AutoTokenizer then puts around a text what our models read.
        config = {
            "tokenizer_class": TOKENIZER_CLASS,
            "do_lowercase_and_remove_accent": self.lowercase,
            "bos_token": "</s>",
        }
        by_rank = sorted(self._ranks, key=self._ranks.__getitem__)
        merges = "".join(f"{first} {second}\n" for first, second in by_rank)
        vocab = {piece: i for i, piece in enumerate(self._pieces)}
        return {
            "vocab.json": (json.dumps(vocab, ensure_ascii=False) + "\n").encode(),
            "merges.txt": merges.encode(),
            "tokenizer_config.json": (json.dumps(config) + "\n").encode(),
        }

    def _encode_all(self, lines: list[str]) -> list[list[int]]:
        return [[i for word in self._words(line) for i in self._cut(word)[1]] for line in lines]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        require_list(words, "words")
        return [list(self._encoded(word)) for word in words]

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(self.encode(word))

    def _rewritten(self, character: str) -> str:
        """What is made of a character by itself."""
        return "".join(self._folded(self._plain(character).split()))

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """As of `Vocabulary`. Characters that Moses's rules rewrite in their context (`''`, `",`)
        are aligned by the longest runs that stayed; a piece that stands for nothing of `text` has
        an empty span."""
        words = self._words(text)
        # Neither Moses's rules nor the removal of accents tells where a character came from.
        origins = aligned(text, "".join(words), self._alone)
        ids = []
        spans = []
        at = 0
        for word in words:
            pieces, ids_of_word = self._cut(word)
            ids += ids_of_word
            for piece in pieces:
                own = origins[at : at + len(piece.removesuffix(END))]
                at += len(own)
                begin = min(begin for begin, _ in own)
                end = max(end for _, end in own)
                spans.append((begin, end))
        return ids, spans

    def decode(self, ids: Iterable[int]) -> str:
        """The words, as Moses cut them, joined by spaces, without special ids but `<unk>`."""
        return "".join(self.pieces(self._said(ids))).replace(END, " ").strip()

    def begins_word(self) -> list[bool]:
        """Whether the piece after each id opens a word. `<unk>` is taken to end its word."""
        return [name.endswith(END) or i == self.unk_id for i, name in enumerate(self._pieces)]

    def _plain(self, text: str) -> str:
        """With Moses's punctuation, without characters that are not printed."""
        normalized = self._punctuation.normalize(text)
        return "".join(c for c in normalized if unicodedata.category(c)[0] != "C")

    def _words(self, text: str) -> list[str]:
        # XLM's pieces are of plain text, without Moses's escapes as &quot;.
        words = self._moses.tokenize(self._plain(text), escape=False)
        return self._folded(words)

    def _folded(self, words: Iterable[str]) -> list[str]:
        if not self.lowercase:
            return list(words)
        folded = map(_without_accents, words)
        # A word of accents alone is nothing without them.
        return [word for word in folded if word]

    def _merged(self, word: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """(the pieces of a word, their ids)."""
        pieces = [*word[:-1], word[-1] + END]
        # Each merge wherever it applies, before the next is looked for. The `tokenizers` library's
        # goes on after each single one, which is not the same: of "bc", "abc a", "a bc" it makes
        # "abca bc" of abcabc, and XLM "abc abc".
        no_merge = len(self._ranks)
        while len(pieces) > 1:
            pairs = itertools.pairwise(pieces)
            best = min(pairs, key=lambda pair: self._ranks.get(pair, no_merge))
            if best not in self._ranks:
                break
            unread = pieces[::-1]
            pieces = []
            while unread:
                piece = unread.pop()
                if unread and (piece, unread[-1]) == best:
                    piece += unread.pop()
                pieces.append(piece)
        ids = [self._ids.get(piece, self.unk_id) for piece in pieces]
        return tuple(pieces), tuple(ids)


def aligned(text: str, made: str, alone: Callable[[str], str]) -> list[tuple[int, int]]:
    """The characters `begin:end` of `text` behind each of `made`. alone: what one becomes alone."""
    given = ""
    spans = []
    for i, original in enumerate(text):
        characters = alone(original)
        given += characters
        spans += [(i, i + 1)] * len(characters)
    # Most text: every character became what it becomes by itself.
    if given == made:
        return spans
    found = []
    # Without autojunk, which passes over frequent characters in texts of 200 and more.
    matcher = difflib.SequenceMatcher(None, given, made, autojunk=False)
    for _, begin, end, made_begin, made_end in matcher.get_opcodes():
        count = made_end - made_begin
        if end - begin == count:
            # Equal, or as many others in their place: one for one.
            found += spans[begin:end]
            continue
        # Fewer or more: each stands for the whole run, which is empty where they were put in.
        first = spans[begin][0] if begin < len(spans) else len(text)
        last = spans[end - 1][1] if begin < end else first
        found += [(first, last)] * count
    return found


def _check_merges(pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
    """Raises UserError where the merges make other pieces than these."""
    # Single characters are there without a merge.
    longer = {piece for piece in pieces if len(piece.removesuffix(END)) > 1}
    missing = longer - {first + second for first, second in merges}
    # Released vocabularies have a few pieces that no merge makes.
    if len(missing) > 0.01 * len(longer):
        raise UserError(
            f"no merge makes {len(missing)} of its {len(longer)} longer pieces, {min(missing)!r}"
            " for one; fetch the merges that belong to it"
        )


def _without_accents(word: str) -> str:
    """In lower case, as XLM's lowercase_and_remove_accent.py does it."""
    decomposed = unicodedata.normalize("NFD", word.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn").lower()


def _pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The merges of lines `first second`, perhaps with a count behind."""
    cells = [line.split() for line in lines]
    return [(first, second) for first, second, *_ in filter(lambda cell: len(cell) > 1, cells)]


def _file(folder: Path, name: str) -> Path | None:
    """The one whose name begins so. Raises UserError for several."""
    files = [path for path in sorted(folder.glob(f"{name}*")) if path.suffix not in _OTHERS]
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise UserError(f"{folder} has {names}; leave the one that belongs to the checkpoint")
    return files[0] if files else None


def _piece(word: str) -> str:
    """Our piece for a word of XLM's, which marks those that go on where we mark those that end."""
    if len(word) > len(_GOES_ON) and word.endswith(_GOES_ON):
        return word.removesuffix(_GOES_ON)
    return word + END


def _words(text: str) -> list[str]:
    """The words of a vocabulary, `word count` a line, without lines that XLM passes over."""
    # A dict for its order: the first of equal words counts, and none that is special.
    words = dict.fromkeys(XLM_SPECIAL_PIECES)
    for line in text.split("\n"):
        cells = line.split()
        if "\u2028" not in line and len(cells) == 2:
            words.setdefault(cells[0])
    return [*words][len(XLM_SPECIAL_PIECES) :]

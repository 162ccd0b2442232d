"""What every language shares: reading the lexicon, dispatch by kind of frame, punctuation and joining."""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..concepts import concept
from ..frames import NP, Frame
from ..tokens import UPOS, Sentence, Token, join, prefixed

LEXICONS = Path(__file__).parent.parent / "lexicons"
ALL = ("de", "en", "es", "fr", "hi", "ru", "tr", "zh")


@dataclass(frozen=True)
class Entry:
    """One lexicon line: `entry["plural"]` is the cell of a column, "" where the line is shorter or the column is
    absent."""

    id: str
    cells: dict[str, str]

    def __getitem__(self, column: str) -> str:
        return self.cells.get(column, "")


def read_lexicon(path: Path) -> dict[str, list[Entry]]:
    """Read a lexicon: sections start with `@section column column …`; then one tab-separated line per concept.

    The first column is the concept id and the second is `lemma`, the citation form. `-` or nothing is an empty cell.
    A second line
    for the same id is a synonym. `#` starts a comment line. Raises ValueError naming the line when it does not parse.
    """
    found: dict[str, list[Entry]] = {}
    columns: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("@"):
            columns = line.split()[1:]
            if columns[:2] != ["id", "lemma"]:
                raise ValueError(f"{path.name}:{number}: a section's columns start with: id lemma")
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) > len(columns) or len(cells) < 2:
            raise ValueError(f"{path.name}:{number}: {len(cells)} cells for columns {columns}")
        values = {c: "" if v == "-" else v for c, v in zip(columns, cells, strict=False)}
        found.setdefault(cells[0], []).append(Entry(cells[0], values))
    return found


class Language(abc.ABC):
    """A realiser. A subclass sets the class attributes and writes one method per kind of frame, named after the kind.

    Each such method takes the frame and returns the clause's tokens in their default order, without final punctuation
    and without
    a capital at the start. It must honour `frame.negated` where `KINDS[kind].negatable` and `frame.ask` for
    `KINDS[kind].asks`.
    """

    code: str
    spaced = True  # words are separated by spaces
    full_stop, question_mark, comma = ".", "?", ","
    question_open = ""  # Spanish "¿"
    space_before_question_mark = False  # French

    def __init__(self) -> None:
        self.lexicon = read_lexicon(LEXICONS / f"{self.code}.tsv")
        self._variant = 0
        self._front = False

    # --- for callers -------------------------------------------------------------------------------------------------

    def sentence(self, frame: Frame, variant: int = 0, front: bool = False) -> Sentence:
        """Render a statement, a question (`frame.ask`) or a title.

        variant: which synonym to take where the lexicon has several lines for a concept (index modulo their number).
        front: put the time (or else the place) first, where the language allows it; ignored in questions and titles.
        """
        self._variant, self._front = variant, front and not frame.ask and frame.kind != "title"
        tokens = self._clause(frame)
        bad = [t for t in tokens if not t.text or t.upos not in UPOS]
        if bad:
            raise ValueError(f"{self.code}: {frame.kind} {frame.core()}: bad tokens {bad}")
        if frame.ask:
            mark = Token(self.question_mark, "PUNCT", glued=not self.space_before_question_mark)
            if self.question_open:
                tokens = [Token(self.question_open, "PUNCT"), replace(tokens[0], glued=True), *tokens[1:]]
            tokens = [*tokens, mark]
        elif frame.kind != "title":
            tokens = [*tokens, Token(self.full_stop, "PUNCT", glued=True)]
        first = next(i for i, t in enumerate(tokens) if t.upos != "PUNCT")
        t = tokens[first]
        tokens[first] = Token(self.capital(t.text), t.upos, t.key, t.concept, t.glued)
        return join(tokens, self.spaced)

    def lemma(self, id_: str) -> str:
        """The dictionary form of a concept."""
        return self.lexicon[id_][0]["lemma"]

    # --- for subclasses ----------------------------------------------------------------------------------------------

    def capital(self, text: str) -> str:
        return text[:1].upper() + text[1:]

    def entry(self, id_: str) -> Entry:
        """The lexicon line of a concept (of the synonym asked for)."""
        lines = self.lexicon[id_]
        return lines[self._variant % len(lines)]

    def words(self, text: str, upos: str, key: str, id_: str = "") -> list[Token]:
        """Tokens for a phrase from the lexicon.

        Words are separated by spaces; a word may carry its own tag ("on|ADP Monday|PROPN"), others get `upos`. Words
        tagged ADP,
        DET or PART get the key `key.prep`, `key.det`, `key.part` and no concept: they go with the phrase but do not
        name it.
        """
        if " " not in text and "|" not in text and text:
            return [Token(text, upos, key, id_)]
        minor = {"ADP": "prep", "DET": "det", "PART": "part"}
        found = []
        for word in text.split():
            form, _, tag = word.partition("|")
            tag = tag or upos
            if tag in minor and tag != upos:
                found.append(Token(form, tag, f"{key}.{minor[tag]}"))
            else:
                found.append(Token(form, tag, key, id_))
        return found

    def is_first(self, frame: Frame, slot: str) -> bool:
        """Whether this slot is to open the clause: the time, else the place, of a statement rendered with `front`."""
        chosen = "time" if "time" in frame else "place"
        return self._front and slot == chosen and slot in frame and not frame.ask

    def wh(self, np: NP, slot: str) -> str:
        """Which question word asks for this phrase: "who", "what", "where", "whither" (goal), "when", "how_many"."""
        if slot == "number":
            return "how_many"
        if slot in ("place", "ground", "goal", "time"):
            return {"goal": "whither", "time": "when"}.get(slot, "where")
        if np.category in ("city", "country"):
            return "where"
        return "who" if np.category in ("person", "role") else "what"

    def _clause(self, frame: Frame) -> list[Token]:
        if frame.kind == "sequence":
            first, second = frame.parts
            before = self._front
            self._front = False
            clauses = [prefixed(self._clause(first), "first"), prefixed(self._clause(second), "second")]
            self._front = before
            return self.sequence(frame, *clauses)
        method: Callable[[Frame], list[Token]] = getattr(self, frame.kind)
        return list(method(frame))

    @abc.abstractmethod
    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        """Join two rendered clauses. predicate "then": FIRST, then SECOND. "before_that": SECOND, but before that
        FIRST.

        A language whose clauses change after an adverb (German verb-second) renders the parts again in this method.
        """


def flat(*pieces: Token | Iterable[Token] | None) -> list[Token]:
    """Tokens and lists of tokens, in order; None is skipped."""
    found: list[Token] = []
    for piece in pieces:
        if isinstance(piece, Token):
            found.append(piece)
        elif piece is not None:
            found.extend(piece)
    return found


def head_category(np: NP) -> str:
    return concept(np.head).category


@cache
def language(code: str) -> Language:
    """The realiser of a language, made once: languages/<code>.py must define `class Realiser(Language)`."""
    if code not in ALL:
        raise ValueError(f"tinyworld has the languages {', '.join(ALL)}; not {code!r}")
    return importlib.import_module(f"{__package__}.{code}").Realiser()

"""Gin files as text: where they are found, what they include, what their statements bind, and what
the comments behind macros say. Nothing is bound here; `recipe.py` hands the text to gin.
"""

import ast
import difflib
import functools
import math
import os
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from gin import config_parser

import xlingjax
from xlingjax.errors import UserError
from xlingjax.runtime.numerals import is_number

MACRO = r"[A-Z][A-Z0-9_]*"
"""The name of a recipe's public knob."""
REQUIRED = "required"
BINDING, IMPORT, INCLUDE = "binding", "import", "include"


# ---- where files are -----------------------------------------------------------------------------


def gin_folder() -> Path:
    """The folder of recipes: beside the package in a clone, inside it in an installed wheel."""
    package = Path(xlingjax.__file__).parent
    inside = package / "gin"
    if inside.is_dir():
        return inside
    return package.parent / "gin"


def find_gin(name: str, roots: Sequence[Path] = (Path(),)) -> Path | None:
    """The first file of that name; gin/recipes/x.gin, recipes/x.gin, models/tiny.gin and the recipe
    x are found from anywhere. roots: folders that come before xlingjax's own."""
    # A user's own folders come first: a changed copy of a recipe hides the original.
    folders = (*roots, gin_folder().parent, gin_folder())
    candidates = [folder / name for folder in folders]
    candidates.append(gin_folder() / "recipes" / f"{name}.gin")
    for path in candidates:
        # False for a name that is too long or has a NUL, for which Path raises.
        if os.path.isfile(path):
            return path
    return None


def recipes() -> list[str]:
    """The names of the recipes that xlingjax comes with."""
    return sorted(path.stem for path in (gin_folder() / "recipes").glob("*.gin"))


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of a message on an unknown name: what was probably meant, else all there are."""
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    if known:
        return f"; there are {', '.join(sorted(known))}"
    return ""


# ---- what they include ---------------------------------------------------------------------------


class Part(NamedTuple):
    text: str
    """Its lines are numbered as in the file."""
    where: str
    of_run: bool = False
    """It came with a run or model, or such a file includes it."""

    @property
    def is_override(self) -> bool:
        return self.where.startswith("--gin.")

    def place(self, line: int) -> str:
        """Where a statement is, for messages."""
        return self.where if self.is_override else f"{self.where}, line {line}"

    def named(self, line: int, name: str) -> str:
        """Where what a statement binds is, for messages."""
        return self.where if self.is_override else f"{self.place(line)}: {name}"

    @property
    def is_ours(self) -> bool:
        return gin_folder() in Path(self.where).absolute().parents


def parts_of(files: Sequence[str]) -> Iterator[Part]:
    """The text of recipes and what they include, in the order in which gin is to read it. Raises
    UserError for a missing file, one that is no text, and what is not gin syntax."""
    for file in files:
        path = find_gin(file)
        if path is None and os.path.isdir(file):
            raise UserError(f"{file} is a folder: give a gin file")
        if path is None:
            near = nearest(Path(file).stem, recipes())
            raise UserError(f"missing file: no recipe {file!r}{near}")
        yield from _parts(path, ())


def _parts(path: Path, within: Sequence[Path]) -> Iterator[Part]:
    """The parts of one file. within: the files that include it, the outermost first."""
    # Includes are followed here: gin looks for them among Python's packages, and stops at a
    # folder of the same name there, which it takes for one.
    text = _read(path)
    # As the parser counts them, and not at every character that Unicode calls a separator.
    lines = text.split("\n")
    within = [*within, path]
    of_run = any(map(_is_of_run, within))
    done = 0
    for statement in statements(text, str(path)):
        if statement.kind != INCLUDE:
            continue
        # What stands before the include is read before it: of two bindings the later one holds.
        before = "\n" * done + "\n".join(lines[done : statement.line - 1])
        yield Part(before, str(path), of_run)
        done = statement.line
        yield from _parts(_included(statement, path, within), within)
    yield Part("\n" * done + "\n".join(lines[done:]), str(path), of_run)


def _included(statement: "Statement", path: Path, within: Sequence[Path]) -> Path:
    # A recipe and the files that it includes may be moved together.
    found = find_gin(statement.name, [path.parent, Path()])
    where = f"{path}, line {statement.line}"
    if found is None:
        raise UserError(
            f"{where}: missing file: include {statement.name!r}; name it from the folder of"
            f" {path.name}, from here, or from xlingjax's gin/"
        )
    if any(found.samefile(path) for path in within):
        raise UserError(f"{where}: include {statement.name!r} includes itself: leave it out")
    return found


def _is_of_run(path: Path) -> bool:
    """Whether it is what a training writes, or an export, beside its other files."""
    beside = ("run.json", "config.json", "checkpoints", "vocab.model")
    return path.name == "config.gin" and any((path.parent / name).exists() for name in beside)


def _read(path: Path) -> str:
    """The text of a gin file. Raises UserError for one that cannot be read, is no text or empty."""
    try:
        # Some editors write a byte order mark, which gin does not know.
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: not valid UTF-8 at byte {error.start}: give a gin file, in UTF-8"
        ) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}, line {line}: a NUL, which no text has: give a gin file, in UTF-8")
    if not text.strip():
        raise UserError(f"{path}: the file is empty: give a gin file")
    return text


# ---- statements ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    kind: str
    """`BINDING`, `IMPORT` or `INCLUDE`."""
    name: str
    """What is bound, "MACRO" or "scope/name.parameter"; the module, "a.b" of `from a import b` too;
    the file."""
    line: int
    """From 1."""
    macros: frozenset[str]
    """Those that its value reads."""
    references: frozenset[str]
    """Those in its value, "scope/name"."""

    @property
    def is_macro(self) -> bool:
        return self.kind == BINDING and "." not in self.name


class _Names(config_parser.ParserDelegate):
    """Notes names where gin would look them up."""

    def __init__(self):
        self.macros: set[str] = set()
        self.references: set[str] = set()

    def configurable_reference(self, scoped_name: str, evaluate: bool) -> Any:
        self.references.add(scoped_name)
        return scoped_name

    def macro(self, name: str) -> Any:
        self.macros.add(name)
        return name


# A recipe's files are asked for several things, one after the other.
@functools.lru_cache(maxsize=1024)
def statements(text: str, where: str) -> tuple[Statement, ...]:
    """What gin's own parser finds. Raises UserError with the line for what is not gin syntax."""
    try:
        return tuple(_statements(text))
    except tokenize.TokenError as error:
        # It is found at the end of the text.
        line = _opened(text) or error.args[1][0]
        cause = "a bracket or string that is opened there is never closed"
    except SyntaxError as error:
        line = error.lineno
        cause = str(error.msg).splitlines()[0]
        if cause.startswith("malformed node") or "Unable to parse" in cause:
            kinds = "a number, True, False, None, a string in quotes, a list, %MACRO or @name()"
            cause = f"a value is {kinds}"
        cause = re.sub(r" \(line \d+\)$", "", cause)
    # A list as the key of a dict.
    except TypeError as error:
        line, cause = 0, str(error)
    except RecursionError:
        line, cause = 0, "brackets within brackets, too many"
    # One line, of an override, needs no number.
    if line and "\n" in text:
        where = f"{where}, line {line}"
    raise UserError(f"{where}: not gin syntax: {cause}") from None


def _statements(text: str) -> Iterator[Statement]:
    kinds = {config_parser.ImportStatement: IMPORT, config_parser.IncludeStatement: INCLUDE}
    names = _Names()
    for one in config_parser.ConfigParser(text, names):
        if isinstance(one, config_parser.BindingStatement):
            kind, name = BINDING, "/".join(filter(None, (one.scope, one.selector)))
            if one.arg_name:
                name = f"{name}.{one.arg_name}"
            # gin would read it as infinite, and leave it out of what it says is bound.
            if not _is_finite(one.value):
                place = (None, one.location.line_num, None, None)
                raise SyntaxError("a number is too large", place)
        elif type(one) in kinds:
            kind = kinds[type(one)]
            name = one.module if kind == IMPORT else one.filename
        # The first line of a block; the names of the block are read already.
        else:
            continue
        line = one.location.line_num
        yield Statement(kind, name, line, frozenset(names.macros), frozenset(names.references))
        names.macros.clear()
        names.references.clear()


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _opened(text: str) -> int:
    """The line of the first bracket that is never closed; 0: there is none."""
    opened = []
    try:
        for token in tokenize.generate_tokens(_lines_of(text)):
            if token.type == tokenize.OP and token.string in "([{":
                opened.append(token.start[0])
            elif token.type == tokenize.OP and token.string in ")]}" and opened:
                opened.pop()
    except tokenize.TokenError:
        pass
    return opened[0] if opened else 0


def _lines_of(text: str) -> Any:
    lines = iter(text.splitlines(keepends=True))
    return lambda: next(lines, "")


def gin_value(text: str) -> str:
    """A value typed in a shell, as gin reads it: what is no literal, reference or macro is a string
    and gets quotes."""
    text = text.strip()
    # Shells write them in lower case, and such a value would arrive as a string.
    if text.lower() in ("true", "false"):
        return text.capitalize()
    # 1e4 serves as a whole number, too.
    if is_number(text) and "e" in text.lower() and float(text).is_integer():
        return str(int(float(text)))
    # Numbers of layers, shares, and ramps: gin would read the first number alone.
    numbers = r"[\d.]+([ ,]+[\d.]+)+"
    if re.fullmatch(rf"{numbers}|\d+:[^,]+(,\d+:[^,]+)*", text, re.ASCII):
        return repr(text)
    try:
        config_parser.ConfigParser(text, _Names()).parse_value()
    except SyntaxError:
        return repr(text)
    # A bracket or quote that is not closed: of a literal it is said where it is bound.
    except tokenize.TokenError:
        if not text.startswith(("(", "[", "{", "'", '"')):
            return repr(text)
    # What gin finds no value in for another cause is said where it is bound.
    except (ValueError, TypeError, RecursionError):
        pass
    return text


def gin_values(overrides: Sequence[str]) -> list[str]:
    """NAME=VALUE with every value as gin reads it."""
    pairs = (override.partition("=") for override in overrides)
    return [f"{name}={gin_value(value)}" for name, _, value in pairs]


# ---- macros and their comments -------------------------------------------------------------------


@dataclass(frozen=True)
class Macro:
    name: str
    value: str
    """As gin writes it, in one line, but another macro is `OTHER` and not `%OTHER`; `REQUIRED`
    where a recipe does not start without one."""
    meaning: str
    """The comment behind it and those of the indented lines below; "": none."""
    file: str
    written: str = field(default="", compare=False)
    """The value as the file has it."""


def macros_in(text: str, file: str) -> Iterator[Macro]:
    """Those that gin text sets, in its order. Raises UserError for what is not gin syntax."""
    lines = text.split("\n")
    found = statements(text, file)
    ends = [*(statement.line - 1 for statement in found[1:]), len(lines)]
    for statement, end in zip(found, ends, strict=False):
        if not statement.is_macro or not re.fullmatch(MACRO, statement.name):
            continue
        code, meaning = _code_and_comment(lines[statement.line - 1 : end])
        written = code.partition("=")[2].strip()
        # Quoted text is matched first, so that a percent sign in a pattern or a path stays.
        quoted = r"\"[^\"]*\"|'[^']*'"
        value = re.sub(rf"({quoted})|%({MACRO})\b", lambda found: found[1] or found[2], written)
        if written == "%gin.REQUIRED":
            value = REQUIRED
        yield Macro(statement.name, value, meaning, file, written)


def _code_and_comment(lines: Sequence[str]) -> tuple[str, str]:
    """(a statement in one line, the comment behind its last line and the indented ones below)."""
    lines = list(lines)
    last = 0
    comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(_lines_of("\n".join(lines) + "\n")):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            # One in the first column belongs to what follows it.
            if last and not column:
                break
            comments[row] = token.string.lstrip("#").strip()
            lines[row - 1] = lines[row - 1][:column]
        elif token.type == tokenize.NEWLINE:
            last = row
        # The head of a block, which is no statement of its own.
        elif last and token.string.strip():
            break
    statement = lines[0].strip()
    for line in filter(None, map(str.strip, lines[1:last])):
        statement += ("" if statement[-1] in "([{" else " ") + line
    # The comma behind the last entry is a habit of lists over several lines.
    if last > 1:
        statement = re.sub(r",? *([)\]}]+)$", r"\1", statement)
    # One within brackets explains its entry alone.
    return statement, " ".join(text for row, text in comments.items() if row >= last)


def macros_of(files: Sequence[str]) -> list[Macro]:
    """Those of recipes and all that they include, by the order in which they are first set. The
    last value wins; where it has no comment, the meaning is the last one written before. Raises
    UserError for a missing file.
    """
    found: dict[str, Macro] = {}
    for part in parts_of(files):
        # Of our own files what a recipe calls them: "runs/common.gin".
        for macro in macros_in(part.text, part.where.removeprefix(f"{gin_folder()}/")):
            before = found.get(macro.name)
            # A recipe that sets a macro of runs/common.gin need not explain it again.
            if before and not macro.meaning:
                macro = replace(macro, meaning=before.meaning)
            found[macro.name] = macro
    return list(found.values())


def macros_set(files: Sequence[str]) -> set[str]:
    """The names of the macros that recipes, and what they include, set. Raises UserError as
    `parts_of`."""
    return {macro.name for macro in macros_of(files)}


_OBJECTIVES = re.compile(r"^train\.objectives\s*=\s*(\[.*?\])", re.MULTILINE | re.DOTALL)


def set_anew(files: Sequence[str], overrides: Sequence[str]) -> str:
    """One line for each file that changes what the recipes named before it had set, "": none does:
    `objectives/tlm.gin` behind a recipe brings its own `MAX_PIECES`, and ends its other objectives.
    overrides: "NAME=VALUE", which come last of all. Raises UserError for a missing file."""
    overridden = {override.partition("=")[0] for override in overrides}
    lines = []
    before: dict[str, str] = {}
    for file in files:
        own = {macro.name: macro.written for macro in macros_of([file])}
        for part in parts_of([file]):
            for value in _OBJECTIVES.findall(part.text):
                own["train.objectives"] = value
        changed = [
            f"{name}={value} (was {before[name]})"
            for name, value in own.items()
            if name in before
            and name not in overridden
            and "%gin.REQUIRED" not in (value, before[name])
            and _literal(value) != _literal(before[name])
        ]
        if changed:
            lines.append(f"note: {file} sets {', '.join(changed)}")
        before |= own
    return "\n".join(lines)


def _literal(written: str) -> Any:
    """A literal, however it is written; of what is none, like %BATCH, the text."""
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return written

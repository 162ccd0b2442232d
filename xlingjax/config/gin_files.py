"""Gin files as text: where they are found, what they include, what their statements bind, and what
the comments behind macros say. Nothing is bound here; `recipe.py` hands the text to gin."""

import functools
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gin import config_parser

import xlingjax
from xlingjax.config.durations import TOKENS
from xlingjax.errors import UserError, did_you_mean
from xlingjax.runtime.numerals import is_number

MACRO = r"[A-Z][A-Z0-9_]*"  # the name of a recipe's public knob
REQUIRED = "required"
BINDING, IMPORT, INCLUDE = "binding", "import", "include"


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


class Part(NamedTuple):
    text: str  # its lines are numbered as in the file
    where: str
    of_run: bool = False  # it came with a run or model, or such a file includes it

    @property
    def is_override(self) -> bool:
        return self.where.startswith("--gin.")

    @property
    def is_ours(self) -> bool:
        return gin_folder() in Path(self.where).absolute().parents

    def place(self, line: int) -> str:
        """Where a statement is, for messages."""
        return self.where if self.is_override else f"{self.where}, line {line}"


def parts_of(files: Sequence[str]) -> Iterator[Part]:
    """The text of recipes and what they include, in the order in which gin is to read it. Raises
    UserError for a missing file, one that is no text, and what is not gin syntax."""
    for file in files:
        path = find_gin(file)
        if path is None:
            near = did_you_mean(Path(file).stem, recipes())
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
    # What a training or an export writes, whatever lies beside it.
    of_run = any(one.name == "config.gin" for one in within)
    done = 0
    for statement in statements(Part(text, str(path))):
        if statement.kind != INCLUDE:
            continue
        # What stands before the include is read before it: of two bindings the later one holds.
        before = "\n" * done + "\n".join(lines[done : statement.line - 1])
        yield Part(before, str(path), of_run)
        done = statement.line
        # A recipe and the files that it includes may be moved together.
        found = find_gin(statement.name, [path.parent, Path()])
        where = f"{path}, line {statement.line}"
        if found is None:
            raise UserError(f"{where}: missing file: include {statement.name!r}")
        if any(found.samefile(one) for one in within):
            raise UserError(f"{where}: include {statement.name!r} includes itself: leave it out")
        yield from _parts(found, within)
    yield Part("\n" * done + "\n".join(lines[done:]), str(path), of_run)


def _read(path: Path) -> str:
    """The text of a gin file. Raises UserError for one that is no text."""
    content = path.read_bytes()
    try:
        # Some editors write a byte order mark, which gin does not know.
        text = content.decode("utf-8-sig")
        at = text.find("\0")
    except UnicodeDecodeError as error:
        text, at = "", error.start
    if at >= 0 or not content.strip():
        line = content.count(b"\n", 0, max(at, 0)) + 1
        raise UserError(f"{path}, line {line}: no text in UTF-8: give a gin file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class Statement:
    kind: str  # `BINDING`, `IMPORT` or `INCLUDE`
    name: str  # what is bound ("MACRO", "scope/name.parameter"), the module or the file
    line: int  # from 1
    macros: frozenset[str]  # those that its value reads
    references: frozenset[str]  # those in its value, "scope/name"
    words: frozenset[str]  # of the strings in its value
    part: Part

    @property
    def is_macro(self) -> bool:
        return self.kind == BINDING and "." not in self.name

    @property
    def where(self) -> str:
        return self.part.place(self.line)


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
def statements(part: Part) -> tuple[Statement, ...]:
    """What gin's own parser finds. Raises UserError with the line for what is not gin syntax."""
    try:
        return tuple(_statements(part))
    except tokenize.TokenError as error:
        # It is found at the end of the text.
        line, cause = error.args[1][0], "a bracket or string is never closed"
    except SyntaxError as error:
        line, cause = error.lineno or 0, str(error.msg).splitlines()[0]
        if cause.startswith("malformed node") or "Unable to parse" in cause:
            cause = "a value is a number, True, False, None, a string in quotes, a list or %MACRO"
        cause = re.sub(r" \(line \d+\)$", "", cause)
    # A list as the key of a dict; brackets within brackets, too many.
    except (TypeError, RecursionError) as error:
        line, cause = 0, str(error)
    # One line, of an override, needs no number.
    where = part.place(line) if line else part.where
    raise UserError(f"{where}: not gin syntax: {cause}") from None


def _statements(part: Part) -> Iterator[Statement]:
    names = _Names()
    value: Any = None
    for one in config_parser.ConfigParser(part.text, names):
        if isinstance(one, config_parser.BindingStatement):
            kind, name = BINDING, "/".join(filter(None, (one.scope, one.selector)))
            if one.arg_name:
                name = f"{name}.{one.arg_name}"
            value = one.value
        elif isinstance(one, config_parser.ImportStatement):
            kind, name = IMPORT, one.module
        elif isinstance(one, config_parser.IncludeStatement):
            kind, name = INCLUDE, one.filename
        # The first line of a block; the names of the block are read already.
        else:
            continue
        called = {*names.references, name.rpartition(".")[0]}
        if any(re.fullmatch(r"(.*/)?(gin\.)?macro", one_called) for one_called in called):
            cause = "a macro is set by NAME = VALUE and read by %NAME"
            raise SyntaxError(cause, ("", one.location.line_num, 0, ""))
        macros, references = frozenset(names.macros), frozenset(names.references)
        words = frozenset(words_in(value)) if kind == BINDING else frozenset()
        yield Statement(kind, name, one.location.line_num, macros, references, words, part)
        names.macros.clear()
        names.references.clear()


def words_in(value: Any) -> Iterator[str]:
    """Those of all strings in a value, in it collections and tables."""
    if isinstance(value, str):
        yield from value.replace(",", " ").split()
    elif isinstance(value, Mapping):
        yield from words_in([*value, *value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from words_in(one)


def statements_of(parts: Iterable[Part]) -> list[Statement]:
    return [statement for part in parts for statement in statements(part)]


def gin_value(text: str) -> str:
    """A value typed in a shell, for gin: what is no literal, reference or macro gets quotes."""
    text = text.strip()
    # Shells write them in lower case, and such a value would arrive as a string.
    if text.lower() in ("true", "false"):
        return text.capitalize()
    # 1e4 serves as a whole number, too.
    if is_number(text) and "e" in text.lower() and float(text).is_integer():
        return str(int(float(text)))
    # Numbers of layers, shares, ramps, durations: gin would read the first number alone.
    numbers = r"[\d.]+([ ,]+[\d.]+)+"
    ramp = r"\d+:[^,]+(,\d+:[^,]+)*"
    if re.fullmatch(rf"{numbers}|{ramp}|{TOKENS.pattern}", text, re.ASCII):
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


@dataclass(frozen=True)
class Macro:
    name: str
    value: str
    """As gin writes it, in one line, macros as `OTHER`; `REQUIRED` where a recipe needs one."""
    meaning: str
    """The comment behind it and those of the indented lines below; "": none."""
    file: str


def macros_in(text: str, file: str) -> Iterator[Macro]:
    """Those that gin text sets, in its order. Raises UserError for what is not gin syntax."""
    lines = text.split("\n")
    for statement in statements(Part(text, file)):
        if not statement.is_macro or not re.fullmatch(MACRO, statement.name):
            continue
        code, meaning = _code_and_comment(lines[statement.line - 1 :])
        # Quoted text is matched first, so that a percent sign in a pattern or a path stays.
        quoted = r"\"[^\"]*\"|'[^']*'"
        value = code.partition("=")[2].strip()
        value = re.sub(rf"({quoted})|%({MACRO})\b", lambda found: found[1] or found[2], value)
        if value == "%gin.REQUIRED":
            value = REQUIRED
        yield Macro(statement.name, value, meaning, file)


def _code_and_comment(lines: Sequence[str]) -> tuple[str, str]:
    """(the statement of these lines, in one; the comment behind its end and on lines below)."""
    code = ""
    notes: list[str] = []
    for line in lines:
        # What is not indented is the next one, or its comment, but for a closing bracket.
        if code and (not line or line[0] not in " \t)]}"):
            break
        found = re.match(r"((?:\"[^\"]*\"|'[^']*'|[^#\"'])*)(?:#(.*))?", line)
        before, note = found[1].strip(), found[2]
        if before:
            code += ("" if not code or code[-1] in "([{" else " ") + before
            # One within brackets explains its entry alone.
            notes = []
        if note:
            notes.append(note.strip())
    # The comma behind the last entry is a habit of lists over several lines.
    return re.sub(r",? +([)\]}]+)$", r"\1", code), " ".join(notes)


def macros_of(files: Sequence[str]) -> list[Macro]:
    """Those of recipes and all that they include, by the order in which they are first set. The
    last value wins; where it has no comment, the meaning is the last one written before. Raises
    UserError for a missing file."""
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
    """The macros that recipes, and what they include, set. Raises UserError as `parts_of`."""
    return {macro.name for macro in macros_of(files)}

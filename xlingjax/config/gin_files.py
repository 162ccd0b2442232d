"""Gin files as text: where they are found, what they include, which macros they set.

Nothing is bound here; `recipe.py` hands the text to gin.
"""

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import xlingjax
from xlingjax.config.statements import BINDING, IMPORT, INCLUDE, Statement, statements
from xlingjax.errors import UserError

MACRO = r"[A-Z][A-Z0-9_]*"
"""The name of a recipe's public knob."""


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
    # A user's own folders come first: a copy of a
    # recipe, changed, hides the one it was copied from.
    folders = (*roots, gin_folder().parent, gin_folder())
    candidates = [folder / name for folder in folders]
    candidates.append(gin_folder() / "recipes" / f"{name}.gin")
    for path in candidates:
        # False of a name that is too long, or has a NUL, for which Path raises.
        if os.path.isfile(path):
            return path
    return None


def recipes() -> list[str]:
    """The names of the recipes that xlingjax comes with."""
    return sorted(path.stem for path in (gin_folder() / "recipes").glob("*.gin"))


def parts_of(files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(gin text, where it stands) of recipes and what they include, as they are to be read. Raises
    UserError for a missing file, one that is no text, and what is not gin syntax."""
    for part in parts_with_origin(files):
        yield part.text, part.where


class Part(NamedTuple):
    text: str
    where: str
    of_run: bool
    """It came with a run or model, or such a file includes it."""


def parts_with_origin(files: Sequence[str]) -> Iterator[Part]:
    """As `parts_of`."""
    for file in files:
        path = find_gin(file)
        if path is None:
            raise UserError(_missing(file))
        yield from _parts(path, ())


def _is_of_run(path: Path) -> bool:
    """Whether it is what a training writes, or an export, beside its other files."""
    beside = ("run.json", "config.json", "checkpoints", "vocab.model")
    return path.name == "config.gin" and any((path.parent / name).exists() for name in beside)


def _missing(file: str) -> str:
    if os.path.isdir(file):
        return f"{file} is a folder: give a gin file"
    near = nearest(Path(file).stem, recipes())
    return f"missing file: no recipe {file!r}{near}"


def read_gin(path: Path) -> str:
    """The text of a gin file. Raises UserError for one that cannot be read, is no text or empty."""
    try:
        # Some editors write a byte order mark, which is none of gin.
        text = path.read_bytes().decode("utf-8-sig")
        # Of other systems.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: not valid UTF-8 at byte {error.start}: give a gin file, in UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}, line {line}: a NUL, which no text has: give a gin file, in UTF-8")
    if not text.strip():
        raise UserError(f"{path}: the file is empty: give a gin file")
    return text


def _parts(path: Path, within: Sequence[Path]) -> Iterator[Part]:
    """The parts of one file. within: the files that include it, the outermost first."""
    # Includes are followed here: gin looks for them among Python's packages, and stops at a
    # folder of the same name there, which it takes for one.
    text = read_gin(path)
    # As the parser counts them, and not at every character that Unicode calls a separator.
    lines = text.split("\n")
    within = [*within, path]
    of_run = any(map(_is_of_run, within))
    done = 0
    for statement in statements(text, str(path)):
        if statement.kind != INCLUDE:
            continue
        number = statement.line
        yield Part(_on_own_lines(lines, done, number - 1), str(path), of_run)
        # What stood before the include is read before it: of two bindings the later one holds.
        done = number
        yield from _parts(_included(statement, path, within), within)
    yield Part(_on_own_lines(lines, done, len(lines)), str(path), of_run)


def _included(statement: Statement, path: Path, within: Sequence[Path]) -> Path:
    """The file that a statement of `path` includes. Raises UserError where it is not there, and
    where it is one of those that include it."""
    where = f"{path}, line {statement.line}"
    name = statement.name
    # A recipe and the files that it includes may be moved together.
    found = find_gin(name, [path.parent, Path()])
    if found is None:
        raise UserError(
            f"{where}: missing file: include {name!r}; name it from the folder of {path.name},"
            " from here, or from xlingjax's gin/"
        )
    if any(found.samefile(path) for path in within):
        raise UserError(f"{where}: include {name!r} includes itself: leave it out")
    return found


def _on_own_lines(lines: Sequence[str], begin: int, end: int) -> str:
    """Lines `begin` to `end`, numbered in the text as they are in the file."""
    return "\n" * begin + "\n".join(lines[begin:end])


def macros_set(files: Sequence[str]) -> set[str]:
    """The macros that recipes, and what they include, set. Raises UserError as `parts_of`."""
    return {name for text, _ in parts_of(files) for name in _set_in(text, MACRO)}


def _set_in(text: str, name: str) -> list[str]:
    return re.findall(rf"^({name})\s*=", text, re.MULTILINE)


def require_read_macros(texts: Sequence[tuple[str, str]]) -> None:
    """texts: as of `parts_of`. Raises UserError for a macro of a user's file that nothing of this
    recipe reads, which would be ignored in silence."""
    known = _known_macros(texts)
    for text, where in texts:
        for statement in statements(text, where):
            # Lower case too: `batch = 8` is how a macro is mistyped, and gin takes it without a
            # word.
            if statement.is_macro and statement.name not in known:
                near = nearest(statement.name.upper(), sorted(known))
                raise UserError(
                    f"{where}, line {statement.line}: this recipe has no macro"
                    f" {statement.name}{near}"
                )


def _known_macros(texts: Sequence[tuple[str, str]]) -> set[str]:
    """The macros that xlingjax's own files set, and those that any file reads."""
    known: set[str] = set()
    for text, where in texts:
        # A knob of ours that this recipe happens not to read is no slip of the user.
        ours = gin_folder() in Path(where).absolute().parents
        for statement in statements(text, where):
            if ours and statement.is_macro:
                known.add(statement.name)
            # A constant of a module, %module.NAME, is none.
            known.update(name for name in statement.macros if "." not in name)
    return known


def require_known_scopes(parts: Sequence[Part], overrides: Sequence[str]) -> None:
    """Raises UserError for a binding of a user's file in a scope that no reference opens, which
    would be ignored in silence."""
    known: set[str] = set()
    bound = []
    for override in overrides:
        known.update(re.findall(r"(\w+)/", override.partition("=")[2]))
    for part in parts:
        ours = gin_folder() in Path(part.where).absolute().parents
        for one in statements(part.text, part.where):
            # A module may open scopes of its own.
            if one.kind == IMPORT:
                return
            for reference in one.references:
                known.update(reference.split("/")[:-1])
            if one.kind != BINDING or one.is_macro:
                continue
            *scopes, _ = one.name.split("/")
            if ours:
                known.update(scopes)
            else:
                bound.append((part.where, one, scopes))
    for where, one, scopes in bound:
        for scope in scopes:
            if scope not in known:
                raise UserError(
                    f"{where}, line {one.line}: {one.name}: nothing is read in scope"
                    f" {scope!r}{nearest(scope, sorted(known))}"
                )


def places_of(texts: Sequence[tuple[str, str]], overrides: Sequence[str]) -> dict[str, str]:
    """{name that is bound: where, at last}. texts: as of `parts_of`."""
    places = {}
    for text, where in texts:
        for one in statements(text, where):
            # Later lines overwrite earlier ones, as in gin: the one at fault is the one that holds.
            if one.kind == BINDING:
                places[one.name] = f"{where}, line {one.line}: {one.name}"
    for override in overrides:
        key = override.partition("=")[0]
        places[key] = f"--gin.{key}"
    return places


def required_comment(macro: str, files: Sequence[str]) -> str:
    """What the recipes, or the files they include, write behind `MACRO = %gin.REQUIRED`."""
    # The user's recipe explains its own macros, before any file of ours that has the same name.
    given = [path for file in files if (path := find_gin(file))]
    written = re.compile(rf"^{macro}\s*=\s*%gin\.REQUIRED\s*#\s*(.+)$", re.MULTILINE)
    for path in (*given, *sorted(gin_folder().rglob("*.gin"))):
        if found := written.search(read_gin(path)):
            return f" ({found[1].strip()})"
    return ""


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of a message on an unknown name: what was probably meant, else all there are."""
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    if known:
        return f"; there are {', '.join(sorted(known))}"
    return ""

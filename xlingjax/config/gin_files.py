"""Gin files as text: where they are found, what they include, which macros they set.

Nothing is bound here; `recipe.py` hands the text to gin.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import xlingjax
from xlingjax.errors import UserError

MACRO = r"[A-Z][A-Z0-9_]*"
"""The name of a recipe's public knob."""
_LOWER_MACRO = r"[a-z]\w*"


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
        if path.is_file():
            return path
    return None


def recipes() -> list[str]:
    """The names of the recipes that xlingjax comes with."""
    return sorted(
        path.stem for path in (gin_folder() / "recipes").glob("*.gin")
    )


def parts_of(files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(gin text, where it stands) of recipes and what they include, as they are to be read. Raises
    UserError for a missing file."""
    for file in files:
        path = find_gin(file)
        if path is None:
            near = nearest(Path(file).stem, recipes())
            raise UserError(f"missing file: no recipe {file!r}{near}")
        yield from _parts(path)


def _parts(path: Path) -> Iterator[tuple[str, str]]:
    """The parts of one file."""
    # Includes are followed here: gin looks for them among Python's packages, and stops at a
    # folder of the same name there, which it takes for one.
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not valid UTF-8 at byte {error.start}: give a gin file, in UTF-8",
        ) from None
    done = 0
    for number, line in enumerate(lines):
        included = re.match(r"""include\s+["'](.+)["']""", line)
        if not included:
            continue
        yield _on_own_lines(lines, done, number), str(path)
        # What stood before the include is read before it: of two bindings the later one holds.
        done = number + 1
        # A recipe and the files that it includes may be moved together.
        found = find_gin(included[1], [path.parent, Path()])
        if found is None:
            raise UserError(
                f"{path}, line {done}: missing file: include {included[1]!r}; name it from"
                f" the folder of {path.name}, from here, or from xlingjax's gin/",
            )
        yield from _parts(found)
    yield _on_own_lines(lines, done, len(lines)), str(path)


def _on_own_lines(lines: Sequence[str], begin: int, end: int) -> str:
    """Lines `begin` to `end`, numbered in the text as they are in the file."""
    return "\n" * begin + "\n".join(lines[begin:end])


def macros_set(files: Sequence[str]) -> set[str]:
    """The macros that recipes, and what they include, set. Raises UserError as `parts_of`."""
    return {
        name for text, _ in parts_of(files) for name in _set_in(text, MACRO)
    }


def _set_in(text: str, name: str) -> list[str]:
    return re.findall(rf"^({name})\s*=", text, re.MULTILINE)


def require_read_macros(texts: Sequence[tuple[str, str]]) -> None:
    """texts: as of `parts_of`. Raises UserError for a macro of a user's file that nothing of this
    recipe reads, which would be ignored in silence."""
    known = _known_macros(texts)
    for text, where in texts:
        # Lower case too: `batch = 8` is how a macro is mistyped, and gin takes it without a word.
        names = _set_in(text, MACRO) + _set_in(text, _LOWER_MACRO)
        strange = [name for name in names if name not in known]
        if strange:
            line = _line_that_sets(strange[0], text)
            near = nearest(strange[0].upper(), sorted(known))
            raise UserError(
                f"{where}, line {line}: this recipe has no macro {strange[0]}{near}",
            )


def _known_macros(texts: Sequence[tuple[str, str]]) -> set[str]:
    """The macros that xlingjax's own files set, and those that any file reads."""
    known: set[str] = set()
    for text, where in texts:
        # A knob of ours that this recipe happens not to read is no slip of the user.
        if gin_folder() in Path(where).absolute().parents:
            known.update(_set_in(text, MACRO))
        known.update(re.findall(rf"%({MACRO})\b", text))
        # A constant of a module, %module.NAME, is none.
        known.update(re.findall(rf"%({_LOWER_MACRO})\b(?!\.)", text))
    return known


def _line_that_sets(name: str, text: str) -> int:
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"{name}\s*=", line):
            return number
    raise AssertionError(name)


def places_of(
    texts: Sequence[tuple[str, str]],
    overrides: Sequence[str],
) -> dict[str, str]:
    """{name that is bound: where, at last}. texts: as of `parts_of`."""
    places = {}
    for text, where in texts:
        for number, line in enumerate(text.splitlines(), 1):
            # Later lines overwrite earlier ones, as in gin: the one at fault is the one that holds.
            if bound := re.match(r"([\w./]+)\s*=", line):
                places[bound[1]] = f"{where}, line {number}: {bound[1]}"
    for override in overrides:
        key = override.partition("=")[0]
        places[key] = f"--gin.{key}"
    return places


def required_comment(macro: str, files: Sequence[str]) -> str:
    """What the recipes, or the files they include, write behind `MACRO = %gin.REQUIRED`."""
    # The user's recipe explains its own macros, before any file of ours that has the same name.
    given = [path for file in files if (path := find_gin(file))]
    written = re.compile(
        rf"^{macro}\s*=\s*%gin\.REQUIRED\s*#\s*(.+)$",
        re.MULTILINE,
    )
    for path in (*given, *sorted(gin_folder().rglob("*.gin"))):
        if found := written.search(path.read_text(encoding="utf-8")):
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

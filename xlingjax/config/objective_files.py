"""What the gin files of objectives make: gin/objectives/NAME.gin."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from xlingjax.config.gin_files import gin_folder, macros_set, parts_of
from xlingjax.config.recipe import build, parse_gin
from xlingjax.training.feed import ObjectiveRun, in_stages

_MADE = re.compile(r"^train\.objectives\s*=\s*\[(.*?)\]", re.MULTILINE | re.DOTALL)
_READ = re.compile(r"%([A-Z][A-Z0-9_]*)\b")


def objective_files(recipe: str) -> dict[str, Path]:
    """{name: file} of those that can stand behind a recipe: they bind the objectives that they
    make, and the macros that they read have values there or in the recipe. Of a name that stands
    in several places the first, in the order of `find_gin`. Looks at the text alone, since gin
    takes long to read so many."""
    files: dict[str, Path] = {}
    given = macros_set([recipe])
    # A file beside the user comes first, so that an objective of ours can be replaced.
    for root in (Path(), gin_folder().parent, gin_folder()):
        for path in sorted((root / "objectives").glob("*.gin")):
            if path.stem not in files and _stands_behind(path, given):
                files[path.stem] = path
    return files


def _stands_behind(path: Path, given: Set[str]) -> bool:
    text = "\n".join(part.text for part in parts_of([str(path)]))
    made = objectives_in(path)
    # An objective that the file makes and does not bind takes its settings from some other file.
    bound = [name for name in made if re.search(rf"^{name}\.", text, re.MULTILINE)]
    lacking = {*_READ.findall(text)} - macros_set([str(path)]) - given
    asks = "%gin.REQUIRED" in text
    return bool(made) and bound == made and not lacking and not asks


def objectives_in(file: Path) -> list[str]:
    """The gin names of the objectives that a file makes, in the order of their turns."""
    made = ""
    for part in parts_of([str(file)]):
        for found in _MADE.finditer(part.text):
            # As gin reads it: what is bound last holds.
            made = found[1]
    return re.findall(r"@(\w+)\(\)", made)


def built_objectives(
    names: Iterable[str], files: Sequence[str], overrides: Sequence[str]
) -> Mapping[str, ObjectiveRun]:
    """{gin name: objective}, bound as recipes and overrides say; of one in stages the first. Opens
    no data. Raises UserError as `parse_gin` and `build`."""
    parse_gin(files, overrides)
    built = {}
    for name in names:
        # What is asked of it (fields, names, parts of the model) is the same in all stages.
        stages = in_stages(build(name))
        built[name] = stages[min(stages)]
    return built

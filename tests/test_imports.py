"""Imports flow one way, and each heavy package has its own folder."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import small_corpus

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "xlingjax"

# From the top down; a file imports only from its own row and those below. "" is the package's own
# __init__.
LEVELS = [
    {"cli"},
    {"workflows"},
    {"config"},
    {"convert"},
    {"report"},
    {"evaluation"},
    {"inference"},
    {"training"},
    {"objectives"},
    {"preprocessors", "model", "tasks"},
    {"data", "demo"},
    {"runtime"},
    {"errors", ""},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# The package's public names come from everywhere, when they are asked for; `python -m xlingjax` is
# the command line.
PLACES = {"__init__.py": "cli", "__main__.py": "cli"}
FORBIDDEN = [
    ("data", "model"),
    ("preprocessors", "model"),
    ("model", "objectives"),
    ("data", "tasks"),
]
# Package -> the files that may import it, by what their paths begin with.
OF_SEQIO = ("xlingjax/data/seqio/", "tasks/", "xlingjax/cli/doctor.py")
HOMES = {
    "flax": ("xlingjax/model/", "xlingjax/cli/doctor.py"),
    "gin": ("xlingjax/config/", "xlingjax/cli/doctor.py"),
    "grain": ("xlingjax/data/batches/",),
    "seqio": OF_SEQIO,
    "tensorflow": OF_SEQIO,
}


def files():
    own = [path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts]
    return own + list((ROOT / "tasks").glob("*.py"))


def part(path):
    """The top-level part of the package a file belongs to: "model", "train", "tasks", ""."""
    if path.parent == ROOT / "tasks":
        return "tasks"
    first = path.relative_to(PACKAGE).parts[0]
    return PLACES.get(first, first.removesuffix(".py"))


def imports(path):
    """(line, dotted name) of every import in the file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = [node.module] if node.module else []
            if node.level:
                module = [*path.relative_to(ROOT).parts[: -node.level], *module]
            yield from ((node.lineno, ".".join([*module, alias.name])) for alias in node.names)


def own_parts(path):
    for line, name in imports(path):
        pieces = name.split(".")
        if pieces[0] == "xlingjax" and len(pieces) > 1 and pieces[1] in LEVEL:
            yield line, pieces[1]


def test_every_part_has_its_level():
    assert {part(path) for path in files()} <= {*LEVEL}, "give the new part its place in LEVELS"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_flow_downwards(path):
    here = part(path)
    for line, target in own_parts(path):
        assert LEVEL[target] >= LEVEL[here], f"{path}:{line}: {target} stands above {here}"
        assert (here, target) not in FORBIDDEN, f"{path}:{line}: {here} must not import {target}"
    place = path.relative_to(ROOT).as_posix()
    for line, name in imports(path):
        home = HOMES.get(name.split(".")[0], ("",))
        assert place.startswith(home), f"{path}:{line}: {name} belongs in {home}"


def test_no_cycles():
    """Within a level, too, parts do not import each other in a circle."""
    graph = {}
    for path in files():
        targets = {target for _, target in own_parts(path)} - {part(path)}
        graph.setdefault(part(path), set()).update(targets)

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail, name])
        for target in graph.get(name, ()):
            visit(target, [*trail, name])

    for name in graph:
        visit(name, [])


def imported(code):
    """The packages that are imported after `code`, in a process of its own; `xlingjax` counts."""
    code += "; import sys; print('imported', *{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # `--help` ends the line before with its own text.
    return {*done.stdout.rpartition("imported ")[2].split()}


HEAVY = {"matplotlib", "pandas", "scipy", "sklearn", "torch", "transformers", "t5", "apache_beam"}
"""What takes a second or more to import and no training begins with."""


def test_the_options_of_all_verbs_are_listed_without_the_packages_of_any():
    code = "import contextlib, xlingjax.cli.main as m\n"
    code += "with contextlib.suppress(SystemExit): m.main(['--help'])\n"
    code += "0"
    found = imported(code)
    assert "xlingjax" in found
    assert not found & {"numpy", "jax", "gin", "tensorflow", *HEAVY}


def test_the_trainer_needs_neither_tensorflow_nor_gin():
    """They take seconds or may be absent."""
    found = imported("import xlingjax.training.loop, xlingjax.data.batches.loader")
    assert "jax" in found and not found & {"tensorflow", "seqio", "gin", *HEAVY}


def test_a_recipe_is_read_without_tensorflow():
    found = imported("import xlingjax.config.recipe, xlingjax.workflows.launch")
    assert {"gin", "jax"} <= found
    assert not found & {"tensorflow", "seqio", "keras", *HEAVY}


@pytest.mark.long
def test_every_test_is_collected_without_the_packages_of_interop():
    """As after `make setup` alone: what compares with them says that it is skipped."""
    code = """
import sys

import pytest


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "sacremoses"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_run_on_files_of_text_takes_its_steps_without_tensorflow(tmp_path):
    """Only a SeqIO mixture that a recipe names needs it."""
    small_corpus.build(tmp_path)
    files = {"HELDOUT_TEXT": f"{tmp_path}/heldout", "HELDOUT_PAIRS": f"{tmp_path}/heldout_pairs/*"}
    options = small_corpus.options(tmp_path, TRAIN_STEPS=2, RETRIEVAL_BATCH=8, **files)
    place = ("--to", str(tmp_path / "run"))
    words = small_corpus.arguments("pretrain", "own_text_tiny", options, *place)
    code = f"import xlingjax.cli.main as m; assert m.main({words!r}) == 0"
    found = imported(code)
    assert {"jax", "grain", "sentencepiece"} <= found
    assert not found & {"tensorflow", "seqio", "tensorflow_text", "keras"}

"""Do the tests notice a fault? One change at a time in the code that computes losses, features and
masks: a mutant, killed where a test of its file fails.

`python -m benchmarks.mutants OUT [FILE ...] [--share S] [--seed S]` draws that share of the mutants
of each file, runs the tests that stand for it and appends each to OUT/mutants.jsonl (what is there
is not run again; a larger share contains a smaller one's); then prints how many were killed, and
which were not. Every mutant is a fork of a process that has imported what the package imports.
"""

import argparse
import ast
import gc
import importlib.abc
import importlib.util
import json
import linecache
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchmarks.mutant_tests import ALL, OF_ROOM, TESTS

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("xlingjax/objectives", "xlingjax/preprocessors")
FILES = ("xlingjax/model/masks.py", "xlingjax/data/sampling.py", "xlingjax/training/step.py")
IMPORTED = ("flax.linen", "optax", "orbax.checkpoint", "seqio", "tensorflow", "tokenizers")
"""Of others, once for all mutants: most of the time of a short test."""
AS_IT_IS = -1
SECONDS = 600
"""What the tests of a file may take as it is."""

SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


# --- Mutants --------------------------------------------------------------------------------------


def places(source: str) -> list[tuple[int, str]]:
    """(line, what is changed) of every place where something can be, by number; words that a person
    reads, and annotations, stay."""
    return [(line, what) for line, what, _ in _every(ast.parse(source))]


def mutant(tree: ast.Module, number: int) -> ast.Module:
    """The module with the change of that number."""
    _, _, change = list(_every(tree))[number]
    change()
    return ast.fix_missing_locations(tree)


def _every(tree: ast.Module) -> Iterator[tuple[int, str, Any]]:
    spoken = {id(node) for node in _spoken(tree)}
    for node in ast.walk(tree):
        if id(node) not in spoken:
            for what, change in _changes(node):
                yield getattr(node, "lineno", 0), what, change


def _spoken(tree: ast.AST) -> Iterator[ast.AST]:
    """What no program does: messages of errors, annotations, strings that stand alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr):
            yield from ast.walk(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from ast.walk(node)
        for name in ("annotation", "returns"):
            if (said := getattr(node, name, None)) is not None:
                yield from ast.walk(said)


def _changes(node: ast.AST) -> list[tuple[str, Any]]:
    """(what, the change in place) of one node."""
    found: list[tuple[str, Any]] = []

    def swap(field: str, index: int | None = None) -> None:
        old = getattr(node, field)
        if index is not None:
            old = old[index]
        new = SWAPPED.get(type(old))
        if new is None:
            return

        def change() -> None:
            if index is None:
                setattr(node, field, new())
            else:
                getattr(node, field)[index] = new()

        found.append((f"{type(old).__name__} becomes {new.__name__}", change))

    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            swap("op")
        case ast.Compare():
            for index in range(len(node.ops)):
                swap("ops", index)
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub()):
            # Twice is not at all.
            inner = ast.UnaryOp(type(node.op)(), node.operand)
            found.append(
                (f"without {type(node.op).__name__}", lambda: setattr(node, "operand", inner))
            )
        case ast.Constant(value=bool()):
            found.append((f"not {node.value}", lambda: setattr(node, "value", not node.value)))
        case ast.Constant(value=int() | float()):
            found.append((f"{node.value} + 1", lambda: setattr(node, "value", node.value + 1)))
        case ast.If() | ast.IfExp():
            test = ast.UnaryOp(ast.Not(), node.test)
            found.append(("the other branch", lambda: setattr(node, "test", test)))
    return found


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a module as its mutant."""

    def __init__(self, file: str, number: int):
        self._path = ROOT / file
        self._name = ".".join(Path(file).with_suffix("").parts)
        self._number = number

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def exec_module(self, module: Any) -> None:
        path = str(self._path)
        tree = ast.parse(self._path.read_text(encoding="utf-8"))
        if self._number != AS_IT_IS:
            tree = mutant(tree, self._number)
        source = ast.unparse(tree)
        # TensorFlow's autograph compiles what it finds here once more.
        lines = source.splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)
        exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102


class Tests:
    """A plugin of pytest: of the tests that stand for a file, the fastest first."""

    def __init__(self, seconds: dict[str, float]):
        self._order = seconds
        self.seconds: Counter[str] = Counter()
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self._order.get(item.nodeid, 0.0))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed = report.nodeid


# --- The run --------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--again", action="store_true", help="run those once more that were not killed"
    )
    args = parser.parse_args(argv)
    if not 0 < args.share <= 1:
        parser.error(f"--share {args.share}: above 0, at most 1")
    for file in args.files:
        if file not in _files() or not _tests(file):
            parser.error(f"{file}: no file that has tests here; as they are: {_files()[0]}")
    args.out.mkdir(parents=True, exist_ok=True)
    kept = args.out / "mutants.jsonl"
    done = {}
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            done[one["file"], one["number"], one["line"], one["what"]] = one
    _imported()
    found = []
    for file in args.files or _files():
        as_it_is: dict[str, Any] = {}
        for number, line, what in _drawn(file, args.share, args.seed):
            one = done.get((file, number, line, what))
            if one is None or (args.again and not one["killed"]):
                if not as_it_is:
                    as_it_is = _tried(file, AS_IT_IS, {}, SECONDS)
                    if as_it_is["killed"]:
                        sys.exit(f"{file}: its own tests fail: {as_it_is}")
                result = _tried(file, number, as_it_is["seconds"], 60 + 5 * as_it_is["took"])
                one = {
                    "file": file,
                    "number": number,
                    "line": line,
                    "what": what,
                    "killed": result["killed"],
                    "by": result["by"],
                    "took": result["took"],
                }
                with kept.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(one) + "\n")
            found.append(one)
    print(_table(found))


def _imported() -> None:
    """What the forks share: nothing that a mutant could change, and no backend of JAX."""
    # Sets what JAX reads when it is imported.
    import tests.conftest  # noqa: F401

    for name in IMPORTED:
        importlib.import_module(name)
    if "xlingjax" in sys.modules:
        raise RuntimeError("the package is imported: its mutants would not be")
    gc.freeze()


def _files() -> list[str]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.py")):
            if path.name != "__init__.py":
                found.append(str(path.relative_to(ROOT)))
    return [*found, *FILES]


def _drawn(file: str, share: float, seed: int) -> list[tuple[int, int, str]]:
    """(number, line, what) of that share of a file's mutants, one at least."""
    source = (ROOT / file).read_text(encoding="utf-8")
    every = [(number, line, what) for number, (line, what) in enumerate(places(source))]
    # By the file's name: one more file changes no other's draw.
    random.Random(f"{seed} {file}").shuffle(every)
    return sorted(every[: math.ceil(share * len(every))])


def _tests(file: str) -> list[str]:
    path = Path(file)
    folder = Path("tests", *path.parts[1:-1])
    names = [
        *ROOT.glob(f"{folder}/test_{path.stem}.py"),
        *ROOT.glob(f"{folder}/test_{path.stem}_*.py"),
    ]
    tests = [str(one.relative_to(ROOT)) for one in names]
    if path.parts[1] in OF_ROOM:
        tests += [*ALL, *OF_ROOM[path.parts[1]]]
        # An objective by its features, and the other way round.
        for room in OF_ROOM:
            other = ROOT / "tests" / room / f"test_{path.stem}.py"
            if other.exists():
                tests.append(str(other.relative_to(ROOT)))
    return sorted({*tests, *TESTS.get(file, ())})


def _tried(file: str, number: int, seconds: dict[str, float], limit: float) -> dict[str, Any]:
    """Whether a test fails (`killed`) and which (`by`), how long that `took`, the `seconds` of each
    test; a mutant that does not end by the `limit` is killed by none."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said.json")
        child = os.fork()
        if child == 0:
            signal.alarm(math.ceil(limit))
            _run(file, number, seconds, said)
        _, status = os.waitpid(child, 0)
        result = {"by": "", "seconds": {}}
        if said.exists():
            result = json.loads(said.read_text(encoding="utf-8"))
    took = round(time.monotonic() - start, 2)
    return {**result, "killed": status != 0, "took": took}


def _run(file: str, number: int, seconds: dict[str, float], said: Path) -> NoReturn:
    """In the fork."""
    code = 1
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for one in range(3):
            os.dup2(quiet, one)
        os.chdir(ROOT)
        # Rows are kept by the hash of the source, which a mutant shares.
        os.environ["XLINGJAX_CACHE"] = str(said.parent)
        sys.meta_path.insert(0, Finder(file, number))
        tests = Tests(seconds)
        # Those of `make test`: the others are whole runs.
        options = ["-x", "-q", "--tb=no", "-m", "not long"]
        for plugin in ("cacheprovider", "warnings"):
            options += ["-p", f"no:{plugin}"]
        code = pytest.main(
            [*options, f"--basetemp={said.parent}/tmp", *_tests(file)], plugins=[tests]
        )
        one = {"by": tests.failed, "seconds": tests.seconds}
        said.write_text(json.dumps(one), encoding="utf-8")
    finally:
        os._exit(code)


def _table(found: Sequence[dict[str, Any]]) -> str:
    drawn = Counter(one["file"] for one in found)
    killed = Counter(one["file"] for one in found if one["killed"])
    lines = ["| file | mutants | killed |", "|---|--:|--:|"]
    for file, count in drawn.items():
        lines.append(f"| `{file}` | {count} | {killed[file]} |")
    share = killed.total() / max(drawn.total(), 1)
    low, high = _interval(killed.total(), drawn.total())
    lines.append(
        f"| all | {drawn.total()} | {killed.total()} ({share:.1%}; {low:.1%} to {high:.1%}) |"
    )
    lines.append("")
    for one in found:
        if not one["killed"]:
            lines.append(f"- `{one['file']}:{one['line']}`: {one['what']}")
    return "\n".join(lines)


def _interval(killed: int, drawn: int) -> tuple[float, float]:
    """Wilson's, of 95 %."""
    n, z = max(drawn, 1), 1.96
    share = killed / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    half = z * spread / (1 + z * z / n)
    return middle - half, middle + half


if __name__ == "__main__":
    main()

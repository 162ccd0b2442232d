"""Do the tests notice a fault? One change at a time in the code that computes losses, features and
masks: a mutant, killed where a test of its file fails.

`python -m benchmarks.mutants OUT [FILE ...] [--each N] [--seed S]` draws N mutants of each file,
runs the tests that stand for it and appends each to OUT/mutants.jsonl (what is there is not run
again); then prints how many were killed, and which were not. Minutes to hours: `--each`.
"""

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("xlingjax/objectives", "xlingjax/preprocessors")
FILES = (
    "xlingjax/model/masks.py",
    "xlingjax/data/sampling.py",
    "xlingjax/training/step.py",
)
# Beside the tests of the same name.
TESTS = {
    "xlingjax/model/masks.py": ("tests/objectives/test_leak.py",),
    "xlingjax/data/sampling.py": ("tests/config/test_text.py",),
    "xlingjax/objectives/back_translation.py": (
        "tests/objectives/test_translation.py",
    ),
    "xlingjax/objectives/plugged.py": ("tests/objectives/test_plug_in.py",),
    "xlingjax/objectives/ramp.py": ("tests/objectives/test_translation.py",),
    "xlingjax/objectives/summed.py": ("tests/training/test_step.py",),
    "xlingjax/objectives/verify.py": ("tests/cli/test_encoders.py",),
    "xlingjax/preprocessors/beside.py": ("tests/data/labelled/test_beside.py",),
    "xlingjax/preprocessors/training_set.py": (
        "tests/preprocessors/test_task.py",
        "tests/preprocessors/test_row_batches.py",
    ),
}
VARIABLE = "XLINGJAX_MUTANT"
"""FILE:NUMBER, for the process that runs the tests (`Finder`)."""
AS_IT_IS = -1
SECONDS = 300
"""After which a mutant that does not end is killed."""

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


def mutants(source: str) -> Iterator[tuple[int, str, ast.Module]]:
    """(line, what is changed, the changed module), of every place where something can be; words
    that a person reads, and annotations, stay."""
    tree = ast.parse(source)
    spoken = {id(node) for node in _spoken(tree)}
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in spoken:
            continue
        for number, (what, _) in enumerate(_changes(node)):
            changed = copy.deepcopy(tree)
            # The copy is walked in the same order.
            twin = next(
                one for at, one in enumerate(ast.walk(changed)) if at == place
            )
            _, change = _changes(twin)[number]
            change()
            yield (
                getattr(node, "lineno", 0),
                what,
                ast.fix_missing_locations(changed),
            )


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
            inner = ast.UnaryOp(copy.deepcopy(node.op), node.operand)
            found.append(
                (
                    f"without {type(node.op).__name__}",
                    lambda: setattr(node, "operand", inner),
                ),
            )
        case ast.Constant(value=bool()):
            found.append(
                (
                    f"not {node.value}",
                    lambda: setattr(node, "value", not node.value),
                ),
            )
        case ast.Constant(value=int() | float()):
            found.append(
                (
                    f"{node.value} + 1",
                    lambda: setattr(node, "value", node.value + 1),
                ),
            )
        case ast.If() | ast.IfExp():
            test = ast.UnaryOp(ast.Not(), node.test)
            found.append(
                ("the other branch", lambda: setattr(node, "test", test)),
            )
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
        return importlib.util.spec_from_file_location(
            name,
            self._path,
            loader=self,
        )

    def exec_module(self, module: Any) -> None:
        source = self._path.read_text(encoding="utf-8")
        if self._number == AS_IT_IS:
            exec(compile(source, str(self._path), "exec"), module.__dict__)  # noqa: S102
            return
        for number, (_, _, tree) in enumerate(mutants(source)):
            if number == self._number:
                exec(compile(tree, str(self._path), "exec"), module.__dict__)  # noqa: S102
                return


if VARIABLE in os.environ:
    # As a plugin of pytest, before anything of the package is imported.
    _file, _, _number = os.environ[VARIABLE].rpartition(":")
    sys.meta_path.insert(0, Finder(_file, int(_number)))


# --- The run --------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    kept = args.out / "mutants.jsonl"
    done = {}
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            done[one["file"], one["number"], one["line"], one["what"]] = one
    found = []
    for file in args.files or _files():
        checked = False
        for number, line, what in _drawn(file, args.each, args.seed):
            one = done.get((file, number, line, what))
            if one is None:
                if not checked and _killed(file, AS_IT_IS):
                    sys.exit(f"{file}: its own tests fail: {_tests(file)}")
                checked = True
                killed = _killed(file, number)
                one = {
                    "file": file,
                    "number": number,
                    "line": line,
                    "what": what,
                    "killed": killed,
                }
                with kept.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(one) + "\n")
            found.append(one)
    print(_table(found))


def _files() -> list[str]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.py")):
            if path.name != "__init__.py":
                found.append(str(path.relative_to(ROOT)))
    return [*found, *FILES]


def _drawn(file: str, each: int, seed: int) -> list[tuple[int, int, str]]:
    """(number, line, what) of so many mutants of a file."""
    source = (ROOT / file).read_text(encoding="utf-8")
    every = [
        (number, line, what)
        for number, (line, what, _) in enumerate(mutants(source))
    ]
    # By the file's name: one more file changes no other's draw.
    drawn = random.Random(f"{seed} {file}").sample(every, min(each, len(every)))
    return sorted(drawn)


def _tests(file: str) -> list[str]:
    path = Path(file)
    folder = Path("tests", *path.parts[1:-1])
    names = [
        *ROOT.glob(f"{folder}/test_{path.stem}.py"),
        *ROOT.glob(f"{folder}/test_{path.stem}_*.py"),
    ]
    tests = [str(one.relative_to(ROOT)) for one in names]
    # An objective by its features, and the other way round.
    for room in ("objectives", "preprocessors"):
        other = ROOT / "tests" / room / f"test_{path.stem}.py"
        if path.parts[1] in ("objectives", "preprocessors") and other.exists():
            tests.append(str(other.relative_to(ROOT)))
    return sorted({*tests, *TESTS.get(file, ())})


def _killed(file: str, number: int) -> bool:
    """Whether a test fails."""
    with tempfile.TemporaryDirectory() as cache:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "benchmarks.mutants",
        ]
        command += [
            "-p",
            "no:cacheprovider",
            "-p",
            "no:warnings",
            *_tests(file),
        ]
        variables = {
            **os.environ,
            VARIABLE: f"{file}:{number}",
            # Rows are kept by the hash of the source, which a mutant shares.
            "XLINGJAX_CACHE": cache,
        }
        try:
            ended = subprocess.run(
                command,
                cwd=ROOT,
                env=variables,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True
    # Of pytest: 1 where tests failed, 0 where none did.
    if ended.returncode > 1:
        sys.exit(f"{file}: {ended.stdout.decode()[-500:]}")
    return ended.returncode == 1


def _table(found: Sequence[dict[str, Any]]) -> str:
    drawn = Counter(one["file"] for one in found)
    killed = Counter(one["file"] for one in found if one["killed"])
    lines = ["| file | mutants | killed |", "|---|--:|--:|"]
    for file, count in drawn.items():
        lines.append(f"| `{file}` | {count} | {killed[file]} |")
    share = killed.total() / max(drawn.total(), 1)
    lines.append(f"| all | {drawn.total()} | {killed.total()} ({share:.1%}) |")
    lines.append("")
    for one in found:
        if not one["killed"]:
            lines.append(f"- `{one['file']}:{one['line']}`: {one['what']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

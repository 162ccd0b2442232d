"""What data sets feed a run, and the benchmarks: their tables of tasks, found by name.

`suite_tasks("xtreme")` and `task_named("xtreme/udpos")` give the `Task`s;
`xlingjax.data.labelled.task.read` reads their files; `xlingjax.tasks.registry.register` makes SeqIO
tasks of them. In a program that imports SeqIO, before this module or after it, SeqIO's registries
hold the embedded corpus, as text and as the rows of every objective: `demo.text`, `demo.mlm`,
`demo.ernie_m`, ... (`xlingjax.tasks.demo`).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError

_SUITES = ("xtreme", "xglue", "xnli", "applications")


def suites() -> tuple[str, ...]:
    """Names of the benchmarks."""
    return _SUITES


def suite_tasks(suite: str) -> list[Task]:
    """The tasks of a benchmark, in its order. Raises UserError for an unknown one."""
    if suite not in _SUITES:
        raise UserError(
            f"no benchmark {suite!r}{_nearest(suite, _SUITES)}; there are {', '.join(_SUITES)}"
        )
    # By the installed name: the folder is tasks/ in a clone and a part of the package in a wheel.
    return list(importlib.import_module(f"xlingjax.tasks.{suite}").TASKS)


def task_named(name: str) -> Task:
    """The task "SUITE/NAME". Raises UserError for an unknown one, with the nearest name."""
    suite, slash, _ = name.partition("/")
    if not slash:
        # A name alone, like xnli, is one of several benchmarks, whose files and metrics differ.
        found = [
            task.full_name for each in _SUITES for task in suite_tasks(each) if task.name == name
        ]
        raise UserError(
            f"task {name!r} names no benchmark; write"
            f" {' or '.join(found) or 'SUITE/NAME, as xtreme/xnli'}"
        )
    tasks = {task.full_name: task for task in suite_tasks(suite)}
    if name not in tasks:
        raise UserError(
            f"no task {name!r}{_nearest(name, tasks)}; {suite} has"
            f" {', '.join(t.name for t in tasks.values())}"
        )
    return tasks[name]


def _nearest(name: str, names) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    if not close:
        return ""
    return f", perhaps {close[0]!r}"


class _WhenSeqioIsImported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Registers the embedded corpus behind SeqIO's import, which takes seconds: who only looks up a
    table of tasks does not wait for it, and needs no SeqIO."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != "seqio":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        self._loader = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _register_demo()


def _register_demo() -> None:
    # A file of this folder that is being imported is what imports SeqIO: `demo` needs it whole, and
    # is registered when it is imported itself.
    for name in ("xlm", "objectives", "demo"):
        module = sys.modules.get(f"{__name__}.{name}")
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            return
    importlib.import_module("xlingjax.tasks.demo")


if "seqio" in sys.modules:
    _register_demo()
else:
    sys.meta_path.insert(0, _WhenSeqioIsImported())

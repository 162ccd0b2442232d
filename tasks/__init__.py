"""What data sets feed a run, and the benchmarks: their tables of tasks, found by name.

`suite_tasks("xtreme")` and `task_named("xtreme/udpos")` give the `Task`s of SUITE.toml;
`xlingjax.data.labelled.task.read` reads their files; `xlingjax.tasks.registry.register` makes SeqIO
tasks of them. In a program that imports SeqIO, before this module or after it, SeqIO's registries
hold the embedded corpus, as text and as the rows of every objective: `demo.text`, `demo.mlm`,
`demo.ernie_m`, ... (`xlingjax.tasks.demo`).
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterable

import wrapt

from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError

_SUITES = ("xtreme", "xglue", "xnli", "applications")


def suites() -> tuple[str, ...]:
    """Names of the benchmarks."""
    return _SUITES


def suite_tasks(suite: str, names: Iterable[str] = ()) -> list[Task]:
    """The tasks of a benchmark, in its order, or those of these names. Raises UserError for an
    unknown one."""
    if suite not in _SUITES:
        raise UserError(f"no benchmark {suite!r}; there are {', '.join(_SUITES)}")
    if names:
        return [task_named(f"{suite}/{name}") for name in dict.fromkeys(names)]
    # Here, since their readers import NumPy and more, and who asks for a suite needs them.
    from xlingjax.tasks.tables import tasks_of

    return list(tasks_of(suite))


def task_named(name: str) -> Task:
    """The task "SUITE/NAME", or "SUITE/NAME[:ROWS]", of the first rows of each set. Raises
    UserError for an unknown one."""
    called, rows = re.fullmatch(r"(.*?)(?:\[:(\d+)\])?", name, re.DOTALL).groups()
    suite, slash, _ = called.partition("/")
    if not slash:
        raise UserError(f"task {name!r} names no benchmark; write SUITE/NAME, as xtreme/xnli")
    tasks = {task.full_name: task for task in suite_tasks(suite)}
    if called not in tasks or rows and not int(rows):
        raise UserError(f"no task {name!r}; there are {', '.join(tasks)}")
    return dataclasses.replace(tasks[called], first=int(rows)) if rows else tasks[called]


# SeqIO's import takes seconds: who only looks up a table of tasks does not wait for it. `xlm` and
# `objectives`, which `demo` imports, must not import it themselves while they are imported.
wrapt.register_post_import_hook(lambda _: importlib.import_module("xlingjax.tasks.demo"), "seqio")

"""What `finetune --task`, `evaluate --suite` and `evaluate --mixture` do: the tasks of benchmarks."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.cli.models import require_unread
from xlingjax.cli.scores import show
from xlingjax.errors import UserError

OF_TASKS = ("source", "data", "output", "strategy", "languages", "seeds", "grid")
OF_SUITES = (*OF_TASKS, "tasks", "split", "layer", "pooling", "prefix", "follow", "patience", "labels")


def asked(args: Namespace) -> Callable[..., int] | None:
    """What does it, if the command line names a task or a benchmark; None: it names a workdir."""
    chosen = [name for name in ("task", "suite", "mixture") if getattr(args, name, None)]
    if len(chosen) > 1:
        raise UserError(f"--{chosen[0]} and --{chosen[1]}: give one of them")
    if not chosen:
        names = OF_TASKS if args.name == "finetune" else OF_SUITES
        require_unread(
            args, names, "only --task reads this" if args.name == "finetune" else "only --suite and --mixture read this"
        )
        if not args.workdir:
            more = "--task" if args.name == "finetune" else "--suite or --mixture"
            raise UserError(f"{args.name}: give --workdir, or {more}")
        return None
    require_unread(args, ("workdir",), f"--{chosen[0]} writes to --to")
    return {"task": finetune, "suite": suite, "mixture": mixture}[chosen[0]]


def _require(args: Namespace, *names: str) -> None:
    flags = {"source": "--from", "data": "--data", "output": "--to"}
    if missing := [flags[name] for name in names if not getattr(args, name)]:
        raise UserError(f"{args.name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed")


def finetune(args: Namespace, overrides: Sequence[str], *readers: Callable) -> int:
    """`finetune --task`: a sweep for each strategy, then the score card of the folder. readers: those of `Tools`, but
    train."""
    from xlingjax.config.multi_task import merged
    from xlingjax.data.labelled.task import TRAINED
    from xlingjax.tasks import task_named
    from xlingjax.workflows.cell import MULTI_TASK

    _require(args, "source", "data", "output")
    tasks = sorted((task_named(name) for name in args.task), key=lambda task: task.name)
    for task in tasks:
        if task.kind not in TRAINED:
            suite = f"`xlingjax evaluate --mixture {task.suite} --tasks {task.name}` measures it"
            raise UserError(f"--task {task.full_name}: {task.kind} is not fine-tuned; {suite}")
    together = MULTI_TASK in (args.strategy or ())
    if together and len(args.strategy) > 1:
        raise UserError(f"--strategy {' '.join(args.strategy)}: {MULTI_TASK} trains all tasks at once; give it alone")
    if together:
        merged([task.full_name for task in tasks])
    elif len(tasks) > 1:
        raise UserError(f"--task {' '.join(args.task)}: --strategy {MULTI_TASK} alone takes several; name one")
    return _sweeps(args, tasks[:1], overrides, readers, beside=tasks[1:])


def suite(args: Namespace, overrides: Sequence[str], *readers: Callable) -> int:
    """`evaluate --suite`: every task whose files are there; what is missing is said."""
    from xlingjax.data.labelled.task import languages_present
    from xlingjax.tasks import suite_tasks

    _require(args, "source", "data", "output")
    require_unread(
        args,
        ("split", "follow", "patience", "labels"),
        "--mixture reads this, and --suite says its splits by --gin.TEST_SPLIT",
    )
    if "multi_task" in (args.strategy or ()):
        raise UserError("--strategy multi_task: name its tasks: `xlingjax finetune --task A B --strategy multi_task`")
    tasks = suite_tasks(args.suite)
    if strange := [name for name in args.tasks or () if name not in {task.name for task in tasks}]:
        raise UserError(f"--tasks {' '.join(strange)}: {args.suite} has {', '.join(task.name for task in tasks)}")
    tasks = [task for task in tasks if not args.tasks or task.name in args.tasks]
    require_read(args, tasks)
    present, missing = [], []
    for task in tasks:
        lacks = [split for split in _needed(task) if not languages_present(task, args.data, split)]
        there = _tested(task, args.data)
        lacks += [] if there else ["test or dev"]
        told = [language for language in task.languages if language not in there]
        if lacks:
            missing.append(f"{task.full_name}: no {' and no '.join(lacks)} files")
            continue
        present.append(task)
        if told:
            missing.append(f"{task.full_name}: no test or dev set of {', '.join(told)}")
    if missing:
        print("missing:\n  " + "\n  ".join(missing))
    if missing and not args.allow_missing:
        raise UserError(f"{args.data}: files of {len(missing)} tasks are missing (above): get them, or --allow-missing")
    return _sweeps(args, present, overrides, readers)


def require_read(args: Namespace, tasks: Sequence[Any]) -> None:
    """Says which of the chosen tasks read --layer, --pooling and --prefix, if not all do. Raises UserError where none
    does, and where mining would read several."""
    from xlingjax.data.labelled.task import TRAINED

    given = {f"--{name}": values for name in ("layer", "pooling") if (values := getattr(args, name))}
    given |= {"--prefix": [args.prefix]} if args.prefix is not None else {}
    if not given:
        return
    options, read = " and ".join(given), [task for task in tasks if task.kind not in TRAINED]
    if not read:
        names = ", ".join(task.name for task in tasks)
        raise UserError(f"{options}: retrieval and mining alone read this, not {names}; leave it out")
    mined = [task.name for task in read if task.kind == "mining"]
    if mined and any(len(values) > 1 or values == ["all"] for name, values in given.items() if name != "--prefix"):
        raise UserError(
            f"{options}: {mined[0]} is mined from one layer and pooling; name the tasks of retrieval by --tasks"
        )
    if len(read) < len(tasks):
        print(f"{options}: read by {', '.join(task.name for task in read)} alone")


def _needed(task: Any) -> tuple[str, ...]:
    from xlingjax.data.labelled.task import TRAINED

    return ("train",) if task.kind in TRAINED else ()


def _tested(task: Any, data: str) -> set[str]:
    from xlingjax.data.labelled.task import languages_present

    return {*languages_present(task, data, "test"), *languages_present(task, data, "dev")}


def _sweeps(args: Namespace, tasks, overrides, readers, beside=()) -> int:
    from xlingjax.cli import verbs
    from xlingjax.data.labelled.task import TRAINED
    from xlingjax.evaluation.tatoeba import chosen_layer
    from xlingjax.runtime.machine import start
    from xlingjax.training.run_record import read_run_record
    from xlingjax.workflows.baselines import applies as baseline_of
    from xlingjax.workflows.cell import Asked, Tools
    from xlingjax.workflows.measure import measure
    from xlingjax.workflows.strategies import lacking
    from xlingjax.workflows.sweep import check, run

    start(verbs.runtime(args))

    def train(folder: Path, recipe: Any) -> int:
        return verbs.train(Namespace(**{**vars(args), "workdir": str(folder), "name": "finetune"}), recipe)

    source = _started(args.source)
    for layer in getattr(args, "layer", None) or ():  # before anything is trained
        if layer != "all":
            chosen_layer(layer, read_run_record(source)["model"]["layers"])
    parse, read_recipe, find, sets = readers
    tools = Tools(parse, read_recipe, train, find, sets)
    several, faults, sweeps = len(tasks) > 1, [], []

    def fault(task, found: UserError) -> None:
        """Of a suite the other tasks are measured all the same."""
        if not several:
            raise found
        print(f"{task.full_name}: {found}")
        faults.append(task.full_name)

    for task in tasks:
        for strategy in (args.strategy or ["transfer"]) if task.kind in TRAINED else ():
            if several and not baseline_of(strategy, task):
                print(f"{task.full_name}: passed over, {strategy} is none of {task.kind}")
                continue
            file = find(f"strategies/{strategy}.gin") or find(strategy)
            if several and file and (lacks := lacking(file.read_text(encoding="utf-8"), task, args.data)):
                print(f"{task.full_name}: passed over, {strategy} finds {lacks} below {args.data}")
                continue
            asked = Asked(
                task, source, args.data, args.output, strategy, args.seeds or 1, grid(args.grid or ()),
                tuple(args.languages or ()), tuple(args.gin_file), tuple(overrides), bool(args.allow_missing),
                beside=tuple(beside),
            )  # fmt: skip
            try:
                check(asked, tools)  # of all, before any training
                sweeps.append(asked)
            except UserError as found:
                fault(task, found)
    for task in tasks:
        try:
            if task.kind not in TRAINED:
                measure(measured(args, source, task.suite, [task.name]))
            for asked in (one for one in sweeps if one.task == task):
                if status := run(asked, tools):
                    return status
        except UserError as found:
            fault(task, found)
    print(show(args.output))
    if faults:
        raise UserError(f"{', '.join(dict.fromkeys(faults))} could not be measured (above); the card is of the others")
    return 0


def _started(source: str) -> str:
    """The run; of a model of Hugging Face its import."""
    if not source.startswith("hf:"):
        return source
    from xlingjax.convert.import_model import imported

    return str(imported(source.removeprefix("hf:")))


def grid(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """{macro: values} of "LEARNING_RATE=1e-5,2e-5". Raises UserError."""
    found = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not all(values.split(",")) or not name.isupper():
            raise UserError(f"--grid {word}: write MACRO=A,B, as in LEARNING_RATE=1e-5,2e-5")
        if name in found:
            raise UserError(f"--grid {word}: {name} stands there twice; give all its values in one")
        found[name] = tuple(values.split(","))
        if len({*map(_number, found[name])}) < len(found[name]):
            raise UserError(f"--grid {word}: a value stands there twice")
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def measured(args: Namespace, source: str, suite: str, tasks: Sequence[str]) -> Any:
    from xlingjax.workflows.measure import Asked

    return Asked(
        suite, source, args.data, args.output, tuple(tasks), args.split or "", bool(args.allow_missing),
        tuple(args.layer or ()), tuple(args.pooling or ()), tuple(args.labels or ()), args.prefix,
    )  # fmt: skip


def mixture(args: Namespace, overrides: Sequence[str], parse: Callable, *_: Callable) -> int:
    """`evaluate --mixture`: a checkpoint as it is, or with --follow every checkpoint of a run."""
    from xlingjax.cli import verbs
    from xlingjax.runtime.machine import start
    from xlingjax.tasks import suite_tasks
    from xlingjax.training.run_record import run_and_checkpoint
    from xlingjax.workflows.cell import FILES, READING, values_of
    from xlingjax.workflows.measure import follow, measure
    from xlingjax.workflows.scorecard import SCORES

    if args.follow and args.source:
        raise UserError("--follow names the run; leave --from out")
    if not args.follow:
        require_unread(args, ("patience",), "only --follow reads this")
    _require(args, "data", "output", *(() if args.follow else ("source",)))
    require_unread(args, ("strategy", "languages", "seeds", "grid"), "--mixture trains nothing")
    tasks = {task.name: task for task in suite_tasks(args.mixture)}
    if strange := {*(args.tasks or ())} - {*tasks}:
        raise UserError(f"--tasks {' '.join(strange)}: {args.mixture} has {', '.join(sorted(tasks))}")
    require_read(args, [task for name, task in tasks.items() if not args.tasks or name in args.tasks])
    start(verbs.runtime(args))
    source = args.follow or _started(args.source)
    config, read = run_and_checkpoint(source)[0] / "config.gin", (*READING, "DTYPE")

    def recipe() -> dict[str, Any]:
        files = [*([str(config)] if config.is_file() else ()), *args.gin_file]
        if files:
            return values_of(parse(files, overrides))
        given = [override.partition("=")[0] for override in overrides]
        if strange := [name for name in given if name not in read]:
            raise UserError(f"--gin.{strange[0]}: --mixture trains nothing, and reads {', '.join(read)} alone")
        stand_ins = ["TASK=''", "DATA=''", "INIT_FROM=''", "TRAIN_STEPS=1"]
        bound = values_of(parse(FILES, [*stand_ins, *overrides]))
        return {name: bound[name] for name in read}

    asked = measured(args, source, args.mixture, args.tasks or ())
    if not args.follow:
        status = measure(asked, recipe)
        print(show(args.output))
        return status
    try:
        return follow(asked, args.follow, recipe, patience=60.0 if args.patience is None else args.patience)
    finally:  # what was measured stands in the card, however the run ended
        if next(Path(args.output).glob(f"cells/**/{SCORES}"), None):
            print(show(args.output))

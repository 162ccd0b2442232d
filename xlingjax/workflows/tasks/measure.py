"""`xlingjax evaluate --mixture`: a checkpoint as it is, on every task of a benchmark, or of a
mixture of SeqIO, that it can do: a cell without a training.

A fine-tuned run does the tasks whose labels its head has; retrieval and mining read the states of
any.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from xlingjax.config.text import import_tasks
from xlingjax.data.labelled.task import (
    TRAINED,
    Task,
    find,
    languages_present,
    read,
)
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.task.predictions import head_fault, head_of, in_order_of, named_alike
from xlingjax.evaluation.task.scores import has_gold
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.preprocessors.training_set import Training
from xlingjax.runtime.quiet import quiet_stderr
from xlingjax.tasks import suite_tasks, suites, task_named
from xlingjax.training.checkpoint_paths import find_checkpoint, step_of
from xlingjax.training.run_record import labels_of, read_run_record, run_and_checkpoint
from xlingjax.workflows.jobs.many import Say
from xlingjax.workflows.scorecard.cells import AS_IT_IS
from xlingjax.workflows.tasks.request import Bound, reading_of
from xlingjax.workflows.tasks.retrieval import (
    ALL,
    Search,
    States,
    states,
)
from xlingjax.workflows.tasks.scores import (
    parameters_hash,
    predict_test,
    predictor,
    score,
    write_scores,
)
from xlingjax.workflows.tasks.sweep import require_folder
from xlingjax.workflows.tasks.text_to_text import measure_texts

Recipe = Callable[[], Bound]
"""Gives the macros of a run; {}: it has no recipe."""
LABELLED = ("classification", "ranking", "tagging")
"""Kinds whose heads have names of classes."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What the command line says."""

    mixture: str
    """A benchmark, or any mixture or task of SeqIO that `modules` register."""
    source: str
    data: str
    output: str
    tasks: Collection[str] = ()
    """Names within the suite; empty: all."""
    split: str = ""
    """ "": test where it has answers, else dev."""
    allow_missing: bool = False
    layers: Sequence[int | str] = ()
    """Of retrieval and mining; none: the run's own, else the paper's. Several, or "all", are of
    retrieval alone: a table of each layer."""
    poolings: Sequence[str] = ()
    labels: Sequence[str] = ()
    """Of the head, whose own names do not tell: the task's, in the order of the outputs."""
    prefix: str | None = None
    """None: the run's own, else none."""
    modules: Sequence[str] = ()
    """Python modules that register `mixture`, where it is no benchmark."""
    languages: Sequence[str] = ()
    """Of a task of text to text: of its inputs and targets, or of both; none: as it says itself."""

    @property
    def several(self) -> bool:
        """Whether a table of layers or poolings is requested."""
        return (
            ALL in (*self.layers, *self.poolings) or len(self.layers) > 1 or len(self.poolings) > 1
        )


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What is measured."""

    run: TrainedRun
    source: str
    step: int
    weights: str
    """The hash of its parameters."""
    macros: Bound

    @property
    def name(self) -> str:
        # Weights and step: a run that was trained anew has other weights at the same step.
        return f"{self.weights[:8]}-step-{self.step}"


def measure(measurement: Measurement, recipe: Recipe = dict, say: Say = print) -> int:
    """Writes predictions and scores of each task; the exit status. Raises UserError where no task
    can be done."""
    require_folder(measurement.output)
    # Before weights are read: a mixture that is not there, files that are missing.
    _tasks_of(measurement)
    run = open_run(measurement.source, mesh=mesh_of_all())
    # A folder of parameters alone has no step for its name.
    step = step_of(find_checkpoint(measurement.source).name) or 0
    return measure_checkpoint(measurement, run, step, recipe(), say)


def measure_checkpoint(
    measurement: Measurement,
    run: TrainedRun,
    step: int,
    macros: Bound,
    say: Say,
) -> int:
    """`measure` of a run that is open."""
    # A layer that the model lacks is refused before the first task is measured.
    for layer in measurement.layers:
        if layer != ALL:
            chosen_layer(layer, run.model.config.layers)
    # In the precision of the run's own recipe, as in its training.
    run = run.in_dtype(macros.get("DTYPE"))
    weights = parameters_hash(run.params)
    checkpoint = Checkpoint(run, measurement.source, step, weights, macros)
    record = read_run_record(measurement.source)
    benchmarks, texts = _tasks_of(measurement)
    measured_any = bool(texts) and _measured_texts(
        measurement, checkpoint, texts, bool(benchmarks), say
    )
    for task, data, languages in benchmarks:
        of_task = dataclasses.replace(measurement, data=data)
        labels = _labels(of_task, run, task, record)
        fault = _fault(of_task, run, task, labels)
        # A suite is measured as far as the model goes,
        # as a fine-tuned one has the head of one task.
        if fault:
            say(f"{task.full_name}: passed over, {fault}")
            continue
        # Models number XNLI's labels differently: the order is that of the head's outputs.
        task = in_order_of(task, labels)
        languages = _known(of_task, run, task, languages, say)
        split = measurement.split or _split(task, data, languages)
        present = languages_present(task, data, split) if split else []
        languages = [language for language in present if language in languages]
        if not languages:
            requested = measurement.split or "test or dev"
            say(f"{task.full_name}: passed over, no {requested} files below {data}")
            continue
        _measure_task(of_task, checkpoint, task, split, languages, say)
        measured_any = True
    if not measured_any:
        raise UserError(
            f"--mixture {measurement.mixture}: {measurement.source} can do none of its tasks that"
            " have files (above)"
        )
    return 0


# ---- which tasks are measured --------------------------------------------------------------------


def _tasks_of(measurement: Measurement) -> tuple[list[tuple[Task, str, list[str]]], list[Any]]:
    """([(task, the folder of its files, languages)] of benchmarks, SeqIO's tasks of text to text).
    Raises UserError: no such mixture, and files that are missing."""
    if measurement.mixture in suites():
        return _of_benchmark(measurement), []
    # TensorFlow announces itself.
    with quiet_stderr():
        from xlingjax.tasks.registry import tasks_of
        from xlingjax.tasks.seqio_scores import scored_tasks

        import_tasks(measurement.modules)
        texts = scored_tasks(measurement.mixture)
    benchmarks = []
    for task, by_language in tasks_of(measurement.mixture):
        # Its files lie where it was registered with them.
        folder = next(iter(by_language.values())).source.folder
        benchmarks.append((task, str(folder), [*by_language]))
    return benchmarks, texts


def _of_benchmark(measurement: Measurement) -> list[tuple[Task, str, list[str]]]:
    data = measurement.data
    tasks = []
    for task in suite_tasks(measurement.mixture):
        if measurement.tasks and task.name not in measurement.tasks:
            continue
        languages = []
        # The test languages may leave out the one that is trained on.
        for language in dict.fromkeys((*task.languages, task.trained_on)):
            splits = [split for split in task.files if find(task, data, split, language)]
            measurable = {"dev", "test"} & {*splits}
            if language in task.languages and not measurable and not measurement.allow_missing:
                # `read` has the message that names all the places where the files may lie.
                read(task, data, "test" if "test" in task.files else "dev", language)
            if splits:
                languages.append(language)
        if languages:
            tasks.append((task, data, languages))
    if not tasks:
        raise UserError(
            f"no files of {measurement.mixture} in {data}; docs/benchmarks.md says where it is"
            " downloaded from"
        )
    return tasks


def _measured_texts(
    measurement: Measurement,
    checkpoint: Checkpoint,
    tasks: Sequence[Any],
    beside_others: bool,
    say: Say,
) -> bool:
    """Whether the model writes texts, and the tasks of text to text are measured. beside_others:
    the mixture has other tasks, which it may do."""
    if checkpoint.run.model.config.decoder_layers:
        measure_texts(measurement, checkpoint, tasks, say)
        return True
    fault = f"{measurement.source} has no decoder and writes no text: give an encoder-decoder"
    if not beside_others:
        raise UserError(
            f"--mixture {measurement.mixture}: {tasks[0].name} is a task of text to text, and"
            f" {fault}"
        )
    for task in tasks:
        say(f"{task.name}: passed over, {fault}")
    return False


# ---- what the run can do -------------------------------------------------------------------------


def _labels(
    measurement: Measurement, run: TrainedRun, task: Task, record: Mapping[str, Any]
) -> Sequence[str]:
    """The labels of the task's head, by --labels or by its own names. record: the run's. Raises
    UserError where --labels are not the task's, or the head's names say another order."""
    labels = labels_of(record, head_of(run.model, task))
    given = measurement.labels
    if not given or task.kind not in LABELLED or head_fault(run.model, task):
        return labels
    order = named_alike(task, given)
    # --labels are for heads whose own names do not tell, LABEL_0 and LABEL_1.
    if not order or (named_alike(task, labels) or order) != order:
        raise UserError(
            f"--labels {' '.join(given)}: {task.full_name} has {' '.join(task.labels)} and the"
            f" head {' '.join(labels)}: give each once, in the head's order"
        )
    return given


def _fault(measurement: Measurement, run: TrainedRun, task: Task, labels: Sequence[str]) -> str:
    """Why the run cannot do the task; "": it can. labels: of the head."""
    if task.kind in TRAINED:
        return head_fault(run.model, task, labels)
    own = run.sentences
    if own and own.unread and not measurement.poolings:
        return f"its sentence vectors are not computed here ({own.unread}); --pooling"
    return ""


def _known(
    measurement: Measurement,
    run: TrainedRun,
    task: Task,
    languages: Sequence[str],
    say: Say,
) -> Sequence[str]:
    """With --allow-missing a model that embeds languages passes over those that it does not
    know."""
    if not measurement.allow_missing or not run.model.config.has_languages:
        return languages
    unknown = [name for name in languages if name not in run.languages]
    if unknown:
        say(f"{task.full_name}: passed over {', '.join(unknown)}, which the model does not know")
    return [name for name in languages if name not in unknown]


def _split(task: Task, data: str, languages: Collection[str]) -> str:
    """test where it has answers, else dev, else what there is; "": nothing."""
    present = []
    for split in ("test", "dev"):
        for language in languages_present(task, data, split):
            if language in languages:
                # One language tells of all.
                if has_gold(task, read(task, data, split, language)):
                    return split
                present.append(split)
                break
    return next(iter(present), "")


# ---- one task ------------------------------------------------------------------------------------


def _measure_task(
    measurement: Measurement,
    checkpoint: Checkpoint,
    task: Task,
    split: str,
    languages: Sequence[str],
    say: Say,
) -> None:
    """Writes predictions and scores of a task, in a cell of its own."""
    run = checkpoint.run
    data = measurement.data
    reads = None
    learnt: set[str] | None = set()
    if task.kind in TRAINED:
        run_on_task = predictor(run, task, data, reading_of(checkpoint.macros))
        learnt = languages_learnt(checkpoint.macros)
    else:
        reads = states(
            task.kind,
            run.model.config.layers,
            run.sentences,
            measurement.layers,
            measurement.poolings,
            measurement.prefix,
        )
        run_on_task = Search(run, task, data, reads)
    folder = _folder(measurement, checkpoint, task, split, reads)
    predictions = folder / "predictions"
    # Who names a split wants that one alone.
    if not measurement.split and split != "test":
        predict_test(run_on_task, task, data, predictions, languages)
    test = score(run_on_task, task, data, split, languages, predictions, learnt)
    scores: dict[str, Any] = {
        # Several runs and steps may be measured into one folder, and each is a row.
        "variant": {
            "run": run_and_checkpoint(checkpoint.source)[0].name,
            "step": str(checkpoint.step),
        },
        "start": {"run": checkpoint.source, "sha256": checkpoint.weights},
        "select": _select(checkpoint, task, split, reads),
        "machine": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }
    if isinstance(run_on_task, Search) and run_on_task.layers and measurement.several:
        scores["layers"] = {
            "layer": run_on_task.reads.layer,
            "pooling": run_on_task.reads.pooling,
            "by_language": run_on_task.layers,
        }
    write_scores(folder, task, AS_IT_IS, test, **scores)
    how = f" ({reads.said()})" if reads else ""
    say(f"step {checkpoint.step}: {task.full_name}, {split}{how}: {_shown(task, test)}")
    if task.kind == "retrieval" and measurement.several and "layers" not in scores:
        say(f"{task.full_name}: no table of layers, since the files have no gold to score against")


def _folder(
    measurement: Measurement,
    checkpoint: Checkpoint,
    task: Task,
    split: str,
    reads: States | None,
) -> Path:
    """Other weights, splits and prefixes have cells of their own."""
    name = checkpoint.name
    if split != "test":
        name += f"-{split}"
    if reads and reads.prefix:
        # A prefix may hold what no file name can.
        name += f"-prefix-{hashlib.sha256(reads.prefix.encode()).hexdigest()[:8]}"
    cells = Path(measurement.output).absolute() / "cells"
    return cells / task.suite / task.name / AS_IT_IS / name


def _select(checkpoint: Checkpoint, task: Task, split: str, reads: States | None) -> dict[str, Any]:
    """ "select" of scores.json: nothing was chosen here, and what is to be noted of it."""
    step = checkpoint.step
    select: dict[str, Any] = {"split": split, "by": "none", "step": step, "steps": step}
    if reads:
        select |= {"note": reads.said(), **reads.text}
    if task.kind == "mining":
        tuned_on = "dev"
        if split == "dev":
            tuned_on = "the same set, so that its F1 flatters"
        select["note"] += f", threshold tuned on {tuned_on}"
    return select


def _shown(task: Task, test: Mapping[str, Any]) -> str:
    if not test["means"]:
        return "predicted; the files have no answers"
    metric = task.metrics[0]
    names = " and ".join(task_metrics(task))
    of_each = [
        f"{language} {values[metric]:.1f}" for language, values in test["by_language"].items()
    ]
    return f"mean {names} {test['means']['mean']:.2f}; {metric} {', '.join(of_each)}"


# ---- what a run was trained on, as far as its recipe tells ---------------------------------------


def languages_learnt(macros: Bound) -> set[str] | None:
    """Those that a run had training examples of, gold, translated or labelled; None: its recipe
    does not tell, or its files, which "all" is looked up in, are gone."""
    # A run of another recipe, or an imported model.
    if "TRAIN_LANGUAGES" not in macros:
        return None
    gold = split_list(macros["TRAIN_LANGUAGES"])
    translated = split_list(macros.get("TRANSLATED"))
    labelled = macros.get("LABELLED")
    # Named languages need no files, which may be on another machine.
    if ALL not in (*gold, *translated) and not labelled:
        return {*gold, *translated}
    languages = set()
    try:
        training = Training(gold, translated, labelled=labelled)
        for name in split_list(macros.get("TASK")):
            # "all" is what the files were, so they are looked at again.
            for _, language in training.parts(task_named(name), macros["DATA"]):
                languages.add(language)
    except UserError:
        return None
    return languages or None

"""`xlingjax evaluate --mixture`: a checkpoint as it is, on every task of a benchmark, or of a
mixture of SeqIO, that it can do: a cell without a training.

A fine-tuned run does the tasks whose labels its head has; retrieval and mining read the states of
any.
"""

import dataclasses
import functools
import hashlib
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import jax

from xlingjax.config.text import import_tasks
from xlingjax.data.labelled.task import (
    TRAINED,
    Task,
    find,
    has_gold,
    languages_present,
    read,
)
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.task.predictions import head_fault, head_of, in_order_of, named_alike
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.inference.run import TrainedRun, open_run, parameters_hash
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.quiet import quiet_stderr
from xlingjax.tasks import suite_tasks, suites
from xlingjax.training.checkpoint_paths import find_checkpoint, step_of
from xlingjax.training.run_record import labels_of, read_run_record, run_and_checkpoint
from xlingjax.workflows.jobs.many import Say
from xlingjax.workflows.scorecard.cells import AS_IT_IS
from xlingjax.workflows.tasks.request import Bound, reading_of
from xlingjax.workflows.tasks.retrieval import ALL, Search, states
from xlingjax.workflows.tasks.scores import (
    predict_test,
    predictor,
    score,
    write_scores,
)
from xlingjax.workflows.tasks.sweep import require_folder
from xlingjax.workflows.tasks.text_to_text import measure_texts

Recipe = Callable[[], Bound]  # gives the macros of a run; {}: it has no recipe
FOUND = "found"  # in a cell that is not finished: what retrieval or mining gave in each language
LABELLED = ("classification", "ranking", "tagging")  # kinds whose heads have names of classes


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What the command line says."""

    mixture: str  # a benchmark, or any mixture or task of SeqIO that `modules` register
    source: str
    data: str
    output: str
    tasks: Collection[str] = ()  # names within the suite; empty: all
    split: str = ""  # "": test where it has answers, else dev
    allow_missing: bool = False
    layers: Sequence[int | str] = ()
    """Of retrieval and mining; none: the run's own, else the paper's. Several, or "all", are of
    retrieval alone: a table of each layer."""
    poolings: Sequence[str] = ()
    labels: Sequence[str] = ()
    """Of the head, whose own names do not tell: the task's, in the order of the outputs."""
    prefix: str | None = None  # none: the run's own, else none
    modules: Sequence[str] = ()  # Python modules that register `mixture`, where it is no benchmark
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
    """What is measured, and as what."""

    measurement: Measurement
    run: TrainedRun
    step: int
    macros: Bound
    say: Say

    @functools.cached_property
    def start(self) -> dict[str, str]:
        """The run and the hash of its parameters, as scores.json has them."""
        return {"run": self.measurement.source, "sha256": parameters_hash(self.run.params)}

    @property
    def name(self) -> str:
        # Weights and step: a run that was trained anew has other weights at the same step.
        return f"{self.start['sha256'][:8]}-step-{self.step}"

    def measured(self, task: Task, data: str, languages: Sequence[str]) -> bool:
        """Writes predictions and scores of a task, in a cell of its own; False: it cannot be
        done, which is said."""
        run = self.run
        labels = self._labels(task)
        fault = ""
        if task.kind in TRAINED:
            fault = head_fault(run.model, task, labels)
        elif run.sentences and run.sentences.unread and not self.measurement.poolings:
            unread = run.sentences.unread
            fault = f"its sentence vectors are not computed here ({unread}); --pooling"
        if fault:
            self.say(f"{task.full_name}: passed over, {fault}")
            return False
        # Models number XNLI's labels differently: the order is that of the head's outputs.
        task = in_order_of(task, labels)
        if self.measurement.allow_missing and run.model.config.has_languages:
            unknown = [name for name in languages if name not in run.languages]
            languages = [name for name in languages if name in run.languages]
            if unknown:
                names = ", ".join(unknown)
                self.say(f"{task.full_name}: passed over {names}, which the model does not know")
        split = self.measurement.split or _split(task, data, languages)
        present = languages_present(task, data, split) if split else []
        languages = [language for language in present if language in languages]
        if not languages:
            requested = self.measurement.split or "test or dev"
            self.say(f"{task.full_name}: passed over, no {requested} files below {data}")
            return False
        self._measure(task, data, split, languages)
        return True

    def _labels(self, task: Task) -> Sequence[str]:
        """The labels of the task's head, by --labels or by its own names. Raises UserError where
        --labels are not the task's, or the head's names say another order."""
        record = read_run_record(self.measurement.source)
        labels = labels_of(record, head_of(self.run.model, task))
        given = self.measurement.labels
        if not given or task.kind not in LABELLED or head_fault(self.run.model, task):
            return labels
        order = named_alike(task, given)
        # --labels are for heads whose own names do not tell, LABEL_0 and LABEL_1.
        if not order or (named_alike(task, labels) or order) != order:
            raise UserError(
                f"--labels {' '.join(given)}: {task.full_name} has {' '.join(task.labels)} and the"
                f" head {' '.join(labels)}: give each once, in the head's order"
            )
        return given

    def _measure(self, task: Task, data: str, split: str, languages: Sequence[str]) -> None:
        measurement, run, step = self.measurement, self.run, self.step
        reads = None
        if task.kind not in TRAINED:
            reads = states(
                task.kind,
                run.model.config.layers,
                run.sentences,
                measurement.layers,
                measurement.poolings,
                measurement.prefix,
            )
        # Nothing was chosen here; "note": what is to be said of it.
        select = {"split": split, "by": "none", "step": step, "steps": step}
        # Other weights, splits and prefixes have cells of their own.
        name = self.name
        if split != "test":
            name += f"-{split}"
        if reads:
            select |= {"note": reads.said(), **reads.text}
            if reads.prefix:
                # A prefix may hold what no file name can.
                name += f"-prefix-{hashlib.sha256(reads.prefix.encode()).hexdigest()[:8]}"
        if task.kind == "mining":
            flatters = ", so that its F1 flatters" if split == "dev" else ""
            select["note"] += f", threshold tuned on dev{flatters}"
        cells = Path(measurement.output).absolute() / "cells"
        folder = cells / task.suite / task.name / AS_IT_IS / name
        predictions = folder / "predictions"
        learnt = set()
        if reads:
            run_on_task = Search(run, task, data, reads, folder / FOUND, languages)
        else:
            run_on_task = predictor(run, task, data, reading_of(self.macros))
            learnt = languages_learnt(self.macros)
        # Who names a split wants that one alone.
        if not measurement.split and split != "test":
            predict_test(run_on_task, task, data, predictions, languages)
        test = score(run_on_task, task, data, split, languages, predictions, learnt)
        scores = {
            # Several runs and steps may be measured into one folder, and each is a row.
            "variant": {"run": run_and_checkpoint(measurement.source)[0].name, "step": str(step)},
            "start": self.start,
            "select": select,
            "machine": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        }
        if isinstance(run_on_task, Search) and run_on_task.layers and measurement.several:
            scores["layers"] = {
                "layer": run_on_task.reads.layer,
                "pooling": run_on_task.reads.pooling,
                "by_language": run_on_task.layers,
            }
        write_scores(folder, task, AS_IT_IS, test, **scores)
        # A measurement that is whole is made anew at the next start.
        shutil.rmtree(folder / FOUND, ignore_errors=True)
        how = f" ({reads.said()})" if reads else ""
        self.say(f"step {step}: {task.full_name}, {split}{how}: {_shown(task, test)}")


def measure(measurement: Measurement, recipe: Recipe = dict) -> int:
    """Writes predictions and scores of each task; the exit status. Raises UserError where no task
    can be done."""
    require_folder(measurement.output)
    # Before weights are read: a mixture that is not there, files that are missing.
    _tasks_of(measurement)
    run = open_run(measurement.source, mesh=mesh_of_all())
    # A folder of parameters alone has no step for its name.
    step = step_of(find_checkpoint(measurement.source).name) or 0
    return measure_checkpoint(measurement, run, step, recipe(), print)


def measure_checkpoint(
    measurement: Measurement, run: TrainedRun, step: int, macros: Bound, say: Say
) -> int:
    """`measure` of a run that is open."""
    # A layer that the model lacks is refused before the first task is measured.
    for layer in measurement.layers:
        if layer != ALL:
            chosen_layer(layer, run.model.config.layers)
    # In the precision of the run's own recipe, as in its training.
    checkpoint = Checkpoint(measurement, run.in_dtype(macros.get("DTYPE")), step, macros, say)
    benchmarks, texts = _tasks_of(measurement)
    # A suite is measured as far as the model goes, as a fine-tuned one has the head of one task.
    measured = [checkpoint.measured(*benchmark) for benchmark in benchmarks]
    if texts and run.model.config.decoder_layers:
        measure_texts(checkpoint, texts)
        measured.append(True)
    elif texts:
        names = ", ".join(task.name for task in texts)
        say(f"{names}: passed over, this model has no decoder: give an encoder-decoder")
    if not any(measured):
        raise UserError(
            f"--mixture {measurement.mixture}: {measurement.source} can do none of its tasks that"
            " have files (above)"
        )
    return 0


# ---- which tasks are measured --------------------------------------------------------------------


def _tasks_of(measurement: Measurement) -> tuple[list[tuple[Task, str, list[str]]], list]:
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
    for task in suite_tasks(measurement.mixture, measurement.tasks):
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


def _split(task: Task, data: str, languages: Collection[str]) -> str:
    """test where it has answers, else dev, else what there is; "": nothing."""
    present = []
    for split in ("test", "dev"):
        for language in languages_present(task, data, split):
            if language in languages:
                # One language tells of all.
                if has_gold(read(task, data, split, language)[0]):
                    return split
                present.append(split)
                break
    return next(iter(present), "")


def _shown(task: Task, test: Mapping) -> str:
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
    """Those that a run had training examples of; None: its recipe does not name them."""
    # A run of another recipe, or an imported model.
    if "TRAIN_LANGUAGES" not in macros:
        return None
    languages = {*split_list(macros["TRAIN_LANGUAGES"]), *split_list(macros.get("TRANSLATED"))}
    if ALL in languages or macros.get("LABELLED"):
        return None
    return languages or None

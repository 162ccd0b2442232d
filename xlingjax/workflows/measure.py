"""`xlingjax evaluate --mixture`: a checkpoint as it is, on every task of a benchmark that it can
do.

A fine-tuned run does the tasks whose labels its head has; retrieval and mining read the states of
any. The examples and the metrics are those of the benchmark's SeqIO mixture.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from xlingjax.config.text import import_tasks
from xlingjax.data.labelled.task import TRAINED, Task, languages_present, read
from xlingjax.data.labelled.tfds import located
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.task.heads import head_fault, head_of, in_order_of, named_alike
from xlingjax.evaluation.task.tested import has_gold
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.quiet import quiet_stderr
from xlingjax.tasks import suites
from xlingjax.training.checkpoint_paths import find_checkpoint, step_of
from xlingjax.training.run_record import labels_of, read_run_record
from xlingjax.workflows.measure_request import ALL, POOLINGS, Request
from xlingjax.workflows.measure_task import Checkpoint, measure_task
from xlingjax.workflows.measure_text import measure_texts
from xlingjax.workflows.sweep import parameters_hash, require_folder

Macros = Mapping[str, Any]
"""{macro: value} of a run's recipe; {}: it has none."""
Recipe = Callable[[], Macros]
LABELLED = ("classification", "ranking", "tagging")
"""Kinds whose heads have names of classes."""


def measure(request: Request, recipe: Recipe = dict, say: Callable[[str], None] = print) -> int:
    """Writes predictions and scores of each task; the exit status. Raises UserError where no task
    can be done."""
    require_folder(request.output)
    # Before weights are read: a mixture that is not there.
    _registered(request)
    trained = open_run(request.source, mesh=mesh_of_all())
    # A folder of parameters alone has no step for its name.
    step = step_of(find_checkpoint(request.source).name) or 0
    return measure_checkpoint(request, trained, step, recipe(), say)


def measure_checkpoint(
    request: Request, trained: TrainedRun, step: int, macros: Macros, say: Callable[[str], None]
) -> int:
    """`measure` of a run that is open."""
    # TensorFlow announces itself.
    with quiet_stderr():
        from xlingjax.tasks.registry import tasks_of
        from xlingjax.tasks.seqio_scores import scored_tasks

    # A layer that the model lacks is refused before the first task is measured.
    for layer in request.layers:
        if layer != ALL:
            chosen_layer(layer, trained.model.config.layers)
    # In the precision of the run's own recipe, as in its training.
    trained = trained.in_dtype(macros.get("DTYPE"))
    name = _registered(request)
    checkpoint = Checkpoint(trained, step, parameters_hash(trained.params), macros)
    record = read_run_record(request.source)
    benchmarks = tasks_of(name)
    measured_any = False
    texts = scored_tasks(name)
    if texts:
        measured_any = _measured_texts(request, checkpoint, texts, bool(benchmarks), say)
    for task, seqio_tasks in benchmarks:
        request = _of_files(request, seqio_tasks)
        labels = _labels(request, trained, task, record)
        fault = _fault(request, trained, task, labels)
        # A suite is measured as far as the model goes,
        # as a fine-tuned one has the head of one task.
        if fault:
            say(f"{task.full_name}: passed over, {fault}")
            continue
        # Models number XNLI's labels differently: the order is that of the head's outputs.
        task = in_order_of(task, labels)
        seqio_tasks = _known(request, trained, task, seqio_tasks, say)
        split = request.split or _split(task, request.data, seqio_tasks)
        if not _has_files(task, request.data, split, seqio_tasks):
            wanted = request.split or "test or dev"
            say(f"{task.full_name}: passed over, no {wanted} files below {request.data}")
            continue
        measure_task(request, checkpoint, task, seqio_tasks, split, say)
        measured_any = True
    if not measured_any:
        raise UserError(
            f"--mixture {request.mixture}: {request.source} can do none of its tasks that have"
            " files (above)"
        )
    return 0


def _registered(request: Request) -> str:
    """The name of the mixture, registered: of a benchmark that of its files."""
    if request.mixture not in suites():
        # TensorFlow announces itself.
        with quiet_stderr():
            from xlingjax.tasks.seqio_scores import scored_tasks

            import_tasks(request.modules)
            scored_tasks(request.mixture)
        return request.mixture
    with quiet_stderr():
        from xlingjax.tasks.registry import register
    folder = located(request.data)
    # SeqIO keeps one mixture of a name in a process, so the name tells tasks and files apart.
    name = "_".join([request.mixture, *request.tasks, str(abs(hash(folder)))])
    return register(
        request.mixture,
        folder,
        METRICS,
        tasks=request.tasks,
        allow_missing=request.allow_missing,
        name=name,
    )


def _of_files(request: Request, seqio_tasks: Mapping[str, Any]) -> Request:
    """The request of a task, whose files lie where it was registered with them."""
    source = next(iter(seqio_tasks.values())).source
    return dataclasses.replace(request, data=source.folder)


def _measured_texts(
    request: Request,
    checkpoint: Checkpoint,
    tasks: Sequence[Any],
    beside_others: bool,
    say: Callable[[str], None],
) -> bool:
    """Whether the model writes texts, and the tasks of text to text are measured. beside_others:
    the mixture has other tasks, which it may do."""
    if checkpoint.trained.model.config.decoder_layers:
        measure_texts(request, checkpoint, tasks, say)
        return True
    fault = f"{request.source} has no decoder and writes no text: give an encoder-decoder"
    if not beside_others:
        raise UserError(
            f"--mixture {request.mixture}: {tasks[0].name} is a task of text to text, and {fault}"
        )
    for task in tasks:
        say(f"{task.name}: passed over, {fault}")
    return False


# ---- what the run can do -------------------------------------------------------------------------


def _labels(
    request: Request, trained: TrainedRun, task: Task, record: Mapping[str, Any]
) -> Sequence[str]:
    """The labels of the task's head, by --labels or by its own names. record: the run's. Raises
    UserError where --labels are not the task's."""
    labels = labels_of(record, head_of(trained.model, task))
    if request.labels and task.kind in LABELLED and not head_fault(trained.model, task):
        return given_labels(task, request.labels, labels)
    return labels


def _fault(request: Request, trained: TrainedRun, task: Task, labels: Sequence[str]) -> str:
    """Why the run cannot do the task; "": it can. labels: of the head."""
    if task.kind in TRAINED:
        return head_fault(trained.model, task, labels)
    own = trained.sentences
    if task.kind in POOLINGS and own and own.unread and not request.poolings:
        return f"its sentence vectors are not computed here ({own.unread}); --pooling"
    return ""


def given_labels(task: Task, given: Sequence[str], labels: Sequence[str]) -> Sequence[str]:
    """`given`, what --labels says of a head of the task, whose own names are `labels`. Raises
    UserError where these are not the task's, and where the head's names say another order."""
    order = named_alike(task, given)
    if not order:
        raise UserError(
            f"--labels {' '.join(given)}: {task.full_name} has {' '.join(task.labels)}: give each"
            " once"
        )
    known = named_alike(task, labels)
    # --labels are for heads whose own names do not tell, LABEL_0 and LABEL_1.
    if known and known != order:
        raise UserError(
            f"--labels {' '.join(given)}: the head's are {' '.join(labels)}, in this order: leave"
            " it out"
        )
    return given


def _known(
    request: Request,
    trained: TrainedRun,
    task: Task,
    seqio_tasks: Mapping[str, Any],
    say: Callable[[str], None],
) -> Mapping[str, Any]:
    """With --allow-missing a model that embeds languages passes over those that it does not
    know."""
    if not request.allow_missing or not trained.model.config.has_languages:
        return seqio_tasks
    unknown = [name for name in seqio_tasks if name not in trained.languages]
    if not unknown:
        return seqio_tasks
    say(f"{task.full_name}: passed over {', '.join(unknown)}, which the model does not know")
    return {name: one for name, one in seqio_tasks.items() if name not in unknown}


# ---- which set is measured -----------------------------------------------------------------------


def _split(task: Task, data: str, languages: Collection[str]) -> str:
    """test where it has answers, else dev, else what there is; "": nothing."""
    answered = {}
    for split in ("test", "dev"):
        for name in languages_present(task, data, split):
            if name in languages:
                answered[split] = has_gold(task, read(task, data, split, name))
                # One language tells of all.
                break
    for split, has_answers in answered.items():
        if has_answers:
            return split
    return next(iter(answered), "")


def _has_files(task: Task, data: str, split: str, languages: Collection[str]) -> bool:
    if not split:
        return False
    return not set(languages).isdisjoint(languages_present(task, data, split))

"""`xlingjax evaluate --mixture`: a checkpoint as it is, on every task of a benchmark that it can
do.

A fine-tuned run does the tasks whose labels its head has; retrieval and mining read the states of
any. The examples and the metrics are those of the benchmark's SeqIO mixture.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import TRAINED, Task, languages_present, part_of, read, share_rows
from xlingjax.data.labelled.tfds import located
from xlingjax.data.sources import split_list
from xlingjax.errors import Stopped, UserError
from xlingjax.evaluation import bucc, tatoeba
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.submissions import write_predictions
from xlingjax.evaluation.task import (
    has_gold,
    head_fault,
    head_of,
    in_order_of,
    means,
    named_alike,
    predict,
    translations,
)
from xlingjax.evaluation.tatoeba import accuracy, chosen_layer, predict_layers
from xlingjax.inference.encode import POOLINGS as ALL_POOLINGS
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.inference.sentences import LONGEST, Sentences
from xlingjax.model.partition import mesh_of_all
from xlingjax.preprocessors.task import Reading, Training
from xlingjax.runtime.files import write_json
from xlingjax.runtime.quiet import quiet_stderr
from xlingjax.training.checkpoint import checkpoint_steps, find_checkpoint, read_best
from xlingjax.training.run_record import labels_of, read_run_record, run_and_checkpoint
from xlingjax.workflows.cell import reading_of
from xlingjax.workflows.scorecard import AS_IT_IS, SCORES
from xlingjax.workflows.sweep import parameters_hash, require_folder

Macros = Mapping[str, Any]
"""{macro: value} of a run's recipe; {}: it has none."""
Recipe = Callable[[], Macros]
ALL = "all"
LABELLED = ("classification", "ranking", "tagging")
"""Kinds whose heads have names of classes."""
POOLINGS = {"retrieval": "mean", "mining": "first"}
"""XTREME's scripts pool Tatoeba's sentences by the mean and BUCC's by the first token."""
PAPER_LAYERS = {"retrieval": tatoeba.paper_layer, "mining": bucc.paper_layer}


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line says."""

    mixture: str
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

    @property
    def several(self) -> bool:
        return (
            len(self.layers) > 1 or len(self.poolings) > 1 or ALL in (*self.layers, *self.poolings)
        )


@dataclasses.dataclass(frozen=True)
class States:
    """Which states of a model retrieval or mining reads."""

    layer: int
    """Of the score and the submission: the one that was asked for, else the run's own, else the
    paper's."""
    pooling: str
    layers: tuple[int, ...]
    """All that are measured."""
    poolings: tuple[str, ...]
    prefix: str = ""
    max_length: int = LONGEST

    @property
    def text(self) -> dict[str, Any]:
        """What of the text is read, where it is not the sentences' first 256 tokens alone."""
        told = {"prefix": self.prefix, "max_length": self.max_length}
        return {name: value for name, value in told.items() if value != getattr(States, name)}

    def said(self) -> str:
        prefix = f", prefix {self.prefix!r}" if self.prefix else ""
        longest = f", at most {self.max_length} tokens" if "max_length" in self.text else ""
        return f"layer {self.layer}, pooled by {self.pooling}{prefix}{longest}"


def states(request: Request, kind: str, layers: int, own: Sentences | None = None) -> States:
    """layers: of the model; own: the run's own way to make sentence vectors. Raises UserError where
    it has no such layer."""
    every = (
        range(layers + 1)
        if ALL in request.layers
        else [chosen_layer(n, layers) for n in request.layers]
    )
    poolings = ALL_POOLINGS if ALL in request.poolings else request.poolings
    usual = own or Sentences(PAPER_LAYERS[kind](layers), POOLINGS[kind])
    layer = layers if usual.layer is None else usual.layer
    layer = every[0] if len(every) == 1 else layer
    pooling = poolings[0] if len(poolings) == 1 else usual.pooling or POOLINGS[kind]
    measured = tuple(name for name in ALL_POOLINGS if name in (*poolings, pooling))
    prefix = usual.prefix if request.prefix is None else request.prefix
    return States(
        layer, pooling, tuple(sorted({*every, layer})), measured, prefix, usual.max_length
    )


def measure(request: Request, recipe: Recipe = dict, say: Callable[[str], None] = print) -> int:
    """Writes predictions and scores of each task; the exit status. Raises UserError where no task
    can be done."""
    require_folder(request.output)
    trained = open_run(request.source, mesh=mesh_of_all())
    return _measure(request, trained, int(find_checkpoint(request.source).name), recipe(), say)


def told_labels(task: Task, told: Sequence[str], labels: Sequence[str]) -> Sequence[str]:
    """`told`, what --labels says of a head of the task, whose own names are `labels`. Raises
    UserError where these are not the task's, and where the head's names say another order."""
    if not named_alike(task, told):
        raise UserError(
            f"--labels {' '.join(told)}: {task.full_name} has {' '.join(task.labels)}: give each"
            " once"
        )
    known = named_alike(task, labels)
    if known and known != named_alike(task, told):
        raise UserError(
            f"--labels {' '.join(told)}: the head's are {' '.join(labels)}, in this order: leave"
            " it out"
        )
    return told


def _measure(
    request: Request, trained: TrainedRun, step: int, macros: Macros, say: Callable[[str], None]
) -> int:
    with quiet_stderr():  # TensorFlow announces itself
        from xlingjax.tasks.registry import register, tasks_of

    for layer in request.layers:
        if layer != ALL:
            chosen_layer(layer, trained.model.config.layers)
    trained = trained.in_dtype(macros.get("DTYPE"))
    folder = located(request.data)
    name = "_".join([request.mixture, *request.tasks, str(abs(hash(folder)))])
    register(
        request.mixture,
        folder,
        METRICS,
        tasks=request.tasks,
        allow_missing=request.allow_missing,
        name=name,
    )
    weights, record = parameters_hash(trained.params), read_run_record(request.source)
    done, own = 0, trained.sentences
    for task, of_languages in tasks_of(name):
        if task.kind in POOLINGS and own and own.unread and not request.poolings:
            say(
                f"{task.full_name}: passed over, its sentence vectors are not computed here"
                f" ({own.unread}); --pooling"
            )
            continue
        labels = labels_of(record, head_of(trained.model, task))
        if request.labels and task.kind in LABELLED and not head_fault(trained.model, task):
            labels = told_labels(task, request.labels, labels)
        if task.kind in TRAINED and (fault := head_fault(trained.model, task, labels)):
            say(f"{task.full_name}: passed over, {fault}")
            continue
        task = in_order_of(task, labels)
        of_languages = _known(request, trained, task, of_languages, say)
        split = request.split or _split(task, request.data, of_languages)
        if split and {*of_languages} & {*languages_present(task, request.data, split)}:
            _measure_task(request, trained, step, weights, task, of_languages, split, macros, say)
            done += 1
        else:
            say(
                f"{task.full_name}: passed over, no {request.split or 'test or dev'} files below"
                f" {request.data}"
            )
    if not done:
        raise UserError(
            f"--mixture {request.mixture}: {request.source} can do none of its tasks that have"
            " files (above)"
        )
    return 0


# ---- a run that is being trained -----------------------------------------------------------------


def follow(
    request: Request,
    run: str,
    recipe: Recipe = dict,
    say: Callable[[str], None] = print,
    patience: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
    pause: float = 5.0,
) -> int:
    """`measure` on each checkpoint of a run that is being trained, until it has finished and its
    last is measured. A checkpoint that the run deleted first (KEEP_CHECKPOINTS) is passed over.

    patience: minutes in which nothing in the run's folder changes, 0: for ever. Then: raises
    Stopped where the run was asked to stop, UserError where it does not say why. pause: seconds
    between two looks.
    """
    require_folder(request.output)
    folder, seen, told = run_and_checkpoint(run)[0], -1, False
    if not (folder / "run.json").is_file() and not folder.is_dir():
        raise UserError(f"--follow {run}: no such folder; give the --workdir of a run")
    there, since = _written(folder), clock()
    while True:
        reason = _exit_reason(folder)  # before the steps are listed, so that none is missed
        for step in [step for step in checkpoint_steps(folder / "checkpoints") if step > seen]:
            source = f"{folder}@{step}"
            if trained := _opened(folder, step, pause, wait):
                _measure(dataclasses.replace(request, source=source), trained, step, recipe(), say)
            else:
                say(
                    f"step {step}: passed over, the run deleted this checkpoint (KEEP_CHECKPOINTS"
                    " keeps more)"
                )
            seen = step
        if reason == "finished":
            return 0
        if reason and not told:
            say(f"{folder}: the run was asked to stop; waiting for it to be started again")
        told = bool(reason)
        if (now := _written(folder)) != there:
            there, since = now, clock()
        elif patience and clock() - since >= 60 * patience:
            last = f"after step {seen}" if seen >= 0 else "before its first checkpoint"
            if reason:
                raise Stopped(f"--follow {run}: it was asked to stop {last} and not started again")
            raise UserError(
                f"--follow {run}: nothing was written there for {patience:g} minutes and it has not"
                f" said that it ended ({last}): start it again and follow it again, or raise"
                " --patience"
            )
        wait(pause)


def _exit_reason(folder: Path) -> str:
    """ "finished", "preempted" (asked to stop; it may go on); "": it has not ended, or was
    killed."""
    try:
        return json.loads((folder / "result.json").read_text(encoding="utf-8")).get(
            "exit_reason", "finished"
        )
    except FileNotFoundError:
        return ""


def _written(folder: Path) -> set[tuple[str, int, int]]:
    """(name, time of its last change, size) of what lies in a run's folder and among its
    checkpoints."""
    found = set()
    for path in (*folder.glob("*"), *folder.glob("checkpoints/*")):
        try:
            told = path.stat()
        except FileNotFoundError:  # deleted since it was listed
            continue
        found.add((str(path), told.st_mtime_ns, told.st_size))
    return found


def _opened(
    folder: Path, step: int, pause: float, wait: Callable[[float], None]
) -> TrainedRun | None:
    """The run at a step; None: that checkpoint is deleted. Raises UserError where it is there and
    cannot be read."""
    try:
        return open_run(f"{folder}@{step}", mesh=mesh_of_all())
    except UserError:
        if step in checkpoint_steps(folder / "checkpoints"):
            wait(pause)  # a checkpoint is deleted file by file
        if step in checkpoint_steps(folder / "checkpoints"):
            raise
        return None


# ---- a task --------------------------------------------------------------------------------------


def _known(
    request: Request, trained: TrainedRun, task: Task, of_languages: Mapping[str, Any], say
) -> Mapping[str, Any]:
    """With --allow-missing a model that embeds languages passes over those that it does not
    know."""
    known = {name: one for name, one in of_languages.items() if name in trained.languages}
    if (
        not request.allow_missing
        or not trained.model.config.has_languages
        or len(known) == len(of_languages)
    ):
        return of_languages
    others = ", ".join(name for name in of_languages if name not in known)
    say(f"{task.full_name}: passed over {others}, which the model does not know")
    return known


def _split(task: Task, data: str, of_languages: Collection[str]) -> str:
    """test where it has answers, else dev, else what there is; "": nothing."""
    there = {}
    for split in ("test", "dev"):
        if present := [
            name for name in languages_present(task, data, split) if name in of_languages
        ]:
            there[split] = has_gold(task, read(task, data, split, present[0]))
    return next((split for split, told in there.items() if told), next(iter(there), ""))


def _measure_task(
    request: Request,
    trained: TrainedRun,
    step: int,
    weights: str,
    task: Task,
    of_languages,
    split: str,
    macros: Macros,
    say,
) -> None:
    from xlingjax.tasks.registry import record_of

    name = f"{weights[:8]}-step-{step}" + ("" if split == "test" else f"-{split}")
    reads = None
    if task.kind in POOLINGS:
        reads = states(request, task.kind, trained.model.config.layers, trained.sentences)
        name += (
            f"-prefix-{hashlib.sha256(reads.prefix.encode()).hexdigest()[:8]}"
            if reads.prefix
            else ""
        )
    cell = Path(request.output).absolute() / "cells" / task.suite / task.name / AS_IT_IS / name
    reading = reading_of(macros)
    by_language, counts = {}, {}
    by_layer: dict[str, dict[str, dict[str, float]]] = {}  # pooling, language, layer
    for language in languages_present(task, request.data, split):
        if language not in of_languages:
            continue
        seqio_task = of_languages[language]
        examples = seqio_task.get_dataset(None, split, shuffle=False).as_numpy_iterator()
        records = [record_of(example, task.kind) for example in examples]
        if task.kind == "retrieval":
            found = _searched(trained, records[0], language, reads)
            predicted = found[reads.pooling][reads.layer]
        else:
            predicted = _predicted(request, trained, task, records, language, split, reading, reads)
        write_predictions(task, cell / "predictions", language, predicted, split.partition("[")[0])
        outputs = (
            [predicted[record.id] for record in records] if task.kind == "span_qa" else predicted
        )
        outputs = [predicted] if task.kind in POOLINGS else outputs
        if has_gold(task, records):
            metrics = [fn(records, outputs) for fn in seqio_task.metric_fns]
            by_language[language] = {
                name: float(value) for one in metrics for name, value in one.items()
            }
            if task.kind == "retrieval":
                for pooling, lines in found.items():
                    shares = {
                        str(layer): 100 * accuracy(line, records[0])
                        for layer, line in lines.items()
                    }
                    by_layer.setdefault(pooling, {})[language] = shares
        counts[language] = len(records[0].target) if task.kind in POOLINGS else len(records)
    if not request.split and split != "test":  # what is to be submitted
        for language in languages_present(task, request.data, "test"):
            if language not in of_languages:
                continue
            records = read(task, request.data, "test", language)
            predicted = _predicted(
                request, trained, task, records, language, "test", reading, reads
            )
            write_predictions(task, cell / "predictions", language, predicted)
    learnt = languages_learnt(macros) if task.kind in TRAINED else ()
    found = means(by_language, task, learnt or ()) if by_language else {}
    if learnt is None:  # which languages are untrained is not known
        found.pop("mean_other", None)
    select = {"split": split, "by": "none", "step": step, "steps": step}
    best = read_best(run_and_checkpoint(request.source)[0]).get(macros.get("BEST_METRIC"), {})
    if step == best.get("step") and (
        chosen := chosen_on(macros, task, request.data, split, by_language)
    ):
        select["note"] = chosen
    if reads:
        select |= {"note": reads.said(), **reads.text}
        if task.kind == "mining":
            select["note"] += (
                ", threshold tuned on"
                f" {'the same set, so that its F1 flatters' if split == 'dev' else 'dev'}"
            )
    before = _layers_before(cell / SCORES, weights, split, counts, reads)
    if not request.several and not before:
        by_layer = {}
    if before and by_layer:
        by_layer = {
            pooling: {
                language: (
                    before.get(pooling, {}).get(language, {})
                    | by_layer.get(pooling, {}).get(language, {})
                )
                for language in by_language
            }
            for pooling in ALL_POOLINGS
            if pooling in (*before, *by_layer)
        }
    import jax

    write_json(
        cell / SCORES,
        {
            "task": task.full_name,
            "strategy": AS_IT_IS,
            "variant": {"run": run_and_checkpoint(request.source)[0].name, "step": str(step)},
            "settings": {},
            "seed": 0,
            "start": {"run": request.source, "sha256": weights},
            "select": select,
            "dev": {"means": {}, "by_language": {}},
            "test": {
                "split": split,
                "means": found,
                "by_language": by_language,
                "examples": counts,
            },
            "machine": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
            **(
                {
                    "layers": {
                        "layer": reads.layer,
                        "pooling": reads.pooling,
                        "by_language": by_layer,
                    }
                }
                if by_layer
                else {}
            ),
        },
    )
    score = task.metrics[0]
    mean_of = " and ".join(task_metrics(task))
    told = ", ".join(f"{language} {values[score]:.1f}" for language, values in by_language.items())
    mean = (
        f"mean {mean_of} {found['mean']:.2f}; {score} {told}"
        if found
        else "predicted; the files have no answers"
    )
    how = f" ({reads.said()})" if reads else ""
    say(f"step {step}: {task.full_name}, {split}{how}: {mean}")
    if task.kind == "retrieval" and request.several and not by_layer:
        say(f"{task.full_name}: no table of layers, since the files have no gold to score against")


def _layers_before(
    path: Path, weights: str, split: str, counts: Mapping[str, int], reads: States | None
) -> Mapping[str, Any]:
    """{pooling: {language: {layer: x}}} that the cell has already of these weights, sets and
    lengths."""
    cell = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not reads or "layers" not in cell or cell["start"]["sha256"] != weights:
        return {}
    text = {
        name: cell["select"][name] for name in ("prefix", "max_length") if name in cell["select"]
    }
    same = (
        cell["test"]["split"] == split and cell["test"]["examples"] == counts and text == reads.text
    )
    return cell["layers"]["by_language"] if same else {}


def _searched(
    trained: TrainedRun, bitext: Any, language: str, reads: States
) -> dict[str, dict[int, list[int]]]:
    """{pooling: {layer: the foreign line that each English line finds}}."""
    return predict_layers(
        trained.model, trained.params, bitext, trained.vocabulary, language, trained.languages,
        poolings=reads.poolings, layers=reads.layers, mesh=trained.mesh, **reads.text,
    )  # fmt: skip


def _predicted(
    request: Request,
    trained: TrainedRun,
    task,
    records,
    language: str,
    split: str,
    reading: Reading,
    reads: States | None,
) -> Any:
    if task.kind == "retrieval":
        return _searched(trained, records[0], language, reads)[reads.pooling][reads.layer]
    model = trained.model, trained.params
    if task.kind == "mining":
        dev = records[0] if split == "dev" else read(task, request.data, "dev", language)[0]
        return bucc.predict_mining(
            *model,
            records[0],
            dev,
            trained.vocabulary,
            language,
            trained.languages,
            layer=reads.layer,
            pooling=reads.pooling,
            mesh=trained.mesh,
            **reads.text,
        ).pairs
    pivot = translations(trained.model, task, request.data, split, language)
    return predict(
        *model,
        task,
        records,
        trained.vocabulary,
        trained.languages,
        language,
        reading,
        mesh=trained.mesh,
        pivot=pivot,
    )


# ---- what a run was trained on and chosen by -----------------------------------------------------


def languages_learnt(macros: Mapping[str, Any]) -> set[str] | None:
    """Those that a run had training examples of, gold, translated or labelled; None: its recipe
    does not tell, or its files, which "all" is looked up in, are gone."""
    from xlingjax.tasks import task_named

    if "TRAIN_LANGUAGES" not in macros:
        return None
    gold, translated = split_list(macros["TRAIN_LANGUAGES"]), split_list(macros.get("TRANSLATED"))
    labelled = macros.get("LABELLED")
    if ALL not in (*gold, *translated) and not labelled:
        return {*gold, *translated}
    try:
        tasks = [task_named(name) for name in split_list(macros.get("TASK"))]
        training = Training(gold, translated, labelled=labelled)
        return {
            language for task in tasks for _, language in training.parts(task, macros["DATA"])
        } or None
    except UserError:
        return None


def chosen_on(
    macros: Mapping[str, Any], task: Task, data: str, split: str, languages: Collection[str]
) -> str:
    """A line, where a run chose its checkpoint by examples of a split that it is measured on; "":
    it did not."""
    trained = {
        name.partition("/")[2].lower() for name in split_list(macros.get("TASK"))
    }  # XNLI stands in several suites
    metric, dev = macros.get("BEST_METRIC"), macros.get("DEV_SPLIT")
    if (
        task.name.lower() not in trained
        or not metric
        or not dev
        or part_of(dev)[0] != part_of(split)[0]
    ):
        return ""
    for language in languages:
        if share_rows(dev, split, len(read(task, data, part_of(split)[0], language))):
            return (
                f"whose checkpoint was chosen by {metric} on {dev}, examples of this split: its"
                " figures flatter"
            )
    return ""

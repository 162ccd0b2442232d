"""A checkpoint on one task: its predictions, its scores, and for retrieval a table of layers."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from xlingjax.data.labelled.task import TRAINED, Task, languages_present, read
from xlingjax.evaluation import bucc
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.submissions import write_predictions
from xlingjax.evaluation.task.predictions import translations
from xlingjax.evaluation.task.scores import means
from xlingjax.evaluation.task.seqio_predictions import scores_of_predictions
from xlingjax.evaluation.task.tested import has_gold
from xlingjax.evaluation.tatoeba import accuracy, predict_layers
from xlingjax.inference.encode import POOLINGS as ALL_POOLINGS
from xlingjax.inference.run import TrainedRun
from xlingjax.runtime.files import write_json
from xlingjax.training.checkpoint_paths import read_best
from xlingjax.training.run_record import run_and_checkpoint
from xlingjax.workflows.cell import reading_of
from xlingjax.workflows.measure_request import POOLINGS, Request, States, states
from xlingjax.workflows.predictions import predicted
from xlingjax.workflows.run_history import chosen_on, languages_learnt
from xlingjax.workflows.scorecard.cells import AS_IT_IS, SCORES, scores_in

Layers = dict[str, dict[str, dict[str, float]]]
"""{pooling: {language: {layer: accuracy in percent}}}."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What is measured."""

    trained: TrainedRun
    step: int
    weights: str
    """The hash of its parameters."""
    macros: Mapping[str, Any]
    """{macro: value} of the run's recipe; {}: it has none."""


@dataclasses.dataclass(frozen=True)
class _Measurement:
    """One task of a checkpoint, on one split."""

    request: Request
    checkpoint: Checkpoint
    task: Task
    split: str
    reads: States | None
    """Of retrieval and mining."""

    @property
    def folder(self) -> Path:
        """The cell. Other weights, splits and prefixes have cells of their own."""
        # Weights and step: a run that was trained anew has other weights at the same step.
        name = f"{self.checkpoint.weights[:8]}-step-{self.checkpoint.step}"
        if self.split != "test":
            name += f"-{self.split}"
        if self.reads and self.reads.prefix:
            # A prefix may hold what no file name can.
            name += f"-prefix-{hashlib.sha256(self.reads.prefix.encode()).hexdigest()[:8]}"
        cells = Path(self.request.output).absolute() / "cells"
        return cells / self.task.suite / self.task.name / AS_IT_IS / name


@dataclasses.dataclass
class _Result:
    """What came of a measurement, by language."""

    scores: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    examples: dict[str, int] = dataclasses.field(default_factory=dict)
    layers: Layers = dataclasses.field(default_factory=dict)


def measure_task(
    request: Request,
    checkpoint: Checkpoint,
    task: Task,
    seqio_tasks: Mapping[str, Any],
    split: str,
    say: Callable[[str], None],
) -> None:
    """Writes predictions and scores of a task. seqio_tasks: of each language that is measured."""
    reads = None
    if task.kind in POOLINGS:
        trained = checkpoint.trained
        reads = states(request, task.kind, trained.model.config.layers, trained.sentences)
    measurement = _Measurement(request, checkpoint, task, split, reads)
    result = _Result()
    for language in languages_present(task, request.data, split):
        if language in seqio_tasks:
            _measure_language(measurement, language, seqio_tasks[language], result)
    # Who names a split wants that one alone.
    if not request.split and split != "test":
        _predict_test_sets(measurement, seqio_tasks)

    overall = _means(measurement, result.scores)
    layers = _layer_table(measurement, result)
    _write_scores(measurement, result, overall, layers)
    how = ""
    if reads:
        how = f" ({reads.said()})"
    shown = _shown(task, overall, result.scores)
    say(f"step {checkpoint.step}: {task.full_name}, {split}{how}: {shown}")
    if task.kind == "retrieval" and request.several and not layers:
        say(f"{task.full_name}: no table of layers, since the files have no gold to score against")


def _measure_language(
    measurement: _Measurement, language: str, seqio_task: Any, result: _Result
) -> None:
    """Predicts the examples of a language as SeqIO gives them, and adds their scores to `result`,
    by SeqIO's metrics."""
    # Here, since it imports SeqIO and TensorFlow, which take seconds.
    from xlingjax.tasks.registry import record_of

    # Not our own reader: what is measured is what others get of the SeqIO task.
    examples = seqio_task.get_dataset(None, measurement.split, shuffle=False).as_numpy_iterator()
    records = [record_of(example, measurement.task.kind) for example in examples]
    lines_by_layer = {}
    # All layers in one pass over the sentences.
    if measurement.task.kind == "retrieval":
        lines_by_layer = _search(measurement, records[0], language)
        prediction = lines_by_layer[measurement.reads.pooling][measurement.reads.layer]
    else:
        prediction = _predict(measurement, records, language, measurement.split)
    # The file is named by the set, of which the split may be a part.
    name = measurement.split.partition("[")[0]
    write_predictions(
        measurement.task, measurement.folder / "predictions", language, prediction, name
    )
    result.examples[language] = _count(measurement.task, records)
    # Predicted all the same, since official test sets are to be submitted.
    if not has_gold(measurement.task, records):
        return
    result.scores[language] = _scores(
        measurement.task, seqio_task, measurement.split, records, prediction
    )
    for pooling, lines in lines_by_layer.items():
        shares = {}
        for layer, line in lines.items():
            shares[str(layer)] = 100 * accuracy(line, records[0])
        result.layers.setdefault(pooling, {})[language] = shares


def _count(task: Task, records: Sequence[Any]) -> int:
    """How many examples there are."""
    # Of retrieval and mining one record is a whole bitext.
    if task.kind in POOLINGS:
        return len(records[0].target)
    return len(records)


def _scores(
    task: Task, seqio_task: Any, split: str, records: Sequence[Any], prediction: Any
) -> dict[str, float]:
    """{metric: value} by `seqio.Evaluator`; of a bitext, which has no texts to write, by the task's
    metrics themselves."""
    if task.kind not in POOLINGS:
        return scores_of_predictions(task, seqio_task, split, records, prediction)
    scores = {}
    for metric in seqio_task.metric_fns:
        for name, value in metric(records, [prediction]).items():
            scores[name] = float(value)
    return scores


# ---- predictions ---------------------------------------------------------------------------------


def _predict_test_sets(measurement: _Measurement, languages: Iterable[str]) -> None:
    """Writes what is submitted where the test sets have no answers and dev is measured."""
    task = measurement.task
    for language in languages_present(task, measurement.request.data, "test"):
        if language in languages:
            records = read(task, measurement.request.data, "test", language)
            prediction = _predict(measurement, records, language, "test")
            write_predictions(task, measurement.folder / "predictions", language, prediction)


def _predict(measurement: _Measurement, records: Sequence[Any], language: str, split: str) -> Any:
    """What the checkpoint predicts for the records of a split."""
    if measurement.task.kind == "retrieval":
        return _search(measurement, records[0], language)[measurement.reads.pooling][
            measurement.reads.layer
        ]
    if measurement.task.kind == "mining":
        return _mine(measurement, records[0], language, split)
    trained = measurement.checkpoint.trained
    pivot = translations(trained.model, measurement.task, measurement.request.data, split, language)
    reading = reading_of(measurement.checkpoint.macros)
    return predicted(trained, measurement.task, records, language, reading, pivot)


def _search(
    measurement: _Measurement, bitext: Any, language: str
) -> dict[str, dict[int, list[int]]]:
    """{pooling: {layer: the foreign line that each English line finds}}."""
    trained = measurement.checkpoint.trained
    return predict_layers(
        trained.model,
        trained.params,
        bitext,
        trained.vocabulary,
        language,
        trained.languages,
        poolings=measurement.reads.poolings,
        layers=measurement.reads.layers,
        mesh=trained.mesh,
        **measurement.reads.text,
    )


def _mine(measurement: _Measurement, bitext: Any, language: str, split: str) -> Any:
    """The pairs that are mined; their threshold is tuned on dev."""
    trained = measurement.checkpoint.trained
    # BUCC's threshold is chosen on dev's gold, as its script does.
    if split == "dev":
        dev = bitext
    else:
        dev = read(measurement.task, measurement.request.data, "dev", language)[0]
    mined = bucc.predict_mining(
        trained.model,
        trained.params,
        bitext,
        dev,
        trained.vocabulary,
        language,
        trained.languages,
        layer=measurement.reads.layer,
        pooling=measurement.reads.pooling,
        mesh=trained.mesh,
        **measurement.reads.text,
    )
    return mined.pairs


# ---- a table of layers ---------------------------------------------------------------------------


def _layer_table(measurement: _Measurement, result: _Result) -> Layers:
    """The accuracy of each layer; {}: none is wanted. A table of the same weights that was written
    before is added to, so that layers can be measured one after another."""
    before = _layers_before(measurement, result)
    if not measurement.request.several and not before:
        return {}
    if not before or not result.layers:
        return result.layers
    # In one order, whichever was measured first.
    table = {}
    for pooling in ALL_POOLINGS:
        if pooling in before or pooling in result.layers:
            old = before.get(pooling, {})
            new = result.layers.get(pooling, {})
            table[pooling] = {}
            for language in result.scores:
                table[pooling][language] = old.get(language, {}) | new.get(language, {})
    return table


def _layers_before(measurement: _Measurement, result: _Result) -> Layers:
    """What the cell has already of these weights, sets and lengths."""
    path = measurement.folder / SCORES
    if not measurement.reads or not path.is_file():
        return {}
    cell = scores_in(path)
    # Layers of other weights, examples or prefixes are no rows of one table.
    if "layers" not in cell or cell["start"]["sha256"] != measurement.checkpoint.weights:
        return {}
    if cell["test"]["split"] != measurement.split or cell["test"]["examples"] != result.examples:
        return {}
    text = {}
    for name in ("prefix", "max_length"):
        if name in cell["select"]:
            text[name] = cell["select"][name]
    if text != measurement.reads.text:
        return {}
    return cell["layers"]["by_language"]


# ---- scores --------------------------------------------------------------------------------------


def _means(
    measurement: _Measurement, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The means over languages; {}: there are no answers."""
    learnt = ()
    # Retrieval and mining have no training languages.
    if measurement.task.kind in TRAINED:
        learnt = languages_learnt(measurement.checkpoint.macros)
    if not scores:
        return {}
    overall = means(scores, measurement.task, learnt or ())
    # Which languages are untrained is not known.
    if learnt is None:
        overall.pop("mean_other", None)
    return overall


def _select(measurement: _Measurement, scores: Mapping[str, Any]) -> dict[str, Any]:
    """ "select" of scores.json: nothing was chosen here, and what is to be noted of it."""
    checkpoint = measurement.checkpoint
    step = checkpoint.step
    select: dict[str, Any] = {"split": measurement.split, "by": "none", "step": step, "steps": step}
    # Figures on the examples that chose the checkpoint flatter.
    best = read_best(run_and_checkpoint(measurement.request.source)[0])
    if step == best.get(checkpoint.macros.get("BEST_METRIC"), {}).get("step"):
        note = chosen_on(
            checkpoint.macros, measurement.task, measurement.request.data, measurement.split, scores
        )
        if note:
            select["note"] = note
    if measurement.reads:
        select |= {"note": measurement.reads.said(), **measurement.reads.text}
    if measurement.task.kind == "mining":
        tuned_on = "dev"
        if measurement.split == "dev":
            tuned_on = "the same set, so that its F1 flatters"
        select["note"] += f", threshold tuned on {tuned_on}"
    return select


def _write_scores(
    measurement: _Measurement, result: _Result, overall: Mapping[str, float], layers: Layers
) -> None:
    checkpoint = measurement.checkpoint
    run = run_and_checkpoint(measurement.request.source)[0]
    scores = {
        "task": measurement.task.full_name,
        "strategy": AS_IT_IS,
        # Several runs and steps may be measured into one folder, and each is a row.
        "variant": {"run": run.name, "step": str(checkpoint.step)},
        "settings": {},
        "seed": 0,
        "start": {"run": measurement.request.source, "sha256": checkpoint.weights},
        "select": _select(measurement, result.scores),
        "dev": {"means": {}, "by_language": {}},
        "test": {
            "split": measurement.split,
            "means": overall,
            "by_language": result.scores,
            "examples": result.examples,
        },
        "machine": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }
    if layers:
        scores["layers"] = {
            "layer": measurement.reads.layer,
            "pooling": measurement.reads.pooling,
            "by_language": layers,
        }
    write_json(measurement.folder / SCORES, scores)


def _shown(
    task: Task, overall: Mapping[str, float], scores: Mapping[str, Mapping[str, float]]
) -> str:
    if not overall:
        return "predicted; the files have no answers"
    metric = task.metrics[0]
    names = " and ".join(task_metrics(task))
    of_each = [f"{language} {values[metric]:.1f}" for language, values in scores.items()]
    return f"mean {names} {overall['mean']:.2f}; {metric} {', '.join(of_each)}"

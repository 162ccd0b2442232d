"""`xlingjax evaluate --mixture`: a checkpoint as it is, on every task of a benchmark that it can do.

A fine-tuned run does the tasks whose labels its head has; retrieval and mining read the states of any. The examples and
the metrics are those of the benchmark's SeqIO mixture.
"""

import dataclasses
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from xlingjax.checkpoint import checkpoint_steps, find_checkpoint
from xlingjax.data.benchmark import TRAINED, Task, languages_present, read
from xlingjax.data.prepared import located
from xlingjax.errors import UserError
from xlingjax.evaluation.benchmark import has_gold, head_fault, in_order_of, means, predict, translations
from xlingjax.evaluation.bucc import predict_mining
from xlingjax.evaluation.predictions import write_predictions
from xlingjax.evaluation.scorecard import SCORES
from xlingjax.evaluation.scores import METRICS
from xlingjax.evaluation.tatoeba import chosen_layer, predict_retrieval
from xlingjax.identity import labels_of, read_run_record, run_and_checkpoint, write_json
from xlingjax.preprocessors.benchmark import Reading
from xlingjax.sweep import parameters_hash, require_folder
from xlingjax.trained import TrainedRun, open_run

AS_IT_IS = "as_it_is"
POOLINGS = {"retrieval": "mean", "mining": "first"}
"""XTREME's scripts pool Tatoeba's sentences by the mean and BUCC's by the first token."""


@dataclasses.dataclass(frozen=True)
class Asked:
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
    layer: int | None = None
    """Of retrieval and mining; None: the paper's."""
    pooling: str | None = None


def measure(asked: Asked, reading: Reading, say: Callable[[str], None] = print) -> int:
    """Writes predictions and scores of each task; the exit status. Raises UserError where no task can be done."""
    from xlingjax.tasks.registry import register, tasks_of

    require_folder(asked.output)
    folder = located(asked.data)
    name = register(
        asked.mixture, folder, METRICS, allow_missing=asked.allow_missing, name=f"{asked.mixture}_{abs(hash(folder))}"
    )
    trained, step = open_run(asked.source), int(find_checkpoint(asked.source).name)
    weights, labels = parameters_hash(trained.params), labels_of(read_run_record(asked.source))
    done = 0
    for task, of_languages in tasks_of(name):
        if asked.tasks and task.name not in asked.tasks:
            continue
        if task.kind in TRAINED and (fault := head_fault(trained.model, task, labels)):
            say(f"{task.full_name}: passed over, {fault}")
            continue
        task = in_order_of(task, labels)
        split = asked.split or _split(task, asked.data, of_languages)
        if split:
            _measure_task(asked, trained, step, weights, task, of_languages, split, reading, say)
            done += 1
        else:
            say(f"{task.full_name}: passed over, no test or dev files below {asked.data}")
    if not done:
        raise UserError(f"--mixture {asked.mixture}: {asked.source} can do none of its tasks that have files (above)")
    return 0


def follow(asked: Asked, run: str, reading: Reading, say: Callable[[str], None] = print, pause: float = 5.0) -> int:
    """`measure` on each checkpoint of a run that is being trained, until it has ended and its last is measured."""
    folder, seen = run_and_checkpoint(run)[0], -1
    if not (folder / "run.json").is_file() and not folder.is_dir():
        raise UserError(f"--follow {run}: no such folder; give the --workdir of a run")
    while True:
        ended = (folder / "result.json").is_file()  # before the steps are listed, so that none is missed
        for step in [step for step in checkpoint_steps(folder / "checkpoints") if step > seen]:
            measure(dataclasses.replace(asked, source=f"{folder}@{step}"), reading, say)
            seen = step
        if ended:
            return 0
        time.sleep(pause)


def _split(task: Task, data: str, of_languages: Collection[str]) -> str:
    """test where it has answers, else dev, else what there is; "": nothing."""
    there = {}
    for split in ("test", "dev"):
        if present := [name for name in languages_present(task, data, split) if name in of_languages]:
            there[split] = has_gold(task, read(task, data, split, present[0]))
    return next((split for split, told in there.items() if told), next(iter(there), ""))


def _measure_task(
    asked: Asked,
    trained: TrainedRun,
    step: int,
    weights: str,
    task: Task,
    of_languages,
    split: str,
    reading: Reading,
    say,
) -> None:
    from xlingjax.tasks.registry import record_of

    cell = Path(asked.output).absolute() / "cells" / task.suite / task.name / AS_IT_IS / f"{weights[:8]}-step-{step}"
    by_language, counts = {}, {}
    for language in languages_present(task, asked.data, split):
        if language not in of_languages:
            continue
        seqio_task = of_languages[language]
        examples = seqio_task.get_dataset(None, split, shuffle=False).as_numpy_iterator()
        records = [record_of(example, task.kind) for example in examples]
        predicted = _predicted(asked, trained, task, records, language, split, reading)
        write_predictions(task, cell / "predictions", language, predicted, split.partition("[")[0])
        outputs = [predicted[record.id] for record in records] if task.kind == "span_qa" else predicted
        outputs = [predicted] if task.kind in POOLINGS else outputs
        if has_gold(task, records):
            metrics = [fn(records, outputs) for fn in seqio_task.metric_fns]
            by_language[language] = {name: float(value) for one in metrics for name, value in one.items()}
        counts[language] = len(records[0].target) if task.kind in POOLINGS else len(records)
    if not asked.split and split != "test":  # what is to be submitted
        for language in languages_present(task, asked.data, "test"):
            predicted = _predicted(
                asked, trained, task, read(task, asked.data, "test", language), language, "test", reading
            )
            write_predictions(task, cell / "predictions", language, predicted)
    found = means(by_language, task, ()) if by_language else {}
    select = {"split": split, "by": "none", "step": step, "steps": step}
    if task.kind in POOLINGS:
        layer = chosen_layer(asked.layer, trained.model.config.layers)
        select["note"] = f"layer {layer}, pooled by {asked.pooling or POOLINGS[task.kind]}"
        if task.kind == "mining":
            select["note"] += (
                f", threshold tuned on {'the same set, so that its F1 flatters' if split == 'dev' else 'dev'}"
            )
    import jax

    write_json(cell / SCORES, {
        "task": task.full_name, "strategy": AS_IT_IS,
        "variant": {"run": run_and_checkpoint(asked.source)[0].name, "step": str(step)}, "settings": {}, "seed": 0,
        "start": {"run": asked.source, "sha256": weights}, "select": select, "dev": {"means": {}, "by_language": {}},
        "test": {"split": split, "means": found, "by_language": by_language, "examples": counts},
        "machine": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    })  # fmt: skip
    score = task.metrics[0]
    told = ", ".join(f"{language} {values[score]:.1f}" for language, values in by_language.items())
    mean = f"{score} mean {found['mean']:.2f}; {told}" if found else "predicted; the files have no answers"
    say(f"step {step}: {task.full_name}, {split}: {mean}")


def _predicted(asked: Asked, trained: TrainedRun, task, records, language: str, split: str, reading: Reading) -> Any:
    states = trained.model, trained.params
    if task.kind == "retrieval":
        return predict_retrieval(
            *states, records[0], trained.vocabulary, language, trained.languages, layer=asked.layer,
            pooling=asked.pooling or POOLINGS["retrieval"],
        )  # fmt: skip
    if task.kind == "mining":
        dev = records[0] if split == "dev" else read(task, asked.data, "dev", language)[0]
        return predict_mining(
            *states, records[0], dev, trained.vocabulary, language, trained.languages, layer=asked.layer,
            pooling=asked.pooling or POOLINGS["mining"],
        ).pairs  # fmt: skip
    pivot = translations(trained.model, task, asked.data, split, language)
    return predict(*states, task, records, trained.vocabulary, trained.languages, language, reading, pivot=pivot)

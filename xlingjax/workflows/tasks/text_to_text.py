"""A checkpoint on any SeqIO task of text to text, by the task's own metrics."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from xlingjax.errors import UserError
from xlingjax.evaluation.task.seqio_predictions import TextToText
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import TrainedRun
from xlingjax.model.decoding import Decoding
from xlingjax.runtime.files import write_json
from xlingjax.training.run_record import run_and_checkpoint
from xlingjax.workflows.scorecard.cells import SCORES
from xlingjax.workflows.tasks.request import reading_of

if TYPE_CHECKING:
    from xlingjax.workflows.tasks.measure import Checkpoint


def measure_texts(checkpoint: "Checkpoint", tasks: Sequence) -> None:
    """Writes the texts and the scores of each task into TO/mixtures/MIXTURE/WEIGHTS-step-STEP.
    Raises UserError, before the first is read, for a task whose split or language is not known."""
    from xlingjax.tasks.seqio_scores import split_of

    run, measurement, say = checkpoint.run, checkpoint.measurement, checkpoint.say
    reads = []
    for task in tasks:
        split = split_of(task, measurement.split)
        reads.append((task, split, languages_of(task, run, measurement.languages)))
    reading = reading_of(checkpoint.macros)
    decoding = Decoding(reading.beams, no_repeat_ngram=reading.no_repeat_ngram)
    # As T5X, which trims what is too long; how many is said.
    generator = Generator(
        run.model, run.params, run.vocabulary, run.languages, decoding, run.mesh, truncate=True
    )
    # Other weights and splits have folders of their own.
    name = checkpoint.name
    if measurement.split:
        name += f"-{measurement.split}"
    folder = Path(measurement.output).absolute() / "mixtures" / measurement.mixture / name
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for task, split, languages in reads:
        scores, texts, notes = _scored(generator, task, split, languages)
        lines = [json.dumps(text, ensure_ascii=False) + "\n" for text in texts]
        path = folder / f"{task.name.replace(':', '_')}-{split}.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
        results[task.name] = {
            "split": split,
            "languages": languages,
            "examples": len(texts),
            "scores": scores,
            "notes": notes,
        }
        say(f"step {checkpoint.step}: {task.name}, {split}: {_shown(scores)}")
        for note in notes:
            say(f"{task.name}: {note}")
    record = {
        "mixture": measurement.mixture,
        "run": run_and_checkpoint(measurement.source)[0].name,
        "start": checkpoint.start,
        "step": checkpoint.step,
        "beams": reading.beams,
        "no_repeat_ngram": reading.no_repeat_ngram,
        "tasks": results,
        "machine": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }
    write_json(folder / SCORES, record)
    say(f"scores: {folder / SCORES}")


def _scored(
    generator: Generator, task: Any, split: str, languages: tuple[str, str]
) -> tuple[dict, list[str], list[str]]:
    """(the scores of a task, what was written for each example, what is to be noted)."""
    # Here, since they import SeqIO and TensorFlow, which take seconds.
    from xlingjax.tasks.seqio_evaluation import TextExamples
    from xlingjax.tasks.seqio_scores import evaluated

    examples = TextExamples(task, split, generator.vocabulary)
    functions = TextToText(generator, examples, *languages)
    scores = evaluated(
        task,
        examples.converter,
        split,
        functions.predict_fn,
        functions.score_fn,
        {"inputs": generator.longest_source, "targets": generator.model.longest_target},
    )
    notes = []
    if functions.cut:
        notes.append(
            f"{functions.cut} inputs are longer than the model's {generator.longest_source} tokens"
            " and were cut"
        )
    if functions.unspelled:
        notes.append(
            f"{functions.unspelled} of the texts have characters that the vocabulary of its"
            " `targets` cannot spell: the metrics see them without"
        )
    return scores, functions.texts, notes


def languages_of(task: Any, run: TrainedRun, requested: Sequence[str]) -> tuple[str, str]:
    """The languages of a task's inputs and targets: those of --languages, of its features, or that
    its name names, one for both. Raises UserError where none is known and the model has to be told.
    """
    from xlingjax.data.seqio.task_text import declared_languages, named_languages

    codes = requested or declared_languages(task)
    if not codes:
        codes = named_languages(task.name, run.languages)
    if not codes and (len(run.languages) < 2 or not run.model.config.tells_languages()):
        # Whichever: without a language to tell it changes nothing of what a model reads.
        codes = run.languages[:1] or ("",)
    if codes and len(codes) < 3:
        return codes[0], codes[-1]
    raise UserError(
        f"task {task.name}: the languages of its inputs and targets are not known: call the task"
        f" after them, like {task.name}.de or {task.name}.de_en, or give --languages SOURCE TARGET"
    )


def _shown(scores: Mapping) -> str:
    parts = []
    for name, value in scores.items():
        if isinstance(value, float):
            value = f"{value:.2f}"
        parts.append(f"{name} {value}")
    return ", ".join(parts)

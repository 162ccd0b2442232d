"""Fine-tuning on a task: a benchmark's, from its official files."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xlingjax.config.corpus import Corpus, Languages, read_run_record
from xlingjax.config.evaluators import Evaluators, Files
from xlingjax.config.text import TextSource
from xlingjax.config.translation import generation
from xlingjax.data.batches.loader import Batches, BatchSource
from xlingjax.data.features import batch_shapes
from xlingjax.data.labelled.task import TRAINED, Task, find, languages_present, part_of, read
from xlingjax.data.row_lengths import row_lengths
from xlingjax.data.text.sources import split_list
from xlingjax.errors import LARGEST_BATCH, UserError, require_choice, require_numbers, require_whole
from xlingjax.evaluation.task.scores import TaskScore, TasksScore
from xlingjax.model.config import CHOICES, MOST
from xlingjax.objectives.finetuning import Classification, SpanQA, Tagging
from xlingjax.objectives.plug_in import PlugIn, PlugInSpans, PlugInTagging
from xlingjax.preprocessors.parts import task_source
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import ALL, Training
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


@functools.cache
def trained_task(name: str) -> Task:
    """The task "SUITE/NAME". Raises UserError for one that is not fine-tuned."""
    from xlingjax.tasks import task_named

    task = task_named(name)
    if task.kind not in TRAINED:
        other = f"`xlingjax evaluate --mixture {task.suite} --tasks {task.name}` measures it"
        raise UserError(f"TASK={name}: {task.kind} is not fine-tuned: {other}")
    return task


def task_labels(task: str) -> tuple[str, ...]:
    """The classes that the model's head tells apart."""
    found = trained_task(task)
    # A head on each token with two outputs, which are no labels of the data.
    if found.kind == "span_qa":
        return ("start", "end")
    return found.labels


def require_classifier(classifier: str | None) -> None:
    require_choice({"classifier": classifier}, CHOICES["classifier"], "classifier")


def task_classifier(task: str, classifier: str | None = None) -> str | None:
    """The model's head: `classifier`, else that of the task's kind; None: the run's own."""
    require_classifier(classifier)
    of_kind = {"tagging": "tagging", "span_qa": "spans"}.get(trained_task(task).kind)
    # Plugged in, a head of the same kind reads states of twice the width.
    if classifier == "plug_in" and of_kind:
        return f"plug_in_{of_kind}"
    if classifier and of_kind and classifier != of_kind:
        raise UserError(f"CLASSIFIER={classifier}: {task} needs {of_kind!r}: leave it out")
    return of_kind or classifier


@dataclasses.dataclass(frozen=True)
class Swept:
    """What only the sweep that makes a recipe reads of it (`workflows/tasks/request.py`): declared
    here, so that a value of another type is refused."""

    epochs: float
    evaluations: int
    select: str
    test_split: str
    test_languages: Files
    test_beams: int

    def __post_init__(self):
        require_numbers(self, "(0, inf)", "epochs")
        require_whole(self, "[1, inf)", "evaluations test_beams")


def task_languages(
    task: Files,
    data: str,
    gold: Files = "en",
    translated: Files = None,
    labelled: str | None = None,
    dev_split: str = "dev",
    dev_languages: Files = "all",
    test_split: str = "test",
    test_languages: Files = "all",
) -> Languages:
    """Those that tasks "SUITE/NAME" are trained on, chosen by, tested on and predicted in, by their
    files. The arguments are those of `task` and `task_score`."""

    def found() -> set[str]:
        codes: set[str] = set()
        training = Training(split_list(gold), split_list(translated), labelled=labelled)
        for name in split_list(task):
            one = trained_task(name)
            # Transfer is measured against the language that the benchmark trains on; submissions
            # are predicted for all languages of the official test, whatever is measured.
            codes |= {one.trained_on, *languages_present(one, data, "test")}
            codes |= {language for _, language in training.parts(one, data)}
            for split, asked in ((dev_split, dev_languages), (test_split, test_languages)):
                requested = split_list(asked)
                if ALL in requested:
                    requested = languages_present(one, data, part_of(split)[0])
                codes.update(requested)
        return codes

    return found


def task(
    corpus: Corpus,
    name: str,
    data: str,
    gold: Files = "en",
    translated: Files = None,
    split: str = "train",
    labelled: str | None = None,
    batch: int = 32,
    reading: Reading = Reading(),
    classifier: str | None = None,
    seed: int = 0,
    run: str | None = None,
    smoothing: float = 0.1,
    streams: int = 0,
    by_length: bool = False,
) -> ObjectiveRun:
    """The objective of the task's kind, on its official files below `data`.

    gold: languages whose training sets are read (split: or a part of them), translated: into which
    the training set was translated ("all": that have them), labelled: a folder of examples that a
    teacher labelled.
    run: that the weights come from; smoothing, streams: of texts to write, see `generation`.
    by_length: rows of one length together, see `shuffled_batches`; not of texts to write.
    """
    require_numbers({"smoothing": smoothing}, "[0, 1)", "smoothing", "task: ")
    require_whole({"streams": streams}, f"[0, {MOST['streams']}]", "streams", "task: ")
    require_classifier(classifier)
    found = trained_task(name)
    training = Training(split_list(gold), split_list(translated), split, labelled)
    if found.kind == "generation":
        return _generation(
            corpus, found, data, training, batch, reading, seed, run, smoothing, streams
        )
    classes = len(task_labels(name))
    paired = classifier == "plug_in"
    objective: Any = (
        PlugIn(classes) if paired else Classification(classes, classifier == "difference")
    )
    if found.kind == "tagging":
        objective = PlugInTagging(classes) if paired else Tagging(classes)
    elif found.kind == "span_qa":
        objective = PlugInSpans() if paired else SpanQA()
    read = functools.partial(tuple, (found, data, training))
    return on_rows(corpus, objective, read, batch, reading, seed, paired, by_length=by_length)


def on_rows(
    corpus: Corpus,
    objective: Any,
    task: Callable[[], tuple[Task, str, Training]],
    batch: int,
    reading: Reading,
    seed: int,
    paired: bool = False,
    weight: Weight = 1.0,
    by_length: bool = False,
) -> ObjectiveRun:
    """The objective on the rows of a task. task: gives it, the folder of its files and what of them
    is trained on, when training starts. paired, by_length: see `task_source`."""

    require_whole({"batch": batch}, f"[1, {LARGEST_BATCH}]", "batch")
    require_whole({"seed": seed}, "[0, inf)", "seed")

    def opened() -> BatchSource:
        return task_source(
            *task(),
            corpus.vocabulary,
            corpus.languages,
            reading,
            batch_size=batch,
            seed=seed,
            paired=paired,
            by_length=by_length,
        )

    # Plugged in, a row holds an example in both languages.
    texts = 2 if paired else 1

    def shapes(length: int) -> dict[str, tuple[int, ...]]:
        return batch_shapes(objective.reads, batch=batch, length=texts * length)

    batches = Batches(
        shapes(reading.length),
        opened,
        positions=reading.length,
        shortest=shapes(row_lengths(reading.length)[0]) if by_length else {},
    )
    return ObjectiveRun(objective, batches, weight)


def _generation(
    corpus: Corpus,
    task: Task,
    data: str,
    training: Training,
    batch: int,
    reading: Reading,
    seed: int,
    run: str | None,
    smoothing: float,
    streams: int,
) -> ObjectiveRun:
    """Texts to write, from the gold files of the languages trained on; an example a row."""
    if training.translated or training.labelled:
        raise UserError(
            f"{task.full_name}: whole gold sets teach what to write; leave TRANSLATED, LABELLED out"
        )
    # Files are read whole, line by line, and a part of them cannot be held back to choose by.
    if training.split != "train":
        raise UserError(
            f"{task.full_name}: TRAIN_SPLIT={training.split}: what to write is learnt from whole"
            " files: make the last lines of the training files dev files, or give"
            " --gin.SELECT=last and --gin.DEV_SPLIT='\"train[90%:]\"' without a --grid, which then"
            " trains on all rows"
        )
    # A decoder that learnt to begin with a token of the language goes on so (XGLUE's xDAE).
    model = read_run_record(run)["model"] if run else {}
    tokens = "both" if model.get("source_tokens") else bool(model.get("language_tokens"))
    codes = training.gold
    if ALL in training.gold:
        codes = [language for _, language in training.parts(task, data)]
    # If files are missing, this says which.
    read(task, data, "train", codes[0])
    found = (find(task, data, "train", code) for code in codes)
    places = {one.files.patterns[0] for one in found if one}
    # `generation` takes one path with {language}.
    if len(places) != 1:
        raise UserError(f"{task.full_name}: training sets lie under several names: {places}")
    return generation(
        TextSource(corpus, seed=seed),
        str(Path(data) / places.pop()),
        codes,
        batch,
        reading.length,
        max_pieces=reading.length - 2,
        packing=False,
        language_tokens=tokens,
        # Long articles are cut, as the released fine-tuning cuts them, and not left out.
        truncate=True,
        smoothing=smoothing,
        streams=streams,
    )


def task_score(
    corpus: Corpus,
    task: Files,
    data: str,
    split: str = "dev",
    languages: Files = "all",
    limit: int = 0,
    reading: Reading = Reading(),
    trained_on: Files = "en",
    name: str = "dev",
    translated: Files = None,
    labelled: str | None = None,
    together: bool = False,
) -> Evaluators:
    """The task's metrics per language on a split. languages: "all" that have it. limit: examples of
    each; 0: all. trained_on, translated, labelled: `task`'s gold, translated and labelled.

    Several tasks "SUITE/NAME": an evaluator "TASK_dev" for each; together: see `TasksScore`.
    """
    require_whole({"limit": limit}, "[0, inf)", "limit")

    def score(one: Task, called: str) -> TaskScore:
        training = Training(split_list(trained_on), split_list(translated), labelled=labelled)
        # Translated and teacher-labelled languages are trained on, too: no transfer to them.
        known = sorted({language for _, language in training.parts(one, data)})
        return TaskScore(
            one,
            data,
            corpus.vocabulary,
            corpus.languages,
            reading,
            split,
            split_list(languages),
            limit,
            trained_on=known,
            name=called,
        )

    def make() -> list[Any]:
        tasks = [trained_task(one) for one in split_list(task)]
        if together:
            return [TasksScore([score(one, name) for one in tasks], name)]
        if len(tasks) == 1:
            return [score(tasks[0], name)]
        return [score(one, f"{one.name}_{name}") for one in tasks]

    return make


BINDABLE = {
    "task": task,
    "task_labels": task_labels,
    "task_classifier": task_classifier,
    "task_languages": task_languages,
    "task_score": task_score,
    "swept": Swept,
    "reading": Reading,
}

"""Multi-task fine-tuning: several labelled tasks on one encoder, each with a head of its own (XGLUE §6.3.3)."""

from collections.abc import Mapping

from xlingjax.errors import UserError
from xlingjax.feed import ObjectiveRun
from xlingjax.probes import Evaluators, Files, labelled_files, words
from xlingjax.runs.corpus import Corpus
from xlingjax.runs.finetuning import classification
from xlingjax.schedule import Weight

Labels = Mapping[str, Files]
"""{task: its labels}."""


def multi_task(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    labels: Labels | None = None,
    weights: Mapping[str, Weight] | None = None,
    batch: int = 32,
    length: int = 128,
    reset_positions: bool = False,
    classifier: str | None = None,
    seed: int = 0,
) -> list[ObjectiveRun]:
    """An objective "classification_TASK" for each task of `labels`, on the rows of `pair_row`.

    files: a path with {task} and {language}. languages: those trained on, the same for all tasks. weights: {task:
    weight}, None: all alike (see `schedule.turns`). classifier: the model's, where it is set for this. Raises
    UserError for weights of other tasks.
    """
    tasks = _tasks(labels)
    if weights is not None and {*weights} != {*tasks}:
        raise UserError(
            f"TASK_WEIGHTS are of {', '.join(weights)} and TASK_LABELS of {', '.join(tasks)}: name the same"
        )
    return [
        classification(
            corpus,
            files=of_task(files, task),
            languages=languages,
            labels=classes,
            batch=batch,
            length=length,
            reset_positions=reset_positions,
            classifier=classifier,
            seed=seed,
            task=task,
            weight=1.0 if weights is None else weights[task],
        )
        for task, classes in tasks.items()
    ]


def multi_task_accuracy(
    corpus: Corpus,
    files: str | None = None,
    labels: Labels | None = None,
    split: str = "test",
    length: int = 128,
    reset_positions: bool = False,
    limit: int = 0,
    trained_on: Files = "en",
) -> Evaluators:
    """An evaluator "TASK_SPLIT" for each task of `labels`: accuracy per language, `files` a path with {task} and
    {language}; None: not evaluated."""
    tasks = _tasks(labels)

    def make():
        from xlingjax.evaluation.classification import ZeroShotAccuracy

        return [
            ZeroShotAccuracy(
                labelled_files(of_task(files, task), corpus.languages),
                corpus.vocabulary,
                corpus.languages,
                classes,
                length=length,
                reset_positions=reset_positions,
                limit=limit,
                trained_on=words(trained_on),
                name=f"{task}_{split}",
                task=task,
            )
            for task, classes in tasks.items()
        ]

    return make if files else list


def of_task(files: str, task: str) -> str:
    """The path of a task in one with {task}. Raises UserError where it has none: all tasks would read one file."""
    if "{task}" not in files:
        raise UserError(
            f"labelled files {files!r}: write {{task}} where the task's name stands, as in "
            "data/{task}/train-{language}.tsv"
        )
    return files.replace("{task}", task)


def _tasks(labels: Labels | None) -> dict[str, tuple[str, ...]]:
    if not isinstance(labels, Mapping) or len(labels) < 2:
        raise UserError(
            f"TASK_LABELS={labels!r}: give two tasks or more and the labels of each: "
            "{'xnli': 'contradiction entailment neutral', 'pawsx': '0 1'}"
        )
    return {task: words(of) for task, of in labels.items()}


BINDABLE = {"multi_task": multi_task, "multi_task_accuracy": multi_task_accuracy}

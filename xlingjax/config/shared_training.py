"""Tasks that are trained on the same examples, measured in one training: XQuAD and MLQA are both
trained on SQuAD."""

from pathlib import Path

from xlingjax.config.corpus import Corpus
from xlingjax.config.evaluators import Evaluators, Files
from xlingjax.config.task import task_score
from xlingjax.data.labelled.task import Task, find, languages_present
from xlingjax.data.sources import split_list
from xlingjax.errors import UserError
from xlingjax.preprocessors.task_rows import Reading

_TRAINED_ON = ("train", "translate_train")


def dev_name(task: str) -> str:
    """The evaluator of one of several tasks: "mlqa_dev"."""
    return f"{task}_dev"


def require_one_training(tasks: list[Task], data: str | Path) -> None:
    """Raise UserError unless the tasks learn the same from the same files."""
    first = tasks[0]
    for task in tasks[1:]:
        alike = (
            task.kind == first.kind
            and task.labels == first.labels
            and task.trained_on == first.trained_on
            and task != first
        )
        if not alike or _files(task, data) != _files(first, data):
            raise UserError(
                f"{first.full_name} and {task.full_name} are not trained on the same examples, so"
                " they are not one training: name one of them, or --strategy multi_task, a head for"
                " each",
            )


def _files(task: Task, data: str | Path) -> dict[tuple[str, str], list[Path]]:
    """{(split, language): files} that training may read."""
    found = {}
    for split in _TRAINED_ON:
        for language in languages_present(task, data, split):
            place = find(task, data, split, language)
            found[split, language] = [path.resolve() for path in place.paths]
    return found


def shared_scores(
    corpus: Corpus,
    tasks: Files,
    data: str,
    split: str = "dev",
    languages: Files = "all",
    limit: int = 0,
    reading: Reading = Reading(),
    trained_on: Files = "en",
    translated: Files = None,
    labelled: str | None = None,
) -> Evaluators:
    """An evaluator "TASK_dev" for each of `tasks` ("SUITE/NAME"); see `task_score`."""

    def make():
        scores = []
        for name in split_list(tasks):
            of_task = task_score(
                corpus,
                name,
                data,
                split,
                languages,
                limit,
                reading,
                trained_on,
                dev_name(name.partition("/")[2]),
                translated,
                labelled,
            )
            scores += of_task()
        return scores

    return make


BINDABLE = {"shared_scores": shared_scores}

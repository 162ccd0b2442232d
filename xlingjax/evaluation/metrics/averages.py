"""From scores by language to those of tasks, groups and a benchmark, as XTREME's evaluate.py and
XGLUE's xglue_evaluate.py take them: plain means, never weighted by the number of examples."""

from collections.abc import Mapping, Sequence

from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError

AVERAGES = {
    "xtreme": (
        "task: mean over its languages, QA the mean of mean EM and mean F1; group, overall: mean"
        " over tasks"
    ),
    "xglue": (
        "task: mean over its languages; understanding (9 tasks), generation (2), overall (11): mean"
        " over tasks"
    ),
}
"""Suite -> how it averages, in one line. Others: mean over languages, then over tasks."""

_GROUPS = {
    "xtreme": {
        "classification": "classification",
        "tagging": "tagging",
        "span_qa": "qa",
        "retrieval": "retrieval",
        "mining": "retrieval",
    },
    "xglue": {
        "classification": "understanding",
        "ranking": "understanding",
        "tagging": "understanding",
        "span_qa": "understanding",
        "generation": "generation",
    },
}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def averaged_languages(task: Task) -> tuple[str, ...]:
    """Those whose mean is the task's score (XQA: without en)."""
    return task.languages if task.averaged is None else task.averaged


def task_metrics(task: Task) -> tuple[str, ...]:
    """Names of the metrics whose mean is the task's score: XTREME takes both F1 and EM of question
    answering, all others the task's first."""
    if task.suite == "xtreme" and task.kind == "span_qa":
        return task.metrics[:2]
    return task.metrics[:1]


def task_score(
    task: Task, scores: Mapping[str, Mapping[str, float]], allow_missing: bool = False
) -> float:
    """The task's official score of `scores` {metric: {language: 0..100}}. Raises UserError where a
    language is missing; with `allow_missing` only where all are."""
    means = []
    for name in task_metrics(task):
        of_metric = scores.get(name, {})
        languages = averaged_languages(task)
        there = [of_metric[language] for language in languages if language in of_metric]
        missing = [language for language in languages if language not in of_metric]
        if not there or (missing and not allow_missing):
            raise UserError(
                f"{task.full_name}: no {name} of {', '.join(missing)}, and the task's score is a"
                " mean over all"
            )
        # First over languages and then over metrics, as
        # XTREME takes the mean of mean F1 and mean EM.
        means.append(_mean(there))
    return _mean(means)


def groups(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """{group: its tasks} of a suite; none but XTREME and XGLUE has groups."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        if name := _GROUPS.get(task.suite, {}).get(task.kind):
            found.setdefault(name, []).append(task)
    return found


def overall(tasks: Sequence[Task], scores: Mapping[str, float]) -> float:
    """Mean of the scores {full name: 0..100} of `tasks`: the benchmark's of all, a group's of its
    own. Raises UserError where one is missing."""
    if missing := [task.full_name for task in tasks if task.full_name not in scores]:
        raise UserError(
            f"no score of {', '.join(missing)}: the mean is over all {len(tasks)} tasks"
        )
    if not tasks:
        raise UserError("no tasks to average over")
    return _mean([scores[task.full_name] for task in tasks])

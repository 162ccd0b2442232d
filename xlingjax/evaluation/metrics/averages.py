"""From scores by language to those of tasks, groups and a benchmark, as XTREME's evaluate.py and
XGLUE's xglue_evaluate.py take them: plain means, never weighted by the number of examples."""

from collections.abc import Mapping, Sequence

from xlingjax.data.labelled.task import Task

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


def mean(values: Sequence[float | None]) -> float | None:
    """None: of none, or where one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def averaged_languages(task: Task) -> tuple[str, ...]:
    """Those whose mean is the task's score (XQA: without en)."""
    return task.languages if task.averaged is None else task.averaged


def task_metrics(task: Task) -> tuple[str, ...]:
    """Metrics whose mean is the score: XTREME's questions take F1 and EM, other tasks the first."""
    if task.suite == "xtreme" and task.kind == "span_qa":
        return task.metrics[:2]
    return task.metrics[:1]


def task_score(task: Task, scores: Mapping[str, Mapping[str, float]]) -> float | None:
    """The task's score of {metric: {language: 0..100}}, over the languages of the official average
    that are there; None: none is."""
    means = []
    for name in task_metrics(task):
        of = scores.get(name, {})
        means.append(mean([of[code] for code in averaged_languages(task) if code in of]))
    # First over languages and then over metrics, as XTREME takes the mean of mean EM and mean F1.
    return mean(means)


def groups(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """{group: its tasks} of a suite; none but XTREME and XGLUE has groups."""
    found = {}
    for task in tasks:
        if name := _GROUPS.get(task.suite, {}).get(task.kind):
            found.setdefault(name, []).append(task)
    return found

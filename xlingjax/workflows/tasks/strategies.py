"""What a strategy of a sweep runs over: languages, sets of languages, the tasks that are trained
together."""

from collections.abc import Collection, Mapping, Sequence

from xlingjax.data.labelled.task import Task, find, has_gold, languages_present, read
from xlingjax.errors import UserError

OVER = ("PIVOT", "TARGET")  # macros of a strategy that each language in turn is put in
TAUGHT = ("classification", "ranking", "tagging")
"""The kinds of tasks whose examples a teacher can label."""
PAIRED = ("classification", "ranking", "tagging", "span_qa")
"""Those that plug-in fine-tuning is defined for (VECO §3.1)."""
TRANSLATABLE = ("classification", "ranking")
"""Those whose answers for a translation are answers for what was translated: not tags of its words,
nor spans of its text."""
STUDIED = "multi_language"  # the strategy that runs over sets of languages, where they are given


class Unsuited(UserError):
    """A strategy that is none for a task, or whose files a benchmark lacks; a suite passes over
    it."""


def variants(
    strategy: str,
    required: set[str],
    tasks: Sequence[Task],
    data: str,
    requested: Sequence[str],
    given: Collection[str],
) -> list[dict[str, str]]:
    """A variant for each language requested, or that has training examples; {"LANGUAGES": "en+de"}
    for each set of them; one where a strategy does not run over languages. required: macros that
    the strategy leaves open; given: those of the command line and its gin files. Raises UserError
    for languages without training examples.
    """
    if len(tasks) > 1 and not requested:
        return [{"TASKS": "+".join(task.name for task in tasks)}]
    # What a strategy leaves open is what it runs over, of a user's own gin file too.
    over = next((macro for macro in OVER if macro in required), None)
    if over is None and requested and strategy != STUDIED:
        raise UserError(f"--languages: {strategy} does not run over languages; leave it out")
    if over is None and not requested:
        return [{}]
    task = tasks[0]
    present = _trainable(task, data, over)
    sets = {one: [one] if over else one.split("+") for one in requested}
    missing = [name for names in sets.values() for name in names if name not in present]
    if missing:
        raise UserError(
            f"--languages {' '.join(missing)}: {task.full_name} has no training examples of them"
            f" below {data}; there are {', '.join(present) or 'none'}"
        )
    if not present:
        split = "translate_train" if over == "TARGET" else "train"
        raise Unsuited(f"{task.full_name}: no {split} files below {data}, which {strategy} needs")
    if over:
        return [{over: language} for language in requested or present]
    for macro in ("TRAIN_LANGUAGES", "TRANSLATED"):
        if macro in given:
            raise UserError(
                f"--gin.{macro} and --languages both say what is trained on: give one of them"
            )
    # Sets of the same languages are one, in whatever order they were given.
    ordered = {}
    for one, languages in sets.items():
        if len(set(languages)) < len(languages):
            raise UserError(f"--languages {one}: a language stands there twice")
        # The language of the gold training set stands first.
        languages.sort(key=lambda name: (name != task.trained_on, name))
        ordered["+".join(languages)] = None
    return [{"LANGUAGES": name} for name in ordered]


def _trainable(task: Task, data: str, over: str | None) -> list[str]:
    """Languages with training examples: gold ones first, then those with translated ones alone. A
    target is trained on translations even where it has gold ones."""
    present = languages_present(task, data, "translate_train")
    if over != "TARGET":
        present = [*languages_present(task, data, "train"), *present]
    return [*dict.fromkeys(present)]


def is_tested(task: Task, data: str, language: str) -> bool:
    """Whether a language has a dev set, or a test set with answers."""
    if find(task, data, "dev", language):
        return True
    if not find(task, data, "test", language):
        return False
    return has_gold(read(task, data, "test", language)[0])


def trained_languages(variant: Mapping[str, str], task: Task, data: str) -> dict[str, str]:
    """The macros, as gin reads them, of what a variant is trained on: gold examples where there
    are, else translated ones. {}: as the strategy says."""
    gold = languages_present(task, data, "train")
    if "PIVOT" in variant and variant["PIVOT"] not in gold:
        # Most tasks have gold examples in English alone; other
        # pivots are translations of them (XGLUE §6.3.1).
        return {"TRAIN_LANGUAGES": "None", "TRANSLATED": repr(variant["PIVOT"])}
    if "LANGUAGES" not in variant:
        return {}
    languages = variant["LANGUAGES"].split("+")
    trained = [name for name in languages if name in gold]
    translated = [name for name in languages if name not in gold]
    return {
        "TRAIN_LANGUAGES": repr(" ".join(trained) or None),
        "TRANSLATED": repr(" ".join(translated) or None),
    }

"""What a strategy of a sweep runs over: languages, sets of languages, the tasks that are trained
together."""

import re
from collections.abc import Collection, Mapping, Sequence

from xlingjax.data.labelled.task import Task, find, languages_present, read
from xlingjax.errors import UserError
from xlingjax.evaluation.task import has_gold

OVER = ("PIVOT", "TARGET")
"""Macros of a strategy that each language in turn is put in."""
TAUGHT = ("classification", "ranking", "tagging")
"""The kinds of tasks whose examples a teacher can label."""
PAIRED = ("classification", "ranking")
"""Those that plug-in fine-tuning is defined for (VECO §3.1)."""
STUDIED = "multi_language"
"""The strategy that runs over sets of languages, where they are given."""


def variants(
    strategy: str,
    required: set[str],
    tasks: Sequence[Task],
    data: str,
    requested: Sequence[str],
    given: Collection[str],
) -> list[dict[str, str]]:
    """A variant for each language asked for, or that has training examples; {"LANGUAGES": "en+de"}
    for each set of them; one where a strategy does not run over languages. required: macros that
    the strategy leaves open; given: those of the command line and its gin files. Raises UserError
    for languages without training examples.
    """
    if len(tasks) > 1 and not requested:
        return [{"TASKS": "+".join(task.name for task in tasks)}]
    over = next((name for name in OVER if name in required), None)
    if over is None and requested and strategy != STUDIED:
        raise UserError(f"--languages: {strategy} does not run over languages; leave it out")
    if over is None and not requested:
        return [{}]
    task, gold = tasks[0], over != "TARGET"
    present = [*languages_present(task, data, "train")] if gold else []
    present += [
        name for name in languages_present(task, data, "translate_train") if name not in present
    ]
    sets = {one: [one] if over else one.split("+") for one in requested}
    if missing := [name for one in sets.values() for name in one if name not in present]:
        raise UserError(
            f"--languages {' '.join(missing)}: {task.full_name} has no training examples of them"
            f" below {data}; there are {', '.join(present) or 'none'}"
        )
    if not present:
        split = "train" if gold else "translate_train"
        raise UserError(f"{task.full_name}: no {split} files below {data}, which {strategy} needs")
    if over:
        return [{over: language} for language in requested or present]
    if both := [name for name in ("TRAIN_LANGUAGES", "TRANSLATED") if name in given]:
        raise UserError(
            f"--gin.{both[0]} and --languages both say what is trained on: give one of them"
        )
    for one, languages in sets.items():
        if len({*languages}) < len(languages):
            raise UserError(f"--languages {one}: a language stands there twice")
        languages.sort(key=lambda name: (name != task.trained_on, name))
    return [{"LANGUAGES": name} for name in dict.fromkeys("+".join(one) for one in sets.values())]


def lacking(text: str, task: Task, data: str) -> str:
    """What a strategy, by the text of its gin file, needs of a task that is not there; "":
    nothing."""
    gold = languages_present(task, data, "train")
    if task.kind not in TAUGHT and re.search(r"^LABELLED =", text, re.MULTILINE):
        return "no classes or tags to label"
    if task.kind not in PAIRED and re.search(r'^CLASSIFIER = "plug_in"', text, re.MULTILINE):
        return "no classes of pairs of translations"
    translated = languages_present(task, data, "translate_train")
    if not translated and re.search(
        r"^(TRANSLATED = \"all\"|TARGET =|LABELLED =)", text, re.MULTILINE
    ):
        return "no translated training sets"
    if re.search(r"^TARGET =", text, re.MULTILINE) and not any(
        is_tested(task, data, name) for name in translated
    ):
        return "no answers to test with in the languages of its translations"
    if "translate_test" in text and not languages_present(task, data, "translate_test"):
        return "no test sets translated into English"
    if len(gold) < 2 and re.search(r"^TRAIN_LANGUAGES = \"all\"", text, re.MULTILINE):
        return f"training sets of {', '.join(gold) or 'no language'} alone"
    return ""


def is_tested(task: Task, data: str, language: str) -> bool:
    """Whether a language has a dev set, or a test set with answers."""
    if find(task, data, "dev", language):
        return True
    return bool(find(task, data, "test", language)) and has_gold(
        task, read(task, data, "test", language)
    )


def trained_languages(variant: Mapping[str, str], task: Task, data: str) -> dict[str, str]:
    """The macros, as gin reads them, of what a variant is trained on: gold examples where there
    are, else translated ones. {}: as the strategy says."""
    gold = languages_present(task, data, "train")
    if "PIVOT" in variant and variant["PIVOT"] not in gold:
        return {"TRAIN_LANGUAGES": "None", "TRANSLATED": repr(variant["PIVOT"])}
    if "LANGUAGES" not in variant:
        return {}
    languages = variant["LANGUAGES"].split("+")
    found = {"TRAIN_LANGUAGES": [], "TRANSLATED": []}
    for name in languages:
        found["TRAIN_LANGUAGES" if name in gold else "TRANSLATED"].append(name)
    return {macro: repr(" ".join(names) or None) for macro, names in found.items()}

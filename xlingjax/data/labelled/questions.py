"""Reader of questions answered by spans: JSON of SQuAD 1.1, MLQA, XQuAD, TyDiQA's gold passages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.records import Question
from xlingjax.data.text.files import read_lines
from xlingjax.data.text.given import parse_json
from xlingjax.errors import UserError


def read_squad(
    paths: Sequence[Path], task, language: str, *, numbered: bool = False, translated: bool = False
) -> list[Question]:
    """The questions of one file. An answer with empty text is none: XTREME so blanks those of its
    test sets. numbered: the ids are the rows, from 0, whatever the file says (ids come twice), and
    what it says is the `key`.
    translated: by a machine; an answer that it lost (blank, null, or not in its context where it is
    said to stand) is none either; a question or context that it lost (blank or null) is "" and has
    no answers; and a question that comes once for each of its answers, as XTREME writes them, is
    one.

    Raises UserError naming the file and the question's id: another layout, an id that comes twice,
    an answer that does not stand in its context where it is said to.
    """
    path = paths[0]
    # By id, since predictions and official scripts match questions by it.
    found: dict[str, Question] = {}
    for article in _field(_loaded(path), "data", path, "the file"):
        for paragraph in _field(article, "paragraphs", path, "an article"):
            context = _text(paragraph, "context", path, "a paragraph", translated)
            for qa in _field(paragraph, "qas", path, "a paragraph"):
                question = checked_question(qa, context, path, translated=translated)
                if numbered:
                    # Before ids are compared, so that none comes twice.
                    question = replace(question, id=str(len(found)), key=question.id)
                before = found.get(question.id)
                if before is not None:
                    same_text = before.question == question.question
                    if not translated or not same_text or before.context != context:
                        raise UserError(f"{path}, question {question.id}: this id comes twice")
                    question = replace(
                        question,
                        answers=before.answers + question.answers,
                        starts=before.starts + question.starts,
                    )
                found[question.id] = question
    if not found:
        raise UserError(f"{path}: no questions in this file")
    # A test set may have none.
    without = [question.id for question in found.values() if not question.answers]
    if not translated and 0 < len(without) < len(found):
        raise UserError(
            f"{path}: {len(without):,} of {len(found):,} questions are without an answer, the first"
            f" is {without[0]}: answers are spans, as in SQuAD 1.1; remove these questions"
        )
    return list(found.values())


# TyDiQA's ids begin with the language in words.
_IN_WORDS = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
}


def read_tydiqa(paths: Sequence[Path], task, language: str) -> list[Question]:
    """TyDiQA's training questions of a language with their whole ids, which XTREME's script cuts
    off: those of the second file, which the script made the first from and leaves beside it."""
    questions = read_squad(paths[:1], task, language, numbered=True)
    wanted = _IN_WORDS[language] + "-"
    every = read_squad(paths[1:], task, language)
    whole = [one for one in every if one.id.startswith(wanted)]
    if [one.question for one in whole] != [one.question for one in questions]:
        raise UserError(
            f"{paths[0]} does not hold the questions of {paths[1]} that begin with {wanted!r}, in"
            " their order: fetch both again"
        )
    return [replace(one, key=named.id) for one, named in zip(questions, whole, strict=True)]


def checked_question(
    qa: Any, context: str, path: str | Path, *, translated: bool = False
) -> Question:
    """The question of SQuAD's `qa`. path: for messages. translated, errors: see `read_squad`."""
    id_ = str(_value(qa, "id") or "")
    if not id_:
        raise UserError(f"{path}: a question without an id: {str(qa)[:60]}")
    question = _text(qa, "question", path, f"question {id_}", translated)
    where = f"{path}, question {id_}"
    answers = []
    starts = []
    for answer in _answers(qa, where):
        text = _value(answer, "text")
        start = _value(answer, "answer_start")
        if translated and isinstance(answer, dict) and (not question or None in (text, start)):
            continue
        if not isinstance(text, str) or not isinstance(start, int):
            raise UserError(f"{where}: an answer is not an object with a text and an answer_start")
        if not text or translated and not text.strip():
            continue
        # A negative start would count from the end.
        if start < 0 or not context.startswith(text, start):
            if translated:
                continue
            raise UserError(
                f"{where}: the answer {text!r} is not in its context at character {start}; fetch"
                " the file again, or remove the question"
            )
        answers.append(text)
        starts.append(start)
    return Question(id_, question, context, tuple(answers), tuple(starts))


def _answers(qa: dict, where: str) -> list:
    answers = qa.get("answers")
    # As `datasets` writes them: a list of texts beside one of starts.
    if isinstance(answers, dict):
        columns = [answers.get("text"), answers.get("answer_start")]
        if all(isinstance(column, list) for column in columns):
            answers = [
                {"text": text, "answer_start": start}
                for text, start in itertools.zip_longest(*columns)
            ]
    # Test sets lack the list, or have null for it.
    if answers is not None and not isinstance(answers, list):
        raise UserError(f"{where}: answers are no list of objects with a text and an answer_start")
    return answers or []


def _loaded(path: Path) -> Any:
    try:
        return parse_json("\n".join(line for _, line in read_lines(path)), str(path))
    except ValueError as error:
        raise UserError(
            f"{path}: not SQuAD's one JSON object with data, paragraphs and qas ({error})"
        ) from None


def _value(record: Any, name: str) -> Any:
    """None also where `record` is no JSON object."""
    return record.get(name) if isinstance(record, dict) else None


def _field(record: Any, name: str, path: Path, what: str) -> list:
    value = _value(record, name)
    if not isinstance(value, list):
        raise UserError(
            f"{path}: {what} has no list {name!r}; expected SQuAD's layout: data, paragraphs, qas"
        )
    return value


def _text(record: Any, name: str, path: str | Path, what: str, may_be_lost: bool = False) -> str:
    value = _value(record, name)
    if may_be_lost and isinstance(record, dict) and name in record:
        value = value or ""
        if not str(value).strip():
            return ""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{path}, {what}: no text {name!r}")
    return value

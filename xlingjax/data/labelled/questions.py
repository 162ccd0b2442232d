"""Reader of questions whose answers are spans: the JSON of SQuAD 1.1, MLQA, XQuAD and TyDiQA's gold
passages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.records import Question, existing
from xlingjax.errors import UserError


def read_squad(
    paths: Sequence[Path],
    task,
    language: str,
    *,
    numbered: bool = False,
    translated: bool = False,
) -> list[Question]:
    """The questions of one file. An answer with empty text is none: XTREME so blanks those of its
    test sets. numbered: the ids are the rows, from 0, whatever the file says (ids come twice).
    translated: by a machine; an answer that it lost (blank, null, or not in its context where it is
    said to stand) is none either; a question or context that it lost (blank or null) is "" and has
    no answers; and a question that comes once for each of its answers, as XTREME writes them, is
    one.

    Raises UserError naming the file and the question's id: another layout, an id that comes twice,
    an answer that does not stand in its context where it is said to.
    """
    path = existing(paths[0])
    found: dict[str, Question] = {}
    for article in _field(_loaded(path), "data", path, "the file"):
        for paragraph in _field(article, "paragraphs", path, "an article"):
            context = _text(paragraph, "context", path, "a paragraph", translated)
            for qa in _field(paragraph, "qas", path, "a paragraph"):
                question = checked_question(qa, context, path, translated=translated)
                if numbered:
                    question = replace(question, id=str(len(found)))
                if before := found.get(question.id):
                    if not translated or (before.question, before.context) != (
                        question.question,
                        context,
                    ):
                        raise UserError(
                            f"{path}, question {question.id}: this id comes twice"
                        )
                    answers, starts = (
                        before.answers + question.answers,
                        before.starts + question.starts,
                    )
                    question = replace(question, answers=answers, starts=starts)
                found[question.id] = question
    if not found:
        raise UserError(f"{path}: no questions in this file")
    return list(found.values())


def checked_question(
    qa: Any, context: str, path: str | Path, *, translated: bool = False
) -> Question:
    """The question of SQuAD's `qa`. path: where it stands, for messages. translated: see
    `read_squad`. Raises UserError as it does."""
    id_ = str(qa.get("id", "")) if isinstance(qa, dict) else ""
    if not id_:
        raise UserError(f"{path}: a question without an id: {str(qa)[:60]}")
    where = f"question {id_}"
    asked = _text(qa, "question", path, where, translated)
    answers, starts = [], []
    for answer in qa.get("answers") or ():
        text = answer.get("text") if isinstance(answer, dict) else None
        start = answer.get("answer_start") if isinstance(answer, dict) else None
        if (
            translated
            and isinstance(answer, dict)
            and (not asked or text is None or start is None)
        ):
            continue
        if not isinstance(text, str) or not isinstance(start, int):
            raise UserError(
                f"{path}, {where}: an answer is not an object with a text and an answer_start"
            )
        if not text or translated and not text.strip():
            continue
        stands = context[start : start + len(text)] if start >= 0 else ""
        if stands != text and translated:
            continue
        if stands != text:
            other = context.find(text)
            remedy = (
                f"it stands at {other}"
                if other >= 0
                else "it stands nowhere in the context"
            )
            raise UserError(
                f"{path}, {where}: the answer {text!r} is not in its context at character {start},"
                f" where {stands!r} stands; {remedy}"
            )
        answers.append(text)
        starts.append(start)
    return Question(id_, asked, context, tuple(answers), tuple(starts))


def _loaded(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}, line {line}: invalid UTF-8; convert the file"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); fetch the file again") from None


def _field(record: Any, name: str, path: Path, what: str) -> list:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, list):
        raise UserError(
            f"{path}: {what} has no list {name!r}; expected SQuAD's layout: data, paragraphs, qas"
        )
    return value


def _text(
    record: Any, name: str, path: str | Path, what: str, may_be_lost: bool = False
) -> str:
    value = record.get(name) if isinstance(record, dict) else None
    if (
        may_be_lost
        and isinstance(record, dict)
        and name in record
        and (value is None or not str(value).strip())
    ):
        return ""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{path}, {what}: no text {name!r}")
    return value

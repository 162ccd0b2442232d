"""Files of examples that a teacher labelled: a line of JSON per record of `labelled/records.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xlingjax.data.labelled import records as of_kinds
from xlingjax.data.labelled.records import Example, Tagged, known_label
from xlingjax.data.labelled.task import KINDS, Task
from xlingjax.data.text.files import read_lines
from xlingjax.data.text.given import parse_object
from xlingjax.errors import UserError
from xlingjax.runtime.files import write_text


def labelled_path(folder: str | Path, task: Task, language: str) -> Path:
    return Path(folder) / f"{task.name}.{language}.jsonl"


def write_labelled(path: Path, records: Sequence[Any]) -> None:
    """One record of `data/labelled/records.py` a line, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records]
    write_text(path, "".join(lines))


def read_labelled(path: Path, task: Task) -> list[Any]:
    """The inverse of `write_labelled`. Raises UserError naming the line: no record, a label that
    the task does not have, words without a tag each."""
    made = []
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        try:
            given = parse_object(line, where)
            # JSON has no tuples, which the records have.
            record = getattr(of_kinds, KINDS[task.kind])(
                **{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
            )
        except TypeError as error:
            raise UserError(f"{where}: not a record of a {task.kind} task ({error})") from None
        if isinstance(record, Tagged):
            if len(record.words) != len(record.tags):
                raise UserError(f"{where}: {len(record.words)} words, but {len(record.tags)} tags")
            for tag in record.tags:
                known_label(tag, task.labels, where)
        elif isinstance(record, Example):
            known_label(str(record.label), task.labels, where)
        made.append(record)
    return made

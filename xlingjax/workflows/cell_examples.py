"""How many examples a cell is trained on, and which translated rows are left out of them."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.data.labelled.task import Task, hashes
from xlingjax.data.labelled.tfds import located
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.preprocessors.parts import Part, stored
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named
from xlingjax.training.run_record import run_and_checkpoint
from xlingjax.workflows.cell import Request, files_read, reading_of, training_of

_EMPTY = "translated rows, in which a text is missing"
LOST = {
    "span_qa": "translated questions, whose answer does not stand where the file says",
    "classification": _EMPTY,
    "ranking": _EMPTY,
    "tagging": _EMPTY,
}
"""Kind of task -> what of a translated training set is not learnt."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """Of a part of what is trained on: where it stands, how many of its translated rows are not
    learnt, of how many."""

    place: str
    lost: int
    rows: int


@dataclasses.dataclass(frozen=True)
class Count:
    """What a task is trained on in an epoch."""

    examples: int
    rows: int
    """Of the model: a long example is several."""
    lost: tuple[Lost, ...]
    """The translated rows that are left out."""
    unpaired: tuple[str, ...] = ()
    """Plugged in: what is said of translated rows without a partner, a line for each file."""


def lost_rows(task: Task, parts: Sequence[Lost]) -> list[str]:
    """What is said of translated rows that are not trained on, a line for each file."""
    lines = []
    for part in parts:
        lines.append(f"{part.place}: passed over {part.lost:,} of {part.rows:,} {LOST[task.kind]}")
    return lines


def counted(request: Request, task: Task, bound: Mapping[str, Any]) -> Count:
    """What a task is trained on in an epoch."""
    # Those of dev and test do not change what is counted.
    training_files = []
    for split, language in files_read(task, request.data, bound):
        if split in ("train", "translate_train"):
            training_files.append((split, language))
    # By the run and not its checkpoint: all of them have one vocabulary.
    return _counted(
        task.full_name,
        located(request.data),
        training_of(bound),
        reading_of(bound),
        run=str(run_and_checkpoint(request.source)[0]),
        paired=bound["CLASSIFIER"] == "plug_in",
        files=tuple(hashes(task, request.data, training_files).items()),
    )


# The cells of a sweep train on the same examples.
@functools.cache
def _counted(
    name: str, data: str, training: Training, reading: Reading, run: str, paired: bool, files: tuple
) -> Count:
    """files: what tells an edited set from itself."""
    task = task_named(name)
    if task.kind == "generation":
        # Texts to write are batched by the pipeline of text, an example a row.
        examples = 0
        for origin, language in training.parts(task, data):
            examples += len(training.records(task, data, origin, language))
        return Count(examples, examples, ())
    parts = []
    for origin, language in training.parts(task, data):
        # A model that is plugged in reads the gold example beside each translation of it.
        if origin == "gold" and paired:
            continue
        part = Part(task, data, training, reading, origin, language, paired)
        parts.append(part)
    examples = 0
    rows = 0
    lost = []
    unpaired = []
    # The training reads the same parts, which are made only once.
    for part, found in zip(parts, stored(parts, Vocabulary.load(run)), strict=True):
        records = found.facts["records"]
        learnt = found.facts["learnt"]
        if learnt < records:
            place = training.described(task, data, part.origin, part.language)
            lost.append(Lost(place, records - learnt, records))
        if found.facts["unpaired"]:
            place = training.described(task, data, part.origin, part.language)
            unpaired.append(f"{place}: {found.facts['unpaired']}")
        examples += learnt
        # Steps are planned by rows, since a question over a long context is several of them.
        rows += len(found.rows)
    return Count(examples, rows, tuple(lost), tuple(unpaired))

"""How many examples a cell is trained on, and which translated rows are left out of them."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.data.labelled.records import learnable
from xlingjax.data.labelled.task import Task, hashes
from xlingjax.data.labelled.tfds import located
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.preprocessors.beside import training_pairs
from xlingjax.preprocessors.task_rows import Reading, count_rows
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
        lines.append(
            f"{part.place}: passed over {part.lost:,} of {part.rows:,} {LOST[task.kind]}",
        )
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


# The cells of a sweep train on the same examples, and counting tokenises all of them.
@functools.cache
def _counted(
    name: str,
    data: str,
    training: Training,
    reading: Reading,
    run: str,
    paired: bool,
    files: tuple,
) -> Count:
    """files: what tells an edited set from itself."""
    task = task_named(name)
    vocabulary = Vocabulary.load(run)
    examples = 0
    rows = 0
    lost = []
    unpaired = []
    for origin, language in training.parts(task, data):
        # A model that is plugged in reads the gold example beside each translation of it.
        if origin == "gold" and paired:
            continue
        if paired:
            pairs = training_pairs(task, data, training, origin, language)
            if pairs.lost:
                place = training.described(task, data, origin, language)
                read = len(pairs.records) + pairs.lost
                lost.append(Lost(place, pairs.lost, read))
            if pairs.unpaired:
                unpaired.append(pairs.unpaired)
            examples += len(pairs.records)
            rows += count_rows(
                task,
                pairs.records,
                vocabulary,
                reading,
                language,
            )
            continue
        records = training.records(task, data, origin, language)
        learnt = records
        if origin != "gold":
            # Gold rows are read as they are; machine
            # translation leaves blank sides and lost answers.
            learnt = learnable(records)
        if len(learnt) < len(records):
            place = training.described(task, data, origin, language)
            lost.append(Lost(place, len(records) - len(learnt), len(records)))
        examples += len(learnt)
        # Steps are planned by rows, since a question over a long context is several of them.
        rows += count_rows(task, learnt, vocabulary, reading, language)
    return Count(examples, rows, tuple(lost), tuple(unpaired))

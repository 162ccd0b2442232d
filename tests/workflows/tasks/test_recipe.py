"""What a gin file of the command line says beside a strategy and the options of a sweep."""

import dataclasses

import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import finetune, refused, scores
from xlingjax.data.labelled.task import read
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard.rows import policy, rows_of

XNLI = task_named("xtreme/xnli")


files, start = sweeping.files, sweeping.start


def written(folder, *lines):
    (folder / "base.gin").write_text(lines[0] + "\n")
    (folder / "mine.gin").write_text("\n".join(['include "base.gin"', *lines[1:]]) + "\n")
    return folder / "mine.gin"


@pytest.mark.parametrize(
    "line, message",
    [
        ("SEED = 5", "SEED: a sweep has it from --seeds"),
        ('SELECT = "last"', "set it, to 'last' and 'en': say which by --gin.SELECT"),
        ('TRAIN_LANGUAGES = "de"', "TRAIN_LANGUAGES: "),
    ],
)
def test_what_would_be_set_twice_is_refused(line, message, start, files, tmp_path, capsys):
    """Also where a file that is included says it."""
    words = ["finetune", start, "--task xtreme/xnli --allow-missing"]
    words += ["--data", files / "xtreme", "--gin-file", written(tmp_path, line)]
    refused(capsys, tmp_path / "out", message, *words)


@pytest.mark.long
def test_a_gin_file_is_read_as_the_command_line_is(start, files, tmp_path):
    """Steps and splits of a file hold; what repeats the strategy is no quarrel."""
    steps = ["TRAIN_STEPS = 2", "EVAL_EVERY = 1", "CHECKPOINT_EVERY = 1"]
    parts = ['DEV_SPLIT = "dev[:50%]"', "DEV_LIMIT = 5", 'TEST_SPLIT = "dev[50%:]"']
    mine = written(tmp_path, *steps, *parts, 'TRAIN_LANGUAGES = "en"')
    assert finetune("xtreme/xnli", start, files, tmp_path / "out", "--gin-file", mine) == 0
    found = scores(tmp_path / "out", "xtreme/xnli/transfer/seed-0")
    chosen = found["select"]
    assert (chosen["steps"], chosen["split"], chosen["limit"]) == (2, "dev[:50%]", 5)
    assert found["test"]["split"] == "dev[50%:]"
    assert found["test"]["examples"] == {"de": 6, "en": 6, "ru": 6}
    (row,) = rows_of([found])
    assert policy(row) == (
        "checkpoint chosen by the mean of dev in de, en, ru (dev[:50%], 5 examples of each"
        " language)"
    )


def test_what_a_teacher_labelled_is_cut_as_the_gold_is(files, tmp_path):
    """Else translations of held-out rows would be learnt."""
    data = str(files / "xtreme")
    translated = read(XNLI, data, "translate_train", "de")
    write_labelled(labelled_path(tmp_path, XNLI, "de"), translated)
    training = Training(("en",), (), "train[:25%]", str(tmp_path))
    assert training.records(XNLI, data, "labelled", "de") == translated[:6]
    whole = dataclasses.replace(training, split="train")
    assert whole.records(XNLI, data, "labelled", "de") == translated

"""Rows of which a machine translation lost a text, as PAWS-X's official translated_train.tsv has
them: they keep their place beside the other languages, are not learnt, and are counted and named;
gold files are not read so.
"""

import json
import shutil

import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import finetune, scores
from tests.preprocessors.test_task import Hashed
from xlingjax.data.labelled.records import Example, is_lost, learnable
from xlingjax.data.labelled.task import read
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.errors import UserError
from xlingjax.preprocessors.task import task_source
from xlingjax.preprocessors.task_rows import Reading, beside_rows, task_rows
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named

PAWSX, READING = task_named("xtreme/pawsx"), Reading(length=24)
LANGUAGES = ("de", "en", "fr")
HEADER = "id\tsentence1\tsentence2\tlabel\n"
LOST = "32035\t\t\t0"  # as it stands there
files, start = sweeping.files, sweeping.start


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """Of x-final: five English rows and their translations; the third is lost in German, the last
    in French."""
    rows = [
        f"{n}\teins {word}\tzwei {word}\t{n % 2}"
        for n, word in enumerate(["a", "b", "c", "d", "e"], 32033)
    ]
    lost = "32035\t\t\t1"
    texts = {
        "en/train": rows,
        "de/translated_train": [*rows[:2], lost, *rows[3:]],
        "fr/translated_train": [*rows[:4], f"32037\tun\t \t{32037 % 2}"],
    }
    for name, lines in texts.items():
        write(tmp_path / f"x-final/{name}.tsv", HEADER + "".join(f"{line}\n" for line in lines))
    return tmp_path


def test_a_lost_row_keeps_its_place_and_is_not_learnt(folder):
    records = read(PAWSX, folder, "translate_train", "de")
    assert len(records) == 5 and records[2] == Example("", "", "1") and records[2].line == 4
    assert [is_lost(one) for one in records] == [False, False, True, False, False]
    assert learnable(records) == [*records[:2], *records[3:]]
    assert [one.label for one in read(PAWSX, folder, "translate_train[:60%]", "de")] == [
        "1",
        "0",
        "1",
    ]  # rows, as in en
    training = Training((), ("de", "fr"))
    made = task_source(PAWSX, folder, training, Hashed(), LANGUAGES, READING, batch_size=8)
    assert made.identity["mixture"] == "xtreme/pawsx: translated de 4, translated fr 4"
    wanted = {
        row.tobytes()
        for language in ("de", "fr")
        for row in task_rows(
            PAWSX,
            learnable(read(PAWSX, folder, "translate_train", language)),
            Hashed(),
            READING,
            "de",
            0,
        )["input_ids"]
    }
    assert {row.tobytes() for row in made.next()["input_ids"]} == wanted


def test_plug_in_and_a_teacher_keep_the_pairing_by_row(folder):
    english, german = (
        read(PAWSX, folder, "train", "en"),
        read(PAWSX, folder, "translate_train", "de"),
    )
    made = task_source(
        PAWSX,
        folder,
        Training(("en",), ("de",)),
        Hashed(),
        LANGUAGES,
        READING,
        batch_size=4,
        paired=True,
    )
    assert made.identity["mixture"] == "xtreme/pawsx: translated de 4 beside en"
    kept = [0, 1, 3, 4]
    both = beside_rows(
        PAWSX,
        [german[n] for n in kept],
        [english[n] for n in kept],
        Hashed(),
        READING,
        "de",
        (0, 1),
    )["input_ids"]
    assert {row.tobytes() for row in made.next()["input_ids"]} == {row.tobytes() for row in both}
    write_labelled(labelled_path(folder / "labelled", PAWSX, "de"), german)
    training = Training((), (), "train[:60%]", labelled=str(folder / "labelled"))
    made = task_source(PAWSX, folder, training, Hashed(), LANGUAGES, READING, batch_size=2)
    assert made.identity["mixture"] == "xtreme/pawsx: labelled de 2"  # of the first three rows


def test_where_nothing_is_lost_but_everything(folder):
    write(folder / "x-final/de/translated_train.tsv", f"{HEADER}{LOST}\n{LOST}\n")
    with pytest.raises(UserError, match=r"translated_train.tsv: no examples in this file"):
        read(PAWSX, folder, "translate_train", "de")


@pytest.mark.parametrize(
    ("split", "name"), [("train", "train"), ("dev", "dev_2k"), ("test", "test_2k")]
)
def test_gold_files_are_refused(split, name, folder):
    """Every line of a test set is predicted: none is passed over."""
    write(folder / f"x-final/en/{name}.tsv", f"{HEADER}1\ta\tb\t0\n{LOST}\n")
    with pytest.raises(
        UserError,
        match=f"{name}.tsv, line 3: a text is empty; fetch the file again",
    ):
        read(PAWSX, folder, split, "en")


@pytest.mark.parametrize(
    ("name", "split", "path", "text"),
    [
        ("xnli/xnli", "translate_train", "XNLI-MT-1.0/multinli/multinli.train.de.tsv",
         "premise\thypo\tlabel\nA\tB\tneutral\n\tB\tentailment\n"),
        ("xtreme/xnli", "translate_train", "xnli/translate-train/en-de-translated.tsv",
         "A\tB\tA\tB\tneutral\nA\tB\t\t\tentailment\n"),
        ("xglue/xnli", "translate_train", "XNLI/translate-train/en-de-translated.tsv",
         "A\tB\tneutral\nA\t\tentailment\n"),
        ("xtreme/pawsx", "translate_test", "pawsx/translate-test/test-de-en-translated.tsv",
         "A\tB\tA\tB\t0\nA\tB\t\tB\t1\n"),
        ("xtreme/udpos", "translate_train", "udpos/translate-train/train-de.mt.tsv",
         "A B\tNOUN VERB\n\t\nC\tNOUN\n"),
    ],
)  # fmt: skip
def test_other_machine_translated_files_have_such_rows_too(name, split, path, text, tmp_path):
    write(tmp_path / path, text)
    if name == "xglue/xnli":
        shutil.copytree(tmp_path / "XNLI", tmp_path / "xtreme_translations/XNLI")
    records = read(task_named(name), tmp_path, split, "de")
    assert [is_lost(one) for one in records][:2] == [False, True] and len(records) == text.count(
        "\n"
    ) - (name == "xnli/xnli")


@pytest.mark.long
def test_a_sweep_says_which_file_and_how_many(files, start, tmp_path, capsys):
    shutil.copytree(files / "xtreme/pawsx", tmp_path / "files/xtreme/pawsx")
    root = tmp_path / "files/xtreme"
    rows = [
        line.split("\t")
        for line in (root / "pawsx/translate-train/en-de-translated.tsv").read_text().splitlines()
    ]
    shutil.rmtree(root / "pawsx/translate-train")
    lines = ["\t".join([str(n), *row[2:]]) for n, row in enumerate(rows)]
    lines[5] = f"5\t\t\t{rows[5][-1]}"
    write(root / "x-final/de/translated_train.tsv", HEADER + "".join(f"{line}\n" for line in lines))
    request = ("--gin.TRAIN_STEPS=1", "--strategy multi_language")
    assert finetune("xtreme/pawsx", start, tmp_path / "files", tmp_path / "out", *request) == 0
    place = root / "x-final/de/translated_train.tsv"
    told = f"{place}, de: passed over 1 of 24 translated rows, in which a text is missing\n"
    assert told in capsys.readouterr().out
    found = scores(tmp_path / "out", "xtreme", "pawsx", "multi_language", "seed-0")
    assert found["trained"]["examples"] == 24 + 23
    cell = tmp_path / "out/cells/xtreme/pawsx/multi_language/seed-0"
    assert (
        "47 training examples (without 1 translated rows, in which a text is missing);"
        in (cell / "cell.gin").read_text()
    )
    (data,) = json.loads((cell / "run/run.json").read_text())["identity"]["data"].values()
    assert data["mixture"] == "xtreme/pawsx: gold en 24, translated de 23"

"""Rows of which a machine translation lost a text, as PAWS-X's official translated_train.tsv has
them: they keep their place beside the other languages, are not learnt, and are counted and named;
gold files are not read so.
"""

import shutil

import pytest

from tests.helpers import sweeping
from tests.preprocessors.test_task import Hashed
from xlingjax.data.labelled.records import Example, is_lost, learnable
from xlingjax.data.labelled.task import read
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.errors import UserError
from xlingjax.preprocessors.parts import task_source
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
        )[0]["input_ids"]
    }
    assert {row.tobytes() for row in made.next()["input_ids"]} == wanted


def test_plug_in_and_a_teacher_keep_the_pairing_by_row(folder):
    english = read(PAWSX, folder, "train", "en")
    german = read(PAWSX, folder, "translate_train", "de")

    def source(training, **options):
        read_as = (Hashed(), LANGUAGES, READING)
        return task_source(PAWSX, folder, training, *read_as, **options)

    made = source(Training(("en",), ("de",)), batch_size=4, paired=True)
    assert made.identity["mixture"] == "xtreme/pawsx: translated de 4 beside en"
    sides = ([of[n] for n in (0, 1, 3, 4)] for of in (german, english))
    both = beside_rows(PAWSX, *sides, Hashed(), READING, "de", (0, 1))["input_ids"]
    assert {row.tobytes() for row in made.next()["input_ids"]} == {row.tobytes() for row in both}
    write_labelled(labelled_path(folder / "labelled", PAWSX, "de"), german)
    made = source(Training((), (), "train[:60%]", str(folder / "labelled")), batch_size=2)
    assert made.identity["mixture"] == "xtreme/pawsx: labelled de 2"  # of the first three rows


def test_gold_files_are_refused(folder):
    """Every line of a test set is predicted: none is passed over."""
    for split, name in (("train", "train"), ("test", "test_2k")):
        write(folder / f"x-final/en/{name}.tsv", f"{HEADER}1\ta\tb\t0\n{LOST}\n")
        with pytest.raises(UserError, match=f"{name}.tsv, line 3: a text is empty"):
            read(PAWSX, folder, split, "en")
    write(folder / "x-final/de/translated_train.tsv", f"{HEADER}{LOST}\n{LOST}\n")
    with pytest.raises(UserError, match="translated_train.tsv: no examples in this file"):
        read(PAWSX, folder, "translate_train", "de")


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

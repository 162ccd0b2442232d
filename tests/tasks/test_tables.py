"""The tables of tasks, where their files are looked for, and what stands in them."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from tests.helpers.files import write
from xlingjax.data.labelled.records import Bitext, Example, SourceTarget, Tagged
from xlingjax.data.labelled.task import (
    KINDS,
    SPLITS,
    Files,
    Task,
    find,
    languages_present,
    part_of,
    read,
    share_rows,
)
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.registry import metrics_of
from xlingjax.tasks import suite_tasks, suites, task_named

TASKS = [task for suite in suites() for task in suite_tasks(suite)]


def test_the_benchmarks_are_whole():
    def sizes(suite):
        return [len(task.languages) for task in suite_tasks(suite)]

    assert sizes("xtreme") == [15, 7, 33, 40, 11, 7, 9, 4, 36]
    assert sizes("xglue") == [4, 18, 5, 7, 15, 4, 3, 7, 3, 6, 5]
    assert task_named("applications/xqa").averaged == ("de", "fr")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.full_name)
def test_tables_are_consistent(task):
    assert len(set(task.languages)) == len(task.languages) and len(set(task.labels)) == len(
        task.labels
    )
    assert set(task.files) <= set(SPLITS) and all(task.files.values())
    assert set(task.metrics) <= set(metrics_of(task.kind)), "a metric that does not score this kind"
    assert bool(task.labels) == (KINDS[task.kind] in ("Example", "Tagged"))
    assert "{language}" in task.submission and task_named(task.full_name) is task
    assert hash(task) == hash(dataclasses.replace(task))
    for split, places in task.files.items():
        lie = [
            files.paths(Path("x"), code) or "*" in files.patterns[0]
            for files in places
            for code in task.languages
        ]
        assert any(lie), f"{split} lies nowhere"


def test_the_score_of_a_task_is_the_official_scripts():
    first = {task.full_name: task.metrics[0] for task in TASKS}
    assert first["xtreme/udpos"] == first["xtreme/panx"] == first["xglue/ner"] == "seqeval_f1"
    assert first["xglue/pos"] == "seqeval_precision" and first["xglue/wpr"] == "ndcg_wpr"
    assert (
        first["xtreme/mlqa"] == first["xglue/mlqa"] == "mlqa_f1"
        and first["xtreme/xquad"] == "squad_f1"
    )
    assert first["xglue/qg"] == first["xglue/ntg"] == "xglue_bleu"
    # Code bases number these labels otherwise: the order is part of the table.
    assert task_named("xtreme/xnli").labels == ("contradiction", "entailment", "neutral")


def test_names():
    assert task_named("xtreme/udpos").languages[:3] == ("af", "ar", "bg")
    with pytest.raises(UserError, match="no task 'xtreme/udpo'; there are xtreme/xnli, xtreme/pa"):
        task_named("xtreme/udpo")
    with pytest.raises(UserError, match="task 'pawsx' names no benchmark; write SUITE/NAME"):
        task_named("pawsx")


@pytest.mark.parametrize(
    "split, rows",
    [
        ("dev", range(5)),
        ("dev[:50%]", (0, 1)),
        ("dev[50%:]", (2, 3, 4)),
        ("dev[20%:80%]", (1, 2, 3)),
        ("dev[-2:]", (3, 4)),
        ("dev[:3]", (0, 1, 2)),
        ("dev[-40%:]", (3, 4)),
    ],
)
def test_parts_of_a_split(split, rows):
    name, part = part_of(split)
    assert name == "dev" and tuple(range(5))[part(5)] == tuple(rows)


@pytest.mark.parametrize(
    "other, count, shared",
    [
        ("dev", 5, True),
        ("dev[50%:]", 5, False),
        ("dev[1:]", 5, True),
        ("dev[-3:]", 5, False),
        ("dev[-3:]", 4, True),
    ],
)
def test_parts_that_share_rows(other, count, shared):
    assert (
        share_rows("dev[:2]", other, count) is shared
        and share_rows(other, "dev[:2]", count) is shared
    )


def lines(paths, task, language):
    return [(language, line) for path in paths for line in path.read_text().splitlines()]


PLACES = {
    "train": (Files(("train.{language}",), lines, languages=("en",)),),
    "dev": (
        Files(("a/dev.{language}",), lines),
        Files(("{language3}.{conll}", "b/dev.{language}"), lines),
    ),
    "test": (Files(("t/{language}_*.test",), lines),),
}
TASK = Task(
    "xtreme", "made", "classification", ("de", "fr"), PLACES, ("accuracy",), "made/{language}",
    ("0", "1"),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name, text in {
        "train.en": "one",
        "train.de": "strange",
        "a/dev.de": "eins\nzwei",
        "fra.x": "",
        "b/dev.de": "wrong",
        "t/de_a.test": "a",
        "t/de_b.test": "b",
        "t/fr_a.test": "f",
    }.items():
        write(tmp_path / name, text)
    return tmp_path


def test_the_first_place_that_is_there_is_read(folder):
    assert read(TASK, folder, "dev", "de") == [("de", "eins"), ("de", "zwei")]
    assert read(TASK, folder, "dev[1:]", "de") == [("de", "zwei")]
    assert find(TASK, folder, "dev", "fr") is None  # CoNLL has no French
    (folder / "a" / "dev.de").unlink()
    assert find(TASK, folder, "dev", "de") is None  # deu.deu is missing
    (folder / "deu.deu").write_text("drei")
    assert [path.name for path in find(TASK, folder, "dev", "de").paths] == ["deu.deu", "dev.de"]


def test_all_files_of_a_star_are_read(folder):
    assert read(TASK, folder, "test", "de") == [("de", "a"), ("de", "b")]
    assert languages_present(TASK, folder, "test") == ["de", "fr"]
    # train.de lies there, but is no training set of the task.
    assert languages_present(TASK, folder, "train") == ["en"]


def test_missing_files_are_named(folder):
    message = r"xtreme/made: no dev files of 'fr' in .*: looked for .*a/dev.{language} or .*; fetch"
    with pytest.raises(UserError, match=message):
        read(TASK, folder, "dev", "fr")


def test_faults_of_a_split(folder):
    for split, message in (
        ("validation", r"xtreme/made has no split 'validation'; it has train, dev, test"),
        ("dev[:120%]", r"split 'dev\[:120%\]' is not a name, or a part"),
        ("dev[5:]", r"xtreme/made, de: dev\[5:\] of 2 rows holds none"),
    ):
        with pytest.raises(UserError, match=message):
            read(TASK, folder, split, "de")
    with pytest.raises(UserError, match="no folder .*nowhere; give the one that holds the files"):
        find(TASK, folder / "nowhere", "dev", "de")


def test_only_test_sets_may_lack_labels(tmp_path):
    for name in ("xnli/train-en.tsv", "xnli/test-en.tsv", "udpos/dev-de.tsv"):
        write(tmp_path / name, "A\n" if "udpos" in name else "A\tB\n")
    xnli, udpos = task_named("xtreme/xnli"), task_named("xtreme/udpos")
    assert read(xnli, tmp_path, "test", "en") == [Example("A", "B", None)]
    with pytest.raises(UserError, match=r"train-en.tsv: no labels; the train set needs them"):
        read(xnli, tmp_path, "train", "en")
    with pytest.raises(UserError, match=r"dev-de.tsv: no labels; the dev set needs them"):
        read(udpos, tmp_path, "dev", "de")


# --- files in the official layouts ----------------------------------------------------------------


@pytest.mark.parametrize("suite", ["xtreme", "xglue"])
def test_official_layouts_are_read_in_full(official, suite):
    """Every file that the helper writes is found by a task, and all nine and eleven tasks have dev
    or test sets."""
    folder, found = official / suite, set()
    for task in suite_tasks(suite):
        for split in task.files:
            for language in languages_present(task, folder, split):
                assert read(task, folder, split, language)
                found |= set(find(task, folder, split, language).paths)
        assert languages_present(task, folder, "test"), task.full_name
    assert {path for path in folder.rglob("*") if path.is_file()} == found


def test_hidden_answers_are_none(official):
    folder = official / "xtreme"
    names = [task.name for task in suite_tasks("xtreme") if task.name != "tydiqa"]
    kinds = {name: read(task_named(f"xtreme/{name}"), folder, "test", "de")[0] for name in names}
    assert (
        kinds["xnli"].label is None and kinds["udpos"].tags == () and kinds["xquad"].answers == ()
    )
    assert kinds["bucc2018"].gold is None and kinds["tatoeba"].gold is None
    assert read(task_named("xtreme/bucc2018"), folder, "dev", "de")[0].gold
    with pytest.raises(UserError, match=r"xtreme/bucc2018, dev\[:50%\]: a bitext has no parts"):
        read(task_named("xtreme/bucc2018"), folder, "dev[:50%]", "de")


@pytest.mark.parametrize("suite", ["xtreme", "xglue", "xnli"])
def test_translations_of_multinli_are_no_gold(tmp_path, suite):
    """XNLI-MT-1.0 names them as it names MultiNLI itself: to train on all gold would be
    translate-train-all."""
    for language in ("de", "en", "zh"):
        path = tmp_path / f"XNLI-MT-1.0/multinli/multinli.train.{language}.tsv"
        write(path, "premise\thypo\tlabel\nA\tB\tneutral\n")
    task = task_named(f"{suite}/xnli")
    assert languages_present(task, tmp_path, "train") == ["en"]
    assert languages_present(task, tmp_path, "translate_train") == ["de", "zh"]


def test_parallel_rows_are_cut_alike(official):
    task = task_named("xtreme/xnli")
    parts = [
        read(task, official / "xtreme", split, code)
        for code in ("de", "en")
        for split in ("dev[:50%]", "dev[50%:]")
    ]
    assert [[example.label for example in part] for part in parts[:2]] == [
        [e.label for e in part] for part in parts[2:]
    ]
    assert parts[0] + parts[1] == read(task, official / "xtreme", "dev", "de")


def test_a_task_of_the_first_rows(official):
    """Of each set, or of the part of one that is read."""
    folder = official / "xtreme"
    few = task_named("xtreme/xnli[:2]")
    assert task_named(few.full_name) == few and few.whole == task_named("xtreme/xnli")
    for split in ("train", "dev", "dev[50%:]", "translate_train"):
        code = "de" if split == "translate_train" else "en"
        assert read(few, folder, split, code) == read(few.whole, folder, split, code)[:2]
    with pytest.raises(UserError, match=r"no task 'xtreme/xnli\[:0\]'"):
        task_named("xtreme/xnli[:0]")


def test_a_bitext_of_the_first_pairs_has_rows_for_ids():
    source, target = (tuple(zip(ids, ids.upper(), strict=True)) for ids in ("abc", "xyz"))
    bitext = Bitext(source, target, frozenset({("c", "x"), ("b", "z")}))
    assert bitext.of_first(1) == Bitext((("0", "B"),), (("0", "Z"),), frozenset({("0", "0")}))
    two = Bitext((("0", "B"), ("1", "C")), (("0", "X"), ("1", "Z")), {("1", "0"), ("0", "1")})
    assert bitext.of_first(2) == two
    assert dataclasses.replace(bitext, gold=None).of_first(2) == Bitext(
        source[:2], target[:2], None
    )


def test_questions_that_languages_share_are_cut_alike(tmp_path):
    """MLQA's rows do not correspond: each question is in some languages."""
    task = task_named("xtreme/mlqa")

    ids = [f"{n:x}" for n in range(40)]
    answer = {"question": "Wo?", "answers": [{"text": "Rom", "answer_start": 3}]}
    halves = {}
    for code, own in (("en", ids), ("de", ids[::-3])):
        paragraphs = [{"context": "In Rom.", "qas": [answer | {"id": i}]} for i in own]
        path = tmp_path / f"mlqa/MLQA_V1/dev/dev-context-{code}-question-{code}.json"
        write(path, json.dumps({"data": [{"paragraphs": paragraphs}]}))
    for code in ("en", "de"):
        parts = (read(task, tmp_path, split, code) for split in ("dev[:50%]", "dev[50%:]"))
        halves[code] = [[q.id for q in part] for part in parts]
    assert sorted(sum(halves["en"], [])) == sorted(ids) and min(map(len, halves["en"])) > 10
    for half in (0, 1):
        assert {*halves["de"][half]} == {*halves["en"][half]} & {*ids[::-3]}
    assert [q.id for q in read(task, tmp_path, "dev[:3]", "en")] == ids[:3]


XCOPA = '{"premise": "A", "question": "cause", "choice1": "B", "choice2": "C", "label": 0}\n'
XNLI = (
    "language\tgold_label\tsentence1\tsentence2\tmatch\n"
    "de\tneutral\tA\tB\tTrue\nfr\tneutral\tC\tD\tTrue\n"
)
PAWSX = "id\tsentence1\tsentence2\tlabel\n1\tA\tB\t0\n"
# fmt: off
OTHER_PLACES = [
    ("xtreme/xnli", "dev", "fr", {"XNLI-1.0/xnli.dev.tsv": XNLI}, Example("C", "D", "neutral")),
    ("xnli/xnli", "test", "de", {"XNLI-1.0/xnli.test.tsv": XNLI}, Example("A", "B", "neutral")),
    ("xnli/xnli", "translate_test", "de", {"XNLI-MT-1.0/xnli/xnli.test.en.tsv": XNLI},
     Example("A", "B", "neutral")),
    ("xnli/xnli", "translate_train", "fr",
     {"XNLI-MT-1.0/multinli/multinli.train.fr.tsv": "premise\thypo\tlabel\nA\tB\tcontradictory\n"},
     Example("A", "B", "contradiction")),
    ("xglue/xnli", "dev", "de", {"XNLI/xnli.dev.tsv": XNLI}, Example("A", "B", "neutral")),
    ("xtreme/pawsx", "dev", "de", {"x-final/de/dev_2k.tsv": PAWSX}, Example("A", "B", "0")),
    ("xtreme/pawsx", "translate_train", "de", {"x-final/de/translated_train.tsv": PAWSX},
     Example("A", "B", "0")),
    ("xtreme/pawsx", "translate_train", "de",
     {"xtreme_translations/PAWSX/translate-train/en-de-translated.tsv": "A\tB\tC\tD\t1\n"},
     Example("C", "D", "1")),
    ("xtreme/panx", "dev", "de", {"panx_dataset/de-dev": "de:Bonn\tB-LOC\n"},
     Tagged(("Bonn",), ("B-LOC",))),
    ("xtreme/tatoeba", "test", "zh",
     {"tatoeba/v1/tatoeba.cmn-eng.cmn": "A\n", "tatoeba/v1/tatoeba.cmn-eng.eng": "B\n"},
     Bitext((("0", "A"),), (("0", "B"),), frozenset({("0", "0")}))),
    ("xtreme/bucc2018", "test", "de",
     {"bucc2018/de-en/de-en.training.de": "de-1\tA\n",
      "bucc2018/de-en/de-en.training.en": "en-1\tB\n",
      "bucc2018/de-en/de-en.training.gold": "de-1\ten-1\n"},
     Bitext((("de-1", "A"),), (("en-1", "B"),), frozenset({("de-1", "en-1")}))),
    ("applications/conll", "train", "en", {"conll2003/eng.train": "EU NNP I-NP I-ORG\n"},
     Tagged(("EU",), ("B-ORG",))),
    ("applications/conll", "dev", "de", {"conll2003/deu.testa": "EU EU NE I-NC I-ORG\n"},
     Tagged(("EU",), ("B-ORG",))),
    ("applications/conll", "test", "nl", {"conll2002/ned.testb": "EU N B-ORG\n"},
     Tagged(("EU",), ("B-ORG",))),
    ("applications/conll", "test", "es", {"conll2002/esp.testb": "UE B-ORG\n"},
     Tagged(("UE",), ("B-ORG",))),
    ("applications/uner", "test", "en",
     {"uner/en_ewt-ud-test.iob2": "# text = Rome\n1\tRome\tB-LOC\t-\tX\n"},
     Tagged(("Rome",), ("B-LOC",))),
    ("applications/sib200", "dev", "zh",
     {"data/annotated/zho_Hans/dev.tsv": "index_id\tcategory\ttext\n1\ttravel\tA\n"},
     Example("A", None, "travel")),
    ("applications/xcopa", "dev", "it", {"xcopa/val.it.jsonl": XCOPA},
     Example("A cause", "B / C", "0")),
    ("xglue/pos", "dev", "hi", {"udpos/dev-hi.tsv": "A\tNOUN\n"}, Tagged(("A",), ("NOUN",))),
    ("xglue/xnli", "translate_train", "ur",
     {"xtreme_translations/XNLI/translate-train/en-ur-translated.tsv": "A\tB\tC\tD\tneutral\n"},
     Example("C", "D", "neutral")),
    ("xglue/pawsx", "translate_train", "fr",
     {"pawsx/translate-train/en-fr-translated.tsv": "A\tB\tC\tD\t1\n"},
     Example("C", "D", "1")),
    ("xglue/pawsx", "translate_train", "es", {"x-final/es/translated_train.tsv": PAWSX},
     Example("A", "B", "0")),
    ("xglue/pawsx", "test", "de", {"pawsx/test-de.tsv": '"A ""B"""\tC\n'},
     Example('A "B"', "C", None)),
    ("xglue/qg", "test", "de", {"QG/xglue.qg.de.src.test": "A\n"}, SourceTarget("A", None)),
]
# fmt: on


@pytest.mark.parametrize("name, split, language, files, first", OTHER_PLACES)
def test_other_layouts(tmp_path, name, split, language, files, first):
    for path, text in files.items():
        write(tmp_path / path, text)
    assert read(task_named(name), tmp_path, split, language) == [first]


def test_xglue_reads_xtremes_translations_in_its_own_languages(tmp_path):
    (tmp_path / "pawsx/translate-train").mkdir(parents=True)
    for code in ("de", "es", "ja"):
        (tmp_path / f"pawsx/translate-train/en-{code}-translated.tsv").write_text("A\tB\t1\n")
    task = task_named("xglue/pawsx")
    assert languages_present(task, tmp_path, "translate_train") == ["de", "es"]
    assert find(task, tmp_path, "translate_train", "ja") is None


def test_xglue_takes_of_xtremes_tags_only_those_that_are_its_own(tmp_path):
    (tmp_path / "udpos").mkdir()
    (tmp_path / "udpos" / "dev-de.tsv").write_text("A\tNOUN\n")
    assert find(task_named("xglue/pos"), tmp_path, "dev", "de") is None


# --- real files -----------------------------------------------------------------------------------

UD_DEV = (909, 1_115, 19_233, 403, 3_974, 3_054, 2_903, 1_659, 8_108, 362, 988, 552, 800, 1_000)
REAL = {
    "xtreme/xnli": {"train": {15_001: 1}, "dev": {2_490: 15}, "translate_train": {15_001: 9}},
    "xtreme/pawsx": {"dev": {2_000: 5}},
    "xtreme/udpos": {
        "train": {21_253: 1, 1_662: 1, 3_664: 1, 1_400: 1},
        "dev": dict.fromkeys(UD_DEV, 1),
    },
    "xtreme/panx": {"train": {20_000: 3, 1_000: 1}, "dev": {10_000: 11, 1_000: 3}},
    "xtreme/xquad": {"test": {1_190: 8}},
    "xtreme/mlqa": {"dev": {n: 1 for n in (517, 512, 1_148, 500, 507, 511, 504)}},
    "xtreme/tydiqa": {"train": {3_696: 1, 2_755: 1}},
    "xtreme/bucc2018": {"dev": {1: 1}},
    "xtreme/tatoeba": {"test": {1: 14}},
    "xglue/pos": {"dev": {1_115: 1, 1_659: 1, 552: 1, 800: 1}},
    "applications/sib200": {"train": {701: 15}, "dev": {99: 15}, "test": {204: 15}},
    "applications/xsid_intents": {"train": {43_605: 1}, "dev": {300: 5}},
    "applications/xsid_slots": {"train": {43_605: 1}, "dev": {300: 5}},
    "applications/mtod_intents": {"dev": {1_983: 1, 1_235: 1}},
    "applications/uner": {"dev": {2_001: 1}},
    "applications/ud": {"train": {12_544: 1}, "dev": {799: 1, 2_001: 1, 500: 1}},
    "applications/xcopa": {"train": {400: 1}, "dev": {100: 6}},
    "applications/tydiqa_to_xquad": {"train": {3_696: 1}, "test": {1_190: 8}},
    "applications/question_generation": {"train": {3_296: 1}, "dev": {1_190: 7, 400: 1}},
    "applications/story_title": {"train": {693: 1}, "dev": {60: 1, 146: 1}},
    "applications/multi30k": {"dev": {1_014: 2}, "test": {1_000: 2}},
    "applications/newstest2021": {"test": {1_002: 3}},
}
"""Task -> split -> {rows: how many languages have as many}."""
LARGE = ("xtreme/xnli", "xtreme/udpos", "xtreme/panx")
real = pytest.mark.skipif(
    not os.environ.get("XLINGJAX_DATA"), reason="XLINGJAX_DATA names no folder of real data"
)


@real
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in LARGE else n for n in REAL]
)
def test_real_files_hold_what_their_authors_say(name):
    task, folder = task_named(name), Path(os.environ["XLINGJAX_DATA"]) / "tasks"
    counts = {}
    for split in task.files:
        for language in languages_present(task, folder, split):
            rows = len(read(task, folder, split, language))
            of_split = counts.setdefault(split, {})
            of_split[rows] = of_split.get(rows, 0) + 1
    assert counts == REAL[name]


@real
def test_real_bitexts():
    folder = Path(os.environ["XLINGJAX_DATA"]) / "tasks"
    (zh,) = read(task_named("xtreme/bucc2018"), folder, "dev", "zh")
    assert (len(zh.source), len(zh.target), len(zh.gold)) == (8_624, 13_589, 257)
    task = task_named("xtreme/tatoeba")
    found = {
        code: read(task, folder, "test", code) for code in languages_present(task, folder, "test")
    }
    sizes = {code: len(bitext.gold) for code, (bitext,) in found.items()}
    assert sizes.pop("sw") == 390 and sizes.pop("th") == 548 and set(sizes.values()) == {1_000}

"""Sets of TensorFlow Datasets: the records are those of the official files that TFDS's own builders
made them of."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import prepared_sets
from xlingjax.data.labelled import tfds as prepared
from xlingjax.data.labelled.records import Example, Tagged
from xlingjax.data.labelled.task import find, languages_present, read
from xlingjax.errors import UserError
from xlingjax.evaluation.score_files import score_files
from xlingjax.tasks import suite_tasks, suites, task_named

tfds = pytest.importorskip("tensorflow_datasets")


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    return prepared_sets.official(tmp_path_factory.mktemp("official"))


@pytest.fixture(scope="module")
def sets(official, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    prepared_sets.prepare(official, folder, prepared_sets.SETS)
    return f"tfds:{folder}"


CASES = [
    *(
        ("xtreme/xnli", split, code)
        for split in ("dev", "test", "translate_train")
        for code in ("de", "zh")
    ),
    *(("xtreme/pawsx", split, "en") for split in ("train", "dev", "test")),
    ("xtreme/pawsx", "test", "de"),
    ("xtreme/pawsx", "translate_train", "de"),
    *(("xtreme/panx", split, "de") for split in ("train", "dev", "test")),
    ("xtreme/xquad", "train", "en"),
    ("xtreme/xquad", "dev", "en"),
    ("xtreme/xquad", "test", "de"),
    ("xtreme/xquad", "translate_train", "de"),
    ("xtreme/mlqa", "translate_train", "de"),
    ("xtreme/mlqa", "dev", "de"),
    ("xtreme/mlqa", "test", "de"),
    ("xtreme/tydiqa", "test", "fi"),
    ("xnli/xnli", "train", "en"),
    ("xglue/xnli", "dev", "ur"),
    ("xglue/pawsx", "dev", "de"),
    ("xglue/xnli", "translate_train", "zh"),
    ("xglue/pawsx", "translate_train", "de"),
    ("xglue/mlqa", "test", "de"),
    *(
        ("applications/conll", split, code)
        for split in ("train", "dev", "test")
        for code in ("en", "nl")
    ),
    *(("applications/ud", split, "de") for split in ("train", "dev", "test")),
]


@pytest.mark.parametrize("name, split, language", CASES)
def test_the_records_are_those_of_the_official_files(official, sets, name, split, language):
    task = task_named(name)
    assert language in languages_present(task, sets, split)
    assert sorted(map(str, without_line(read(task, sets, split, language)))) == sorted(
        map(str, without_line(read(task, official, split, language)))
    )


def without_line(records):
    """Without what TFDS does not keep: lines, and of translations the original texts."""
    kept = []
    for record in records:
        values = dict(vars(record))
        for name, empty in (("line", 0), ("original", ())):
            if name in values:
                values[name] = empty
        kept.append(type(record)(**values))
    return kept


def test_labels_are_named_as_the_tasks_are(sets):
    """TFDS numbers XNLI's entailment 0 and calls PAWS-X's classes by name."""
    nli = read(task_named("xtreme/xnli"), sets, "dev", "de")
    assert {one.premise[-1]: one.label for one in nli} == {
        str(row): prepared_sets.LABELS[row % 3] for row in range(6)
    }
    pairs = read(task_named("xtreme/pawsx"), sets, "translate_train", "de")
    assert {one.premise: one.label for one in pairs} == {
        f"Ä {row}": str(int(row > 1)) for row in range(6)
    }
    first, *_ = (
        one
        for one in read(task_named("xtreme/panx"), sets, "dev", "de")
        if one.words[0] == "B-PER:0"
    )
    assert first.tags == tuple(word.partition(":")[0] for word in first.words)
    assert first.tags[:4] == ("B-PER", "I-PER", "O", "B-ORG")


def test_answers_are_told_in_characters(sets):
    (one,) = (one for one in read(task_named("xtreme/xquad"), sets, "test", "de") if one.id == "x1")
    assert one.answers == ("Köln0", "öln0") and one.starts == (13, 14)
    assert [one.context[start:] for start in one.starts] == ["Köln0 am Rhein.", "öln0 am Rhein."]


def test_tydiqas_training_set_is_told_apart_by_the_ids(sets, official):
    """All languages lie in one split. XTREME cuts the ids, TFDS keeps them."""
    task = task_named("xtreme/tydiqa")
    assert languages_present(task, sets, "train") == sorted(prepared_sets.TYDIQA)
    found = read(task, sets, "train", "ko")
    assert {one.id for one in found} == {f"korean-{row}-1" for row in range(3)}
    assert {one.context for one in found} == {
        one.context for one in read(task, official, "train", "ko")
    }


def test_tatoebas_sides_stay_aligned(sets, official):
    task = task_named("xtreme/tatoeba")
    (ours,), (theirs,) = (read(task, folder, "test", "de") for folder in (sets, official))

    def aligned(bitext):
        source, target = dict(bitext.source), dict(bitext.target)
        return {(source[a], target[b]) for a, b in bitext.gold}

    assert (
        aligned(ours) == aligned(theirs) == {(f"deu ß {row}", f"eng ß {row}") for row in range(6)}
    )


def test_words_of_a_treebank_are_neither_tokens_of_several_nor_empty_nodes(sets):
    found = read(task_named("applications/ud"), sets, "test", "de")
    assert len(found) == 12  # of both treebanks
    words = ("Erpud-3", "geht", "zu", "dem", "Haus")
    assert Tagged(words, ("PRON", "VERB", "ADP", "DET", "NOUN")) in found


def test_xnlis_parts_are_the_same_rows_in_every_language(sets):
    task = task_named("xtreme/xnli")
    halves = {code: read(task, sets, "dev[:50%]", code) for code in ("de", "th")}
    rows = {code: [one.premise.split()[-1] for one in half] for code, half in halves.items()}
    assert rows["de"] == rows["th"] and len(rows["de"]) == 3


def test_english_beside_translations_is_their_own_where_multinli_is_not_prepared(sets, tmp_path):
    shutil.copytree(prepared.data_dir(sets) / "xtreme_xnli", tmp_path / "xtreme_xnli")
    task = task_named("xtreme/xnli")
    english, german = (
        read(task, f"tfds:{tmp_path}", split, code)
        for split, code in (("train", "en"), ("translate_train", "de"))
    )
    assert [
        Example(f"de {one.premise}", f"de {one.hypothesis}", one.label) for one in english
    ] == german
    assert languages_present(task, f"tfds:{tmp_path}", "translate_train") == [
        code for code in prepared_sets.XNLI if code != "en"
    ]


def test_every_set_is_one_of_tfds_with_that_version():
    """Names, versions and configs, of TFDS's builders."""
    from xlingjax.data.seqio.mixture import keep_tensorflow_off_accelerators

    keep_tensorflow_off_accelerators()
    for task in (task for suite in suites() for task in suite_tasks(suite)):
        for split, places in task.prepared.items():
            assert split in task.files, task.full_name
            for one in places:
                name, _, version = one.name.partition(":")
                cls = tfds.builder_cls(name.partition("/")[0])
                assert str(cls.VERSION or cls.BUILDER_CONFIGS[0].version) == version
                configs = [config.name for config in cls.BUILDER_CONFIGS]
                languages = one.languages or (
                    *task.languages,
                    *(["en"] if split == "train" else []),
                )
                for language in languages if configs else ():
                    config = name.format(language=language).partition("/")[2]
                    assert any(
                        config == c or config.endswith("*") and c.startswith(config[:-1])
                        for c in configs
                    )


def test_a_set_that_is_not_prepared_is_named_with_what_prepares_it(sets, tmp_path):
    folder = prepared.data_dir(sets)
    for name, split, language, told in (
        ("xtreme/xquad", "test", "el", r"tfds:xquad/{language}:3.0.0 test; `tfds build NAME"),
        ("xtreme/pawsx", "translate_train", "fr", "tfds:xtreme_pawsx/{language}:1.0.0 train or "),
        ("xtreme/xnli", "train", "de", "none, it has no such split"),
    ):
        told = re.escape(f"{name}: no {split} files of '{language}' in {sets}: looked for {told}")
        with pytest.raises(UserError, match=told):
            read(task_named(name), sets, split, language)
        assert find(task_named(name), sets, split, language) is None
    with pytest.raises(UserError, match=r"no folder .*nowhere; give the one that holds the files"):
        find(task_named("xtreme/xnli"), f"tfds:{tmp_path}/nowhere", "dev", "de")
    # another version, and a set that lacks the split
    old = tmp_path / "xquad/de/2.0.0"
    shutil.copytree(folder / "xquad/de/3.0.0", old)
    assert languages_present(task_named("xtreme/xquad"), f"tfds:{tmp_path}", "test") == []
    assert languages_present(task_named("applications/ud"), sets, "dev") == [
        "de"
    ]  # de_pud has none


def test_faults_of_a_set(sets, tmp_path):
    shutil.copytree(prepared.data_dir(sets) / "xnli", tmp_path / "xnli")
    task, folder = task_named("xtreme/xnli"), tmp_path / "xnli/1.1.0"
    (shard,) = folder.glob("xnli-validation*")
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(
        UserError, match=r"xnli/1.1.0: TFDS cannot read it \(.*\); prepare it again"
    ):
        read(task, f"tfds:{tmp_path}", "dev", "de")
    (folder / "dataset_info.json").write_text("{}")
    with pytest.raises(UserError, match=r"dataset_info.json: not the metadata of a TFDS set"):
        read(task, f"tfds:{tmp_path}", "dev", "de")


def test_where_the_sets_lie(monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", "/sets")
    assert (
        prepared.located("tfds:") == "tfds:/sets"
        and prepared.located("tfds:a") == f"tfds:{Path.cwd()}/a"
    )
    assert prepared.located("a") == f"{Path.cwd()}/a"
    monkeypatch.delenv("TFDS_DATA_DIR")
    assert prepared.located("tfds:") == f"tfds:{Path.home()}/tensorflow_datasets"


def test_finding_needs_no_tfds_and_reading_says_so(sets):
    code = f"""
import sys
sys.modules["tensorflow_datasets"] = sys.modules["tensorflow"] = None
from xlingjax.data.labelled.task import languages_present, read
from xlingjax.tasks import task_named
task = task_named("xtreme/panx")
print(languages_present(task, {sets!r}, "dev"))
try:
    read(task, {sets!r}, "dev", "de")
except Exception as error:
    print(type(error).__name__, error)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert told[0] == "['de']"
    assert (
        told[1].startswith("UserError tfds: TensorFlow Datasets cannot be imported (")
        and len(told) == 2
    )


def test_predictions_are_scored_against_a_set_by_id_alone(sets, tmp_path):
    """Predictions of labels are lines in the order of the official files, which TFDS does not
    keep."""
    (tmp_path / "xquad").mkdir()
    (tmp_path / "xquad/test-de.json").write_text('{"x1": "Köln0", "x2": "Köln1", "x3": "Bonn"}')
    told = score_files(suite_tasks("xtreme"), tmp_path, sets, allow_missing=True)
    assert told["tasks"]["xtreme/xquad"]["metrics"]["squad_em"]["de"] == pytest.approx(200 / 3)
    (tmp_path / "xnli").mkdir()
    (tmp_path / "xnli/test-de.tsv").write_text("neutral\n" * 6)
    with pytest.raises(
        UserError, match="xtreme/xnli: its predictions are read in the order of the official files"
    ):
        score_files(suite_tasks("xtreme"), tmp_path, sets, allow_missing=True)

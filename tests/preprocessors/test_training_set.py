"""Which examples a task is trained on, by origin and language: parts, files, names and what a run's
record says of them."""

import pytest

from tests.preprocessors.test_beside import HEADER, PAWSX, UDPOS, put
from tests.preprocessors.test_task import Hashed
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.labelled.records import Example
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.errors import UserError
from xlingjax.preprocessors.parts import task_source
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import OwnFiles, Training

LANGUAGES = ("de", "en", "fr")


@pytest.fixture
def folder(tmp_path):
    for code, words in (("en", "abcd"), ("de", "ABCD")):
        name = {"en": "en/train", "de": "de/translated_train"}[code]
        rows = [f"{n}\t{word}\t{word}\t{n % 2}" for n, word in enumerate(words)]
        put(tmp_path / f"x-final/{name}.tsv", HEADER.strip(), *rows)
        put(tmp_path / f"udpos/train-{code}.tsv", f"{words[0]}\tDET", "")
    for code in LANGUAGES:
        given = [Example(code, word, "1") for word in "wxyz"]
        write_labelled(labelled_path(tmp_path / "labelled", PAWSX, code), given)
    return tmp_path


def test_parts_are_gold_then_translated_then_labelled_each_in_the_order_of_languages(folder):
    labelled = str(folder / "labelled")
    found = [
        Training(*given).parts(task, folder)
        for task, *given in (
            (PAWSX,),
            (PAWSX, ("en",), ("fr", "de")),
            (PAWSX, (), ("all",)),
            (UDPOS, ("all",)),
            (UDPOS, ("all", "zz")),
            (PAWSX, ("en",), ("de",), "train", labelled),
        )
    ]
    both = [("gold", "de"), ("gold", "en")]
    assert found == [
        [("gold", "en")],
        [("gold", "en"), ("translated", "de"), ("translated", "fr")],
        [("translated", "de")],
        both,
        both,
        [("gold", "en"), ("translated", "de"), *[("labelled", code) for code in LANGUAGES]],
    ]
    with pytest.raises(UserError, match=f"LABELLED={labelled}: no udpos.LANGUAGE.jsonl there"):
        Training((), (), labelled=labelled).parts(UDPOS, folder)
    with pytest.raises(UserError, match="no language has translate_train files below"):
        Training((), ("all",)).parts(UDPOS, folder)
    # One language of gold would be transfer.
    with pytest.raises(UserError, match="en has train files below .* of several: get the others"):
        Training(("all",)).parts(PAWSX, folder)


@pytest.mark.parametrize(("split", "chosen"), [("train", "abcd"), ("train[:50%]", "ab")])
def test_a_part_of_the_gold_is_that_part_of_its_translations_and_labels(folder, split, chosen):
    training = Training(split=split, labelled=str(folder / "labelled"))
    found = [
        [one.premise + one.hypothesis for one in training.records(PAWSX, folder, *part)]
        for part in (("gold", "en"), ("translated", "de"), ("labelled", "fr"))
    ]
    assert found == [
        [2 * word for word in chosen],
        [2 * word.upper() for word in chosen],
        [f"fr{word}" for word in "wxyz"[: len(chosen)]],
    ]


# --- One's own files ------------------------------------------------------------------------------


@pytest.mark.parametrize("pivot", [None, "en"])
def test_ones_own_files_are_read_whole_and_told_by_their_paths(pivot, tmp_path):
    files = {code: put(tmp_path / f"{code}.tsv", "") for code in ("de", "en")}
    task = own_task("classification", "train", files, "xy", pivot=pivot)
    training = OwnFiles()
    languages = ("de", "en")[: 2 - (pivot is not None)]
    assert training.parts(task, "") == [("own", language) for language in languages]
    assert training.described(task, "", "own", "de") == f"{files['de']}, de"
    # With those of its pivot, whichever origin it is asked for as.
    read = (files["de"], files["en"])[: 1 + (pivot is not None)]
    for origin in ("own", "gold", "translated"):
        assert training.place(task, "", origin, "de")[1] == read


# --- Sources of several parts ---------------------------------------------------------------------


def source_of(folder, training, languages=LANGUAGES, **options):
    vocabulary = Hashed()
    given = (vocabulary, languages, Reading(8))
    return task_source(PAWSX, folder, training, *given, batch_size=4, **options)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_sources_read_all_parts_or_the_translated_ones_beside_their_gold(folder):
    training = Training(("en",), ("de",))
    both = source_of(folder, training)
    assert both.identity["mixture"] == "xtreme/pawsx: gold en 4, translated de 4"
    assert (both.identity["examples"], both.identity["seed"]) == (8, 0)
    assert both.next()["input_ids"].shape == (4, 8)
    paired = source_of(folder, training, paired=True)
    assert paired.identity["mixture"] == "xtreme/pawsx: translated de 4 beside en"
    assert paired.identity["examples"] == 4 and paired.identity["order"] == "by part"
    batch = paired.next()
    assert batch["input_ids"].shape == (4, 16)
    assert {*map(tuple, batch["language_ids"][:, [0, 8]].tolist())} == {(0, 1)}
    for languages, missing in ((("de", "fr"), "en"), (("en", "fr"), "de")):
        said = (
            f"xtreme/pawsx: training language '{missing}' is not one of the run's .{languages[0]}"
        )
        with pytest.raises(UserError, match=said):
            source_of(folder, training, languages, paired=True)

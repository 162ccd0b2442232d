"""Sets of training languages: `--strategy multi_language --languages en+de`, and the score by their
number."""

import json

import numpy as np
import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import finetune, random_run
from xlingjax.data.labelled.task import read
from xlingjax.errors import UserError
from xlingjax.inference.run import open_run
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard import card as scorecard
from xlingjax.workflows.scorecard.averages import by_number
from xlingjax.workflows.scorecard.rows import row_name
from xlingjax.workflows.tasks.strategies import trained_languages, variants
from xlingjax.workflows.tasks.sweep import parameters_hash

LANGUAGES = ("de", "en", "ru")
XNLI, UDPOS = task_named("xtreme/xnli"), task_named("xtreme/udpos")


files = sweeping.files


def of(files, *request, **given):
    return variants("multi_language", set(), [XNLI], str(files / "xtreme"), request, given)


def test_gold_where_there_is_and_translations_of_the_others(files):
    """Each example once, and of no other language."""
    data = str(files / "xtreme")
    assert of(files, "de+en", "en+de", "ru+de", "en") == [
        {"LANGUAGES": x} for x in ("en+de", "de+ru", "en")
    ]
    assert of(files) == [{}]  # as ever: English and all translations
    told = {x: trained_languages({"LANGUAGES": x}, XNLI, data) for x in ("en+de+ru", "de+ru", "en")}
    assert told == {
        "en+de+ru": {"TRAIN_LANGUAGES": "'en'", "TRANSLATED": "'de ru'"},
        "de+ru": {"TRAIN_LANGUAGES": "None", "TRANSLATED": "'de ru'"},
        "en": {"TRAIN_LANGUAGES": "'en'", "TRANSLATED": "None"},
    }
    training = Training((), ("de", "ru"))
    records = [
        one for part in training.parts(XNLI, data) for one in training.records(XNLI, data, *part)
    ]
    assert records == [
        *read(XNLI, data, "translate_train", "de"),
        *read(XNLI, data, "translate_train", "ru"),
    ]
    gold = trained_languages({"LANGUAGES": "en+ru"}, UDPOS, data)  # has gold Russian
    assert gold == {"TRAIN_LANGUAGES": "'en ru'", "TRANSLATED": "None"}


@pytest.mark.parametrize(
    "languages, given, message",
    [
        (["en+zz"], {}, "--languages zz: xtreme/xnli has no training examples of them"),
        (["en+de+en"], {}, r"--languages en\+de\+en: a language stands there twice"),
        (
            ["en+de"],
            {"TRANSLATED": "'ru'"},
            "--gin.TRANSLATED and --languages both say what is trained on",
        ),
    ],
)
def test_sets_that_cannot_be_meant_are_refused(languages, given, message, files):
    with pytest.raises(UserError, match=message):
        of(files, *languages, **given)


@pytest.fixture(scope="module")
def swept(files, tmp_path_factory):
    start, output = (
        random_run(tmp_path_factory.mktemp("start"), files),
        tmp_path_factory.mktemp("swept"),
    )
    sets = ["--strategy multi_language", "--languages en+de", "ru+de", "en+de+ru", "en"]
    for strategy in (sets, ["--strategy transfer"]):
        assert finetune("xtreme/xnli", start, files, output, *strategy, "--gin.TRAIN_STEPS=2") == 0
    return output


@pytest.mark.long
def test_a_row_for_each_set_and_a_mean_for_each_number(swept):
    found, scores = {}, {}
    for path in (swept / "cells/xtreme/xnli/multi_language").rglob("scores.json"):
        record = json.loads((path.parent / "run/run.json").read_text())
        name = path.parent.parent.name
        found[name] = record["identity"]["data"]["classification"]["mixture"]
        scores[name] = json.loads(path.read_text())["test"]
        assert {*scores[name]["by_language"]} == {*LANGUAGES}
    assert found == {
        "en+de": "xtreme/xnli: gold en 24, translated de 24",
        "de+ru": "xtreme/xnli: translated de 24, translated ru 24",
        "en+de+ru": "xtreme/xnli: gold en 24, translated de 24, translated ru 24",
        "en": "xtreme/xnli: gold en 24",
    }
    # untrained languages are those of each set
    assert "mean_other" not in scores["en+de+ru"]["means"]
    assert (
        scores["de+ru"]["means"]["mean_other"] == scores["de+ru"]["by_language"]["en"]["accuracy"]
    )
    (table,) = scorecard.card(swept)["tables"]
    table["rows"] = [row for row in table["rows"] if row["strategy"] == "multi_language"]
    assert {row_name(row) for row in table["rows"]} == {f"multi language {name}" for name in found}
    means = [scores[name]["means"]["mean"] for name in ("en", "en+de", "de+ru", "en+de+ru")]
    wanted = [(1, means[0]), (2, (means[1] + means[2]) / 2), (3, means[3])]
    assert [
        (one["languages"], pytest.approx(one["mean"])) for one in by_number(table["rows"])
    ] == wanted


@pytest.mark.long
def test_training_on_english_alone_is_zero_shot_transfer_bit_for_bit(swept):
    def weights(*parts):
        return parameters_hash(
            open_run(swept.joinpath("cells/xtreme/xnli", *parts, "seed-0/run")).params
        )

    assert (
        weights("multi_language", "en") == weights("transfer") != weights("multi_language", "en+de")
    )


def row(variant, mean, run="a", split="test"):
    return {
        "task": "xtreme/xnli",
        "strategy": "x",
        "variant": variant,
        "settings": {},
        "tried": 1,
        "by_language": {"accuracy": {"de": {"mean": mean}}},
        "means": {"mean": {"mean": mean}},
        "examples": {"de": 4},
        "split": split,
        "select": {"by": "mean", "split": "dev", "step": [1]},
        "start": {"run": run, "sha256": run},
    }


def test_the_mean_over_the_rows_of_as_many_languages():
    rows = [
        row({"PIVOT": "de"}, 40.0),
        row({"PIVOT": "ru"}, 60.0),
        row({"LANGUAGES": "en+de"}, 70.0),
        row({"LANGUAGES": "en+ru"}, 76.0),
        row({"LANGUAGES": "en+de"}, 10.0, run="b"),
        row({}, 99.0),
        row({"LANGUAGES": "de+en+ru"}, 80.0),
        row({"LANGUAGES": "de+ru"}, 20.0, split="dev[50%:]"),
    ]
    found = [(one["languages"], one["mean"], len(one["rows"])) for one in by_number(rows)]
    assert found == [(1, 50.0, 2), (2, 20.0, 1), (2, 73.0, 2), (2, 10.0, 1), (3, 80.0, 1)]
    assert by_number(rows[:2]) == []  # pivots alone have their heat-map


def test_rows_that_are_not_comparable_have_lines_of_their_own():
    def means(*rows):
        return [(one["languages"], one["mean"], len(one["rows"])) for one in by_number(rows)]

    english, german = row({"LANGUAGES": "en"}, 40.0), row({"LANGUAGES": "de"}, 60.0)
    last = {"select": {"by": "last", "split": "dev", "step": [1]}}
    other = row({"LANGUAGES": "en"}, 90.0)
    assert means(english, german) == [(1, 50.0, 2)]
    for change in (
        last,
        {"folder": "b"},
        {"strategy": "mine"},
        {"tried": 2, "settings": {"LEARNING_RATE": "1e-5"}},
    ):
        assert sorted(means(english, german, other | change)) == [(1, 50.0, 2), (1, 90.0, 1)]
    # each set has the settings of one grid that are best for it
    tuned = [
        one | {"tried": 2, "settings": {"LEARNING_RATE": rate}}
        for one, rate in ((english, "1"), (german, "2"))
    ]
    assert means(*tuned) == [(1, 50.0, 2)]


def test_a_pivot_counts_where_no_set_is_that_language_alone():
    pivots = [
        row({"PIVOT": name}, x) | {"strategy": "pivot"} for name, x in (("en", 44.0), ("ru", 70.0))
    ]
    sets = [
        row({"LANGUAGES": name}, x) | {"strategy": "multi_language"}
        for name, x in (("en", 40.0), ("de", 60.0))
    ]
    (found,) = by_number([*pivots, *sets])
    assert found["rows"] == ["multi language en", "multi language de", "pivot ru"]
    assert found["mean"] == (40 + 60 + 70) / 3
    last = {"select": {"by": "last", "split": "dev", "step": [1]}}
    assert sorted(one["mean"] for one in by_number([pivots[0] | last, *sets])) == [44.0, 50.0]


def test_of_a_number_each_language_is_its_own_models(tmp_path):
    """Unicoder's Table 4: of one language translate-train; of two English is the mean of all
    models."""

    def of(languages, **values):
        found = row({"LANGUAGES": languages}, float(np.mean([*values.values()])))
        return found | {
            "by_language": {"accuracy": {name: {"mean": x} for name, x in values.items()}}
        }

    rows = [
        of("en", de=60.0, en=80.0, ru=50.0),
        of("de", de=70.0, en=50.0, ru=40.0),
        of("ru", de=30.0, en=40.0, ru=66.0),
        of("en+de", de=72.0, en=82.0, ru=1.0),
        of("en+ru", de=2.0, en=84.0, ru=70.0),
        of("fr", de=1.0, en=1.0, ru=1.0),
    ]
    assert [one["own"] for one in by_number(rows[:5])] == [(80 + 70 + 66) / 3, (83 + 72 + 70) / 3]
    assert by_number([rows[5], rows[3]])[0]["own"] is None

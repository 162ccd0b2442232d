"""The score card of hand-made cells."""

import json
import re
import shutil

import numpy as np
import pytest

from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.evaluation.task.scores import means
from xlingjax.tasks import suite_tasks, task_named
from xlingjax.workflows.scorecard import card as report
from xlingjax.workflows.scorecard.card import card
from xlingjax.workflows.scorecard.rows import row_name, rows_of
from xlingjax.workflows.scorecard.tables import by_metric, notes


def cell(
    task,
    values,
    *,
    strategy="transfer",
    variant=None,
    seed=0,
    settings=None,
    sha="s",
    dev=50.0,
    **more,
):
    """values: {language: x}, the value of each metric of the task; of several metrics the second's
    is 10 lower."""
    metrics = task_named(task).metrics
    by_language = {
        code: {m: v - 10 * (i > 0) for i, m in enumerate(metrics)} for code, v in values.items()
    }
    return {
        "task": task,
        "strategy": strategy,
        "variant": variant or {},
        "settings": settings or {},
        "seed": seed,
        "select": {"by": "mean", "split": "dev", "step": 3, "steps": 6},
        "start": {"run": f"runs/{sha}", "sha256": sha},
        "machine": "m",
        "dev": {"means": {"mean": dev}, "by_language": {}},
        "test": {
            "split": more.pop("split", "test"),
            "means": means(by_language, task_named(task), ("en",)),
            "by_language": by_language,
            "examples": dict.fromkeys(values, 9),
        },
        **more,
    }


def write(root, cells):
    """The cells in a folder."""
    for i, one in enumerate(cells):
        folder = root / "cells" / str(i)
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps(one))
    return root


def everywhere(task, value, **more):
    return cell(task, dict.fromkeys(task_named(task).languages, value), **more)


def of_xtreme(**more):
    """Every task of XTREME as it is reported: fine-tuned in English, retrieval from the weights as
    they are."""
    for i, task in enumerate(suite_tasks("xtreme")):
        raw = {"strategy": "as_it_is", "variant": {"run": "base", "step": "7"}}
        yield everywhere(
            task.full_name,
            40.0 + i,
            **(raw if task.kind in ("retrieval", "mining") else {}),
            **more,
        )


def plain(text):
    """A table in Markdown without what aligns its columns."""
    return re.sub("-{3,}", "---", re.sub(" +", " ", text))


def markdown(found):
    return plain(report.markdown(found))


# ---- averages of suites --------------------------------------------------------------------------


def test_xtremes_average_is_the_mean_of_its_nine_tasks(tmp_path):
    (suite,) = card(write(tmp_path, of_xtreme()))["overall"]
    transfer, raw = suite["rows"]
    # questions count with the mean of F1 and exact match, which lies 5 below
    scores = [
        40.0 + i - 5 * (task.kind == "span_qa") for i, task in enumerate(suite_tasks("xtreme"))
    ]
    average = transfer["averages"]["average"]
    assert average == {
        "mean": pytest.approx(np.mean(scores)),
        "tasks": 9,
        "of": 9,
        "official": True,
    }
    assert raw["averages"]["average"]["tasks"] == 2 and raw["strategy"] == "as_it_is"
    text = markdown(card(tmp_path))
    assert f"| transfer | {np.mean(scores):.1f} (9 of 9 tasks) |" in text
    assert not raw["averages"]["average"]["official"]
    assert (
        text.count("transfer: bucc2018, tatoeba as measured on the weights that it started from")
        == 1
    )


def test_an_average_that_is_not_official_is_marked(tmp_path):
    cells = [
        everywhere("xtreme/pawsx", 80.0),
        cell("xtreme/xnli", {"en": 70.0, "de": 50.0}, split="dev[50%:]"),
    ]
    cells += [everywhere("xtreme/tatoeba", 10.0, strategy="as_it_is", sha="other")]
    cells += [everywhere("xtreme/udpos", 90.0, strategy="all_gold")]
    (suite,) = card(write(tmp_path, cells))["overall"]
    (row,) = suite[
        "rows"
    ]  # of all_gold one task is no average, and the raw states are of other weights
    assert row["averages"]["average"]["mean"] == 70.0 and row["tasks"] == {
        "xtreme/pawsx": 80.0,
        "xtreme/xnli": 60.0,
    }
    text = markdown(card(tmp_path))
    assert "| transfer | 70.0* (2 of 9 tasks) | 80.0 | 60.0 |" in text
    assert "weights that it started from" not in text
    assert "2 of 9 tasks" in report.latex(card(tmp_path))


def test_the_raw_states_count_to_transfer_alone(tmp_path):
    cells = [*of_xtreme()]
    for one in cells:
        if one["strategy"] == "transfer":
            one["strategy"] = "multi_language"
    rows = card(write(tmp_path, cells))["overall"][0]["rows"]
    counted = {row["strategy"]: row["averages"]["average"]["tasks"] for row in rows}
    assert counted == {"multi_language": 7, "as_it_is": 2}


def test_xglues_understanding_and_generation_are_apart(tmp_path):
    scores = {"ner": 80.0, "mlqa": 60.0, "qg": 5.0}
    cells = [everywhere(f"xglue/{name}", score) for name, score in scores.items()]
    (suite,) = card(write(tmp_path / "a", cells))["overall"]
    # Of MLQA F1 alone; one task of generation has no average.
    ((name, average),) = suite["rows"][0]["averages"].items()
    assert (name, average["mean"], average["tasks"], average["of"]) == ("understanding", 70.0, 2, 9)
    (suite,) = card(write(tmp_path / "b", [*cells, everywhere("xglue/ntg", 9.0)]))["overall"]
    whole = {"mean": 7.0, "tasks": 2, "of": 2, "official": True}
    assert suite["rows"][0]["averages"]["generation"] == whole


# ---- rows ----------------------------------------------------------------------------------------


def test_a_mean_tells_of_how_many_languages_it_is(tmp_path):
    found = card(
        write(
            tmp_path,
            [cell("xtreme/xnli", {"en": 80.0, "de": 60.0, "fr": 40.0}), *_all("multi_language")],
        )
    )
    shown = by_metric(found["tables"][0], "accuracy")
    assert [*shown.columns[:3]] == ["mean", "untrained languages", "gap"]
    assert [*shown.loc["transfer"][:3]] == ["60.0 (3 of 15 languages)", "50.0", "30.0"]
    assert shown.loc["multi language", "mean"] == "55.0"


def _all(strategy):
    return [everywhere("xtreme/xnli", 55.0, strategy=strategy)]


def translated(language, value, seed=0, **more):
    values = more.pop("values", {language: value})
    return cell(
        "xtreme/xnli",
        values,
        strategy="translate_train",
        variant={"TARGET": language},
        seed=seed,
        **more,
    )


def test_translate_train_is_one_row_of_many_models(tmp_path):
    values = {("de", 0): 60.0, ("fr", 0): 70.0, ("de", 1): 64.0, ("fr", 1): 90.0}
    cells = [translated(language, value, seed) for (language, seed), value in values.items()]
    (row,) = rows_of(cells)
    assert row["variant"] == {} and row["seeds"] == [0, 1] and row["averaged"] == [2, 15]
    # Of the seeds 65 and 77.
    assert row["means"] == {"mean": {"mean": 71.0, "sd": pytest.approx(12 / 2**0.5)}}
    of = row["by_language"]["accuracy"]
    assert {code: value["mean"] for code, value in of.items()} == {"de": 62.0, "fr": 80.0}
    text = markdown(card(write(tmp_path, cells)))
    mean = "71.0 ± 8.5 (2 of 15 languages)"
    assert f"| translate train | {mean} | 62.0 ± 2.8 | 80.0 ± 14.1 | 2 |" in text
    assert "each language has a model of its own" in text


def test_what_a_note_says(tmp_path):
    told = {"trained": {"split": "train[:200]", "examples": 200}}
    one = cell("xtreme/pawsx", {"en": 50.0, "de": -0.0}, **told)
    one["dev"]["by_language"] = {"en": {}, "de": {}}
    one["select"] |= {"by": "last"}
    other = one | {"settings": {"BATCH": "8"}, "dev": one["dev"] | {"means": {"mean": 60.0}}}
    hidden = cell("xtreme/tydiqa", {"en": 1.0}, **told)
    hidden["test"] |= {"means": {}, "by_language": {}}
    text = markdown(card(write(tmp_path, [one, other, hidden])))
    assert "trained on 200 examples (train[:200]); the last checkpoint" in text
    assert "tested on test (9 examples a language)" in text
    assert (
        "the last checkpoint; one of 2 settings chosen by the mean of dev in de, en (dev)" in text
    )
    assert "-0.0" not in text and "| 0.0 |" in text
    assert "predicted, since the files have no answers: tested on test (9 examples" in text
    assert "PAWS-X's dev and test sets have sentences in common" in text


def test_squads_dev_set_is_not_xquad(tmp_path):
    cells = [everywhere("xtreme/xnli", 60.0), everywhere("xtreme/udpos", 40.0)]
    cells.append(cell("xtreme/xquad", {"en": 90.0}, split="dev[50%:]"))
    made = card(write(tmp_path, cells))
    text = markdown(made)
    assert "50.0* (2 of 9 tasks)" in text
    assert "| mean of F1 and EM |" in text.replace("|  | mean of", "| mean of")  # (90 + 80) / 2


def test_models_of_other_seeds_have_no_mean(tmp_path):
    cells = [translated("de", 60.0, 0), translated("de", 64.0, 1), translated("fr", 70.0, 0)]
    text = markdown(card(write(tmp_path, cells)))
    assert (
        rows_of(cells)[0]["means"] == {}
        and "| translate train | – | 62.0 ± 2.8 | 70.0 | 2 |" in text
    )
    assert (
        "| XLM-R large, transfer (paper) | 79.2 | – | – | |" in text
    )  # under the mean, not under a language
    assert "no mean, since the languages have other seeds" in text


def test_each_target_has_the_settings_that_its_own_dev_chose(tmp_path):
    cells = [
        translated(language, value, settings={"RATE": rate}, dev=dev)
        for language, rate, value, dev in (
            ("de", "1", 60.0, 9.0),
            ("de", "2", 99.0, 8.0),
            ("fr", "2", 40.0, 9.0),
        )
    ]
    found = card(write(tmp_path, cells))
    (row,) = found["tables"][0]["rows"]
    assert row["means"]["mean"]["mean"] == 50.0 and row["tried"] == 2
    assert row["settings"] == {}


def test_the_best_of_a_grid_is_chosen_on_dev_over_its_seeds():
    tried = [("1", 0, 50.0, 60.0), ("1", 1, 52.0, 62.0), ("2", 0, 51.5, 40.0), ("2", 1, 51.5, 50.0)]
    (row,) = rows_of(
        cell("xtreme/xnli", {"en": test}, settings={"RATE": rate}, seed=seed, dev=dev)
        for rate, seed, dev, test in tried
    )
    assert row["settings"] == {"RATE": "2"} and row["tried"] == 2
    assert row["means"]["mean"] == {"mean": 45.0, "sd": pytest.approx(50**0.5)}


def test_a_copied_folder_is_no_second_seed(tmp_path):
    """Its figures would count twice, with a deviation over seeds of 0."""
    cells = [translated("de", 60.0, 0), translated("fr", 70.0, 0), translated("de", 60.0, 0)]
    write(tmp_path, cells)
    places = f"{tmp_path}/cells/0 and {tmp_path}/cells/2"
    with pytest.raises(UserError) as raised:
        card(tmp_path)
    assert str(raised.value) == (
        f"{places} are of one training of xtreme/xnli: delete one of them, or move it out of cells"
    )
    shutil.rmtree(tmp_path / "cells" / "2")
    assert card(tmp_path)["tables"][0]["rows"][0]["seeds"] == [0]


def test_models_that_were_tested_elsewhere_too_stay_apart():
    values = {"de": 50.0, "fr": 40.0}
    rows = rows_of([translated("de", 0, values=values), translated("fr", 0, values=values)])
    assert [row["variant"] for row in rows] == [{"TARGET": "de"}, {"TARGET": "fr"}]
    pivots = [
        cell("xtreme/xnli", {"de": 1.0}, strategy="pivot", variant={"PIVOT": code})
        for code in ("de", "fr")
    ]
    assert len(rows_of(pivots)) == 2


def test_policies_are_rows_of_their_own(tmp_path):
    """What two dev measures say is not compared: English is nearly always above the mean."""

    def chosen(value, by="en", split="dev", **more):
        select = {"split": split, "by": by, "step": 3, "steps": 6}
        return cell("xtreme/xnli", {"en": value}, select=select, **more)

    rows = rows_of([chosen(60.0, settings={"SELECT": "en"}), chosen(70.0, "mean", dev=40.0)])
    assert [(row["means"]["mean"]["mean"], row["tried"]) for row in rows] == [(60.0, 1), (70.0, 1)]
    halves = ("dev[:50%]", "dev[50%:]")
    write(tmp_path, [chosen(60.0, split=split, seed=i) for i, split in enumerate(halves)])
    names = [row_name(row) for row in card(tmp_path)["tables"][0]["rows"]]
    assert names == [f"transfer (checkpoint chosen by dev in en ({split}))" for split in halves]


def test_papers_stand_in_rows_of_their_own(tmp_path):
    found = card(
        write(tmp_path, [everywhere("xtreme/xquad", 70.0), everywhere("xtreme/panx", 70.0)])
    )
    panx, xquad = found["tables"]
    assert by_metric(panx, "seqeval_f1").loc["XLM-R large, transfer (paper)", "mean"] == "65.4"
    rows = by_metric(xquad, "squad_f1")["mean of F1 and EM"]
    assert rows["transfer"] == "65.0" and rows["XLM-R large, transfer (paper)"] == "76.6 (squad_f1)"
    assert any(
        "squad_f1 alone, where the mean is of F1 and exact match" in line for line in notes(xquad)
    )
    assert "XLM-R large: VECO (Luo et al. 2021), Table 2" in notes(panx)


# ---- layers ------------------------------------------------------------------------------


def test_layers_are_a_table_with_the_rows_own_marked(tmp_path):
    by_language = {
        "mean": {
            "de": {"0": 10.0, "8": 50.0, "12": 40.0},
            "fr": {"0": 20.0, "8": 70.0, "12": 80.0},
        },
        "first": {"de": {"8": 2.0, "12": 3.0}},
    }
    layers = {"layer": 8, "pooling": "mean", "by_language": by_language}
    raw = {"strategy": "as_it_is", "variant": {"run": "x", "step": "7"}}
    measured = cell("xtreme/tatoeba", {"de": 50.0, "fr": 70.0}, **raw, layers=layers)
    found = card(write(tmp_path, [measured]))
    text = markdown(found)
    rows = "| mean* | 15.0 | 60.0 | 60.0 |\n| first | – | 2.0 | 3.0 |"
    assert f"| | 0 | 8* | 12 |\n|---|---|---|---|\n{rows}" in text
    assert "A best layer that is chosen on the test set flatters" in text
    assert "mean* & 15.0 & 60.0 & 60.0" in report.latex(found)
    assert found["tables"][0]["rows"][0]["layers"]["by_language"] == by_language


# ---- folders -------------------------------------------------------------------------------------


def test_folders_share_a_card_and_not_their_seeds(tmp_path, capsys):
    for name, value in (("a", 50.0), ("b", 70.0)):
        write(tmp_path / name / "xnli", [everywhere("xtreme/xnli", value, sha=f"w{name}")])
        write(tmp_path / name / "pawsx", [everywhere("xtreme/pawsx", value + 10, sha=f"w{name}")])
    folders = [str(tmp_path / name / task) for name in ("a", "b") for task in ("xnli", "pawsx")]
    assert main.main(["report", *folders, "--to", str(tmp_path / "all")]) == 0
    assert "| transfer (a/xnli) | 50.0 |" in plain(capsys.readouterr().out)
    found = json.loads((tmp_path / "all/card.json").read_text())
    assert [len(table["rows"]) for table in found["tables"]] == [2, 2] and found[
        "folders"
    ] == folders
    averages = {
        row_name(row): row["averages"]["average"]["mean"] for row in found["overall"][0]["rows"]
    }
    assert averages == {"transfer (wa)": 55.0, "transfer (wb)": 75.0}
    # the same weights and seeds in two folders are not two seeds
    write(tmp_path / "c", [everywhere("xtreme/xnli", 90.0, sha="wa")])
    rows = card(tmp_path / "a/xnli", tmp_path / "c")["tables"][0]["rows"]
    assert [(row_name(row), row["seeds"]) for row in rows] == [
        ("transfer (a/xnli)", [0]),
        ("transfer (c)", [0]),
    ]
    three = card(*folders[:2], tmp_path / "c")["overall"]
    assert three == []  # of two rows of XNLI none counts, and one task is left


def test_the_card_of_a_folder_is_written_again(tmp_path, capsys):
    write(tmp_path, [everywhere("xtreme/xnli", 50.0)])
    assert main.main(["report", str(tmp_path)]) == 0
    for name in ("card.json", "card.md", "card.tex"):
        assert (tmp_path / name).is_file()
    text = (tmp_path / "card.md").read_text()
    assert "| transfer | 50.0 |" in plain(text) and capsys.readouterr().out.startswith(text)


@pytest.mark.parametrize(
    "words, message",
    [
        (["a", "b"], "say where it goes by --to DIR"),
        (["a", "--compare", "b"], ": a score card reads only folders of cells"),
        (["a", "none", "--to", "o"], "none has no cells to share a score card"),
    ],
)
def test_what_report_cannot_mean_is_refused(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write(tmp_path / name, [everywhere("xtreme/xnli", 50.0)])
    assert main.main(["report", *words]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(UserError, match="no cells"):
        card(tmp_path / "none")

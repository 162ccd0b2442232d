"""`xlingjax score`: prediction files against gold files."""

import json
from pathlib import Path

import pytest

from xlingjax.cli import main
from xlingjax.data.labelled.records import Example
from xlingjax.data.labelled.task import Files, Task
from xlingjax.errors import UserError
from xlingjax.evaluation import score_files
from xlingjax.evaluation.submissions import write_predictions
from xlingjax.report import html
from xlingjax.tasks import suite_tasks


def lines(path, task, language):
    texts = Path(path[0]).read_text().split()
    return [Example("a", "b", text if text != "?" else None, n) for n, text in enumerate(texts, 1)]


def classification(name, languages="de en", **more):
    places = {"test": (Files((name + ".{language}",), lines),)}
    submission = name.upper() + "/{language}.prediction"
    return Task(
        "xglue", name, "classification", tuple(languages.split()), places, ("accuracy",),
        submission, ("x", "y"), **more,
    )  # fmt: skip


TASKS = [classification("nc"), classification("qam", "de fr")]


@pytest.fixture
def folders(tmp_path):
    made, gold = tmp_path / "made", tmp_path / "gold"
    gold.mkdir()
    for task, language, labels, predicted in (
        ("nc", "de", "x y", "xx"),
        ("nc", "en", "x y", "xy"),
        ("qam", "de", "x x", "yy"),
        ("qam", "fr", "y", "y"),
    ):
        (gold / f"{task}.{language}").write_text(labels)
        own = next(one for one in TASKS if one.name == task)
        write_predictions(own, made, language, list(predicted))
    return made, gold


def test_files_are_scored_and_averaged(folders):
    told = score_files.score_files(TASKS, *folders)
    assert told["tasks"]["xglue/nc"]["metrics"] == {"accuracy": {"de": 50.0, "en": 100.0}}
    assert told["tasks"]["xglue/nc"]["score"] == 75 and told["tasks"]["xglue/qam"]["score"] == 50
    assert told["groups"] == {"understanding": 62.5} and told["overall"] == 62.5
    assert told["missing"] == {"predictions": {}, "gold": {}} and list(told["signatures"]) == [
        "accuracy"
    ]


def test_what_is_missing_is_an_error_or_said(folders):
    made, gold = folders
    (made / "NC/en.prediction").unlink()
    (gold / "qam.fr").unlink()
    with pytest.raises(
        UserError, match="missing file: .*made/NC/en.prediction, the predictions of xglue/nc"
    ):
        score_files.score_files(TASKS, made, gold)
    told = score_files.score_files(TASKS, made, gold, allow_missing=True)
    assert told["missing"] == {"predictions": {"xglue/nc": ["en"]}, "gold": {"xglue/qam": ["fr"]}}
    assert told["tasks"]["xglue/nc"]["score"] == 50 and told["tasks"]["xglue/nc"]["missing"] == [
        "en"
    ]
    # A mean over fewer languages is another number: it makes no group and no overall.
    assert told["groups"] == {"understanding": None} and told["overall"] is None
    notes = html.render("scores.txt", **told).splitlines()
    assert notes[-2:] == ["no predictions: xglue/nc en", "no gold: xglue/qam fr"]
    write_predictions(TASKS[0], made, "en", ["x", "y"])
    with pytest.raises(UserError, match="no test files of 'fr' in .*qam."):
        score_files.score_files(TASKS, made, gold)


def test_a_language_left_out_of_the_average_leaves_it_whole(folders):
    made, gold = folders
    (made / "QAM/fr.prediction").unlink()
    tasks = [TASKS[0], classification("qam", "de fr", averaged=("de",))]
    told = score_files.score_files(tasks, made, gold, allow_missing=True)
    assert told["tasks"]["xglue/qam"]["score"] == 0 and told["overall"] == 37.5


def test_xtremes_label_files_are_told_from_its_download_folder(tmp_path):
    xnli = next(task for task in suite_tasks("xtreme") if task.name == "xnli")
    (tmp_path / "xnli").mkdir()
    path = tmp_path / "xnli/test-de.tsv"
    path.write_text("neutral\nentailment\n")
    assert score_files.label_file(xnli, tmp_path, "de") == path
    gold = score_files.read_gold(xnli, tmp_path, "test", "de")
    assert [record.label for record in gold] == ["neutral", "entailment"]
    path.write_text("a\tb\tneutral\n")
    assert score_files.label_file(xnli, tmp_path, "de") is None
    (record,) = score_files.read_gold(xnli, tmp_path, "test", "de")
    assert (record.premise, record.hypothesis, record.label) == ("a", "b", "neutral")


def test_the_verb_prints_scores_and_signatures_and_writes_json(tmp_path, capsys):
    (tmp_path / "labels/xnli").mkdir(parents=True)
    xnli = next(task for task in suite_tasks("xtreme") if task.name == "xnli")
    for language, labels in (("de", ["neutral", "entailment"]), ("sw", ["neutral", "neutral"])):
        write_predictions(xnli, tmp_path / "labels", language, labels)
        write_predictions(xnli, tmp_path / "made", language, ["neutral", "entailment"])
    folders = ["--predictions", f"{tmp_path}/made", "--gold", f"{tmp_path}/labels"]
    line = ["score", "--suite", "xtreme", *folders, "--to", f"{tmp_path}/out/scores.json"]
    assert main.main(line) == 2
    assert "missing file: " in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert main.main([*line, "--allow-missing"]) == 0
    printed = capsys.readouterr().out
    assert "de 100.00  sw 50.00" in printed and "2 of 15 languages" in printed
    told = json.loads((tmp_path / "out/scores.json").read_text())
    assert told["tasks"]["xtreme/xnli"]["score"] == 75


QUERIES = [("q1", "4"), ("q1", "0"), ("q2", "3")]


def write_xglue(folder, task, language):
    """Tiny gold files of XGLUE's test set of one language, in its own layout; predictions that are
    partly right."""

    def write(name, *rows):
        path = folder / task.name.upper() / name.format(language=language)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")

    stem = f"xglue.{task.name}.{{language}}"
    first, other = task.labels[:2] if task.labels else ("", "")
    if task.kind == "tagging":
        first, other = ("B-PER", "O") if task.name == "ner" else ("NOUN", "VERB")
        write("{language}.test", f"Wort {first}", f"zwei {other}", "", f"drei {first}")
        return [[first, other], [other]]
    if task.name == "mlqa":
        asked = {"question": "?", "answers": [{"text": "die Katze", "answer_start": 0}]}
        qas = [asked | {"id": id_} for id_ in ("a", "b")]
        paragraphs = [{"context": "die Katze schläft", "qas": qas}]
        data = {"data": [{"title": "", "paragraphs": paragraphs}]}
        write("MLQA_V1/test/test-context-{language}-question-{language}.json", json.dumps(data))
        return {"a": "die Katze"}
    if task.kind == "generation":
        write(stem + ".src.test", "a b c", "d")
        write(stem + ".tgt.test", "Wie alt ist der Hund von Anna?", "Wer ist das da drüben wohl?")
        return ["wie alt ist der hund von anna?", "Wer ist das da drüben wohl?"]
    if task.kind == "ranking":
        write(stem + ".test", *(f"{query}\ttitle\tsnippet\t{label}" for query, label in QUERIES))
        return ["2", "2", "0"]
    if task.name == "pawsx":
        rows = (f"1\ta\tb\t{first}", f"2\tc\td\t{other}")
        write("{language}/test_2k.tsv", "id\tsentence1\tsentence2\tlabel", *rows)
    elif task.name == "xnli":
        write("{language}.test", f"a\tb\t{first}", f"c\td\t{other}")
    else:
        columns = "\t".join("abc"[: 3 if task.name == "qadsm" else 2])
        write(stem + ".test", f"{columns}\t{first}", f"{columns}\t{other}")
    return [first, first]


def test_a_whole_submission_of_xglue(tmp_path, capsys):
    gold, made = tmp_path / "gold", tmp_path / "made"
    for task in suite_tasks("xglue"):
        for language in task.languages:
            write_predictions(task, made, language, write_xglue(gold, task, language))
    (made / "NER/de.prediction").write_text(
        "B-PER\n\nO\n"
    )  # the second tag of the first sentence is left out
    line = ["score", "--suite", "xglue", "--predictions", f"{made}", "--gold", f"{gold}"]
    assert main.main([*line, "--to", f"{tmp_path}/scores.json"]) == 0
    told = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    scores = {name.removeprefix("xglue/"): task["score"] for name, task in told["tasks"].items()}
    expected = {
        **dict.fromkeys(("nc", "xnli", "pawsx", "qadsm", "qam", "mlqa"), 50),
        "ner": 200 / 3, "pos": 200 / 3, "wpr": 81.5464876785729, "qg": 100, "ntg": 100,
    }  # fmt: skip
    assert scores == pytest.approx(expected)
    understanding = sum(value for name, value in expected.items() if name not in ("qg", "ntg")) / 9
    assert told["groups"] == pytest.approx({"understanding": understanding, "generation": 100})
    assert told["overall"] == pytest.approx((9 * understanding + 200) / 11)
    assert told["tasks"]["xglue/mlqa"]["notes"]["de"] == {"unanswered": 1}
    printed = capsys.readouterr().out
    assert "xglue/ner, de: 1 words without a tag count as O" in printed
    assert "xglue/mlqa, ar: 1 questions without a prediction count as 0" in printed

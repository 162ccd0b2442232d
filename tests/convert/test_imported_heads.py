"""Models that were published with a head: `evaluate --mixture` scores them as they are, row by row
as transformers."""

import json

import numpy as np
import pytest

from tests.helpers import sweeping
from tests.helpers.foreign_params import params_of
from xlingjax.cli import main
from xlingjax.convert.formats.hugging_face import vocabulary_of
from xlingjax.data.labelled.task import read
from xlingjax.evaluation import span_qa
from xlingjax.model.build import build_model
from xlingjax.preprocessors.span_qa import span_rows
from xlingjax.tasks import task_named

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import imported_folders  # noqa: E402

files = sweeping.files
# As on the hub: in another order, in capitals.
NLI = {0: "NEUTRAL", 1: "contradiction", 2: "Entailment"}
OURS = ("neutral", "contradiction", "entailment")


def scored(output, files, run):
    """{language: the labels predicted}"""
    line = ["evaluate", run, "--mixture", "xtreme", "--tasks", "xnli", "--to", str(output)]
    line += ["--data", str(files / "xtreme"), "--allow-missing", "--gin.LENGTH=64"]
    assert main.main(line) == 0
    paths = sorted(output.glob("cells/xtreme/xnli/as_it_is/*/predictions/xnli/test-*.tsv"))
    return {path.stem[-2:]: path.read_text("utf-8").split() for path in paths}


def theirs(folder, records, names):
    """What their model says of pairs that their tokenizer makes, padded to one length as ours are
    cut."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for record in records:
        given = tokenizer(
            record.premise, record.hypothesis, return_tensors="pt", truncation=True, max_length=64
        )
        with torch.no_grad():
            found.append(names[int(model(**given).logits.argmax())])
    return found


@pytest.mark.parametrize(
    "family, kind",
    [
        ("xlm_roberta", "XLMRobertaForSequenceClassification"),
        # Its sides are segments.
        pytest.param("bert", "BertForSequenceClassification", marks=pytest.mark.long),
    ],
)
def test_a_published_classifier_is_scored_as_it_is(family, kind, files, tmp_path, monkeypatch):
    ids = {name: i for i, name in NLI.items()}
    getattr(imported_folders, family)(tmp_path / "hf", kind, id2label=NLI, label2id=ids)
    imported_folders.at_hand(monkeypatch, tmp_path / "cache")
    found = scored(tmp_path / "out", files, f"hf:{tmp_path / 'hf'}")
    assert {*found} == {"de", "en", "ru"}
    task, told = task_named("xtreme/xnli"), []
    for language, predicted in found.items():
        records = read(task, files / "xtreme", "test", language)
        assert predicted == theirs(tmp_path / "hf", records, OURS)
        told += predicted
    assert len({*told}) > 1
    (cell,) = tmp_path.glob("out/cells/xtreme/xnli/as_it_is/*/scores.json")
    by_language = json.loads(cell.read_text())["test"]["by_language"]
    gold = [record.label for record in read(task, files / "xtreme", "test", "de")]
    right = np.mean([a == b for a, b in zip(found["de"], gold, strict=True)])
    assert by_language["de"]["accuracy"] == pytest.approx(100 * right)


@pytest.mark.parametrize(
    "family, kind",
    [
        ("bert", "BertForQuestionAnswering"),
        ("xlm_roberta", "XLMRobertaForQuestionAnswering"),
        ("xlm", "XLMForQuestionAnsweringSimple"),
    ],
)
def test_a_head_of_answers_is_theirs_on_questions_and_contexts(family, kind, files, tmp_path):
    """Rows of two texts, which a test on single sentences would not tell apart where a model has
    segments."""
    model = getattr(imported_folders, family)(tmp_path / "hf", kind)
    found = params_of(tmp_path / "hf")
    vocabulary = vocabulary_of(tmp_path / "hf", "xlm" if family == "xlm" else "")
    questions = read(task_named("xtreme/xquad"), files / "xtreme", "test", "en")[:3]
    rows, _ = span_rows(questions, vocabulary, 60, 0, stride=20, max_question=12)
    ours = span_qa.predict(build_model(found.config), found.params, rows)
    ids_BL, valid_BL = rows["input_ids"], rows["pack_ids"]
    given = {"input_ids": ids_BL, "attention_mask": valid_BL}
    if family == "bert":
        segments_BL = (ids_BL == vocabulary.eos_id).cumsum(1) - (ids_BL == vocabulary.eos_id)
        given["token_type_ids"] = np.where(valid_BL > 0, segments_BL > 0, 0)
    if family == "xlm":
        given["langs"] = np.zeros_like(ids_BL)
    given = {name: torch.tensor(np.asarray(value)).long() for name, value in given.items()}
    with torch.no_grad():
        made = model(**given)
    wanted = np.stack([made.start_logits.numpy(), made.end_logits.numpy()], -1)
    shown_BL = rows["answer_columns"] > 0
    assert wanted.std() > 0.2 and shown_BL.sum() > 60
    np.testing.assert_allclose(ours[shown_BL], wanted[shown_BL], atol=1e-3)

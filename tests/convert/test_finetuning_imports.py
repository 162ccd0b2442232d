"""From a model of another program to predictions: `finetune`, `evaluate --suite` and `table` with
`hf:`."""

import json

import pytest

from tests.helpers import sweeping
from xlingjax.cli import main
from xlingjax.data.labelled.task import read
from xlingjax.inference.run import open_run
from xlingjax.tasks import task_named
from xlingjax.training.run_record import read_run_record

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import imported_folders  # noqa: E402

files = sweeping.files
TESTED = ["de", "en", "ru"]
SMALL = ["--gin.EPOCHS=0.3", "--gin.LENGTH=48"]


@pytest.fixture
def folder(request, tmp_path, monkeypatch):
    imported_folders.at_hand(monkeypatch, tmp_path / "cache")
    imported_folders.FAMILIES[request.param](tmp_path / "hf")
    return request.param, tmp_path / "hf"


def lines_of(output, task, language):
    (path,) = output.glob(f"cells/*/{task}/transfer/seed-0/predictions/**/*{language}*")
    return path.read_text("utf-8").splitlines()


@pytest.mark.long
@pytest.mark.parametrize("folder", ["xlm_roberta"], indirect=True)
def test_a_released_encoder_is_fine_tuned_exported_and_predicts_the_same(
    folder, files, tmp_path, capsys
):
    """Its languages are the task's, in the run and in all that is made of it."""
    _, source = folder
    more = (*SMALL, "--gin.DTYPE=float32")
    out = tmp_path / "out"
    assert sweeping.finetune("xtreme/xnli", f"hf:{source}", files, out, *more) == 0
    run = tmp_path / "out/cells/xtreme/xnli/transfer/seed-0/run"
    assert read_run_record(run)["languages"] == TESTED == [*open_run(run).languages]
    assert read_run_record(run)["model"]["dtype"] == "float32"
    assert main.main(["export", str(run), "--to", str(tmp_path / "exported")]) == 0
    auto, exported = transformers.AutoModelForSequenceClassification, tmp_path / "exported"
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    model = auto.from_pretrained(exported).eval()
    for language in TESTED:
        records = read(task_named("xtreme/xnli"), files / "xtreme", "test", language)
        wanted = []
        for one in records:
            pair = one.premise, one.hypothesis
            given = tokenizer(*pair, return_tensors="pt", truncation=True, max_length=48)
            with torch.no_grad():
                wanted.append(model.config.id2label[int(model(**given).logits.argmax())])
        assert lines_of(tmp_path / "out", "xnli", language) == wanted
    assert "languages" not in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    "folder, task, languages",
    [
        ("bert", "xtreme/xquad", TESTED),
        ("xlm", "xtreme/udpos", [*imported_folders.XLM_CODES]),  # whose rows they are
        ("mbart", "xglue/ntg", 25),
        ("prophetnet", "xglue/ntg", TESTED),
        ("mt5", "xglue/ntg", TESTED),
        ("mt5", "xtreme/xnli", TESTED),
        ("ernie_m", "xtreme/pawsx", ["de", "en"]),
    ],
    indirect=["folder"],
)
def test_every_family_is_fine_tuned(folder, task, languages, files, tmp_path, capsys):
    family, source = folder
    start = f"hf:{source}"
    if family == imported_folders.WITHOUT_COMPARISON:
        assert sweeping.finetune(task, start, files, tmp_path / "refused", *SMALL) == 2
        assert "--unverified" in capsys.readouterr().err
        start = tmp_path / "imported"
        assert main.main(["import", str(source), "--to", str(start), "--unverified"]) == 0
    kind, more = task_named(task).kind, []
    if kind == "span_qa":
        more = ["--gin.MAX_QUESTION=12", "--gin.STRIDE=20", "--gin.SELECT=last"]
    if kind == "generation":
        more = ["--gin.TEST_BEAMS=1", "--gin.DEV_LIMIT=2"]
    if family == imported_folders.WITHOUT_COMPARISON:
        more = ["--gin.LENGTH=36"]
    given = [one for one in SMALL if one.split("=")[0] not in str(more)]
    assert sweeping.finetune(task, start, files, tmp_path / "out", *given, *more) == 0
    suite, _, name = task.partition("/")
    run = tmp_path / f"out/cells/{suite}/{name}/transfer/seed-0/run"
    found = read_run_record(run)["languages"]
    assert len(found) == languages if isinstance(languages, int) else found == languages
    scores = sweeping.scores(tmp_path / "out", suite, name, "transfer", "seed-0")
    scores = scores["test"]["by_language"]
    tested = {"de", "en"} if name == "pawsx" else {*TESTED} & {*found}
    assert {*scores} == tested
    for language in scores:
        records = read(task_named(task), files / suite, "test", language)
        lines = lines_of(tmp_path / "out", name, language)
        if kind in ("classification", "generation"):
            assert len(lines) == len(records)
        else:
            assert lines
    again = ["evaluate", run, "--mixture", suite, "--tasks", name, "--data", files / suite]
    again += ["--to", tmp_path / "again", "--allow-missing"]
    assert main.main([*map(str, again)]) == 0
    (cell,) = tmp_path.glob(f"again/cells/{suite}/{name}/as_it_is/*/scores.json")
    last = json.loads(cell.read_text())["test"]["by_language"]
    assert {*last} == {*scores}

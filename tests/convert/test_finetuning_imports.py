"""From a model of another program to predictions: `finetune`, `evaluate --suite` and `table` with
`hf:`."""

import dataclasses
import json

import pytest

from tests.helpers import sweeping
from xlingjax.cli import main
from xlingjax.config import recipe as recipes
from xlingjax.data.labelled.task import read
from xlingjax.inference.run import open_run
from xlingjax.model.config import preset
from xlingjax.tasks import task_named
from xlingjax.training.run_record import read_run_record

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import imported_folders  # noqa: E402 - needs sacremoses, too

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
    assert (
        sweeping.finetune(
            "xtreme/xnli", f"hf:{source}", files, tmp_path / "out", *SMALL, "--gin.DTYPE=float32"
        )
        == 0
    )
    run = tmp_path / "out/cells/xtreme/xnli/transfer/seed-0/run"
    assert read_run_record(run)["languages"] == TESTED == [*open_run(run).languages]
    assert read_run_record(run)["model"]["dtype"] == "float32"
    assert main.main(["export", str(run), "--to", str(tmp_path / "exported")]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "exported"
    ).eval()
    for language in TESTED:
        records = read(task_named("xtreme/xnli"), files / "xtreme", "test", language)
        wanted = []
        for one in records:
            given = tokenizer(
                one.premise, one.hypothesis, return_tensors="pt", truncation=True, max_length=48
            )
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
    scores = sweeping.scores(tmp_path / "out", suite, name, "transfer", "seed-0")["test"][
        "by_language"
    ]
    assert {*scores} == {*TESTED} & {*found} if name != "pawsx" else {*scores} == {"de", "en"}
    for language in scores:
        records = read(task_named(task), files / suite, "test", language)
        lines = lines_of(tmp_path / "out", name, language)
        if kind in ("classification", "generation"):
            assert len(lines) == len(records)
        else:
            assert lines
    again = [
        "evaluate",
        run,
        "--mixture",
        suite,
        "--tasks",
        name,
        "--data",
        files / suite,
    ]
    assert (
        main.main([str(word) for word in [*again, "--to", tmp_path / "again", "--allow-missing"]])
        == 0
    )
    (cell,) = tmp_path.glob(f"again/cells/{suite}/{name}/as_it_is/*/scores.json")
    last = json.loads(cell.read_text())["test"]["by_language"]
    assert {*last} == {*scores}


@pytest.mark.long
@pytest.mark.parametrize("folder", ["xlm_roberta"], indirect=True)
def test_a_suite_and_a_table_begin_from_a_folder(folder, files, tmp_path, capsys):
    _, source = folder
    settings = [*SMALL, "--gin.BATCH=8", "--gin.LEARNING_RATE=1e-2"]
    given = [
        f"hf:{source}",
        "--data",
        files / "xtreme",
        "--to",
        tmp_path / "suite",
        "--allow-missing",
    ]
    suite = ["evaluate", *given, "--suite", "xtreme", "--tasks", "panx", "tatoeba", *settings]
    assert main.main([str(word) for word in suite]) == 0
    panx = sweeping.scores(tmp_path / "suite", "xtreme", "panx", "transfer", "seed-0")
    assert {*panx["test"]["by_language"]} == {*TESTED}
    (tatoeba,) = (tmp_path / "suite/cells/xtreme/tatoeba/as_it_is").glob("*/scores.json")
    assert {*json.loads(tatoeba.read_text())["test"]["by_language"]} == {"de", "ru"}
    rows = {
        "xnli": {
            "task": "xtreme/xnli",
            "settings": [one.removeprefix("--gin.") for one in settings],
        }
    }
    recipe = tmp_path / "table.gin"
    recipe.write_text(
        f'include "runs/table.gin"\nROWS = {rows!r}\nENCODERS = {{"e": "hf:{source}"}}\nDTYPE ='
        ' "bfloat16"\n'
    )
    where = ["--data", files / "xtreme", "--to", tmp_path / "table", "--platform", "cpu"]
    table = ["table", "--gin_file", recipe, *where]
    # Languages without files.
    assert main.main([str(word) for word in table]) == 2
    assert main.main([str(word) for word in (*table, "--allow-missing")]) == 0
    record = read_run_record(tmp_path / "table/e/xnli/cells/xtreme/xnli/transfer/seed-0/run")
    assert record["model"]["dtype"] == "bfloat16" and record["languages"] == TESTED


# --- the languages of each recipe -----------------------------------------------------------------


def run_of(path, languages, **model):
    record = {
        "model": dataclasses.asdict(preset("tiny", vocab_size=400, **model)),
        "languages": languages,
    }
    path.mkdir()
    (path / "run.json").write_text(json.dumps(record))
    return path


RECIPES = {
    "nli_tiny": (["recipes/nli_tiny.gin"], {}),
    "pos_tiny": (["recipes/pos_tiny.gin"], {}),
    "qa_tiny": (["recipes/qa_tiny.gin"], {}),
    "plug_in": (["recipes/nli_plug_in_tiny.gin"], {"TRAIN_LANGUAGES": "de", "PIVOT": "en"}),
    "titles_tiny": (["recipes/titles_tiny.gin"], {"LANGUAGE_TOKENS": "False"}),
    "multi_task": (
        ["runs/finetune.gin", "runs/multi_task.gin", "optim/adamw_linear.gin", "mesh/data.gin"],
        {
            "TASK_LABELS": '{"a": "0 1", "b": "x y z"}',
            "TRAIN_STEPS": 1,
            "WARMUP_STEPS": 0,
            "LEARNING_RATE": 1e-3,
        },
    ),
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("embeds", [False, True, None])  # None: an embedding that is left behind
def test_languages_are_those_of_the_files_where_no_parameter_is_of_one(
    recipe, embeds, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    decoder = {"decoder_layers": 1} if recipe == "titles_tiny" else {}
    if embeds is None and (decoder or recipe == "plug_in"):
        pytest.skip("a decoder needs its embedding")
    languages = [] if embeds is False else ["ar", "de", "en", "tr"]
    run_of(
        tmp_path / "run",
        languages,
        num_languages=len(languages),
        cross_attention=recipe == "plug_in",
        **decoder,
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in (
        "a/test-de",
        "a/test-en",
        "b/test-sw",
        "a/test-all",
        "a/dev-fr",
        "test-de",
        "test-sw",
        "dev-fr",
    ):
        (tmp_path / f"{name}.tsv").write_text("")
    within = "{task}/" if recipe == "multi_task" else ""
    values = {"INIT_FROM": "run", "TRAIN_FILES": f"{within}train-{{language}}.tsv"}
    values |= {
        f"{part}_FILES": f"{within}{part.lower()}-{{language}}.tsv" for part in ("DEV", "TEST")
    }
    values |= {"LANGUAGE_EMBEDDING": "False"} if embeds is None else {}
    names, more = RECIPES[recipe]
    given = [f"{name}={value}" for name, value in (values | more).items()]
    built = recipes.read_recipe([f"gin/{name}" for name in names], given)
    found = {"de", "en", "sw", "fr"} | ({"ar", "tr"} if embeds is None else set())
    assert built.corpus.languages == (tuple(languages) if embeds else tuple(sorted(found)))
    named = recipes.read_recipe([f"gin/{name}" for name in names], [*given, "LANGUAGES=en sw"])
    assert named.corpus.languages == ("en", "sw")

"""A table that trains its encoders and rows by recipes, end to end: each is trained once, and one
that was cut short goes on to the same figures."""

import json
import re
import shutil

import pytest

from tests.helpers import small_corpus, sweeping
from xlingjax.cli import main
from xlingjax.inference.run import open_run
from xlingjax.workflows.tasks.sweep import parameters_hash

pytestmark = pytest.mark.long
files = sweeping.files

TABLE = """
include "runs/table.gin"
TEXT = %gin.REQUIRED
PAIRS = %gin.REQUIRED
VOCABULARY = %gin.REQUIRED
MORE = None                   # nothing is given: its row is left out
DTYPE = "float32"
GIVEN = {"TEXT": %TEXT, "PAIRS": %PAIRS, "VOCABULARY": %VOCABULARY, "MORE": %MORE}
ENCODERS = {
    "both": {
        "recipe": "recipes/xlm_tiny.gin",
        "from": "mlm", "settings": [SMALL, "PARALLEL={PAIRS}"],
    },
    "mlm": {
        "recipe": "recipes/xlm_tiny.gin",
        "settings": ["objectives/mlm.gin", SMALL, "PARALLEL=None"],
    },
}
ROWS = {
    "xnli": {"task": "xtreme/xnli", "settings": [TUNED]},
    "mt": {
        "recipe": "recipes/xlm_mt_tiny.gin",
        "settings": [SMALL, "PARALLEL={PAIRS}", "HELDOUT_PAIRS={PAIRS}", "DECODER_LAYERS=1",
                     "INIT_ENCODER={encoder}", "INIT_DECODER={mlm}", "LANGUAGE_EMBEDDING=None",
                     "LANGUAGE_TOKENS=True", "EVAL_EVERY=2", "KEEP_BEST=1", "BEST_MODE=max",
                     "BEST_METRIC=generation_dev/bleu_mean"],
        "then": {
            "average": "average {run} --last 2 --to {folder}/averaged",
            "test": TRANSLATE,
        },
    },
    "words": {
        "then": {"words": "words {run} --dictionary de-en={data}/words.txt --pieces mean"},
        "encoders": "both",
    },
    "more": {"recipe": "recipes/xlm_tiny.gin", "settings": ["MONO={MORE}"]},
}
"""

TRANSLATE = (
    '"translate {folder}/averaged --source de --target en --beams 1 --input {data}/de.txt'
    ' --references {data}/en.txt --to {folder}/en.txt"'
)


def words(settings):
    return ", ".join(f'"{name}={value}"' for name, value in settings.items())


@pytest.fixture(scope="module")
def root(tmp_path_factory, files):
    root = tmp_path_factory.mktemp("table")
    small_corpus.build(root)
    data = root / "data"
    shutil.copytree(files / "xtreme", data)
    small_corpus.write(data / "de.txt", small_corpus.GERMAN)
    small_corpus.write(data / "en.txt", small_corpus.ENGLISH)
    small_corpus.write(data / "words.txt", ["Hund\tdog", "Buch\tbook"])
    small = {**small_corpus.SMALL, **small_corpus.SHORT, "LANGUAGES": "de en"}
    small |= {"VOCABULARY": "{VOCABULARY}", "MONO": "{TEXT}"}
    small |= {"VOCABULARY_SIZE": None, "HELDOUT_PAIRS": None}
    mt = {name: value for name, value in small.items() if name != "EVAL_EVERY"}
    tuned = {"LENGTH": 24, "BATCH": 8, "MESH_DATA": 1, "EPOCHS": 1, "LEARNING_RATE": 1e-2}
    tuned |= {"DEV_LANGUAGES": "\\'de en\\'", "TEST_LANGUAGES": "\\'de en\\'"}
    text = TABLE.replace("TUNED", words(tuned)).replace("TRANSLATE", TRANSLATE)
    encoders, rows = text.split("ROWS = {")
    encoders = encoders.replace("SMALL", words(small | {"HELDOUT_TEXT": None}))
    del mt["HELDOUT_PAIRS"]
    rows = rows.replace("SMALL", words(mt))
    (root / "table.gin").write_text(f"{encoders}ROWS = {{{rows}")
    return root


def table(root, output, *more):
    line = ["table", "--gin-file", str(root / "table.gin"), "--data", str(root / "data")]
    line += ["--to", str(output), "--platform", "cpu", f"--gin.TEXT={root}/mono"]
    line += [f"--gin.PAIRS={root}/pairs/*", f"--gin.VOCABULARY={root}/vocab", *more]
    return main.main(line)


@pytest.fixture(scope="module")
def ran(root):
    assert table(root, root / "whole") == 0
    return root / "whole"


def hash_of(run):
    return parameters_hash(open_run(str(run)).params)


def test_two_encoders_are_trained_and_read_by_rows(ran, root, capsys):
    record = json.loads((ran / "encoders/both/run.json").read_text())
    assert f"{ran}/encoders/mlm" in record["sessions"][0]["weights"]
    assert sorted(record["identity"]["objectives"]) == ["mlm", "tlm"]
    for encoder in ("mlm", "both"):
        cell = ran / encoder / "xnli/cells/xtreme/xnli/transfer/seed-0/scores.json"
        start = json.loads(cell.read_text())["start"]["run"]
        assert start == str(ran / "encoders" / encoder)
    page = (ran / "table.md").read_text()
    best = json.loads((ran / "both/mt/run/result.json").read_text())["best"]
    (step,) = {one["step"] for one in best.values()}
    assert re.search(rf"\| mt +\| both +\| {step}, the best by generation_dev/bleu_mean +\|", page)
    rows = json.loads((ran / "table.json").read_text())
    assert [row["encoder"] for row in rows] == ["both", "mlm"]
    value = best["generation_dev/bleu_mean"]["value"]
    assert rows[0]["figures"]["generation_dev/bleu_mean"] == pytest.approx(value)
    assert "$ xlingjax words" in page and "dictionary de-en: pairs 2" in page
    assert "BLEU" in page.partition("## both, mt: test")[2].partition("##")[0]
    assert "| transfer" in (ran / "card.md").read_text()
    assert not (ran / "rows/more").exists()


@pytest.mark.soak
def test_what_was_cut_short_goes_on_to_the_same_weights(ran, root, capfd):
    """In place: a sweep knows by its path what it started from."""
    runs = ("encoders/both", "both/mt/run", "mlm/mt/averaged")
    before = [hash_of(ran / run) for run in runs]
    texts = [(ran / name).read_text() for name in ("table.json", "card.json")]
    # Killed while the second encoder trained: nothing of it was used yet.
    run = ran / "encoders/both"
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints/4")
    shutil.rmtree(ran / "both")
    # And as it would be had it been killed while it averaged.
    row = ran / "mlm/mt"
    (row / "average.txt").unlink()
    (row / "averaged/run.json").unlink()
    shutil.rmtree(row / "averaged/checkpoints")
    whole = {path: path.stat().st_mtime_ns for path in ran.rglob("run/checkpoints/*")}
    assert table(root, ran) == 0
    said = capfd.readouterr().out
    assert "left out, since MORE is not set: more" in said
    for job in ("encoder mlm", "mlm, mt", "mlm, mt: test"):
        assert f"{job}: finished before" in said
    assert (
        whole.items() <= {p: p.stat().st_mtime_ns for p in ran.rglob("run/checkpoints/*")}.items()
    )
    sessions = json.loads((run / "run.json").read_text())["sessions"]
    assert [session["step"] for session in sessions] == [0, 2]
    assert [hash_of(ran / run) for run in runs] == before
    assert [(ran / name).read_text() for name in ("table.json", "card.json")] == texts


def test_a_finished_run_of_other_settings_is_refused(ran, root, capsys):
    capsys.readouterr()
    text = (root / "table.gin").read_text()
    before = '"from": "mlm", "settings": ['
    assert before in text
    (root / "table.gin").write_text(text.replace(before, f'{before}"MASK_RATE=0.5", '))
    assert table(root, ran) == 2
    said = capsys.readouterr().err
    (root / "table.gin").write_text(text)
    assert "encoders/both was run with other settings" in said and "MASK_RATE" in said

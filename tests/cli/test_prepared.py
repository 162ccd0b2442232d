"""`--data tfds:DIR`: fine-tuning and measuring on sets that TensorFlow Datasets prepared."""

import dataclasses
import json

import jax
import orbax.checkpoint as ocp
import pytest

from tests.helpers import prepared_sets, small_corpus
from xlingjax.cli import main
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import preset
from xlingjax.training.checkpoint_params import HashedPath

pytest.importorskip("tensorflow_datasets")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A run with random weights, of the languages of the small corpus."""
    root = tmp_path_factory.mktemp("start")
    small_corpus.build(root)
    run = root / "vocab"
    config = preset(
        "tiny", layers=1, dim=16, heads=2, ffn=32, max_positions=64, num_languages=0,
        vocab_size=json.loads((run / "vocab.json").read_text())["size"],
    )  # fmt: skip
    record = {
        "model": dataclasses.asdict(config),
        "languages": ["de", "en"],
        "parameters": count_parameters(config),
    }
    (run / "run.json").write_text(json.dumps(record))
    with ocp.Checkpointer(
        ocp.StandardCheckpointHandler(), temporary_path_class=HashedPath
    ) as writer:
        params = jax.jit(build_model(config).init)(jax.random.key(3))
        writer.save(run / "checkpoints/7/params", args=ocp.args.StandardSave(params))
    return run


@pytest.mark.long
def test_a_task_is_fine_tuned_and_measured_on_prepared_sets(start, tmp_path, monkeypatch, capsys):
    prepared_sets.prepare(
        prepared_sets.official(tmp_path / "files", rows=16),
        tmp_path / "sets",
        ["multi_nli", "xnli"],
    )
    prepared_sets.prepare(tmp_path / "files", tmp_path / "sets", ["tatoeba/tatoeba_de"])
    monkeypatch.chdir(tmp_path)
    words = ["finetune", str(start), "--task", "xnli/xnli", "--data", "tfds:sets", "--to", "scores"]
    settings = [
        "LENGTH=24",
        "BATCH=8",
        "EPOCHS=1",
        "DROPOUT=0",
        "ATTENTION_DROPOUT=0",
        "SELECT='en'",
    ]
    words += [f"--gin.{setting}" for setting in settings]
    assert main.main(words) == 0
    cell = tmp_path / "scores/cells/xnli/xnli/transfer/seed-0"
    recipe = (cell / "cell.gin").read_text()
    assert (
        f"DATA = 'tfds:{tmp_path}/sets'\n" in recipe and "TRAIN_STEPS = 2\n" in recipe
    )  # 16 rows, batches of 8
    made = json.loads((cell / "scores.json").read_text())
    assert made["test"]["split"] == "test" and made["test"]["examples"] == {
        code: 16 for code in prepared_sets.XNLI
    }
    identity = json.loads((cell / "run/run.json").read_text())["identity"]["data"]["classification"]
    assert identity["mixture"] == "xnli/xnli: gold en 16"
    # the fine-tuned run as it is, from the SeqIO tasks of the same sets
    words = [
        "evaluate",
        str(cell / "run"),
        "--mixture",
        "xnli",
        "--data",
        "tfds:sets",
        "--to",
        "as_it_is",
    ]
    assert main.main(words) == 0
    (found,) = (tmp_path / "as_it_is/cells").glob("**/scores.json")
    assert json.loads(found.read_text())["test"]["by_language"] == made["test"]["by_language"]
    # a suite: what is not prepared is said
    words = ["evaluate", str(start), "--suite", "xtreme", "--data", "tfds:sets", "--to", "suite"]
    assert main.main([*words, "--tasks", "tatoeba", "panx"]) == 2
    assert "xtreme/panx: no train and no test or dev files" in capsys.readouterr().out
    assert main.main([*words, "--tasks", "tatoeba", "--allow-missing"]) == 0
    (found,) = (tmp_path / "suite/cells").glob("**/scores.json")
    assert json.loads(found.read_text())["test"]["examples"] == {"de": 16}

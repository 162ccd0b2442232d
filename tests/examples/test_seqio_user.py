"""The example of a SeqIO user's tasks runs as it stands, and its run ends where others begin."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_every_row_of_the_example_holds():
    done = subprocess.run(
        [sys.executable, "examples/seqio_user.py"],
        cwd=ROOT,
        # One device: the workers of the tests have eight.
        env={**os.environ, "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    # The heading, and each row with what happens.
    assert len(rows) == 6 and all(len(row.split(" | ")) == 2 for row in rows)
    # Beam is an extra.
    skipped = [row for row in rows if "skipped" in row]
    expected = 0
    if importlib.util.find_spec("apache_beam") is None:
        expected = 1
    assert len(skipped) == expected
    for row in skipped:
        assert "USE_CACHED" in row and "pip install 'xlingjax[beam]'" in row


@pytest.mark.long
def test_a_t5_task_of_pairs_becomes_a_model_that_transformers_opens(tmp_path, monkeypatch):
    """Registered by another's module, named in a recipe, trained, exported: the vectors agree."""
    transformers = pytest.importorskip("transformers")
    import numpy as np
    import torch

    from tests.helpers import small_corpus
    from xlingjax.cli import main
    from xlingjax.inference.run import open_run

    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))
    small_corpus.build(tmp_path)
    columns = [small_corpus.ENGLISH, small_corpus.GERMAN]
    lines = ["\t".join(pair) for pair in zip(*columns, strict=True)] * 9
    small_corpus.write(tmp_path / "pairs.tsv", lines)
    (tmp_path / "users_tasks.py").write_text(TASKS.format(folder=tmp_path), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    given = {**small_corpus.SMALL, **small_corpus.SHORT, "VOCABULARY": f"{tmp_path}/vocab"}
    given |= {"TASKS": "users_tasks", "TLM_MIXTURE": "users.en_de", "LANGUAGES": "de en"}
    given |= {"VOCABULARY_SIZE": None, "MONO": None, "ALPHA": None}
    files = ["--gin-file", "gin/recipes/xlm_text.gin", "--gin-file", "gin/objectives/tlm.gin"]
    settings = [f"--gin.{name}={value}" for name, value in given.items()]
    run = tmp_path / "run"
    assert main.main(["pretrain", *files, *settings, "--to", str(run)]) == 0
    assert main.main(["export", str(run), "--to", str(tmp_path / "exported")]) == 0
    model = transformers.AutoModel.from_pretrained(tmp_path / "exported").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    opened = open_run(run)
    line = small_corpus.GERMAN[0]
    ids = tokenizer(line)["input_ids"]
    assert [i for i in ids if i not in opened.vocabulary.special_ids] == opened.vocabulary.encode(
        line
    )
    with torch.no_grad():
        states = model(**tokenizer([line], return_tensors="pt")).last_hidden_state
    ours = opened.embed([line], "de", pooling="first")[-1]
    np.testing.assert_allclose(states[:, 0].numpy(), ours, atol=1e-4)


TASKS = """
import seqio, tensorflow as tf
from pathlib import Path

model = Path(seqio.__file__).parent / "test_data/sentencepiece/sentencepiece.model"
NAMES = ("inputs", "targets")
feature = seqio.Feature(seqio.SentencePieceVocabulary(str(model)))
seqio.TaskRegistry.add(
    "users.en_de",
    source=seqio.TextLineDataSource({{"train": "{folder}/pairs.tsv"}}),
    preprocessors=[
        seqio.map_over_dataset(
            lambda line: dict(zip(NAMES, tf.unstack(tf.strings.split(line, "\\t"), 2)))
        ),
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
    ],
    output_features={{"inputs": feature, "targets": feature}},
)
"""

"""A released encoder as it comes: multilingual-e5-small, tokenizer.json alone, 250,037 rows for
250,002 pieces."""

import numpy as np
import pytest

from tests.helpers import released
from xlingjax.cli import main
from xlingjax.inference.run import open_run


@pytest.mark.long
@released.needs_released
@released.needs_data
def test_it_is_what_transformers_computes_and_finds_translations(tmp_path, capsys):
    way = ["--pooling", "mean", "--prefix", "query: "]
    assert main.main(["import", str(released.FOLDER), "--to", str(tmp_path / "e5"), *way]) == 0
    told = capsys.readouterr().out
    assert (
        "states of every layer: largest difference" in told
        and "ids" not in told.split("largest difference")[1]
    )
    assert "35 rows of the embedding table have no piece" in told
    run = open_run(tmp_path / "e5")
    assert (run.vocabulary.size, run.model.config.table_rows) == (250_002, 250_037)
    sides = {}
    for code in ("de", "en"):
        path = released.DATA / "tasks" / "tatoeba" / f"de-en.{code}"
        lines = path.read_text(encoding="utf-8").splitlines()[:100]
        vectors_SD = run.embed(lines, code, layers=[12])[0]
        sides[code] = vectors_SD / np.linalg.norm(vectors_SD, axis=1, keepdims=True)
    found = (sides["en"] @ sides["de"].T).argmax(1)
    assert (found == np.arange(100)).mean() >= 0.94

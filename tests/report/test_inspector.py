import io

import numpy as np
import pytest
from evaluation import toy
from rich.console import Console

from xlingjax.data.loader import array_source
from xlingjax.objectives.finetuning import Classification
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.finetuning import Example, classification_rows
from xlingjax.report import inspector

VOCABULARY = toy.ToyVocabulary()
A = VOCABULARY.encode("a")[0]


def masked_batch():
    """Two packed examples in row 0 (de, then en); row 1 in fr with padding. Slots: mask, random, kept; mask."""
    return {
        "input_ids": np.array([[1, A, 5, 1, 1, A + 9, A + 4, 1], [1, 5, A + 6, 1, 2, 2, 2, 2]], np.int32),
        "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 3, 0, 0, 0, 0]], np.int32),
        "language_ids": np.array([[0, 0, 0, 0, 1, 1, 1, 1], [2, 2, 2, 2, 0, 0, 0, 0]], np.int32),
        "pack_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 0, 0, 0, 0]], np.int32),
        "sides": np.zeros((2, 8), np.int32),
        "masked_positions": np.array([[2, 5, 6], [1, 0, 0]], np.int32),
        "masked_targets": np.array([[A + 1, A + 3, A + 4], [A + 5, 0, 0]], np.int32),
        "masked_weights": np.array([[1, 1, 1], [1, 0, 0]], np.float32),
    }


def test_tokens_of_a_masked_row():
    row = inspector.read_row(MLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES)
    assert [t.piece for t in row.tokens] == ["<1>", "a", "<5>", "<1>", "<1>", "j", "e", "<1>"]
    assert [(t.column, t.target, t.how) for t in row.tokens if t.target] == [
        (2, "b", "mask"),
        (5, "d", "random"),
        (6, "e", "kept"),
    ]
    assert [t.position for t in row.tokens] == [0, 1, 2, 3] * 2
    assert [t.language for t in row.tokens] == ["de"] * 4 + ["en"] * 4
    assert [t.pack for t in row.tokens] == [1] * 4 + [2] * 4


def test_the_grid_is_the_objectives_mask():
    block = np.kron(np.eye(2), np.ones((4, 4))).astype(bool)
    grid = inspector.read_row(MLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES).grids_LL["attention"]
    assert (grid == block).all()  # packed examples do not see each other
    causal = inspector.read_row(CLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES)
    assert (causal.grids_LL["attention"] == (block & np.tri(8, dtype=bool))).all()
    assert [t.target for t in causal.tokens] == ["a", "<5>", "<1>", "", "j", "e", "<1>", ""]  # none across examples
    padded = inspector.read_row(MLM(), masked_batch(), 1, VOCABULARY, toy.LANGUAGES)
    assert padded.grids_LL["attention"].shape == (4, 4) and padded.grids_LL["attention"].all()
    assert inspector.grid_text(causal, causal.grids_LL["attention"], 3) == "   0 ■··\n   1 ■■·\n   2 ■■■"


def test_realised_mask_rates():
    table = inspector.mask_statistics([masked_batch(), masked_batch()], VOCABULARY, toy.LANGUAGES)
    assert table["de"] == {"tokens": 8, "predictions": 2, "rate": 0.25, "mask": 1.0, "random": 0.0, "kept": 0.0}
    assert table["en"] == {"tokens": 8, "predictions": 4, "rate": 0.5, "mask": 0.0, "random": 0.5, "kept": 0.5}
    assert table["fr"]["rate"] == 0.25
    assert table["all"]["tokens"] == 24 and table["all"]["predictions"] == 8
    assert table["all"]["mask"] == pytest.approx(0.5) and table["all"]["kept"] == pytest.approx(0.25)


def test_inspect_shows_every_objective_and_writes_files(tmp_path):
    batch = masked_batch()
    labelled = classification_rows([Example("a b", "c", "y"), Example("d", "e", "x")], VOCABULARY, 8, ("x", "y"), 1)
    objectives = [
        (objective, array_source([fields], languages=toy.LANGUAGES))
        for objective, fields in ((MLM(), batch), (TLM(), batch), (CLM(), batch), (Classification(2), labelled))
    ]
    out = io.StringIO()
    console = Console(file=out, width=300, color_system=None)
    statistics = inspector.inspect(objectives, VOCABULARY, rows=1, batches=3, console=console, output=tmp_path)
    assert statistics["mlm"]["all"]["tokens"] == 36 and statistics["clm"] == {} == statistics["classification"]
    text = out.getvalue()
    for expected in ("mlm, row 0", "clm, row 0", "label 1", "masked_positions 2×3", "tlm: realised masking", "■··"):
        assert expected in text
    page = (tmp_path / "inspect.html").read_text("utf-8")
    assert "http" not in page and page.count("<svg") == 4 and "Realised masking" in page
    pictures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert pictures == [f"{name}-0-attention.png" for name in ("classification", "clm", "mlm", "tlm")]

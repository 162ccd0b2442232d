import io

import numpy as np
import pytest
from rich.console import Console

from tests.evaluation.test_alignment import Characters
from tests.helpers import tiny, toy
from tests.helpers.sources import array_source
from xlingjax.data.labelled.records import Example, Question
from xlingjax.objectives.finetuning import Classification, SpanQA
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.finetuning import classification_rows
from xlingjax.preprocessors.span_qa import span_rows
from xlingjax.report import inspector
from xlingjax.report.rows import mask_statistics, read_row

VOCABULARY = toy.ToyVocabulary()
A = VOCABULARY.encode("a")[0]


def masked_batch():
    """Two packed examples in row 0 (de, then en); row 1 in fr with padding. Slots: mask, random,
    kept; mask."""
    return {
        "input_ids": np.array(
            [[1, A, 5, 1, 1, A + 9, A + 4, 1], [1, 5, A + 6, 1, 2, 2, 2, 2]], np.int32
        ),
        "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 3, 0, 0, 0, 0]], np.int32),
        "language_ids": np.array([[0, 0, 0, 0, 1, 1, 1, 1], [2, 2, 2, 2, 0, 0, 0, 0]], np.int32),
        "pack_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 0, 0, 0, 0]], np.int32),
        "sides": np.zeros((2, 8), np.int32),
        "masked_positions": np.array([[2, 5, 6], [1, 0, 0]], np.int32),
        "masked_targets": np.array([[A + 1, A + 3, A + 4], [A + 5, 0, 0]], np.int32),
        "masked_weights": np.array([[1, 1, 1], [1, 0, 0]], np.float32),
    }


SOURCE = array_source([masked_batch()], languages=toy.LANGUAGES)


def test_tokens_of_a_masked_row():
    row = read_row(MLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES)
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
    grid = read_row(MLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES).grids_LL["attention"]
    assert (grid == block).all()  # packed examples do not see each other
    causal = read_row(CLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES)
    assert (causal.grids_LL["attention"] == (block & np.tri(8, dtype=bool))).all()
    # None across examples.
    assert [t.target for t in causal.tokens] == ["a", "<5>", "<1>", "", "j", "e", "<1>", ""]
    padded = read_row(MLM(), masked_batch(), 1, VOCABULARY, toy.LANGUAGES)
    assert padded.grids_LL["attention"].shape == (4, 4) and padded.grids_LL["attention"].all()


def test_realised_mask_rates():
    table = mask_statistics([masked_batch(), masked_batch()], VOCABULARY, toy.LANGUAGES)
    keys = ("tokens", "predictions", "rate", "mask", "random", "kept")
    assert table["de"] == dict(zip(keys, (8, 2, 0.25, 1.0, 0.0, 0.0), strict=True))
    assert table["en"] == dict(zip(keys, (8, 4, 0.5, 0.0, 0.5, 0.5), strict=True))
    assert table["fr"]["rate"] == 0.25
    assert table["all"]["tokens"] == 24 and table["all"]["predictions"] == 8
    assert (table["all"]["mask"], table["all"]["kept"]) == pytest.approx((0.5, 0.25))


def test_hidden_runs_of_the_source_and_what_each_stream_sees():
    batch = tiny.batch("xfnp", rows=3, length=12, vocab=VOCABULARY.size)
    objective = tiny.objective("xfnp")
    row = read_row(objective, batch, 0, VOCABULARY, toy.LANGUAGES)
    hidden = {column: token for token in row.tokens if (column := token.column) < 12 and token.how}
    targets = [token for token in row.tokens if token.column >= 12]
    assert len(hidden) == len(targets) == 6 and {token.how for token in targets} == {"next"}
    assert {token.how for token in hidden.values()} == {"mask"}
    # The first row is one example from column 0.
    assert sorted(hidden) == [token.position + 1 for token in targets]
    own_0, own_1 = (row.grids_LL[f"stream {i}"][12:, 12:] for i in (0, 1))
    assert (own_0 == np.tri(6, dtype=bool)).all() and (own_1[1:, :5] == np.tri(5, dtype=bool)).all()
    assert own_1[0].tolist() == [True] + [False] * 5
    rates = mask_statistics([batch], VOCABULARY, toy.LANGUAGES)["all"]
    assert rates["predictions"] == batch["decoder_weights"].sum() and rates["mask"] == 1.0
    assert rates["tokens"] == (batch["pack_ids"] > 0).sum()


def test_answers_are_marked_where_they_stand():
    asked = [
        Question("1", "a", "cdefgh", ("efg",), (2,)),
        Question("2", "a", "cdefghijk", ("k",), (8,)),
    ]
    # The second in two windows.
    batch, _ = span_rows(asked, Characters(), 10, 1, stride=6, max_question=1)
    rows = [read_row(SpanQA(), batch, row, Characters(), toy.LANGUAGES) for row in range(3)]
    found = [
        [(token.column, token.piece == token.target) for token in row.tokens if token.how]
        for row in rows
    ]
    assert found == [[(5, True), (6, True), (7, True)], [(0, True)], [(5, True)]]
    assert all(token.how == "answer" for row in rows for token in row.tokens if token.target)


def test_inspect_shows_every_objective_and_writes_files(tmp_path):
    batch = masked_batch()
    labelled = classification_rows(
        [Example("a b", "c", "y"), Example("d", "e", "x")], VOCABULARY, 8, ("x", "y"), 1
    )
    made = ((MLM(), batch), (TLM(), batch), (CLM(), batch), (Classification(2), labelled))
    objectives = {
        one.name: (one, array_source([fields], languages=toy.LANGUAGES)) for one, fields in made
    }
    objectives["mlm@5"] = MLM(), array_source([batch], languages=toy.LANGUAGES)
    out = io.StringIO()
    console = Console(file=out, width=300, color_system=None)
    weights = {"mlm": {0: 1, 5: 2}, "tlm": 1}
    record = {"steps": 9, "weights": weights, "optimizer": {"warmup_steps": 2}}
    statistics = inspector.inspect(
        objectives, VOCABULARY, record=record, rows=1, batches=3, console=console, output=tmp_path
    )
    assert statistics["mlm"] == statistics["mlm@5"]
    assert statistics["mlm"]["all"]["tokens"] == 36
    assert statistics["clm"] == {} == statistics["classification"]
    text = out.getvalue()
    for expected in ("mlm, row 0", "label 1", "tlm: realised masking", "from step 5: 2"):
        assert expected in text
    page = (tmp_path / "inspect.html").read_text("utf-8")
    assert page.count("<svg") == 4 and page.count("token by token") == 5


def grids(name):
    """{use: bool grid} of row 0 of the objective's tiny batch, and the fields of that row."""
    batch, objective = tiny.batch(name), tiny.objective(name)
    view = read_row(objective, batch, 0, VOCABULARY, tiny.LANGUAGES)
    fields = {key: values[0] for key, values in batch.items()}
    return view, fields


def test_veco_shows_both_of_its_suits():
    view, fields = grids("veco")
    assert [*view.grids_LL] == ["self-attention of H and S", "cross-attention of S to H", "TLM"]
    same = fields["sides"][:, None] == fields["sides"]
    alone, across, whole = view.grids_LL.values()
    assert (alone == same).all() and (across == ~same).all() and whole.all()

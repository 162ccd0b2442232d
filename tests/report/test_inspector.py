import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from tests.evaluation.test_alignment import Characters
from tests.helpers import tiny, toy
from xlingjax.data.batches.loader import array_source
from xlingjax.data.labelled.records import Example, Question
from xlingjax.objectives.finetuning import Classification, SpanQA
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.finetuning import classification_rows
from xlingjax.preprocessors.span_qa import span_rows
from xlingjax.report import drawing, html, inspector
from xlingjax.report.rows import (
    as_values,
    first_rows,
    mask_statistics,
    read_row,
    section,
    with_pictures,
)

VOCABULARY = toy.ToyVocabulary()
A = VOCABULARY.encode("a")[0]


def values(view):
    return as_values("", MLM(), SOURCE, view, ())


def as_html(view):
    row = values(view)
    return html.part("parts", "running_text", row["examples"], row["languages"])


def on_terminal(view):
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None)
    for part in inspector.running_text(view.tokens, toy.LANGUAGES):
        console.print(part)
    return out.getvalue().splitlines()


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
    assert table["all"]["mask"] == pytest.approx(0.5) and table["all"]["kept"] == pytest.approx(
        0.25
    )


def test_hidden_runs_of_the_source_and_what_each_stream_sees():
    batch = tiny.batch("xfnp", rows=3, length=12, vocab=VOCABULARY.size)
    objective = tiny.objective("xfnp")
    row = read_row(objective, batch, 0, VOCABULARY, toy.LANGUAGES)
    hidden = {column: token for token in row.tokens if (column := token.column) < 12 and token.how}
    targets = [token for token in row.tokens if token.column >= 12]
    assert len(hidden) == len(targets) == 6 and {token.how for token in targets} == {"next"}
    assert {token.how for token in hidden.values()} == {"mask"}
    assert sorted(hidden) == [
        token.position + 1 for token in targets
    ]  # the first row is one example from column 0
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
    batch, _ = span_rows(
        asked, Characters(), 10, 1, stride=6, max_question=1
    )  # the second in two windows
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
    objectives = {
        objective.name: (objective, array_source([fields], languages=toy.LANGUAGES))
        for objective, fields in (
            (MLM(), batch),
            (TLM(), batch),
            (CLM(), batch),
            (Classification(2), labelled),
        )
    }
    objectives["mlm@5"] = MLM(), array_source([batch], languages=toy.LANGUAGES)
    out = io.StringIO()
    console = Console(file=out, width=300, color_system=None)
    record = {
        "steps": 9,
        "weights": {"mlm": {0: 1, 5: 2}, "tlm": 1},
        "optimizer": {"warmup_steps": 2},
    }
    statistics = inspector.inspect(
        objectives, VOCABULARY, record=record, rows=1, batches=3, console=console, output=tmp_path
    )
    assert (
        statistics["mlm"] == statistics["mlm@5"]
        and statistics["mlm"]["all"]["tokens"] == 36
        and statistics["clm"] == {} == statistics["classification"]
    )
    text = out.getvalue()
    for expected in (
        "mlm, row 0",
        "clm, row 0",
        "label 1",
        "masked_positions 2×3",
        "tlm: realised masking",
        "mlm@5, row 0",
        "from step 5: 2",
        "to be predicted: [word] shown as MASK",
    ):
        assert expected in text
    page = (tmp_path / "inspect.html").read_text("utf-8")
    assert not re.search("https?:", page) and page.count("<svg") == 4
    assert "Realised masking" in page and "from step 5: 2" in page
    assert page.count("token by token") == 5


def test_the_first_rows_show_every_objective_and_each_mask_once():
    batch = {
        name: values[::-1] for name, values in masked_batch().items()
    }  # row 1 is the one in two languages
    veco, camlm = (tiny.batch(name) for name in ("veco", "camlm"))
    given = {
        "mlm": (MLM(), batch),
        "tlm": (TLM(), batch),
        "mlm@5": (MLM(), None),
        "clm": (CLM(), batch),
        "veco": (tiny.objective("veco"), veco),
        "clm@9": (tiny.objective("camlm"), camlm),
    }
    objectives = {
        name: (
            objective,
            array_source([fields], languages=toy.LANGUAGES) if fields else None,
        )
        for name, (objective, fields) in given.items()
    }
    rows = json.loads(json.dumps(first_rows(objectives, VOCABULARY)))
    page = html.part("sections", "rows", section(rows))
    parts = dict(part.split("</h3>") for part in page.split("<h3>")[1:])
    # A later stage is there for its mask; MLM's own stands with MLM, and TLM and VECO have it, too.
    assert {name: re.findall('aria-label="(.*?): grid"', part) for name, part in parts.items()} == {
        "MLM": ["attention"], "TLM": [], "CLM": ["attention"], "CLM@9": ["attention"],
        "VECO": ["self-attention of H and S", "cross-attention of S to H"],
    }  # fmt: skip
    assert all(part.count("<svg") == part.count("aria-label") for part in parts.values())
    assert (
        '<bdi lang="de">' in parts["MLM"]
        and '<bdi lang="en">' in parts["TLM"]
        and "input_ids 2×8" in parts["MLM"]
    )
    assert objectives["mlm"][1].state() == array_source([batch]).state()  # looked at, not taken


def test_a_row_is_running_text_with_its_chosen_words_marked():
    view = read_row(MLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES)
    page = as_html(view)
    special = ' <span class="special">&lt;1&gt;</span> '
    # Two examples, each of one language and side.
    assert page.count('class="sides"') == page.count('class="side"') == 2
    assert f'<bdi lang="de">{special}a<mark class="mask">b</mark>{special}</bdi>' in page
    random, kept = '<mark class="random"><s>j</s> d</mark>', '<mark class="kept">e</mark>'
    assert f'<bdi lang="en">{special}{random}{kept}{special}</bdi>' in page
    assert [*values(view)["marks"]] == ["mask", "random", "kept"]
    lines = [re.sub(" +", " ", line.strip()) for line in on_terminal(view)]
    assert lines[:2] == ["de <1> a[b] <1>", "en <1> [j→d][=e] <1>"]
    # Where nothing is hidden nothing is marked, and no key is needed.
    causal = read_row(CLM(), masked_batch(), 0, VOCABULARY, toy.LANGUAGES)
    assert "<mark" not in as_html(causal)
    assert values(causal)["marks"] == {}


def test_both_sides_of_a_pair_stand_beside_each_other():
    batch = masked_batch()
    batch["pack_ids"] = np.minimum(batch["pack_ids"], 1)
    batch["sides"] = np.array([[0] * 4 + [1] * 4, [0] * 8], np.int32)
    view = read_row(TLM(), batch, 0, VOCABULARY, toy.LANGUAGES)
    page = as_html(view)
    assert page.count('class="sides"') == 1 and page.count('class="side"') == 2
    first, second = on_terminal(view)[:2]
    assert "de  <1> a[b]" in first and "en  <1> [j→d]" in second


def test_a_side_of_several_languages_is_coloured_by_them():
    batch = masked_batch()
    batch["pack_ids"] = np.minimum(batch["pack_ids"], 1)
    view = read_row(MLM(), batch, 0, VOCABULARY, toy.LANGUAGES)
    page = as_html(view)
    assert '<span class="lang">de + en</span>' in page
    assert '<bdi lang="de" style="color:var(--series-0)">' in page
    assert '<bdi lang="en" style="color:var(--series-1)">' in page
    line, _ = inspector.running_text(view.tokens, toy.LANGUAGES)
    styles = {line.plain[span.start : span.end]: span.style for span in line.spans}
    assert styles["a"] == f"not bold {drawing.colours(toy.LANGUAGES)['de']}"


def test_a_mask_that_hides_most_comes_first_and_one_that_hides_nothing_is_not_drawn():
    view, _ = grids("veco")
    shown = as_values("", MLM(), SOURCE, view, view.grids_LL)
    drawn = [label.removesuffix(": grid") for _, label in with_pictures(shown)["pictures"]]
    hidden = [np.mean(~view.grids_LL[use]) for use in drawn]
    assert len(drawn) == 2 and hidden == sorted(hidden, reverse=True)
    assert shown["open"] == ["TLM"]


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


def test_btmlm_shows_both_of_its_stages():
    view, fields = grids("btmlm")
    assert {*view.grids_LL} == {"first stage", "second stage"}
    text = fields["is_mask"] == 0
    assert (view.grids_LL["first stage"] == (text[None, :] | np.eye(len(text), dtype=bool))).all()
    assert view.grids_LL["second stage"].all()
    assert [t.how == "pseudo" for t in view.tokens] == (~text).tolist()


def test_camlm_and_word_recovery_show_who_is_attended():
    view, fields = grids("camlm")
    mask, side = fields["is_mask"] > 0, fields["sides"]
    for q, k in np.ndindex(len(side), len(side)):
        if not mask[q]:
            expected = side[q] == side[k] and not mask[k]
        else:
            expected = side[q] == side[k] if mask[k] else side[q] != side[k]
        assert view.grids_LL["attention"][q, k] == expected
    view, fields = grids("clwr")
    assert (view.grids_LL["word recovery"] == (fields["sides"][:, None] != fields["sides"])).all()
    assert {t.how for t in view.tokens} == {"recover", ""}

import html
import json
import re

import pytest

from tests.helpers import fake_run
from xlingjax.errors import UserError
from xlingjax.report.build import build_report, sampling_tables
from xlingjax.report.run import read_run


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    run = fake_run.write_run(root / "main", level=0.6)
    other = fake_run.write_run(root / "other", objectives=("mlm",), level=0.2)
    tuned = fake_run.write_finetuned(root / "nli")
    tagged = [
        fake_run.write_tagged(root / name, metric)
        for name, metric in (("pos", "accuracy"), ("ner", "f1"))
    ]
    answered = fake_run.write_answered(root / "qa")
    page = build_report(run, {"MLM only": other}, [*tagged, tuned, answered])
    assert page == run / "report.html"
    return page.read_text("utf-8"), json.loads((run / "report.json").read_text("utf-8"))


def test_scores_of_generated_text_are_those_on_test_not_dev(tmp_path):
    run = fake_run.write_generated(tmp_path / "mt")
    assert "tok:13a|v:2" in build_report(run).read_text("utf-8")
    summary = json.loads((run / "report.json").read_text("utf-8"))["summary"]
    assert (summary["bleu_mean"], summary["wrong_language_rate_mean"]) == (12.5, 0.625)


def test_summary(report):
    summary = report[1]["summary"]
    expected = {
        # Layer 2 of the last evaluation, not layer 1, which has 0.7: mean of de +0.05, zh -0.05.
        "retrieval_mean": 0.6,
        "retrieval_mean_centred": 0.8,  # 0.6 + 0.2
        "retrieval_layer": 2,
        "retrieval_mean_mlm_only": 0.2,
        "retrieval_mean_mlm_only_centred": 0.4,
        "tokens_seen_mlm_only": 40_000,
        "nli_en": 0.85,  # test, not dev
        "nli_mean_other": 0.625,
        "tagging_en": 0.95,
        "tagging_mean_other": 0.45,
        "qa_en": 0.75,
        "qa_mean_other": 0.355,
        "alignment_error": 0.125,
        "tokens_per_second": 777.0,
        "tokens_seen": 40_000,
        "final_loss": {"mlm": 2.0, "tlm": 1.5},
        "perplexity_mean": 47.0,
        "tlm_perplexity_visible": 15.0,
        "tlm_perplexity_hidden": 40.0,
        "steps": 40,
        "exit_reason": "finished",
        "parameters": 123_456,
    }
    assert {name: summary.get(name) for name in expected} == {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in expected.items()
    }


def test_the_page_shows_values_beside_chance_and_other_runs(report):
    source = report[0]
    text = " ".join(html.unescape(re.sub("<[^>]+>", " ", source)).split())
    # Retrieval raw and centred, two losses.
    assert source.count("<svg") == 4
    # On top, beside the compared run; chance is (1/200 + 1/300) / 2.
    assert "mean over languages (0 to 1) 0.6 0.2" in text and "subtracted 0.8 0.4" in text
    # The summary has no such figure of the other run.
    assert "retrieval by chance, 200 pairs a language 0.004167 –" in text
    assert "de, wrong Die <b>Katze</b> schläft. A dog barks. The cat sleeps." in text
    # Wilson's of 85 of 100 and 39 of 60; of 2,000 none.
    assert "en 70.0 85.0 (77–91) 36.0" in text and "zh – 60.0 37.0" in text
    assert "de – 65.0 (52–76) 35.0" in text
    assert "75.0 / 62.5" in text and "35.5 / 12.5" in text
    assert "python 3.11.7" in text and "TRAIN_STEPS = 40" in text


def test_steps_count_for_the_stage_that_took_them(tmp_path):
    run = fake_run.write_run(tmp_path / "run")  # log lines of 5 steps each at 10, 20, 30 and 40
    record = json.loads((run / "run.json").read_text())
    data = record["identity"]["data"]
    data |= {name: data["mlm"] for name in ("mlm@10", "mlm@40", "tlm@20", "tlm@30")}
    (run / "run.json").write_text(json.dumps(record))
    tables = sampling_tables(read_run(run))
    # de: 10 epochs in 1000 steps.
    steps = {name: 100 * rows[0]["epochs"] for name, rows in tables.items()}
    expected = {"mlm": 5, "mlm@10": 15, "mlm@40": 0, "tlm": 10, "tlm@20": 5, "tlm@30": 5}
    assert steps == pytest.approx(expected)


def test_a_run_that_has_only_begun(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    page = build_report(tmp_path / "run", output=tmp_path / "elsewhere")
    assert page == tmp_path / "elsewhere" / "report.html"
    assert "had not logged a step" in page.read_text()
    assert not (tmp_path / "run" / "report.html").exists()


def test_what_is_no_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="not a run folder"):
            build_report(path)
    run = fake_run.write_run(tmp_path / "run", steps=(10,))
    with pytest.raises(UserError, match="not a run folder"):
        build_report(run, {"mlm": tmp_path})
    (run / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run.json: not valid JSON"):
        build_report(run)


def test_tokens_are_interpolated_between_log_lines(tmp_path):
    run = read_run(fake_run.write_run(tmp_path / "run"))
    assert run.tokens_at([0, 10, 15, 40]).tolist() == [0, 10_000, 15_000, 40_000]

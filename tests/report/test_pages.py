"""The pages in a browser: on a telephone and a desk, light and dark, all can be read."""

import json

import pytest

from tests.helpers import fake_run, tiny, toy
from tests.helpers.browser import browser, faults
from tests.helpers.sources import array_source
from xlingjax.report import inspector
from xlingjax.report.build import build_report
from xlingjax.report.rows import first_rows
from xlingjax.runtime.files import write_json

WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
OBJECTIVES = ("mlm", "tlm", "veco", "camlm", "btmlm", "xfnp")


def opened(name):
    source = array_source(
        [tiny.batch(name, vocab=toy.ToyVocabulary().size)], languages=toy.LANGUAGES
    )
    return tiny.objective(name), source


@pytest.fixture
def pages(tmp_path):
    """{name: path} of a report with every section, and the inspector."""
    objectives = {name: opened(name) for name in OBJECTIVES}
    vocabulary = toy.ToyVocabulary()
    # As long as people name their runs.
    run = fake_run.write_run(tmp_path / "mlm_tlm_camlm_with_a_very_long_name_of_its_own-seed-0")
    record = json.loads((run / "run.json").read_text())
    record["model"] |= {"vocab_size": 250_002}
    (run / "run.json").write_text(json.dumps(record))
    write_json(run / "rows.json", first_rows(objectives, vocabulary))
    other = fake_run.write_run(tmp_path / "other", objectives=("mlm",), level=0.2)
    tuned = [
        fake_run.write_finetuned(tmp_path / "nli"),
        fake_run.write_tagged(tmp_path / "pos", "accuracy"),
        fake_run.write_answered(tmp_path / "qa"),
        fake_run.write_generated(tmp_path / "mt"),
    ]
    inspector.inspect(objectives, vocabulary, rows=1, batches=1, output=tmp_path / "inspected")
    return {
        "report": build_report(run, {"MLM only, the same tokens": other}, tuned),
        "inspector": tmp_path / "inspected" / "inspect.html",
    }


@pytest.mark.long
def test_every_page_can_be_read_at_any_width_and_in_the_dark(pages):
    found = []
    with browser() as started:
        for width in WIDTHS:
            for scheme in SCHEMES:
                page = started.new_page(
                    viewport={"width": width, "height": 900}, color_scheme=scheme
                )
                for name, path in pages.items():
                    page.goto(path.as_uri())
                    for fault in faults(page):
                        found.append(f"{name}, {width} px, {scheme}: {fault}")
                page.close()
    assert not found, "\n".join(found)

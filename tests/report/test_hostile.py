"""Text and names of others in the pages: shown, and never a part of the page."""

import json
from html.parser import HTMLParser

from markupsafe import escape

from tests.helpers import fake_run, toy
from tests.helpers.sources import array_source
from tests.report.test_inspector import masked_batch
from xlingjax.objectives.xlm import MLM
from xlingjax.report import html
from xlingjax.report.build import build_report
from xlingjax.report.rows import first_rows
from xlingjax.runtime.files import write_json

PAYLOADS = ('"><img src=x onerror=alert(1)>', "<script>alert(1)</script>", "' onload='x")
ALLOWED = ("#", "data:image/png")


class Tags(HTMLParser):
    """Fails on whatever runs or is fetched; keeps the text."""

    def __init__(self, page):
        super().__init__()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "iframe", "object", "embed", "base", "form", "link")
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name, value)
            if name in ("href", "xlink:href", "src"):
                assert value.startswith(ALLOWED), (tag, name, value)

    handle_startendtag = handle_starttag

    def handle_data(self, data):
        self.text += data


def hostile(value, payload):
    """The value with every text that is shown, and every code of a language, spoilt."""
    codes = ("de", "zh")
    if isinstance(value, dict):
        made = {}
        for name, member in value.items():
            if name in codes:
                name += payload
            kept = name in ("kind", "name", "time", "exit_reason", "schedule")
            made[name] = member if kept else hostile(member, payload)
        return made
    if isinstance(value, list):
        return [hostile(member, payload) for member in value]
    if isinstance(value, str):
        return value + payload
    return value


def test_reports(tmp_path):
    payload = "".join(PAYLOADS)
    run = fake_run.write_run(tmp_path / f"run{payload.replace('/', '')}")
    for path in (run / "run.json", run / "evaluations.jsonl", run / "metrics.jsonl"):
        lines = []
        for line in path.read_text().splitlines():
            lines.append(json.dumps(hostile(json.loads(line), payload)))
        path.write_text("\n".join(lines) + "\n")
    (run / "log.txt").write_text(f"2026-01-02 10:00:00 {payload}\n")
    (run / "config.gin").write_text(f"MONO = {payload!r}\n")
    other = fake_run.write_run(tmp_path / "other")
    page = build_report(run, {payload: other}, [fake_run.write_generated(tmp_path / "g")])
    text = page.read_text()
    shown = Tags(text).text
    assert payload in shown and escape(payload) in text
    assert "Content-Security-Policy" in text


def test_anchors_and_parts_are_escaped():
    for payload in PAYLOADS:
        layer = {payload: {"raw": 0.5}}
        parts = {
            "note": [payload],
            "details": [payload, payload],
            "table": [[payload], [[payload]]],
            "by_layer": [payload, {payload: layer}, layer, "raw", {payload: {payload: 0.1}}],
            "figures": [[("<svg></svg>", payload)]],
        }
        made = [html.part("parts", name, *values) for name, values in parts.items()]
        sections = [(payload, payload, one) for one in made]
        page = html.render("inspect.html", title=payload, heading=payload, sections=sections)
        assert payload in Tags(page).text


def rows_of_a_run():
    languages = [code + PAYLOADS[0] for code in toy.LANGUAGES]
    source = array_source([masked_batch()], languages=languages)
    return first_rows({"mlm": (MLM(), source)}, toy.ToyVocabulary())


def test_rows_are_shown_whatever_they_say(tmp_path):
    run = fake_run.write_run(tmp_path / "run")
    payload = "".join(PAYLOADS)
    rows = rows_of_a_run()
    write_json(run / "rows.json", hostile(rows, payload) + rows)
    saved = json.loads((run / "rows.json").read_text())
    saved[0]["title"] = "MLM" + payload
    write_json(run / "rows.json", saved)
    page = build_report(run).read_text()
    part = page[page.index('id="rows"') :]
    part = part[: part.index("</section>")]
    shown = Tags(part).text
    assert "MLM" + payload in shown and toy.LANGUAGES[0] + PAYLOADS[0] in shown


def test_rows_that_cannot_be_read_are_a_line(tmp_path, capsys):
    run = fake_run.write_run(tmp_path / "run")
    (run / "rows.json").write_text("<script>alert(1)</script>")
    assert "alert" not in build_report(run).read_text()
    error = capsys.readouterr().err
    assert f"warning: {run}/rows.json: not valid JSON" in error and error.count("\n") == 1

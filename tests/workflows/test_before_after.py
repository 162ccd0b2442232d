"""What counts as worse after `xlingjax adapt`, and what is exported then."""

import json

import pytest

from xlingjax.errors import UserError
from xlingjax.report.run import Run
from xlingjax.workflows.adapt import run as verb
from xlingjax.workflows.adapt.before_after import (
    CENTRED,
    RETRIEVAL,
    VISIBLE,
    compared,
    pairs_of,
    worse,
)
from xlingjax.workflows.adapt.request import Request

GOOD = {
    "perplexity": 50.0,
    "visible": 40.0,
    "hidden": 45.0,
    "raw": 0.14,
    "centred": 0.2,
    "aer": 0.3,
}


def run(tmp_path, **changed):
    figures = GOOD | changed
    values = {
        "perplexity": {"by_language": {"de": 2.0, "en": 98.0}, "mean": figures["perplexity"]},
        "translation_perplexity": {
            "visible_mean": figures["visible"],
            "hidden_mean": figures["hidden"],
        },
        "retrieval": {
            "retrieval_mean": figures["raw"],
            "retrieval_mean_centred": figures["centred"],
            "pairs": {"de": 150, "fr": 50},
        },
        "alignment": {"alignment_error": figures["aer"]},
    }
    lines = [
        {"step": 0, "name": kind, "values": {"kind": kind} | value}
        for kind, value in values.items()
    ]
    return Run(tmp_path, "", {}, {}, [], lines, [])


@pytest.mark.parametrize(
    ("changed", "worsened"),
    [
        ({}, []),
        # Errors by more than 1 % of what they were.
        ({"perplexity": 50.4}, []),
        ({"perplexity": 50.6}, ["perplexity, mean 50 -> 50.6"]),
        ({"visible": 57.7}, [f"{VISIBLE} 40 -> 57.7"]),
        ({"aer": 0.31}, ["alignment error rate 0.3 -> 0.31"]),
        # Two standard errors of the difference of two shares of 200 pairs, by hand:
        # 2 * sqrt((0.14 * 0.86 + p * (1 - p)) / 200) is 0.0672 at 0.12 and 0.0609 at 0.07.
        ({"raw": 0.12}, []),
        ({"raw": 0.07}, [f"{RETRIEVAL} 0.1400 -> 0.0700 of 200 pairs"]),
        ({"centred": 0.1}, [f"{CENTRED} 0.2000 -> 0.1000 of 200 pairs"]),
        # The words alone are no figure that is promised.
        ({"hidden": 90.0}, []),
        ({"perplexity": 9.0, "visible": 8.0, "raw": 0.9, "centred": 0.9, "aer": 0.1}, []),
    ],
)
def test_worse_is_what_chance_does_not_explain(changed, worsened, tmp_path):
    after = run(tmp_path, **changed)
    assert worse(compared(run(tmp_path), after), pairs_of(after)) == worsened
    # What was not measured before is not worse.
    nothing = Run(tmp_path, "", {}, {}, [], [], [])
    assert worse(compared(nothing, after), 200) == []


@pytest.fixture
def adapting(tmp_path, monkeypatch):
    """`adapt` with a training that is not done: what was measured is given, exports are noted."""
    exports = []

    def export(run, output, *card, name, before_after):
        (tmp_path / "out" / output.rsplit("/", 1)[1]).mkdir()
        exports.append((run.rsplit("/", 1)[1], output.rsplit("/", 1)[1], bool(before_after)))
        return f"exported {run}"

    monkeypatch.setattr(verb, "bindings", lambda files, overrides: {})
    monkeypatch.setattr(verb, "prepare", lambda *given: {"settings": {}})
    monkeypatch.setattr(verb, "read_recipe", lambda files, overrides: None)
    monkeypatch.setattr(verb, "launch", lambda *given: 0)
    monkeypatch.setattr(verb, "export_model", export)

    def adapt(after, **options):
        measured = {"start": run(tmp_path), "run": after}
        monkeypatch.setattr(verb, "read_run", lambda folder: measured[folder.name])
        request = Request("hf", ("a",), (), ("mlm",), None, 1, 1, 1, None, None, (), ())
        export = verb.Export(**options)
        assert verb.adapt(request, str(tmp_path / "out"), None, export) == 0
        done = list(exports)
        exports.clear()
        return done

    return adapt


@pytest.mark.parametrize(("visible", "options"), [(57.7, {"keep_worse": True}), (20.0, {})])
def test_a_better_model_and_one_that_is_kept_are_the_model(adapting, tmp_path, visible, options):
    assert adapting(run(tmp_path, visible=visible), **options) == [("run", "model", True)]


def test_a_worse_model_stands_beside_the_first(adapting, tmp_path, capsys):
    bad = run(tmp_path, visible=57.7)
    assert adapting(bad) == [("run", "adapted", True), ("start", "model", False)]
    said = capsys.readouterr().out
    assert "the adapted model is worse than the first: perplexity beside the translation" in said
    assert f"{tmp_path}/out/model is the first model as it came" in said
    record = json.loads((tmp_path / "out" / "adapted.json").read_text())
    assert record["worse"] == [f"{VISIBLE} 40 -> 57.7"]
    # The same command has nothing left to do, and says so again.
    assert adapting(bad) == []
    assert "is worse than the first" in capsys.readouterr().out
    with pytest.raises(UserError, match="--keep-worse False, now True; another one"):
        adapting(bad, keep_worse=True)

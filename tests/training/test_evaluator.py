"""Evaluators of a user's own: what goes wrong in one is one line."""

from types import SimpleNamespace

import pytest

from xlingjax.data.labelled.records import Example
from xlingjax.errors import UserError
from xlingjax.training import run_record
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.progress import _measured
from xlingjax.workflows import launch


class Own(Evaluator):
    name = "own"

    def __init__(self, give):
        self.give = give

    def __call__(self, model, params, step, mesh):
        return self.give()


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda: 1 / 0, r"ZeroDivisionError: division by zero \(.*test_evaluator.py, line \d+\)"),
        (lambda: None, "TypeError: it gave None, and a dict is needed"),
        (lambda: {"a": {1, 2}}, "TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_what_goes_wrong_is_one_line(give, message):
    with pytest.raises(UserError, match=f"^evaluator own: {message}"):
        _measured(Own(give), None, None, 1, None)


def test_what_is_no_evaluator_is_one_line():
    recipe = SimpleNamespace(bound={"evaluators": [lambda: [SimpleNamespace(name="own")]]})
    with pytest.raises(UserError, match="SimpleNamespace is no Evaluator: derive it"):
        launch.evaluators_of(recipe)


def test_what_is_measured_is_what_it_gives():
    assert _measured(Own(lambda: {"a": 0.5}), None, None, 1, None) == {"a": 0.5}


def test_processes_that_measure_on_other_rows_are_of_different_runs(monkeypatch):
    def measuring(label):
        records = [Example("A man.", "He sleeps.", label)]
        return SimpleNamespace(name="dev", held_out=tuple, examples=lambda: [("dev.tsv", records)])

    first = []
    monkeypatch.setattr(run_record.jax, "process_count", lambda: 2)
    monkeypatch.setattr(run_record, "of_processes", lambda ours: first.append(ours) or [ours])
    run_record.require_one_run({}, [measuring("neutral")])
    monkeypatch.setattr(run_record, "of_processes", lambda ours: [*first, ours])
    run_record.require_one_run({}, [measuring("neutral")])
    with pytest.raises(UserError, match="evaluators.dev.held_out: process 1 has"):
        run_record.require_one_run({}, [measuring("contradiction")])

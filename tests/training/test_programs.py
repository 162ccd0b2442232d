"""Which programs are compiled before a run's text is open."""

import jax
import numpy as np

from tests.helpers import tiny, tiny_run
from xlingjax.data.batches.loader import Batches, array_source
from xlingjax.objectives.xlm import MLM, TLM
from xlingjax.training import step
from xlingjax.training.feed import ObjectiveRun


def objectives(opening=lambda name: None, **known):
    """MLM and TLM on tiny batches; opening: called when the text of one is opened."""

    def run(objective):
        name = objective.name
        rows = [tiny.batch(name, seed) for seed in range(3)]

        def source():
            opening(name)
            return array_source(rows, languages=tiny.LANGUAGES)

        shapes = {field: array.shape for field, array in rows[0].items()}
        return ObjectiveRun(objective, Batches(shapes, source, **known))

    return run(MLM()), run(TLM())


def test_the_first_step_is_compiled_before_the_text_is_open_and_is_the_same(tmp_path, monkeypatch):
    events = []
    make = step.make_train_step

    def made(**arguments):
        events.append(f"{arguments['objective'].name} step")
        return make(**arguments)

    monkeypatch.setattr(step, "make_train_step", made)
    entries = objectives(
        lambda name: events.append(f"{name} text"), languages=lambda: tiny.LANGUAGES
    )
    early = tiny_run.run(tmp_path / "early", steps=3, objectives=entries)
    assert events[0] == "mlm step" and set(events[1:3]) == {"mlm text", "tlm text"}
    # The other one once, while the first is waited for or when its turn comes.
    assert events[3:] == ["tlm step"]
    # Sources that do not tell their languages have their programs made when they are open.
    events.clear()
    late = tiny_run.run(tmp_path / "late", steps=3, objectives=objectives())
    assert set(events) == {"mlm step", "tlm step"}
    for one, other in zip(jax.tree.leaves(early.params), jax.tree.leaves(late.params), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_a_run_that_knew_too_few_languages_compiles_for_those_it_has(tmp_path):
    """Metrics have a value per language, so that the number of these is part of a program."""
    entries = objectives(languages=lambda: ["de"])
    tiny_run.run(tmp_path, steps=2, objectives=entries)
    for line in tiny_run.lines(tmp_path):
        assert set(line["loss_by_language"]) == {*tiny.LANGUAGES}

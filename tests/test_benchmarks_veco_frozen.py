"""The control of VECO's study whose cross-attention reads another encoder's states."""

from types import SimpleNamespace

import numpy as np

from benchmarks import veco_frozen
from tests.helpers import tiny
from tests.helpers.reference import CONFIG, loss_of, make_batch, random_model
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.veco import VECO


def test_what_is_plugged_in_reads_the_states_of_the_other_run(monkeypatch):
    model, params = random_model()
    others = tiny.params(model, noise=0.4)
    batch = make_batch("veco")
    of_run = {"same": params, "other": others}

    def opened(run):
        return SimpleNamespace(model=Encoder(CONFIG), params=of_run[run])

    monkeypatch.setattr(veco_frozen, "opened", opened)
    frozen = [veco_frozen.FrozenMemory(tlm=True, run=run) for run in of_run]
    losses = [loss_of(one, model, params, batch).terms for one in (VECO(tlm=True), *frozen)]
    whole, same, other = losses
    for term, value in whole.items():
        np.testing.assert_allclose(same[term], value, rtol=1e-5)
        moved = abs(float(other[term] - value))
        assert (moved > 1e-2) == ("plug_in" in term), term

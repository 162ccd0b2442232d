"""One tiny run of train(), as a function and as a script:
`python -m tests.helpers.tiny_run '{"workdir": "...", "steps": 6}'`.

The run has what a continued run can get wrong: two objectives with unequal shares, dropout,
warm-up, checkpoints between log lines.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from tests import conftest  # noqa: F401 - eight devices, compile cache
from tests.helpers import tiny

ROOT = Path(__file__).resolve().parents[2]


def command(arguments):
    """The command line of such a run in a process of its own, to be started in ROOT."""
    return [sys.executable, "-m", "tests.helpers.tiny_run", json.dumps(arguments)]


def run(
    workdir, steps=9, mesh=(1, 1, 1), signal_at=None, objectives=("mlm", "tlm"), batch=tiny.batch,
    weights=None, save_every=2, dev=None, changes=None, **options,
):  # fmt: skip
    """train() on repeated lists of 5 batches. signal_at=(NAME, n): send this process that signal
    before batch n of the first objective. dev: values of an evaluation after each step, of which
    two that are not lower stop the run. changes: of the model."""
    from tests.helpers.sources import array_source
    from xlingjax.model.config import preset
    from xlingjax.model.partition import MeshConfig
    from xlingjax.training.evaluator import Evaluator
    from xlingjax.training.feed import ObjectiveRun
    from xlingjax.training.loop import CheckpointConfig, train
    from xlingjax.training.optimizer import OptimizerConfig
    from xlingjax.training.stopping import StoppingConfig

    class Dev(Evaluator):
        name = "dev"

        def __call__(self, model, params, step, mesh):
            return {"loss": dev[step]}

    if dev:
        options["evaluators"] = [Dev()]
        options["eval_every"] = 1
        options["stopping"] = StoppingConfig(2, "dev/loss")

    class Signalling:
        def __init__(self, source):
            self._source, self._count = source, 0
            self.shapes, self.languages, self.identity = (
                source.shapes,
                source.languages,
                source.identity,
            )
            self.state, self.restore, self.close = source.state, source.restore, source.close

        def next(self):
            self._count += 1
            if signal_at and self._count == signal_at[1]:
                os.kill(os.getpid(), getattr(signal, signal_at[0]))
            if signal_at and self._count >= signal_at[1]:
                time.sleep(0.2)  # several processes take about a second to hear of it
            return self._source.next()

    def source(name, wrap):
        batches = [batch(name, i) for i in range(5)]
        made = array_source(
            batches, languages=tiny.LANGUAGES, identity={"vocabulary": {"sha256": "abc"}}
        )
        return lambda: Signalling(made) if wrap else made

    model = preset(
        "tiny", layers=1, dim=16, heads=2, ffn=32, vocab_size=tiny.VOCAB, max_positions=32,
        num_languages=len(tiny.LANGUAGES), dropout=0.2, attention_dropout=0.0,
        cross_attention="veco" in objectives, word_recovery="clwr" in objectives,
        paraphrase="clpc" in objectives, decoder_layers=int("xfnp" in objectives),
        streams=2 * ("xfnp" in objectives),
    ).replace(**(changes or {}))  # fmt: skip
    defaults = dict(
        workdir=workdir,
        model=model,
        steps=steps,
        mesh=MeshConfig(*mesh),
        seed=3,
        log_every=1,
        hash_batches=True,
        objectives=[
            (
                ObjectiveRun(tiny.objective(name), source(name, i == 0), weight)
                if isinstance(name, str)
                else name
            )
            for i, (name, weight) in enumerate(
                zip(objectives, weights or (1.0, 2.0, 3.0), strict=False)
            )
        ],
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=3, weight_decay=0.1, eps=1e-3),
        checkpoint=CheckpointConfig(every=save_every),
    )
    return train(**{**defaults, **options})


def flat(params):
    """{path: NumPy array}."""
    import jax
    from jax.experimental import multihost_utils

    from xlingjax.model.params import path_names

    if jax.process_count() > 1:
        params = multihost_utils.process_allgather(params, tiled=True)
    return {
        name: np.asarray(leaf)
        for name, leaf in zip(path_names(params), jax.tree.leaves(params), strict=True)
    }


def lines(workdir, name="metrics.jsonl"):
    return [json.loads(line) for line in (Path(workdir) / name).read_text().splitlines()]


def hashes(workdir):
    return [(line["step"], line["objective"], line["batch_hash"]) for line in lines(workdir)]


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    saves_to = arguments.pop("save_params", None)
    result = run(**arguments)
    params = flat(result.params)
    if saves_to:
        np.savez(saves_to, **params)
    print(f"exit reason {result.exit_reason} at step {result.steps}", flush=True)
    sys.exit(result.exit_code)

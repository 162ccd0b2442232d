"""Runs of random weights, and the commands and comparisons of the way out and back."""

import dataclasses

import jax
import numpy as np

from tests.helpers import tiny
from xlingjax.cli.main import main
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.params import flattened
from xlingjax.training.workdir import write_trained

SIZES = dict(layers=2, dim=24, heads=4, ffn=40, max_positions=70, init_std=0.3)


def written(folder, vocabulary, config, params, languages=(), labels=()):
    """The workdir of a run of 7 steps."""
    fields = dataclasses.asdict(config)
    identity = {"model": fields, "data": {"mlm": {"vocabulary": vocabulary.sha256}}}
    record = {"identity": identity, "model": fields}
    record |= {"languages": list(languages), "labels": list(labels)}
    write_trained(str(folder), record, 7, params, vocabulary.files())


def run_of(folder, vocabulary, languages=(), labels=(), name="xlmr_base", **options):
    """(the model's config, its random weights, large enough that outputs differ) of a workdir."""
    rows = vocabulary.size + options.get("language_tokens", 0)
    config = preset(name).replace(**{"vocab_size": rows, **SIZES, **options})
    params = tiny.params(build_model(config), noise=0.1)
    params = jax.tree.map(lambda x: np.array(x, np.float32), params)
    written(folder, vocabulary, config, params, languages, labels)
    return config, params


def command(verb, source, output, *more):
    return main([verb, str(source), "--to", str(output), *more])


def rows_of_text(name, config):
    """The rows of a parameter that some text reads or predicts."""
    if name.endswith("head/bias"):
        return slice(config.vocab_size - config.language_tokens)
    if name.endswith("positions/embedding"):
        return slice(config.position_offset, None)
    return slice(config.vocab_size if name.endswith("tokens/embedding") else None)


def require_equal(found, wanted, config):
    found, wanted = flattened(found), flattened(wanted)
    assert {*found} == {*wanted}
    for name, value in wanted.items():
        rows = rows_of_text(name, config)
        np.testing.assert_array_equal(np.asarray(found[name])[rows], value[rows], err_msg=name)


def comes_back(folder, again, config, params, *more):
    """The import of the folder is the run; returns it, opened."""
    from xlingjax.inference.run import open_run

    assert command("import", folder, again, *more) == 0
    opened = open_run(again)
    require_equal(opened.params, params, config)
    assert opened.model.config == config
    return opened

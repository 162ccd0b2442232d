"""Every pass of an objective, and every head, has a random key of its own, by which it drops out;
without one nothing does. Which key it is stays: a run that goes on draws what it would have."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers.reference import CONFIG, GENERATOR, NGRAM, make_batch
from xlingjax.model.build import build_model
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.objectives.finetuning import Classification, SpanQA, Tagging
from xlingjax.objectives.plug_in import PlugIn, PlugInSpans, PlugInTagging
from xlingjax.objectives.retrieval import HardestNegative
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.unicoder import CLPC, CLWR
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xglue import XFNP
from xlingjax.objectives.xlm import CLM, MLM


def classifying(kind, labels=3, config=CONFIG):
    return config.replace(num_labels=labels, classifier=kind)


def whole(key):
    return [key]


def parts(count, used=None):
    return lambda key: [*jax.random.split(key, count)][:used]


def in_turn(key):
    encoder, rest = jax.random.split(key)
    return [encoder, *jax.random.split(rest)]


CASES = [
    # (objective, the data, the model, what draws by which of the keys)
    (MLM(), "mlm", CONFIG, ["encode"], whole),
    (CLM(), "clm", CONFIG, ["encode"], whole),
    (CAMLM(), "camlm", CONFIG, ["encode"], whole),
    # The first stage has no dropout, and draws words where it is asked to.
    (BTMLM(), "btmlm", CONFIG, ["none", "encode"], whole),
    (
        BTMLM(decode="sample"),
        "btmlm",
        CONFIG,
        ["none", "best_ids", "encode"],
        lambda key: [jax.random.fold_in(key, 1), key],
    ),
    (CLWR(), "clwr", CONFIG, ["encode"], whole),
    (VECO(), "veco", CONFIG, ["encode", "encode"], parts(3, 2)),
    (VECO(tlm=True), "veco", CONFIG, ["encode", "encode", "encode"], parts(3)),
    (Translation(), "translation", GENERATOR, ["encode", "decode"], parts(2)),
    (XFNP(), "xfnp", NGRAM, ["encode", "decode_streams"], parts(2)),
    (CLPC(), "clpc", CONFIG, ["encode", "classify_paraphrase"], parts(2)),
    (HardestNegative(), "clwr", CONFIG, ["encode"], whole),
    (Classification(3), "clpc", classifying("xlmr"), ["encode", "classify"], parts(2)),
    (
        Classification(3),
        "clpc",
        classifying("decoder", config=GENERATOR),
        ["encode", "decode", "classify"],
        in_turn,
    ),
    (Tagging(3), "mlm", classifying("tagging"), ["encode", "classify"], parts(2)),
    (SpanQA(), "clpc", classifying("spans", 2), ["encode", "classify"], parts(2)),
    (
        PlugIn(3),
        "clpc",
        classifying("plug_in"),
        ["encode", "encode", "classify", "classify"],
        parts(4),
    ),
    (
        PlugInTagging(3),
        "clpc",
        classifying("plug_in_tagging"),
        ["encode", "encode", "classify"],
        parts(3),
    ),
    (
        PlugInSpans(),
        "clpc",
        classifying("plug_in_spans", 2),
        ["encode", "encode", "classify"],
        parts(3),
    ),
]


@pytest.fixture
def asked(monkeypatch):
    """(config -> a model whose passes give zeros, [(pass, its key)])."""
    used = []

    def model_of(config):
        model = build_model(config)

        def record(name, key):
            used.append((name if key is not None else "none", key))

        def encode(params, batch, spec, *, rng=None, all_layers=False, **options):
            record("encode", rng)
            h_BLD = jnp.zeros((*batch["input_ids"].shape, config.dim))
            if all_layers:
                return jnp.stack([h_BLD] * (config.layers + 1))
            return h_BLD

        def decode(params, batch, memory, *, rng=None, **options):
            record("decode", rng)
            return jnp.zeros((*batch["decoder_ids"].shape, config.dim))

        def decode_streams(params, batch, memory, *, rng=None, **options):
            record("decode_streams", rng)
            return jnp.zeros((config.streams, *batch["decoder_ids"].shape, config.dim))

        def classify(params, states, batch, *, rng=None, **options):
            record("classify", rng)
            length = states.shape[1] if config.classifier in PER_TOKEN else 1
            logits = jnp.zeros((states.shape[0], length, config.num_labels))
            return logits if config.classifier in PER_TOKEN else logits[:, 0]

        def classify_paraphrase(params, states, *, rng=None):
            record("classify_paraphrase", rng)
            return jnp.zeros(states.shape[0])

        def vocab_head(params, states):
            return states, jnp.zeros((config.vocab_size, config.dim)), jnp.zeros(config.vocab_size)

        for method in (encode, decode, decode_streams, classify, classify_paraphrase, vocab_head):
            monkeypatch.setattr(model, method.__name__, method, raising=False)
        monkeypatch.setattr(
            model,
            "recover_words",
            lambda params, batch, mask, **_: (jnp.zeros((*batch["input_ids"].shape, 1)), None),
        )
        return model

    def best_ids(states, table, bias, *, key=None, **options):
        if key is not None:
            used.append(("best_ids", key))
        return jnp.zeros(states.shape[0], jnp.int32)

    monkeypatch.setattr("xlingjax.objectives.ernie_m.best_ids", best_ids)
    return model_of, used


PER_TOKEN = ("tagging", "spans", "plug_in_tagging", "plug_in_spans")


def fields_of(objective, data):
    batch = make_batch(data, packed=False)
    made = {name: batch[name] for name in objective.reads if name in batch}
    rows, length = batch["input_ids"].shape
    for name in set(objective.reads) - set(made):
        shape = (rows, length) if name.startswith(("tag_", "answer_")) else (rows,)
        made[name] = np.zeros(shape, np.float32 if name.endswith("weights") else np.int32)
    return made


@pytest.mark.parametrize(("objective", "data", "config", "draws", "by"), CASES)
def test_each_pass_and_each_head_draws_for_itself(objective, data, config, draws, by, asked):
    model_of, used = asked
    model, batch = model_of(config), fields_of(objective, data)

    def passes(rng):
        used.clear()
        if hasattr(objective, "logits"):
            objective.logits(model, {}, batch, rng)
        elif isinstance(objective, HardestNegative):
            objective.vectors(model, {}, batch, rng)
        elif isinstance(objective, CLPC):
            objective.loss(model, {}, batch, rng, 3)
        else:
            objective.predictions(model, {}, batch, rng)
        return [*used]

    found = passes(jax.random.key(7))
    assert [name for name, _ in found] == draws
    keys = [jax.random.key_data(key).tolist() for _, key in found if key is not None]
    assert keys == [jax.random.key_data(key).tolist() for key in by(jax.random.key(7))]
    assert len({*map(tuple, keys)}) == len(draws) - draws.count("none")
    assert {key for _, key in passes(None)} == {None}


def test_a_head_is_that_of_its_task():
    config = CONFIG.replace(task_labels=(("a", 3), ("b", 2)), classifier="xlmr")
    asked = []
    model = types.SimpleNamespace(
        config=config,
        encode=lambda *_, **__: jnp.zeros((1, 2, 4)),
        classify=lambda *_, task, **__: asked.append(task),
    )
    for task, labels in (("a", 3), ("b", 2)):
        Classification(labels, task=task).logits(model, {}, {})
    assert asked == ["a", "b"]

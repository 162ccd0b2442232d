"""Every pass of an objective, and every head, has a random key of its own, by which it drops out;
without one nothing does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers.reference import CONFIG, GENERATOR, NGRAM, make_batch
from xlingjax.model.build import build_model
from xlingjax.model.heads import OF_TOKENS
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


CASES = [
    # (objective, the data, the model, what draws)
    (MLM(), "mlm", CONFIG, "encode"),
    (CLM(), "clm", CONFIG, "encode"),
    (CAMLM(), "camlm", CONFIG, "encode"),
    # The first stage has no dropout, and draws words where it is asked to.
    (BTMLM(), "btmlm", CONFIG, "none encode"),
    (BTMLM(decode="sample"), "btmlm", CONFIG, "none best_ids encode"),
    (CLWR(), "clwr", CONFIG, "encode"),
    (VECO(), "veco", CONFIG, "encode encode"),
    (VECO(tlm=True), "veco", CONFIG, "encode encode encode"),
    (Translation(), "translation", GENERATOR, "encode decode"),
    (XFNP(), "xfnp", NGRAM, "encode decode_streams"),
    (CLPC(), "clpc", CONFIG, "encode classify_paraphrase"),
    (HardestNegative(), "clwr", CONFIG, "encode"),
    (Classification(3), "clpc", classifying("xlmr"), "encode classify"),
    (Classification(3), "clpc", classifying("decoder", config=GENERATOR), "encode decode classify"),
    (Tagging(3), "mlm", classifying("tagging"), "encode classify"),
    (SpanQA(), "clpc", classifying("spans", 2), "encode classify"),
    (PlugIn(3), "clpc", classifying("plug_in"), "encode encode classify classify"),
    (PlugInTagging(3), "clpc", classifying("plug_in_tagging"), "encode encode classify"),
    (PlugInSpans(), "clpc", classifying("plug_in_spans", 2), "encode encode classify"),
]


def fields_of(objective, data):
    batch = make_batch(data, packed=False)
    made = {name: batch[name] for name in objective.reads if name in batch}
    rows, length = batch["input_ids"].shape
    for name in set(objective.reads) - set(made):
        shape = (rows, length) if name.startswith(("tag_", "answer_")) else (rows,)
        made[name] = np.zeros(shape, np.float32 if name.endswith("weights") else np.int32)
    return made


def asked(config, batch, monkeypatch):
    """(a model whose passes give zeros, [(pass, its key)])."""
    model, used = build_model(config), []
    rows, length = batch["input_ids"].shape
    words = batch.get("decoder_ids", batch["input_ids"]).shape
    per_token = config.classifier in OF_TOKENS

    def giving(name, *shape):
        def called(*_, rng=None, all_layers=False, **options):
            used.append((name if rng is not None else "none", rng))
            return jnp.zeros((*(config.layers + 1,) * all_layers, *shape))

        monkeypatch.setattr(model, name, called, raising=False)

    giving("encode", rows, length, config.dim)
    giving("decode", *words, config.dim)
    giving("decode_streams", config.streams, *words, config.dim)
    giving("classify", rows, *(length,) * per_token, config.num_labels)
    giving("classify_paraphrase", rows)
    table = jnp.zeros((config.vocab_size, config.dim)), jnp.zeros(config.vocab_size)
    monkeypatch.setattr(model, "vocab_head", lambda _, states: (states, *table))
    monkeypatch.setattr(model, "recover_words", lambda *_, **__: (jnp.zeros((rows, length, 1)), 0))

    def best_ids(states, *_, key=None, **options):
        if key is not None:
            used.append(("best_ids", key))
        return jnp.zeros(states.shape[0], jnp.int32)

    monkeypatch.setattr("xlingjax.objectives.ernie_m.best_ids", best_ids)
    return model, used


@pytest.mark.parametrize(("objective", "data", "config", "draws"), CASES)
def test_each_pass_and_each_head_draws_for_itself(objective, data, config, draws, monkeypatch):
    batch = fields_of(objective, data)
    model, used = asked(config, batch, monkeypatch)

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
    assert [name for name, _ in found] == draws.split()
    keys = [tuple(jax.random.key_data(key).tolist()) for _, key in found if key is not None]
    assert len({*keys}) == len(keys)
    assert {key for _, key in passes(None)} == {None}

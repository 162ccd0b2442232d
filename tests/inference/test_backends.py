"""Evaluators run whatever attention backend the run trains with: their rows are packed, and few."""

import jax
import pytest

from tests.helpers import own_files, toy
from xlingjax.data.held_out_pairs import Pairs
from xlingjax.data.text.texts import Text
from xlingjax.evaluation.masked_samples import MaskedSamples
from xlingjax.evaluation.perplexity import TextPerplexity, TranslationPerplexity
from xlingjax.evaluation.retrieval import RetrievalEvaluator
from xlingjax.inference.forward import on_xla
from xlingjax.model.partition import MeshConfig, make_mesh

VOCABULARY = toy.ToyVocabulary()
LABELS = ("contradiction", "entailment", "neutral")


def evaluator(kind, folder):
    lines = tuple(toy.sentences(6, seed=1, longest=6))
    pairs = {"de": Pairs("de", lines, lines[::-1])}
    path = folder / "de.txt"
    path.write_text("\n".join(lines) + "\n")
    texts = {"de": Text(path, "de")}
    labelled = folder / "test-de.tsv"
    labelled.write_text("".join(f"a b\tc d\t{label}\n" for label in LABELS))
    common = (VOCABULARY, toy.LANGUAGES)
    return {
        "mlm": lambda: TextPerplexity(texts, *common, length=16),
        "clm": lambda: TextPerplexity(texts, *common, length=16, causal=True),
        "tlm": lambda: TranslationPerplexity(pairs, *common, length=16),
        "samples": lambda: MaskedSamples(texts, *common, per_language=2, top=2),
        "retrieval": lambda: RetrievalEvaluator(
            pairs, *common, max_length=16, tokens_per_batch=128
        ),
        "accuracy": lambda: own_files.score(
            "classification",
            {"de": labelled},
            LABELS,
            vocabulary=VOCABULARY,
            reading=dict(length=16),
        ),
    }[kind]()


@pytest.mark.parametrize("kind", ["mlm", "clm", "tlm", "samples", "retrieval", "accuracy"])
def test_the_figures_are_those_of_the_xla_backend(kind, tmp_path):
    measure = evaluator(kind, tmp_path)
    fast, params = toy.model(num_labels=3, attention_backend="flash")
    plain, _ = toy.model(num_labels=3)
    assert measure(fast, params, 0) == measure(plain, params, 0)


def test_one_encoder_per_configuration_and_mesh():
    plain, _ = toy.model()
    assert on_xla(plain, None) is plain
    fast, _ = toy.model(attention_backend="flash")
    mesh = make_mesh(MeshConfig(data=jax.device_count()))
    assert on_xla(fast, None) is on_xla(fast, None) is not on_xla(fast, mesh)
    assert on_xla(fast, mesh).config == plain.config and fast.config.attention_backend == "flash"

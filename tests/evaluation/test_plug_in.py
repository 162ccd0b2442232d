import jax
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.errors import UserError
from xlingjax.evaluation.classification import predict
from xlingjax.evaluation.plug_in import PlugInAccuracy
from xlingjax.objectives.finetuning import PlugIn
from xlingjax.preprocessors.plug_in import paired_rows, read_paired_tsv

LABELS = ("contradiction", "entailment", "neutral")
VOCABULARY = toy.ToyVocabulary()


@pytest.fixture(scope="module")
def model():
    return toy.model(num_labels=3, classifier="plug_in", cross_attention=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Nine examples in de, en, fr: other texts, the same labels."""
    root, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(1)
    labels = rng.choice(LABELS, 9)
    for n, language in enumerate(("de", "en", "fr")):
        texts = toy.sentences(18, seed=n, longest=5)
        lines = [f"{texts[i]}\t{texts[i + 9]}\t{label}\n" for i, label in enumerate(labels)]
        (root / f"{language}.tsv").write_text("".join(lines))
    return {
        (language, "en"): (root / f"{language}.tsv", root / "en.tsv") for language in ("de", "fr")
    }


def test_a_languages_accuracy_is_that_of_its_own_side(model, files):
    encoder, params = model
    want, english = {}, []
    logits_of = jax.jit(lambda rows: PlugIn(3).logits(encoder, params, rows))
    for (language, _), paths in files.items():
        ids = [toy.LANGUAGES.index(language), 1]
        rows = paired_rows(*read_paired_tsv(paths), VOCABULARY, 12, LABELS, ids)
        logits = np.asarray(logits_of(rows))
        found = predict(encoder, params, rows, batch_size=4)  # the last batch is filled up
        np.testing.assert_array_equal(found, logits.argmax(-1))
        own, partner = (found == rows["labels"]).mean(1)
        want[language] = own
        english.append(partner)
    evaluator = PlugInAccuracy(
        files, VOCABULARY, toy.LANGUAGES, LABELS, length=12, batch_size=4, trained_on=("de",)
    )
    values = evaluator(encoder, params, 0)
    assert values["by_language"] == pytest.approx(want | {"en": np.mean(english)})
    assert [*want.values()] != english  # the sides differ
    assert values["en"] == pytest.approx(np.mean(english)) and values[
        "mean_other"
    ] == pytest.approx(want["fr"])


def test_a_model_of_another_kind_is_refused(model, files):
    encoder, params = model
    evaluator = PlugInAccuracy(files, VOCABULARY, toy.LANGUAGES, LABELS[:2])
    with pytest.raises(UserError, match="plug_in_test: .*for 3 labels; .* the 2 of the files"):
        evaluator(encoder, params, 0)

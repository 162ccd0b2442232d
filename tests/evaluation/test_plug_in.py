import jax
import numpy as np
import pytest

from tests.helpers import own_files, toy
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.labelled.text import read_labelled_tsv
from xlingjax.evaluation.classification import predict
from xlingjax.objectives.plug_in import PlugIn
from xlingjax.preprocessors.task_rows import Reading, beside_rows

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
    return {language: root / f"{language}.tsv" for language in ("de", "en", "fr")}


def accuracy(files, labels, **options):
    return own_files.score(
        "classification", files, labels, pivot="en", vocabulary=VOCABULARY, **options
    )


def test_a_languages_accuracy_is_that_of_its_own_side(model, files):
    encoder, params = model
    want, english = {}, []
    logits_of = jax.jit(lambda rows: PlugIn(3).logits(encoder, params, rows))
    for language in ("de", "fr"):
        ids = [toy.LANGUAGES.index(language), 1]
        examples = (read_labelled_tsv(files[code]) for code in (language, "en"))
        task = own_task("classification", "test", files, LABELS)
        rows = beside_rows(task, *examples, VOCABULARY, Reading(12), language, ids)
        logits = np.asarray(logits_of(rows))
        found = predict(encoder, params, rows, batch_size=4)  # the last batch is filled up
        np.testing.assert_array_equal(found, logits.argmax(-1))
        own, partner = (found == rows["labels"]).mean(1)
        want[language] = own
        english.append(partner)
    evaluator = accuracy(files, LABELS, reading=dict(length=12), trained_on=("de",))
    values = evaluator(encoder, params, 0)
    assert values["by_language"] == pytest.approx(want | {"en": np.mean(english)})
    assert [*want.values()] != english  # the sides differ
    assert values["en"] == pytest.approx(np.mean(english)) and values[
        "mean_other"
    ] == pytest.approx(want["fr"])

"""Pairs that no row has room for are counted and said."""

import types

import pytest

from tests.data.conftest import DE, EN, write_lines
from tests.helpers.text import file_source
from xlingjax.data.rows.left_out import LeftOut, message
from xlingjax.errors import UserError
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.retrieval import SentencePairFeatures
from xlingjax.preprocessors.translation import DenoisingFeatures, TranslationFeatures
from xlingjax.preprocessors.unicoder import ClMlmFeatures
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures

pytestmark = pytest.mark.usefixtures("own_cache")


def written(folder, pairs):
    for side, code in enumerate(("de", "en")):
        write_lines(folder / f"de-en.{code}", [pair[side] for pair in pairs])
    return str(folder)


def too_long(pairs, vocabulary, length, most):
    """Of the pairs with two sides, by the pieces of each line."""
    found = LeftOut()
    for pair in pairs:
        sides = [len(vocabulary.encode(line)) for line in pair]
        # Each side is opened and closed; what closes it counts.
        left = max(sides) > most or sum(sides) + 4 > length
        tokens = sum(sides) + 2
        found += LeftOut(int(left), 1, left * tokens, tokens)
    return found


@pytest.mark.parametrize(
    "features", [TlmFeatures(max_pieces=30), SentencePairFeatures(max_pieces=30)]
)
def test_pairs_that_fit_no_row_are_counted(tmp_path, vocabulary, features):
    # A side of one word beside one of 30; a pair without a side is another matter.
    pairs = [*zip(DE, EN, strict=True), ("Ja", "yes " * 30), ("", "alone"), ("allein", "")]
    both = [pair for pair in pairs if all(pair)]
    source = file_source(features, vocabulary, 2, 48, parallel=written(tmp_path, pairs))
    (found,) = source.left_out.values()
    assert found == too_long(both, vocabulary, 48, 30) and 1 < found.left < len(both)
    assert found.left_tokens / found.tokens > found.left / found.pairs


def test_texts_to_translate_or_restore_are_counted_too(tmp_path, vocabulary):
    pairs = [*zip(DE, EN, strict=True), ("Ja", "yes " * 30), ("", "alone")]
    both = [pair for pair in pairs if all(pair)]
    # 20 pieces of a side, opened and closed, fit 22 columns.
    features = TranslationFeatures(max_pieces=20)
    source = file_source(features, vocabulary, 2, 22, parallel=written(tmp_path, pairs))
    (found,) = source.left_out.values()
    assert found == too_long(both, vocabulary, 1000, 20) and 0 < found.left < len(both)
    write_lines(tmp_path / "de.txt", DE)
    features = DenoisingFeatures(Noise(mask=0.1, unit="pieces"), "sentences", 20)
    source = file_source(features, vocabulary, 2, 22, mono=str(tmp_path / "de.txt"))
    sizes = [len(vocabulary.encode(line)) for line in DE if line]
    (found,) = source.left_out.values()
    assert (found.left, found.pairs) == (sum(n > 20 for n in sizes), len(sizes))
    assert found.left_tokens == sum(n + 1 for n in sizes if n > 20) > 0


def test_text_of_one_language_leaves_nothing_out(corpus, vocabulary):
    text = file_source(MlmFeatures(), vocabulary, 2, 32, mono=str(corpus / "mono/de/*.txt"))
    assert text.left_out == {}


@pytest.mark.parametrize("truncate", [True, False])
def test_of_documents_the_sentences_are_counted_that_no_example_has(tmp_path, vocabulary, truncate):
    """Documents of two sentences, of six, whose last fills a row, and of one; rows of 40 tokens."""
    six = [("Ja", "yes")] * 5 + [("nein " * 30, "no " * 30)]
    documents = [("Ja", "yes"), ("Nein", "no"), ("", ""), *six, ("", ""), ("allein", "alone")]
    source = file_source(
        ClMlmFeatures(truncate=truncate), vocabulary, 2, 40, parallel=written(tmp_path, documents)
    )
    (found,) = source.left_out.values()
    assert (found.left, found.pairs) == (1 if truncate else 2, 9)
    assert truncate or found.left_tokens > found.tokens / 2
    assert source.identity["sampling_table"][0]["sentences"] == 9 - found.left


def test_documents_of_one_sentence_each_are_refused(tmp_path, vocabulary):
    pairs = [("Ja", "yes"), ("", ""), ("Nein", "no")]
    with pytest.raises(
        UserError, match="no de-en text fits rows of 40 tokens with two sentences of a document"
    ):
        file_source(
            ClMlmFeatures(truncate=False), vocabulary, 2, 40, parallel=written(tmp_path, pairs)
        )


def test_a_run_says_so_where_it_is_more_than_one_in_twenty():
    def said_of(**texts):
        of_text = types.SimpleNamespace(left_out=texts, identity={"length": 64})
        return message("tlm@500", of_text)

    assert said_of() == said_of(de=LeftOut(5, 100), fr=LeftOut(0, 0)) == ""
    said = said_of(de=LeftOut(1, 60, 20, 400), zh=LeftOut(1_235, 2_000, 9_000, 12_000))
    assert said.startswith("tlm@500: 1,236 of 2,060 examples (60.0%, and 72.7% of their tokens; of")
    # Few pairs, and much of the text; one language of many.
    for one in (LeftOut(4, 100, 300, 1_000), LeftOut(6, 100, 60, 1_000)):
        assert said_of(de=LeftOut(0, 9_900, 0, 90_000), zh=one)
    assert not said_of(zh=LeftOut(5, 100, 50, 1_000))

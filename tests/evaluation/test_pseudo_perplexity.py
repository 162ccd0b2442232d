"""BTMLM's perplexity by the share of pseudo tokens: both stages written out in NumPy."""

import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.text.texts import Text
from xlingjax.evaluation.perplexity import TextPerplexity, mask_for_validation, sentence_rows
from xlingjax.evaluation.pseudo_perplexity import PseudoPerplexity
from xlingjax.model.masks import bidirectional, pseudo_tokens
from xlingjax.objectives.ernie_m import BTMLM
from xlingjax.objectives.leak import prediction_visibility
from xlingjax.preprocessors.ernie_m import with_placeholders

SHARES = (0.0, 0.1, 0.4)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    found = {}
    for seed, code in enumerate(("de", "en", "fr")):
        path = folder / f"{code}.txt"
        path.write_text("\n".join(toy.sentences(9, seed=seed, longest=11)) + "\n")
        found[code] = Text(path, code)
    return found


@pytest.fixture(scope="module")
def evaluator(texts):
    given = (texts, toy.ToyVocabulary(), toy.LANGUAGES, ("de", "en"), SHARES)
    return PseudoPerplexity(*given, length=20, limit=3, most=0.4)


def log_softmax(encoder, params, h_D):
    size = toy.ToyVocabulary().size
    table = np.asarray(params["embeddings"]["tokens"]["embedding"], np.float64)
    bias = np.asarray(params["head"]["bias"], np.float64)
    logits = (table @ np.asarray(h_D, np.float64) + bias)[:size]
    return logits - np.log(np.exp(logits).sum())


def encoded(encoder, params, row, mask):
    batch = {name: np.array([values]) for name, values in row.items()}
    return np.asarray(encoder.encode(params, batch, mask))[0]


@pytest.mark.long
def test_the_perplexity_is_that_of_both_stages_by_hand(evaluator):
    """Row for row, without padding: a pseudo token is the likeliest ordinary piece at one MASK
    behind the whole text; then the masked pieces are predicted beside all of them."""
    encoder, params = toy.model()
    vocabulary = toy.ToyVocabulary()
    values = evaluator(encoder, params, 0)
    assert values["kind"] == "pseudo_perplexity"
    assert list(values["by_language"]) == ["0", "0.1", "0.4"]
    for share in SHARES:
        rows = evaluator.rows(share)
        nll = {code: [] for code in toy.LANGUAGES}
        for r in range(len(rows["input_ids"])):
            row = {name: column[r] for name, column in rows.items()}
            text = int((row["pack_ids"] > 0).sum() - row["pseudo_weights"].sum())
            count = int(row["pseudo_weights"].sum())
            assert count == np.ceil(share * text - 1e-6)
            own = row["language_ids"][0]
            ids, positions, languages = [], [], []
            for column in row["pseudo_positions"][:count]:
                one = {
                    "input_ids": [*row["original_ids"][:text], vocabulary.mask_id],
                    "position_ids": [*range(text), row["position_ids"][column]],
                    "language_ids": [own] * text + [row["language_ids"][column]],
                    "pack_ids": [1] * (text + 1),
                    "is_mask": [0] * text + [1],
                }
                assert text <= one["position_ids"][-1] < 2 * text
                assert one["language_ids"][-1] in {0, 1} - {own}
                h_LD = encoded(encoder, params, one, pseudo_tokens)
                scores = log_softmax(encoder, params, h_LD[-1])
                scores[sorted(vocabulary.special_ids)] = -np.inf
                ids.append(int(scores.argmax()))
                positions.append(one["position_ids"][-1])
                languages.append(one["language_ids"][-1])
            second = {
                "input_ids": [*row["input_ids"][:text], *ids],
                "position_ids": [*range(text), *positions],
                "language_ids": [own] * text + languages,
                "pack_ids": [1] * (text + count),
            }
            h_LD = encoded(encoder, params, second, bidirectional)
            used = row["masked_weights"] > 0
            assert used.any()
            slots = (row[f"masked_{name}"][used] for name in ("positions", "targets"))
            for column, target in zip(*slots, strict=True):
                assert row["input_ids"][column] == vocabulary.mask_id
                assert row["original_ids"][column] == target and column < text
                nll[toy.LANGUAGES[own]].append(-log_softmax(encoder, params, h_LD[column])[target])
        expected = {code: np.exp(np.mean(found)) for code, found in nll.items()}
        assert values["by_language"][f"{share:g}"] == pytest.approx(expected, rel=1e-4)
        assert values[f"share_{share:g}"] == pytest.approx(np.mean([*expected.values()]), rel=1e-4)
    assert values["share_0"] != pytest.approx(values["share_0.4"], rel=1e-3)


def test_without_pseudo_tokens_it_is_masked_lm(texts, evaluator):
    encoder, params = toy.model()
    # Of as much text as 20 columns hold beside 40 % of it.
    mlm = TextPerplexity(texts, toy.ToyVocabulary(), toy.LANGUAGES, length=14, limit=3)
    found = mlm(encoder, params, 0)
    values = evaluator(encoder, params, 0)
    assert values["by_language"]["0"] == pytest.approx(found["by_language"], rel=1e-5)


def test_shares_differ_in_nothing_but_their_pseudo_tokens(evaluator):
    few, many = evaluator.rows(0.1), evaluator.rows(0.4)
    width = evaluator._text["input_ids"].shape[1]
    for name in ("input_ids", "original_ids", "position_ids", "language_ids"):
        np.testing.assert_array_equal(few[name][:, :width], many[name][:, :width])
    for name in ("masked_positions", "masked_targets", "masked_weights"):
        np.testing.assert_array_equal(few[name], many[name])
    for row in range(len(few["input_ids"])):
        placed = []
        for rows in (few, many):
            used = rows["pseudo_weights"][row] > 0
            placed.append({*rows["position_ids"][row, width:][used].tolist()})
        assert placed[0] < placed[1]
    assert few["input_ids"].shape == many["input_ids"].shape  # one program


def test_nothing_leaks_and_the_pseudo_tokens_are_read(evaluator):
    """By the test that holds the objective itself to its promise."""
    encoder, params = toy.model()
    rows = {name: values[:2] for name, values in evaluator.rows(0.4).items()}
    for seen in prediction_visibility(BTMLM(), encoder, params, rows).values():
        assert not len(seen.leaks) and not len(seen.blocked)


def test_rows_are_those_that_btmlm_trains_on(texts):
    """The fields of `BtmlmFeatures`, on the objective's own terms."""
    vocabulary = toy.ToyVocabulary()
    text = sentence_rows([*texts["fr"].lines()], vocabulary, 20, 2, 2)
    masked = mask_for_validation(text, vocabulary.mask_id)
    used, positions = np.array([[True, False], [True, True]]), np.array([[1, 5], [0, 3]])
    languages = np.array([[0], [1]])
    width = text["pack_ids"].shape[1]
    rows = with_placeholders(text, masked, used, positions, languages, width, width + 2, vocabulary)
    assert {*BTMLM().reads} <= {*rows}
    assert rows["pseudo_positions"].tolist() == [[width, 0], [width, width + 1]]
    assert rows["pseudo_weights"].tolist() == [[1, 0], [1, 1]]
    assert rows["position_ids"][:, width:].tolist() == [[1, 0], [0, 3]]
    assert rows["language_ids"][:, width:].tolist() == [[0, 0], [1, 1]]
    assert rows["is_mask"].tolist() == [[0] * width + used for used in ([1, 0], [1, 1])]
    assert (rows["original_ids"][:, :width] == text["input_ids"]).all()
    assert (rows["input_ids"][:, :width] == masked["input_ids"]).all()
    assert (rows["original_ids"][:, width:] == rows["input_ids"][:, width:]).all()
    assert {*rows["special_ids"][0].tolist()} == {*vocabulary.special_ids}

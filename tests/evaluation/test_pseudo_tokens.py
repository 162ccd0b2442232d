import jax
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError
from xlingjax.evaluation.pseudo_tokens import PseudoSamples, with_placeholders
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.masks import pseudo_tokens


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    found = {}
    for seed, code in enumerate(("de", "en", "fr")):
        path = folder / f"{code}.txt"
        path.write_text("\n".join(toy.sentences(9, seed=seed, longest=11)) + "\n")
        found[code] = Text(path, code)
    return found


def test_a_pseudo_token_is_what_the_model_reads_into_one_placeholder(texts):
    """Each of them computed alone: the sentence, and behind it one MASK at that place and in that
    language, which sees the sentence and itself, and which the sentence does not see."""
    vocabulary, (encoder, params) = toy.ToyVocabulary(), toy.model()
    evaluator = PseudoSamples(
        texts, vocabulary, toy.LANGUAGES, ("de", "en"), proportion=0.3, per_language=3
    )
    values = evaluator(encoder, params, 0)
    assert values["kind"] == "pseudo_samples"
    assert [s["language"] for s in values["samples"]] == ["de"] * 3 + ["en"] * 3 + ["fr"] * 3
    rows, written = [], []
    for sample in values["samples"]:
        pieces, places = sample["pieces"], [at for at, _ in sample["pseudo"]]
        assert " ".join(pieces[1:-1]) in list(texts[sample["language"]].lines())
        assert sample["target_language"] in {"de", "en"} - {sample["language"]}
        assert len(places) == np.ceil(0.3 * len(pieces)) and sorted({*places}) == places
        assert places[0] >= 0 and places[-1] < len(pieces)
        own, target = (toy.LANGUAGES.index(sample[key]) for key in ("language", "target_language"))
        ids = [vocabulary.bos_id, *vocabulary.encode(" ".join(pieces[1:-1])), vocabulary.eos_id]
        for place, piece in sample["pseudo"]:
            n = len(ids)
            rows.append(
                {
                    "input_ids": [vocabulary.mask_id, *ids],
                    "position_ids": [n + place, *range(n)],  # running on, as in CAMLM
                    "language_ids": [target] + [own] * n,
                    "pack_ids": [1] * (n + 1),
                    "is_mask": [1] + [0] * n,
                }
            )
            written.append(piece)
    batch = {
        name: np.array([row[name] + [0] * (16 - len(row[name])) for row in rows])
        for name in rows[0]
    }
    spec = AttentionSpec(pseudo_tokens)
    h_BD = np.asarray(jax.jit(lambda params: encoder.encode(params, batch, spec)[:, 0])(params))
    logits_BV = (
        h_BD @ np.asarray(params["embeddings"]["tokens"]["embedding"]).T + params["head"]["bias"]
    )
    logits_BV = np.array(logits_BV)[:, : vocabulary.size]
    logits_BV[:, sorted(vocabulary.special_ids)] = -np.inf
    assert vocabulary.pieces(logits_BV.argmax(axis=1).tolist()) == written and len({*written}) > 2
    assert evaluator(encoder, params, 1) == values  # the same at every step


def test_rows_are_those_that_btmlm_trains_on(texts):
    """The fields of `BtmlmFeatures`, on the objective's own terms."""
    from xlingjax.objectives.ernie_m import BTMLM

    vocabulary = toy.ToyVocabulary()
    evaluator = PseudoSamples(texts, vocabulary, toy.LANGUAGES, toy.LANGUAGES, reset_positions=True)
    text = evaluator._sentences(texts["fr"], 2)
    rows = with_placeholders(text, [np.array([1]), np.array([0, 3])], [0, 1], vocabulary, True)
    assert {*BTMLM().reads} - {*rows} == {"masked_positions", "masked_targets", "masked_weights"}
    width = text["pack_ids"].shape[1]
    assert rows["pseudo_positions"].tolist() == [[width, 0], [width, width + 1]]
    assert rows["pseudo_weights"].tolist() == [[1, 0], [1, 1]]
    assert rows["position_ids"][:, width:].tolist() == [[1, 0], [0, 3]]
    assert rows["language_ids"][:, width:].tolist() == [[0, 0], [1, 1]]
    assert (rows["is_mask"][:, :width] == 0).all() and rows["is_mask"][:, width:].tolist() == [
        [1, 0],
        [1, 1],
    ]
    assert (rows["original_ids"] == rows["input_ids"]).all()
    assert {*rows["special_ids"][0].tolist()} == {*vocabulary.special_ids}


def test_without_sentences_there_is_nothing(tmp_path):
    vocabulary, (encoder, params) = toy.ToyVocabulary(), toy.model()
    (tmp_path / "de.txt").write_text(" ".join(toy.PIECES) + "\n")  # does not fit
    evaluator = PseudoSamples(
        {"de": Text(tmp_path / "de.txt", "de")}, vocabulary, toy.LANGUAGES, ("en",), length=12
    )
    assert evaluator(encoder, params, 0)["samples"] == []


def test_a_placement_is_one_of_two():
    with pytest.raises(UserError, match="placement='behnd': 'behind' or 'scattered' is needed"):
        PseudoSamples({}, toy.ToyVocabulary(), toy.LANGUAGES, ("en",), placement="behnd")

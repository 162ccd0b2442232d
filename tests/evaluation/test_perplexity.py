import gzip
import json
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.config import evaluators
from xlingjax.data.held_out_pairs import Pairs
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError
from xlingjax.evaluation import perplexity as ppl
from xlingjax.objectives.xlm import CLM, MLM, TLM

VOCABULARY = toy.ToyVocabulary()


def perplexity(*args, **options):
    return ppl.scores(*args, **options)[0]


@pytest.fixture(scope="module")
def rows():
    parts = [
        ppl.text_rows(toy.sentences(40, seed=i), VOCABULARY, 16, i, limit=5 + i) for i in range(3)
    ]
    parts = ppl.same_slots([ppl.mask_for_validation(part, VOCABULARY.mask_id) for part in parts])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(rows):
    encoder, params = toy.model()
    zeros = jax.tree.map(
        np.zeros_like, params
    )  # all logits 0; padded vocabulary rows must not count
    for objective in (MLM(), CLM()):
        values = perplexity(encoder, zeros, objective, rows, toy.LANGUAGES, batch_size=4)
        assert list(values) == ["de", "en", "fr"]
        assert list(values.values()) == pytest.approx([VOCABULARY.size] * 3, rel=1e-5)
    assert encoder.config.padded_vocab_size > VOCABULARY.size


def test_perplexity_is_total_nll_over_predictions_whatever_the_batch(rows):
    encoder, params = toy.model()
    values = perplexity(encoder, params, MLM(), rows, toy.LANGUAGES, batch_size=18)
    for size in (1, 7):  # 18 rows: neither divides evenly into what the other did
        assert perplexity(
            encoder, params, MLM(), rows, toy.LANGUAGES, batch_size=size
        ) == pytest.approx(values)
    h_BLD = np.asarray(jax.jit(lambda p, b: encoder.encode(p, b, MLM().attention()))(params, rows))
    table = np.asarray(params["embeddings"]["tokens"]["embedding"])
    bias = np.asarray(params["head"]["bias"])
    nll, count = 0.0, 0
    for row in np.flatnonzero(rows["language_ids"][:, 0] == 1):
        for slot in np.flatnonzero(rows["masked_weights"][row]):
            logits = (h_BLD[row, rows["masked_positions"][row, slot]] @ table.T + bias)[
                : VOCABULARY.size
            ]
            nll += np.log(np.exp(logits).sum()) - logits[rows["masked_targets"][row, slot]]
            count += 1
    assert values["en"] == pytest.approx(math.exp(nll / count), rel=1e-4)
    assert ppl.mean({"a": 2.0, "b": 4.0}) == 3.0


def test_text_rows_are_the_stream_cut_every_length_tokens():
    rows = ppl.text_rows(["a b c", "", "d e f g"], VOCABULARY, 4, 2)
    a = VOCABULARY.encode("a")[0]
    assert rows["input_ids"].tolist() == [[a, a + 1, a + 2, 1], [a + 3, a + 4, a + 5, a + 6]]
    assert rows["position_ids"].tolist() == [[0, 1, 2, 3]] * 2
    assert (rows["language_ids"] == 2).all() and (rows["pack_ids"] == 1).all()
    roberta = toy.ToyVocabulary("xlmr")
    opened = ppl.text_rows(["a b c", "d e f g"], roberta, 4, 0, limit=1)
    assert opened["input_ids"].tolist() == [[0, 4, 5, 6]]  # every row of XLM-R opens with <s>
    short = ppl.text_rows(["a"], VOCABULARY, 4, 0)  # all there is
    assert short["input_ids"].tolist() == [[a, 1, 2, 2]]
    assert short["pack_ids"].tolist() == [[1, 1, 0, 0]]


def test_validation_masking(rows):
    used = rows["masked_weights"] > 0
    assert used.any(axis=1).all()  # at least one in every row
    assert (rows["masked_positions"][used] > 0).all()  # never column 0
    for row in range(len(used)):
        shown = np.flatnonzero(rows["input_ids"][row] == VOCABULARY.mask_id)
        assert (
            shown.tolist() == rows["masked_positions"][row][used[row]].tolist()
        )  # all of them MASK, none else
    long = ppl.text_rows(toy.sentences(2000, seed=5), VOCABULARY, 64, 0)
    masked = ppl.mask_for_validation(long, VOCABULARY.mask_id)
    sd = math.sqrt(0.15 * 0.85 / (63 * len(long["input_ids"])))
    assert masked["masked_weights"].sum() / (63 * len(long["input_ids"])) == pytest.approx(
        0.15, abs=4 * sd
    )
    alone = ppl.mask_for_validation({k: v[:3] for k, v in long.items()}, VOCABULARY.mask_id)
    assert (alone["input_ids"] == masked["input_ids"][:3]).all()  # row r draws alone
    other = ppl.mask_for_validation(long, VOCABULARY.mask_id, seed=1)
    assert (other["input_ids"] != masked["input_ids"]).any()


def pair_side_alone(rows, side):
    """Each pair's one side as MLM rows of its own, the same tokens masked."""
    out = {name: np.zeros_like(values) for name, values in rows.items()}
    out["input_ids"][:] = VOCABULARY.pad_id
    for row in range(len(rows["input_ids"])):
        on = np.flatnonzero((rows["pack_ids"][row] > 0) & (rows["sides"][row] == side))
        for name in ("input_ids", "language_ids"):
            out[name][row, : len(on)] = rows[name][row, on]
        out["position_ids"][row, : len(on)] = np.arange(len(on))
        out["pack_ids"][row, : len(on)] = 1
        slots = [
            s
            for s in np.flatnonzero(rows["masked_weights"][row])
            if rows["masked_positions"][row, s] in on
        ]
        out["masked_positions"][row, : len(slots)] = rows["masked_positions"][row, slots] - on[0]
        out["masked_targets"][row, : len(slots)] = rows["masked_targets"][row, slots]
        out["masked_weights"][row, : len(slots)] = 1
    return out


def test_partner_hidden_equals_mlm_on_the_side_alone():
    encoder, params = toy.model()
    texts = toy.sentences(20, seed=8, longest=8), toy.sentences(20, seed=9, longest=8)
    pairs = Pairs("de", tuple(texts[0]), tuple(texts[1]))
    rows = ppl.mask_for_validation(ppl.pair_rows(pairs, VOCABULARY, 20, (0, 1)), VOCABULARY.mask_id)
    hidden = perplexity(encoder, params, TLM(), ppl.hide_partner(rows), toy.LANGUAGES)
    for side, language in enumerate(("de", "en")):
        alone = perplexity(encoder, params, MLM(), pair_side_alone(rows, side), toy.LANGUAGES)
        assert list(alone) == [language]
        assert hidden[language] == pytest.approx(alone[language], rel=1e-5)
    visible = perplexity(encoder, params, TLM(), rows, toy.LANGUAGES)
    assert visible["de"] != pytest.approx(hidden["de"], rel=1e-3)


def test_pair_rows():
    pairs = Pairs("fr", ("a b", "a b c d e f g h i j", "c"), ("c", "d", "d e"))
    rows = ppl.pair_rows(pairs, VOCABULARY, 8, (2, 1))
    a = VOCABULARY.encode("a")[0]
    assert rows["input_ids"].tolist() == [  # the second pair fits no row of 8
        [1, a, a + 1, 1, 1, a + 2, 1, 2],
        [1, a + 2, 1, 1, a + 3, a + 4, 1, 2],
    ]
    assert rows["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 0], [0, 1, 2, 0, 1, 2, 3, 0]]
    assert rows["language_ids"].tolist() == [[2, 2, 2, 2, 1, 1, 1, 0], [2, 2, 2, 1, 1, 1, 1, 0]]
    assert rows["sides"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1, 0]]
    running = ppl.pair_rows(pairs, VOCABULARY, 8, (2, 1), reset_positions=False)
    assert running["position_ids"][0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    with pytest.raises(UserError, match="no fr-en pair fits a row of 4"):
        ppl.pair_rows(pairs, VOCABULARY, 4, (2, 1))
    roberta = toy.ToyVocabulary("xlmr")  # <s> opens the row alone, as in training
    assert ppl.pair_rows(pairs, roberta, 8, (2, 1), limit=1)["input_ids"].tolist() == [
        [0, 4, 5, 2, 2, 6, 2, 1]
    ]


def test_evaluators(tmp_path):
    encoder, params = toy.model()
    texts = {}
    for i, language in enumerate(("de", "fr")):
        texts[language] = Text(tmp_path / f"{language}.txt", language)
        texts[language].path.write_text("\n".join(toy.sentences(30, seed=i)) + "\n")

    def measured(texts, **options):
        given = (texts, VOCABULARY, toy.LANGUAGES)
        return ppl.TextPerplexity(*given, length=16, limit=6, **options)(encoder, params, 1)

    both, one = measured(texts), measured({"fr": texts["fr"]})
    assert both["mean"] == pytest.approx(sum(both["by_language"].values()) / 2)
    # Other languages change nothing.
    assert both["by_language"]["fr"] == pytest.approx(one["by_language"]["fr"])
    causal = measured(texts, causal=True)
    assert set(causal["by_language"]) == {"de", "fr"} and causal["mean"] != both["mean"]
    lines = tuple(toy.sentences(12, seed=3, longest=6))
    pairs = {"de": Pairs("de", lines, lines), "fr": Pairs("fr", lines, lines)}
    probe = ppl.TranslationPerplexity(pairs, VOCABULARY, toy.LANGUAGES, length=16)
    values = probe(encoder, params, 1)
    sides = {name: set(sides) for name, sides in values["visible"].items()}
    assert sides == {"de-en": {"de", "en"}, "fr-en": {"fr", "en"}}
    mean = np.mean([np.mean(list(v.values())) for v in values["hidden"].values()])
    assert values["hidden_mean"] == pytest.approx(mean)
    with pytest.raises(UserError, match="'zh' is not one of the run's"):
        ppl.TranslationPerplexity({"zh": pairs["de"]}, VOCABULARY, toy.LANGUAGES)


def test_held_out_tables_are_read_as_training_reads_them(tmp_path):
    """The text column alone, each language's own rows, a document of several lines as lines."""
    table, lines = tmp_path / "held.jsonl.gz", tmp_path / "fr.txt"
    rows = [("de", "a b c\nd e f"), ("en", "q r s"), ("ru", "x y z"), ("de", "g h")]
    told = "".join(json.dumps({"lang": code, "text": text}) + "\n" for code, text in rows)
    table.write_bytes(gzip.compress(told.encode()))
    lines.write_text("g h i\n")
    corpus = SimpleNamespace(languages=toy.LANGUAGES, vocabulary=VOCABULARY)
    patterns = f"{table} {lines}"
    assert sorted(evaluators.heldout_texts(patterns, corpus.languages)) == ["de", "en", "fr"]
    with pytest.raises(
        UserError, match="HELDOUT_TEXT=.*: it is in de, en, fr, ru, and the run in ne"
    ):
        evaluators.heldout_texts(patterns, ("ne",))
    (probe,) = evaluators.EVALUATORS["perplexity"](
        corpus=corpus, text=patterns, length=12, causal=True
    )()
    plain = {"de": ["a b c", "d e f", "g h"], "en": ["q r s"], "fr": ["g h i"]}
    for language, sentences in plain.items():
        index = toy.LANGUAGES.index(language)
        expected = ppl.text_rows(sentences, VOCABULARY, 12, index)["input_ids"]
        assert probe._rows["input_ids"][index : index + 1].tolist() == expected.tolist()

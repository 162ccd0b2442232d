import gzip
from types import SimpleNamespace

import numpy as np
import pytest
import zstandard

from tests.helpers import toy
from xlingjax.config import evaluators
from xlingjax.data import held_out_pairs
from xlingjax.errors import UserError
from xlingjax.evaluation import retrieval
from xlingjax.evaluation.floors import RetrievalFloors, floors, verdict
from xlingjax.inference import encode


def test_nearest_is_exact_in_any_chunking():
    rng = np.random.default_rng(0)
    queries, index = (
        rng.normal(size=(37, 8)).astype(np.float32),
        rng.normal(size=(50, 8)).astype(np.float32),
    )
    cosine = [[q @ k / np.linalg.norm(q) / np.linalg.norm(k) for k in index] for q in queries]
    for chunk in (1, 10, 1000):
        assert (
            retrieval.nearest(queries, index, chunk).tolist() == np.argmax(cosine, axis=1).tolist()
        )


def test_ties_go_to_the_first_row_so_collapse_scores_one_in_n():
    collapsed = np.ones((5, 4), np.float32)
    assert retrieval.accuracy(collapsed, collapsed) == 0.2
    index = np.array([[1, 0], [2, 0], [0, 1]], np.float32)  # rows 0 and 1 have one direction
    assert retrieval.nearest(np.array([[3, 0], [0, 5]], np.float32), index).tolist() == [0, 2]


def test_direction_is_who_asks():
    english = np.eye(3, dtype=np.float32)
    foreign = np.array([[1, 0, 0], [0.9, 0.8, 0], [0.9, 0, 0.8]], np.float32)
    scores = retrieval.score_layer(english, foreign)
    assert scores["raw_en_to_xx"] == 1.0
    assert scores["raw_xx_to_en"] == pytest.approx(
        1 / 3
    )  # two foreign rows lie nearer to English row 0


def test_a_language_offset_hides_alignment_from_raw_cosine_only():
    # Axes 0-11 say which sentence it is, axis 12 that it is English, axis 13 that it is foreign.
    # Foreign sentence 0 has a trace of English in it and, uncentred, is what every English query
    # finds.
    english, foreign = np.zeros((2, 12, 14), np.float32)
    english[:, :12] = foreign[:, :12] = np.eye(12)
    english[:, 12], foreign[:, 13] = 20, 20
    foreign[0, 12] = 2
    scores = retrieval.score_layer(english, foreign)
    assert scores["raw_en_to_xx"] == pytest.approx(1 / 12)
    assert scores["centred_en_to_xx"] == scores["centred_xx_to_en"] == 1.0


def test_mean_over_languages_and_best_layer():
    def flat(value):
        return dict.fromkeys(retrieval.SCORES, value)

    table = {
        "de": {"0": flat(0.1), "1": flat(0.9), "2": flat(0.4)},
        "zh": {"0": flat(0.3), "1": flat(0.1), "2": flat(0.6)},
    }
    by_layer = retrieval.mean_by_layer(table)
    assert by_layer["1"]["raw_en_to_xx"] == pytest.approx(0.5) == by_layer["2"]["raw_en_to_xx"]
    assert retrieval.best_layer(by_layer, "raw_en_to_xx") == "1"  # the lower of two equals
    assert retrieval.best_layer({"2": flat(0.1), "10": flat(0.2)}, "raw_en_to_xx") == "10"


def test_language_similarity():
    table = retrieval.language_similarity({"en": np.array([1.0, 0]), "de": np.array([1.0, 1])})
    assert table["languages"] == ["de", "en"]
    assert table["cosine"] == [[1.0, pytest.approx(0.7071)], [pytest.approx(0.7071), 1.0]]


def test_pooling_weights():
    vocabulary = toy.ToyVocabulary()
    ids = np.array([[1, 20, 21, 1, 2], [1, 1, 2, 2, 2]])
    valid = ids != vocabulary.pad_id
    weights = {
        p: encode.pooling_weights(ids, valid, vocabulary.special_ids, p) for p in encode.POOLINGS
    }
    assert weights["mean"].tolist() == [[0.25, 0.25, 0.25, 0.25, 0], [0.5, 0.5, 0, 0, 0]]
    assert weights["mean_no_special"].tolist() == [[0, 0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0, 0]]
    assert weights["first"].tolist() == [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    with pytest.raises(UserError, match="mean_no_special"):
        encode.pooling_weights(ids, valid, vocabulary.special_ids, "max")


def test_embedding_does_not_depend_on_company_or_bucket():
    encoder, params = toy.model()
    vocabulary = toy.ToyVocabulary()
    rows = encode.token_ids(toy.sentences(9), vocabulary, 16)
    options = dict(poolings=("mean", "first"), tokens_per_batch=64)
    together = encode.embed(encoder, params, rows, 1, vocabulary, buckets=(8, 16), **options)
    alone = encode.embed(encoder, params, rows[4:5], 1, vocabulary, buckets=(16,), **options)
    assert together.shape == (2, 3, 9, 16)  # poolings, embedding output + 2 layers, sentences, D
    np.testing.assert_allclose(together[:, :, 4:5], alone, atol=1e-5)
    # Layer 0 under "first" is the embedding of `</s>` at position 0, the same in every sentence;
    # above it they differ.
    assert np.ptp(together[1, 0], axis=0).max() < 1e-6 < np.ptp(together[1, 2], axis=0).max()
    with pytest.raises(ValueError, match="longest bucket, 4"):
        encode.embed(encoder, params, rows, 1, vocabulary, buckets=(4,))


def test_evaluate_retrieval_end_to_end_and_on_a_mesh():
    from xlingjax.model.partition import MeshConfig, make_mesh

    encoder, params = toy.model()
    texts = tuple(toy.sentences(24, seed=1))
    aligned = {
        "de": held_out_pairs.Pairs("de", texts, texts),
        "fr": held_out_pairs.Pairs("fr", texts[:10], texts[5:15]),
    }
    probe = retrieval.RetrievalEvaluator(
        aligned, toy.ToyVocabulary(), toy.LANGUAGES, ("mean", "first"), 16, 128
    )
    values = probe(encoder, params, 7, None)
    assert values["pairs"] == {"de": 24, "fr": 10}
    # The same words in two languages differ by the language embedding alone, and 'fr' is misaligned
    # by five lines.
    assert values["by_language"]["mean"]["de"]["0"]["centred_en_to_xx"] == 1.0
    assert values["by_language"]["mean"]["fr"]["0"]["centred_en_to_xx"] <= 0.3
    layers = values["by_layer"]["mean"]
    assert list(layers) == ["0", "1", "2"]
    assert values["retrieval_mean"] == max(v["raw_en_to_xx"] for v in layers.values())
    assert values["retrieval_mean_centred"] == max(v["centred_en_to_xx"] for v in layers.values())
    assert values["similarity"]["languages"] == ["de", "en", "fr"]
    spread = probe(encoder, params, 7, make_mesh(MeshConfig(data=2, fsdp=2, tensor=2)))
    assert spread["by_layer"] == values["by_layer"]


def test_sentences_that_are_cut_are_said_once(capsys):
    encoder, params = toy.model()
    longer = ("a " * 15, "b " * 6, "c " * 7)
    aligned = {
        "de": held_out_pairs.Pairs("de", longer, ("a", "b", "c " * 9)),
        "fr": held_out_pairs.Pairs("fr", ("a", "b"), ("a", "b")),
    }
    probe = retrieval.RetrievalEvaluator(aligned, toy.ToyVocabulary(), toy.LANGUAGES, max_length=8)
    for _ in range(2):
        assert probe(encoder, params, 7, None)["cut"] == {"de": 3}
    said = "retrieval: sentences of pairs cut to 8 tokens: 3 of de\n"
    assert capsys.readouterr().out == said
    with pytest.raises(UserError, match="--prefix has 6 tokens, .* at most 6: none is left"):
        retrieval.RetrievalEvaluator(
            aligned, toy.ToyVocabulary(), toy.LANGUAGES, max_length=8, prefix="x " * 6
        )(encoder, params, 7, None)


def test_a_language_the_model_never_embedded_is_refused():
    encoder, params = toy.model()
    aligned = {"ru": held_out_pairs.Pairs("ru", ("a b",), ("a b",))}
    with pytest.raises(UserError, match="'ru' is not one of the run's"):
        retrieval.evaluate_retrieval(encoder, params, aligned, toy.ToyVocabulary(), toy.LANGUAGES)


def test_reading_pairs(tmp_path):
    def write(name, *lines):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), "utf-8")

    write("de-en.de", "eins", "zwei"), write("de-en.en", "one", "two")
    write("wiki.en-fr.fr", "un"), write("wiki.en-fr.en", "one")
    write("de-fr.de", "eins"), write("de-fr.fr", "un")
    found = held_out_pairs.read_pairs(tmp_path)
    assert found == {
        "de": held_out_pairs.Pairs("de", ("eins", "zwei"), ("one", "two")),
        "fr": held_out_pairs.Pairs("fr", ("un",), ("one",)),
    }
    assert list(held_out_pairs.read_pairs(tmp_path, ["fr", "ru"])) == ["fr"]
    assert held_out_pairs.read_pairs(tmp_path, ["de"], limit=1)["de"].english == ("one",)
    assert held_out_pairs.read_pairs(tmp_path / "de-en") == {"de": found["de"]}
    # A pattern, as PARALLEL has.
    assert held_out_pairs.read_pairs(f"{tmp_path}/*") == found
    one = held_out_pairs.read_pairs(f"{tmp_path}/de-[ef]*", ["de", "fr"], limit=1)
    assert one == {"de": held_out_pairs.Pairs("de", ("eins",), ("one",))}
    for pattern, message in (("de-fr*", "no pairs with English"), ("it*", "no parallel file")):
        with pytest.raises(UserError, match=message):
            held_out_pairs.read_pairs(f"{tmp_path}/{pattern}")
    for path in (tmp_path, f"{tmp_path}/*"):
        with pytest.raises(UserError, match="none for the run's languages, ru"):
            held_out_pairs.read_pairs(path, ["ru"])
    with pytest.raises(UserError, match="neither a folder nor"):
        held_out_pairs.read_pairs(tmp_path / "nothing")
    write("de-en.en", "one", "two", "three")
    with pytest.raises(UserError, match=r"de-en.de has 2 lines and .*de-en.en has 3"):
        held_out_pairs.read_pairs(tmp_path)
    (tmp_path / "de-en.en").write_bytes(b"one\n\xff\n")
    with pytest.raises(UserError, match="de-en.en, line 2: invalid UTF-8"):
        held_out_pairs.read_pairs(tmp_path)
    (tmp_path / "de-en.en").unlink()
    with pytest.raises(UserError, match="English side de-en.en is missing"):
        held_out_pairs.read_pairs(tmp_path)


def test_pairs_with_an_empty_side_are_no_pairs_and_do_not_count_towards_the_limit(tmp_path):
    (tmp_path / "de-en.de").write_text("eins\n\n  \nvier\nf\n")
    (tmp_path / "de-en.en").write_text("\ntwo\n\nfour\nfive\n")
    assert held_out_pairs.read_pairs(tmp_path)["de"] == held_out_pairs.Pairs(
        "de", ("vier", "f"), ("four", "five")
    )
    assert held_out_pairs.read_pairs(tmp_path, limit=1)["de"] == held_out_pairs.Pairs(
        "de", ("vier",), ("four",)
    )
    (tmp_path / "de-en.de").write_text("eins\n\n\n\n\n")
    with pytest.raises(
        UserError, match=r"de-en.de and .*de-en.en have no line with text on both sides"
    ):
        held_out_pairs.read_pairs(tmp_path)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_reading_compressed_pairs(tmp_path, ending):
    compress = {"gz": gzip.compress, "zst": zstandard.compress}[ending]
    (tmp_path / f"en-fr.fr.{ending}").write_bytes(compress(b"un\ndeux\n"))
    (tmp_path / "en-fr.en").write_text("one\ntwo\n")  # one side of a pair may be plain
    for code, lines in (("de", "eins\n"), ("en", "one\n")):
        (tmp_path / f"test.1.{code}.{ending}").write_bytes(compress(lines.encode()))
    assert held_out_pairs.read_pairs(tmp_path) == {
        "fr": held_out_pairs.Pairs("fr", ("un", "deux"), ("one", "two"))
    }
    assert held_out_pairs.read_pairs(tmp_path / "test.1") == {
        "de": held_out_pairs.Pairs("de", ("eins",), ("one",))
    }


def test_floors_are_on_the_pairs_of_retrieval(tmp_path):
    for code, lines in (("de", "a b\nc d\ne f\n"), ("en", "a x\nc y\ne z\n")):
        (tmp_path / f"de-en.{code}").write_text(lines)
    corpus = SimpleNamespace(languages=toy.LANGUAGES, vocabulary=toy.ToyVocabulary(), parallel=())
    (floor,) = evaluators.floors(corpus, str(tmp_path), limit=2, run=True)()
    (probe,) = evaluators.EVALUATORS["retrieval"](corpus=corpus, pairs=str(tmp_path), limit=2)()
    assert floor.test == probe.pairs and len(floor.test["de"]) == 2


def test_lsi_is_asked_for_and_tfidf_may_come_alone(tmp_path):
    for code, lines in (("de", "a b\nc d\n"), ("en", "a x\nc y\n")):
        (tmp_path / f"de-en.{code}").write_text(lines)
    patterns = (str(tmp_path / "*"),)
    corpus = SimpleNamespace(languages=["de", "en"], vocabulary=None, parallel=patterns)
    (both,) = evaluators.floors(corpus, str(tmp_path), run=True)()
    (alone,) = evaluators.floors(corpus, str(tmp_path), run="tfidf")()
    assert both(None, None, 0)["mean"].keys() == {"char_tfidf", "lsi"}
    assert alone(None, None, 0)["mean"].keys() == {"char_tfidf"}
    assert evaluators.floors(corpus, str(tmp_path))() == []
    with pytest.raises(UserError, match="FLOORS: 'lsi' is none of False, \"tfidf\" and True"):
        evaluators.floors(corpus, str(tmp_path), run="lsi")


def test_floors():
    # Spelling is shared in "de" and not in "ru"; the training pairs of "ru" are a one-to-one word
    # cipher.
    words = ["alpha", "bravo", "delta", "kilo", "lima", "oscar", "quebec", "tango"]
    cipher = dict(
        zip(words, ["щука", "вода", "небо", "гора", "лиса", "пирог", "жук", "дым"], strict=True)
    )
    rng = np.random.default_rng(0)
    english = [" ".join(rng.choice(words, 3, replace=False)) for _ in range(240)]
    english = list(dict.fromkeys(english))
    russian = [" ".join(cipher[w] for w in line.split()) for line in english]
    held = {
        "de": held_out_pairs.Pairs(
            "de", tuple(line.upper() for line in english[:30]), tuple(english[:30])
        ),
        "ru": held_out_pairs.Pairs("ru", tuple(russian[:30]), tuple(english[:30])),
    }
    result = floors(
        held,
        {"ru": held_out_pairs.Pairs("ru", tuple(russian[30:]), tuple(english[30:]))},
        dimensions=12,
    )
    assert result["char_tfidf"]["de"]["raw_en_to_xx"] == 1.0
    assert result["char_tfidf"]["ru"]["raw_en_to_xx"] < 0.2
    assert list(result["lsi"]) == ["ru"]
    assert result["lsi"]["ru"]["raw_en_to_xx"] > 0.5
    assert result["mean"]["char_tfidf"] == pytest.approx(
        (1.0 + result["char_tfidf"]["ru"]["raw_en_to_xx"]) / 2
    )


@pytest.mark.parametrize(
    "found, said",
    [
        (0.5, "retrieval 50.0 % is above TF-IDF 40.0 %, LSI 45.0 %"),
        (0.42, "retrieval 42.0 % is above TF-IDF 40.0 %, not above LSI 45.0 %"),
        (0.4, "retrieval 40.0 % is not above TF-IDF 40.0 %, LSI 45.0 %: these vectors find fewer"),
    ],
)
def test_which_floors_a_run_is_above(found, said):
    assert verdict(found, {"char_tfidf": 0.4, "lsi": 0.45}).startswith(said)


def test_floors_are_said_before_and_after():
    """Spelling finds the first and the second pair; "gh" shares nothing with any."""
    pairs = held_out_pairs.Pairs("de", ("ab", "cd", "xy", "gh"), ("ab", "cd", "ef", "zz"))
    one = RetrievalFloors({"de": pairs})
    # Among equals the first wins: "ef" and "zz" find "ab".
    assert one.bar() == "retrieval, to be passed: TF-IDF 50.0 %, chance 25.0 %"
    values = {"a": {"kind": "perplexity"}, "b": {"kind": "retrieval", "retrieval_mean": 0.75}}
    assert one.verdict(values) == "retrieval 75.0 % is above TF-IDF 50.0 %"
    assert one.verdict({}) == ""


def test_few_pairs_of_a_language_that_is_searched_are_said():
    pairs = held_out_pairs.Pairs("sw", ("ab", "cd"), ("ab", "cd"))
    one = RetrievalFloors({"sw": pairs, "zh-TW": pairs})
    assert one.doubt({"en-sw": 1_000, "en-zh-TW": 1_000, "en-ur": 3}) == ""
    said = one.doubt({"en-sw": 999, "en-zh-TW": 285, "en-ur": 3})
    assert said.startswith("retrieval is not likely to pass TF-IDF: 285 pairs of en-zh-TW are few")


def test_one_pair_is_no_text_for_lsi():
    pairs = held_out_pairs.Pairs("de", ("eins", "zwei"), ("one", "two"))
    alone = held_out_pairs.Pairs("de", ("eins",), ("one",))
    assert floors({"de": pairs}, {"de": alone})["lsi"] == {}
    assert set(floors({"de": pairs}, {"de": pairs})["lsi"]) == {"de"}


def test_training_pairs_are_read_from_either_order_and_joined(tmp_path):
    from xlingjax.data.held_out_pairs import pairs_with_english

    for name, lines in {
        "a.de-en.de": "eins\nzwei",
        "a.de-en.en": "one\ntwo",
        "b.de-en.de": "drei\n",
        "b.de-en.en": "three\nlost",
        "a.en-fr.en": "four",
        "a.en-fr.fr": "quatre",
        "en-en.tsv": "four\tfour",
    }.items():
        (tmp_path / name).write_text(lines + "\n", encoding="utf-8")
    found = pairs_with_english([str(tmp_path / "*")])
    assert found["de"].foreign == ("eins", "zwei", "drei") and found["de"].english == (
        "one",
        "two",
        "three",
    )
    assert found["fr"].foreign == ("quatre",) and found["fr"].english == ("four",)
    assert set(found) == {"de", "fr"}

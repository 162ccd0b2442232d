import dataclasses

import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data import held_out_pairs
from xlingjax.errors import UserError
from xlingjax.evaluation import retrieval
from xlingjax.evaluation.floors import RetrievalFloors, floors
from xlingjax.inference import encode


def scores(english, foreign):
    return retrieval.shares(retrieval.searched(english, foreign))


def test_nearest_is_exact_in_any_chunking():
    rng = np.random.default_rng(0)
    queries, index = (rng.normal(size=(n, 8)).astype(np.float32) for n in (37, 50))
    cosine = [[q @ k / np.linalg.norm(q) / np.linalg.norm(k) for k in index] for q in queries]
    for chunk in (1, 10, 1000):
        found = retrieval.nearest(queries, index, chunk)
        assert found.tolist() == np.argmax(cosine, axis=1).tolist()


def test_ties_go_to_the_first_row_so_collapse_scores_one_in_n():
    collapsed = np.ones((5, 4), np.float32)
    assert {*scores(collapsed, collapsed).values()} == {0.2}
    index = np.array([[1, 0], [2, 0], [0, 1]], np.float32)  # rows 0 and 1 have one direction
    assert retrieval.nearest(np.array([[3, 0], [0, 5]], np.float32), index).tolist() == [0, 2]


def test_direction_is_who_asks():
    english = np.eye(3, dtype=np.float32)
    foreign = np.array([[1, 0, 0], [0.9, 0.8, 0], [0.9, 0, 0.8]], np.float32)
    found = scores(english, foreign)
    assert found["raw_en_to_xx"] == 1.0
    assert found["raw_xx_to_en"] == pytest.approx(
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
    found = scores(english, foreign)
    assert found["raw_en_to_xx"] == pytest.approx(1 / 12)
    assert found["centred_en_to_xx"] == found["centred_xx_to_en"] == 1.0


def test_mean_over_languages():
    def flat(value):
        return dict.fromkeys(retrieval.SCORES, value)

    table = {
        "de": {"0": flat(0.1), "1": flat(0.9), "2": flat(0.4)},
        "zh": {"0": flat(0.3), "1": flat(0.1), "2": flat(0.6)},
    }
    by_layer = retrieval.mean_by_layer(table)
    assert by_layer["1"]["raw_en_to_xx"] == pytest.approx(0.5) == by_layer["2"]["raw_en_to_xx"]


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


def test_embedding_does_not_depend_on_company_or_bucket(monkeypatch):
    texts = toy.sentences(9)

    def embedded(texts):
        how = ("en", ("mean", "first"))
        return encode.embed_texts(toy.run(), texts, *how, max_length=16, tokens_per_batch=64)

    alone = embedded(texts[4:5])
    monkeypatch.setattr(encode, "BUCKETS", (8,))
    together = embedded(texts)
    assert together.shape == (2, 3, 9, 16)  # poolings, embedding output + 2 layers, sentences, D
    np.testing.assert_allclose(together[:, :, 4:5], alone, atol=1e-5)
    # Layer 0 under "first" is the embedding of `</s>` at position 0, the same in every sentence;
    # above it they differ.
    assert np.ptp(together[1, 0], axis=0).max() < 1e-6 < np.ptp(together[1, 2], axis=0).max()


def test_few_programs_and_little_padding():
    rng = np.random.default_rng(0)
    sentences = [[1] * n for n in [*rng.integers(3, 40, 300).tolist(), 200]]

    def batches(sentences):
        return [*encode._batches(sentences, 0, 2, encode.BUCKETS, 4096, None)]

    made = batches(sentences)
    assert sorted(i for members, _ in made for i in members) == [*range(301)]
    for members, batch in made:
        found = batch["pack_ids"].sum(1)[: len(members)].tolist()
        assert found == [len(sentences[i]) for i in members]
    shapes = [batch["input_ids"].shape for _, batch in made]
    assert len({*shapes}) <= 8 and all(rows * length <= encode.ON_CPU for rows, length in shapes)
    # With a full batch at each of 32, 64, 128 and 256 it was 2.4 times.
    assert sum(rows * length for rows, length in shapes) < 1.6 * sum(map(len, sentences))
    # A sentence alone waits for no full batch.
    assert [batch["input_ids"].shape for _, batch in batches([[1] * 20])] == [(5, 24)]


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
    # All figures are of one layer, the last or the one that is named.
    plain = ("raw_en_to_xx", "centred_en_to_xx", "raw_xx_to_en", "centred_xx_to_en")
    names = ("mean", "mean_centred", "mean_xx_to_en", "mean_centred_xx_to_en")
    first = dataclasses.replace(probe, layer=1)(encoder, params, 7, None)
    for layer, found in (("2", values), ("1", first)):
        assert found["retrieval_layer"] == int(layer)
        assert [found[f"retrieval_{name}"] for name in names] == [layers[layer][p] for p in plain]
    with pytest.raises(UserError, match="retrieval.layer=3: the model has 2 layers"):
        dataclasses.replace(probe, layer=3).require(encoder.config)
    # Of the two languages in turn; what is wrong beside what is right.
    shown = values["examples"]
    right = [one for one in shown if one["right"]]
    wrong = [one for one in shown if not one["right"]]
    layer = str(values["retrieval_layer"])
    of_layer = {code: of[layer] for code, of in values["by_language"]["mean"].items()}
    found = sum(round(of_layer[code]["raw_xx_to_en"] * len(aligned[code])) for code in aligned)
    assert len(right) == min(found, retrieval.SHOWN) > 0 and len(wrong) == retrieval.SHOWN
    assert values["pivot"] == "en"
    assert all(one["found"] == one["translation"] for one in right)
    for one in wrong:
        row = aligned[one["language"]].foreign.index(one["sentence"])
        assert aligned[one["language"]].english[row] == one["translation"] != one["found"]
    spread = probe(encoder, params, 7, make_mesh(MeshConfig(data=2, fsdp=2, tensor=2)))
    assert spread["by_layer"] == values["by_layer"]


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
    with pytest.raises(UserError, match="no pairs of translations of the run's languages, ru"):
        held_out_pairs.read_pairs(tmp_path, ["ru"])
    write("de-en.en", "one", "two", "three")
    with pytest.raises(UserError, match=r"de-en.de has 2 lines, .*de-en.en has 3"):
        held_out_pairs.read_pairs(tmp_path)


def test_pairs_with_an_empty_side_are_no_pairs_and_do_not_count_towards_the_limit(tmp_path):
    (tmp_path / "de-en.de").write_text("eins\n\n  \nvier\nf\n")
    (tmp_path / "de-en.en").write_text("\ntwo\n\nfour\nfive\n")
    found, first = (held_out_pairs.read_pairs(tmp_path, limit=n)["de"] for n in (0, 1))
    assert (found.foreign, found.english) == (("vier", "f"), ("four", "five"))
    assert (first.foreign, first.english) == (("vier",), ("four",))


def test_examples_are_of_all_languages_in_turn():
    pairs = {
        code: held_out_pairs.Pairs(code, tuple(f"{code}{i}" for i in range(4)), tuple("abcd"))
        for code in ("de", "fr")
    }
    found = {"de": np.array([0, 1, 2, 3]), "fr": np.array([0, 0, 2, 1])}
    shown = retrieval.examples(pairs, found)
    assert [one["sentence"] for one in shown if one["right"]] == ["de0", "fr0", "de1", "fr2", "de2"]
    assert [one for one in shown if not one["right"]] == [
        {"language": "fr", "sentence": "fr1", "found": "a", "translation": "b", "right": False},
        {"language": "fr", "sentence": "fr3", "found": "b", "translation": "d", "right": False},
    ]


def test_floors():
    # Spelling is shared in "de" and not in "ru"; the training pairs of "ru" are a one-to-one word
    # cipher.
    words = ["alpha", "bravo", "delta", "kilo", "lima", "oscar", "quebec", "tango"]
    ciphered = ["щука", "вода", "небо", "гора", "лиса", "пирог", "жук", "дым"]
    cipher = dict(zip(words, ciphered, strict=True))
    rng = np.random.default_rng(0)
    english = [" ".join(rng.choice(words, 3, replace=False)) for _ in range(240)]
    english = list(dict.fromkeys(english))
    russian = [" ".join(cipher[w] for w in line.split()) for line in english]
    capitals = [line.upper() for line in english]
    held = {
        code: held_out_pairs.Pairs(code, tuple(lines[:30]), tuple(english[:30]))
        for code, lines in (("de", capitals), ("ru", russian))
    }
    training = held_out_pairs.Pairs("ru", tuple(russian[30:]), tuple(english[30:]))
    result = floors(held, {"ru": training}, dimensions=12)
    assert result["char_tfidf"]["de"]["raw_en_to_xx"] == 1.0
    assert result["char_tfidf"]["ru"]["raw_en_to_xx"] < 0.2
    assert list(result["lsi"]) == ["ru"]
    assert result["lsi"]["ru"]["raw_en_to_xx"] > 0.5
    assert result["mean"]["char_tfidf"] == pytest.approx(
        (1.0 + result["char_tfidf"]["ru"]["raw_en_to_xx"]) / 2
    )


def test_the_verdict_is_of_the_runs_own_retrieval():
    """Spelling finds the first and the second pair; "gh" shares nothing with any."""
    pairs = held_out_pairs.Pairs("de", ("ab", "cd", "xy", "gh"), ("ab", "cd", "ef", "zz"))
    one = RetrievalFloors({"de": pairs})
    # Among equals the first wins: "ef" and "zz" find "ab".
    values = {"a": {"kind": "perplexity"}, "b": {"kind": "retrieval", "retrieval_mean": 0.75}}
    assert one.verdict(values) == "retrieval 75.0 % is above TF-IDF 50.0 %"
    assert one.verdict({}) == ""


def test_training_pairs_are_read_from_either_order_and_joined(tmp_path):
    from xlingjax.data.held_out_pairs import pairs_with_pivot

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
    found = pairs_with_pivot([str(tmp_path / "*")])
    assert found["de"].foreign == ("eins", "zwei", "drei")
    assert found["de"].english == ("one", "two", "three")
    assert found["fr"].foreign == ("quatre",) and found["fr"].english == ("four",)
    assert set(found) == {"de", "fr"}
    assert found["de"].pivot == "en"


def test_without_english_the_pivot_is_the_language_of_most_pairs(tmp_path):
    from xlingjax.data.held_out_pairs import read_pairs

    for name in ("de-fr", "fr-kab", "de-kab"):
        for code in name.split("-"):
            (tmp_path / f"{name}.{code}").write_text(f"{code} 1\n{code} 2\n", encoding="utf-8")
    # Each has two: the last by name.
    found = read_pairs(tmp_path)
    assert {*found} == {"de", "fr"} and {one.pivot for one in found.values()} == {"kab"}
    assert found["de"].foreign == ("de 1", "de 2") and found["de"].english == ("kab 1", "kab 2")
    (tmp_path / "de-kab.de").unlink()
    (tmp_path / "de-kab.kab").unlink()
    assert {one.pivot for one in read_pairs(tmp_path).values()} == {"fr"}

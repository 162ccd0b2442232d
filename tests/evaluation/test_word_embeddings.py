import json

import numpy as np
import pytest

from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.evaluation import word_embeddings as we

WORDS = ("red", "blue", "rot", "blau", "dark", "tief")


class Words:
    """Words of WORDS are one piece, their compounds ("darkblue") two, other letters unknown; a
    space alone is one."""

    unk_id = 0

    def encode(self, text):
        ids, at = [], 0
        while at < len(text):
            word = next((word for word in WORDS if text.startswith(word, at)), None)
            ids.append(WORDS.index(word) + 1 if word else 7 if text[at] == " " else self.unk_id)
            at += len(word or text[at])
        return ids

    def decode(self, ids):
        return "".join(["?", *WORDS, " "][i] for i in ids)


TABLE = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)


def row(word):
    return TABLE[WORDS.index(word) + 1].astype(np.float64)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_words_of_one_piece_and_means_of_pieces():
    words = ["red", "darkblue", "dark blue", "green", "red", " "]
    single = we.word_vectors(words, Words(), TABLE)
    assert list(single) == ["red"] and (single["red"] == TABLE[1]).all()
    mean = we.word_vectors(words, Words(), TABLE, "mean")
    assert list(mean) == ["red", "darkblue", "dark blue"]  # an unknown letter: no vector
    for word in ("darkblue", "dark blue"):  # the space between has no part in it
        np.testing.assert_allclose(mean[word], (row("dark") + row("blue")) / 2, rtol=1e-6)
    with pytest.raises(UserError, match="'sum' is not one of single, mean"):
        we.word_vectors(words, Words(), TABLE, "sum")


def test_a_word_and_itself():
    found = we.score_dictionary([("red", "red"), ("blue", "blue")], Words(), TABLE)
    assert found["cosine"] == pytest.approx(1) and found["l2"] == 0 and found["spelled_alike"] == 1
    assert found["p_at_1_nearest"] == found["p_at_1_csls"] == 1


def test_a_dictionary_by_hand():
    pairs = [("red", "rot"), ("blue", "blau"), ("blue", "tief"), ("green", "rot")]
    pairs += [("dark", "dunkel"), ("darkblue", "blau")]
    found = we.score_dictionary(pairs, Words(), 3 * TABLE)
    assert (found["pairs"], found["covered"], found["coverage"], found["words"]) == (6, 3, 0.5, 2)
    kept = [(row(a), row(b)) for a, b in pairs[:3]]
    assert found["cosine"] == pytest.approx(np.mean([cosine(a, b) for a, b in kept]), rel=1e-5)
    assert found["l2"] == pytest.approx(
        3 * np.mean([np.linalg.norm(a - b) for a, b in kept]), rel=1e-5
    )  # as they are
    assert found["spelled_alike"] == 0
    nothing = we.score_dictionary([("green", "gelb")], Words(), TABLE)
    assert nothing["coverage"] == 0 and nothing["cosine"] is nothing["p_at_1_csls"] is None


def test_csls_sets_hubs_back():
    """rot is nearest to both words; blau, near to one alone, is what CSLS gives it."""
    angle = {"red": 0, "blue": 40, "rot": 15, "blau": 70}
    table = np.zeros((8, 2), np.float32)
    for word, degrees in angle.items():
        table[WORDS.index(word) + 1] = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    found = we.score_dictionary([("red", "rot"), ("blue", "blau")], Words(), table)
    assert found["p_at_1_nearest"] == 0.5
    cosines = np.array([[cosine(table[i], table[j]) for j in (3, 4)] for i in (1, 2)])
    csls = 2 * cosines - cosines.mean(axis=0)
    assert csls.argmax(axis=1).tolist() == [0, 1] and found["p_at_1_csls"] == 1


def test_words_without_vectors_get_the_mean_cosine():
    rows = [("red", "rot", 3.0), ("blue", "blau", 1.0), ("dark", "tief", 2.0)]
    rows.append(("green", "rot", 0.0))
    found = we.score_similarity(rows, Words(), TABLE)
    cosines = [cosine(row(a), row(b)) for a, b, _ in rows[:3]]
    gold = [score for _, _, score in rows]
    assert (found["pairs"], found["covered"], found["coverage"]) == (4, 3, 0.75)
    assert found["pearson"] == pytest.approx(
        np.corrcoef([*cosines, np.mean(cosines)], gold)[0, 1], rel=1e-5
    )
    assert found["pearson_covered"] == pytest.approx(np.corrcoef(cosines, gold[:3])[0, 1], rel=1e-5)
    ranks = [np.argsort(np.argsort(x)) for x in (cosines, gold[:3])]
    assert found["spearman_covered"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    alone = we.score_similarity(rows[3:], Words(), TABLE)
    assert alone["pearson"] is None and alone["coverage"] == 0


def test_pearson_is_invariant_to_affine_rescaling():
    x, y = np.random.default_rng(1).normal(size=(2, 30))
    for scaled in (4 * x + 7, 0.1 * x - 3):
        assert we.correlations(scaled, y) == pytest.approx(we.correlations(x, y))
    assert we.correlations(-x, y)[0] == pytest.approx(-we.correlations(x, y)[0])
    assert we.correlations(np.ones(30), y) == (None, None)


def test_reading_dictionaries(tmp_path):
    path = tmp_path / "en-de.txt"
    path.write_text("red\trot\nblue blau\n\nice cream\tEis\nred\trot\n", "utf-8")
    assert we.read_dictionary(path) == [("red", "rot"), ("blue", "blau"), ("ice cream", "Eis")]
    for bad in ("red\t\n", "ice cream Eis\n", "red\trot\t1\n"):
        path.write_text("blue\tblau\n" + bad, "utf-8")
        with pytest.raises(UserError, match="en-de.txt, line 2: .* a word, a tab and its transl"):
            we.read_dictionary(path)


def test_reading_similarities(tmp_path):
    path = tmp_path / "en-de.test.txt"
    path.write_text("red\trot\t3.5\nice cream\tEis\t4\n", "utf-8")
    assert we.read_similarity(path) == [("red", "rot", 3.5), ("ice cream", "Eis", 4.0)]
    for bad in ("red\trot", "red\trot\tx", "red\trot\tnan", "red\t\t1"):
        path.write_text(f"blue\tblau\t1\n{bad}\n", "utf-8")
        with pytest.raises(UserError, match="en-de.test.txt, line 2: .* is not a word, a word and"):
            we.read_similarity(path)


def test_the_command(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from xlingjax.workflows.files import words

    run = SimpleNamespace(
        params={"embeddings": {"tokens": {"embedding": TABLE}}}, vocabulary=Words()
    )
    run.vocabulary.sha256 = "words"
    monkeypatch.setattr(words, "open_run", lambda path: run)
    (tmp_path / "a.txt").write_text("red\trot\nblue\tgrau\n")
    (tmp_path / "b.txt").write_text("red\trot\t3\nblue\tblau\t1\ndark\ttief\t2\n")
    given = {"dictionary": f"en-de={tmp_path}/a.txt", "similarity": f"en-de={tmp_path}/b.txt"}
    given["to"] = f"{tmp_path}/out.json"
    options = [f"--{name}={value}" for name, value in given.items()]
    assert main.main(["words", "runs/x", *options]) == 0
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["dictionary"]["en-de"] == we.score_dictionary(
        [("red", "rot"), ("blue", "grau")], Words(), TABLE
    )
    assert written["similarity"]["en-de"]["covered"] == 3 and written["pieces"] == "single"

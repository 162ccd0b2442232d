import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError
from xlingjax.evaluation import alignment
from xlingjax.inference import encode


class Characters(toy.ToyVocabulary):
    """A piece per character, and one of two characters: "ab". Spaces are pieces of their own."""

    def encode_with_spans(self, text):
        spans, i = [], 0
        while i < len(text):
            step = 2 if text[i : i + 2] == "ab" else 1
            spans.append((i, i + step))
            i += step
        return [14 + ord(text[begin]) % 26 for begin, _ in spans], spans

    def encode(self, text):
        return self.encode_with_spans(text)[0]


def test_pieces_belong_to_the_word_they_begin_in():
    ids, owners = pieces_of_words(["cab", "ab", "d"], "de", Characters())
    assert owners == [0, 0, 1, 1, 2, 2] and ids == Characters().encode(
        "cab ab d"
    )  # c ab | space ab | space d
    ids, owners = pieces_of_words(["ca", "b", "d"], "zh", Characters())  # read as "cabd"
    assert owners == [0, 0, 2]  # "ab" covers words 0 and 1
    apart, owners = pieces_of_words(["ca", "b", "d"], "zh", Characters(), apart=True)  # c a | b | d
    assert owners == [0, 0, 1, 2] and len(apart) == 4 and [apart[0], apart[3]] == [ids[0], ids[2]]
    alone = pieces_of_words(["cab", "ab", "d"], "de", Characters(), apart=True)  # c ab | ab | d
    assert alone[1] == [0, 0, 1, 2] and alone[0] == ids_of("cababd")


def ids_of(text):
    return Characters().encode(text)


def simalign(similarity):
    """SimAlign's published IterMax with two rounds, written out pair by pair."""
    rows, columns = similarity.shape
    first = [
        (i, j)
        for i in range(rows)
        for j in range(columns)
        if similarity[i].argmax() == j and similarity[:, j].argmax() == i
    ]
    left, right = {i for i, _ in first}, {j for _, j in first}
    if len(left) == rows or len(right) == columns:
        return set(first)
    weighted = similarity.copy()
    for i in range(rows):
        for j in range(columns):
            weighted[i, j] *= (1, 0.9, 0)[(i in left) + (j in right)]
    second = [
        (i, j)
        for i in range(rows)
        for j in range(columns)
        if weighted[i].argmax() == j
        and weighted[:, j].argmax() == i
        and not (i in left and j in right)
    ]
    return set(first) | set(second)


def test_itermax_is_simaligns():
    more = 0
    for seed in range(40):
        similarity = np.random.default_rng(seed).uniform(0.05, 1, (5, 6))
        found, once = (
            {tuple(link) for link in np.argwhere(method(similarity)).tolist()}
            for method in (alignment.itermax, alignment.argmax_intersection)
        )
        assert found == simalign(similarity) and once <= found
        more += found != once
    assert more > 10


def test_words_are_linked_where_a_piece_is():
    similarity = np.array([[0.9, 0.1, 0.0], [0.2, 0.1, 0.8], [0.3, 0.7, 0.1]])
    one = alignment.Alignment(similarity, [0, 0, 1], [0, 0, 1])
    assert one.links("intersection") == {(0, 0), (0, 1), (1, 0)}
    assert alignment.pharaoh(one.links("intersection")) == "0-0 0-1 1-0"
    with pytest.raises(UserError, match="itermax"):
        one.links("best")


def test_error_rate():
    found, gold = [{(0, 0), (1, 1)}, {(0, 1)}], [{(0, 0), (1, 2), (2, 2)}, {(0, 1)}]
    assert alignment.error_rate(found, gold) == pytest.approx(1 - 2 * 2 / (3 + 4))
    assert alignment.error_rate(gold, gold) == 0


def test_pharaoh_lines_are_read_back(tmp_path):
    path, links = tmp_path / "gold.txt", {(0, 0), (2, 11)}
    path.write_text(f"0-1\n{alignment.pharaoh(links)}\n")
    words = [("ab", "abc"), ("abc", "abcdefghijkl")]
    assert alignment.read_links(path, words) == [{(0, 1)}, links]
    with pytest.raises(UserError, match="gold.txt, line 2: link 2-11 of sentences of 12 and 3"):
        alignment.read_links(path, [pair[::-1] for pair in words])
    path.write_text("0-0\n0-0 1:1\n")
    with pytest.raises(UserError, match="gold.txt, line 2: '0-0 1:1' is no alignment"):
        alignment.read_links(path, words)


def test_states_are_those_of_each_sentence_alone(monkeypatch):
    run = toy.run()
    rows = [[1, 20, 21, 22, 1], [1, 31, 1], list(range(14, 40))]

    def states_of(rows, layer, **options):
        return alignment.token_states(run, rows, "de", [layer], **options)

    monkeypatch.setattr(encode, "BUCKETS", (4, 8))
    states = states_of(rows, 1, tokens_per_batch=16)
    monkeypatch.setattr(encode, "BUCKETS", (8,))
    (alone,), (top,) = (states_of(rows[:1], layer) for layer in (1, 2))
    np.testing.assert_allclose(states[0], alone, atol=1e-5)
    assert [h.shape[:2] for h in states] == [(1, 5), (1, 3), (1, 8)]  # cut at the last bucket
    assert np.abs(top - alone).max() > 1e-3


def test_a_sentence_aligns_with_itself():
    words = ["abc", "de", "fgh"]
    run = toy.run(vocabulary=Characters())
    ((found,),) = alignment.align(run, [(words, words)], ("de", "de"), [0])
    assert {(i, i) for i in range(3)} <= found.links("intersection")
    np.testing.assert_allclose(np.diag(found.similarity), 1, atol=1e-5)


def test_the_probe_measures_every_layer_and_names_the_best(tmp_path):
    (tmp_path / "de-en.de").write_text("abc de fgh\nde ij\n")
    (tmp_path / "de-en.en").write_text("abc de fgh\nde ij\n")
    (tmp_path / "de-en.txt").write_text("0-0 1-1 2-2\n0-0 1-0\n")
    gold = alignment.read_gold(tmp_path, toy.LANGUAGES)
    values = alignment.AlignmentEvaluator(gold, Characters(), toy.LANGUAGES)(*toy.model(), 0)
    assert set(values["by_layer"]) == {"0", "1", "2"} and set(values["by_language"]) == {"de"}
    lowest = min(layer["itermax"] for layer in values["by_layer"].values())
    best = values["by_layer"][str(values["alignment_best_layer"])]["itermax"]
    assert values["alignment_error"] == lowest == best
    assert 0 < values["alignment_error_intersection"] < 0.7
    with pytest.raises(UserError, match="no gold alignments"):
        alignment.read_gold(tmp_path, ["fr"])
    (tmp_path / "de-en.txt").write_text("0-0\n")
    with pytest.raises(UserError, match="de-en.txt has 1 lines for 2 pairs"):
        alignment.read_gold(tmp_path, toy.LANGUAGES)

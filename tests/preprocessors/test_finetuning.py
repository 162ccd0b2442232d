import numpy as np
import pytest

from tests.helpers import own_files, toy
from xlingjax.data.features import FIELDS, batch_hash, check_batch
from xlingjax.errors import UserError
from xlingjax.objectives.finetuning import Classification
from xlingjax.preprocessors import finetuning as ft

LABELS = ("contradiction", "entailment", "neutral")


def truncate_token_by_token(first, second, budget):
    """The loop that the closed form stands for."""
    while first + second > budget:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def pair_row(first, second, vocabulary, length, reset_positions=False):
    """One row of pieces; second: None: a single text."""
    texts = ft.joined([first]), ft.joined([second or []])
    rows = ft.pair_rows(*texts, vocabulary, length, reset_positions, single=second is None)
    return {name: values[0] for name, values in rows.items()}


def test_truncation_takes_from_the_longer_side():
    lengths = [(first, second) for first in range(12) for second in range(12)]
    vocabulary = toy.ToyVocabulary()
    texts = [ft.joined([[20 + side] * pair[side] for pair in lengths]) for side in (0, 1)]
    for budget in range(2, 14):
        ids = ft.pair_rows(*texts, vocabulary, budget + 3)["input_ids"]
        kept = [((row == 20).sum(), (row == 21).sum()) for row in ids]
        assert kept == [truncate_token_by_token(*pair, budget) for pair in lengths]


@pytest.mark.parametrize(
    "layout, ids, sides",
    [
        ("xlm", [1, 30, 31, 1, 40, 1, 2, 2], [0, 0, 0, 0, 1, 1, 0, 0]),  # </s> A </s> B </s>
        ("xlmr", [0, 30, 31, 2, 2, 40, 2, 1], [0, 0, 0, 0, 1, 1, 1, 0]),  # <s> A </s></s> B </s>
    ],
)
def test_pair_layouts(layout, ids, sides):
    row = pair_row([30, 31], [40], toy.ToyVocabulary(layout), 8)
    length = len(ids) - ids.count(toy.ToyVocabulary(layout).pad_id)
    assert row["input_ids"].tolist() == ids
    assert row["position_ids"].tolist() == [*range(length)] + [0] * (
        8 - length
    )  # no restart at the second text
    assert row["pack_ids"].tolist() == [1] * length + [0] * (8 - length)
    assert row["sides"].tolist() == sides


@pytest.mark.parametrize(
    "layout, ids", [("xlm", [1, 30, 31, 1, 1, 40, 1, 2]), ("xlmr", [0, 30, 31, 2, 2, 40, 2, 1])]
)
def test_positions_that_restart_make_the_row_of_tlm(layout, ids):
    row = pair_row([30, 31], [40], toy.ToyVocabulary(layout), 8, reset_positions=True)
    assert row["input_ids"].tolist() == ids
    assert row["position_ids"].tolist() == [0, 1, 2, 3, 0, 1, 2, 0]
    assert row["sides"].tolist() == [0, 0, 0, 0, 1, 1, 1, 0]
    assert row["pack_ids"].tolist() == [1] * 7 + [0]
    with pytest.raises(UserError, match="between 4 separators: use at least 6"):
        pair_row([20], [21], toy.ToyVocabulary(layout), 5, reset_positions=True)


def test_long_pairs_and_single_texts():
    vocabulary = toy.ToyVocabulary()
    row = pair_row([*range(20, 30)], [31, 32], vocabulary, 8)
    assert row["input_ids"].tolist() == [1, 20, 21, 22, 1, 31, 32, 1]
    row = pair_row([20, 21, 22], None, vocabulary, 4)
    assert row["input_ids"].tolist() == [1, 20, 21, 1] and not row["sides"].any()
    with pytest.raises(
        UserError, match="length 4 leaves no room for a pair between 3 separators: use at least 5"
    ):
        pair_row([20], [21], vocabulary, 4)


def by_hand(first, second, vocabulary, length, reset):
    """One row, token by token."""
    bos, eos = vocabulary.bos_id, vocabulary.eos_id
    between = [] if second is None or (vocabulary.layout == "xlm" and not reset) else [eos]
    ends = 2 if second is None else 3 + len(between)
    a, b = truncate_token_by_token(len(first), len(second or ()), length - ends)
    ids = [bos, *first[:a], eos]
    turn = len(ids)
    if second is not None:
        ids += [*between, *second[:b], eos]
    used = len(ids)
    positions = [*range(turn), *(range(used - turn) if reset else range(turn, used))]
    pads = [0] * (length - used)
    return {
        "input_ids": ids + [vocabulary.pad_id] * len(pads),
        "position_ids": positions + pads,
        "pack_ids": [1] * used + pads,
        "sides": [0] * turn + [1] * (used - turn) + pads,
    }


@pytest.mark.parametrize("layout", ["xlm", "xlmr"])
@pytest.mark.parametrize("reset", [False, True])
def test_all_rows_of_a_file_are_those_of_its_examples_one_by_one(layout, reset):
    vocabulary = toy.ToyVocabulary(layout)
    texts = ["", "a", "a b c d e f g"]
    examples = [ft.Example(a, b, "x") for a in texts for b in (*texts, None)]
    for length in (6, 7, 12):
        made = ft.classification_rows(examples, vocabulary, length, ("y", "x"), 2, reset)
        for row, one in enumerate(examples):
            second = None if one.hypothesis is None else vocabulary.encode(one.hypothesis)
            first = vocabulary.encode(one.premise)
            for name, values in by_hand(first, second, vocabulary, length, reset).items():
                np.testing.assert_array_equal(made[name][row], values, err_msg=name)
        np.testing.assert_array_equal(made["language_ids"], 2 * made["pack_ids"])
        assert made["labels"].tolist() == [1] * len(examples) and made["example_weights"].all()


@pytest.mark.parametrize(("count", "threads"), [(1023, 1), (1024, 5)])
def test_many_texts_are_tokenised_by_several_threads(count, threads, monkeypatch):
    monkeypatch.setattr(ft, "default_processes", lambda: 5)
    asked = []

    class Watched(toy.ToyVocabulary):
        def encode_lines(self, lines, threads=1):
            asked.append((len(lines), threads))
            return super().encode_lines(lines, threads)

    ft.classification_rows([ft.Example("a", "b", "x")] * count, Watched(), 6, ("x",), 0)
    assert asked == [(count, threads)] * 2


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for language, count in (("en", 11), ("de", 4)):
        texts = toy.sentences(2 * count, seed=count, longest=5)
        lines = [
            f"{texts[2 * i]}\t{texts[2 * i + 1]}\t{rng.choice(LABELS)}\n" for i in range(count)
        ]
        write(tmp_path / f"{language}.tsv", "".join(lines))
    return {language: tmp_path / f"{language}.tsv" for language in ("en", "de")}


def make(files, **options):
    options = dict(labels=LABELS, length=16, batch_size=4, seed=5) | options
    return own_files.source("classification", files, vocabulary=toy.ToyVocabulary(), **options)


def test_every_epoch_has_every_example_once_in_another_order(files):
    source = make(files, batch_size=5)
    batches = [source.next() for _ in range(6)]
    for batch in batches:
        check_batch(batch, Classification(3).reads, source.shapes)
    rows = [tuple(ids) for batch in batches for ids in batch["input_ids"].tolist()]
    assert len(set(rows[:15])) == 15 and set(rows[:15]) == set(rows[15:]) and rows[:15] != rows[15:]
    languages = np.concatenate([batch["language_ids"][:, 0] for batch in batches[:3]])
    assert sorted(languages) == [0] * 4 + [1] * 11  # de = 0, en = 1 of the run's de, en, fr
    assert len(set(languages[:5])) == 2 or len(set(languages[5:10])) == 2  # languages are mixed


def rows_of(source, batches: int):
    return [
        tuple((name, values[i].tobytes()) for name, values in sorted(batch.items()))
        for batch in (source.next() for _ in range(batches))
        for i in range(len(batch["labels"]))
    ]


def test_an_epoch_has_each_example_in_each_language_once_and_batches_mix_languages(tmp_path):
    texts = toy.sentences(240, seed=3, longest=5)
    for language in toy.LANGUAGES:  # the labels tell the examples apart
        lines = [
            f"{a}\t{b}\t{i}\n" for i, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True))
        ]
        write(tmp_path / f"{language}.tsv", "".join(lines))
    files = {language: tmp_path / f"{language}.tsv" for language in toy.LANGUAGES}
    source = make(files, labels=[str(i) for i in range(120)], batch_size=12)
    batches = [source.next() for _ in range(30)]
    seen = [
        (i, g) for b in batches for i, g in zip(b["labels"], b["language_ids"][:, 0], strict=True)
    ]
    assert sorted(seen) == [(i, g) for i in range(120) for g in range(3)]
    assert all(len({*batch["language_ids"][:, 0]}) > 1 for batch in batches)
    apart = [np.argsort([i for i, g in seen if g == language]) for language in range(3)]
    assert (
        abs(np.corrcoef(apart)[np.triu_indices(3, 1)]).max() < 0.3
    )  # an example is not beside its translations


@pytest.mark.parametrize("seed", [5, 6])
def test_without_the_other_languages_translate_train_all_is_zero_shot_training_bit_for_bit(
    files, seed
):
    alone = rows_of(make({"en": files["en"]}, seed=seed), 8)  # 32 rows of 11: nearly three epochs
    both = rows_of(make(files, seed=seed, batch_size=5), 9)  # 45 rows of 15: three
    english = [row for row in both if np.frombuffer(dict(row)["language_ids"], np.int32)[0] == 1]
    assert len(english) == 33 and english[:32] == alone


def test_a_single_text_and_a_text_without_a_label():
    vocabulary = toy.ToyVocabulary()
    examples = [
        ft.Example("a b", "c", "neutral"),
        ft.Example("a b c", None, "entailment"),
        ft.Example("d", None, None),
    ]
    rows = ft.classification_rows(examples, vocabulary, 8, LABELS, 1)
    assert (
        rows["input_ids"][1].tolist() == [1, 14, 15, 16, 1, 2, 2, 2] and not rows["sides"][1:].any()
    )
    assert rows["labels"].tolist() == [2, 1, 0] and rows["example_weights"].tolist() == [1, 1, 0]


def test_the_position_restores_exactly(files):
    source = make(files)
    for _ in range(5):
        source.next()
    state = source.state()
    expected = [batch_hash(source.next()) for _ in range(6)]  # over the end of an epoch
    again = make(files)
    again.restore(state)
    assert [batch_hash(again.next()) for _ in range(6)] == expected
    assert batch_hash(make(files, seed=6).next()) != batch_hash(make(files).next())


def test_identity_and_strange_languages(files):
    source = make(files)
    assert source.languages == toy.LANGUAGES and source.identity["labels"] == list(LABELS)
    assert source.identity["vocabulary"] == "toy-xlm" and source.identity["examples"] == 15
    assert all(FIELDS[name].dtype == values.dtype for name, values in source.next().items())
    with pytest.raises(UserError, match="language 'zh' is not one of the run's"):
        make({"zh": files["de"]})


def test_the_identity_tells_the_text(files):
    """The same number of examples with another text is other data."""
    before = make(files).identity
    assert before == make(files).identity
    path = next(iter(files.values()))
    first, *rest = path.read_text().splitlines()
    premise, hypothesis, label = first.split("\t")
    path.write_text(
        "\n".join(["\t".join([hypothesis + " " + premise, premise, label]), *rest]) + "\n"
    )
    after = make(files).identity
    assert {name for name in before if before[name] != after[name]} == {"digest"}


# --- Tagged sentences -----------------------------------------------------------------------------

TAGS = ("B-X", "I-X", "O")


class Spelled(toy.ToyVocabulary):
    """A piece per letter."""

    def encode(self, text):
        return [20 + "abcdefgh".index(letter) for letter in text.replace(" ", "")]


def tagged(words, tags=()):
    return ft.Tagged(tuple(words), tuple(tags))


@pytest.fixture
def by_letter(monkeypatch):
    """Words of letters, the pieces of a tokenizer aside."""

    def pieces_of_words(words, language, vocabulary, apart, marks):
        ids = [piece for word in words for piece in vocabulary.encode(word)]
        return ids, [number for number, word in enumerate(words) for _ in word]

    monkeypatch.setattr(ft, "pieces_of_words", pieces_of_words)
    return Spelled()


def test_a_sentence_goes_on_in_the_next_row_and_no_word_stands_in_two(by_letter):
    sentences = [
        tagged(["ab", "cd", "e"]),
        tagged(["abc", "abcdefgh", "a"]),
        tagged([]),
        tagged(["abcd"]),
    ]
    parts = ft.tagged_parts(sentences, by_letter, 6, "en")
    assert [(number, owners) for number, _, owners in parts] == [
        (0, [0, 0, 1, 1]),
        (0, [2]),
        (1, [0, 0, 0]),
        (1, [1, 1, 1, 1]),  # of a longer word the first pieces
        (1, [2]),
        (2, []),
        (3, [0, 0, 0, 0]),
    ]
    assert [ids for _, ids, _ in parts[:4]] == [
        [20, 21, 22, 23],
        [24],
        [20, 21, 22],
        [20, 21, 22, 23],
    ]
    with pytest.raises(UserError, match="length 2 leaves no room"):
        ft.tagged_parts(sentences, by_letter, 2, "en")
    assert len(ft.tagged_parts(sentences[3:], by_letter, 3, "en")) == 1


@pytest.mark.parametrize(
    ("pieces", "labels", "weights"),
    [
        ("first", [0, 0, 0, 1, 2, 0, 0, 0], [0, 1, 0, 1, 1, 0, 0, 0]),
        ("all", [0, 0, 1, 1, 2, 2, 2, 0], [0, 1, 1, 1, 1, 1, 1, 0]),
    ],
)
def test_tags_stand_at_first_pieces_or_at_all(by_letter, pieces, labels, weights):
    sentences = [tagged(["ab", "c", "ade"], ["B-X", "I-X", "O"]), tagged(["a"])]
    rows, _ = ft.tagged_rows(sentences, by_letter, 9, TAGS, "en", 3, pieces=pieces)
    pad = by_letter.pad_id
    ids = [by_letter.bos_id, 20, 21, 22, 20, 23, 24, by_letter.eos_id, pad]
    assert rows["input_ids"].tolist()[0] == ids
    assert rows["tag_labels"].tolist() == [[*labels, 0], [0] * 9]
    assert rows["tag_weights"].tolist() == [[*weights, 0], [0] * 9]
    used = [[1] * 8 + [0], [1] * 3 + [0] * 6]
    assert rows["pack_ids"].tolist() == used
    assert rows["position_ids"].tolist() == [[*range(8), 0], [0, 1, 2] + [0] * 6]
    assert rows["language_ids"].tolist() == [[3 * one for one in row] for row in used]
    assert not rows["sides"].any()
    with pytest.raises(UserError, match="tag 'O' is not one of B-X, I-X"):
        ft.tagged_rows(sentences, by_letter, 9, TAGS[:2], "en", 3)

"""Wrong partners: never a translation, others in every epoch and under every seed, the same again
for the same."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.hosts import as_host
from tests.helpers.plans import BOS, EOS, PAD, side
from tests.helpers.text import file_source
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.left_out import LeftOut
from xlingjax.data.rows.paraphrases import mined_rows, paraphrase_rows
from xlingjax.data.rows.partners import Translations
from xlingjax.data.rows.plan import RowReader
from xlingjax.data.store.tokenise import Records
from xlingjax.errors import UserError
from xlingjax.preprocessors.unicoder import ClpcFeatures

pytestmark = pytest.mark.usefixtures("own_cache")


def records(pairs):
    return Records(("de", "en"), tuple(side(*(pair[i] for pair in pairs)) for i in (0, 1)))


def read(text, rows, length, step, seed=0):
    """[(x, y, label, positions, sides)] of all rows in a batch; None: as they were planned."""
    vocabulary = SimpleNamespace(pad_id=PAD, bos_id=BOS, eos_id=EOS)
    reader = RowReader.of_records(text, rows, (0, 1), length, vocabulary)
    numbers = np.arange(rows.count)
    fields = reader(numbers, None if step is None else Draws(seed, step, rows.count))
    found = []
    for row in numbers:
        real = fields["pack_ids"][row] > 0
        assert (fields["language_ids"][row] == fields["sides"][row])[real].all()
        texts = []
        for number in (0, 1):
            of_side = real & (fields["sides"][row] == number)
            ids_of_side = fields["input_ids"][row][of_side].tolist()
            assert ids_of_side[-1] == EOS and ids_of_side[0] == (BOS, EOS)[number]
            texts.append(tuple(ids_of_side[1:-1]))
        positions = fields["position_ids"][row][real].tolist()
        found.append((*texts, int(fields["labels"][row]), positions))
    return found


def distinct(count):
    return [([100 + i] * (1 + i % 4), [500 + i] * (1 + i % 5)) for i in range(count)]


@pytest.mark.parametrize("negatives", [1, 3])
@pytest.mark.parametrize("reset", [True, False])
def test_partners_are_new_in_every_epoch_and_under_every_seed(negatives, reset):
    pairs = distinct(60)
    text = records(pairs)
    rows = paraphrase_rows(text, 16, negatives=negatives, reset_positions=reset)
    right = {tuple(x): tuple(y) for x, y in pairs}
    drawn = {}
    for key in [(0, 0), (0, 1), (0, 2), (1 << 52, 0), (0, 0)]:
        seed, epoch = key
        found = read(text, rows, 16, epoch, seed)
        assert len(found) == 2 * 60 * negatives
        wrong = [(x, y) for x, y, label, _ in found if not label]
        assert [x for x, _ in wrong] == [x for x, _, label, _ in found if label]
        assert all(right[x] == y for x, y, label, _ in found if label)
        assert all(right[x] != y and y in right.values() for x, y in wrong)
        # Those of one x differ.
        assert len({*wrong}) == len(wrong)
        for x, y, _, positions in found:
            second = 0 if reset else len(x) + 2
            assert positions == [*range(len(x) + 2), *range(second, second + len(y) + 2)]
        # Nothing of y tells the label: each is drawn about as often as it is right.
        counts = [sum(y == other for _, other in wrong) for y in right.values()]
        assert sum(counts) == 60 * negatives
        assert np.std(counts) < 1.4 * np.sqrt(negatives)
        if key in drawn:
            assert wrong == drawn[key]
        drawn[key] = wrong
    drawn["planned"] = [(x, y) for x, y, label, _ in read(text, rows, 16, None) if not label]
    every = list(drawn.values())
    for i, one in enumerate(every):
        for other in every[:i]:
            # Of 60 one is the same by chance.
            same = sum(a == b for a, b in zip(one, other, strict=True))
            assert same <= 8 * negatives


def test_no_partner_translates_the_sentence_anywhere():
    """11 is translated by 51 and by 52, and 52 translates 12 as well. 30 to 33 are a chain of
    paraphrases in one language, which stand on both sides."""
    pairs = [([11], [51]), ([11], [52]), ([12], [52]), ([12], [52])]
    pairs += [([30], [31]), ([31], [32]), ([33], [30]), *distinct(4)]
    translated = {(tuple(x), tuple(y)) for x, y in pairs}
    translated |= {(y, x) for x, y in translated}
    text = records(pairs)
    rows = paraphrase_rows(text, 16)
    beside = set()
    for epoch in [None, *range(40)]:
        found = read(text, rows, 16, epoch)
        for x, y, label, _ in found:
            assert ((x, y) in translated) == label and x != y
        beside |= {y for x, y, label, _ in found if x == (11,) and not label}
    # All others are drawn, only never 51 and 52.
    assert beside == {(30,), (31,), (32,)} | {tuple(y) for _, y in distinct(4)}
    known = Translations(np.array([[0, 9, 0], [0, 8, 0], [1, 8, 0], [2, 7, 0]]), np.full((4, 2), 3))
    every = np.arange(4)
    wrong = [known.wrong(np.full(4, x), every, 6).tolist() for x in range(4)]
    assert wrong == [
        [False, False, False, True],
        [False, False, False, True],
        [True, False, False, True],
        [True, True, True, False],
    ]
    assert not known.wrong(np.zeros(4, int), every, 5).any()


def test_a_row_has_room_for_every_partner():
    """A long y beside a short x alone: rows of 12 tokens, four of them not text."""
    pairs = [([100 + i] * 2, [500 + i] * 2) for i in range(9)]
    pairs += [([200 + i] * 2, [600 + i] * 6) for i in range(9)]
    pairs += [([300 + i] * 6, [700 + i] * 2) for i in range(9)]
    text = records(pairs)
    rows = paraphrase_rows(text, 12)
    assert rows.count == 54
    # Each with its end.
    tokens = sum(len(x) + len(y) + 2 for x, y in pairs)
    assert rows.left_out == LeftOut(0, 27, 0, tokens)
    for epoch in range(20):
        for x, y, *_ in read(text, rows, 12, epoch):
            assert len(x) + len(y) <= 8


def test_where_draws_find_none_the_planned_partner_stays(monkeypatch):
    text = records(distinct(9))
    rows = paraphrase_rows(text, 16)
    planned = read(text, rows, 16, None)
    assert read(text, rows, 16, 3) != planned
    monkeypatch.setattr(Translations, "wrong", lambda self, x, y, length: np.zeros(x.size, bool))
    assert read(text, rows, 16, 3) == planned


def test_text_of_one_pair_or_of_equal_ones_has_no_rows():
    for pairs in ([([11], [51])], [([11], [51])] * 5, [([11], []), ([], [51])]):
        text = records(pairs)
        rows = paraphrase_rows(text, 16, negatives=2)
        whole = sum(bool(x and y) for x, y in pairs)
        assert rows.count == 0 and rows.passes == 4
        assert rows.left_out == LeftOut(whole, whole, 4 * whole, 4 * whole)


def test_that_no_pair_has_a_wrong_partner_is_said(tmp_path, vocabulary):
    for code, line in (("de", "Simon stahl die Harfe."), ("en", "Simon stole the harp.")):
        (tmp_path / f"de-en.{code}").write_text(f"{line}\n" * 3, encoding="utf-8")
    said = r"fits rows of 64 tokens beside a wrong partner \(give more pairs, or NEGATIVES\)"
    with pytest.raises(UserError, match=said):
        file_source(ClpcFeatures(), vocabulary, 2, 64, parallel=str(tmp_path))


def test_mined_partners_are_the_same_in_every_epoch():
    three = (side([11], [12], [13]), side([51], [52], [53]), side([52], [52], [51]))
    text = Records(("de", "en", "en"), three)
    rows = mined_rows(text, 16)
    planned = read(text, rows, 16, None)
    # The second says what the translation says.
    assert [found[:3] for found in planned] == [
        ((11,), (52,), 0),
        ((11,), (51,), 1),
        ((13,), (51,), 0),
        ((13,), (53,), 1),
    ]
    assert read(text, rows, 16, 5) == planned


@pytest.fixture
def open_source(corpus, vocabulary):
    def opened(**options):
        options = {"batch": 8, "length": 128, "seed": 3, **options}
        parallel = str(corpus / "parallel/de-en.*")
        return file_source(ClpcFeatures(), vocabulary, parallel=parallel, **options)

    return opened


def test_a_run_that_goes_on_and_one_of_several_hosts_draw_alike(open_source):
    whole = open_source()
    # Rows are looked up 512 at a time: behind the first 64 steps, another number of rows a host
    # must not be another draw.
    for _ in range(60):
        whole.next()
    state = whole.state()
    batches = [whole.next() for _ in range(8)]
    parts = []
    for number in (0, 1):
        with as_host(number, 2):
            parts.append(open_source(data_shards=2))
    for source in parts:
        source.restore(state)
    for batch in batches:
        halves = [source.next() for source in parts]
        for name, value in batch.items():
            np.testing.assert_array_equal(value, np.concatenate([half[name] for half in halves]))

import numpy as np
import pytest

from tests.helpers.files import write
from tests.helpers.records import pair_records, text_records
from xlingjax.data.store.entries import cache_root
from xlingjax.data.store.tokenise import tokenise
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

pytestmark = pytest.mark.usefixtures("own_cache")


def tokens(path, vocabulary):
    """Of a text of one shard."""
    (file,) = tokenise(find_text(str(path)), vocabulary)
    (made,) = file
    return made


def test_ids_are_sentences_each_ended_and_blank_lines_empty(tmp_path, vocabulary):
    path = write(tmp_path / "de.txt", "Der Hund schläft.\n\nDie Katze.\n")
    made = tokens(path, vocabulary)
    first, second = vocabulary.encode("Der Hund schläft."), vocabulary.encode("Die Katze.")
    assert made.ids.tolist() == [*first, 1, *second, 1]
    assert made.lengths.tolist() == [len(first) + 1, 0, len(second) + 1] and made.sentences == 2
    assert made.ids.dtype == np.uint16
    texts = [Text(path, "de"), Text(path, "de")]
    (both,) = text_records(texts, vocabulary).sides
    assert both.lengths.tolist() == [*made.lengths, 0, *made.lengths, 0]
    assert both.ids.tolist() == 2 * made.ids.tolist()


def test_each_file_is_tokenised_once_per_content_and_vocabulary(tmp_path, vocabulary, monkeypatch):
    first = tokens(write(tmp_path / "a/de.txt", "Der Hund.\n"), vocabulary)
    with monkeypatch.context() as patched:
        patched.setattr(Vocabulary, "encode_lines", lambda *_: pytest.fail("tokenised again"))
        moved = tokens(write(tmp_path / "b/de.txt", "Der Hund.\n"), vocabulary)
    np.testing.assert_array_equal(moved.ids, first.ids)
    assert len(list((cache_root() / "tokens").iterdir())) == 1
    changed = tokens(write(tmp_path / "b/de.txt", "Die Katze.\n"), vocabulary)
    assert changed.ids.tolist() == [*vocabulary.encode("Die Katze."), 1]


def test_a_text_that_cannot_be_read_leaves_no_half_file(tmp_path, vocabulary):
    path = write(tmp_path / "de.txt", b"gut\nschl\xe4ft\n")
    with pytest.raises(UserError, match="de.txt, line 2: invalid UTF-8"):
        tokens(path, vocabulary)
    assert not list((tmp_path / "cache").rglob("*.npy*"))


def test_train_and_validation_split_the_lines(tmp_path, vocabulary):
    lines = [f"cat {i}" for i in range(32 * 8)]
    text = find_text(str(write(tmp_path / "en.txt", "\n".join(lines))))
    train, held = (text_records(text, vocabulary, 0.25, held=h) for h in (False, True))
    assert (train.sides[0].sentences, held.sides[0].sentences) == (192, 64)
    first_held = vocabulary.encode(lines[96]) + [1]  # blocks 3 and 7 of 8
    assert held.sides[0].ids[: len(first_held)].tolist() == first_held
    with pytest.raises(UserError, match="no en text is held out: the share takes no block of 32"):
        text_records(text, vocabulary, 0.01, held=True)


def test_unequal_sides_and_empty_text_are_named(tmp_path, vocabulary):
    write(tmp_path / "de-en.de", "ja\nnein\nvielleicht\n")
    write(tmp_path / "de-en.en", "yes\nno\n")
    pairs = find_pairs(str(tmp_path / "de-en.de"))
    message = "parallel files differ in length: .*de-en.de has 3 lines, .*de-en.en has 2"
    with pytest.raises(UserError, match=message):
        pair_records(pairs, vocabulary)
    with pytest.raises(UserError, match=message):
        list(pairs[0].lines())
    write(tmp_path / "fr.txt", "\n\n")
    with pytest.raises(UserError, match="empty corpus: no fr text in .*fr.txt"):
        text_records(find_text(str(tmp_path / "fr.txt")), vocabulary)


def test_content_hash_follows_the_text(tmp_path, vocabulary):
    hashes = set()
    for name, text in (("a", "Der Hund.\n"), ("b", "Der Hund.\n"), ("c", "Der\nHund.\n")):
        files = find_text(str(write(tmp_path / name / "de.txt", text)))
        hashes.add(text_records(files, vocabulary).content_hash())
    assert len(hashes) == 2

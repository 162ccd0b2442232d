from types import SimpleNamespace

import pytest

from xlingjax.data.labelled import words as lw
from xlingjax.data.labelled.records import Tagged, learnable
from xlingjax.errors import UserError
from xlingjax.tasks.tables import READERS

NER = SimpleNamespace(labels=("B-LOC", "B-PER", "I-LOC", "I-PER", "O"))
POS = SimpleNamespace(labels=("ADP", "DET", "NOUN", "PUNCT", "VERB"))


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_words_and_tags(tmp_path):
    path = write(tmp_path / "a.tsv", "New\tB-LOC\nYork\tI-LOC\n\n\nit\tO\r\n")
    found = lw.Columns()([path], NER, "en")
    assert found == [Tagged(("New", "York"), ("B-LOC", "I-LOC")), Tagged(("it",), ("O",))]
    assert [sentence.line for sentence in found] == [1, 5]
    assert lw.Columns()([path, path], NER, "en") == 2 * found
    bare = write(tmp_path / "b.tsv", "New\nYork\n\nit")
    assert lw.Columns()([bare], NER, "en") == [Tagged(("New", "York"), ()), Tagged(("it",), ())]


@pytest.mark.parametrize(
    "text, message",
    [
        ("New\tB-LOC\nYork\n", r"x.tsv, line 2: 'York' is not a word and its tag"),
        ("New\nYork\tI-LOC\n", r"x.tsv, line 2: 'York\\tI-LOC' is not a word and its tag"),
        ("\tB-LOC\n", r"x.tsv, line 1: '\\tB-LOC' is not a word and its tag"),
        ("a\tO\n\nNew\tB-LOK\n", r"x.tsv, line 3: unknown label 'B-LOK', expected one of B-LOC"),
        (b"a\tO\n\xe9\tO\n", r"x.tsv, line 2: invalid UTF-8 \(byte 0xe9"),
        ("\n\n", r"x.tsv: no sentences in this file; a line is a word and its tag"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        lw.Columns()([write(tmp_path / "x.tsv", text)], NER, "en")


def test_a_document_ends_a_sentence(tmp_path):
    """XGLUE's script (utils_ner.py): with and without blank lines around."""
    path = write(
        tmp_path / "de.dev",
        "-DOCSTART- O\n\nin O\nNew B-LOC\nYork I-LOC\n-DOCSTART- -X- O O\nsie O\n",
    )
    found = lw.Columns(separator=" ", tag=-1)([path], NER, "de")
    assert [sentence.words for sentence in found] == [("in", "New", "York"), ("sie",)]
    assert found[0].tags == ("O", "B-LOC", "I-LOC") and found[0].line == 3


def test_conll_2003_becomes_bio(tmp_path):
    lines = ["-DOCSTART- -X- O O", ""]
    tags = ["I-LOC", "I-LOC", "O", "I-PER", "I-LOC", "B-LOC", "O", "I-PER"]
    lines += [f"w{i} NN I-NP {tag}" for i, tag in enumerate(tags)]
    path = write(tmp_path / "eng.train", "\n".join(lines))
    reader = lw.Columns(separator="", tag=-1, width=4, first_class=True, unlabelled=False)
    (sentence,) = reader([path], NER, "en")
    assert sentence.tags == ("B-LOC", "I-LOC", "O", "B-PER", "B-LOC", "B-LOC", "O", "B-PER")
    assert lw.bio(sentence.tags) == list(sentence.tags)  # BIO stays as it is
    with pytest.raises(UserError, match=r"eng.train, line 4: 'w1 NN I-LOC' is not a word and its"):
        reader([write(path, "\n".join([*lines[:3], "w1 NN I-LOC"]))], NER, "en")


def test_wikiann_bears_its_language_or_not(tmp_path):
    path = write(tmp_path / "de-dev", "de:Paris\tB-LOC\nde::\tO\n")
    assert lw.read_wikiann([path], NER, "de") == [Tagged(("Paris", ":"), ("B-LOC", "O"))]
    assert lw.read_wikiann([write(path, "Paris\tB-LOC\nde:\tO\n")], NER, "de")[0].words == (
        "Paris",
        "de:",
    )
    with pytest.raises(UserError, match=r"de-dev, line 2: 'x.*' is not a word and its tag"):
        lw.read_wikiann([write(path, "de:Paris\tB-LOC\nx\tO\n")], NER, "de")


def conllu(*rows):
    return "# sent_id = 1\n# text = x\n" + "".join(
        "\t".join([number, word, word, tag, *["_"] * 6]) + "\n" for number, word, tag in rows
    )


def test_conllu_reads_syntactic_words(tmp_path):
    rows = [("1-2", "im", "_"), ("1", "in", "ADP"), ("2", "dem", "DET"), ("2.1", "leer", "VERB")]
    rows.append(("3", "#", "NOUN"))
    path = write(tmp_path / "x.conllu", conllu(*rows) + "\n" + conllu(("1", "Haus", "NOUN")))
    found = lw.read_conllu([path], POS, "de")
    assert found == [
        Tagged(("in", "dem", "#"), ("ADP", "DET", "NOUN")),
        Tagged(("Haus",), ("NOUN",)),
    ]
    skipped = conllu(("1", "in", "ADP"), ("3", "Haus", "NOUN"))
    with pytest.raises(UserError, match=r"x.conllu, line 4: the id '3' is not 2"):
        lw.read_conllu([write(path, skipped)], POS, "de")


def test_xsid_slots(tmp_path):
    text = "# id = 1\n# text = in Paris\n# intent = find\n"
    text += "1\tin\tfind\tO\n2\tParis\tfind\tB-LOC\n3\t\tfind\tO\n"
    path = write(tmp_path / "x.conll", text)
    assert READERS["xsid_slots"]([path], NER, "de") == [Tagged(("in", "Paris"), ("O", "B-LOC"))]
    with pytest.raises(UserError, match=r"x.conll, line 6: .* is not a word and its tag"):
        READERS["xsid_slots"](
            [write(path, text.replace("3\t\tfind\tO", "3\t\tfind\tB-LOC"))], NER, "de"
        )
    with pytest.raises(UserError, match=r"x.conll, line 5: .* is not a word and its tag"):
        READERS["xsid_slots"]([write(path, text.replace("Paris\tfind\tB", "Paris\tB"))], NER, "de")


def test_sentences_in_lines(tmp_path):
    path = write(tmp_path / "x.mt.tsv", "in Paris\tO B-LOC\n")
    assert lw.read_tagged_lines([path], NER, "fr") == [Tagged(("in", "Paris"), ("O", "B-LOC"))]
    with pytest.raises(UserError, match=r"x.mt.tsv, line 2: 3 words, but 2 tags"):
        lw.read_tagged_lines([write(path, "in Paris\tO B-LOC\nin New York\tO B-LOC\n")], NER, "fr")


def test_sentences_in_lines_have_tags_all_or_none(tmp_path):
    path = write(tmp_path / "x.mt.tsv", "in Paris\n\nNew York\t\n\n")
    found = lw.read_tagged_lines([path], NER, "fr")
    lost = Tagged((), ())  # a translation without words keeps its row; lines at the end are none
    assert found == [Tagged(("in", "Paris"), ()), lost, Tagged(("New", "York"), ())]
    assert [one.line for one in found] == [1, 2, 3] and learnable(found) == [found[0], found[2]]
    for text in ("in Paris\nNew York\tB-LOC I-LOC\n", "in Paris\tO B-LOC\nNew York\n"):
        with pytest.raises(UserError, match=r"x.mt.tsv, line 2: not words TAB tags, in all lines"):
            lw.read_tagged_lines([write(path, text)], NER, "fr")

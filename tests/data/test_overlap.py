"""Held-out lines that are trained on, too."""

from dataclasses import replace

import pytest

from tests.data.conftest import DE, EN, write_lines
from xlingjax.data.held_out_pairs import held_out as held_out_of_pairs
from xlingjax.data.held_out_pairs import read_pairs
from xlingjax.data.holdout import held_out
from xlingjax.data.labelled.records import Example, Question, SourceTarget, Tagged, hashes_asked
from xlingjax.data.overlap import HeldOut, overlap_of_examples, overlap_of_texts
from xlingjax.data.store.tokenise import text_blocks
from xlingjax.data.text.sources import find_pairs, find_text

pytestmark = pytest.mark.usefixtures("own_cache")

# Tatoeba's, whose like no helper here makes.
TATOEBA = [
    ("Ich muss schlafen gehen.", "I have to go to sleep."),
    ("Was ist das?", "What is this?"),
    ("Heute ist der 18. Juni und das ist der Geburtstag von Muiriel!",
     "Today is June 18th and it is Muiriel's birthday!"),
    ("Muiriel ist jetzt 20.", "Muiriel is 20 now."),
]  # fmt: skip


def pairs_in(folder, pairs, name="de-en"):
    for side, code in enumerate(name.split("-")):
        write_lines(folder / f"{name}.{code}", [pair[side] for pair in pairs])
    return folder


@pytest.fixture
def text(tmp_path):
    """Two of four held-out pairs are in the training pairs, a third is there with another
    translation; three of their eight sentences are in the text."""
    own = [pair for pair in zip(DE, EN, strict=True) if all(pair)]
    pairs_in(tmp_path / "held", TATOEBA)
    write_lines(tmp_path / "held.de.txt", [de for de, _ in TATOEBA])
    third = (TATOEBA[2][0], "It is her birthday.")
    pairs_in(tmp_path / "pairs", own + TATOEBA[:2] + [third])
    write_lines(tmp_path / "mono/de/a.txt", DE + [TATOEBA[0][0], f"  {TATOEBA[3][0]} "])
    write_lines(tmp_path / "mono/en/a.txt", [*EN, TATOEBA[3][1]])
    return tmp_path


EXPECTED = {
    "held/de-en.de": [
        "2 of 4 held-out pairs stand in the training pairs, too (50.0%): MOST OF THIS IS NOT HELD"
        " OUT, and what is measured on them was trained on; take them out of PARALLEL",
        "3 of 8 held-out sentences stand in the training text, too (37.5%): what is measured on"
        " them was trained on; take them out of MONO",
    ],
    "held.de.txt": [
        "2 of 4 held-out sentences stand in the training text, too (50.0%): MOST OF THIS IS NOT"
        " HELD OUT, and what is measured on them was trained on; take them out of MONO",
    ],
}  # fmt: skip


def by_file(messages, root):
    found = {}
    for file, message in messages:
        found.setdefault(file.removeprefix(f"{root}/"), []).append(message)
    return found


def held(root):
    path = root / "held.de.txt"
    german = HeldOut(str(path), ("de",), (tuple(de for de, _ in TATOEBA),))
    return [*held_out_of_pairs(read_pairs(root / "held")), german]


def test_a_run_counts_them_by_their_tokens(text, vocabulary):
    texts = [text_blocks(find_pairs(str(text / "pairs")), vocabulary)]
    for code in ("de", "en"):
        texts.append(text_blocks(find_text(str(text / "mono" / code)), vocabulary))
    # Several objectives read the same text, and several evaluators the same pairs.
    messages = overlap_of_texts(held(text) * 2, texts * 2, vocabulary)
    assert by_file(messages, text) == EXPECTED
    assert overlap_of_texts([], texts, vocabulary) == []


def test_labelled_rows_are_found_whatever_their_answers():
    """And whatever set or language they are of."""
    example, tagged = Example("A man.", "He sleeps.", "neutral"), Tagged(("He",), ("PRON",))
    question = Question("1", "Who?", "A man.", ("A man",), (0,))
    trained = [example, tagged, question, SourceTarget("a", "b")]
    measured = [
        ("test", [replace(example, label=None, line=7), replace(example, premise="A dog.")]),
        ("tags", [replace(tagged, tags=()), Tagged(("She",), ())]),
        ("answers", [replace(question, id="2", answers=(), starts=())]),
        ("apart", [replace(question, context="A dog."), SourceTarget("b", "a")]),
    ]
    found = dict(overlap_of_examples(measured, [hashes_asked([one]) for one in trained]))
    assert [*found] == ["test", "tags", "answers"]
    assert found["test"].startswith("1 of 2 rows are training examples, too (50.0%): MOST OF THIS")
    assert "take them out of the training set" in found["answers"]


def test_what_a_run_holds_out_itself_is_not_trained_on(tmp_path, vocabulary):
    lines = [f"Satz Nummer {number} von vielen." for number in range(640)]
    write_lines(tmp_path / "de/a.txt", lines)
    texts = find_text(str(tmp_path / "de"))
    own = [line for line, out in zip(lines, held_out(640, 0.1), strict=True) if out]
    assert len(own) == 64
    mine = [HeldOut("held", ("de",), (tuple(own),))]
    assert overlap_of_texts(mine, [text_blocks(texts, vocabulary, holdout=0.1)], vocabulary) == []
    ((_, message),) = overlap_of_texts(mine, [text_blocks(texts, vocabulary)], vocabulary)
    assert message.startswith(f"{len(own)} of {len(own)} held-out sentences")


def test_lines_that_begin_alike_are_not_taken_for_each_other(tmp_path, vocabulary):
    begin = "der die das und ein eine zwei drei vier"
    write_lines(tmp_path / "de/a.txt", [f"{begin} Hund", *DE])
    text = text_blocks(find_text(str(tmp_path / "de")), vocabulary)
    for line, count in ((f"{begin} Haus", 0), (f"{begin} Hund", 1)):
        found = overlap_of_texts([HeldOut("held", ("de",), ((line,),))], [text], vocabulary)
        assert len(found) == count

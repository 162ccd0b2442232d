import json

import pytest

from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.records import Question
from xlingjax.errors import UserError

CONTEXT = "Köln liegt am Rhein."


def squad(*answers, id="a", context=CONTEXT, question="Wo?"):
    given = [{"text": text, "answer_start": start} for text, start in answers]
    qas = [{"id": id, "question": question, "answers": given}]
    return {"paragraphs": [{"context": context, "qas": qas}]}


@pytest.fixture
def read(tmp_path):
    def read(*articles, **options):
        path = tmp_path / "dev.json"
        path.write_text(json.dumps({"version": "1.1", "data": articles}))
        return read_squad([path], None, "de", **options)

    return read


def test_every_answer_with_its_place(read):
    found = read(squad(("Rhein", 14), ("am Rhein", 11)), squad(("Köln", 0), id="b"))
    assert found[0] == Question("a", "Wo?", CONTEXT, ("Rhein", "am Rhein"), (14, 11))
    assert found[1].starts == (0,)
    for text, start in zip(found[0].answers, found[0].starts, strict=True):
        assert found[0].context[start:].startswith(text)


def test_blanked_answers_are_none(read):
    assert read(squad(("", 0)))[0].answers == () and read(squad())[0].starts == ()


def test_numbered_ids(read):
    assert [q.id for q in read(squad(("Köln", 0)), squad(("Köln", 0)), numbered=True)] == ["0", "1"]
    with pytest.raises(UserError, match=r"dev.json, question a: this id comes twice"):
        read(squad(("Köln", 0)), squad(("Köln", 0)))


def test_what_a_machine_translated(read):
    """An answer that it lost is none, the question stays in its row; XTREME writes a question for
    each answer."""
    lost, twice = squad(("Main", 14), id="b"), squad(("am Rhein", 11), id="c")
    found = read(squad(("Köln", 0)), lost, squad(("Rhein", 14), id="c"), twice, translated=True)
    assert [(one.id, one.answers, one.starts) for one in found] == [
        ("a", ("Köln",), (0,)), ("b", (), ()), ("c", ("Rhein", "am Rhein"), (14, 11)),
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"question a: this id comes twice"):
        read(squad(("Köln", 0)), squad(("Köln", 0), question="Was?"), translated=True)
    with pytest.raises(UserError, match=r"question b: the answer 'Main' is not in its context"):
        read(lost)


def test_what_a_machine_left_blank_is_lost(read):
    """Blank and null answers, null starts, blank and null questions: the question stays in its row,
    untrained on."""
    starts = squad(("Rhein", 14), id="e")
    del starts["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"]
    rows = [
        squad((" ", 4), ("Köln", 0)),
        squad((None, 4), id="b"),
        squad(("Köln", None), id="c"),
        squad(("Köln", 0), id="d", question=" "),
        starts,
        squad(("Köln", None), id="f", question=None),
        squad(("Köln", 0), id="g", context=" "),
        squad(("Köln", 0), id="h"),
    ]
    found = read(*rows, translated=True)
    assert [(one.id, one.question) for one in found] == [
        (id, "" if id in "df" else "Wo?") for id in "abcdefgh"
    ]
    assert [one.answers for one in found] == [("Köln",), *[()] * 6, ("Köln",)]
    assert [one.id for one in read(*rows, numbered=True, translated=True)] == [*map(str, range(8))]
    assert read(rows[0])[0].answers == (" ", "Köln")  # as the file says


@pytest.mark.parametrize(
    "article, message",
    [
        (squad(("Rhein", 13)), "question a: the answer 'Rhein' is not in its context at char"),
        (squad(("Rhein", "14")), "question a: an answer is not an object with a text and an"),
        (squad(question=" "), "question a: no text 'question'"),
        ({"title": "x"}, "an article has no list 'paragraphs'; expected SQuAD's layout"),
    ],
)
def test_faults_name_the_question(read, article, message):
    with pytest.raises(UserError, match=message):
        read(article)

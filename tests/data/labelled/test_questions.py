import json

import pytest

from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.records import Question
from xlingjax.errors import UserError

CONTEXT = "Köln liegt am Rhein."


def squad(*answers, id="a", context=CONTEXT, question="Wo?"):
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {
        "paragraphs": [
            {"context": context, "qas": [{"id": id, "question": question, "answers": given}]}
        ]
    }


@pytest.fixture
def read(tmp_path):
    def read(*articles, **options):
        path = tmp_path / "dev.json"
        path.write_text(
            json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False), "utf-8"
        )
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
    assert [(one.id, one.question, one.answers) for one in found] == [
        ("a", "Wo?", ("Köln",)),
        ("b", "Wo?", ()),
        ("c", "Wo?", ()),
        ("d", "", ()),
        ("e", "Wo?", ()),
        ("f", "", ()),
        ("g", "Wo?", ()),
        ("h", "Wo?", ("Köln",)),
    ]
    assert [one.id for one in read(*rows, numbered=True, translated=True)] == [*map(str, range(8))]
    for row, message in zip(
        rows[1:7], ["an answer is not an object"] * 2 + ["no text 'question'"], strict=False
    ):
        with pytest.raises(UserError, match=message):
            read(row)
    assert read(rows[0])[0].answers == (" ", "Köln")  # as the file says
    strange = {
        "paragraphs": [{"context": CONTEXT, "qas": [{"id": "a", "asked": "Wo?", "answers": []}]}]
    }
    for row, message in (
        (strange, "question a: no text 'question'"),
        (squad(("Rhein", "14")), "is not an object"),
    ):
        with pytest.raises(UserError, match=message):  # another layout is no loss
            read(row, translated=True)


@pytest.mark.parametrize(
    "article, message",
    [
        (squad(("Rhein", 13)), r"question a: the answer 'Rhein' is not in its context at char"),
        (squad(("Rhein", -6)), r"question a: the answer 'Rhein' is not in its context"),
        (
            squad(("Rhein", "14")),
            r"question a: an answer is not an object with a text and an answer_start",
        ),
        (squad(id=""), r"dev.json: a question without an id"),
        (squad(question=" "), r"question a: no text 'question'"),
        (squad(context=None), r"a paragraph: no text 'context'"),
        ({"title": "x"}, r"an article has no list 'paragraphs'; expected SQuAD's layout"),
        ({"paragraphs": []}, r"no questions in this file"),
    ],
)
def test_faults_name_the_question(read, article, message):
    with pytest.raises(UserError, match=message):
        read(article)


def test_files_that_are_not_squads(tmp_path):
    path = tmp_path / "x.json"
    for text, message in (
        (b'{"data": [', r"x.json: not SQuAD's one JSON object"),
        (b'{\n"data": "\xff"}', r"x.json, line 2: invalid UTF-8"),
        (b"[]", r"x.json: the file has no list 'data'"),
    ):
        path.write_bytes(text)
        with pytest.raises(UserError, match=message):
            read_squad([path], None, "de")
    with pytest.raises(UserError, match=r"missing file: .*y.json; fetch it"):
        read_squad([tmp_path / "y.json"], None, "de")

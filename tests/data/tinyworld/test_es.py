"""Spanish: golden sentences for gender, copulas, personal a, clitics, contraction; golden
alignments; the inventory."""

from dataclasses import replace

import pytest

from xlingjax.data.tinyworld.check import check_language
from xlingjax.data.tinyworld.frames import NP, Frame, frame
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.tokens import align

ANNA, PETER, MONDAY = NP("anna"), NP("peter"), NP("monday")
EAT = frame(
    "action",
    "eat",
    agent=ANNA,
    object=NP("apple", "def", "red"),
    place=NP("park", "def"),
    time=MONDAY,
)
GIVE = frame(
    "give", "give", agent=ANNA, recipient=NP("teacher", "def"), object=NP("pencil", "indef", "old")
)
OWN = frame("own", agent=PETER, object=NP("armchair", "number", "white", "two"))
LIKE = frame("like", "like", agent=NP("doctor", "def"), object=NP("mouse", "generic"))
WANT = frame("want", "chase", agent=NP("lucia", "pronoun"), object=NP("cat", "def"))

GOLDEN = [
    (EAT, 0, True, "El lunes, Ana comió la manzana roja en el parque."),
    (replace(EAT, ask="place"), 0, False, "¿Dónde comió Ana la manzana roja el lunes?"),
    (GIVE, 0, False, "Ana le dio un lápiz viejo al profesor."),
    (replace(GIVE, negated=True), 0, False, "Ana no le dio ningún lápiz viejo al profesor."),
    (replace(GIVE, ask="recipient"), 0, False, "¿A quién le dio Ana un lápiz viejo?"),
    (replace(OWN, ask="number"), 0, False, "¿Cuántos sillones blancos tiene Pedro?"),
    (replace(LIKE, negated=True), 0, False, "Al médico no le gustan los ratones."),
    (replace(LIKE, ask="object"), 0, False, "¿Qué le gusta al médico?"),
    (WANT, 0, False, "Quiere perseguir al gato."),
    (WANT, 1, False, "Ella quiere perseguir al gato."),
    (replace(WANT, ask="object"), 1, False, "¿A qué animal quiere perseguir ella?"),
    (frame("property", "dirty", theme=NP("axe", "def")), 0, False, "El hacha está sucia."),
    (
        frame("isa", theme=NP("eagle", "indef"), object=NP("bird", "indef")),
        0,
        False,
        "Un águila es un ave.",
    ),
    (frame("profession", agent=ANNA, object=NP("actor", "indef")), 0, False, "Ana es actriz."),
    (
        frame("locate", "beside", theme=NP("key", "def"), ground=NP("sofa", "def")),
        0,
        False,
        "La llave está al lado del sofá.",
    ),
    (
        Frame(
            "sequence",
            "before_that",
            parts=(frame("motion", "return", agent=PETER, goal=NP("cairo")), EAT),
        ),
        0,
        False,
        (
            "Ana comió la manzana roja en el parque el lunes, pero antes de eso Pedro volvió a El"
            " Cairo."
        ),
    ),
]


@pytest.mark.parametrize(
    ("what", "variant", "front", "expected"), GOLDEN, ids=[row[3] for row in GOLDEN]
)
def test_golden_sentences(what, variant, front, expected):
    assert language("es").sentence(what, variant, front).text == expected


def test_golden_alignment():
    spanish, english = (
        language("es").sentence(replace(GIVE, negated=True)),
        language("en").sentence(GIVE),
    )
    assert spanish.pos() == [
        "PROPN",
        "ADV",
        "PRON",
        "VERB",
        "DET",
        "NOUN",
        "ADJ",
        "ADP",
        "NOUN",
        "PUNCT",
    ]
    pairs = [(spanish.tokens[i].text, english.tokens[j].text) for i, j in align(spanish, english)]
    assert pairs == [
        ("Ana", "Anna"),
        ("dio", "gave"),
        ("ningún", "an"),
        ("lápiz", "pencil"),
        ("viejo", "old"),
        ("profesor", "teacher"),
    ]
    assert language("es").sentence(EAT).answer("object") == (10, 25)


def test_every_concept_and_kind_renders():
    report = check_language("es", draws=10)
    assert report.ok, str(report)

"""French: golden sentences for agreement, elision, contraction, negation; one golden alignment; the
whole inventory."""

from dataclasses import replace

import pytest

from xlingjax.data.tinyworld.check import check_language
from xlingjax.data.tinyworld.frames import NP, Frame, frame
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.tokens import align

ANNA, PETER, PARK, MONDAY = NP("anna"), NP("peter"), NP("park", "def"), NP("monday")
EAT = frame("action", "eat", agent=ANNA, object=NP("apple", "def", "red"), place=PARK, time=MONDAY)
GIVE = frame(
    "give",
    "give",
    agent=ANNA,
    recipient=NP("teacher", "def"),
    object=NP("umbrella", "indef", "old"),
)
OWN = frame("own", agent=PETER, object=NP("armchair", "number", "white", "two"))
FLY = frame("motion", "fly", agent=NP("eva", "pronoun"), goal=NP("cairo"))
RUN = frame("motion", "run", agent=PETER, goal=NP("station", "def"))
LIVE = frame("state", "live", agent=ANNA, object=NP("japan"))

GOLDEN = [
    (EAT, False, "Anna a mangé la pomme rouge dans le parc lundi."),
    (EAT, True, "Lundi, Anna a mangé la pomme rouge dans le parc."),
    (replace(EAT, negated=True), False, "Anna n'a pas mangé la pomme rouge dans le parc lundi."),
    (replace(EAT, ask="object"), False, "Qu'est-ce qu'Anna a mangé dans le parc lundi ?"),
    (GIVE, False, "Anna a donné un vieux parapluie au professeur."),
    (replace(GIVE, negated=True), False, "Anna n'a pas donné de vieux parapluie au professeur."),
    (replace(OWN, ask="number"), False, "Combien de fauteuils blancs est-ce que Peter a ?"),
    (replace(FLY, negated=True), False, "Elle ne s'est pas envolée vers Le Caire."),
    (
        frame("motion", "return", agent=ANNA, goal=NP("cairo")),
        False,
        "Anna est retournée au Caire.",
    ),
    (LIVE, False, "Anna habite au Japon."),
    (frame("property", "beautiful", theme=NP("shirt", "def")), False, "La chemise est belle."),
    (
        frame("action", "see", agent=ANNA, object=NP("tree", "indef", "beautiful")),
        False,
        "Anna a vu un bel arbre.",
    ),
    (
        frame("relation", "friend", theme=ANNA, standard=NP("elena")),
        False,
        "Anna est l'amie d'Elena.",
    ),
    (
        frame("profession", "", True, agent=ANNA, object=NP("actor", "indef")),
        False,
        "Anna n'est pas actrice.",
    ),
    (
        Frame("sequence", "before_that", parts=(FLY, RUN)),
        False,
        "Peter a couru jusqu'à la gare, mais avant cela, elle s'était envolée vers Le Caire.",
    ),
]


@pytest.mark.parametrize(("what", "front", "expected"), GOLDEN, ids=[row[2] for row in GOLDEN])
def test_golden_sentences(what, front, expected):
    assert language("fr").sentence(what, front=front).text == expected


def test_golden_alignment():
    french, english = (
        language("fr").sentence(replace(LIVE, negated=True)),
        language("en").sentence(LIVE),
    )
    assert [t.text for t in french.tokens] == ["Anna", "n'", "habite", "pas", "au", "Japon", "."]
    assert french.pos() == ["PROPN", "ADV", "VERB", "ADV", "ADP", "PROPN", "PUNCT"]
    assert align(french, english) == [(0, 0), (2, 1), (4, 2), (5, 3)]
    french, english = language("fr").sentence(EAT, front=True), language("en").sentence(EAT)
    pairs = {(french.tokens[i].text, english.tokens[j].text) for i, j in align(french, english)}
    assert {
        ("mangé", "ate"),
        ("pomme", "apple"),
        ("rouge", "red"),
        ("Lundi", "Monday"),
        ("dans", "in"),
    } <= pairs


def test_every_concept_and_kind_renders():
    report = check_language("fr", draws=10)
    assert report.ok, str(report)

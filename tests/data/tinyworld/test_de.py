"""German: golden sentences for case, agreement, verb second, negation; one golden alignment; the
whole inventory."""

from dataclasses import replace

import pytest

from xlingjax.data.tinyworld.check import check_language
from xlingjax.data.tinyworld.frames import NP, Frame, frame
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.tokens import align

ANNA, PETER, PARK, MONDAY = NP("anna"), NP("peter"), NP("park", "def"), NP("monday")
EAT = frame("action", "eat", agent=ANNA, object=NP("apple", "def", "red"), place=PARK, time=MONDAY)
CALL = frame("action", "call", agent=ANNA, object=PETER)
GIVE = frame(
    "give",
    "give",
    agent=ANNA,
    recipient=NP("soldier", "def"),
    object=NP("hat", "indef", "expensive"),
)
OWN = frame("own", agent=PETER, object=NP("bicycle", "indef", "pink"))
REST = frame("event", "rest", agent=NP("lion", "def"))
SING = frame("event", "sing", agent=ANNA)

GOLDEN = [
    (EAT, 0, False, "Anna aß den roten Apfel am Montag im Park."),
    (EAT, 0, True, "Am Montag aß Anna den roten Apfel im Park."),
    (replace(EAT, negated=True), 0, False, "Anna aß den roten Apfel am Montag nicht im Park."),
    (replace(EAT, ask="place"), 0, False, "Wo aß Anna den roten Apfel am Montag?"),
    (replace(CALL, ask="object"), 0, False, "Wen rief Anna an?"),
    (GIVE, 0, False, "Anna gab dem Soldaten einen teuren Hut."),
    (replace(GIVE, negated=True), 0, False, "Anna gab dem Soldaten keinen teuren Hut."),
    (replace(OWN, negated=True), 0, False, "Peter hat kein rosa Fahrrad."),
    (
        frame("motion", "return", agent=ANNA, goal=NP("school", "def")),
        0,
        False,
        "Anna kehrte zur Schule zurück.",
    ),
    (
        frame("want", "help", True, agent=ANNA, object=PETER),
        0,
        False,
        "Anna will Peter nicht helfen.",
    ),
    (frame("profession", agent=ANNA, object=NP("doctor", "indef")), 0, False, "Anna ist Ärztin."),
    (
        frame("relation", "sister", theme=ANNA, standard=NP("max")),
        0,
        False,
        "Anna ist Max' Schwester.",
    ),
    (frame("state", "live", agent=ANNA, object=NP("turkey")), 0, False, "Anna lebt in der Türkei."),
    (
        Frame("sequence", "then", parts=(REST, SING)),
        0,
        False,
        "Zuerst ruhte sich der Löwe aus, dann sang Anna.",
    ),
]


@pytest.mark.parametrize(
    ("what", "variant", "front", "expected"), GOLDEN, ids=[row[3] for row in GOLDEN]
)
def test_golden_sentences(what, variant, front, expected):
    assert language("de").sentence(what, variant, front).text == expected


def test_golden_alignment():
    german, english = language("de").sentence(EAT, front=True), language("en").sentence(EAT)
    pairs = {(german.tokens[i].text, english.tokens[j].text) for i, j in align(german, english)}
    assert pairs == {
        ("Am", "on"),
        ("Montag", "Monday"),
        ("aß", "ate"),
        ("Anna", "Anna"),
        ("den", "the"),
        ("roten", "red"),
        ("Apfel", "apple"),
        ("im", "in"),
        ("Park", "park"),
    }
    assert german.pos() == [
        "ADP",
        "NOUN",
        "VERB",
        "PROPN",
        "DET",
        "ADJ",
        "NOUN",
        "ADP",
        "NOUN",
        "PUNCT",
    ]


def test_every_concept_and_kind_renders():
    report = check_language("de", draws=10)
    assert report.ok, str(report)

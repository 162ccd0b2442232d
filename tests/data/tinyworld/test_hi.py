"""Hindi: golden sentences for ने, agreement, oblique case and questions; a golden alignment; the
inventory."""

from dataclasses import replace

import pytest

from xlingjax.data.tinyworld.check import check_language
from xlingjax.data.tinyworld.frames import NP, Frame, frame
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.tokens import align

ANNA, PETER, MONDAY = NP("anna"), NP("peter"), NP("monday")
READ = frame(
    "action",
    "read",
    agent=PETER,
    object=NP("book", "def", "new"),
    place=NP("garden", "def"),
    time=MONDAY,
)
GIVE = frame(
    "give", "give", agent=ANNA, recipient=NP("fisherman", "def"), object=NP("box", "indef", "old")
)
WASH = frame("action", "wash", agent=PETER, object=NP("horse", "def", "black"))
OWN = frame("own", agent=PETER, object=NP("butterfly", "number", "", "two"))
LIKE = frame("like", "like", agent=NP("eva", "pronoun"), object=NP("mouse", "generic"))
HELP = frame("action", "help", agent=ANNA, object=PETER)
WANT = frame("want", "buy", agent=ANNA, object=NP("mango", "indef"))
OLD = frame("property", "old", theme=NP("nurse", "def"))

GOLDEN = [
    (READ, True, "सोमवार को पीटर ने बगीचे में नई किताब पढ़ी।"),
    (replace(READ, ask="time"), False, "पीटर ने बगीचे में नई किताब कब पढ़ी?"),
    (replace(GIVE, negated=True), False, "अन्ना ने मछुआरे को कोई पुराना डिब्बा नहीं दिया।"),
    (replace(GIVE, ask="recipient"), False, "अन्ना ने किसे एक पुराना डिब्बा दिया?"),
    (
        frame("give", "bring", agent=ANNA, recipient=PETER, object=NP("cup", "indef")),
        False,
        "अन्ना पीटर के लिए एक प्याला लाई।",
    ),
    (WASH, False, "पीटर ने काले घोड़े को नहलाया।"),
    (
        frame("action", "see", agent=ANNA, object=NP("goat", "number", "", "three")),
        False,
        "अन्ना ने तीन बकरियाँ देखीं।",
    ),
    (replace(HELP, ask="agent"), False, "पीटर की मदद किसने की?"),
    (replace(OWN, ask="number"), False, "पीटर के पास कितनी तितलियाँ हैं?"),
    (replace(LIKE, negated=True), False, "उसे चूहे पसंद नहीं हैं।"),
    (replace(LIKE, predicate="fear"), False, "वह चूहों से डरती है।"),
    (replace(WANT, negated=True), False, "अन्ना कोई आम खरीदना नहीं चाहती।"),
    (OLD, False, "नर्स बूढ़ी है।"),
    (frame("compare", "clever", theme=ANNA, standard=PETER), False, "अन्ना पीटर से ज़्यादा होशियार है।"),
    (
        Frame(
            "sequence", "then", parts=(frame("motion", "drive", agent=ANNA, goal=NP("paris")), WASH)
        ),
        False,
        "पहले अन्ना गाड़ी से पेरिस गई, फिर पीटर ने काले घोड़े को नहलाया।",
    ),
]


@pytest.mark.parametrize(
    ("what", "front", "expected"), GOLDEN, ids=[str(i) for i in range(len(GOLDEN))]
)
def test_golden_sentences(what, front, expected):
    assert language("hi").sentence(what, front=front).text == expected


def test_golden_alignment():
    hindi, english = language("hi").sentence(READ), language("en").sentence(READ)
    assert hindi.pos() == [
        "PROPN",
        "ADP",
        "PROPN",
        "ADP",
        "NOUN",
        "ADP",
        "ADJ",
        "NOUN",
        "VERB",
        "PUNCT",
    ]
    pairs = [(hindi.tokens[i].text, english.tokens[j].text) for i, j in align(hindi, english)]
    assert pairs == [
        ("पीटर", "Peter"),
        ("सोमवार", "Monday"),
        ("को", "on"),
        ("बगीचे", "garden"),
        ("में", "in"),
        ("नई", "new"),
        ("किताब", "book"),
        ("पढ़ी", "read"),
    ]


def test_every_concept_and_kind_renders():
    report = check_language("hi", draws=10)
    assert report.ok, str(report)

"""Turkish sentences whose form a wrong rule would get wrong."""

from dataclasses import replace

import pytest

from xlingjax.data.tinyworld.check import check_language
from xlingjax.data.tinyworld.frames import NP, frame
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.tokens import align

ANNA, PETER = NP("anna"), NP("peter")
EAT = frame(
    "action",
    "eat",
    agent=ANNA,
    object=NP("apple", "def", "red"),
    place=NP("kitchen", "def"),
    time=NP("autumn"),
)
GIVE = frame(
    "give",
    "give",
    agent=NP("teacher", "def"),
    recipient=NP("alice"),
    object=NP("book", "indef", "new"),
)
RAN = frame("motion", "run", agent=ANNA, goal=NP("venice"), companion=NP("leo"), time=NP("spring"))
OWN = frame("own", agent=ANNA, object=NP("picture", "number", number="three"))
LIKE = frame("like", "love", agent=ANNA, object=NP("sheep", "generic"))


@pytest.mark.parametrize(
    ("given", "front", "expected"),
    [
        (EAT, False, "Anna sonbaharda mutfakta kırmızı elmayı yedi."),
        (replace(EAT, ask="agent"), False, "Sonbaharda mutfakta kırmızı elmayı kim yedi?"),
        (GIVE, False, "Öğretmen Alice'e yeni bir kitap verdi."),
        (replace(GIVE, negated=True), False, "Öğretmen Alice'e yeni kitap vermedi."),
        (RAN, True, "İlkbaharda Anna Leo'yla birlikte Venedik'e koştu."),
        (replace(RAN, ask="goal"), False, "Anna ilkbaharda Leo'yla birlikte nereye koştu?"),
        (OWN, False, "Anna'nın üç resmi var."),
        (replace(OWN, ask="number"), False, "Anna'nın kaç resmi var?"),
        (replace(LIKE, negated=True), False, "Anna koyunları sevmiyor."),
        (
            frame("like", "fear", agent=ANNA, object=NP("shark", "generic")),
            False,
            "Anna köpekbalıklarından korkuyor.",
        ),
        (
            frame("action", "wear", agent=NP("anna", "pronoun"), object=NP("ring", "def")),
            False,
            "O, yüzüğü taktı.",
        ),
        (
            frame("isa", theme=NP("wolf", "indef"), object=NP("mammal", "indef")),
            False,
            "Kurt bir memelidir.",
        ),
        (
            frame("compare", "old", theme=ANNA, standard=NP("max")),
            False,
            "Anna Max'tan daha yaşlıdır.",
        ),
        (
            frame("locate", "in", theme=NP("key", "def"), ground=NP("backpack", "def")),
            False,
            "Anahtar sırt çantasının içinde.",
        ),
        (
            frame("relation", "son", theme=PETER, standard=NP("mei")),
            False,
            "Peter Mei'nin oğludur.",
        ),
    ],
)
def test_golden(given, front, expected):
    assert language("tr").sentence(given, front=front).text == expected


def test_alignment():
    turkish, english = language("tr").sentence(RAN), language("en").sentence(RAN)
    pairs = {(turkish.tokens[i].text, english.tokens[j].text) for i, j in align(turkish, english)}
    assert pairs == {
        ("Anna", "Anna"),
        ("ilkbaharda", "spring"),
        ("Leo'yla", "Leo"),
        ("birlikte", "with"),
        ("Venedik'e", "Venice"),
        ("koştu", "ran"),
    }


def test_complete():
    report = check_language("tr", draws=5)
    assert report.ok, str(report)

"""Russian sentences whose form a wrong rule would get wrong."""

from dataclasses import replace

import pytest

from xlingjax.data.tinyworld.check import check_language
from xlingjax.data.tinyworld.frames import NP, frame
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.tokens import align

ANNA, PETER = NP("anna"), NP("peter")
SAW = frame("action", "see", agent=ANNA, object=NP("cat", "number", "black", "three"))
OWN = frame("own", agent=ANNA, object=NP("key", "number", "", "five"))
RAN = frame(
    "motion",
    "run",
    agent=NP("teacher", "def"),
    goal=NP("station", "def"),
    companion=PETER,
    time=NP("tuesday"),
)
LIKE = frame("like", "like", agent=ANNA, object=NP("dog", "generic"))


@pytest.mark.parametrize(
    ("given", "front", "expected"),
    [
        (SAW, False, "Анна увидела трёх чёрных кошек."),
        (
            SAW.with_slot("object", NP("cat", "number", "black", "five")),
            False,
            "Анна увидела пять чёрных кошек.",
        ),
        (
            SAW.with_slot("object", NP("car", "number", "blue", "two")),
            False,
            "Анна увидела две синих машины.",
        ),
        (replace(SAW, ask="object"), False, "Кого увидела Анна?"),
        (replace(OWN, ask="number"), False, "Сколько у Анны ключей?"),
        (
            frame("own", "", True, agent=PETER, object=NP("dress", "indef", "red")),
            False,
            "У Петра нет красного платья.",
        ),
        (RAN, True, "Во вторник учитель побежал на вокзал с Петром."),
        (LIKE, False, "Анне нравятся собаки."),
        (replace(LIKE, predicate="fear", negated=True), False, "Анна не боится собак."),
        (
            frame(
                "action",
                "play_music",
                agent=NP("nurse", "def"),
                object=NP("guitar", "indef", "new"),
            ),
            False,
            "Медсестра играла на новой гитаре.",
        ),
        (
            frame("locate", "beside", theme=NP("key", "def"), ground=NP("wardrobe", "def")),
            False,
            "Ключ рядом со шкафом.",
        ),
        (
            frame("inside", theme=NP("athens"), ground=NP("france")),
            False,
            "Афины находятся во Франции.",
        ),
        (frame("profession", agent=ANNA, object=NP("singer", "indef")), False, "Анна — певица."),
        (frame("property", "sick", True, theme=NP("anna", "pronoun")), False, "Она не больна."),
        (
            frame("count", object=NP("cabbage", "number", "", "two"), place=NP("forest", "def")),
            False,
            "В лесу два кочана капусты.",
        ),
    ],
)
def test_golden(given, front, expected):
    assert language("ru").sentence(given, front=front).text == expected


def test_alignment():
    russian, english = language("ru").sentence(RAN), language("en").sentence(RAN)
    pairs = {(russian.tokens[i].text, english.tokens[j].text) for i, j in align(russian, english)}
    assert pairs == {
        ("Учитель", "teacher"),
        ("побежал", "ran"),
        ("на", "to"),
        ("вокзал", "station"),
        ("с", "with"),
        ("Петром", "Peter"),
        ("во", "on"),
        ("вторник", "Tuesday"),
    }


def test_complete():
    report = check_language("ru", draws=5)
    assert report.ok, str(report)

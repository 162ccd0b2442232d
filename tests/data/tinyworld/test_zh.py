"""Chinese sentences whose form a wrong rule would get wrong."""

from dataclasses import replace

import pytest

from xlingjax.data.tinyworld.check import check_language
from xlingjax.data.tinyworld.frames import NP, frame
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.tokens import align

ANNA, PETER = NP("anna"), NP("peter")
CALL = frame("action", "call", agent=ANNA, object=PETER, place=NP("park", "def"), time=NP("monday"))
BUY = frame("action", "buy", agent=ANNA, object=NP("bicycle", "indef", "red"))
RAN = frame(
    "motion",
    "run",
    agent=NP("teacher", "def"),
    goal=NP("lake", "def"),
    companion=PETER,
    time=NP("yesterday"),
)
COUNT = frame("count", object=NP("horse", "number", number="two"), place=NP("street", "def"))


@pytest.mark.parametrize(
    ("given", "front", "expected"),
    [
        (CALL, False, "安娜星期一在公园里给彼得打了电话。"),
        (CALL, True, "星期一，安娜在公园里给彼得打了电话。"),
        (replace(CALL, negated=True), False, "安娜星期一没有在公园里给彼得打电话。"),
        (replace(CALL, ask="place"), False, "安娜星期一是在哪里给彼得打电话的？"),
        (BUY, False, "安娜买了一辆红色的自行车。"),
        (replace(BUY, negated=True), False, "安娜没有买红色的自行车。"),
        (RAN, False, "那位老师昨天和彼得一起跑到了湖边。"),
        (COUNT, False, "街上有两匹马。"),
        (replace(COUNT, ask="number"), False, "街上有多少匹马？"),
        (
            frame("action", "wear", agent=ANNA, object=NP("hat", "def", "new")),
            False,
            "安娜戴了那顶新帽子。",
        ),
        (
            frame("action", "eat", agent=ANNA, object=NP("soup", "def", "hot")),
            False,
            "安娜喝了热汤。",
        ),
        (frame("property", "new", True, theme=NP("train", "def")), False, "那列火车不是新的。"),
        (frame("property", "old", theme=NP("peter", "pronoun")), False, "他很老。"),
        (
            frame("locate", "on", theme=NP("key", "def"), ground=NP("table", "def")),
            False,
            "钥匙在桌子上。",
        ),
        (frame("own", "", True, agent=ANNA, object=NP("cat", "indef")), False, "安娜没有猫。"),
    ],
)
def test_golden(given, front, expected):
    assert language("zh").sentence(given, front=front).text == expected


def test_alignment():
    chinese, english = language("zh").sentence(RAN), language("en").sentence(RAN)
    pairs = {(chinese.tokens[i].text, english.tokens[j].text) for i, j in align(chinese, english)}
    assert pairs == {
        ("那", "The"),
        ("位", "The"),
        ("老师", "teacher"),
        ("昨天", "yesterday"),
        ("和", "with"),
        ("一起", "with"),
        ("彼得", "Peter"),
        ("跑", "ran"),
        ("到", "to"),
        ("湖", "lake"),
        ("边", "to"),
    }


def test_complete():
    report = check_language("zh", draws=5)
    assert report.ok, str(report)

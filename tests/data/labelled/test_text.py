import json
from types import SimpleNamespace

import pytest

from xlingjax.data.labelled import text as lt
from xlingjax.data.labelled.records import Example
from xlingjax.errors import UserError
from xlingjax.tasks.tables import READERS

LABELS = ("contradiction", "entailment", "neutral")
NLI = SimpleNamespace(labels=LABELS)
BINARY = SimpleNamespace(labels=("0", "1"))


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_reading_labelled_tsv(tmp_path):
    path = write(tmp_path / "a.tsv", 'A man "runs\tHe moves\tcontradictory\n\nB\tC\tneutral\r\n')
    examples = lt.read_labelled_tsv(path, LABELS)
    assert examples == [
        Example('A man "runs', "He moves", "contradiction"),
        Example("B", "C", "neutral"),
    ]
    assert [example.line for example in examples] == [1, 3]
    quoted = write(tmp_path / "q.tsv", '"say ""yes"""\tB\t0\n')
    assert lt.Table(quoted=True).examples(quoted, None)[0].premise == 'say "yes"'
    assert lt.read_labelled_tsv(quoted)[0].premise == '"say ""yes"""'
    assert lt.Table(may_be_quoted=True).examples(quoted, None)[0].premise == 'say "yes"'


@pytest.mark.parametrize(
    "text, message",
    [
        ("a\tb\tneutral\na\tb\n", r"line 2: 2 columns, expected 3: premise TAB hypothesis TAB lab"),
        ("a\tb\tmaybe\n", r"line 1: unknown label 'maybe', expected one of contradiction, entail"),
        ("a\tb\tneutral\n\t\t\n", r"line 2: a text is empty"),
        ("a\t \tneutral\n", r"line 1: a text is empty"),
        (b"a\tb\tneutral\na\t\xff\tneutral\n", r"line 2: invalid UTF-8"),
        ("", r"no examples"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, text, message):
    path = write(tmp_path / "x.tsv", text)
    with pytest.raises(UserError, match=f"x.tsv[,:] {message}"):
        lt.read_labelled_tsv(path, LABELS)


def test_quoting_is_what_every_mark_says(tmp_path):
    def quoted(text):
        return lt.is_quoted(write(tmp_path / "q.tsv", text))

    assert quoted('"say ""yes"""\tB\t0\nA\tB\t1\n')
    # One field is written otherwise: the file is plain.
    assert not quoted('"say ""yes"""\tB\t0\nA "b"\tB\t1\n')
    assert not quoted('"A whole quotation."\tB\t0\n')  # csv would have doubled the marks
    assert not quoted('"\tB\t0\n') and not quoted("A\tB\t0\n")
    plain = write(tmp_path / "p.tsv", '"A," he said.\t"B"\t1\n')
    assert lt.Table(may_be_quoted=True).examples(plain, None) == [
        Example('"A," he said.', '"B"', "1")
    ]


def test_test_sets_may_lack_the_label_from_every_line(tmp_path):
    table = lt.Table()
    path = write(tmp_path / "test.tsv", "a\tb\nc\td\n")
    assert table([path], NLI, "de") == [Example("a", "b", None), Example("c", "d", None)]
    with pytest.raises(UserError, match="test.tsv, line 2: 3 columns, expected 2: premise TAB hy"):
        table([write(path, "a\tb\nc\td\tneutral\n")], NLI, "de")


def test_raw_xnli_is_read_by_its_header_and_language(tmp_path):
    header = "language\tgold_label\tparse\tsentence1\tsentence2\tmatch"
    path = write(
        tmp_path / "x.tsv", f"{header}\nde\tneutral\t(\tA\tB\tTrue\nfr\tentailment\t(\tC\tD\tTrue\n"
    )
    table = lt.Table(
        ("language", "gold_label", "sentence1", "sentence2"),
        premise=("sentence1",),
        hypothesis=("sentence2",),
        label="gold_label",
        header=True,
        language="language",
    )
    assert table([path], NLI, "fr") == [Example("C", "D", "entailment")]
    assert table([path], NLI, "fr")[0].line == 3
    with pytest.raises(UserError, match=r"x.tsv: no examples in 'th' in this file"):
        table([path], NLI, "th")
    with pytest.raises(UserError, match=r"x.tsv: its header lacks columns of language TAB gold_"):
        table([write(path, "de\tneutral\t(\tA\tB\tTrue\n")], NLI, "de")


def test_texts_of_several_columns_are_joined(tmp_path):
    table = lt.Table(("query", "title", "text", "label"), ("query",), ("title", "text"))
    path = write(tmp_path / "x", "q\tt\ts\t1\nq\t\ts\t0\n")
    assert [example.hypothesis for example in table([path], BINARY, "de")] == ["t s", "s"]
    with pytest.raises(UserError, match=r"x, line 1: a text is empty"):
        table([write(path, "q\t\t\t1\n")], BINARY, "de")


def test_translations_with_their_original(tmp_path):
    path = write(tmp_path / "x.tsv", 'A\tB\tL\' "A"\tU\tcontradictory\n')
    assert lt.read_translated([path], NLI, "fr") == [Example('L\' "A"', "U", "contradiction")]
    assert lt.read_translated([write(path, "L'A\tU\tneutral\n")], NLI, "fr") == [
        Example("L'A", "U", "neutral")
    ]
    with pytest.raises(UserError, match=r"x.tsv, line 1: 4 columns, expected 3"):
        lt.read_translated([write(path, "A\tB\tL'A\tneutral\n")], NLI, "fr")


def test_xcopa(tmp_path):
    row = {"premise": "It rained.", "choice1": "A.", "choice2": "B.", "question": "cause"}
    row |= {"label": 1, "idx": 0}
    path = write(tmp_path / "x.jsonl", json.dumps(row))
    assert lt.read_xcopa([path], BINARY, "en") == [Example("It rained. cause", "A. / B.", "1")]
    write(path, json.dumps({key: value for key, value in row.items() if key != "label"}))
    assert lt.read_xcopa([path], BINARY, "en")[0].label is None
    hidden = "".join(
        json.dumps(row | {"label": 0, "idx": n}) + "\n" for n in range(500)
    )  # as XTREME's script hides them
    assert {one.label for one in lt.read_xcopa([write(path, hidden)], BINARY, "en")} == {None}
    told = hidden.replace('"label": 0', '"label": 1', 1)
    found = [one.label for one in lt.read_xcopa([write(path, told)], BINARY, "en")]
    assert found == ["1", *["0"] * 499]
    for text, message in (
        ("{}\n", r"x.jsonl, line 1: no text 'premise'"),
        (json.dumps(row | {"label": 2}), r"x.jsonl, line 1: unknown label '2', expected one of 0"),
    ):
        with pytest.raises(UserError, match=message):
            lt.read_xcopa([write(path, text)], BINARY, "en")


def test_intents(tmp_path):
    task = SimpleNamespace(labels=("weather/find", "alarm/set_alarm"))
    xsid = "# id = 1\n# text = Regnet es?\n# intent = weather/find\n1\tRegnet\tweather/find\tO\n\n"
    path = write(tmp_path / "x.conll", xsid)
    assert lt.read_xsid_intents([path], task, "de") == [Example("Regnet es?", None, "weather/find")]
    assert lt.read_xsid_intents([path], task, "de")[0].line == 2
    with pytest.raises(UserError, match=r"x.conll, line 1: an intent without a '# text =' line"):
        lt.read_xsid_intents([write(path, "# intent = weather/find\n")], task, "de")
    with pytest.raises(UserError, match=r"x.conll, line 3: unknown label 'weather'"):
        lt.read_xsid_intents([write(path, xsid.replace("weather/find", "weather"))], task, "de")
    mtod = "alarm/set_alarm\t8:13:datetime\tAlarma a las 5 \tes_XX\n"
    for line in (mtod, mtod.replace("\n", "\t[]\n")):
        found = READERS["mtod_intents"]([write(path, line)], task, "es")
        assert found == [Example("Alarma a las 5", None, "alarm/set_alarm")]
    with pytest.raises(UserError, match=r"line 1: 3 columns, expected 4: intent TAB slots TAB"):
        READERS["mtod_intents"]([write(path, "alarm/set_alarm\ta\tb\n")], task, "es")

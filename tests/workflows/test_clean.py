"""`xlingjax data clean` from files to files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.files import write
from tests.helpers.mediawiki import write_dump
from xlingjax.cli.main import main
from xlingjax.data.check import check
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.errors import UserError
from xlingjax.workflows.files.clean import CleanRequest, clean

for name in ("mwxml", "mwparserfromhell", "sentencex", "datasketch"):
    pytest.importorskip(name)

DE = """Die Katze trinkt Milch. Der Hund schläft.
Москва — столица России, и там живут люди.

12 345

Der Hund schlaeft tief und fest in seinem warmen kleinen Haus am Fluss.

Die  Katze trinkt Milch!
"""
MORE_DE = """Der Hund schlaeft tief und fest in seinem warmen kleinen Haus am Flusse.
Neu ist dieser Satz.
"""
PAIRS = [
    ("Die Katze.", "The cat."),
    ("ACME 2012", "Acme 2012"),
    ("Ja.", "one two three four five six seven eight nine ten"),
    ("", "Nothing."),
    ("Die Katze!", "The cat?"),
    ("Кошка.", "A cat."),
    ("Der Hund.", "The dog."),
]


def corpus(folder):
    write(folder / "mono/de/a.txt", DE)
    write(folder / "mono/de/b.txt", MORE_DE)
    write(folder / "pairs/de-en.de", "".join(f"{a}\n" for a, _ in PAIRS))
    write(folder / "pairs/de-en.en", "".join(f"{b}\n" for _, b in PAIRS))
    dump = write_dump(folder)
    return {
        "mono": (str(folder / "mono"),),
        "parallel": (str(folder / "pairs"),),
        "wikipedia": (str(dump),),
    }


def request(folder, output="out", **options):
    return CleanRequest(str(folder / output), **{**corpus(folder), **options})


def bytes_of(output):
    files = {}
    for path in sorted(Path(output).rglob("*")):
        if path.is_file():
            files[str(path.relative_to(output))] = path.read_bytes()
    return files


def quiet(_):
    pass


def test_raw_files_become_files_that_are_read(tmp_path):
    texts = clean(request(tmp_path), quiet)
    out = bytes_of(tmp_path / "out")
    # Documents that have lost all their lines leave the others apart; an exclamation mark is no
    # difference.
    assert out["mono/de/part-00001.txt"].decode() == (
        "Die Katze trinkt Milch.\nDer Hund schläft.\n\nDer Hund schlaeft tief und fest in seinem"
        " warmen kleinen Haus am Fluss.\n"
    )
    assert out["mono/de/part-00002.txt"].decode() == "Neu ist dieser Satz.\n"
    koeln, bonn = out["mono/de/part-00000.txt"].decode().split("\n\n")
    assert koeln.splitlines()[1] == "Sie liegt am Niederrhein."
    assert bonn == "Bonn ist eine Stadt am Rhein.\nDie Universität hat viele Studenten.\n"
    assert out["parallel/part-00000.de-en.de"].decode() == "Die Katze.\nDer Hund.\n"
    assert out["parallel/part-00000.de-en.en"].decode() == "The cat.\nThe dog.\n"
    counts = {step: count for step, count in texts["de"].items() if count}
    assert counts == {
        "in": 11,
        "sentences": 15,
        "script": 2,
        "exact": 1,
        "near": 1,
        "out": 11,
        "documents": 5,
    }
    counts = {step: count for step, count in texts["de-en"].items() if count}
    assert counts == {
        "in": 7,
        "sentences": 7,
        "empty": 1,
        "script": 1,
        "copies": 1,
        "ratio": 1,
        "exact": 1,
        "out": 2,
        "documents": 1,
    }
    # As a run finds them.
    (language,) = {text.language for text in find_text(str(tmp_path / "out/mono"))}
    (pair,) = find_pairs(str(tmp_path / "out/parallel"))
    assert language == "de" and pair.languages == ("de", "en")
    assert check(str(tmp_path / "out/mono"), str(tmp_path / "out/parallel")).errors == 0


def test_each_step_can_be_left_out(tmp_path):
    settings = CleanSettings(
        characters=False,
        sentences=False,
        length=None,
        tokens=None,
        script_share=0,
        copies=False,
        ratio=None,
        exact=False,
        near=None,
    )
    source = corpus(tmp_path)
    del source["wikipedia"]
    clean(CleanRequest(str(tmp_path / "out"), settings=settings, **source), quiet)
    out = bytes_of(tmp_path / "out")
    assert out["mono/de/part-00000.txt"].decode() == DE
    assert out["mono/de/part-00001.txt"].decode() == MORE_DE
    # A pair without a side is none, whatever is asked for.
    assert out["parallel/part-00000.de-en.de"].count(b"\n") == len(PAIRS) - 1


def test_documents_are_compared_as_one_text(tmp_path):
    line = "Der Hund schlaeft tief und fest in seinem warmen kleinen Haus am "
    other = "Ganz andere Worte stehen in diesem langen zweiten Satz des Textes"
    first = f"{line}Fluss.\n{other} hier.\n"
    # Its first line is near, and the document as a whole is not.
    second = f"{line}Fluß.\nNoch etwas ganz Verschiedenes, das den Text zu einem neuen macht.\n"
    third = f"{line}Fluß!\n{other} hier!!\n"
    path = write(tmp_path / "de.txt", "\n".join([first, second, third]))
    found = {}
    for unit in ("lines", "documents"):
        out = tmp_path / unit
        settings = CleanSettings(unit=unit, exact=False)
        clean(CleanRequest(str(out), mono=(str(path),), settings=settings), quiet)
        found[unit] = (out / "mono/de/part-00000.txt").read_text()
    assert found["documents"] == "\n".join([first, second])
    assert found["lines"] == first + "\n" + second.partition("\n")[2]


def test_other_languages_are_left_out(tmp_path):
    pytest.importorskip("fasttext")
    german = "Die Katze trinkt jeden Morgen ihre Milch."
    english = "The children play in the garden every day."
    path = write(tmp_path / "de.txt", f"{german}\n{english}\n")
    settings = CleanSettings(identify="lid.176.ftz")
    texts = clean(CleanRequest(str(tmp_path / "o"), mono=(str(path),), settings=settings), quiet)
    assert texts["de"]["identify"] == 1
    assert (tmp_path / "o/mono/de/part-00000.txt").read_text() == f"{german}\n"


# --- Several processes ----------------------------------------------------------------------------


def test_two_processes_write_the_same_bytes(tmp_path):
    one = clean(request(tmp_path), quiet)
    assert clean(request(tmp_path, "two", processes=2), quiet) == one
    assert bytes_of(tmp_path / "two") == bytes_of(tmp_path / "out")


# --- Interrupted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_killed_cleaning_goes_on(tmp_path, processes):
    for number in range(40):
        lines = [
            f"Satz {chr(97 + number % 26)}{chr(97 + line % 26)} {line}." for line in range(900)
        ]
        write(tmp_path / f"mono/de/{number:02d}.txt", "\n".join(lines))
    command = [sys.executable, "-m", "xlingjax", "data", "clean", "--processes", str(processes)]
    command += ["--mono", str(tmp_path / "mono"), "--near", "none", "--to"]
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [*command, str(killed)], stdout=subprocess.DEVNULL, start_new_session=True
    )
    lines = killed / ".clean/lines"
    deadline = time.time() + 120
    while len(list(lines.glob("*.json"))) < 3:
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in lines.glob("*.json")}
    assert 3 <= len(finished) < 40
    # The finished files are there in the middle of the second start too, as they were.
    settings = CleanSettings(near=None)
    mono = (str(tmp_path / "mono"),)
    again = CleanRequest(str(killed), mono, processes=processes, settings=settings)
    kept = {}

    def look(step):
        if step != "repetitions":
            return
        for path in lines.glob("*.json"):
            kept[path.name] = path.stat().st_mtime_ns

    clean(again, look)
    assert finished.items() <= kept.items() and len(kept) == 40
    whole = CleanRequest(str(tmp_path / "whole"), mono, settings=settings)
    clean(whole, quiet)
    assert bytes_of(killed) == bytes_of(tmp_path / "whole")


def test_a_finished_cleaning_is_not_repeated_and_no_other_goes_there(tmp_path):
    texts = clean(request(tmp_path), quiet)
    before = bytes_of(tmp_path / "out")
    assert clean(request(tmp_path), lambda step: pytest.fail(step)) == texts
    with pytest.raises(UserError, match="of a cleaning with other ratio, exact: give another"):
        clean(request(tmp_path, settings=CleanSettings(exact=False, ratio=3)), quiet)
    source = corpus(tmp_path)
    write(tmp_path / "mono/de/b.txt", MORE_DE + "Und noch einer.\n")
    with pytest.raises(UserError, match="with other input"):
        clean(CleanRequest(str(tmp_path / "out"), **source), quiet)
    write(tmp_path / "else/notes.txt", "mine")
    with pytest.raises(UserError, match="there are other files"):
        clean(request(tmp_path, "else"), quiet)
    assert bytes_of(tmp_path / "out") == before


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_damaged_dump_is_one_line_and_the_others_are_kept(tmp_path, capsys, processes):
    path = tmp_path / "dewiki-1-pages-articles.xml.bz2"
    path.write_bytes(b"nothing")
    text = write(tmp_path / "a/de.txt", "Die Katze.\n")
    words = ["data", "clean", "--wikipedia", str(path), "--mono", str(text)]
    words += ["--to", str(tmp_path / "out"), "--processes", processes]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: its first bytes are no compressed")
    assert len(list((tmp_path / "out/.clean/lines").glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mono", "TEXT", "--identify", "lid.176.bin"], "no such file; lid.176.ftz"),
        (["--mono", "xx=TEXT", "--identify", "lid.176.ftz"], "does not know the language 'xx'"),
        (["--mono", "TEXT", "--length", "5"], "'5' is not MIN,MAX"),
        ([], "nothing to clean"),
        (["--wikipedia", "TEXT"], "the name of a dump begins with the code"),
        (["--parallel", "de=TEXT"], "within one language (de=)"),
        (["--parallel", "de-de.tsv"], "two texts of one language"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch, words, message):
    pytest.importorskip("fasttext")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "de.txt", "Die Katze.\n")
    write(tmp_path / "de-de.tsv", "Die Katze.\tDer Kater.\n")
    words = [word.replace("TEXT", "de.txt") for word in words]
    assert main(["data", "clean", "--to", "out", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("package", "options"),
    [
        ("datasketch", {}),
        ("sentencex", {}),
        ("fasttext", {"identify": "lid.176.ftz"}),
        ("mwxml", {}),
    ],
)
def test_a_missing_package_is_named_before_anything_is_read(
    tmp_path, monkeypatch, package, options
):
    from xlingjax.data.clean import models

    models.identifier.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"needs the package {package}: `pip install '"):
        clean(request(tmp_path, settings=CleanSettings(**options)), quiet)
    assert not (tmp_path / "out").exists()

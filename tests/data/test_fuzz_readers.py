"""Damaged files of users: every reader reads them or refuses them in one line, and nothing else.

XLINGJAX_FUZZ_SECONDS=3600 makes an hour of it; XLINGJAX_FUZZ_SEED other damages.
"""

import collections
import json
import os
import random
import time
import traceback
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.test_user_files import COMPRESS
from tests.helpers import damage
from xlingjax.data.check import check
from xlingjax.data.held_out_pairs import read_pairs
from xlingjax.data.labelled import pairs as labelled_pairs
from xlingjax.data.labelled import text as labelled_text
from xlingjax.data.labelled import words as labelled_words
from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.teacher import read_labelled
from xlingjax.data.text.sources import find_negatives, find_pairs, find_text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError, in_one_line
from xlingjax.evaluation import submissions
from xlingjax.evaluation.alignment import read_links
from xlingjax.evaluation.word_embeddings import read_dictionary, read_similarity
from xlingjax.tasks.tables import READERS as OF_TASKS

SECONDS = float(os.environ.get("XLINGJAX_FUZZ_SECONDS", "4"))
SEED = int(os.environ.get("XLINGJAX_FUZZ_SEED", "0"))
TEXT = "Der Bus hält am Markt.\n\nZwei Kinder malen 苹果.\nOpa kocht \U0001f600 Suppe.\n"
ROW = {"text": "Der Bus hält.", "language": "de"}
CHOICE = {"premise": "Er fiel.", "question": "cause", "choice1": "a", "choice2": "b", "label": 1}
ANSWER = {"id": "q1", "question": "Wo?", "answers": [{"text": "Ulm", "answer_start": 8}]}
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "Lea ist Ulm.", "qas": [ANSWER]}]}]}
TAGGED = "Lea\tB-PER\nin\tO\nUlm\tB-LOC\n\nOpa\tO\n"
CONLLU = "# text = Opa\n1\tOpa\tOpa\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
XSID = "# text = weck mich\n# intent = alarm\n1\tweck\talarm\tO\n2\tmich\talarm\tB-x\n\n"
MTOD = "alarm\t0:4:verb\tweck mich\tde_DE\n"
NEGATIVES = "en\tde\tnegative\nyes\tja\tnein\n"
TASK = SimpleNamespace(labels=None, kind="classification", name="x")
RECORD = {"premise": "a", "hypothesis": "b", "label": "c", "line": 1, "original": []}


def lines_of(files):
    return sum(len([*one.lines()]) for one in files)


def labelled(read, *more):
    return lambda path: read([path, *[path.with_name(name) for name in more]], TASK, "de")


READERS = {
    "a.de.txt": (TEXT, lambda path: lines_of(find_text(str(path)))),
    "b.jsonl": (json.dumps(ROW) + "\n" + json.dumps(ROW), lambda p: lines_of(find_text(str(p)))),
    "c.de.tsv": ("id\ttext\n1\tgut\n2\tso\n", lambda path: lines_of(find_text(str(path)))),
    "d.de-en.tsv": ("gut\tgood\nja\tyes\n", lambda path: lines_of(find_pairs(str(path)))),
    "e.de-en.jsonl": ('{"de": "gut", "en": "good"}\n', lambda p: lines_of(find_pairs(str(p)))),
    "f.de-en.de": (TEXT, lambda path: lines_of(find_pairs(str(path)))),
    "g.en-de.tsv": (NEGATIVES, lambda path: lines_of(find_negatives(str(path)))),
    "checked.de.txt": (TEXT, lambda path: check(str(path)).text()),
    "checked.de-en.tsv": ("gut\tgood\n", lambda path: check((), str(path)).text()),
    "nli.tsv": ("a\tb\tc\nd\te\tf\n", labelled(labelled_text.read_own_table)),
    "translated.tsv": ("a\tb\ta\tb\tc\n", labelled(labelled_text.read_translated)),
    "xcopa.jsonl": (json.dumps(CHOICE) + "\n", labelled(labelled_text.read_xcopa)),
    "xsid.conll": (XSID, labelled(labelled_text.read_xsid_intents)),
    "mtod.tsv": (MTOD, labelled(OF_TASKS["mtod_intents"])),
    "pos.tsv": (TAGGED, labelled(labelled_words.Columns())),
    "conll.txt": (TAGGED, labelled(labelled_words.Columns(separator="", first_class=True))),
    "panx.tsv": (TAGGED, labelled(labelled_words.read_wikiann)),
    "lines.tsv": ("Lea in Ulm\tA B C\n", labelled(labelled_words.read_tagged_lines)),
    "ud.conllu": (CONLLU, labelled(labelled_words.read_conllu)),
    "slots.conll": (XSID, labelled(OF_TASKS["xsid_slots"])),
    "squad.json": (json.dumps(SQUAD), labelled(read_squad)),
    "source.txt": ("a\nb\n", labelled(labelled_pairs.read_source_target, "whole.txt")),
    "tatoeba.txt": ("a\nb\n", labelled(labelled_pairs.read_tatoeba, "whole.txt")),
    "labels.txt": ("1\n0\n", lambda path: labelled_pairs.read_tatoeba(
        [path.with_name("whole.txt"), path.with_name("whole.txt"), path], TASK, "de")),
    "bucc.txt": ("de-1\tgut\nde-2\tso\n", labelled(labelled_pairs.read_bucc, "bucc.en")),
    "gold.txt": ("de-1\ten-1\n", lambda path: labelled_pairs.read_bucc(
        [path.with_name("bucc.de"), path.with_name("bucc.en"), path], TASK, "de")),
    "teacher.jsonl": (json.dumps(RECORD) + "\n", lambda path: read_labelled(
        path, SimpleNamespace(labels=("c",), kind="classification"))),
    "links.txt": ("0-0 1-1\n0-1\n", lambda path: read_links(path, [(["a", "b"], ["c", "d"])] * 2)),
    "words.txt": ("Haus house\nBaum\ttree\n", read_dictionary),
    "alike.txt": ("Haus\thouse\t3.5\n", read_similarity),
    "rows.txt": ("0\n1\n", submissions.read_rows),
    "mined.txt": ("de-1\ten-1\n", submissions.read_pairs),
    "tags.txt": ("O\nB-X\n\nO\n", submissions.read_tag_lines),
    "answers.json": ('{"q1": "Ulm"}', lambda path: submissions._read_answers(path, [])),
    "held.de": (TEXT, lambda path: read_pairs(path.with_name("held"))),
    "vocab.txt": ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n", lambda p: Vocabulary.load(p)),
    "spm.model": ("\x0a\x10", lambda path: Vocabulary.load(path)),
}  # fmt: skip
WHOLE = {"f.de-en.en": TEXT, "whole.txt": "c\nd\n", "held.en": TEXT}
WHOLE |= {"bucc.de": "de-1\tgut\n", "bucc.en": "en-1\tgood\n"}
BYTES = [0, 9, 10, 13, 0x22, 0x5C, 0x7B, 0x80, 0xC3, 0xED, 0xFF, 0xFE, 0x2D]
PIECES = [b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\xbd", b"[" * 3000]
PIECES += [b"\t\t", b"-1", b"1e999", b"NaN", b"null", b"\n\n", b"\r", b"\xc2\xb2", b"9" * 5000]


def flipped(content, rng):
    where = rng.randrange(len(content))
    return content[:where] + bytes([rng.choice(BYTES)]) + content[where + 1 :]


def cut(content, rng):
    return content[: rng.randrange(len(content))]


def put_in(content, rng):
    where = rng.randrange(len(content) + 1)
    return content[:where] + rng.choice(PIECES) + content[where:]


def taken_out(content, rng):
    begin = rng.randrange(len(content))
    return content[:begin] + content[begin + rng.randrange(1, 9) :]


def lines_moved(content, rng):
    lines = content.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines + rng.sample(lines, 1))


def other_types(content, rng):
    """JSON with a value of another type."""
    first, end, rest = content.partition(b"\n")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return flipped(content, rng)
    value = damage._changed(value, np.random.default_rng(rng.randrange(1 << 30)))
    return json.dumps(value).encode() + end + rest


def transcoded(content, rng):
    text = content.decode("utf-8", "replace")
    return text.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "latin-1", "cp037"]), "replace")


DAMAGES = (flipped, cut, put_in, taken_out, lines_moved, other_types, transcoded)


def damaged(content, rng):
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if content:
            content = rng.choice(DAMAGES)(content, rng)
    return content


def compressed(path, content, rng):
    """(path, content), now and then compressed, and damaged once more."""
    if path.suffix == ".model" or rng.random() > 0.25:
        return path, content
    ending = rng.choice([*COMPRESS])
    content = COMPRESS[ending](content)
    if rng.random() < 0.5:
        content = rng.choice([flipped, cut, put_in])(content, rng)
    return path.with_name(path.name + ending), content


def outcome(read, path):
    """ "read", "refused", or what is wrong with how."""
    try:
        read(path)
    except UserError as error:
        # As it is printed.
        if not in_one_line(error).strip():
            return "said nothing"
        return "refused"
    except RecursionError:
        return "RecursionError"
    except Exception:
        return traceback.format_exc(limit=-4)
    return "read"


@pytest.mark.parametrize("name", READERS)
def test_whole_files_are_read(tmp_path, name):
    for file, content in WHOLE.items():
        (tmp_path / file).write_text(content)
    content, read = READERS[name]
    (tmp_path / name).write_text(content)
    if name != "spm.model":
        assert outcome(read, tmp_path / name) in ("read", "refused")
    if name not in ("spm.model", "vocab.txt", "answers.json"):
        read(tmp_path / name)


def test_damaged_files_are_read_or_refused(tmp_path, capsys):
    rng = random.Random(SEED)
    for file, content in WHOLE.items():
        (tmp_path / file).write_text(content)
    counts = collections.Counter()
    failures = {}
    end = time.process_time() + SECONDS
    names = list(READERS)
    while time.process_time() < end and len(failures) < 5:
        name = names[sum(counts.values()) % len(names)]
        whole, read = READERS[name]
        path, content = compressed(tmp_path / name, damaged(whole.encode(), rng), rng)
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = outcome(read, path)
        path.unlink()
        counts[found if found in ("read", "refused") else "failed"] += 1
        if found not in ("read", "refused"):
            failures.setdefault(found[-300:], (name, content[:400], found))
    with capsys.disabled():
        print(f"\nreaders: {sum(counts.values()):,} damaged files, {dict(counts)}")
    for name, content, found in failures.values():
        print(name, content, found, sep="\n")
    assert not failures
    assert counts["refused"] > 20 and counts["read"] > 20

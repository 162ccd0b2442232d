"""Small files in the layouts of XTREME's `download` folder and XGLUE's archive, of the embedded
corpus.

    write(root)     root/xtreme/{xnli,pawsx,udpos,panx,squad,xquad,mlqa,tydiqa,bucc2018,tatoeba}
                    root/xtreme_labels/TASK/test-LG.{tsv,json}: the answers that XTREME keeps, as
                    its scorer reads them
                    root/xglue/{NER,POS,NC,MLQA,XNLI,PAWSX,QADSM,WPR,QAM,QG,NTG}

A language that a task does not have is left out of it. Every set can be learnt: from words, or as
the corpus's sets.
"""

import csv
import json
from pathlib import Path

from xlingjax import demo
from xlingjax.data.labelled.task import TRAINED, find
from xlingjax.tasks import suite_tasks

LANGUAGES = ("de", "en", "fr", "ru")


def write(root, languages=LANGUAGES, *, train=48, dev=24, test=24, hidden=True) -> Path:
    """Writes all files and returns `root`. train, dev, test: examples of each set; hidden: XTREME's
    test sets come without answers, as it distributes them."""
    root = Path(root)
    sizes = dict.fromkeys(demo.SIZES, 0) | {"mono": 2 * test}
    for part, n in (("train", train), ("dev", dev), ("test", test)):
        sizes |= {f"{name}_{part}": n for name in demo.TASKS}
    sizes["heldout_pairs"] = 2 * test
    demo.write(root / "told", languages, sizes)
    told = Told(root / "told", languages)
    _xtreme(told, root / "xtreme", root / "xtreme_labels", hidden)
    _xglue(told, root / "xglue")
    return root


class Told:
    """The corpus's files, by set, part and language."""

    def __init__(self, root, languages):
        self.root, self.languages = root, languages

    def of(self, suite, task):
        known = next(t for t in suite_tasks(suite) if t.name == task).languages
        return [language for language in self.languages if language in known]

    def rows(self, name, part, language):
        lines = (self.root / name / f"{part}-{language}.tsv").read_text("utf-8").splitlines()
        return [line.split("\t") for line in lines]

    def sentences(self, name, part, language, drop=""):
        """[(word, tag), ...] of each sentence; tags of the type `drop` become O."""
        text = (self.root / name / f"{part}-{language}.tsv").read_text("utf-8").strip("\n")
        split = [[line.split("\t") for line in block.split("\n")] for block in text.split("\n\n")]
        return [
            [(word, "O" if drop and tag.endswith(drop) else tag) for word, tag in block]
            for block in split
        ]

    def squad(self, part, language):
        return json.loads((self.root / "qa" / f"{part}-{language}.json").read_text("utf-8"))

    def questions(self, part, language):
        """[(context, question), ...]"""
        paragraphs = [article["paragraphs"][0] for article in self.squad(part, language)["data"]]
        return [(paragraph["context"], paragraph["qas"][0]["question"]) for paragraph in paragraphs]

    def pairs(self, language):
        """(foreign, English) sentences that translate each other."""
        sides = (
            self.root / "heldout" / "parallel" / f"{language}-en.{side}"
            for side in (language, "en")
        )
        return [side.read_text("utf-8").splitlines() for side in sides]

    def more(self, language):
        """Sentences that translate none of those."""
        lines = (self.root / "mono" / f"{language}.txt").read_text("utf-8").splitlines()
        return [line for line in lines if line]


def fill(folder, suite) -> None:
    """The files of all languages of a benchmark that lack, as copies of those of another, which are
    told apart by their languages alone."""
    for task in suite_tasks(suite):
        for split, places in task.files.items():
            codes = [*task.languages, *[task.trained_on] * (task.kind in TRAINED)]
            there = [code for code in codes if find(task, folder, split, code)]
            for code in codes:
                if not there or code in there:
                    continue
                if split.startswith("translate_") and code == task.trained_on:
                    continue
                given = find(task, folder, split, there[0])
                for place in places:
                    paths = place.paths(Path(folder), code)
                    if paths and len(paths) == len(given.paths) and place is given.files:
                        for path, source in zip(paths, given.paths, strict=True):
                            path.parent.mkdir(parents=True, exist_ok=True)
                            path.write_bytes(source.read_bytes())


def _lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _json(path, data):
    _lines(path, [json.dumps(data, ensure_ascii=False)])


def _csv(path, rows):
    """As XTREME's scripts write: csv-quoted, CRLF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(rows)


def _tagged(path, sentences, separator="\t", tags=True):
    blocks = (
        "\n".join(f"{word}{separator}{tag}" if tags else word for word, tag in sentence)
        for sentence in sentences
    )
    _lines(path, ["\n\n".join(blocks)])


def _blanked(squad):
    """XTREME's test sets: an article per question, the answer empty."""
    articles = []
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                blank = qa | {"answers": [{"answer_start": 0, "text": ""}]}
                articles.append({"paragraphs": [{"context": paragraph["context"], "qas": [blank]}]})
    return {"data": articles, "version": squad["version"]}


def _renamed(squad, name):
    """The questions with ids made by `name`, a function of the row."""
    for row, article in enumerate(squad["data"]):
        article["paragraphs"][0]["qas"][0]["id"] = name(row)
    return squad


# --- XTREME ---------------------------------------------------------------------------------------


def _xtreme(told, root, labels, hidden):
    for task, name in (("xnli", "nli"), ("pawsx", "paraphrase")):
        _csv(root / task / "train-en.tsv", told.rows(name, "train", "en"))
        for code in told.of("xtreme", task):
            _csv(root / task / f"dev-{code}.tsv", told.rows(name, "dev", code))
            test = told.rows(name, "test", code)
            _csv(root / task / f"test-{code}.tsv", [row[:2] for row in test] if hidden else test)
            _lines(labels / task / f"test-{code}.tsv", [row[2] for row in test])
            if code != "en":
                train = zip(
                    told.rows(name, "train", "en"), told.rows(name, "train", code), strict=True
                )
                lines = ["\t".join([*english[:2], *own]) for english, own in train]
                _lines(root / task / "translate-train" / f"en-{code}-translated.tsv", lines)
                english = [
                    "\t".join([*own[:2], *en])
                    for own, en in zip(test, told.rows(name, "test", "en"), strict=True)
                ]
                _lines(root / task / "translate-test" / f"test-{code}-en-translated.tsv", english)
    for task, name, drop in (("udpos", "pos", ""), ("panx", "ner", "-MISC")):
        for code in told.of("xtreme", task):
            for part in ("train", "dev", "test"):
                sentences = told.sentences(name, part, code, drop)
                tags = not (hidden and part == "test")
                _tagged(root / task / f"{part}-{code}.tsv", sentences, tags=tags)
            # The last are those of the test set.
            tags = ["\n".join(tag for _, tag in sentence) for sentence in sentences]
            _lines(labels / task / f"test-{code}.tsv", ["\n\n".join(tags)])
    _xtreme_questions(told, root, labels, hidden)
    _xtreme_bitexts(told, root, labels, hidden)


def _xtreme_questions(told, root, labels, hidden):
    for part in ("train", "dev"):
        _json(root / "squad" / f"{part}-v1.1.json", told.squad(part, "en"))
    for code in told.of("xtreme", "xquad"):
        if code != "en":
            name = f"squad/translate-train/squad.translate.train.en-{code}.json"
            _json(root / name, told.squad("train", code))
    train = root / "tydiqa" / "tydiqa-goldp-v1.1-train"
    _json(
        train / "tydiqa.goldp.en.train.json", _renamed(told.squad("train", "en"), lambda row: "0")
    )
    dev = "dev-context-{0}-question-{0}.json"
    for task, test in (
        ("xquad", "xquad.{0}.json"),
        ("mlqa", "MLQA_V1/test/test-context-{0}-question-{0}.json"),
        ("tydiqa", "tydiqa-goldp-v1.1-dev/tydiqa.goldp.{0}.dev.json"),
    ):
        for code in told.of("xtreme", task):
            squad = told.squad("test", code)
            _json(root / task / test.format(code), _blanked(squad) if hidden else squad)
            _json(labels / task / f"test-{code}.json", squad)
            if task == "mlqa":
                _json(root / task / "MLQA_V1" / "dev" / dev.format(code), told.squad("dev", code))


def _xtreme_bitexts(told, root, labels, hidden):
    for code in told.of("xtreme", "tatoeba"):
        foreign, english = told.pairs(code)
        order = range(len(english))
        if hidden:
            order = sorted(order, key=english.__getitem__)
        _lines(root / "tatoeba" / f"{code}-en.{code}", foreign)
        _lines(root / "tatoeba" / f"{code}-en.en", [english[row] for row in order])
        _lines(labels / "tatoeba" / f"test-{code}.tsv", order)
    for code in told.of("xtreme", "bucc2018"):
        pairs = list(zip(*told.pairs(code), strict=True))
        half = len(pairs) // 2
        for part, own in (("dev", pairs[:half]), ("test", pairs[half:])):
            more = half // 2 if part == "dev" else -(half // 2)
            strangers = {
                lang: told.more(lang)[:more] if part == "dev" else told.more(lang)[more:]
                for lang in (code, "en")
            }
            foreign = [*strangers[code], *(pair[0] for pair in own)]
            english = [*(pair[1] for pair in own), *strangers["en"]]
            stem = root / "bucc2018" / f"{code}-en.{part}"
            for lang, side in ((code, foreign), ("en", english)):
                rows = [f"{lang}-{row:09}\t{text}" for row, text in enumerate(side)]
                _lines(stem.with_name(f"{stem.name}.{lang}"), rows)
            gold = [
                f"{code}-{row + len(strangers[code]):09}\ten-{row:09}" for row in range(len(own))
            ]
            if part == "dev" or not hidden:
                _lines(stem.with_name(f"{stem.name}.gold"), gold)
            if part == "test":
                _lines(labels / "bucc2018" / f"test-{code}.tsv", gold)


# --- XGLUE ----------------------------------------------------------------------------------------


def _xglue(told, root):
    for task, folder, name in (("ner", "NER", "ner"), ("pos", "POS", "pos")):
        for code, part in _parts(told, task):
            sentences = told.sentences(name, part, code)
            _tagged(root / folder / f"{code}.{part}", sentences, separator=" ")
    for code, part in _parts(told, "xnli"):
        rows = ["\t".join(row) for row in told.rows("nli", part, code)]
        if part == "train":
            _lines(root / "XNLI" / "multinli.train.en.tsv", ["premise\thypo\tlabel", *rows])
        else:
            _lines(root / "XNLI" / f"{code}.{part}", rows)
    for code, part in _parts(told, "pawsx"):
        rows = [
            f"{i}\t" + "\t".join(row)
            for i, row in enumerate(told.rows("paraphrase", part, code), 1)
        ]
        file = "train.tsv" if part == "train" else f"{part}_2k.tsv"
        _lines(root / "PAWSX" / code / file, ["id\tsentence1\tsentence2\tlabel", *rows])
    _json(root / "MLQA" / "squad1.1" / "train-v1.1.json", told.squad("train", "en"))
    for code, part in _parts(told, "mlqa"):
        if part != "train":
            path = root / "MLQA" / "MLQA_V1" / part / f"{part}-context-{code}-question-{code}.json"
            _json(path, told.squad(part, code))
    for task, rows in (("nc", _news), ("qadsm", _ads), ("wpr", _pages), ("qam", _answers)):
        for code, part in _parts(told, task):
            path = root / task.upper() / f"xglue.{task}.{code}.{part}"
            _lines(path, ["\t".join(row) for row in rows(told, part, code)])
    for code, part in _parts(told, "qg"):
        _written(root / "QG" / f"xglue.qg.{code}", part, told.questions(part, code))
    for code, part in _parts(told, "ntg"):
        _written(root / "NTG" / f"xglue.ntg.{code}", part, told.rows("titles", part, code))


def _parts(told, task):
    """The languages and parts of a task: English has a training set, the others have not."""
    codes = told.of("xglue", task)
    return [
        (code, part)
        for code in codes
        for part in ("train", "dev", "test")
        if part != "train" or code == "en"
    ]


def _written(stem, part, pairs):
    for side, texts in zip(("src", "tgt"), zip(*pairs, strict=True), strict=True):
        _lines(stem.with_name(f"{stem.name}.{side}.{part}"), texts)


def _news(told, part, code):
    """title, body, category by what the English body tells."""
    words = {
        "foodanddrink": (" ate ", " drank ", " cooked "),
        "travel": (" went ", " drove ", " flew ", " ran "),
    }
    for (body, title), (english, _) in zip(
        told.rows("titles", part, code), told.rows("titles", part, "en"), strict=True
    ):
        found = [name for name, verbs in words.items() if any(verb in english for verb in verbs)]
        yield title, body, found[0] if found else "lifestyle"


def _ads(told, part, code):
    """query, ad title, ad description: of one story, or of two."""
    titles = told.rows("titles", part, code)
    for row, (body, title) in enumerate(titles):
        other, name = titles[row - 1]
        yield (title, title, body, "Good") if row % 2 else (title, name, other, "Bad")


def _pages(told, part, code):
    """Three pages for each query: the story of this title, its first half, another."""
    titles = told.rows("titles", part, code)
    for row, (body, title) in enumerate(titles):
        yield title, title, body, "4"
        yield title, title, body[: len(body) // 2], "2"
        yield title, titles[row - 1][1], titles[row - 1][0], "0"


def _answers(told, part, code):
    """Question and passage: its own, or another's."""
    questions = told.questions(part, code)
    for row, (context, question) in enumerate(questions):
        yield question, context if row % 2 else questions[row - 1][0], str(row % 2)

"""Sets of TensorFlow Datasets prepared by its own builders, from small files in the authors'
layouts.

official(root)           the files; `xlingjax.data.labelled.task.read` reads them too
prepare(root, data_dir)  the sets, with no download
"""

import json
import sys
import types
from pathlib import Path
from unittest import mock

XNLI = ["ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"]
LABELS = ("entailment", "neutral", "contradiction")
TYDIQA = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
}

TRANSLATED_SQUAD = "squad/translate-train/squad.translate.train.en-{}.json"


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def squad(*ids, text="Grüße 😀 aus"):
    """Answers behind characters of several bytes; the first question has two."""
    questions = [
        {
            "id": id_,
            "question": f"Wo, {id_}?",
            "answers": [{"text": f"Köln{n}", "answer_start": len(text) + 2}],
        }
        for n, id_ in enumerate(ids)
    ]
    questions[0]["answers"].append({"text": "öln0", "answer_start": len(text) + 3})
    paragraphs = [
        {"context": f" {text} Köln{n} am Rhein.", "qas": [one]} for n, one in enumerate(questions)
    ]
    return json.dumps(
        {"data": [{"title": "Köln", "paragraphs": paragraphs}], "version": "1.1"},
        ensure_ascii=False,
    )


CONLLU = """# sent_id = {0}
# text = Er geht zum Haus
1\tEr{0}\ter\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tgeht\tgehen\tVERB\t_\t_\t0\troot\t_\t_
2.1\tging\tgehen\tVERB\t_\t_\t_\t_\t_\t_
3-4\tzum\t_\t_\t_\t_\t_\t_\t_\t_
3\tzu\tzu\tADP\t_\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\t_\t_\t5\tdet\t_\t_
5\tHaus\tHaus\tNOUN\t_\t_\t2\tobl\t_\t_

"""


def official(root, rows=6):
    root = Path(root)
    for part in ("dev", "test"):
        lines = ["language\tgold_label\tpairID\tsentence1\tsentence2"]
        for row in range(rows):
            lines += [
                f'{code}\t{LABELS[row % 3]}\t{row}\tA "{part}" {code} {row} \tÄ {row}'
                for code in XNLI
            ]
        _write(root / f"XNLI-1.0/xnli.{part}.tsv", "\n".join(lines) + "\n")
    texts = [(f"P {row} .", f'H "{row}"', LABELS[(row + 1) % 3]) for row in range(rows)]
    body = "".join("\t".join(row) + "\n" for row in texts)
    _write(root / "XNLI-MT-1.0/multinli/multinli.train.en.tsv", "premise\thypo\tlabel\n" + body)
    body = "".join(f"{label}\t\t\t\t\t{first}\t{second}\tx\n" for first, second, label in texts)
    _write(root / "multinli_1.0/multinli_1.0_train.txt", "header\n" + body)
    for part in ("dev_matched", "dev_mismatched"):
        _write(root / f"multinli_1.0/multinli_1.0_{part}.txt", "header\n" + body)
    for code in XNLI:
        renamed = [(first, second, label.replace("tion", "tory")) for first, second, label in texts]
        body = "".join(f"{a}\t{b}\t{code} {a}\t{code} {b}\t{label}\n" for a, b, label in renamed)
        _write(root / f"xtreme_translations/XNLI/translate-train/en-{code}-translated.tsv", body)
    for code in ("de", "en"):
        for part in ("train" if code == "en" else "translated_train", "dev_2k", "test_2k"):
            body = "".join(
                f"{row + 1}\t{code} {part} {row}\tÜ {row}\t{row % 2}\n" for row in range(rows)
            )
            _write(root / f"x-final/{code}/{part}.tsv", "id\tsentence1\tsentence2\tlabel\n" + body)
    body = "".join(f"A {row}\tB {row}\tÄ {row}\tO {row}\t{int(row > 1)}\n" for row in range(rows))
    _write(root / "xtreme_translations/PAWSX/translate-train/en-de-translated.tsv", body)
    tags = ("B-PER", "I-PER", "O", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
    for part in ("train", "dev", "test"):
        blocks = [
            "".join(f"de:{tag}:{row}\t{tag}\n" for tag in tags[row:] + tags[:row])
            for row in range(rows)
        ]
        _write(root / f"panx_dataset/de-{part}", "\n".join(blocks))
    for part in ("train", "dev"):
        _write(root / f"squad/{part}-v1.1.json", squad(f"{part}1", f"{part}2", f"{part}3"))
    _write(root / "xquad/xquad.de.json", squad("x1", "x2", "x3"))
    translated = json.loads(squad("train1", "train2", "train3", text="über"))
    translated["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1  # lost
    _write(root / TRANSLATED_SQUAD.format("de"), json.dumps(translated))
    for part in ("dev", "test"):
        _write(
            root / f"MLQA_V1/{part}/{part}-context-de-question-de.json",
            squad(f"m{part}1", f"m{part}2"),
        )
    goldp = {
        code: squad(*(f"{name}-{row}-1" for row in range(3)), text=f"{code} ü")
        for code, name in TYDIQA.items()
    }
    for code, text in goldp.items():
        _write(root / f"tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{code}.train.json", text)
        _write(root / f"tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{code}.dev.json", text)
        _write(root / f"tydiqa/tydiqa-goldp-v1.1-dev/tydiqa-goldp-dev-{TYDIQA[code]}.json", text)
    whole = {"data": [article for text in goldp.values() for article in json.loads(text)["data"]]}
    _write(root / "tydiqa/all.json", json.dumps(whole))
    for side in ("deu", "eng"):
        _write(
            root / f"tatoeba/v1/tatoeba.deu-eng.{side}",
            "".join(f"{side} ß {row}\n" for row in range(rows)),
        )
    for part, end in _CONLL.items():
        words = "and CC O O\nBonn NNP I-NP I-LOC\nRom NNP I-NP B-LOC\n"
        blocks = [f"EU{row} NNP I-NP I-ORG\n{words}" for row in range(rows)]
        _write(root / f"conll2003/eng.{end}", "-DOCSTART- -X- O O\n\n" + "\n".join(blocks) + "\n")
        blocks = [f"Den{row} Art B-LOC\nHaag N I-LOC\n. Punc O\n" for row in range(rows)]
        _write(root / f"conll2002/ned.{end}", "\n".join(blocks) + "\n")
        for treebank in ("gsd", "pud") if part == "test" else ("gsd",):
            text = "".join(CONLLU.format(f"{treebank}-{row}") for row in range(rows))
            _write(root / f"ud_conllu/de_{treebank}-ud-{part}.conllu", text)
    return root


class Downloads:
    """In the place of TFDS's download manager: what a builder asks for lies there."""

    downloaded_size = 0

    def __init__(self, found):
        self.found = found

    def download_and_extract(self, asked):
        return self.found(asked) if callable(self.found) else self.found

    download = extract = download_and_extract


def prepare(root, data_dir, names):
    """names: of `SETS`, NAME or NAME/CONFIG."""
    import tensorflow  # noqa: F401 - whole, before sys.modules is patched
    import tensorflow_datasets as tfds

    for name in names:
        builder = tfds.builder(name, data_dir=str(data_dir))
        downloads = Downloads(SETS[name](Path(root)))
        manager = mock.patch.object(
            tfds.core.DatasetBuilder, "_make_download_manager", return_value=downloads
        )
        conllu = mock.patch.dict(
            sys.modules, {"conllu": types.SimpleNamespace(parse_incr=_parse_incr)}
        )
        with manager, conllu:
            builder.download_and_prepare()


def _parse_incr(file):
    """As conllu's: tokens with every line's fields, of which a missing head is None."""
    for block in file.read().strip("\n").split("\n\n"):
        lines = [line.split("\t") for line in block.split("\n") if not line.startswith("#")]
        names = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
        tokens = _Tokens(dict(zip(names, cells, strict=True)) for cells in lines)
        for token in tokens:
            token["head"] = None if token["head"] == "_" else int(token["head"])
        tokens.metadata = dict(
            line[2:].split(" = ") for line in block.split("\n") if line.startswith("#")
        )
        yield tokens


class _Tokens(list):
    pass


def _each(paths):
    """{key of what is asked: path}."""
    return lambda asked: (
        {key: str(paths[key]) for key in asked} if isinstance(asked, dict) else str(paths[asked])
    )


def _wikiann(root):
    """Its archive holds another for each language, with files train, dev and test."""
    for part in ("train", "dev", "test"):
        _write(
            root / "panx_archive" / part,
            (root / f"panx_dataset/de-{part}").read_text(encoding="utf-8"),
        )
    return str(root / "panx_archive")


def _tydiqa(root):
    whole, folder = str(root / "tydiqa/all.json"), str(root / "tydiqa")
    return lambda asked: {key: folder if key == "lang-validation" else whole for key in asked}


def _conll2003(root):
    for part, end in (("train", "train"), ("valid", "testa"), ("test", "testb")):
        _write(
            root / f"conll2003_archive/{part}.txt",
            (root / f"conll2003/eng.{end}").read_text(encoding="utf-8"),
        )
    return root / "conll2003_archive"


def _ud(treebank):
    def found(root):
        return lambda asked: {
            part: [str(root / f"ud_conllu/de_{treebank}-ud-{part}.conllu")] for part in asked
        }

    return found


_CONLL = {"train": "train", "dev": "testa", "test": "testb"}
_translations = "xtreme_translations/{}/translate-train/en-{}-translated.tsv"
SETS = {
    "xnli": lambda root: str(root),
    "multi_nli": lambda root: str(root),
    "xtreme_xnli": lambda root: _each(
        {code: root / _translations.format("XNLI", code) for code in XNLI}
    ),
    "paws_x_wiki/de": lambda root: {"x-final": str(root)},
    "paws_x_wiki/en": lambda root: {"x-final": str(root)},
    "xtreme_pawsx/de": lambda root: str(root / _translations.format("PAWSX", "de")),
    "wikiann/de": _wikiann,
    "squad/v1.1": lambda root: {
        part: str(root / f"squad/{part}-v1.1.json") for part in ("train", "dev")
    },
    "xquad/de": lambda root: (
        lambda asked: {
            part: str(
                root
                / (
                    TRANSLATED_SQUAD.format("de")
                    if part == "translate-train"
                    else "xquad/xquad.de.json"
                )
            )
            for part in asked
        }
    ),
    "mlqa/de": lambda root: {"test": str(root), "validation": str(root)},
    "tydi_qa/goldp": _tydiqa,
    "tatoeba/tatoeba_de": lambda root: {
        "tatoeba_source_data": str(root / "tatoeba/v1/tatoeba.deu-eng.deu"),
        "tatoeba_eng_data": str(root / "tatoeba/v1/tatoeba.deu-eng.eng"),
    },
    "conll2003": _conll2003,
    "conll2002/nl": lambda root: {
        part: str(root / f"conll2002/ned.{end}") for part, end in _CONLL.items()
    },
    "universal_dependencies/de_gsd": _ud("gsd"),
    "universal_dependencies/de_pud": _ud("pud"),
}

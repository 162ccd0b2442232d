"""Small files of everything that the papers' tables read, in the official layouts: one folder of
benchmarks, text, and runs to start from."""

import json
import shutil
from pathlib import Path

from benchmarks import table_hours
from tests.helpers import official_files
from tests.helpers.sweeping import random_run
from xlingjax.config import gin_files
from xlingjax.data.labelled.task import read
from xlingjax.tasks import task_named

LANGUAGES = ("de", "en", "ru")
WRITTEN = ("de", "en", "es", "fr", "it", "pt", "ru", "zh")  # by encoders with a decoder
RUNS = {
    "base": {},
    "xlm": {"layers": 6},
    "large": {"layers": 24},
    "veco": {"layers": 24, "cross_attention": True},
    "xdae": {"decoder_layers": 1, "language_tokens": len(WRITTEN)},
    "xfnp": {"decoder_layers": 1, "streams": 2},
}
OF_TEXT = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ne", "nl", "ro", "ru", "sw", "th", "tr")
OF_TEXT += ("ur", "vi", "zh")
TYDIQA = {
    "ar": "arabic", "bn": "bengali", "en": "english", "fi": "finnish", "id": "indonesian",
    "ko": "korean", "ru": "russian", "sw": "swahili", "te": "telugu",
}  # fmt: skip
TRAINED = 24
"""English examples of a set."""
ROOM = {"max_positions": 520, "position_offset": 2}
"""Rows of 512, as the longest of the recipes."""
ENCODERS = {"xglue_6": "xdae", "xglue_8": "xdae", "xglue_12": "xdae", "xlm_5": "base"}
"""Tables of one kind of encoder; the others' is "base", or what their rows name."""


def write(root: Path) -> dict[str, str]:
    """Writes all; {"data": folder, name of a run: run}."""
    told = official_files.write(root / "told", LANGUAGES, train=TRAINED, dev=12, test=12)
    data = root / "data"
    for suite in ("xtreme", "xglue"):
        official_files.fill(told / suite, suite)
        shutil.copytree(told / suite, data, dirs_exist_ok=True)
    _applications(told / "told", data)
    _translations(data)
    text = root / "text"
    shutil.copytree(told / "told", text)
    _text(text)
    found = {"data": str(data), "text": str(text)}
    for name, changes in RUNS.items():
        (root / name).mkdir()
        languages = WRITTEN if "decoder_layers" in changes else LANGUAGES
        run = random_run(root / name, told, languages=languages, **{**ROOM, **changes})
        found[name] = str(run)
    return found


def _translations(data: Path) -> None:
    """Of the tasks whose translations the small files lack: TyDiQA's, and English sides of tags."""
    tydiqa = data / "tydiqa/translate-train"
    tydiqa.mkdir(exist_ok=True)
    folder = data / "tydiqa/tydiqa-goldp-v1.1-train"
    # Its files of one language have shortened ids, the whole file and translations the full ones.
    articles = []
    for code, name in TYDIQA.items():
        told = json.loads((folder / f"tydiqa.goldp.{code}.train.json").read_text("utf-8"))
        number = 0
        for article in told["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    number += 1
                    question["id"] = f"{name}-{number}"
        articles += told["data"]
        if code == "en":
            english = json.dumps(told, ensure_ascii=False)
    text = json.dumps({"data": articles}, ensure_ascii=False)
    (folder / "tydiqa-goldp-v1.1-train.json").write_text(text, "utf-8")
    for code in TYDIQA:
        if code != "en":
            (tydiqa / f"tydiqa.translate.train.en-{code}.json").write_text(english, "utf-8")
            told = data / f"tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{code}.dev.json"
            path = data / f"tydiqa/translate-test/tydiqa.translate.test.{code}-en.json"
            path.parent.mkdir(exist_ok=True)
            shutil.copy(told, path)
    for name in ("udpos", "panx"):
        task = task_named(f"xtreme/{name}")
        for language in task.languages:
            if language == task.trained_on:
                continue
            train = read(task, data, "train", task.trained_on)
            lines = [f"{' '.join(one.words)}\t{' '.join(one.tags)}" for one in train]
            _lines(data / f"{name}/translate-train/train-{language}.mt.tsv", lines)
            for part in ("dev", "test"):
                lines = [" ".join(one.words) for one in read(task, data, part, language)]
                _lines(data / f"{name}/translate-{part}/{part}-{language}-en.tsv", lines)


def _applications(told: Path, data: Path) -> None:
    for code, language, year in (
        ("eng", "en", 2003), ("deu", "de", 2003), ("esp", "es", 2002), ("ned", "nl", 2002),
    ):  # fmt: skip
        columns = {"en": 2, "de": 3, "es": 0, "nl": 1}[language]
        for part, end in (("train", "train"), ("dev", "testa"), ("test", "testb")):
            source = told / f"ner/{part}-{'de' if language == 'de' else 'en'}.tsv"
            lines = []
            for line in source.read_text("utf-8").splitlines():
                if line:
                    word, tag = line.split("\t")
                    line = " ".join([word, *["X"] * columns, tag])
                lines.append(line)
            path = data / f"conll{year}/{code}.{end}"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(lines) + "\n", "utf-8")
    for language in ("de", "en", "fr", "zh"):
        for part in ("train", "dev", "test"):
            # Unicoder's table takes the last 5,000 for dev.
            rows = [f"wer {i}\tdort {i}\t{i % 2}" for i in range(5024)]
            _lines(data / f"xqa/{part}-{language}.tsv", rows)
            for side in ("src", "tgt"):
                path = data / f"summarisation/xnlg.{language}.{side}.{part}"
                _lines(path, [f"{side} ein Satz {i}" for i in range(24)])


def _text(text: Path) -> None:
    """The same lines under the names of other languages."""
    german = (text / "mono/de.txt").read_text("utf-8").splitlines()[:40]
    for language in OF_TEXT:
        _lines(text / f"some/{language}.txt", german)
        if language != "en":
            pair = "-".join(sorted((language, "en")))
            for code in ("en", language):
                _lines(text / f"pairs/{pair}.{code}", german)
    for code in ("de", "en"):
        _lines(text / f"documents/de-en.{code}", [*german[:12], "", *german[12:24], ""])
    words = ("a\tein", "am\tin", "in\tam", "is\ta", "the\teine")  # each a piece
    for pair in ("en-de", "en-es", "de-es"):
        _lines(text / f"{pair}.5000-6500.txt", words)
        _lines(text / f"{pair}.tsv", [f"{both}\t{i}" for i, both in enumerate(words)])
    _lines(text / "negatives/de-en.tsv", ["de\ten\tnegative", *["a\tb\tc"] * 24])


def _lines(path: Path, lines) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def macros(name: str, found: dict[str, str]) -> list[str]:
    """--gin.NAME=VALUE of all that a table requires."""
    text = found["text"]
    pairs = {"EN_DE": "de-en", "EN_FR": "en-fr", "EN_RO": "en-ro"}
    values = {
        "MONO": f"{text}/some/de.txt {text}/some/en.txt {text}/some/ru.txt",
        "PARALLEL": f"{text}/pairs/de-en.* {text}/pairs/en-ru.*",
        "DOCUMENTS": f"{text}/documents/de-en.*",
        "NEGATIVES": f"{text}/negatives/*",
        "VOCABULARY": found["base"],
        "INIT_FROM": found["base"],
        "XLM_RUN": found["xlm"],
        "XLMR_RUN": found["large"],
        "VECO_RUN": found["veco"],
        "IWSLT": f"{text}/pairs/de-en.*",
        "IWSLT_DEV": f"{text}/pairs/de-en.*",
        "IWSLT_TEST": f"{text}/pairs/de-en",
        "NE": f"{text}/some/ne.txt",
        "EN": f"{text}/some/en.txt",
        "HI": f"{text}/some/hi.txt",
        "HELDOUT": f"{text}/some/ne.txt",
        "DICTIONARIES": text,
        "SIMILARITIES": text,
        "DEV": f"{text}/pairs/en-ro.*",
        "TEST": f"{text}/pairs/en-ro",
    }
    if name == "ernie_m_6":
        # From random tables of languages, which must be those of the tasks.
        values["MONO"] = f"{text}/some/*.txt"
    if name == "ernie_m_5_tuned":
        # Its layer 18 learns.
        values["INIT_FROM"] = found["large"]
    if name == "xlm_3":
        values["MONO"] = f"{text}/some/en.txt {text}/some/ro.txt"
        values["PARALLEL"] = f"{text}/pairs/en-ro.*"
    for end, pair in pairs.items():
        both = pair.split("-")
        values[f"MONO_{end}"] = " ".join(f"{text}/some/{one}.txt" for one in both)
        values[f"VOCABULARY_{end}"] = found["base"]
        values[f"PARALLEL_{end}"] = values[f"MORE_{end}"] = f"{text}/pairs/{pair}.*"
        values[f"DEV_{end}"] = f"{text}/pairs/{pair}.*"
        values[f"TEST_{end}"] = f"{text}/pairs/{pair}"
    path = gin_files.gin_folder() / f"recipes/tables/{name}.gin"
    given = [f"--gin.{one}={values[one]}" for one in table_hours.required(path)]
    if "\nENCODERS" not in path.read_text("utf-8"):
        given.append(f"--gin.ENCODERS={_encoders(path, found)!r}")
    return given


def _encoders(path: Path, found: dict[str, str]) -> dict[str, str]:
    text = path.read_text("utf-8")
    named = [name for name in RUNS if f'"encoders": "{name}"' in text]
    if path.stem in ENCODERS:
        named = [ENCODERS[path.stem]]
    elif path.stem.startswith("veco"):
        named = ["veco"]
    elif '"layer"' in text:
        named = ["large"]
    return {name: found[name] for name in named or ["base"]}

"""One small corpus in every language that is there."""

import json
from pathlib import Path

import pytest

COUNTS = {
    "mono": 400,
    "pairs": 400,
    "other_pairs": 60,
    "rewordings": 100,
    "documents": 20,
    "heldout_mono": 100,
    "heldout_pairs": 500,
    "novel_pairs": 60,
    "nli_train": 300,
    "nli_dev": 30,
    "nli_test": 150,
    "paraphrase_train": 100,
    "paraphrase_dev": 10,
    "paraphrase_test": 60,
    "pos_train": 60,
    "pos_dev": 10,
    "pos_test": 60,
    "ner_train": 60,
    "ner_dev": 10,
    "ner_test": 60,
    "qa_train": 40,
    "qa_dev": 10,
    "qa_test": 40,
    "titles_train": 40,
    "titles_dev": 10,
    "titles_test": 20,
}


class Corpus:
    """A written corpus: `corpus.lines("mono/en/tinyworld.txt")`,
    `corpus.rows("nli/test-en.tsv")`."""

    def __init__(self, root: Path, manifest: dict) -> None:
        self.root, self.manifest = root, manifest
        self.languages = tuple(manifest["languages"])
        self.others = tuple(code for code in self.languages if code != "en")

    def lines(self, path: str) -> list[str]:
        return (self.root / path).read_text("utf-8").splitlines()

    def rows(self, path: str) -> list[list[str]]:
        return [line.split("\t") for line in self.lines(path)]

    def questions(self, path: str) -> list[tuple[str, dict]]:
        """(context, question) of each."""
        data = json.loads((self.root / path).read_text("utf-8"))["data"]
        return [
            (p["context"], q) for article in data for p in article["paragraphs"] for q in p["qas"]
        ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Corpus:
    from xlingjax.data.tinyworld import available_languages, write

    root = tmp_path_factory.mktemp("tinyworld")
    return Corpus(root, write(root, seed=3, languages=available_languages(), size=COUNTS))

"""Does an exported model predict what the run that it came from did? Every label, every word.

    python -m benchmarks.exported CELL FOLDER DATA [--limit 100]

CELL: a cell of `xlingjax finetune --task` of classification or tagging; FOLDER: its run, exported;
DATA: the official files. Prints Markdown: per language how many of the first examples, or their
words, transformers gives another label. Of sentences of words those are left out that are longer
than the cell's LENGTH, which we read in several rows.
"""

import argparse
import json
import re
from pathlib import Path

import torch
import transformers

from xlingjax.data.labelled.task import read
from xlingjax.tasks import task_named


def labels_of_texts(folder: Path, records: list, length: int) -> list[str]:
    """By AutoModelForSequenceClassification, a text or a pair at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for one in records:
        given = tokenizer(
            one.premise, one.hypothesis, return_tensors="pt", truncation=True, max_length=length
        )
        with torch.no_grad():
            found.append(model.config.id2label[int(model(**given).logits.argmax())])
    return found


def tags_of_words(folder: Path, records: list, length: int) -> list[list[str | None]]:
    """By AutoModelForTokenClassification, at the first piece of each word; None: the sentence is
    longer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    found = []
    for one in records:
        words = list(one.words)
        given = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        if given["input_ids"].shape[1] > length:
            found.append([None] * len(words))
            continue
        with torch.no_grad():
            best = model(**given).logits[0].argmax(-1).tolist()
        tags: list[str | None] = [None] * len(words)
        for place, word in reversed(list(enumerate(given.word_ids()))):
            if word is not None:
                tags[word] = model.config.id2label[best[place]]
        found.append(tags)
    return found


def differing(cell: Path, folder: Path, data: str, limit: int) -> list[tuple[str, int, int]]:
    """(language, labels that differ, labels compared)."""
    scores = json.loads((cell / "scores.json").read_text(encoding="utf-8"))
    task, split, rows = task_named(scores["task"]), scores["test"]["split"], []
    recipe = (cell / "run" / "config.gin").read_text(encoding="utf-8")
    length = int(re.search(r"^LENGTH = (\d+)$", recipe, re.MULTILINE)[1])
    for language in sorted(scores["test"]["by_language"]):
        (path,) = cell.glob(f"predictions*/**/*-{language}.*")
        records = read(task, data, split, language)[:limit]
        if task.kind == "tagging":
            blocks = path.read_text(encoding="utf-8").strip("\n").split("\n\n")[: len(records)]
            pairs = []
            for block, theirs in zip(blocks, tags_of_words(folder, records, length), strict=True):
                tags = [line.split("\t")[-1] for line in block.split("\n")]
                of_words = zip(tags, theirs, strict=True)
                pairs += [pair for pair in of_words if pair[1] is not None]
        else:
            ours = path.read_text(encoding="utf-8").splitlines()[: len(records)]
            pairs = list(zip(ours, labels_of_texts(folder, records, length), strict=True))
        rows.append((language, sum(a != b for a, b in pairs), len(pairs)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cell", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data")
    parser.add_argument("--limit", type=int, default=100)
    given = parser.parse_args()
    print("| language | differ | of |\n|---|--:|--:|")
    for language, wrong, count in differing(given.cell, given.folder, given.data, given.limit):
        print(f"| {language} | {wrong} | {count} |")


if __name__ == "__main__":
    main()

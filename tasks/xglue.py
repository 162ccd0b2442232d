"""XGLUE's eleven tasks (Liang et al. 2020, arXiv:2004.01401), as its archive holds them.

Four come from sets that XTREME has too; where XTREME's file holds the very sentences of XGLUE's
(development sets of XNLI, PAWS-X and MLQA, POS of bg, hi, ur and vi) it serves as well.
"""

from __future__ import annotations

import dataclasses

from xlingjax.data.labelled.pairs import read_source_target
from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.task import Files, Task
from xlingjax.data.labelled.text import Table
from xlingjax.data.labelled.words import Columns
from xlingjax.tasks.xtreme import (
    NLI,
    PAWSX_OVERLAP,
    RAW_PAWSX,
    SQUAD,
    TRANSLATED_MLQA,
    UPOS,
    XNLI,
    mlqa,
    multinli,
    places,
    raw_pawsx,
    raw_xnli,
    translations,
)

CONLL_TAGS = ("B-LOC", "B-MISC", "B-ORG", "B-PER", "I-LOC", "I-MISC", "I-ORG", "I-PER", "O")
_NEWS = "foodanddrink sports news entertainment health video finance travel lifestyle autos"
NEWS = tuple(_NEWS.split())

_words = Columns(separator=" ", tag=-1)
_SPLITS = ("train", "dev", "test")
_TRANSLATED = "translate-train/en-{language}-translated.tsv"


def _task(
    name: str,
    kind: str,
    languages: str,
    files,
    metrics: tuple[str, ...],
    labels=(),
    **more,
) -> Task:
    return Task(
        suite="xglue",
        name=name,
        kind=kind,
        languages=tuple(languages.split()),
        files=files,
        metrics=metrics,
        # The official scorer finds the folder of a task by its name in capitals.
        submission=f"{name.upper()}/{{language}}.prediction",
        labels=labels,
        **more,
    )


def _table(
    name: str,
    languages: str,
    labels: tuple[str, ...],
    *columns: str,
    kind="classification",
    metrics=("accuracy",),
):
    """A task whose lines are a text, one or two texts to be judged with it, and the label."""
    table = Table((*columns, "label"), premise=columns[:1], hypothesis=columns[1:])
    files = {
        split: places(f"{name.upper()}/xglue.{name}.{{language}}.{split}", read=table)
        for split in _SPLITS
    }
    return _task(name, kind, languages, files, metrics, labels)


def _tags(name: str, split: str) -> tuple[Files, ...]:
    return places(f"{name}/{{language}}.{split}", read=_words)


def _generation(name: str, languages: str) -> Task:
    stem = f"{name.upper()}/xglue.{name}.{{language}}"
    files = {}
    for split in _SPLITS:
        source = f"{stem}.src.{split}"
        both = Files((source, f"{stem}.tgt.{split}"), read_source_target)
        files[split] = (both,)
        # Test sets may be distributed without targets; with them they are scored.
        if split == "test":
            files[split] += (Files((source,), read_source_target),)
    return _task(name, "generation", languages, files, ("xglue_bleu", "sacrebleu", "rouge_l"))


def _mlqa(split: str) -> tuple[Files, ...]:
    inside = places(
        f"MLQA/MLQA_V1/{split}/{split}-context-{{language}}-question-{{language}}.json",
        f"MLQA/MLQA_v1/{split}/{split}-context-{{language}}-question-{{language}}.json",
        read=read_squad,
    )
    return inside + mlqa(split)


TASKS = (
    _task(
        "ner",
        "tagging",
        "de en es nl",
        {split: _tags("NER", split) for split in _SPLITS},
        # First the official script's figure, the score. The other is what CoNLL's papers print.
        ("seqeval_f1", "conll_f1"),
        CONLL_TAGS,
        marks="xglue",
    ),
    _task(
        "pos",
        "tagging",
        "ar bg de el en es fr hi it nl pl pt ru th tr ur vi zh",
        {
            "train": _tags("POS", "train"),
            "dev": (
                _tags("POS", "dev")
                + places(
                    "udpos/dev-{language}.tsv",
                    read=Columns(width=2),
                    # Of the other languages XTREME has other treebanks than XGLUE.
                    languages=("bg", "hi", "ur", "vi"),
                )
            ),
            "test": _tags("POS", "test"),
        },
        # XGLUE calls it accuracy, and its script computes seqeval's precision of bare tags.
        ("seqeval_precision", "token_accuracy", "seqeval_f1"),
        UPOS,
        marks="xglue",
    ),
    _table("nc", "de en es fr ru", NEWS, "title", "body"),
    _task(
        "mlqa",
        "span_qa",
        "ar de en es hi vi zh",
        {
            "train": (
                places("MLQA/squad1.1/train-v1.1.json", read=read_squad, languages=("en",))
                + SQUAD["train"]
            ),
            "dev": _mlqa("dev"),
            "test": _mlqa("test"),
            "translate_train": TRANSLATED_MLQA,
        },
        ("mlqa_f1", "mlqa_em"),
        shared_ids=True,
    ),
    _task(
        "xnli",
        "classification",
        XNLI,
        {
            "train": (
                places(
                    "XNLI/multinli.train.{language}.tsv",
                    read=Table(("premise", "hypo", "label"), hypothesis=("hypo",), header=True),
                )
                + places("xnli/train-{language}.tsv", read=Table(quoted=None))
                + multinli(("en",))
            ),
            "translate_train": multinli() + translations("XNLI", _TRANSLATED),
            "dev": (
                # The first place that is there is read: XGLUE's own files before other archives'.
                places("XNLI/{language}.dev", read=Table())
                + raw_xnli("dev")
                + places("xnli/dev-{language}.tsv", read=Table(quoted=None))
            ),
            "test": (
                places("XNLI/{language}.test", read=Table())
                + raw_xnli("test")
                + places("xnli/test-{language}.tsv", read=Table(quoted=None))
            ),
        },
        ("accuracy",),
        NLI,
        parallel=True,
    ),
    _task(
        "pawsx",
        "classification",
        "de en es fr",
        {
            "train": (
                places("PAWSX/{language}/train.tsv", read=RAW_PAWSX)
                + raw_pawsx("train")
                + places("pawsx/train-{language}.tsv", read=Table(quoted=None))
            ),
            "dev": (
                places("PAWSX/{language}/dev_2k.tsv", read=RAW_PAWSX)
                + raw_pawsx("dev_2k")
                + places("pawsx/dev-{language}.tsv", read=Table(quoted=None))
            ),
            "test": (
                places("PAWSX/{language}/test_2k.tsv", read=RAW_PAWSX)
                + raw_pawsx("test_2k")
                + places("pawsx/test-{language}.tsv", read=Table(quoted=None))
            ),
            # XTREME has PAWS-X's translations into more languages than XGLUE.
            "translate_train": tuple(
                dataclasses.replace(one, languages=("de", "es", "fr"))
                for one in translations("PAWSX", _TRANSLATED) + raw_pawsx("translated_train")
            ),
        },
        ("accuracy",),
        ("0", "1"),
        overlap=PAWSX_OVERLAP,
        parallel=True,
    ),
    _table("qadsm", "de en fr", ("Bad", "Good"), "query", "ad title", "ad description"),
    _table(
        "wpr",
        "de en es fr it pt zh",
        ("0", "1", "2", "3", "4"),
        "query",
        "page title",
        "page snippet",
        # Learnt as classes and scored by the order that the classes give to a query's pages.
        kind="ranking",
        metrics=("ndcg_wpr", "accuracy"),
    ),
    _table("qam", "de en fr", ("0", "1"), "question", "passage"),
    _generation("qg", "de en es fr it pt"),
    _generation("ntg", "de en es fr ru"),
)

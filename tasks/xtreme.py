"""XTREME's nine tasks (Hu et al. 2020, arXiv:2003.11080), as its `download` folder holds them.

Nobody outside has the answers of its test sets: `xlingjax evaluate` writes predictions in its
layout for them, and scores on "dev" meanwhile. SQuAD 1.1 is the training set of XQuAD and MLQA.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

from xlingjax.data.labelled.pairs import read_bucc, read_tatoeba
from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.records import Question
from xlingjax.data.labelled.task import Files, Task
from xlingjax.data.labelled.text import Table, read_translated
from xlingjax.data.labelled.words import Columns, read_tagged_lines, read_wikiann
from xlingjax.errors import UserError

XNLI = "ar bg de el en es fr hi ru sw th tr ur vi zh"
PAWSX = "de en es fr ja ko zh"
UDPOS = (
    "af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi"
    " yo zh"
)
PANX = (
    "af ar bg bn de el en es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr ms my nl pt"
    " ru sw ta te th tl tr ur vi yo zh"
)
XQUAD = "ar de el en es hi ru th tr vi zh"
MLQA = "ar de en es hi vi zh"
TYDIQA = "ar bn en fi id ko ru sw te"
BUCC = "de fr ru zh"
TATOEBA = (
    "af ar bg bn de el es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr nl pt ru sw ta te th"
    " tl tr ur vi zh"
)

# In the order of XTREME's ids; other programs number them otherwise.
NLI = ("contradiction", "entailment", "neutral")
_UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"
UPOS = tuple(_UPOS.split())
PANX_TAGS = ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")


# TyDiQA's ids begin with the language in words.
_WORDS = "arabic bengali english finnish indonesian korean russian swahili telugu"
_IN_WORDS = dict(zip(TYDIQA.split(), _WORDS.split(), strict=True))


def _with_whole_ids(read_numbered, paths: Sequence[Path], task, language: str) -> list[Question]:
    """TyDiQA's training questions of a language with their whole ids, which XTREME's script cuts
    off: those of the file that it was made from, which the script leaves beside it."""
    questions = read_numbered(paths[:1], task, language)
    wanted = _IN_WORDS[language] + "-"
    whole = []
    for question in read_squad(paths[1:], task, language):
        if question.id.startswith(wanted):
            whole.append(question)
    texts = [one.question for one in questions]
    if [one.question for one in whole] != texts:
        raise UserError(
            f"{paths[0]} does not hold the questions of {paths[1]} that begin with {wanted!r}, in"
            " their order: fetch both again"
        )
    return [
        dataclasses.replace(question, key=named.id)
        for question, named in zip(questions, whole, strict=True)
    ]


# XTREME writes some of its files with Python's csv module, which quotes fields; others are plain.
_csv = Table(quoted=None)
# XTREME's script cuts the ids of TyDiQA's training set.
_numbered = functools.partial(read_squad, numbered=True)
_named_tydiqa = functools.partial(_with_whole_ids, _numbered)
_sentences = functools.partial(read_tagged_lines, every_line=True)
_TYDIQA_TRAIN = "tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{language}.train.json"
_translated_squad = functools.partial(read_squad, translated=True)
_translated_numbered = functools.partial(read_squad, numbered=True, translated=True)
RAW_PAWSX = Table(
    ("id", "sentence1", "sentence2", "label"),
    premise=("sentence1",),
    hypothesis=("sentence2",),
    header=True,
)
RAW_XNLI = Table(
    ("language", "gold_label", "sentence1", "sentence2"),
    premise=("sentence1",),
    hypothesis=("sentence2",),
    label="gold_label",
    header=True,
    language="language",
)
_multinli = Table(("premise", "hypo", "label"), hypothesis=("hypo",), header=True)


def places(*paths: str, read, languages: tuple[str, ...] | None = None) -> tuple[Files, ...]:
    """A place per path, all read alike."""
    return tuple(Files((path,), read, languages) for path in paths)


def raw_xnli(split: str) -> tuple[Files, ...]:
    """XNLI as its authors distribute it (XNLI-1.0.zip), or as XGLUE's archive may hold it."""
    return places(
        f"XNLI-1.0/xnli.{split}.tsv",
        f"xnli/xnli.{split}.tsv",
        f"XNLI/xnli.{split}.tsv",
        read=RAW_XNLI,
    )


def raw_pawsx(split: str) -> tuple[Files, ...]:
    """PAWS-X as its authors distribute it (x-final.tar.gz)."""
    read = dataclasses.replace(RAW_PAWSX, translated=split == "translated_train")
    return places(f"x-final/{{language}}/{split}.tsv", read=read)


def multinli(languages: tuple[str, ...] | None = None) -> tuple[Files, ...]:
    """MultiNLI: English, gold, and (without `languages`) XNLI-MT's translations of it."""
    # XNLI-MT names the translations as it names MultiNLI itself: only English is gold.
    read = dataclasses.replace(_multinli, translated=languages is None)
    return places(
        "XNLI-MT-1.0/multinli/multinli.train.{language}.tsv", read=read, languages=languages
    )


def translations(
    task: str, path: str, read=read_translated, folder: str | None = None
) -> tuple[Files, ...]:
    """XTREME's own machine translations (the bucket `xtreme_translations`), in their own folder or
    beside the
    task's files. folder: the task's; default its name in small letters."""
    return places(
        f"xtreme_translations/{task}/{path}", f"{folder or task.lower()}/{path}", read=read
    )


SQUAD = {
    split: places(f"squad/{split}-v1.1.json", read=read_squad, languages=("en",))
    for split in ("train", "dev")
}


TRANSLATED_SQUAD = translations(
    "SQuAD", "translate-train/squad.translate.train.en-{language}.json", _translated_squad
)
TRANSLATED_TYDIQA = translations(
    "TyDiQA-GoldP",
    "translate-train/tydiqa.translate.train.en-{language}.json",
    _translated_numbered,
    "tydiqa",
)


def translated_questions(task: str, folder: str) -> tuple[Files, ...]:
    """XTREME's test sets of questions, translated into English."""
    path = f"translate-test/{folder}.translate.test.{{language}}-en.json"
    return translations(task, path, _translated_squad, folder)


def translated_sentences(task: str) -> dict[str, tuple[Files, ...]]:
    """Dev and test sets of tagged sentences, translated into English: a line for each, words with
    spaces between. XTREME has none; so FILTER's authors lay theirs out."""
    found = {}
    for part in ("dev", "test"):
        found[f"translate_{part}"] = places(
            f"{task}/translate-{part}/{part}-{{language}}-en.tsv",
            f"{task}/translations/{part}-{{language}}-en.tsv",
            read=_sentences,
        )
    return found


TRANSLATED_MLQA = (
    TRANSLATED_SQUAD
    + places(  # MLQA's own machine translations, mlqa-translate-train.tar.gz
        "mlqa/mlqa-translate-train/{language}_squad-translate-train-train-v1.1.json",
        "mlqa-translate-train/{language}_squad-translate-train-train-v1.1.json",
        read=_translated_squad,
    )
)


def mlqa(split: str) -> tuple[Files, ...]:
    return places(
        f"mlqa/MLQA_V1/{split}/{split}-context-{{language}}-question-{{language}}.json",
        f"MLQA_V1/{split}/{split}-context-{{language}}-question-{{language}}.json",
        read=read_squad,
    )


PAWSX_OVERLAP = "PAWS-X's dev and test sets have sentences in common, and so have the halves of dev"
XQUAD_OVERLAP = (
    "XQuAD's questions and contexts are of SQuAD's dev set: where that chooses the checkpoint,"
    " they do"
)


_ENDS = {"span_qa": "json", "generation": "txt"}


def task_of(
    suite: str,
    name: str,
    kind: str,
    languages: str,
    files,
    metrics: tuple[str, ...],
    labels=(),
    **more,
) -> Task:
    """A task whose predictions are named as XTREME names its own."""
    return Task(
        suite=suite,
        name=name,
        kind=kind,
        languages=tuple(languages.split()),
        files=files,
        metrics=metrics,
        submission=f"{name}/test-{{language}}.{_ENDS.get(kind, 'tsv')}",
        labels=tuple(labels),
        **more,
    )


_task = functools.partial(task_of, "xtreme")


def _bucc(split: str, original: str) -> tuple[Files, ...]:
    sides = (
        "bucc2018/{language}-en.%s.{language}",
        "bucc2018/{language}-en.%s.en",
        "bucc2018/{language}-en.%s.gold",
    )
    nested = tuple(side.replace("bucc2018/", "bucc2018/{language}-en/") for side in sides)
    named, released = (
        tuple(side % split for side in sides),
        tuple(side % original for side in nested),
    )
    files = [Files(named, read_bucc), Files(released, read_bucc)]
    # XTREME has no gold of the test sets; whoever has it puts it beside them.
    if split == "test":
        files.append(Files(named[:2], read_bucc))
    return tuple(files)


def _tatoeba() -> tuple[Files, ...]:
    sides = ("tatoeba/{language}-en.{language}", "tatoeba/{language}-en.en")
    laser = ("tatoeba.{language3}-eng.{language3}", "tatoeba.{language3}-eng.eng")
    return (
        # XTREME sorts the English side of its copy, and the labels, where one has them, undo that.
        Files((*sides, "tatoeba/{language}-en.labels"), read_tatoeba),
        Files(sides, read_tatoeba),
        *(
            Files(tuple(folder + name for name in laser), read_tatoeba)
            for folder in ("tatoeba/v1/", "tatoeba/", "")
        ),
    )


TASKS = (
    _task(
        "xnli",
        "classification",
        XNLI,
        {
            "train": places("xnli/train-{language}.tsv", read=_csv) + multinli(("en",)),
            "dev": places("xnli/dev-{language}.tsv", read=_csv) + raw_xnli("dev"),
            "test": places("xnli/test-{language}.tsv", read=_csv) + raw_xnli("test"),
            "translate_train": (
                translations("XNLI", "translate-train/en-{language}-translated.tsv") + multinli()
            ),
            "translate_test": translations(
                "XNLI", "translate-test/test-{language}-en-translated.tsv"
            ),
        },
        ("accuracy",),
        NLI,
        parallel=True,
    ),
    _task(
        "pawsx",
        "classification",
        PAWSX,
        {
            "train": places("pawsx/train-{language}.tsv", read=_csv) + raw_pawsx("train"),
            "dev": places("pawsx/dev-{language}.tsv", read=_csv) + raw_pawsx("dev_2k"),
            "test": places("pawsx/test-{language}.tsv", read=_csv) + raw_pawsx("test_2k"),
            "translate_train": (
                translations("PAWSX", "translate-train/en-{language}-translated.tsv")
                + raw_pawsx("translated_train")
            ),
            "translate_test": translations(
                "PAWSX", "translate-test/test-{language}-en-translated.tsv"
            ),
        },
        ("accuracy",),
        ("0", "1"),
        overlap=PAWSX_OVERLAP,
        parallel=True,
    ),
    _task(
        "udpos",
        "tagging",
        UDPOS,
        {
            split: places(f"udpos/{split}-{{language}}.tsv", read=Columns(width=2))
            for split in ("train", "dev", "test")
        }
        | {
            "translate_train": places(
                "udpos/translate-train/train-{language}.mt.tsv", read=read_tagged_lines
            )
        }
        | translated_sentences("udpos"),
        # XTREME's script counts chunks of equal tags; the share of right tags stands beside it.
        ("seqeval_f1", "token_accuracy"),
        UPOS,
    ),
    _task(
        "panx",
        "tagging",
        PANX,
        {
            split: places(
                f"panx/{split}-{{language}}.tsv",
                f"panx_dataset/{{language}}-{split}",
                read=read_wikiann,
            )
            for split in ("train", "dev", "test")
        }
        | {
            "translate_train": places(
                "panx/translate-train/train-{language}.mt.tsv", read=read_tagged_lines
            )
        }
        | translated_sentences("panx"),
        ("seqeval_f1", "conll_f1"),
        PANX_TAGS,
    ),
    _task(
        "xquad",
        "span_qa",
        XQUAD,
        SQUAD
        | {
            "test": places("xquad/xquad.{language}.json", read=read_squad),
            "translate_train": TRANSLATED_SQUAD,
            "translate_test": translated_questions("XQuAD", "xquad"),
        },
        ("squad_f1", "squad_em"),
        overlap=XQUAD_OVERLAP,
        parallel=True,
    ),
    _task(
        "mlqa",
        "span_qa",
        MLQA,
        {
            "train": SQUAD["train"],
            "dev": mlqa("dev"),
            "test": mlqa("test"),
            "translate_train": TRANSLATED_MLQA,
            "translate_test": translated_questions("MLQA", "mlqa"),
        },
        ("mlqa_f1", "mlqa_em"),
        shared_ids=True,
    ),
    _task(
        "tydiqa",
        "span_qa",
        TYDIQA,
        {
            "train": (
                Files(
                    (_TYDIQA_TRAIN, "tydiqa/tydiqa-goldp-v1.1-train/tydiqa-goldp-v1.1-train.json"),
                    _named_tydiqa,
                ),
                Files((_TYDIQA_TRAIN,), _numbered),
            ),
            "test": places(
                # TyDiQA keeps its test set: XTREME tests on dev, and there is none to choose by.
                "tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json",
                read=read_squad,
            ),
            "translate_train": TRANSLATED_TYDIQA,
            "translate_test": translated_questions("TyDiQA-GoldP", "tydiqa"),
        },
        ("squad_f1", "squad_em"),
    ),
    _task(
        "bucc2018",
        "mining",
        BUCC,
        # XTREME's dev and test sets are BUCC's sample and training sets.
        {"dev": _bucc("dev", "sample"), "test": _bucc("test", "training")},
        ("bucc_f1", "bucc_precision", "bucc_recall"),
    ),
    _task(
        "tatoeba",
        "retrieval",
        TATOEBA,
        {"test": _tatoeba()},
        ("tatoeba_accuracy",),
    ),
)

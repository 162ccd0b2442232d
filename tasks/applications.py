"""Labelled sets outside the three benchmarks: CoNLL's entities, question-answer matching, topics,
dialogue, generation.

Together under the name "applications"; each is a task of its own and no average is taken over them.
"""

from __future__ import annotations

import functools

from xlingjax.data.labelled.pairs import read_source_target
from xlingjax.data.labelled.task import Files
from xlingjax.data.labelled.text import Table, read_mtod_intents, read_xcopa, read_xsid_intents
from xlingjax.data.labelled.words import Columns, read_conllu, read_xsid_slots
from xlingjax.tasks.xglue import CONLL_TAGS
from xlingjax.tasks.xtreme import (
    PANX_TAGS,
    SQUAD,
    TRANSLATED_TYDIQA,
    UPOS,
    XQUAD,
    XQUAD_OVERLAP,
    places,
    task_of,
)
from xlingjax.tasks.xtreme import TASKS as XTREME

_SPLITS = ("train", "dev", "test")
_FIFTEEN = "ar bg de el en es fr hi ru sw th tr ur vi zh"
TOPICS = (
    "science/technology",
    "travel",
    "politics",
    "sports",
    "health",
    "entertainment",
    "geography",
)
_ALARMS = tuple(
    f"{about}/{intent}"
    for about, intents in {
        "alarm": "cancel_alarm modify_alarm set_alarm show_alarms snooze_alarm time_left_on_alarm",
        "reminder": "cancel_reminder set_reminder show_reminders",
        "weather": "checkSunrise checkSunset find",
    }.items()
    for intent in intents.split()
)
_SNIPS = (
    "AddToPlaylist",
    "BookRestaurant",
    "PlayMusic",
    "RateBook",
    "SearchCreativeWork",
    "SearchScreeningEvent",
)
# As xSID's files spell them, capitals, slashes and all: a tag is compared as it is written.
_SLOT_NAMES = """
alarm/alarm_modifier album artist best_rating condition_description condition_temperature
cuisine datetime entity_name facility genre location movie_name movie_type music_item negation
news/type object_location_type object_name object_part_of_series_type object_select object_type
party_size_description party_size_number playlist rating_unit rating_value recurring_datetime
reference reference-part reminder/reminder_modifier reminder/todo restaurant_name
restaurant_type served_dish service sort timer/attributes track weather/attribute
weather/temperatureUnit"""
_SLOTS = _SLOT_NAMES.split()


_XSID_OVERLAP = (
    "186 of xSID's 500 English test utterances stand in its training set: read the other languages"
)


# These sets have no submission of their own, so files are named as XTREME names its own.
_task = functools.partial(task_of, "applications")


def _conll(split: str) -> tuple[Files, ...]:
    """The files of the two shared tasks: CoNLL-2003's tags are made BIO, CoNLL-2002's are."""
    end = {"train": "train", "dev": "testa", "test": "testb"}[split]
    # German has a column of lemmas, Spanish no part of speech; another width is a broken line.
    widths = {"en": 4, "de": 5, "es": 2, "nl": 3}
    return tuple(
        Files(
            (f"conll{year}/{{conll}}.{end}",),
            Columns(
                separator=None,
                tag=-1,
                width=widths[language],
                # 2003 writes B- only between two entities of
                # one type that touch, 2002 at the head of each.
                first_class=year == 2003,
                unlabelled=False,
            ),
            (language,),
        )
        for year, codes in ((2003, ("en", "de")), (2002, ("es", "nl")))
        for language in codes
    )


def _written(stem: str, splits=_SPLITS) -> dict[str, tuple[Files, ...]]:
    """Sources and targets under XGLUE's file names."""
    return {
        split: (
            Files(
                (f"{stem}.{{language}}.src.{split}", f"{stem}.{{language}}.tgt.{split}"),
                read_source_target,
            ),
        )
        for split in splits
    }


def _aligned(english: str, other: str) -> tuple[Files, ...]:
    return (Files((english, other), read_source_target, ("de", "fr", "ru", "zh")),)


def _xsid(read) -> dict[str, tuple[Files, ...]]:
    ends = {"train": "train", "dev": "valid", "test": "test"}
    return {
        split: places(f"xsid/{{language}}.{end}.conll", read=read) for split, end in ends.items()
    }


_sib = Table(
    ("index_id", "category", "text"),
    premise=("text",),
    hypothesis=(),
    label="category",
    header=True,
)
_matching = Table(("question", "passage", "label"), premise=("question",), hypothesis=("passage",))
_generated = ("sacrebleu", "chrf", "rouge_l")

TASKS = (
    _task(
        "conll",
        "tagging",
        "de en es nl",
        {split: _conll(split) for split in _SPLITS},
        ("conll_f1", "seqeval_f1"),
        CONLL_TAGS,
    ),
    _task(
        "xqa",
        "classification",
        "de en fr",
        {split: places(f"xqa/{split}-{{language}}.tsv", read=_matching) for split in _SPLITS},
        ("accuracy",),
        ("0", "1"),
        # Unicoder's average leaves out English, in which the models are trained.
        averaged=("de", "fr"),
    ),
    _task(
        "sib200",
        "classification",
        _FIFTEEN,
        {
            split: places(
                f"sib200/{split}-{{language}}.tsv",
                # The repository's own tree names languages by FLORES-200 (deu_Latn).
                f"sib200/data/annotated/{{flores}}/{split}.tsv",
                f"data/annotated/{{flores}}/{split}.tsv",
                read=_sib,
            )
            for split in _SPLITS
        },
        ("accuracy",),
        TOPICS,
        parallel=True,
    ),
    _task(
        "xsid_intents",
        "classification",
        "ar da de en id it ja kk nl sr tr zh",
        _xsid(read_xsid_intents),
        ("accuracy",),
        # xSID joins SNIPS's utterances and Facebook's dialogues, and both sets of intents.
        (*_SNIPS, *_ALARMS),
        overlap=_XSID_OVERLAP,
    ),
    _task(
        "xsid_slots",
        "tagging",
        "ar da de en id it ja kk nl sr tr zh",
        _xsid(read_xsid_slots),
        ("conll_f1", "token_accuracy"),
        ("O", *(f"{mark}-{slot}" for slot in _SLOTS for mark in "BI")),
        overlap=_XSID_OVERLAP,
    ),
    _task(
        "mtod_intents",
        "classification",
        "en es th",
        {
            split: places(
                f"mtod/{end}-{{language}}.tsv",
                f"mtod/{{language}}/{end}-{{language}}.tsv",
                read=read_mtod_intents,
            )
            for split, end in {"train": "train", "dev": "eval", "test": "test"}.items()
        },
        ("accuracy",),
        _ALARMS,
    ),
    _task(
        "uner",
        "tagging",
        "en",
        {
            split: (
                # A language may have several treebanks, each with a file of its own.
                places(f"uner/{{language}}_*-{split}.tsv", read=Columns())
                + places(
                    f"uner/{{language}}_*-ud-{split}.iob2",
                    read=Columns(word=1, tag=2, comments=True, unlabelled=False),
                )
            )
            for split in _SPLITS
        },
        ("conll_f1", "seqeval_f1"),
        PANX_TAGS,
    ),
    _task(
        "ud",
        "tagging",
        "de en zh",
        {
            split: places(f"ud_conllu/{{language}}_*-ud-{split}.conllu", read=read_conllu)
            for split in _SPLITS
        },
        ("token_accuracy", "seqeval_f1"),
        UPOS,
    ),
    _task(
        "xcopa",
        "classification",
        "en et ht id it qu sw ta th tr vi zh",
        {
            split: places(
                f"xcopa/{end}-{{language}}.jsonl",
                f"xcopa/{end}.{{language}}.jsonl",
                read=read_xcopa,
            )
            for split, end in {"train": "train", "dev": "val", "test": "test"}.items()
        },
        ("accuracy",),
        ("0", "1"),
    ),
    _task(
        "tydiqa_to_xquad",
        "span_qa",
        XQUAD,
        {
            # XQuAD has no training set of its own: TyDiQA's questions take its place.
            "train": next(task for task in XTREME if task.name == "tydiqa").files["train"],
            "dev": SQUAD["dev"],
            "test": next(task for task in XTREME if task.name == "xquad").files["test"],
            "translate_train": TRANSLATED_TYDIQA,
        },
        ("squad_f1", "squad_em"),
        overlap=XQUAD_OVERLAP,
    ),
    _task(
        "question_generation",
        "generation",
        "ar de en es hi ru vi zh",
        _written("qg/xglue.qg"),
        ("xglue_bleu", *_generated),
    ),
    _task(
        "story_title",
        "generation",
        "en hi",
        _written("story_title/xglue.ntg"),
        ("xglue_bleu", *_generated),
    ),
    _task("summarisation", "generation", "en fr zh", _written("summarisation/xnlg"), ("rouge_l",)),
    _task(
        "multi30k",
        "generation",
        "de fr",
        {
            split: _aligned(f"mt/multi30k/{name}.en", f"mt/multi30k/{name}.{{language}}")
            for split, name in {"train": "train", "dev": "val", "test": "test_2016_flickr"}.items()
        },
        _generated[:2],
    ),
    _task(
        "newstest2021",
        "generation",
        "de ru zh",
        {
            "test": _aligned(
                "mt/newstest2021/en-{language}.en", "mt/newstest2021/en-{language}.{language}"
            )
        },
        _generated[:2],
    ),
)

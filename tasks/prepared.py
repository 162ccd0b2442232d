"""The sets of TensorFlow Datasets that hold the tasks of the benchmarks: split -> places, names
with their versions.

Left out, because they hold other rows than the task: `xtreme_pos` (its globs take in other
treebanks, as Ancient Greek for el; ta and tl are exchanged; words are not merged as XTREME's are)
and `bucc` (the gold pairs alone, without the sentences among which they are to be found).
"""

from __future__ import annotations

import functools

from xlingjax.data.labelled.tfds import Prepared, bitext, pairs, parallel_pairs, questions, tagged

_TRANSLATED_XNLI = (
    "ar",
    "bg",
    "de",
    "el",
    "es",
    "fr",
    "hi",
    "ru",
    "sw",
    "th",
    "tr",
    "ur",
    "vi",
    "zh",
)
_TRANSLATED_PAWSX = ("de", "es", "fr", "ja", "ko", "zh")
_TRANSLATED_SQUAD = ("ar", "de", "el", "es", "hi", "ru", "th", "tr", "vi", "zh")
# TyDiQA's ids begin with the language in words; the training set of all languages is one split.
TYDIQA_LANGUAGES = {
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

_paraphrases = functools.partial(
    pairs,
    texts=("sentence1", "sentence2"),
    # TFDS gives the labels names that the official files do not have.
    renamed={"different_meaning": "0", "paraphrase": "1"},
)
_translated_paraphrases = functools.partial(_paraphrases, translated=True)
_translated_parallel = functools.partial(parallel_pairs, translated=True)
_entities = functools.partial(tagged, tags="tags")
_conll = functools.partial(tagged, tags="ner")
_conll2003 = functools.partial(tagged, tags="ner", first_class=True)
_translated_questions = functools.partial(questions, translated=True)
_upos = functools.partial(tagged, tags="upos")

# Beside translations English is read from their own set where MultiNLI is not prepared: row by row
# the same examples.
XNLI = {
    "train": (
        Prepared("multi_nli:1.1.0", "train", pairs, ("en",)),
        Prepared("xtreme_xnli:1.1.0", "train", parallel_pairs, ("en",)),
    ),
    "dev": (Prepared("xnli:1.1.0", "validation", parallel_pairs),),
    "test": (Prepared("xnli:1.1.0", "test", parallel_pairs),),
    "translate_train": (
        Prepared("xtreme_xnli:1.1.0", "train", _translated_parallel, _TRANSLATED_XNLI),
    ),
}
PAWSX = {
    "train": (Prepared("paws_x_wiki/{language}:1.0.0", "train", _paraphrases, ("en",)),),
    "dev": (Prepared("paws_x_wiki/{language}:1.0.0", "validation", _paraphrases),),
    "test": (Prepared("paws_x_wiki/{language}:1.0.0", "test", _paraphrases),),
    "translate_train": (
        Prepared(
            "xtreme_pawsx/{language}:1.0.0", "train", _translated_paraphrases, _TRANSLATED_PAWSX
        ),
        Prepared(
            "paws_x_wiki/{language}:1.0.0", "train", _translated_paraphrases, _TRANSLATED_PAWSX
        ),
    ),
}
PANX = {
    split: (Prepared("wikiann/{language}:1.0.0", name, _entities),)
    for split, name in {"train": "train", "dev": "validation", "test": "test"}.items()
}
_squad = {
    split: (Prepared("squad/v1.1:3.0.0", name, questions, ("en",)),)
    for split, name in {"train": "train", "dev": "validation"}.items()
}
_translated_squad = (
    Prepared("xquad/{language}:3.0.0", "translate-train", _translated_questions, _TRANSLATED_SQUAD),
)
XQUAD = _squad | {
    "translate_train": _translated_squad,
    "test": (Prepared("xquad/{language}:3.0.0", "test", questions),),
}
MLQA = {
    "train": _squad["train"],
    "dev": (Prepared("mlqa/{language}:1.0.0", "validation", questions),),
    "test": (Prepared("mlqa/{language}:1.0.0", "test", questions),),
    "translate_train": _translated_squad,
}
TYDIQA = {
    "train": (
        Prepared(
            "tydi_qa/goldp:3.0.0",
            "train",
            functools.partial(questions, named=TYDIQA_LANGUAGES),
            (*TYDIQA_LANGUAGES,),
        ),
    ),
    "test": (
        Prepared("tydi_qa/goldp:3.0.0", "validation-{language}", questions, (*TYDIQA_LANGUAGES,)),
    ),
}
TYDIQA_TO_XQUAD = {"train": TYDIQA["train"], "dev": XQUAD["dev"], "test": XQUAD["test"]}
TATOEBA = {"test": (Prepared("tatoeba/tatoeba_{language}:1.0.0", "train", bitext),)}
CONLL = {
    split: (
        Prepared("conll2003/conll2003:1.0.0", split, _conll2003, ("en",)),
        Prepared("conll2002/{language}:1.0.0", split, _conll, ("es", "nl")),
    )
    for split in ("train", "dev", "test")
}
UD = {
    split: (Prepared("universal_dependencies/{language}_*:1.0.1", split, _upos),)
    for split in ("train", "dev", "test")
}

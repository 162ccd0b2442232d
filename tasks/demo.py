"""The embedded corpus (`xlingjax.demo`) as SeqIO tasks: its text, rows, and the papers' mixes.

`demo.text`, `demo.pairs` and `demo.documents` are text; `demo.mlm`, `demo.tlm`, ... are rows. The
corpus is unpacked, and a vocabulary trained on it, when a task is first read.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seqio

from xlingjax import demo
from xlingjax.data.rows.plan import Preprocessor
from xlingjax.data.seqio.adapters import TextFiles
from xlingjax.data.store.entries import cache_root, name_of
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures
from xlingjax.preprocessors.retrieval import SentencePairFeatures
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures
from xlingjax.preprocessors.translation import (
    BackTranslationFeatures,
    DenoisingFeatures,
    TranslationFeatures,
)
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures, DanFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xglue import XfnpFeatures
from xlingjax.preprocessors.xlm import ClmFeatures, MlmFeatures, TlmFeatures
from xlingjax.tasks.objectives import register_mix, register_objective
from xlingjax.tasks.xlm import register_source, sentences

_WITH_ENGLISH = tuple(tuple(sorted((code, "en"))) for code in demo.LANGUAGES if code != "en")
_PAIRS = (*_WITH_ENGLISH, ("de", "ru"), ("de", "zh"), ("ru", "zh"))
# Of each text: what it is in, where its splits are, and how they are found.
_TEXTS = {
    "text": (
        [(code,) for code in demo.LANGUAGES],
        {"train": "mono", "validation": "heldout/mono"},
    ),
    "pairs": (_PAIRS, {"train": "parallel/*"}),
    "documents": (_WITH_ENGLISH, {"train": "documents/*"}),
}
_ENGLISH = demo.LANGUAGES.index("en")
_OTHERS = tuple(number for number in range(len(demo.LANGUAGES)) if number != _ENGLISH)
# All languages have pairs, so that each may be that of pseudo tokens.
_BTMLM = BtmlmFeatures(targets=tuple((number, 1.0) for number in range(len(demo.LANGUAGES))))
OBJECTIVES: dict[str, tuple[Preprocessor, ...]] = {
    "text": (
        ClmFeatures(),
        MlmFeatures(),
        VecoTextFeatures(),
        _BTMLM,
        DenoisingFeatures(),
        XfnpFeatures(),
        SpanCorruptionFeatures(),
        MaskedWordsFeatures(),
        BackTranslationFeatures(
            pivots=((_ENGLISH, _OTHERS), *((number, (_ENGLISH,)) for number in _OTHERS))
        ),
    ),
    "pairs": (
        TlmFeatures(),
        CamlmFeatures(),
        VecoFeatures(),
        ClwrFeatures(),
        ClpcFeatures(),
        TranslationFeatures(),
        MaskedTranslationFeatures(name="masked_translation"),
        DanFeatures(),
        SentencePairFeatures(),
    ),
    "documents": (ClMlmFeatures(),),
}
"""Of each text the objectives that read it, as their papers have them."""
MIXES = {
    "xlm": ("mlm", "tlm"),
    "unicoder": ("mlm", "tlm", "clwr", "clpc", "cl_mlm"),
    "ernie_m": ("mlm", "tlm", "camlm", "btmlm"),
    "veco": ("veco_text", "veco"),
    "xglue": ("xdae", "xfnp"),
}
"""What each paper trains together, every objective as often as the others."""


def register_demo() -> None:
    """Adds the tasks and mixtures `demo.*` to SeqIO's registries."""
    vocabulary = _DemoVocabulary()
    for text, (of_languages, places) in _TEXTS.items():
        tasks = []
        for languages in of_languages:
            name = f"demo.{text}.{'_'.join(languages)}"
            register_source(name, _DemoText(places, languages), languages, vocabulary)
            tasks.append((name, functools.partial(sentences, vocabulary)))
        seqio.MixtureRegistry.add(f"demo.{text}", tasks)
    # A row comes soon, and texts of this size have little more.
    given: dict[str, Any] = {"vocabulary": vocabulary, "languages": demo.LANGUAGES, "lines": 4096}
    read = {}
    for text, preprocessors in OBJECTIVES.items():
        for one in preprocessors:
            # The paper's mix is called as its objective on pairs is.
            name = "veco_pairs" if one.name == "veco" else one.name
            register_objective(f"demo.{text}", one, name=f"demo.{name}", **given)
            read[one.name] = (f"demo.{text}", one)
    for mix, names in MIXES.items():
        register_mix(f"demo.{mix}", [read[name] for name in names], **given)


class _DemoText(TextFiles):
    """`TextFiles` of the corpus in one language or pair."""

    def __init__(self, places: dict[str, str], languages: Sequence[str]):
        self._places = places
        self._languages = tuple(languages)
        self.holdout = 0.0
        self._counts: dict[str, int] = {}
        seqio.DataSource.__init__(self, splits=tuple(places))

    @functools.cached_property
    def files(self) -> dict[str, tuple]:  # type: ignore[override]
        find = find_pairs if len(self._languages) > 1 else find_text
        return {
            split: tuple(
                file for file in find(f"{corpus()}/{place}") if file.languages == self._languages
            )
            for split, place in self._places.items()
        }


class _DemoVocabulary(Vocabulary):
    """The vocabulary of the corpus, trained when something of it is first asked for."""

    def __init__(self):
        pass

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling ask for these, and take no vocabulary.
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__.update(vars(Vocabulary.load(corpus() / "vocab")))
        return self.__dict__[name]


@functools.cache
def corpus() -> Path:
    """The folder of the unpacked corpus and its vocabulary, `vocab`; made where it is missing."""
    archives = sorted((Path(demo.__file__).parent / "corpus").iterdir())
    sizes = [(file.name, file.stat().st_size) for file in archives]
    folder = cache_root() / "demo" / name_of(sizes)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        demo.write(made)
        train_vocabulary(
            made / "vocab",
            mono=f"{made}/mono",
            parallel=f"{made}/parallel",
            size=5000,
            character_coverage=1.0,
            sentences=40_000,
        )
        made.rename(folder)
    except OSError:
        # Another process was faster.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


register_demo()

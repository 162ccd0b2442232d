"""Encoder-decoders on the text of a run: translation, denoising, back-translation (XLM §4.2-4.3),
and targets within a language (titles, questions, summaries)."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from xlingjax.config.evaluators import Files
from xlingjax.config.text import TextSource, of_text
from xlingjax.data.rows.targets import check_directions
from xlingjax.data.text.sources import find_pairs, find_text, split_list
from xlingjax.errors import UserError, require_whole
from xlingjax.model.config import MOST
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.xglue import XFNP
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.translation import (
    BackTranslationFeatures,
    DenoisingFeatures,
    TranslationFeatures,
)
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight
from xlingjax.training.stages import staged


def _split(directions: Files = None) -> dict[str, Any]:
    """directions: of those learnt, "de-en fr-en"; None: all."""
    return {"directions": split_list(directions)}


def _checked(
    text: TextSource, features: TranslationFeatures, _: Mapping[str, Any]
) -> TranslationFeatures:
    """Raises UserError for a direction that no pair has."""
    # The languages of a mixture's pairs are not known before it is open.
    if not text.mixture:
        pairs = find_pairs(text.corpus.parallel)
        found = [pair.languages for pair in pairs if pair.translates]
        check_directions(features.directions, found)
    return features


def of_pairs(name: str, features: type[TranslationFeatures]) -> Callable[..., ObjectiveRun]:
    """Translation (XLM §4.3) of the corpus's pairs, in some directions or in all. length: tokens of
    a row's sources, and of its targets."""
    return of_text(
        Translation,
        features,
        length=128,
        change=_split,
        complete=_checked,
        hidden=("within", "truncate"),
        name=name,
        chunk=0,
    )


def generation(
    text: TextSource,
    files: str = "",
    languages: Files = "en",
    batch: int = 16,
    length: int = 256,
    max_pieces: int = 254,
    packing: bool = True,
    language_tokens: bool | str = False,
    truncate: bool = False,
    smoothing: float = 0.0,
    streams: int = 0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Texts to write from a text of the same language (XGLUE §5: questions, titles; summaries).

    files: a path with {language}, of tables of two columns, source and target, or of sources beside
    targets, `.src.` and `.tgt.`. languages: those trained on. truncate: cut longer sources, do not
    leave them out.
    streams: those of an n-stream decoder that all learn (xFNP); 0: the first, or an ordinary
    decoder. smoothing: see `Translation`.
    """
    require_whole({"streams": streams}, f"[0, {MOST['streams']}]", "streams", "generation: ")
    if files and "{language}" not in files:
        raise UserError(
            f"files {files!r}: write {{language}} where the code stands, as in"
            " titles/train-{language}.tsv"
        )
    # CODE=PATH says that source and target are of one language.
    patterns = tuple(
        f"{code}={files.replace('{language}', code)}" for code in split_list(languages)
    )
    features = TranslationFeatures(
        "generation", (), max_pieces, packing, language_tokens, True, truncate
    )
    # These pairs are the objective's own: those of the corpus are translations.
    source = text.batches(features, batch, length, parallel=patterns)
    objective = Translation("generation", smoothing, 1.0, chunk)
    if streams:
        # Fine-tuning trains all streams from the first target on; in pretraining stream i skips i.
        alphas = (1.0,) * streams
        objective = XFNP("generation", smoothing, 1.0, chunk, alphas, skip="none")
    return ObjectiveRun(objective, source, weight)


def _named(name: str = "denoising") -> dict[str, Any]:
    return {"name": name}


def _of_run(
    text: TextSource, features: DenoisingFeatures, _: Mapping[str, Any]
) -> DenoisingFeatures:
    return dataclasses.replace(features, languages=text.corpus.languages)


def _directed(directions: Files = None) -> dict[str, Any]:
    """directions: learnt ones, "fr-en": English into French and back; None: all languages."""
    return {}


def _with_pivots(
    text: TextSource, features: BackTranslationFeatures, given: Mapping[str, Any]
) -> BackTranslationFeatures:
    languages = text.corpus.languages
    # Which texts a mixture has is not known before it is open: all may be among them.
    written: Collection[str] = languages
    if not text.mixture:
        written = {found.language for found in find_text(text.patterns)}
    directions = split_list(given["directions"])
    return dataclasses.replace(features, pivots=pivots(languages, directions, written))


def pivots(
    languages: Sequence[str], directions: Sequence[str], texts: Collection[str]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """{language id: those into which its text is translated}, of the languages of `texts`. Raises
    UserError for a direction between other languages, and for a run of one language."""
    if len(languages) < 2:
        raise UserError("back_translation: set LANGUAGES to two or more")
    every = [f"{one}-{other}" for one in languages for other in languages if one != other]
    if unknown := sorted({*directions} - {*every}):
        raise UserError(f"DIRECTIONS: {unknown[0]!r} is none of {', '.join(every)}")
    table = {
        own: tuple(
            i for i, pivot in enumerate(languages) if f"{pivot}-{code}" in (directions or every)
        )
        for own, code in enumerate(languages)
        if code in texts
    }
    # Its rows would be drawn and have nothing to be translated into.
    if idle := [languages[own] for own, to in table.items() if not to]:
        raise UserError(
            f"DIRECTIONS: none leads to {idle[0]}, whose text stands in MONO; add one, or leave"
            " it out"
        )
    return tuple(table.items())


BINDABLE = {"noise": staged(Noise)}
OBJECTIVES = {
    "translation": of_pairs("translation", TranslationFeatures),
    "generation": generation,
    "denoising": of_text(
        Translation,
        DenoisingFeatures,
        length=128,
        change=_named,
        complete=_of_run,
        hidden=("languages",),
        noise=Noise(shuffle=3.0, drop=0.1, mask=0.1),
        unit="sentences",
        language_tokens=False,
        chunk=0,
    ),
    "back_translation": of_text(
        BackTranslation,
        BackTranslationFeatures,
        length=64,
        change=_directed,
        complete=_with_pivots,
        hidden=("pivots", "smoothing"),
        max_pieces=60,
        chunk=0,
    ),
}

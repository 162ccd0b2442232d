"""Encoder-decoders on the text of a run: translation, denoising, back-translation (XLM §4.2-4.3),
and targets within a language (titles, questions, summaries)."""

import dataclasses
from collections.abc import Collection, Sequence

from xlingjax.config.evaluators import Files
from xlingjax.config.text import TextSource
from xlingjax.data.batches.loader import Batches
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


def translation(
    text: TextSource,
    batch: int = 16,
    length: int = 128,
    directions: Files = None,
    max_pieces: int = 100,
    packing: bool = True,
    language_tokens: bool = False,
    smoothing: float = 0.0,
    factor: str | float = 1.0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Translation (XLM §4.3) of the corpus's pairs, in `directions` ("de-en fr-en") or in all.

    length: tokens of a row's sources, and of its targets. language_tokens: those of the model.
    smoothing, factor: see `Translation`.
    """
    features = TranslationFeatures(
        "translation", split_list(directions), max_pieces, packing, language_tokens
    )
    source = translation_batches(text, features, batch, length)
    return ObjectiveRun(Translation("translation", smoothing, factor, chunk), source, weight)


def translation_batches(
    text: TextSource, features: TranslationFeatures, batch: int, length: int
) -> Batches:
    """The batches of the corpus's pairs. Opening them raises UserError for a direction that none
    has."""

    def complete(features: TranslationFeatures) -> TranslationFeatures:
        # The languages of a mixture's pairs are not known before it is open.
        if not text.mixture:
            pairs = find_pairs(text.corpus.parallel)
            found = [pair.languages for pair in pairs if pair.translates]
            check_directions(features.directions, found)
        return features

    return text.batches(features, batch, length, complete=complete)


def generation(
    text: TextSource,
    files: str = "",
    languages: Files = "en",
    batch: int = 16,
    length: int = 256,
    max_pieces: int = 254,
    packing: bool = True,
    language_tokens: bool = False,
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
    decoder. The others: see `translation`.
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
        # Fine-tuning trains every stream from the first target on; pretraining lets stream i skip
        # i of them.
        alphas = (1.0,) * streams
        objective = XFNP("generation", smoothing, 1.0, chunk, alphas, skip="none")
    return ObjectiveRun(objective, source, weight)


def denoising(
    text: TextSource,
    batch: int = 16,
    length: int = 128,
    noise: Noise = Noise(shuffle=3.0, drop=0.1, mask=0.1),
    unit: str = "sentences",
    max_pieces: int = 100,
    packing: bool = True,
    language_tokens: bool = False,
    smoothing: float = 0.0,
    factor: str | float = 1.0,
    chunk: int = 0,
    weight: Weight = 1.0,
    name: str = "denoising",
) -> ObjectiveRun:
    """Denoising (XLM §4.2; xDAE: XGLUE §4.1) of the corpus's monolingual text. unit: see
    `DenoisingFeatures`. The others: see `translation`."""
    features = DenoisingFeatures(noise, unit, max_pieces, packing, language_tokens, None, name)

    def complete(features: DenoisingFeatures) -> DenoisingFeatures:
        return dataclasses.replace(features, languages=text.corpus.languages)

    source = text.batches(features, batch, length, complete=complete)
    return ObjectiveRun(Translation(name, smoothing, factor, chunk), source, weight)


def back_translation(
    text: TextSource,
    batch: int = 16,
    length: int = 64,
    directions: Files = None,
    max_pieces: int = 60,
    language_tokens: bool = False,
    max_length: tuple[float, int] = (1.3, 5),
    temperature: float = 0.0,
    factor: str | float = 1.0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Online back-translation (XLM §4.2) of the corpus's monolingual text. directions: what is
    learnt, "fr-en": English text is translated into French and back; default: between all
    languages. length: tokens of a text and of its translation. max_length, temperature: see
    `BackTranslation`. The others: see `translation`."""
    objective = BackTranslation(
        "back_translation",
        0.0,
        factor,
        chunk,
        max_length,
        temperature,
    )
    features = BackTranslationFeatures((), max_pieces, language_tokens)

    def complete(features: BackTranslationFeatures) -> BackTranslationFeatures:
        languages = text.corpus.languages
        # Which texts a mixture has is not known before it is open: all may be among them.
        of_text: Collection[str] = languages
        if not text.mixture:
            of_text = {found.language for found in find_text(text.corpus.mono)}
        return dataclasses.replace(
            features, pivots=pivots(languages, split_list(directions), of_text)
        )

    source = text.batches(features, batch, length, complete=complete)
    return ObjectiveRun(objective, source, weight)


def pivots(
    languages: Sequence[str], directions: Sequence[str], texts: Collection[str]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """{language id: those into which its text is translated, to learn the way back}, of the
    languages of `texts`. Raises UserError for a direction between other languages, and for a run of
    one language."""
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
    "translation": translation,
    "generation": generation,
    "denoising": denoising,
    "back_translation": back_translation,
}

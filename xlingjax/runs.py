"""From files and numbers to the parts of a run: what recipes bind. No gin here.

`bindable()` lists every name that a recipe may use. Objectives come as `ObjectiveRun`s whose source opens when training
starts, evaluators as functions still to be called, so that a recipe is built where none of its files exist.
"""

import dataclasses
import functools
import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xlingjax import probes
from xlingjax.checkpoint import CheckpointConfig
from xlingjax.data.features import batch_shapes
from xlingjax.data.frozen import frozen_source, read_header
from xlingjax.data.loader import BatchSource
from xlingjax.data.mixture import mixture_source, shapes_of
from xlingjax.data.sampling import Sampling, format_table
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig, preset
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.objectives.finetuning import Classification
from xlingjax.objectives.unicoder import CLMLM, CLWR
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.optim import OptimizerConfig
from xlingjax.partition import MeshConfig
from xlingjax.preprocessors.ernie_m import ALL_MASK, BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClwrFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures
from xlingjax.probes import Files, labelled_files, words
from xlingjax.quiet import quiet_stderr
from xlingjax.runtime import is_primary
from xlingjax.schedule import Weight
from xlingjax.tasks.xlm import TextSource
from xlingjax.train import ObjectiveRun, train


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What all parts of a run share: text, or files of frozen batches, and the vocabulary."""

    mono: tuple[str, ...]
    parallel: tuple[str, ...]
    vocabulary_path: str
    asked: tuple[str, ...]
    frozen: str | None = None

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.vocabulary_path)

    @functools.cached_property
    def languages(self) -> tuple[str, ...]:
        """Sorted, the index is the language id: those asked for, else those of the files."""
        if self.asked:
            return tuple(sorted(self.asked))
        if self.frozen:
            return tuple(read_header(next(iter(sorted(Path(self.frozen).glob("*.frozen"))), ""))["languages"])
        from xlingjax.data.vocabulary_training import texts_by_language

        return tuple(texts_by_language(self.mono, self.parallel))


def corpus(
    mono: Files = None,
    parallel: Files = None,
    vocabulary: str | None = None,
    languages: Files = None,
    run: str | None = None,
    frozen: str | None = None,
) -> Corpus:
    """The text and the vocabulary of a run.

    mono, parallel: patterns, in one string with spaces between them or in a list. languages: codes, "en,de" or a list;
    default: those of the files. run: a workdir whose vocabulary and languages are taken over, since fine-tuning must
    number languages as pretraining did. frozen: a folder that `xlingjax freeze` wrote, instead of text.
    """
    if run:
        vocabulary, languages = vocabulary or run, languages or read_run_record(run)["languages"]
    vocabulary = vocabulary or frozen
    if not vocabulary:
        raise UserError(
            "no vocabulary: set VOCABULARY to the folder that `xlingjax vocab` wrote, or to a SentencePiece .model file"
        )
    return Corpus(words(mono), words(parallel), str(vocabulary), words(languages), frozen)


def read_run_record(run: str) -> dict[str, Any]:
    """run.json of a workdir. Raises UserError when it is not there."""
    path = Path(run) / "run.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        remedy = "give the workdir of a training run (INIT_FROM: of a pretraining run)"
        raise UserError(f"missing file: {path}; {remedy}") from None


# --- the model --------------------------------------------------------------------------------------------------------


def model(
    name: str = "tiny",
    corpus: Corpus | None = None,
    run: str | None = None,
    labels: Files = None,
    vocab_size: int | None = None,
    language_embedding: bool | None = None,
    classifier: str | None = None,
    **overrides: Any,
) -> ModelConfig:
    """A preset, or the model of the pretraining run `run`, with fields changed (see `ModelConfig`).

    labels: gives the model a classification head. vocab_size: rows of the embedding; default: the size of the corpus's
    vocabulary. language_embedding: whether there is one, with a row for each language of the corpus; default: as in the
    preset. classifier: default: the preset's or the run's.
    """
    base = ModelConfig(**read_run_record(run)["model"]) if run else preset(name)
    if labels:
        base = base.replace(num_labels=len(words(labels)))
    if classifier:
        base = base.replace(classifier=classifier)
    if run:
        return base.replace(**overrides)
    sizes: dict[str, int] = {}
    if vocab_size is not None or corpus is not None:
        sizes["vocab_size"] = corpus.vocabulary.size if vocab_size is None else vocab_size
    if language_embedding is False:
        sizes["num_languages"] = 0
    elif (language_embedding or base.num_languages) and corpus is not None:
        sizes["num_languages"] = len(corpus.languages)
    return base.replace(**sizes, **overrides)


def check_vocabulary(config: ModelConfig, vocabulary: Vocabulary, path: str) -> None:
    """Raises UserError unless the model has a row for each piece and no more."""
    if vocabulary.size != config.vocab_size:
        than = "fewer" if vocabulary.size < config.vocab_size else "more"
        raise UserError(
            f"vocabulary {path} has {vocabulary.size} pieces, {than} than the {config.vocab_size} rows of model "
            f"{config.name}: set VOCABULARY_SIZE={vocabulary.size} or give the model's own vocabulary"
        )


@dataclasses.dataclass(frozen=True)
class Batches:
    """What opens an objective's batches when called; their global shapes are known before."""

    shapes: dict[str, tuple[int, ...]]
    opener: Callable[[], BatchSource]

    def __call__(self) -> BatchSource:
        return self.opener()


# --- objectives -------------------------------------------------------------------------------------------------------


def clm(
    corpus: Corpus,
    batch: int = 64,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    stream_length: int | None = None,
    context_size: int = 0,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """CLM (XLM §3.2) on the corpus's monolingual text. reading: see `text_source`."""
    objective = CLM(context_size=context_size, packed=bool(stream_length), chunk=chunk)
    features = ClmFeatures(stream_length)
    return ObjectiveRun(objective, text_source(corpus, features, batch, length, sampling, **reading), weight)


def mlm(
    corpus: Corpus,
    batch: int = 64,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    stream_length: int | None = None,
    prediction_slots: int | None = None,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """MLM (XLM §3.3) on the corpus's monolingual text. reading: see `text_source`."""
    features = MlmFeatures(masking, stream_length, prediction_slots)
    objective = MLM(packed=bool(stream_length), chunk=chunk)
    return ObjectiveRun(objective, text_source(corpus, features, batch, length, sampling, **reading), weight)


def tlm(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    prediction_slots: int | None = None,
    max_pieces: int = 100,
    reset_positions: bool = True,
    both_orders: bool = True,
    packing: bool = True,
    partner_visible: bool = True,
    shuffled_pairs: bool = False,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """TLM (XLM §3.4) on the corpus's pairs; the switches are those of `TlmFeatures`. reading: see `text_source`."""
    features = TlmFeatures(
        masking,
        prediction_slots,
        max_pieces,
        reset_positions,
        both_orders,
        packing,
        partner_visible,
        shuffled_pairs,
    )
    objective = TLM(packed=packing or not partner_visible, chunk=chunk)
    return ObjectiveRun(objective, text_source(corpus, features, batch, length, sampling, **reading), weight)


def veco(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(rate=0.25),  # noqa: B008 - frozen
    max_pieces: int = 100,
    packing: bool = True,
    plug_out: bool = True,
    tlm: bool = True,
    stop_gradient: bool = True,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """VECO (§3.2) on the corpus's pairs. plug_out False: the first phase, without the terms that have no gradient there;
    tlm: with TLM as a fifth term. reading: see `text_source`."""
    separator = corpus.vocabulary.eos_id if tlm and plug_out else None
    objective = VECO(plug_out=plug_out, stop_gradient=stop_gradient, separator=separator, chunk=chunk)
    features = VecoFeatures(masking, max_pieces, packing)
    return ObjectiveRun(objective, text_source(corpus, features, batch, length, sampling, **reading), weight)


def veco_text(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    packing: bool = True,
    plug_out: bool = True,
    stop_gradient: bool = True,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """VECO (§3.2) on adjacent segments of the corpus's monolingual text. reading: see `text_source`."""
    objective = VECO("veco_text", plug_out=plug_out, stop_gradient=stop_gradient, chunk=chunk)
    features = VecoTextFeatures(masking, packing)
    return ObjectiveRun(objective, text_source(corpus, features, batch, length, sampling, **reading), weight)


def camlm(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = ALL_MASK,
    layout: str = "in_place",
    own_masks: str = "all",
    max_pieces: int = 100,
    reset_positions: bool = False,
    packing: bool = True,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """CAMLM (ERNIE-M §3.2) on the corpus's pairs. layout, reset_positions: see `CamlmFeatures`; own_masks: `CAMLM`.
    reading: see `text_source`."""
    objective = CAMLM(own_masks=own_masks, chunk=chunk)
    features = CamlmFeatures(masking, layout, max_pieces, reset_positions, packing)
    return ObjectiveRun(objective, text_source(corpus, features, batch, length, sampling, **reading), weight)


def btmlm(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    proportion: float = 0.15,
    reset_positions: bool = False,
    decode: str = "argmax",
    target_languages: str = "share",
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """BTMLM (ERNIE-M §3.2) on the corpus's monolingual text. target_languages: pseudo tokens are in a language that the
    corpus has pairs of, drawn by their `share` as in `sampling`, or `uniform`. reading: see `text_source`."""
    objective = BTMLM(decode=decode, banned=tuple(sorted(corpus.vocabulary.special_ids)), chunk=chunk)
    features = BtmlmFeatures(masking, proportion, reset_positions)

    def complete(features: BtmlmFeatures) -> BtmlmFeatures:
        shares = pair_shares(corpus, sampling if target_languages == "share" else Sampling(alpha=0.0))
        return dataclasses.replace(features, targets=tuple(shares.items()))

    source = text_source(corpus, features, batch, length, sampling, complete=complete, **reading)
    return ObjectiveRun(objective, source, weight)


def pair_shares(corpus: Corpus, sampling: Sampling) -> dict[int, float]:
    """{language id: share} of the languages that the corpus has pairs of, by their number of pairs.

    Raises UserError where a language of monolingual text has none.
    """
    from xlingjax.data.corpus import tokens
    from xlingjax.data.sources import find_pairs, find_text

    counts: dict[str, float] = {}
    for pair in find_pairs(corpus.parallel) if corpus.parallel else ():
        for language in pair.languages:
            counts[language] = counts.get(language, 0) + tokens(pair.first, corpus.vocabulary).sentences
    if lacking := sorted({text.language for text in find_text(corpus.mono)} - set(counts)):
        raise UserError(
            f"btmlm: no parallel data for {', '.join(lacking)}, so nothing teaches the model to translate from there; "
            "add pairs to PARALLEL, or leave the language's text out of MONO"
        )
    return {corpus.languages.index(language): share for language, share in sampling.shares(counts).items()}


def clwr(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    max_pieces: int = 100,
    packing: bool = True,
    raw: bool = False,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """Cross-lingual word recovery (Unicoder §3.2) on the corpus's pairs. raw: see `CLWR`. reading: see `text_source`."""
    features = ClwrFeatures(max_pieces, packing)
    source = text_source(corpus, features, batch, length, sampling, **reading)
    return ObjectiveRun(CLWR(raw=raw, chunk=chunk), source, weight)


def cl_mlm(
    corpus: Corpus,
    batch: int = 16,
    length: int = 256,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    masking: Masking = Masking(),  # noqa: B008 - frozen
    parity: str = "coin",
    packing: bool = True,
    chunk: int = 0,
    weight: Weight = 1.0,
    **reading: Any,
) -> ObjectiveRun:
    """Cross-lingual masked LM (Unicoder §3.2) on the corpus's aligned documents: pairs whose files have blank lines
    between documents. parity: see `documents.switched_rows`. reading: see `text_source`."""
    features = ClMlmFeatures(masking, parity, packing)
    source = text_source(corpus, features, batch, length, sampling, **reading)
    return ObjectiveRun(CLMLM(packed=packing, chunk=chunk), source, weight)


def text_source(
    corpus: Corpus,
    features: Any,
    batch: int,
    length: int,
    sampling: Sampling,
    seed: int = 0,
    mixture: str | None = None,
    tasks: Files = None,
    use_cached: bool = False,
    holdout: float = 0.0,
    data_shards: int = 1,
    threads: int = 1,
    prefetch: int = 2,
    complete: Callable[[Any], Any] | None = None,
) -> Batches:
    """The batches of one objective; opening them prints what is sampled.

    complete: what only the text can tell of the features, filled in when it is opened. From frozen batches if the corpus has them, else from the SeqIO `mixture` that the Python modules `tasks` register,
    else from the corpus's files. holdout: share of the lines left out of training. The others: see `mixture_source`.
    """

    def frozen() -> BatchSource:
        path = Path(corpus.frozen) / f"{features.name}.frozen"
        asked = {"batch": batch, "length": length, **json.loads(json.dumps(dataclasses.asdict(features)))}
        check_frozen(path, features.name, asked)
        return frozen_source(path)

    def completed() -> Any:
        return complete(features) if complete else features

    def registered() -> BatchSource:
        for module in words(tasks):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                raise UserError(f"TASKS: {error}; name a module that Python can import from here") from None
        return mixture_source(
            mixture,
            completed(),
            batch=batch,
            length=length,
            seed=seed,
            sampling=sampling,
            languages=corpus.languages,
            data_shards=data_shards,
            use_cached=use_cached,
            threads=threads,
            prefetch=prefetch,
        )

    def files() -> BatchSource:
        return TextSource(
            completed(),
            corpus.vocabulary,
            batch,
            length,
            mono=corpus.mono,
            parallel=corpus.parallel,
            holdout=holdout,
            seed=seed,
            sampling=sampling,
            languages=corpus.languages,
            data_shards=data_shards,
            threads=threads,
            prefetch=prefetch,
        )()

    def opened() -> BatchSource:
        with quiet_stderr():
            source = (frozen if corpus.frozen else registered if mixture else files)()
        table = source.identity.get("sampling_table")
        if table and is_primary():
            print(f"{features.name}: what is sampled\n{format_table(table)}", flush=True)
        return source

    return Batches(shapes_of(features, batch, length), opened)


def check_frozen(path: Path, name: str, asked: dict[str, Any]) -> None:
    """Raises UserError where frozen batches are not what the recipe asks for: they cannot be changed any more."""
    identity = read_header(path)["identity"]
    has = {"batch": identity.get("batch"), "length": identity.get("length"), **identity.get("options", {})}
    for option, value in asked.items():
        if option in has and has[option] != value:
            raise UserError(
                f"{path}: {name} was frozen with {option}={has[option]} and this run asks for {value}; give the "
                f"options that it was frozen with, or freeze again"
            )


# --- fine-tuning ------------------------------------------------------------------------------------------------------


def classification(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    labels: Files = None,
    batch: int = 32,
    length: int = 128,
    reset_positions: bool = False,
    classifier: str | None = None,
    seed: int = 0,
) -> ObjectiveRun:
    """Classification of labelled pairs, in the rows of `pair_row`.

    files: a path with {language}. languages: those trained on. classifier: the model's, where it is set for this.
    """
    classes, objective = words(labels), Classification(len(words(labels)), classifier == "difference")

    def opened() -> BatchSource:
        from xlingjax.preprocessors.finetuning import classification_source

        return classification_source(
            labelled_files(files, words(languages)),
            corpus.vocabulary,
            corpus.languages,
            labels=classes,
            length=length,
            batch_size=batch,
            reset_positions=reset_positions,
            seed=seed,
        )

    return ObjectiveRun(objective, Batches(batch_shapes(objective.reads, batch=batch, length=length), opened))


# --- what recipes may bind --------------------------------------------------------------------------------------------


def planned(function: Callable) -> Callable:
    """`function` with its arguments bound and not yet called; what recipes bind, they see its signature."""

    def plan(**arguments: Any) -> functools.partial:
        return functools.partial(function, **arguments)

    plan.__signature__ = inspect.signature(function)
    plan.__name__, plan.__doc__ = function.__name__, function.__doc__
    return plan


def bindable() -> dict[str, Callable]:
    """Every name that a recipe may use."""
    return {
        "train": planned(train),
        "model": model,
        "corpus": corpus,
        "optimizer": OptimizerConfig,
        "mesh": MeshConfig,
        "checkpoint": CheckpointConfig,
        "sampling": Sampling,
        "masking": Masking,
        "clm": clm,
        "mlm": mlm,
        "tlm": tlm,
        "veco": veco,
        "veco_text": veco_text,
        "camlm": camlm,
        "btmlm": btmlm,
        "clwr": clwr,
        "cl_mlm": cl_mlm,
        "classification": classification,
        "retrieval": probes.retrieval,
        "floors": probes.floors,
        "perplexity": probes.perplexity,
        "translation_perplexity": probes.translation_perplexity,
        "samples": probes.samples,
        "accuracy": probes.accuracy,
    }

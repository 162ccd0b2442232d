"""`xlingjax export`: a trained run as a folder that `AutoModel` and `AutoTokenizer` of transformers
open, an encoder-decoder as one that `AutoModelForSeq2SeqLM` opens."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from xlingjax.convert.formats import hugging_face, parity, sentence_transformers
from xlingjax.convert.formats.exported import (
    BESIDE,
    POSITIONS,
    WEIGHTS,
    Exported,
    embeds_languages,
    exported,
    in_language,
    restored,
    without_beside,
)
from xlingjax.convert.formats.hugging_face import DESCRIPTION, OURS, TOKENIZER_OF_RUN
from xlingjax.convert.formats.language_tokens import (
    Writing,
    direction_of,
    generation_config,
    writing_of,
)
from xlingjax.convert.formats.names import OF_WORDS
from xlingjax.convert.formats.tokenizer_json import tokenizer_files
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.lora import merged
from xlingjax.model.params import flattened
from xlingjax.report.card import model_card
from xlingjax.report.run import read_run
from xlingjax.runtime.files import write_json
from xlingjax.training.checkpoint_paths import find_checkpoint, step_of
from xlingjax.training.run_record import labels_of, read_run_record, run_and_checkpoint
from xlingjax.training.workdir import require_empty, whole


def export_model(
    run: str,
    output: str,
    verify: bool = True,
    language: str = "",
    licence: str = "",
    base: str = "",
    name: str = "",
    before_after: Sequence[Mapping[str, Any]] = (),
    head: str = "",
) -> str:
    """Writes the model of `run` as the Hugging Face folder `output`; returns what was done.

    The folder is read back, which must give the same bits, and its logits compared with those that
    transformers computes of it (`verify`), before it gets its name. language: where the model
    embeds languages and the class there does not, the one that all texts will be of; of an
    encoder-decoder that of its sources and, behind a hyphen, that of what it writes. licence, base,
    name (that of the folder), before_after (rows "figure", "before", "after"): of the model card.
    head: of several, the one that is written. Raises UserError, and writes nothing.
    """
    require_empty(output)
    record = read_run_record(run)
    trained = open_run(run)
    config, params, notes = _for_their_class(_with_one_head(trained, head, run), language, run)
    config, params = merged(config, params)
    labels = labels_of(record, head or None)
    writing = None
    if config.decoder_layers:
        writing = writing_of(config, trained.vocabulary, trained.languages, language, run)
        notes += writing.notes()
    if head:
        notes.append(f"the head of {head} alone, of {_heads(trained.model.config)}")
    if not trained.released.get("vocabulary_head", True):
        notes.append("without a vocabulary head: what was imported had none, and no words trained")
    of_run = trained.vocabulary, trained.languages, labels, trained.released
    made = exported(config, params, *of_run)
    if made.beside:
        size = sum(value.size for value in made.beside.values())
        notes.append(
            f"{size:,} parameters that {made.architecture} has no place for, in {BESIDE}"
            f" ({', '.join(made.beside)}): xlingjax import reads them back"
        )
    # Under another name until all is well: no half export can be taken for a model.
    with whole(output) as folder:
        _write(folder, made, trained.vocabulary, config, writing)
        notes += _write_sentences(folder, trained, config)
        total = sum(value.size for value in made.tensors.values())
        made = dataclasses.replace(made, tensors={})
        # Bits first: the comparison of logits has a tolerance, which would hide a small fault.
        # By the importer itself, so that an export is what an import will find.
        read_back = restored(folder, hugging_face.read(folder)).params
        _require_same(read_back, params, config, made.description["vocabulary_head"])
        del read_back
        if verify:
            # transformers computes nothing of what lies beside its files.
            config, params = without_beside(config, params, made)
            notes.append(
                parity.compare(folder, config, params, trained.vocabulary, made.vocabulary_head)
            )
        else:
            notes.append("not compared with transformers (--unverified)")
        run_folder, _ = run_and_checkpoint(run)
        workdir = read_run(run_folder)
        if workdir.config:
            (folder / "config.gin").write_text(workdir.config, encoding="utf-8")
        languages = workdir.languages
        if language:
            both = dict.fromkeys(direction_of(language, languages, run))
            languages = [languages[number] for number in both]
        # A start that depends on the language is said in the call: the first, as an example.
        start = writing.tokens[0] if writing and writing.start is None else ""
        card = model_card(
            workdir,
            step_of(find_checkpoint(run).name) or 0,
            name or Path(output).absolute().name,
            made.described,
            languages,
            notes,
            licence,
            base,
            before_after,
            trained.sentences,
            start,
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    first = f"{output}: {made.architecture}, {total:,} parameters, from {run}"
    return "\n".join([first, *notes])


def require_exportable(run: str, verify: bool = True, language: str = "") -> None:
    """Raise UserError for a run that `export_model` refuses whatever its weights are, before it is
    trained further."""
    trained = open_run(run)
    config, _, _ = _for_their_class(_with_one_head(trained, "", run), language, run)
    languages = None
    if config.decoder_layers:
        languages = writing_of(config, trained.vocabulary, trained.languages, language, run).tokens
    embeds_languages(config, trained.released)
    tokenizer_files(trained.vocabulary, config.max_positions - config.position_offset, languages)
    if verify:
        parity.interop()


def _with_one_head(trained: TrainedRun, head: str, run: str) -> TrainedRun:
    """The model with the head of one task as its only one, which transformers has a class for."""
    config = trained.model.config
    if not config.task_labels and not head:
        return trained
    if not config.labels_of(head):
        raise UserError(
            f"--head {head or 'NAME'}: name one of the heads of {run} ({_heads(config) or 'none'})"
        )
    params = dict(trained.params)
    params["classifier"] = params.pop("classifiers")[head]
    config = config.replace(num_labels=config.labels_of(head), task_labels=None)
    model = build_model(config)
    return dataclasses.replace(trained, model=model, params=params)


def _heads(config: ModelConfig) -> str:
    return ", ".join(name for name, _ in config.task_labels or ())


def _for_their_class(trained: TrainedRun, language: str, run: str) -> tuple[Any, Any, list[str]]:
    """(model, its parameters in NumPy, what was done)."""
    config = trained.model.config
    params = jax.tree.map(np.asarray, trained.params)
    codes = trained.languages
    # It refuses by the settings of the run, so that its message names none that is made here.
    embedded_there = embeds_languages(config, trained.released)
    if not config.has_languages:
        if language and not config.language_tokens:
            raise UserError(f"--language {language}: {run} embeds no languages; leave it out")
        return config, params, []
    if language:
        read, written = direction_of(language, codes, run)
        if read != written and not config.decoder_layers:
            raise UserError(f"--language {language}: {run} writes nothing; give the one it reads")
        config, params = in_language(config, params, read, written)
        texts = f"in {language}" if read == written else f"from {codes[read]} to {codes[written]}"
        note = f"for texts {texts} alone: language embeddings are part of the positions"
        return config, params, [note]
    if embedded_there:
        return config, params, []
    # ERNIE-M's released weights have no such table: it serves the training and starts from nothing.
    if config.language_init == "zero" and not config.decoder_layers:
        note = "the language embedding, of training alone (ERNIE-M), is left out of the states"
        return config, params, [note]
    raise UserError(
        f"{run} embeds languages, and the class of transformers does not: export it for one of"
        f" {', '.join(codes)} with --language CODE (an encoder-decoder: FROM-TO), or train with"
        " LANGUAGE_EMBEDDING=False"
    )


def _write(
    folder: Path,
    made: Exported,
    vocabulary: Vocabulary,
    config: ModelConfig,
    writing: Writing | None,
) -> None:
    languages = writing.tokens if writing else None

    # Of this layout tokenizer.json tells transformers, and we read the model itself.
    if vocabulary.layout == "xlm" and vocabulary.model_bytes:
        (folder / OURS).write_bytes(vocabulary.model_bytes)
    # A SentencePiece model does not show this layout.
    if vocabulary.layout == "xprophetnet":
        for name, content in vocabulary.files().items():
            (folder / name).write_bytes(content)
    longest = config.max_positions - config.position_offset
    files = tokenizer_files(vocabulary, longest, languages, writing.source if writing else "")
    # Its ids are the run's, and so must its bytes be when it is read again.
    if vocabulary.layout == "tokenizer" and (files["tokenizer.json"] != vocabulary.content):
        files[TOKENIZER_OF_RUN] = vocabulary.content
    for name, content in files.items():
        (folder / name).write_bytes(content)
    described = made.described
    if writing:
        described = described | {"decoder_start_token_id": writing.start}
        never = sorted({*vocabulary.special_ids} - {vocabulary.eos_id})
        never += range(vocabulary.size, config.true_rows)
        write_json(
            folder / "generation_config.json",
            generation_config(config, vocabulary, writing, never),
        )
    write_json(folder / "config.json", described)
    write_json(folder / DESCRIPTION, made.description)
    # transformers refuses a file that does not say whose tensors it holds.
    save_file(made.tensors, folder / WEIGHTS, metadata={"format": "pt"})
    if made.beside:
        save_file(made.beside, folder / BESIDE)


def _write_sentences(folder: Path, trained: TrainedRun, config: ModelConfig) -> list[str]:
    """Write what sentence-transformers reads, of a run with sentence vectors; says what."""
    own = trained.sentences
    if own is None:
        return []
    reason = sentence_transformers.unwritten(own, config)
    if reason:
        return [f"its sentence vectors are not written: sentence-transformers has none by {reason}"]
    for name, value in sentence_transformers.files(own, config).items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, value)
    if trained.dense:
        for name, options, tensors in sentence_transformers.dense_files(trained.dense):
            (folder / name).mkdir()
            write_json(folder / name / "config.json", options)
            save_file(tensors, folder / name / WEIGHTS, metadata={"format": "pt"})
    return [f"sentence-transformers opens it: the last layer, {own.said()}"]


def _require_same(read_back: Any, written: Any, config: ModelConfig, head: bool) -> None:
    """Raise UserError where what was read back has another bit than what was written. Rows of
    padding, and of positions before the first, do not count, nor does a head that is not written.
    """
    read_back = flattened(read_back)
    for name, value in flattened(written).items():
        if name.startswith("head/") and not head:
            continue
        rows = slice(None)
        if name.endswith(POSITIONS):
            rows = slice(config.position_offset, None)
        elif config.decoder_layers and name.endswith("head/bias"):
            # Rows without a piece are put out of reach there, and no text has them here.
            rows = slice(config.vocab_size - config.language_tokens)
        elif name.endswith(OF_WORDS):
            rows = slice(config.true_rows)
        if not np.array_equal(read_back[name][rows], value[rows]):
            raise UserError(
                f"{name} is not the same when it is read back: the disk is faulty; nothing was"
                " exported"
            )

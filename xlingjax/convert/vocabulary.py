"""Vocabulary surgery: a trained model with more pieces, with fewer, or with another vocabulary: a
workdir in, a workdir out. `data/vocabulary/surgery.py` makes the vocabularies; here the rows of the
parameters follow them.

A row is found by what it means, never by its number. The parameters that have a row for each piece
are the token
tables and the biases of the vocabulary heads, the encoder's and a decoder's own; behind the pieces
stand the tokens of languages, and rows of padding. The table of languages gets a row for a new
language.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.convert.formats.sentencepiece_model import with_sentencepiece
from xlingjax.data.texts import Text
from xlingjax.data.vocabulary import surgery
from xlingjax.data.vocabulary.cooccurrence import LINES, most_alike, piece_vectors
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import (
    sentences_of,
    texts_by_language,
    vocabulary_report,
)
from xlingjax.errors import UserError
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.config import ModelConfig, count_parameters
from xlingjax.model.params import nested, path_name
from xlingjax.training.checkpoint import find_checkpoint
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.training.workdir import require_empty, write_trained

INITIALISATIONS = ("mean", "overlap", "random")
NOISE = 0.1
"""Of the ordinary rows' standard deviation: keeps rows that begin at their mean apart."""
Texts = Mapping[str, Sequence[Text]]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Where each row of a new vocabulary comes from."""

    source: np.ndarray
    """int32 [V]: the old row that it is, -1: a new one."""
    parts: Mapping[int, tuple[np.ndarray, np.ndarray]]
    """{new row: (old rows, weights that sum to 1)}; a new row that is not here is drawn."""
    drawn: str
    """"mean" or "random": what it is drawn about."""
    told: str


def extend(
    run: str,
    output: str,
    *,
    mono: Sequence[str] = (),
    parallel: Sequence[str] = (),
    pieces: int,
    old_mono: Sequence[str] = (),
    initialise: str = "mean",
    seed: int = 0,
    **learning: Any,
) -> str:
    """Writes the model of `run` with `pieces` more pieces, learnt on the text, to the workdir
    `output`. Returns what was done, with the vocabulary before and after on the text of each
    language.

    old_mono: text of the old languages: new pieces that the first, third, ... of its sentences
    would use are left out (see `vocabulary_surgery.extend`), and the others show how much is cut
    otherwise. learning: options of the new pieces. Languages that the run does not have get a row
    in its table of languages, the mean of the others'. Raises UserError.
    """
    require_empty(output)
    texts = texts_by_language(mono, parallel)
    old_texts = texts_by_language(old_mono) if old_mono else {}
    trained = _of_pieces(open_run(run))
    kept_back = {code: [*sentences_of(of)] for code, of in old_texts.items()}
    made = surgery.extend(
        trained.vocabulary,
        texts,
        pieces,
        old_lines=[line for lines in kept_back.values() for line in lines[::2]],
        seed=seed,
        **learning,
    )
    rows = rows_between(trained.vocabulary, made.vocabulary, initialise, texts)
    told = [f"{pieces:,} new pieces, of which old pieces could spell {made.spelt:,}"]
    if old_texts:
        told[0] += f"; {made.left_out:,} others that old text would use left out"
        held_out = {code: lines[1::2] for code, lines in kept_back.items()}
        told += _cut_otherwise(trained.vocabulary, made.vocabulary, held_out)
    return _write(
        run,
        output,
        trained,
        made.vocabulary,
        rows,
        seed,
        "extend",
        told,
        {**texts, **old_texts},
        [*texts],
    )


def trim(
    run: str,
    output: str,
    *,
    mono: Sequence[str] = (),
    parallel: Sequence[str] = (),
    min_count: int = 1,
    size: int | None = None,
    characters: bool = True,
) -> str:
    """Writes the model of `run` with the pieces alone that the text uses (see
    `vocabulary_surgery.trim`) to the workdir `output`. Logits of the pieces that stay are the same.
    Returns what was done. Raises UserError.
    """
    require_empty(output)
    texts = texts_by_language(mono, parallel)
    trained = _of_pieces(open_run(run))
    of_all = [text for of in texts.values() for text in of]
    pieces = None if size is None else size - trained.model.config.language_tokens
    made = surgery.trim(
        trained.vocabulary,
        of_all,
        min_count=min_count,
        size=pieces,
        characters=characters,
    )
    rows = rows_between(trained.vocabulary, made)
    told = _cut_otherwise(
        trained.vocabulary, made, {code: sentences_of(of) for code, of in texts.items()}
    )
    return _write(run, output, trained, made, rows, 0, "trim", told, texts)


def transplant(
    run: str,
    output: str,
    vocabulary: str,
    *,
    mono: Sequence[str] = (),
    parallel: Sequence[str] = (),
    initialise: str = "mean",
    seed: int = 0,
) -> str:
    """Writes the model of `run` on another vocabulary to the workdir `output`: pieces that both
    have keep their rows, the others get one as in `extend`. The text is for the report, and for
    `initialise="overlap"`. Returns what was done. Raises UserError."""
    require_empty(output)
    new = Vocabulary.load(vocabulary)
    texts = texts_by_language(mono, parallel) if mono or parallel else {}
    trained = open_run(run)
    if new == trained.vocabulary:
        raise UserError(
            f"--vocabulary {vocabulary} is the one that {run} has; give another"
        )
    rows = rows_between(trained.vocabulary, new, initialise, texts)
    told = []
    if new.layout != trained.vocabulary.layout:
        told.append(
            f"layout {trained.vocabulary.layout} -> {new.layout}: sentences begin with another"
            " row now"
        )
    if not texts:
        told.append(
            "no --mono: fertility and unknown pieces before and after are not measured"
        )
    return _write(run, output, trained, new, rows, seed, "transplant", told, texts)


def _of_pieces(trained: TrainedRun) -> TrainedRun:
    """On a SentencePiece model, whose pieces can be changed. Raises UserError."""
    return dataclasses.replace(
        trained, vocabulary=with_sentencepiece(trained.vocabulary)
    )


# --- rows -----------------------------------------------------------------------------------------


def rows_between(
    old: Vocabulary,
    new: Vocabulary,
    initialise: str = "mean",
    texts: Texts | None = None,
) -> Rows:
    """The rows of `new`: those whose meaning `old` has too, and how the others begin.

    "mean": the mean of the old rows of the pieces that `old` cuts the new piece into (Gee et al.
    2022, "Fast Vocabulary Transfer"); where one of them is unknown, N(mean, (NOISE std)^2) of all
    ordinary rows, number by number of their dimensions (Hewitt 2021, "Initializing New Word
    Embeddings for Pretrained Language Models", with little noise). "overlap": the mean of the
    pieces that both have and that keep most alike company in `texts`, weighted by how alike (the
    idea of FOCUS, Dobler and de Melo 2023, with vectors from counts in place of fastText's and
    cosines of the nearest in place of sparsemax); where there is none, as "mean". "random": as in a
    model that was never trained. Raises UserError for another `initialise`, and for "overlap"
    without text.
    """
    if initialise not in INITIALISATIONS:
        raise UserError(
            f"--initialise {initialise} is not one of {', '.join(INITIALISATIONS)}"
        )
    source = surgery.source_rows(old, new)
    fresh = np.flatnonzero(source < 0)
    parts: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    alike = {}
    if initialise == "overlap" and fresh.size:
        if not texts:
            raise UserError(
                "--initialise overlap compares the company that pieces keep; give --mono or"
                " --parallel"
            )
        ordinary = (source >= 0) & ~np.isin(np.arange(new.size), [*new.special_ids])
        lines = [
            line for of in texts.values() for line in _some(of, LINES // len(texts))
        ]
        vectors = piece_vectors(new, lines)
        known = np.flatnonzero(ordinary & (np.abs(vectors).sum(axis=1) > 0))
        found = most_alike(vectors, fresh.tolist(), known)
        alike = {row: (source[near], weights) for row, (near, weights) in found.items()}
    if initialise != "random":
        cut = surgery.Splitter(old)(new.pieces(fresh))
        for row, ids in zip(fresh.tolist(), cut, strict=True):
            if row not in new.special_ids and ids:
                parts[row] = np.array(ids), np.full(len(ids), 1 / len(ids))
    spelt, parts = len({*parts} - {*alike}), parts | alike
    about = (
        "as in an untrained model"
        if initialise == "random"
        else "about the mean of all rows"
    )
    told = [f"{(source >= 0).sum():,} rows copied"]
    told += [f"{len(alike):,} from pieces in like company"] if alike else []
    told += [f"{spelt:,} the mean of the old pieces that spell them"] if spelt else []
    told += (
        [f"{fresh.size - len(parts):,} drawn {about}"]
        if fresh.size > len(parts)
        else []
    )
    return Rows(
        source, parts, "random" if initialise == "random" else "mean", ", ".join(told)
    )


def _some(texts: Sequence[Text], count: int) -> list[str]:
    lines = [*sentences_of(texts)]
    return lines[:: -(-len(lines) // count)]


def moved(
    params: Any,
    config: ModelConfig,
    new: ModelConfig,
    rows: Rows,
    ordinary: np.ndarray,
    languages: Any,
    seed: int = 0,
) -> dict[str, Any]:
    """The parameters with the rows of another vocabulary, NumPy arrays; what has none is as it was.

    config, new: the models before and after. ordinary: old rows of no special piece. languages: of
    each language after, its number before, -1: a new one.
    """
    made = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = path_name(path)
        if name.endswith("tokens/embedding") or name in (
            "head/bias",
            "decoder_head/bias",
        ):
            rng = np.random.default_rng((seed, *name.encode()))
            made[name] = _table(
                np.asarray(leaf), name, config, new, rows, ordinary, languages, rng
            )
        elif name.endswith("languages/embedding"):
            made[name] = _of_languages(np.asarray(leaf), languages)
        else:
            made[name] = leaf
    return nested(made)


def _table(
    old: np.ndarray,
    name: str,
    config: ModelConfig,
    new: ModelConfig,
    rows: Rows,
    ordinary: np.ndarray,
    languages: Any,
    rng,
) -> np.ndarray:
    pieces, size = config.vocab_size - config.language_tokens, len(rows.source)
    made = np.zeros((new.padded_vocab_size, *old.shape[1:]), np.float32)
    known = np.flatnonzero(rows.source >= 0)
    made[known] = old[rows.source[known]]
    for row, (ids, weights) in rows.parts.items():
        made[row] = np.tensordot(weights, old[ids].astype(np.float64), 1)
    drawn = np.setdiff1d(np.flatnonzero(rows.source < 0), [*rows.parts])
    if drawn.size and rows.drawn == "random":
        std = 0.0 if name.endswith("bias") else new.init_std or new.dim**-0.5
        made[drawn] = rng.normal(0, std, made[drawn].shape)
    elif drawn.size:
        mean, std = (
            old[ordinary].mean(axis=0, dtype=np.float64),
            old[ordinary].std(axis=0, dtype=np.float64),
        )
        made[drawn] = rng.normal(mean, NOISE * std, made[drawn].shape)
    if config.language_tokens:
        made[size : new.vocab_size] = _of_languages(
            old[pieces : config.vocab_size], languages
        )
    return made


def _of_languages(old: np.ndarray, languages: Sequence[int]) -> np.ndarray:
    mean = old.mean(axis=0)
    return np.stack([old[i] if i >= 0 else mean for i in languages])


# --- the workdir ----------------------------------------------------------------------------------


def _write(
    run: str,
    output: str,
    trained: TrainedRun,
    new: Vocabulary,
    rows: Rows,
    seed: int,
    verb: str,
    told: list[str],
    texts: Texts,
    added: Sequence[str] = (),
) -> str:
    old, config, record = trained.vocabulary, trained.model.config, read_run_record(run)
    before = list(trained.languages)
    after = _languages(before, added)
    languages = [before.index(code) if code in before else -1 for code in after]
    sizes: dict[str, Any] = {"vocab_size": new.size, "table_rows": None}
    if config.table_rows:
        told.append(
            f"{config.table_rows - config.vocab_size} rows without a piece left behind"
        )
    if config.language_tokens:
        sizes |= {"vocab_size": new.size + len(after), "language_tokens": len(after)}
    if config.has_languages:
        sizes["num_languages"] = len(after)
    model = config.replace(**sizes)
    ordinary = np.setdiff1d(np.arange(old.size), [*old.special_ids])
    params = moved(trained.params, config, model, rows, ordinary, languages, seed)
    counts = count_parameters(config), count_parameters(model)
    lines = [
        f"{output}: {old.size:,} -> {new.size:,} pieces, {counts[0]:,} -> {counts[1]:,} parameters",
        rows.told, *told,
    ]  # fmt: skip
    if after != before:
        lines.append(
            f"languages: {' '.join(after)}; {', '.join(c for c in after if c not in before)} new"
        )
    lines.append("parameters alone: a run with INIT_FROM begins with a fresh optimizer")
    reports = [vocabulary_report(one, texts) for one in (old, new)]
    if texts:
        lines.append(format_change(*reports))
    files = new.files()
    if (recipe := run_and_checkpoint(run)[0] / "config.gin").is_file():
        files["config.gin"] = _recipe(
            recipe.read_text("utf-8"), Path(output).absolute(), verb, after, before
        )
    for field in (record["model"], record["identity"]["model"]):
        field.update(sizes)
    record["identity"]["data"] = {"surgery": {"vocabulary": new.sha256}}
    if "vocabulary_sha256" in record.get("config", {}):
        record["config"] |= {
            "vocabulary": str(Path(output).absolute()),
            "vocabulary_sha256": new.sha256,
        }
    change = {
        "verb": verb,
        "from": str(run),
        "rows": rows.told,
        "told": told,
        "pieces": [old.size, new.size],
    }
    change |= {
        "vocabulary": [old.sha256, new.sha256],
        "before": reports[0],
        "after": reports[1],
    }
    record |= {
        "languages": after,
        "parameters": counts[1],
        "surgery": [*record.get("surgery", []), change],
    }
    write_trained(output, record, find_checkpoint(run).name, params, files)
    return "\n".join(lines)


def _languages(before: Sequence[str], added: Sequence[str]) -> list[str]:
    """Sorted if they were, as a run sorts its own; a run without languages (an imported one) stays
    so."""
    new = sorted({*added} - {*before})
    if not before:
        return []
    return (
        sorted([*before, *new]) if list(before) == sorted(before) else [*before, *new]
    )


def _recipe(
    text: str, folder: Path, verb: str, after: Sequence[str], before: Sequence[str]
) -> bytes:
    # Fine-tuning has model and vocabulary of the run that it starts from.
    where = "INIT_FROM" if "corpus.run = %INIT_FROM" in text else "VOCABULARY"
    lines = [f"# By `xlingjax vocab {verb}`:", f"{where} = {str(folder)!r}"]
    if after != before:
        lines.append(f"LANGUAGES = {' '.join(after)!r}")
    if "VOCABULARY_SIZE =" in text:
        lines.append("VOCABULARY_SIZE = None")
    return "\n".join([text, *lines, ""]).encode()


def _cut_otherwise(
    old: Vocabulary, new: Vocabulary, by_language: Mapping[str, Any]
) -> list[str]:
    found = surgery.cut_otherwise(old, new, by_language)
    shares = (
        f"{code} {changed:,} of {count:,}" for code, (changed, count) in found.items()
    )
    return [f"sentences cut otherwise than before: {', '.join(shares)}"]


def format_change(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> str:
    """Two reports of `vocabulary_report` beside each other, as a table for the terminal."""
    lines = [
        f"{'language':<10}{'sentences':>11}{'unknown':>20}{'fertility':>17}{'per char':>17}"
    ]
    for code, a in before.items():
        b = after[code]
        cells = (
            f"{a['unknown_rate']:.3%} -> {b['unknown_rate']:.3%}",
            f"{a['fertility']:.2f} -> {b['fertility']:.2f}",
            f"{a['pieces_per_character']:.3f} -> {b['pieces_per_character']:.3f}",
        )
        lines.append(
            f"{code:<10}{a['sentences']:>11,}{cells[0]:>20}{cells[1]:>17}{cells[2]:>17}"
        )
    return "\n".join(lines)

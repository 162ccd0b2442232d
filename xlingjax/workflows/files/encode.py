"""What a trained encoder does with a user's files: sentence vectors and word alignments."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import langcodes
import numpy as np

from xlingjax.data.held_out_pairs import aligned_lines, lines_of
from xlingjax.data.languages import known_as
from xlingjax.data.text.files import words_of, write_as_named
from xlingjax.data.text.other_formats import refuse_no_lines
from xlingjax.errors import UserError
from xlingjax.evaluation import alignment
from xlingjax.inference.encode import longest_row, require_room
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.inference.sentences import Sentences
from xlingjax.runtime.files import replaced, require_apart, require_file
from xlingjax.runtime.progress import Progress
from xlingjax.training.run_record import read_result, run_and_checkpoint

LINES = 1 << 13  # whose vectors are in memory at a time
PAIRS = 1 << 11  # of which the states of all words are in memory at a time


def encode(
    run: str,
    source: str,
    language: str,
    output: str,
    layer: int | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
) -> str:
    """Writes float32 [lines, D] of the lines of a file; a blank line gives a row of zeros. layer,
    pooling, prefix: see `chosen`, None: not given. Returns what was done."""
    # Before .npy is added, which would make another name of a device's.
    require_file(output)
    # Added and not put in place of a suffix: vectors.de and vectors.en are two files.
    if not output.endswith((".npy", os.sep)):
        output = f"{output}.npy"
    require_apart(output, {"--input": source})
    refuse_no_lines(source)
    lines = lines_of(source)
    require_sentence(source, any(lines))
    trained = open_run(run)
    language, note = language_of(trained, language)
    way, in_words = chosen(trained, run, layer, pooling, prefix)
    shape = (len(lines), trained.width)
    cut: list[int] = []
    parts = vectors_in_parts(trained, lines, language, way, cut)
    path = Path(output)
    with writing(path), replaced(path) as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        # Part by part: memory need not hold them together.
        for part in parts:
            file.write(part.tobytes())
    summary = [f"{path}: {shape[0]} lines x {shape[1]}, {in_words}{note}"]
    if cut:
        summary.append(cut_of_file(source, trained, way, cut, len(lines)))
    return "\n".join(summary)


def cut_of_file(
    path: str, trained: TrainedRun, way: Sentences, rows: Sequence[int], count: int
) -> str:
    """A line on those of a file whose beginning alone was read, by rows from 0. count: of all."""
    return (
        f"{path}: {len(rows)} of {count} lines were cut to"
        f" {longest_row(trained.model, way.max_length)} tokens, the first of them line"
        f" {min(rows) + 1}"
    )


def require_sentence(path: str, has_some: bool) -> None:
    """Raises UserError where a file has no sentence, before a model is opened for it."""
    if not has_some:
        raise UserError(f"{path}: no sentence in it; give a text of one sentence a line")


def align(
    run: str,
    stem: str,
    languages: tuple[str, str],
    output: str,
    layer: int | None = None,
    method: str = "itermax",
) -> str:
    """Writes Pharaoh lines for two files of words, `stem.SRC` and `stem.TGT`. Where `stem.txt` has
    gold links, the error rate is given; they are read in the order of `languages`, but of a stem
    that ends in TGT-SRC in that one. Returns what was done."""
    sides = [f"{stem}.{language}" for language in languages]
    for read in (*sides, f"{stem}.txt"):
        require_apart(output, {"--stem": read})
    for side in sides:
        refuse_no_lines(side)
    lines = aligned_lines(*sides)
    pairs = [(words_of(first), words_of(second)) for first, second in lines]
    if not any(first and second for first, second in pairs):
        raise UserError(
            f"{sides[0]} and {sides[1]} have no line with words on both sides: no pairs to align"
        )
    gold = Path(f"{stem}.txt")
    # In held-out folders XX-en.txt has XX first.
    turned = f".{gold.stem}".endswith(f".{languages[1]}-{languages[0]}")
    right = None
    # Read before the model is opened, so that a fault of the file is told at once.
    if gold.is_file():
        right = alignment.read_links(gold, [pair[:: -1 if turned else 1] for pair in pairs])
    if right and turned:
        right = [{(j, i) for i, j in of_pair} for of_pair in right]
    trained = open_run(run)
    known = [language_of(trained, language) for language in languages]
    # Two thirds of the way up: where SimAlign found words best aligned (8 of 12).
    if layer is None:
        layer = max(1, round(trained.model.config.layers * 2 / 3))
    layer = known_layer(trained, layer)
    texts = []
    links: list[Any] = []
    for start in range(0, len(pairs), PAIRS):
        part = pairs[start : start + PAIRS]
        (alignments,) = alignment.align(trained, part, (known[0][0], known[1][0]), [layer])
        found = [one.links(method) for one in alignments]
        for one in found:
            texts.append(f"{alignment.pharaoh(one)}\n".encode())
        if right is not None:
            links += found
    path = Path(output)
    with writing(path):
        write_as_named(path, texts)
    notes = "".join(note for _, note in known)
    summary = [f"{path}: {len(pairs)} pairs, layer {layer}, {method}{notes}"]
    if right is not None:
        error_rate = alignment.error_rate(links, right)
        summary.append(f"alignment error rate against {gold}: {error_rate:.4f}")
    return "\n".join(summary)


def vectors_in_parts(
    trained: TrainedRun,
    lines: Sequence[str],
    language: str,
    way: Sentences,
    cut: list[int] | None = None,
) -> Iterator[np.ndarray]:
    """float32 [at most LINES, D] of the lines one after the other, of an empty line zeros. way: one
    of a layer; cut: gets the places, from 0, of the lines that were cut. Raises UserError where all
    are empty, or a vector is no numbers."""
    if not any(lines):
        raise UserError("no sentences: the file is empty")
    progress = Progress("encoding", f" of {sum(map(bool, lines)):,}")
    for start in range(0, len(lines), LINES):
        part = lines[start : start + LINES]
        vectors = np.zeros((len(part), trained.width), np.float32)
        # An empty sentence has special tokens alone, whose mean says nothing of a text.
        full = [i for i, line in enumerate(part) if line]
        if full:
            cut_here: list[int] = []
            texts = [part[i] for i in full]
            how = way.pooling, way.prefix, (way.layer,), cut_here, progress.add
            (vectors[full],) = trained.embed(texts, language, *how)
            if cut is not None:
                cut += [start + full[i] for i in cut_here]
        if not np.isfinite(vectors).all():
            raise UserError(
                "vectors with NaN or infinities: the run's training diverged, or its weights are"
                " damaged; name another checkpoint, RUN@STEP"
            )
        yield vectors


def language_of(trained: TrainedRun, language: str) -> tuple[str, str]:
    """(the run's code for a language, "" or a note that the run does not know it). Raises UserError
    for a word that is no code: whatever it stands for would be read as the run's first language."""
    known = known_as(language, trained.languages)
    if known is not None:
        return known, ""
    # A model that embeds languages has its own error.
    if trained.model.config.has_languages:
        return language, ""
    if not langcodes.tag_is_valid(language):
        raise UserError(
            f"language {language!r} is neither one of the run's"
            f" ({', '.join(trained.languages)}) nor a code, like de"
        )
    if not trained.languages:
        return language, ""
    return language, (
        f"; {language} is none of the run's languages ({', '.join(trained.languages)}), and the"
        " model reads all as one"
    )


def known_layer(trained: TrainedRun, layer: int) -> int:
    layers = trained.model.config.layers
    if not -layers - 1 <= layer <= layers:
        raise UserError(f"--layer {layer}: this model has layers 0 (the embeddings) to {layers}")
    return layer % (layers + 1)


def chosen(
    trained: TrainedRun, run: str, layer: int | None, pooling: str | None, prefix: str | None
) -> tuple[Sentences, str]:
    """How sentence vectors are made, and words for it: what was given, else the run's own way; of a
    run that has none the mean, at the layer that its retrieval is measured at, else the last."""
    own = trained.sentences
    if layer is not None:
        layer = known_layer(trained, layer)
    try:
        way = (own or Sentences()).of(layer, pooling, prefix)
    except UserError as error:
        raise UserError(f"{run}: {error}") from None
    require_room(way.prefix, trained.vocabulary, longest_row(trained.model, way.max_length))
    why = " (the run's own)" if own and way == own else ""
    layer = way.layer
    if layer is None and own is None:
        evaluations = read_result(run_and_checkpoint(run)[0]).get("evaluations", {})
        # An imported model has no result, and a run without held-out pairs no retrieval in it.
        layer = evaluations.get("retrieval", {}).get("retrieval_layer")
        why = " (that of the run's retrieval)"
    if layer is None:
        layer = trained.model.config.layers
        why = why if own else " (the last)"
    return dataclasses.replace(way, layer=layer), f"layer {layer}{why}, {way.said()}"


@contextlib.contextmanager
def writing(path: Path, remedy: str = "choose another --to") -> Iterator[None]:
    """While `path` is written, in a folder that is made. Raises UserError where it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {remedy}") from None

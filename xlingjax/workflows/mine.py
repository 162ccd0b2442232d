"""`xlingjax mine`: which lines of two files translate each other, as a table that `PARALLEL` reads.

`.STEM.SRC-TGT/` beside the table has `made.json`, what the table was made with, and of large files
the vectors of each side in shards. The dot hides it from a pattern for the tables.
"""

import dataclasses
import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.data.other_formats import refuse_no_lines
from xlingjax.data.sources import pair_table
from xlingjax.data.text_files import content_hash, read_lines
from xlingjax.inference import mine as mining
from xlingjax.inference.encode import longest_row, token_ids
from xlingjax.inference.nearest import (
    LARGEST_EXACT,
    Rows,
    Search,
    chosen_search,
)
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.inference.sentences import Sentences
from xlingjax.inference.vector_files import (
    ShardedLines,
    ShardedRows,
    read_shards,
    write_shards,
)
from xlingjax.inference.wrong_partners import first_of_equal_keys
from xlingjax.runtime.files import require_apart, write_json
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.workflows.encode import (
    cell,
    chosen,
    cut_of_file,
    language_of,
    require_sentence,
    sentence_vectors,
    write,
)

IN_MEMORY = 1 << 28
"""Bytes of the vectors of both sides up to which they are not written to disk."""
BYTES = 4
"""Of a float32."""


def mine(
    run: str,
    files: tuple[str, str],
    languages: tuple[str, str],
    output: str,
    *,
    layer: int | None,
    pooling: str | None = None,
    prefix: str | None = None,
    k: int,
    margin: str,
    threshold: float | None,
    search: str | None = None,
    lists: int | None = None,
    probes: int | None = None,
    seed: int = 0,
) -> str:
    """Writes the pairs as `OUTPUT.SRC-TGT.tsv`, columns SRC, TGT and score, best first: a file that
    PARALLEL reads. layer, pooling, prefix: see `chosen`, None: not given; search, lists, probes,
    seed: see `nearest.chosen_search`. Returns what was done."""
    # Checked before the sentences are encoded.
    table = pair_table(output, languages)
    for path in files:
        require_apart(table, {"--files": path})
        refuse_no_lines(path)
    # Equal lines would be each other's rivals in the margin, and be mined several times.
    kept = [distinct(_lines(path)) for path in files]
    counts = [int(mask.sum()) for mask in kept]
    for path, count in zip(files, counts, strict=True):
        require_sentence(path, count > 0)
    sizes = (counts[0], counts[1])
    way_to_search = chosen_search(search, lists, probes, seed, sizes)
    trained = open_run(run)
    found = [language_of(trained, code) for code in languages]
    known = [code for code, _ in found]
    notes = "".join(note for _, note in found)
    way, in_words = chosen(trained, run, layer, pooling, prefix)
    beside = table.with_name(f".{table.stem}")
    settings = {"k": k, "margin": margin, "threshold": threshold}
    lines: list[Any] = []
    vectors: list[Rows] = []
    cuts: list[list[int]] = []
    made_of = ""
    size = sum(sizes) * trained.model.config.dim * BYTES
    if (
        way_to_search.exact
        and sizes[0] * sizes[1] <= LARGEST_EXACT
        and size <= IN_MEMORY
    ):
        for path, mask, language in zip(files, kept, known, strict=True):
            side = [*itertools.compress(_lines(path), mask)]
            lines.append(side)
            cut: list[int] = []
            vectors.append(sentence_vectors(trained, side, language, way, cut))
            cuts.append(cut)
        mined = mining.mine(*vectors, **settings)
    else:
        for path, mask, language in zip(files, kept, known, strict=True):
            side, rows = _on_disk(trained, path, mask, language, way, beside)
            lines.append(side)
            vectors.append(rows)
            # Apart, since vectors of an earlier start are not made again.
            cuts.append(_cut(trained, side, way))
        with tempfile.TemporaryDirectory(dir=beside) as scratch:
            mined = mining.mine(
                *vectors,
                **settings,
                search=way_to_search,
                folder=Path(scratch),
            )
        made_of = f"; vectors kept in {beside}"
    write(table, lambda: _write_table(table, languages, lines, mined))
    hashes = {path: content_hash(path) for path in files}
    record = {
        "run": run,
        "checkpoint": str(find_checkpoint(run)),
        "files": hashes,
        "languages": list(languages),
        "sentences": dataclasses.asdict(way),
        **settings,
        "search": _searches(way_to_search, sizes),
        "lines": counts,
        "pairs": len(mined.scores),
    }

    def write_record() -> None:
        beside.mkdir(parents=True, exist_ok=True)
        write_json(beside / "made.json", record)

    write(beside, write_record)
    summary = [
        f"{table}: {len(mined.scores)} pairs of {counts[0]} and {counts[1]} different lines,"
        f" {in_words}, {way_to_search.said(sizes[1])}{made_of}{notes}",
    ]
    for path, mask, cut, count in zip(files, kept, cuts, counts, strict=True):
        if cut:
            rows = np.flatnonzero(mask)[cut].tolist()
            summary.append(cut_of_file(path, trained, way, rows, count))
    return "\n".join(summary)


def _cut(
    trained: TrainedRun,
    lines: Iterable[str],
    way: Sentences,
) -> list[int]:
    """The places, from 0, of the lines that are longer than what is read of them."""
    longest = longest_row(trained.model, way.max_length)
    rows: list[int] = []
    for row, line in enumerate(lines):
        cut: list[int] = []
        token_ids([way.prefix + line], trained.vocabulary, longest, cut)
        if cut:
            rows.append(row)
    return rows


def _lines(path: str) -> Iterator[str]:
    return (line.strip() for _, line in read_lines(path))


def distinct(lines: Iterable[str]) -> np.ndarray:
    """bool [S]: whether a line is the first of equal ones, and not blank."""
    blank = bytearray()

    def noted() -> Iterator[str]:
        for line in lines:
            blank.append(not line)
            yield line

    first = first_of_equal_keys(noted())
    return (first == np.arange(len(first))) & ~np.frombuffer(blank, bool)


def _on_disk(
    trained: TrainedRun,
    path: str,
    mask: np.ndarray,
    language: str,
    way: Sentences,
    beside: Path,
) -> tuple[ShardedLines, ShardedRows]:
    """The kept lines of a file and their vectors, encoded now or by an earlier start."""
    identity = [
        content_hash(path),
        _of_weights(trained),
        trained.vocabulary.sha256,
    ]
    made_with = json.dumps([*identity, language, dataclasses.asdict(way)])
    # By all that the vectors depend on: another run or layer has a folder of its own.
    mark = hashlib.sha256(made_with.encode()).hexdigest()[:16]
    folder = beside / f"{language}-{mark}"
    found = read_shards(folder, [language])
    if found is None:
        found = write_shards(
            folder,
            [language],
            itertools.compress(_lines(path), mask),
            lambda lines: [sentence_vectors(trained, lines, language, way)],
            lambda line: [line],
            print,
        )
    return found[0]


def _of_weights(trained: TrainedRun) -> str:
    """sha256 (hex) of the parameters."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(trained.params):
        digest.update(np.ascontiguousarray(leaf).view(np.uint8))
    return digest.hexdigest()


def _searches(search: Search, sizes: tuple[int, int]) -> dict[str, Any]:
    """How the lines of the second file were searched, and those of the first."""
    return {
        "forward": search.record(sizes[1]),
        "backward": search.record(sizes[0]),
    }


def _write_table(
    table: Path,
    languages: tuple[str, str],
    lines: list[Any],
    mined: mining.Mined,
) -> None:
    # Whole or not at all: a table that was cut short would be trained on as it is.
    partial = table.with_name(f".{table.name}.partial")
    with open(partial, "w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join((*languages, "score")) + "\n")
        rows = zip(mined.source, mined.target, mined.scores, strict=True)
        for i, j, score in rows:
            texts = f"{cell(lines[0][i])}\t{cell(lines[1][j])}"
            file.write(f"{texts}\t{score:.4f}\n")
    partial.replace(table)

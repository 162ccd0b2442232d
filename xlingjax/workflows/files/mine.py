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

from xlingjax.data.text.files import content_hash, read_lines
from xlingjax.data.text.other_formats import refuse_no_lines
from xlingjax.data.text.sources import pair_table
from xlingjax.inference import mine as mining
from xlingjax.inference.nearest import LARGEST_EXACT, Rows, Search, chosen_search
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.inference.sentences import Sentences
from xlingjax.inference.vector_files import (
    ShardedLines,
    ShardedRows,
    read_shards,
    shard_path,
    write_rows,
    write_shards,
)
from xlingjax.inference.wrong_partners import first_of_equal_keys
from xlingjax.runtime.files import require_apart, write_json
from xlingjax.runtime.records import read_npy
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.workflows.files.encode import (
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
_FORMAT = 2
"""Of the files of vectors: 1 had not the lines that were cut."""


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
    cut: list[int]
    cuts: list[list[int]] = []
    made_of = ""
    size = sum(sizes) * trained.model.config.dim * BYTES
    if way_to_search.exact and sizes[0] * sizes[1] <= LARGEST_EXACT and size <= IN_MEMORY:
        for path, mask, language in zip(files, kept, known, strict=True):
            side = [*itertools.compress(_lines(path), mask)]
            lines.append(side)
            cut = []
            vectors.append(sentence_vectors(trained, side, language, way, cut))
            cuts.append(cut)
        mined = mining.mine(*vectors, **settings)
    else:
        for path, mask, language in zip(files, kept, known, strict=True):
            side, rows, cut = _on_disk(trained, path, mask, language, way, beside)
            lines.append(side)
            vectors.append(rows)
            cuts.append(cut)
        with tempfile.TemporaryDirectory(dir=beside) as scratch:
            mined = mining.mine(*vectors, **settings, search=way_to_search, folder=Path(scratch))
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
        f" {in_words}, {way_to_search.said(sizes[1])}{made_of}{notes}"
    ]
    for path, mask, cut, count in zip(files, kept, cuts, counts, strict=True):
        if cut:
            rows = np.flatnonzero(mask)[cut].tolist()
            summary.append(cut_of_file(path, trained, way, rows, count))
    return "\n".join(summary)


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
    trained: TrainedRun, path: str, mask: np.ndarray, language: str, way: Sentences, beside: Path
) -> tuple[ShardedLines, ShardedRows, list[int]]:
    """The kept lines of a file, their vectors, encoded now or by an earlier start, and the places,
    from 0, of the lines that were cut to the model's length."""
    identity = [_FORMAT, content_hash(path), _of_weights(trained), trained.vocabulary.sha256]
    made_with = json.dumps([*identity, language, dataclasses.asdict(way)])
    # By all that the vectors depend on: another run or layer has a folder of its own.
    mark = hashlib.sha256(made_with.encode()).hexdigest()[:16]
    folder = beside / f"{language}-{mark}"

    def encode(lines: list[str], number: int) -> list[np.ndarray]:
        cut: list[int] = []
        vectors = sentence_vectors(trained, lines, language, way, cut)
        # Before the vectors, which a later start takes for a whole shard.
        write_rows(_cut_path(folder, language, number), np.array(cut, int))
        return [vectors]

    found = read_shards(folder, [language])
    if found is None:
        found = write_shards(
            folder,
            [language],
            itertools.compress(_lines(path), mask),
            encode,
            lambda line: [line],
            print,
        )
    [(side, rows)] = found
    remedy = f"remove {folder}: its vectors are made anew"
    cut = []
    for number in range(len(rows.paths)):
        of_shard = read_npy(_cut_path(folder, language, number), remedy)
        cut += (number * rows.rows + of_shard).tolist()
    return side, rows, cut


def _cut_path(folder: Path, language: str, number: int) -> Path:
    return shard_path(folder, f"{language}-cut", number, "npy")


def _of_weights(trained: TrainedRun) -> str:
    """sha256 (hex) of the parameters."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(trained.params):
        digest.update(np.ascontiguousarray(leaf).view(np.uint8))
    return digest.hexdigest()


def _searches(search: Search, sizes: tuple[int, int]) -> dict[str, Any]:
    """How the lines of the second file were searched, and those of the first."""
    return {"forward": search.record(sizes[1]), "backward": search.record(sizes[0])}


def _write_table(
    table: Path, languages: tuple[str, str], lines: list[Any], mined: mining.Mined
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

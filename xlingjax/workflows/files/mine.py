"""`xlingjax mine`: which lines of two files translate each other, as a table that `PARALLEL` reads.

`.STEM.SRC-TGT/` beside the table has `made.json`, what the table was made with, and the vectors of
each side in shards. The dot hides it from a pattern for the tables.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.text.files import content_hash, read_lines
from xlingjax.data.text.other_formats import refuse_no_lines
from xlingjax.data.text.sources import pair_table
from xlingjax.inference import mine as mining
from xlingjax.inference import vector_files
from xlingjax.inference.nearest import chosen_search
from xlingjax.inference.run import TrainedRun, open_run, parameters_hash
from xlingjax.inference.sentences import Sentences
from xlingjax.inference.wrong_partners import first_of_equal_keys
from xlingjax.runtime.files import replaced, require_apart, write_json
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.workflows.files.encode import (
    chosen,
    cut_of_file,
    language_of,
    require_sentence,
    vectors_in_parts,
    writing,
)

IN_MEMORY = 1 << 28  # bytes of the vectors of both sides up to which they are searched in memory


def mine(
    run: str,
    files: Sequence[str],
    languages: tuple[str, str],
    output: str,
    *,
    layer: int | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    k: int = 4,
    margin: str = "ratio",
    threshold: float | None = None,
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
    how = chosen_search(search, lists, probes, seed, (counts[0], counts[1]))
    trained = open_run(run)
    codes, notes = zip(*(language_of(trained, code) for code in languages), strict=True)
    way, in_words = chosen(trained, run, layer, pooling, prefix)
    beside = table.with_name(f".{table.stem}")
    lines = []
    vectors = []
    said = []
    for path, mask, language in zip(files, kept, codes, strict=True):
        of_side, rows, cut = _encoded(trained, path, mask, language, way, beside)
        lines.append(of_side)
        vectors.append(rows)
        if cut:
            numbers = np.flatnonzero(mask)[cut].tolist()
            said.append(cut_of_file(path, trained, way, numbers, len(rows)))
    settings = {"k": k, "margin": margin, "threshold": threshold}
    folder = beside
    if sum(counts) * trained.width * 4 <= IN_MEMORY:
        vectors = [rows[:] for rows in vectors]
        folder = None
    mined = mining.mine(*vectors, **settings, search=how, folder=folder)
    # Whole or not at all: a table that was cut short would be trained on as it is.
    with writing(table), replaced(table) as file:
        file.write("\t".join((*languages, "score")).encode() + b"\n")
        for i, j, score in zip(mined.source, mined.target, mined.scores, strict=True):
            # Without what would end a field or a line of a table.
            first, second = (" ".join(text.split()) for text in (lines[0][i], lines[1][j]))
            file.write(f"{first}\t{second}\t{score:.4f}\n".encode())
        record = {
            "run": run,
            "checkpoint": str(find_checkpoint(run)),
            "files": {path: content_hash(path) for path in files},
            "languages": list(languages),
            "sentences": dataclasses.asdict(way),
            **settings,
            # How the lines of the second file were searched, and those of the first.
            "search": {"forward": how.record(counts[1]), "backward": how.record(counts[0])},
            "lines": counts,
            "pairs": len(mined.scores),
        }
        write_json(beside / "made.json", record)
    summary = (
        f"{table}: {len(mined.scores)} pairs of {counts[0]} and {counts[1]} different lines,"
        f" {in_words}, {how.said(counts[1])}; vectors kept in {beside}{''.join(notes)}"
    )
    return "\n".join([summary, *said])


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


def _encoded(
    trained: TrainedRun, path: str, mask: np.ndarray, language: str, way: Sentences, beside: Path
) -> tuple[Any, Any, list[int]]:
    """The kept lines of a file, their vectors, encoded now or by an earlier start, and the places,
    from 0, of the lines that were cut to the model's length now."""
    weights = parameters_hash(trained.params)
    identity = [content_hash(path), weights, trained.vocabulary.sha256, language]
    # By all that the vectors depend on: another run or layer has a folder of its own.
    made_with = json.dumps([*identity, dataclasses.asdict(way)])
    mark = hashlib.sha256(made_with.encode()).hexdigest()[:16]
    cut = []

    def encode(lines: list[str], number: int) -> list[np.ndarray]:
        places = []
        vectors = np.concatenate([*vectors_in_parts(trained, lines, language, way, places)])
        cut.extend(number * vector_files.ROWS + place for place in places)
        return [vectors]

    [(side, rows)] = vector_files.write_shards(
        beside / f"{language}-{mark}",
        [language],
        itertools.compress(_lines(path), mask),
        encode,
        lambda line: [line],
        print,
    )
    return side, rows, cut

"""What a trained encoder does with a user's files: sentence vectors, word alignments, mined
pairs."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from xlingjax.data.held_out_pairs import aligned_lines, lines_of
from xlingjax.data.sources import pair_table
from xlingjax.errors import UserError
from xlingjax.evaluation import alignment
from xlingjax.inference import mine as mining
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.inference.sentences import Sentences
from xlingjax.training.run_record import run_and_checkpoint


def encode(
    run: str,
    source: str,
    language: str,
    output: str,
    *,
    layer: int | None,
    pooling: str | None = None,
    prefix: str | None = None,
) -> str:
    """Writes float32 [lines, D] of the lines of a file; a blank line gives a row of zeros. layer,
    pooling, prefix:
    see `chosen`, None: not asked for. Returns what was done."""
    trained = open_run(run)
    way, told = chosen(trained, run, layer, pooling, prefix)
    vectors = sentence_vectors(trained, lines_of(source), language, way)
    path = Path(
        output if output.endswith(".npy") else f"{output}.npy"
    )  # vectors.de and vectors.en are two files
    write(path, lambda: np.save(path, vectors))
    return f"{path}: {vectors.shape[0]} lines x {vectors.shape[1]}, {told}"


def align(
    run: str,
    stem: str,
    languages: tuple[str, str],
    output: str,
    *,
    layer: int | None,
    method: str,
    picture: int,
):
    """Writes Pharaoh lines for two files of words, `stem.SRC` and `stem.TGT`, and a picture of pair
    number `picture` (from 1; 0: none). Where `stem.txt` holds gold links, their error rate is told;
    they are read in the order of `languages`, but of a stem that ends in TGT-SRC in that one.
    Returns what was done."""
    lines = aligned_lines(*(f"{stem}.{language}" for language in languages))
    pairs = [(first.split(), second.split()) for first, second in lines]
    if picture and not 1 <= picture <= len(pairs):
        raise UserError(f"--picture {picture}: there are pairs 1 to {len(pairs)}")
    gold = Path(f"{stem}.txt")
    turned = f".{gold.stem}".endswith(
        f".{languages[1]}-{languages[0]}"
    )  # as in held-out folders: XX-en.txt, XX first
    right = (
        alignment.read_links(gold, [pair[::-1] for pair in pairs] if turned else pairs)
        if gold.is_file()
        else None
    )
    trained = open_run(run)
    layer = middle_layer(trained) if layer is None else known_layer(trained, layer)
    found = alignment.align(
        trained.model,
        trained.params,
        pairs,
        languages,
        trained.languages,
        trained.vocabulary,
        layers=[layer],
    )[0]
    links = [one.links(method) for one in found]
    path = Path(output)
    write(
        path,
        lambda: path.write_text(
            "".join(f"{alignment.pharaoh(one)}\n" for one in links), encoding="utf-8"
        ),
    )
    told = [f"{path}: {len(links)} pairs, layer {layer}, {method}"]
    if right is not None:
        right = [{(j, i) for i, j in one} for one in right] if turned else right
        told.append(
            f"alignment error rate against {gold}: {alignment.error_rate(links, right):.4f}"
        )
    if picture:
        from xlingjax.report import plots
        from xlingjax.report.alignment import picture as draw

        image = Path(f"{path}.png")
        figure = draw(found[picture - 1], pairs[picture - 1], links[picture - 1])
        write(image, lambda: plots.save(figure, image))
        told.append(f"{image}: pair {picture}")
    return "\n".join(told)


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
) -> str:
    """Writes the pairs found as `OUTPUT.SRC-TGT.tsv`, columns SRC, TGT and score, best first: a
    file that PARALLEL reads. layer, pooling, prefix: see `chosen`, None: not asked for. Returns
    what was done."""
    table = pair_table(output, languages)
    trained = open_run(run)
    way, told = chosen(trained, run, layer, pooling, prefix)
    lines = [[line for _, line in mining.unique(lines_of(path))] for path in files]
    vectors = [
        sentence_vectors(trained, side, language, way)
        for side, language in zip(lines, languages, strict=True)
    ]
    found = mining.mine(*vectors, k=k, margin=margin, threshold=threshold)
    rows = ["\t".join((*languages, "score"))]
    rows += [
        f"{cell(lines[0][i])}\t{cell(lines[1][j])}\t{score:.4f}"
        for i, j, score in zip(found.source, found.target, found.scores, strict=True)
    ]
    write(table, lambda: table.write_text("\n".join(rows) + "\n", encoding="utf-8"))
    return (
        f"{table}: {len(found.scores)} pairs of {len(lines[0])} and {len(lines[1])} different"
        f" lines, {told}"
    )


def cell(text: str) -> str:
    return " ".join(text.split())


def sentence_vectors(
    trained: TrainedRun, lines: list[str], language: str, way: Sentences
) -> np.ndarray:
    """float32 [S, D], of an empty line zeros. way: one of a layer."""
    full = [i for i, line in enumerate(lines) if line]
    if not full:
        raise UserError("no sentences: the file is empty")
    vectors = trained.embed(
        [lines[i] for i in full], language, way.pooling, way.prefix, (way.layer,)
    )[0]
    result = np.zeros((len(lines), vectors.shape[1]), np.float32)
    result[full] = vectors
    return result


def known_layer(trained: TrainedRun, layer: int) -> int:
    layers = trained.model.config.layers
    if not -layers - 1 <= layer <= layers:
        raise UserError(
            f"--layer {layer}: this model has layers 0 (the embeddings) to {layers}"
        )
    return layer % (layers + 1)


def middle_layer(trained: TrainedRun) -> int:
    """Two thirds of the way up: where SimAlign found words best aligned (8 of 12)."""
    return max(1, round(trained.model.config.layers * 2 / 3))


def chosen(
    trained: TrainedRun,
    run: str,
    layer: int | None,
    pooling: str | None,
    prefix: str | None,
) -> tuple[Sentences, str]:
    """How sentence vectors are made, and words for it: what was asked for, else the run's own way;
    of a run that has none the mean at `chosen_layer`."""
    own = trained.sentences
    layer = None if layer is None else known_layer(trained, layer)
    try:
        way = (own or Sentences()).of(layer, pooling, prefix)
    except UserError as error:
        raise UserError(f"{run}: {error}") from None
    if own is None:
        layer, told = chosen_layer(trained, run, layer)
    else:
        layer = trained.model.config.layers if way.layer is None else way.layer
        told = f"layer {layer}" + (" (the run's own)" if way == own else "")
    return dataclasses.replace(way, layer=layer), f"{told}, {way.said()}"


def chosen_layer(trained: TrainedRun, run: str, layer: int | None) -> tuple[int, str]:
    """The layer asked for, else the one at which the run's own retrieval was best, else the last;
    and words for it."""
    if layer is not None:
        return layer, f"layer {layer}"
    workdir, _ = run_and_checkpoint(run)
    try:
        evaluations = json.loads((workdir / "result.json").read_text(encoding="utf-8"))[
            "evaluations"
        ]
        best = int(evaluations["retrieval"]["retrieval_best_layer"])
    except (OSError, ValueError, KeyError, TypeError):
        last = trained.model.config.layers
        return (
            last,
            (
                f"layer {last} (the last: {run} has no retrieval in a result.json to choose by; see"
                " --layer)"
            ),
        )
    return best, f"layer {best} (best of the run's retrieval)"


def write(path: Path, do) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        do()
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; choose another --output"
        ) from None

"""The pictures of a report: courses over training, retrieval and alignment by layer, attention,
masks. Each takes runs or the values of an evaluation and gives figures, none where nothing is to be
drawn."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.evaluation.alignment import METHODS
from xlingjax.evaluation.floors import FLOORS
from xlingjax.evaluation.retrieval import best_layer
from xlingjax.report import drawing
from xlingjax.report.drawing import Grid, Panel
from xlingjax.report.run import Run

# fmt: off
OF_PIECES = (
    "mlm", "tlm", "clm", "clwr", "cl_mlm", "camlm", "btmlm", "translation", "back_translation",
    "masked_words", "masked_translation",
)
# fmt: on
"""Objectives each of whose predictions is one of the vocabulary's pieces, so that a uniform guess
has a loss."""
LAYERS = 5
"""Of a deep model so many are drawn, and the best."""
KINDS = {"raw": "raw cosine", "centred": "language means removed"}
MASK = (2.3, 2.4)
"""Inches of a mask in a page."""
MASK_COLOUR = (0.20, 0.51, 0.74, 1.0)
"""Seen on white and on black."""


# ---- over training -------------------------------------------------------------------------------


def _axis(runs: Mapping[str, Run]) -> str:
    """Runs that are compared may have batches of other sizes: they are drawn over tokens."""
    if len(runs) > 1:
        return "million tokens"
    return "step"


def _along(runs: Mapping[str, Run], run: Run, steps: Sequence[int]) -> Sequence[float]:
    if len(runs) > 1:
        return (run.tokens_at(steps) / 1e6).tolist()
    return steps


def losses(runs: Mapping[str, Run]) -> list[Any]:
    """Training loss, a panel per objective and a curve per run."""
    panels = []
    pieces = next(iter(runs.values())).vocabulary_size
    for objective in dict.fromkeys(name for run in runs.values() for name in run.objectives):
        title = f"{objective.upper()}: training loss (nats)"
        if len(title) > drawing.TITLE:
            title = title.replace(": ", ":\n")
        panel = Panel(title, _axis(runs))
        for name, run in runs.items():
            lines = run.lines(objective)
            steps = [line["step"] for line in lines]
            panel.curves[name] = (_along(runs, run, steps), [line.get("loss") for line in lines])
        if pieces and objective in OF_PIECES:
            panel.levels["uniform"] = float(np.log(pieces))
        panels.append(panel)
    return drawing.draw(panels)


def chance(values: Mapping[str, Any]) -> float:
    """Drawn at random, one of n sentences is the translation: mean over languages, 0..1."""
    return float(np.mean([1 / n for n in values["pairs"].values()]))


def _levels(run: Run, values: Mapping[str, Any]) -> dict[str, float]:
    """In percent, what chance and simple models reach."""
    levels = {"chance": 100 * chance(values)}
    means = (run.last("floors") or {}).get("mean", {})
    for floor, name in FLOORS.items():
        if floor in means:
            levels[name] = 100 * means[floor]
    return levels


def retrieval_by_layer(run: Run) -> list[Any]:
    """Mean over languages over training, a curve per layer: raw and centred beside each other, from
    two evaluations on."""
    evaluated = run.first_evaluated("retrieval")
    if len(evaluated) < 2:
        return []
    steps = [step for step, _ in evaluated]
    _, last = evaluated[-1]
    # Of several poolings the first, which the plain figures are of.
    pooling = next(iter(last["by_layer"]))
    layers = list(last["by_layer"][pooling])
    spaced = np.linspace(0, len(layers) - 1, min(len(layers), LAYERS)).round().astype(int)
    panels = []
    for kind, title in KINDS.items():
        score = f"{kind}_en_to_xx"
        drawn = {layers[place] for place in spaced}
        drawn.add(best_layer(last["by_layer"][pooling], score))
        panel = Panel(f"{title}: en → xx (%)", percent=True, levels=_levels(run, last))
        for layer in filter(drawn.__contains__, layers):
            of_layer = [values["by_layer"][pooling][layer][score] for _, values in evaluated]
            panel.curves[layer_name(layer)] = (steps, [100 * value for value in of_layer])
        panels.append(panel)
    return drawing.draw(panels)


def retrieval_runs(runs: Mapping[str, Run]) -> list[Any]:
    """Mean over languages at each evaluation's best layer, a curve per run, from two runs on."""
    evaluated = {name: run.first_evaluated("retrieval") for name, run in runs.items()}
    evaluated = {name: evaluations for name, evaluations in evaluated.items() if evaluations}
    if len(evaluated) < 2:
        return []
    first = next(iter(evaluated))
    _, last = evaluated[first][-1]
    panels = []
    for kind, title in KINDS.items():
        key = {"raw": "retrieval_mean", "centred": "retrieval_mean_centred"}[kind]
        panel = Panel(f"{title}: en → xx (%)", _axis(runs), True, levels=_levels(runs[first], last))
        for name, evaluations in evaluated.items():
            at = _along(runs, runs[name], [step for step, _ in evaluations])
            panel.curves[name] = (at, [100 * values[key] for _, values in evaluations])
        panels.append(panel)
    return drawing.draw(panels)


def generated(runs: Mapping[str, Run]) -> list[Any]:
    """BLEU by direction, a curve per run that was evaluated twice."""
    panels: dict[str, Panel] = {}
    for name, run in runs.items():
        evaluations = run.first_evaluated("generation")
        if len(evaluations) < 2:
            continue
        at = _along(runs, run, [step for step, _ in evaluations])
        _, last = evaluations[-1]
        for direction in last["bleu"]:
            panel = panels.setdefault(direction, Panel(f"{direction}: BLEU", _axis(runs)))
            panel.curves[name] = (at, [values["bleu"].get(direction) for _, values in evaluations])
    return drawing.draw(list(panels.values()))


# ---- by layer ------------------------------------------------------------------------------------


def layer_name(layer: str) -> str:
    """Layer 0 is what the embeddings give."""
    if layer == "0":
        return "embeddings"
    return f"layer {layer}"


def _by_layer(title: str, table: Mapping[str, Any], layers: Iterable[str], score: str) -> Grid:
    """Language by layer, in percent: from 0 to 100 in every run, so that colours compare."""
    layers = list(layers)
    rows = []
    for language, by_layer in table.items():
        rows.append((language, [100 * by_layer[layer][score] for layer in layers]))
    return Grid(title, ["language", *("emb" if layer == "0" else layer for layer in layers)], rows)


def retrieval_grids(values: Mapping[str, Any]) -> list[Grid]:
    """Language by layer, raw and centred."""
    pooling = next(iter(values["by_language"]))
    layers = values["by_layer"][pooling]
    grids = []
    for kind, title in KINDS.items():
        score = f"{kind}_en_to_xx"
        # The same choice as the evaluator's, whose figures stand beside.
        best = layer_name(best_layer(layers, score))
        title = f"{title}, by layer: en → xx (%); best: {best}"
        grids.append(_by_layer(title, values["by_language"][pooling], layers, score))
    return grids


def alignment_grids(values: Mapping[str, Any]) -> list[Grid]:
    """Alignment error rate, language by layer."""
    grids = []
    for method in METHODS:
        title = f"{method}, by layer: error rate (%), 0 is best"
        grids.append(_by_layer(title, values["by_language"], values["by_layer"], method))
    return grids


def similarity_grid(values: Mapping[str, Any]) -> Grid:
    """Cosine of the languages' mean vectors."""
    names = values["similarity"]["languages"]
    cosines = values["similarity"]["cosine"]
    # From the lowest: cosines of one model lie close together, and from 0 all would look alike.
    low = min(map(min, cosines))
    title = f"layer {values['similarity']['layer']}"
    return Grid(title, ["", *names], list(zip(names, cosines, strict=True)), "{:.2f}", low, 1.0)


def save_pictures(runs: Mapping[str, Run], folder: Path) -> list[Path]:
    """The report's figures as PNG files in `folder`; the first run is the report's. Returns the
    paths."""
    folder.mkdir(parents=True, exist_ok=True)
    run = next(iter(runs.values()))
    figures = {
        "losses": losses(runs),
        "retrieval_by_layer": retrieval_by_layer(run),
        "retrieval_runs": retrieval_runs(runs),
        "bleu": generated(runs),
    }
    values = run.last("retrieval")
    if values:
        figures["retrieval_layers"] = [
            figure for grid in retrieval_grids(values) for figure in drawing.grid(grid)
        ]
        figures["similarity"] = drawing.grid(similarity_grid(values))
    written = []
    for name, figure in figures.items():
        if figure:
            path = folder / f"{name}.png"
            drawing.save(figure, path, dpi=150)
            written.append(path)
    return written


# ---- of a pair or a row --------------------------------------------------------------------------

ATTENTION_HEAD = ("text", "piece", "looks most at", "share", "of the other text")


def attention_title(of_one: Mapping[str, Any]) -> str:
    """ "de-en, cross-attention, layer 2, mean over heads" """
    words = ["-".join(of_one["languages"]), of_one["use"]]
    if of_one["layer"] is not None:
        words.append(f"layer {of_one['layer']}")
        head = "mean over heads"
        if of_one["head"] is not None:
            head = f"head {of_one['head']}"
        words.append(head)
    return ", ".join(words)


def attention_lines(of_one: Mapping[str, Any]) -> list[tuple[str, str, str, float, float]]:
    """`ATTENTION_HEAD` of each piece; the last is its share of all the other text's pieces."""
    pieces = of_one["pieces"]
    second = of_one["second"]
    lines = []
    for row, shares in enumerate(of_one["attention"]):
        is_second = row >= second
        most = int(np.argmax(shares))
        other = shares[:second] if is_second else shares[second:]
        # Shares are kept rounded, and may sum to a little more.
        of_other = round(min(sum(other), 1.0), 3)
        language = of_one["languages"][is_second]
        lines.append((language, pieces[row], pieces[most], round(shares[most], 3), of_other))
    return lines


def attention(of_one: Mapping[str, Any]) -> list[Any]:
    """Pieces down and across; colour: the share that the row's piece takes from the column's."""
    pieces = of_one["pieces"]
    title = attention_title(of_one)
    figures, axis = drawing.cells(of_one["attention"], pieces, pieces, title, "share", vmin=0)
    border = of_one["second"] - 0.5
    axis.axhline(border, color=drawing.SOFT, linewidth=0.8)
    axis.axvline(border, color=drawing.SOFT, linewidth=0.8)
    return figures


@drawing.styled
def recovery(sample: Mapping[str, Any]) -> list[Any]:
    """The attention of word recovery in one pair: words recovered down, those they are mixed from
    across, on the right what the model takes them for."""
    pieces = sample["pieces"]
    title = f"{sample['language']} from {sample['partner_language']}"
    figures, axis = drawing.cells(
        sample["attention"], pieces, sample["partner"], title, "share", 0.16, vmin=0
    )
    width, height = figures[0].get_size_inches()
    figures[0].set_size_inches(width + 0.08 * drawing.LABEL, height)
    # Level with the pieces, so that a guess stands in the row of the word that it is for.
    guesses = axis.secondary_yaxis("right")
    guesses.set_yticks(range(len(pieces)), drawing.piece_labels(sample["recovered"]))
    guesses.spines["right"].set_visible(False)
    guesses.tick_params(length=0)
    # Coloured one by one: an axis has one colour for all its labels.
    for label, guess, piece in zip(
        guesses.get_yticklabels(), sample["recovered"], pieces, strict=True
    ):
        label.set_color(drawing.COLOURS[2 if guess == piece else 1])
    return figures


@drawing.styled
def mask(use: str, seen_LL: np.ndarray, parts: Sequence[tuple[int, str]]) -> list[Any]:
    """Who sees whom, small. parts: (first token, language) of each side and example, where lines
    are drawn."""
    figures, (axis,) = drawing.panels(1, MASK)
    axis.grid(False)
    # Transparent where nothing is seen, so that it is the page's own colour.
    picture = np.zeros((*seen_LL.shape, 4))
    picture[seen_LL] = MASK_COLOUR
    axis.imshow(picture, interpolation="nearest")
    starts = [start - 0.5 for start, _ in parts]
    for start in starts[1:]:
        axis.axhline(start, color=drawing.SOFT, linewidth=0.8)
        axis.axvline(start, color=drawing.SOFT, linewidth=0.8)
    axis.set_xticks([])
    axis.set_yticks([])
    # Named where they are few: a row packed with many examples has no room.
    if len(parts) <= 4:
        middles = [(a + b) / 2 for a, b in pairwise([*starts, len(seen_LL) - 0.5])]
        labels = drawing.piece_labels([language for _, language in parts])
        axis.set_xticks(middles, labels)
        axis.set_yticks(middles, labels)
    axis.tick_params(length=0)
    axis.set_title("\n".join(drawing.wrap(use, 30)))
    return figures

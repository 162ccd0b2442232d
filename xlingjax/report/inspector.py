"""What an objective really feeds the model: real batches, token by token, who may see whom, and the
realised mask rate; and what a recipe plans for the run.

The attention grids come from the objective's own mask predicates, the ones the attention backends
use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.loader import BatchSource, Peekable
from xlingjax.errors import UserError
from xlingjax.model.masks import Fields
from xlingjax.objectives.base import Objective
from xlingjax.report import html, negatives, plots, schedule, switched
from xlingjax.training.stages import stage_of

SHOWN_ON_TERMINAL = 40  # tokens of a row
Batch = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Token:
    """One column of a row. `target`: the piece to predict here, "" for none; `how`: "mask",
    "random", "kept" (the
    three fates of a chosen token), "next" (CLM, decoders), "recover" (word recovery), "pseudo" (a
    placeholder of BTMLM), "answer" (of span question answering) or ""."""

    column: int
    piece: str
    target: str
    how: str
    position: int
    language: str
    pack: int
    side: int


@dataclass(frozen=True)
class Row:
    """One row of a batch without its padding; `grids_LL`[use][q, k]: token q sees token k in that
    use of attention."""

    tokens: list[Token]
    grids_LL: dict[str, np.ndarray]
    label: int | None


def read_row(
    objective: Objective, batch: Batch, row: int, vocabulary, languages: Sequence[str]
) -> Row:
    """Row `row` of a batch of `objective`, in pieces."""
    one = {name: np.asarray(values[row : row + 1]) for name, values in batch.items()}
    targets, fates = _targets(objective, one, vocabulary)
    one |= {name: np.asarray(values) for name, values in objective.words(one).items()}
    used = np.flatnonzero(one["pack_ids"][0])
    if "decoder_ids" in objective.reads:
        used = used[
            np.argsort(one["pack_ids"][0, used], kind="stable")
        ]  # each example's target behind its source
    sides = one.get("sides", np.zeros_like(one["pack_ids"]))[0]

    def piece(token: int) -> str:
        """Of decoders, a row behind the vocabulary's is a language."""
        behind = token - vocabulary.size
        is_language = behind >= 0 and "decoder_ids" in objective.reads
        return f"[{languages[behind]}]" if is_language else vocabulary.pieces([token])[0]

    tokens = [
        Token(
            int(column),
            piece(int(one["input_ids"][0, column])),
            piece(targets[column]) if column in targets else "",
            fates.get(column, ""),
            int(one["position_ids"][0, column]),
            languages[int(one["language_ids"][0, column])],
            int(one["pack_ids"][0, column]),
            int(sides[column]),
        )
        for column in used.tolist()
    ]
    label = int(one["labels"][0]) if "labels" in one else None
    fields = Fields.from_batch(one)
    grids = {
        name: np.asarray(mask(fields, fields))[0][np.ix_(used, used)]
        for name, mask in objective.masks().items()
    }
    return Row(tokens, grids, label)


def _targets(objective: Objective, one: Batch, vocabulary) -> tuple[dict[int, int], dict[int, str]]:
    """({column: id to predict there}, {column: how the input shows it}) of a batch of one row."""
    ids, packs = one["input_ids"][0], one["pack_ids"][0]
    if "decoder_targets" in objective.reads:
        columns = np.flatnonzero(one["decoder_weights"][0]).tolist()
        targets = {ids.size + c: int(one["decoder_targets"][0, c]) for c in columns}
        hidden = _slots(with_slots(one), vocabulary)[1] if "run_offsets" in objective.reads else {}
        return targets, dict.fromkeys(targets, "next") | hidden
    if "target_weights" in objective.reads:
        columns = np.flatnonzero(one["target_weights"][0]).tolist()
        return {c: int(ids[c]) for c in columns}, dict.fromkeys(columns, "recover")
    if "masked_positions" in objective.reads:
        targets, how = _slots(one, vocabulary)
        if "pseudo_positions" in objective.reads:
            how |= dict.fromkeys(
                one["pseudo_positions"][0][one["pseudo_weights"][0] > 0].tolist(), "pseudo"
            )
        return targets, how
    if "start_positions" in objective.reads:
        columns = range(one["start_positions"][0], one["end_positions"][0] + 1)
        return {c: int(ids[c]) for c in columns}, dict.fromkeys(columns, "answer")
    if objective.attention().causal:
        columns = np.flatnonzero((packs[:-1] > 0) & (packs[:-1] == packs[1:])).tolist()
        return {c: int(ids[c + 1]) for c in columns}, dict.fromkeys(columns, "next")
    return {}, {}


def _slots(one: Batch, vocabulary) -> tuple[dict[int, int], dict[int, str]]:
    """({column: id hidden there}, {column: how the input shows it}) of the prediction slots of a
    batch of one row."""
    ids, slots = one["input_ids"][0], np.flatnonzero(one["masked_weights"][0])
    targets = {int(one["masked_positions"][0, s]): int(one["masked_targets"][0, s]) for s in slots}
    fate = {True: "kept", False: "random"}
    return targets, {
        c: "mask" if ids[c] == vocabulary.mask_id else fate[ids[c] == t] for c, t in targets.items()
    }


def with_slots(batch: Batch) -> Batch:
    """Where a decoder predicts what its source hides (xFNP): with prediction slots at these words
    of the source."""
    if "run_offsets" not in batch:
        return batch
    here_BTL = True
    for name, ahead in (("pack_ids", 0), ("position_ids", 1)):
        here_BTL &= batch[name][:, None] == batch[f"decoder_{name}"][..., None] + ahead
    slots = {f"masked_{name}": batch[f"decoder_{name}"] for name in ("targets", "weights")}
    return {**batch, **slots, "masked_positions": here_BTL.argmax(-1)}


def mask_statistics(
    batches: Sequence[Batch], vocabulary, languages: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Per language that occurs, and over "all": tokens, predictions, rate (predictions per token,
    padding apart), and what share of the predictions shows MASK, a random piece or the piece itself
    (`mask`, `random`, `kept`).

    A random piece that happens to be the true one counts as kept.
    """
    counts = np.zeros((len(languages), 4), np.int64)  # tokens, mask, random, kept
    for batch in map(with_slots, batches):
        language_BL = batch["language_ids"]
        np.add.at(counts[:, 0], language_BL[batch["pack_ids"] > 0], 1)
        used_BM = batch["masked_weights"] > 0
        shown_BM, of_BM = (
            np.take_along_axis(x, batch["masked_positions"], axis=1)
            for x in (batch["input_ids"], language_BL)
        )
        is_mask = shown_BM == vocabulary.mask_id
        is_kept = ~is_mask & (shown_BM == batch["masked_targets"])
        for column, kind in enumerate((is_mask, ~is_mask & ~is_kept, is_kept), 1):
            np.add.at(counts[:, column], of_BM[used_BM & kind], 1)
    table = {name: counts[i] for i, name in enumerate(languages) if counts[i, 0]}
    return {
        name: _shares(*map(int, row)) for name, row in (table | {"all": counts.sum(axis=0)}).items()
    }


def _shares(tokens: int, mask: int, random: int, kept: int) -> dict[str, float]:
    predictions = mask + random + kept
    shares = {
        name: count / max(predictions, 1)
        for name, count in (("mask", mask), ("random", random), ("kept", kept))
    }
    return {
        "tokens": tokens,
        "predictions": predictions,
        "rate": predictions / max(tokens, 1),
    } | shares


# --- Showing --------------------------------------------------------------------------------------


def inspect(
    objectives: Mapping[str, tuple[Objective, BatchSource]],
    vocabulary,
    *,
    record: Mapping[str, Any] | None = None,
    tables: Sequence[Mapping[str, Any]] = (),
    rows: int = 2,
    batches: int = 20,
    console: Any = None,
    output: str | Path | None = None,
) -> dict[str, Any]:
    """Shows the schedule on the terminal, the first `rows` rows of every objective (by name; of
    each stage where it has several), and the mask rate realised in `batches` batches.

    record: of the run to come, as `run_record.schedule_record` makes it. tables: of negatives, as
    `negatives.read` gives them. output: a folder for inspect.html, schedule.png and one PNG per
    attention grid. console: a rich Console; None makes one. Returns {name: mask statistics}, empty
    for objectives without masks. The sources advance.
    """
    from rich.console import Console

    console = console or Console()
    statistics: dict[str, Any] = {}
    parts, pictures = [], {}
    if record:
        _print_table(console, "schedule", ("what", "objective", "value"), schedule.rows(record))
        pictures |= {"schedule": figure} if (figure := schedule.picture(record)) else {}
        parts.append(html.section("schedule", "Schedule", *schedule.section(record)))
    for name, (objective, source) in objectives.items():
        masked = bool({"masked_positions", "run_offsets"} & {*objective.reads})
        drawn = [source.next() for _ in range(batches if masked else 1)]
        count = min(rows, len(drawn[0]["input_ids"]))
        views = [
            read_row(objective, drawn[0], row, vocabulary, source.languages) for row in range(count)
        ]
        statistics[name] = mask_statistics(drawn, vocabulary, source.languages) if masked else {}
        _print(console, name, objective, source, views, statistics[name])
        if output:
            for i, view in enumerate(views):
                grids = {f"{name}-{i}-{use.replace(' ', '-')}": use for use in view.grids_LL}
                pictures |= {
                    file: attention_picture(view, use, name) for file, use in grids.items()
                }
            parts.append(_section(name, objective, source, views, statistics[name]))
    for table in tables:
        _print_table(console, negatives.title(table), negatives.HEAD, table["rows"])
    parts.append(html.section("negatives", "Mined negatives", *negatives.section(tables)))
    if output:
        _write(Path(output), parts, pictures)
        console.print(f"wrote {Path(output) / 'inspect.html'}", markup=False)
    return statistics


def _facts(objective: Objective, source: BatchSource, view: Row) -> str:
    shapes = ", ".join(
        f"{name} {'×'.join(map(str, source.shapes[name]))}" for name in objective.reads
    )
    label = f"; label {view.label}" if view.label is not None else ""
    masks = ", ".join(f"{use} {mask.name}" for use, mask in objective.masks().items())
    return f"{masks}; {shapes}{label}"


def _print_table(console, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=None, header_style="dim", title_justify="left")
    for name in head:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(html.number(cell)) for cell in row))
    console.print(table)


def _print(
    console, name: str, objective, source, views: Sequence[Row], statistics: Mapping[str, Any]
) -> None:
    from rich.table import Table
    from rich.text import Text

    for i, view in enumerate(views):
        console.rule(f"{name}, row {i}")
        console.print(Text(_facts(objective, source, view), style="dim"))
        if (text := switched.as_text(view.tokens, source.languages)) is not None:
            console.print(text)
        shown = shown_tokens(view, "decoder_ids" in objective.reads)
        table = Table(box=None, header_style="dim", pad_edge=False)
        for head in TOKENS_HEAD:
            table.add_column(
                head, justify="right" if head in ("column", "position", "pack", "side") else "left"
            )
        for t in (view.tokens[index] for index in shown):
            style = {"mask": "yellow", "random": "red", "kept": "green"}.get(t.how)
            cells = (t.column, t.piece, t.target, t.how, t.position, t.language, t.pack, t.side)
            table.add_row(*(Text(str(cell)) for cell in cells), style=style)
        console.print(table)
        for use, grid_LL in view.grids_LL.items():
            console.print(Text(f"{use}: who sees whom", style="dim"))
            console.print(Text(grid_text(view, grid_LL, shown)))
        if len(view.tokens) > len(shown):
            console.print(Text(f"{len(shown)} of {len(view.tokens)} tokens", style="dim"))
    if statistics:
        table = Table(
            title=f"{name}: realised masking", box=None, header_style="dim", title_justify="left"
        )
        for head in STATISTICS_HEAD:
            table.add_column(head, justify="left" if head == "language" else "right")
        for row in _statistics_rows(statistics):
            table.add_row(*map(html.number, row))
        console.print(table)


def shown_tokens(view: Row, decoder: bool) -> list[int]:
    """Which tokens of a row the terminal shows: the first ones; with a decoder half of them of the
    target."""
    count = len(view.tokens)
    if not decoder:
        return list(range(min(SHOWN_ON_TERMINAL, count)))
    half, source = SHOWN_ON_TERMINAL // 2, sum(token.side == 0 for token in view.tokens)
    return [*range(min(half, source)), *range(source, min(source + half, count))]


def grid_text(view: Row, grid_LL: np.ndarray, shown: Sequence[int]) -> str:
    """The rows and columns `shown` of an attention grid in characters, a line per query: ■ sees, ·
    does not."""
    return "\n".join(
        f"{view.tokens[i].column:4d} "
        + "".join("■" if seen else "·" for seen in grid_LL[i, list(shown)])
        for i in shown
    )


TOKENS_HEAD = ("column", "piece", "target", "how", "position", "language", "pack", "side")
STATISTICS_HEAD = (
    "language",
    "tokens",
    "predictions",
    "rate (%)",
    "MASK (%)",
    "random (%)",
    "kept (%)",
)


def _statistics_rows(statistics: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [
            name,
            s["tokens"],
            s["predictions"],
            *(html.percent(s[key]) for key in ("rate", "mask", "random", "kept")),
        ]
        for name, s in statistics.items()
    ]


def _section(
    name: str, objective, source, views: Sequence[Row], statistics: Mapping[str, Any]
) -> str:
    parts = []
    for i, view in enumerate(views):
        cells = [
            [t.column, t.piece, t.target, t.how, t.position, t.language, t.pack, t.side]
            for t in view.tokens
        ]
        figures = [
            html.figure(plots.svg(attention_picture(view, use, name)), f"{use}: grid")
            for use in view.grids_LL
        ]
        parts += [f"<h3>row {i}</h3>", html.note(_facts(objective, source, view))]
        parts += [
            switched.as_html(view.tokens, source.languages),
            *figures,
            html.table(TOKENS_HEAD, cells),
        ]
    if statistics:
        parts += [
            "<h3>Realised masking</h3>",
            html.table(STATISTICS_HEAD, _statistics_rows(statistics), mean_rows=1),
        ]
    return html.section(name, name.upper(), *parts)


def first_rows(objectives: Mapping[str, tuple[Objective, Peekable]], vocabulary) -> str:
    """What a report shows of the first batches, as HTML: of every objective the first of the rows
    in most languages, coloured, and of all masks one grid. A later stage is left out unless it
    brings a mask of its own.
    """
    parts, seen = [], set()
    for name, (objective, source) in objectives.items():
        new = {use: mask.name for use, mask in objective.masks().items() if mask.name not in seen}
        if stage_of(name)[1] and not new:
            continue
        seen |= {*new.values()}
        batch = source.peek()
        languages = [
            len({*row[used > 0]})
            for row, used in zip(batch["language_ids"], batch["pack_ids"], strict=True)
        ]
        view = read_row(objective, batch, int(np.argmax(languages)), vocabulary, source.languages)
        figures = [
            html.figure(plots.svg(attention_picture(view, use, name)), f"{use}: grid")
            for use in new
        ]
        parts += [f"<h3>{html.esc(name.upper())}</h3>", html.note(_facts(objective, source, view))]
        parts += [switched.as_html(view.tokens, source.languages), *figures]
    return "\n".join(part for part in parts if part)


@plots.styled
def attention_picture(view: Row, use: str, name: str) -> Any:
    """A grid as a figure; pieces along both sides where there is room to read them."""
    count = len(view.tokens)
    side = float(np.clip(1.2 + 0.16 * count, 3.0, 9.0))
    figure, (axis,) = plots.panels(1, size=(side, side))
    axis.grid(False)
    axis.imshow(~view.grids_LL[use], cmap="gray", vmin=-0.6, vmax=1.0, interpolation="nearest")
    if count <= 72:
        labels = [token.piece for token in view.tokens]
        axis.set_xticks(range(count), labels, rotation=90, fontsize=7)
        axis.set_yticks(range(count), labels, fontsize=7)
    axis.set(title=f"{name}, {use}: dark = the row's token sees the column's")
    return figure


def _write(folder: Path, parts: Sequence[str], pictures: Mapping[str, Any]) -> None:
    head = "<header><h1>What the objectives read</h1></header>"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "inspect.html").write_text(
            html.page("inspect · xlingjax", "\n".join([head, *parts])), encoding="utf-8"
        )
        for name, picture in pictures.items():
            plots.save(picture, folder / f"{name}.png")
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}: choose another --output"
        ) from None

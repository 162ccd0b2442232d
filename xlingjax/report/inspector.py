"""What an objective really feeds the model: real batches, token by token, who may see whom, and the
realised mask rate; and what a recipe plans for the run.

The attention grids come from the objective's own mask predicates, the ones the attention backends
use.
"""

from collections.abc import Iterable, Mapping, Sequence
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

SHOWN_ON_TERMINAL = 40
"""Tokens of a row."""
Batch = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Token:
    """One column of a row. `target`: the piece to predict here, "" for none; `how`: "mask",
    "random", "kept" (the three fates of a chosen token), "next" (CLM, decoders), "recover" (word
    recovery), "pseudo" (a placeholder of BTMLM), "answer" (of span question answering) or ""."""

    column: int
    piece: str
    target: str
    how: str
    position: int
    language: str
    pack: int
    side: int

    @property
    def cells(self) -> tuple[Any, ...]:
        """In the order of `TOKENS_HEAD`."""
        return (
            self.column,
            self.piece,
            self.target,
            self.how,
            self.position,
            self.language,
            self.pack,
            self.side,
        )


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
    # All words that the model reads, a decoder's too; targets are columns among them.
    one |= {name: np.asarray(values) for name, values in objective.words(one).items()}
    has_decoder = "decoder_ids" in objective.reads
    used = np.flatnonzero(one["pack_ids"][0])
    if has_decoder:
        # Each example's target behind its source.
        by_example = np.argsort(one["pack_ids"][0, used], kind="stable")
        used = used[by_example]
    sides = one.get("sides", np.zeros_like(one["pack_ids"]))[0]

    def piece(token: int) -> str:
        # Of decoders, a row behind the vocabulary's is a language.
        behind = token - vocabulary.size
        if behind >= 0 and has_decoder:
            return f"[{languages[behind]}]"
        (name,) = vocabulary.pieces([token])
        return name

    tokens = []
    for column in used.tolist():
        target = ""
        if column in targets:
            target = piece(targets[column])
        token = Token(
            column=column,
            piece=piece(int(one["input_ids"][0, column])),
            target=target,
            how=fates.get(column, ""),
            position=int(one["position_ids"][0, column]),
            language=languages[int(one["language_ids"][0, column])],
            pack=int(one["pack_ids"][0, column]),
            side=int(sides[column]),
        )
        tokens.append(token)
    label = None
    if "labels" in one:
        label = int(one["labels"][0])
    fields = Fields.from_batch(one)
    grids = {}
    for name, mask in objective.masks().items():
        whole_BLL = np.asarray(mask(fields, fields))
        grids[name] = whole_BLL[0][np.ix_(used, used)]
    return Row(tokens, grids, label)


def _targets(
    objective: Objective, one: Batch, vocabulary
) -> tuple[dict[int, int], dict[int, str]]:
    """({column: id to predict there}, {column: how the input shows it}) of a batch of one row."""
    ids = one["input_ids"][0]
    if "decoder_targets" in objective.reads:
        columns = np.flatnonzero(one["decoder_weights"][0]).tolist()
        # The target's columns stand behind the source's.
        targets = {ids.size + c: int(one["decoder_targets"][0, c]) for c in columns}
        fates = dict.fromkeys(targets, "next")
        if "run_offsets" in objective.reads:
            _, hidden = _slots(with_slots(one), vocabulary)
            fates |= hidden
        return targets, fates
    if "target_weights" in objective.reads:
        columns = np.flatnonzero(one["target_weights"][0]).tolist()
        return {c: int(ids[c]) for c in columns}, dict.fromkeys(columns, "recover")
    if "masked_positions" in objective.reads:
        targets, fates = _slots(one, vocabulary)
        if "pseudo_positions" in objective.reads:
            columns = one["pseudo_positions"][0][one["pseudo_weights"][0] > 0].tolist()
            fates |= dict.fromkeys(columns, "pseudo")
        return targets, fates
    if "start_positions" in objective.reads:
        columns = range(one["start_positions"][0], one["end_positions"][0] + 1)
        return {c: int(ids[c]) for c in columns}, dict.fromkeys(columns, "answer")
    if objective.attention().causal:
        packs = one["pack_ids"][0]
        has_next = (packs[:-1] > 0) & (packs[:-1] == packs[1:])
        columns = np.flatnonzero(has_next).tolist()
        return {c: int(ids[c + 1]) for c in columns}, dict.fromkeys(columns, "next")
    return {}, {}


def _slots(one: Batch, vocabulary) -> tuple[dict[int, int], dict[int, str]]:
    """({column: id hidden there}, {column: how the input shows it}) of the prediction slots of a
    batch of one row."""
    ids = one["input_ids"][0]
    targets = {}
    fates = {}
    for slot in np.flatnonzero(one["masked_weights"][0]):
        column = int(one["masked_positions"][0, slot])
        target = int(one["masked_targets"][0, slot])
        targets[column] = target
        if ids[column] == vocabulary.mask_id:
            fates[column] = "mask"
        elif ids[column] == target:
            fates[column] = "kept"
        else:
            fates[column] = "random"
    return targets, fates


def with_slots(batch: Batch) -> Batch:
    """Where a decoder predicts what its source hides (xFNP): with prediction slots at these words
    of the source."""
    if "run_offsets" not in batch:
        return batch
    # The word that a decoder's column predicts stands one position further, in the same example.
    same_pack_BTL = batch["pack_ids"][:, None] == batch["decoder_pack_ids"][..., None]
    next_position_BT = batch["decoder_position_ids"] + 1
    same_position_BTL = batch["position_ids"][:, None] == next_position_BT[..., None]
    return {
        **batch,
        "masked_targets": batch["decoder_targets"],
        "masked_weights": batch["decoder_weights"],
        "masked_positions": (same_pack_BTL & same_position_BTL).argmax(-1),
    }


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
        columns_BM = batch["masked_positions"]
        shown_BM = np.take_along_axis(batch["input_ids"], columns_BM, axis=1)
        language_BM = np.take_along_axis(language_BL, columns_BM, axis=1)
        is_mask = shown_BM == vocabulary.mask_id
        is_kept = ~is_mask & (shown_BM == batch["masked_targets"])
        is_random = ~is_mask & ~is_kept
        for column, kind in enumerate((is_mask, is_random, is_kept), 1):
            np.add.at(counts[:, column], language_BM[used_BM & kind], 1)
    statistics = {}
    for name, row in zip(languages, counts, strict=True):
        if row[0]:
            statistics[name] = _shares(*map(int, row))
    statistics["all"] = _shares(*map(int, counts.sum(axis=0)))
    return statistics


def _shares(tokens: int, mask: int, random: int, kept: int) -> dict[str, float]:
    predictions = mask + random + kept
    # Of none all shares are 0.
    divisor = max(predictions, 1)
    return {
        "tokens": tokens,
        "predictions": predictions,
        "rate": predictions / max(tokens, 1),
        "mask": mask / divisor,
        "random": random / divisor,
        "kept": kept / divisor,
    }


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

    if console is None:
        console = Console()
    statistics: dict[str, Any] = {}
    parts = []
    pictures: dict[str, Any] = {}
    if record:
        _print_table(
            console, "schedule", ("what", "objective", "value"), schedule.rows(record)
        )
        figure = schedule.picture(record)
        if figure is not None:
            pictures["schedule"] = figure
        parts.append(html.section("schedule", "Schedule", *schedule.section(record)))
    for name, (objective, source) in objectives.items():
        masked = (
            "masked_positions" in objective.reads or "run_offsets" in objective.reads
        )
        # One batch is enough to show rows; a rate needs more of them.
        count = 1
        if masked:
            count = batches
        drawn = [source.next() for _ in range(count)]
        statistics[name] = {}
        if masked:
            statistics[name] = mask_statistics(drawn, vocabulary, source.languages)
        first = drawn[0]
        views = []
        for row in range(min(rows, len(first["input_ids"]))):
            views.append(read_row(objective, first, row, vocabulary, source.languages))
        _print(console, name, objective, source, views, statistics[name])
        if output:
            for i, view in enumerate(views):
                for use in view.grids_LL:
                    file = f"{name}-{i}-{use.replace(' ', '-')}"
                    pictures[file] = attention_picture(view, use, name)
            parts.append(_section(name, objective, source, views, statistics[name]))
    for table in tables:
        _print_table(console, negatives.title(table), negatives.HEAD, table["rows"])
    parts.append(
        html.section("negatives", "Mined negatives", *negatives.section(tables))
    )
    if output:
        _write(Path(output), parts, pictures)
        console.print(f"wrote {Path(output) / 'inspect.html'}", markup=False)
    return statistics


def _facts(objective: Objective, source: BatchSource, view: Row) -> str:
    masks = ", ".join(f"{use} {mask.name}" for use, mask in objective.masks().items())
    shapes = []
    for name in objective.reads:
        sizes = "×".join(map(str, source.shapes[name]))
        shapes.append(f"{name} {sizes}")
    text = f"{masks}; {', '.join(shapes)}"
    if view.label is not None:
        text += f"; label {view.label}"
    return text


def _print_table(
    console, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=None, header_style="dim", title_justify="left")
    for name in head:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(html.number(cell)) for cell in row))
    console.print(table)


def _print(
    console,
    name: str,
    objective,
    source,
    views: Sequence[Row],
    statistics: Mapping[str, Any],
) -> None:
    from rich.table import Table
    from rich.text import Text

    for i, view in enumerate(views):
        console.rule(f"{name}, row {i}")
        console.print(Text(_facts(objective, source, view), style="dim"))
        text = switched.as_text(view.tokens, source.languages)
        if text is not None:
            console.print(text)
        shown = shown_tokens(view, "decoder_ids" in objective.reads)
        table = Table(box=None, header_style="dim", pad_edge=False)
        for head in TOKENS_HEAD:
            table.add_column(head, justify=TOKENS_JUSTIFY.get(head, "left"))
        for index in shown:
            token = view.tokens[index]
            cells = [Text(str(cell)) for cell in token.cells]
            table.add_row(*cells, style=FATE_STYLE.get(token.how))
        console.print(table)
        for use, grid_LL in view.grids_LL.items():
            console.print(Text(f"{use}: who sees whom", style="dim"))
            console.print(Text(grid_text(view, grid_LL, shown)))
        if len(view.tokens) > len(shown):
            console.print(
                Text(f"{len(shown)} of {len(view.tokens)} tokens", style="dim")
            )
    if statistics:
        title = f"{name}: realised masking"
        table = Table(title=title, box=None, header_style="dim", title_justify="left")
        language, *figures = STATISTICS_HEAD
        table.add_column(language, justify="left")
        for head in figures:
            table.add_column(head, justify="right")
        for row in _statistics_rows(statistics):
            table.add_row(*map(html.number, row))
        console.print(table)


def shown_tokens(view: Row, decoder: bool) -> list[int]:
    """Which tokens of a row the terminal shows: the first ones; with a decoder half of them of the
    target."""
    count = len(view.tokens)
    if not decoder:
        return list(range(min(SHOWN_ON_TERMINAL, count)))
    half = SHOWN_ON_TERMINAL // 2
    source = sum(token.side == 0 for token in view.tokens)
    return [*range(min(half, source)), *range(source, min(source + half, count))]


def grid_text(view: Row, grid_LL: np.ndarray, shown: Sequence[int]) -> str:
    """The rows and columns `shown` of an attention grid in characters, a line per query: ■ sees, ·
    does not."""
    lines = []
    for query in shown:
        seen = grid_LL[query, list(shown)]
        signs = "".join("·■"[int(sees)] for sees in seen)
        lines.append(f"{view.tokens[query].column:4d} {signs}")
    return "\n".join(lines)


TOKENS_HEAD = (
    "column",
    "piece",
    "target",
    "how",
    "position",
    "language",
    "pack",
    "side",
)
TOKENS_JUSTIFY = {
    "column": "right",
    "position": "right",
    "pack": "right",
    "side": "right",
}
FATE_STYLE = {"mask": "yellow", "random": "red", "kept": "green"}
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
    rows = []
    for name, of_language in statistics.items():
        shares = [
            html.percent(of_language[key]) for key in ("rate", "mask", "random", "kept")
        ]
        rows.append([name, of_language["tokens"], of_language["predictions"], *shares])
    return rows


def _grids(view: Row, uses: Iterable[str], name: str) -> list[str]:
    """Attention grids as HTML."""
    figures = []
    for use in uses:
        picture = plots.svg(attention_picture(view, use, name))
        figures.append(html.figure(picture, f"{use}: grid"))
    return figures


def _section(
    name: str, objective, source, views: Sequence[Row], statistics: Mapping[str, Any]
) -> str:
    parts = []
    for i, view in enumerate(views):
        parts += [f"<h3>row {i}</h3>", html.note(_facts(objective, source, view))]
        parts.append(switched.as_html(view.tokens, source.languages))
        parts += _grids(view, view.grids_LL, name)
        parts.append(html.table(TOKENS_HEAD, [token.cells for token in view.tokens]))
    if statistics:
        table = html.table(STATISTICS_HEAD, _statistics_rows(statistics), mean_rows=1)
        parts += ["<h3>Realised masking</h3>", table]
    return html.section(name, name.upper(), *parts)


def first_rows(objectives: Mapping[str, tuple[Objective, Peekable]], vocabulary) -> str:
    """What a report shows of the first batches, as HTML: of every objective the first of the rows
    in most languages, coloured, and of all masks one grid. A later stage is left out unless it
    brings a mask of its own.
    """
    parts = []
    shown_masks = set()
    for name, (objective, source) in objectives.items():
        masks = objective.masks()
        new_uses = [use for use, mask in masks.items() if mask.name not in shown_masks]
        _, start = stage_of(name)
        if start and not new_uses:
            continue
        shown_masks.update(masks[use].name for use in new_uses)
        batch = source.peek()
        languages = []
        for language_L, pack_L in zip(
            batch["language_ids"], batch["pack_ids"], strict=True
        ):
            languages.append(len(np.unique(language_L[pack_L > 0])))
        row = int(np.argmax(languages))
        view = read_row(objective, batch, row, vocabulary, source.languages)
        parts += [
            f"<h3>{html.esc(name.upper())}</h3>",
            html.note(_facts(objective, source, view)),
        ]
        parts.append(switched.as_html(view.tokens, source.languages))
        parts += _grids(view, new_uses, name)
    return "\n".join(part for part in parts if part)


@plots.styled
def attention_picture(view: Row, use: str, name: str) -> Any:
    """A grid as a figure; pieces along both sides where there is room to read them."""
    count = len(view.tokens)
    side = float(np.clip(1.2 + 0.16 * count, 3.0, 9.0))
    figure, (axis,) = plots.panels(1, size=(side, side))
    axis.grid(False)
    axis.imshow(
        ~view.grids_LL[use], cmap="gray", vmin=-0.6, vmax=1.0, interpolation="nearest"
    )
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
        page = html.page("inspect · xlingjax", "\n".join([head, *parts]))
        (folder / "inspect.html").write_text(page, encoding="utf-8")
        for name, picture in pictures.items():
            plots.save(picture, folder / f"{name}.png")
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}: choose another --output"
        ) from None

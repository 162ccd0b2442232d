"""What objectives read: rows by token and as text, who may see whom, how much is hidden.

The masks are the objective's own predicates, which attention uses.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from xlingjax.data.batches.loader import BatchSource, first_batch
from xlingjax.model.masks import Fields, bidirectional, causal
from xlingjax.objectives.base import Objective
from xlingjax.report import drawing, html, pictures
from xlingjax.training.stages import stage_of

Batch = Mapping[str, np.ndarray]
Targets = tuple[dict[int, int], dict[int, str]]  # {column: id, how the input shows it}
TOKENS_HEAD = ("column", "piece", "target", "how", "position", "language", "pack", "side")
MARKS = {
    "mask": "shown as MASK",
    "random": "replaced by another piece",
    "kept": "shown as it is",
    "recover": "recovered from the other side",
    "answer": "the answer",
    "pseudo": "a pseudo token's place",
}
"""What each chosen word's mark means. "next" has none: it is predicted at every word."""
STATISTICS_HEAD = (
    "language",
    "tokens",
    "predictions",
    "rate (%)",
    "MASK (%)",
    "random (%)",
    "kept (%)",
)


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
    special: bool = False  # no word of a text: what begins, ends or separates it

    @property
    def cells(self) -> tuple:
        """In the order of `TOKENS_HEAD`."""
        return dataclasses.astuple(self)[: len(TOKENS_HEAD)]


@dataclass(frozen=True)
class Row:
    """A row of a batch without padding; `grids_LL`[use][q, k]: token q sees token k in that use."""

    tokens: list[Token]
    grids_LL: dict[str, np.ndarray]
    label: int | None


def read_row(
    objective: Objective, batch: Batch, row: int, vocabulary, languages: Sequence[str]
) -> Row:
    """Row `row` of a batch of `objective`, in pieces."""
    # A batch still, of one row: objectives and masks take nothing less.
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
        token = int(one["input_ids"][0, column])
        tokens.append(
            Token(
                column=column,
                piece=piece(token),
                target=piece(targets[column]) if column in targets else "",
                how=fates.get(column, ""),
                position=int(one["position_ids"][0, column]),
                language=languages[int(one["language_ids"][0, column])],
                pack=int(one["pack_ids"][0, column]),
                side=int(sides[column]),
                special=token in vocabulary.special_ids,
            )
        )
    label = int(one["labels"][0]) if "labels" in one else None
    # The mask itself, as attention evaluates it, and no second account of it.
    fields = Fields.from_batch(one)
    at = np.ix_(used, used)
    masks = objective.masks().items()
    return Row(
        tokens, {name: np.asarray(mask(fields, fields))[0][at] for name, mask in masks}, label
    )


def _targets(objective: Objective, one: Batch, vocabulary) -> Targets:
    """({column: id to predict there}, {column: how the input shows it}) of a batch of one row."""
    ids = one["input_ids"][0]
    # By the fields that an objective reads: none is known by its name here.
    if "decoder_targets" in objective.reads:
        columns = np.flatnonzero(one["decoder_weights"][0])
        # The target's columns stand behind the source's.
        targets, fates = _at(ids.size + columns, one["decoder_targets"][0, columns], "next")
        if "run_offsets" in objective.reads:
            fates |= _slots(with_slots(one), vocabulary)[1]
        return targets, fates
    if "target_weights" in objective.reads:
        columns = np.flatnonzero(one["target_weights"][0])
        return _at(columns, ids[columns], "recover")
    if "masked_positions" in objective.reads:
        targets, fates = _slots(one, vocabulary)
        if "pseudo_positions" in objective.reads:
            columns = one["pseudo_positions"][0][one["pseudo_weights"][0] > 0].tolist()
            fates |= dict.fromkeys(columns, "pseudo")
        return targets, fates
    if "start_positions" in objective.reads:
        spans = []
        for side in ("", "beside_"):
            if f"{side}start_positions" in objective.reads:
                first, last = (one[f"{side}{end}_positions"][0] for end in ("start", "end"))
                spans.append(np.arange(first, last + 1))
        columns = np.concatenate(spans)
        return _at(columns, ids[columns], "answer")
    if objective.attention() == causal & bidirectional:
        packs = one["pack_ids"][0]
        # The last token of an example predicts nothing: the next one is another example's.
        has_next = (packs[:-1] > 0) & (packs[:-1] == packs[1:])
        columns = np.flatnonzero(has_next)
        return _at(columns, ids[columns + 1], "next")
    return {}, {}


def _at(columns: np.ndarray, targets: np.ndarray, fate: str) -> Targets:
    """What `_targets` gives where all targets have one fate."""
    places = columns.tolist()
    by_column = dict(zip(places, targets.tolist(), strict=True))
    return by_column, dict.fromkeys(places, fate)


def _slots(one: Batch, vocabulary) -> Targets:
    """({column: id hidden there}, {column: how the input shows it}) of a batch of one row."""
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
    """Where a decoder predicts what the source hides (xFNP): with slots at these words of it."""
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


def examples(tokens: Iterable[Token]) -> list[list[list[Token]]]:
    """Of each example of a row its sides, one after the other."""
    return [
        [list(side) for _, side in groupby(example, key=lambda token: token.side)]
        for _, example in groupby(tokens, key=lambda token: token.pack)
    ]


def marked(token: Token) -> tuple[str, str, str, str]:
    """(a key of `MARKS`, "special" or "", the space before, the piece that is shown, the word)."""
    piece = token.piece.replace("▁", " ")
    word = piece
    how = token.how
    if how in ("mask", "random", "kept"):
        word = token.target.replace("▁", " ")
    elif how not in MARKS:
        how = "special" if token.special else ""
    bare = word.lstrip()
    gap = " " * (len(word) > len(bare))
    if how == "special":
        bare = bare.strip()
    return how, gap, piece.strip(), bare


def as_values(title: str, objective: Objective, source: BatchSource, view: Row) -> dict:
    """A row as JSON that a page is made of."""
    texts = []
    for example in examples(view.tokens):
        sides = []
        for side in example:
            stretches = [
                (language, list(map(marked, tokens)))
                for language, tokens in groupby(side, key=lambda token: token.language)
            ]
            # Of the words; special tokens have the language of their row.
            words = [token for token in side if not token.special]
            names = list(dict.fromkeys(token.language for token in words or side))
            sides.append({"names": names, "stretches": stretches})
        texts.append(sides)
    masks = ", ".join(f"{use} {mask.name}" for use, mask in objective.masks().items())
    shapes = [f"{name} {'×'.join(map(str, source.shapes[name]))}" for name in objective.reads]
    label = "" if view.label is None else f"; label {view.label}"
    used = {token.how for token in view.tokens}
    return {
        "title": title,
        "facts": f"{masks}; {', '.join(shapes)}{label}",
        "languages": list(source.languages),
        "examples": texts,
        "marks": {how: meaning for how, meaning in MARKS.items() if how in used},
    }


def with_masks(row: Mapping, view: Row) -> dict:
    """The values of a row, and pictures of who sees whom in it, of what hides most first."""
    sides = [side for example in examples(view.tokens) for side in example]
    starts = np.cumsum([len(side) for side in sides])[:-1].tolist()
    by_seen = sorted(view.grids_LL.items(), key=lambda of_use: float(of_use[1].mean()))
    shown = []
    for use, seen_LL in by_seen:
        if not seen_LL.all():
            (figure,) = pictures.mask(use, seen_LL, starts)
            shown.append((drawing.svg(figure), f"{use}: grid"))
    everything = [use for use, seen_LL in by_seen if seen_LL.all()]
    return {**row, "pictures": shown, "open": everything}


def first_rows(objectives: Mapping[str, tuple[Objective, BatchSource]], vocabulary) -> list[dict]:
    """A report's first batches, as JSON: each objective's row in the most languages."""
    shown = []
    for name, (objective, source) in objectives.items():
        if stage_of(name)[1]:
            continue
        batch = first_batch(source)
        rows = zip(batch["language_ids"], batch["pack_ids"], strict=True)
        languages = [len(np.unique(language_L[pack_L > 0])) for language_L, pack_L in rows]
        view = read_row(objective, batch, np.argmax(languages), vocabulary, source.languages)
        shown.append(as_values(name.upper(), objective, source, view))
    return shown


def section(rows: Sequence[Mapping]) -> dict | None:
    """Of a page, from what `first_rows` gave; None: nothing."""
    marks = {how: meaning for row in rows for how, meaning in row["marks"].items()}
    return {"rows": rows, "marks": marks} if rows else None


def mask_statistics(
    batches: Sequence[Batch], vocabulary, languages: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Per language that occurs, and over "all": tokens, predictions, rate (predictions per token,
    padding apart), and the predictions' shares of `mask`, `random` and `kept`.

    A random piece that happens to be the true one counts as kept.
    """
    # Of each language: tokens, mask, random, kept.
    counts = np.zeros((len(languages), 4), np.int64)
    for batch in map(with_slots, batches):
        language_BL, columns_BM = batch["language_ids"], batch["masked_positions"]
        shown_BM = np.take_along_axis(batch["input_ids"], columns_BM, axis=1)
        language_BM = np.take_along_axis(language_BL, columns_BM, axis=1)
        # By what is shown, since batches do not keep which fate was drawn.
        fates = [shown_BM == vocabulary.mask_id, shown_BM == batch["masked_targets"]]
        fate_BM = np.select(fates, [1, 3], 2)
        used_BM = batch["masked_weights"] > 0
        # `+=` would count a language that an index has twice only once.
        np.add.at(counts, (language_BL[batch["pack_ids"] > 0], 0), 1)
        np.add.at(counts, (language_BM[used_BM], fate_BM[used_BM]), 1)
    of_each = zip(languages, counts, strict=True)
    statistics = {name: _shares(*map(int, row)) for name, row in of_each if row[0]}
    # Of the sums, not a mean of the rates: languages occur unequally often.
    return statistics | {"all": _shares(*map(int, counts.sum(axis=0)))}


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


def statistics_rows(statistics: Mapping) -> list[list]:
    """The rows below `STATISTICS_HEAD`, of what `mask_statistics` gives."""
    rows = []
    for name, of_one in statistics.items():
        shares = [html.percent(of_one[key]) for key in ("rate", "mask", "random", "kept")]
        rows.append([name, of_one["tokens"], of_one["predictions"], *shares])
    return rows

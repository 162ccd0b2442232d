"""One row of a batch, token by token: its pieces, what is predicted where, who may see whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.batches.loader import BatchSource
from xlingjax.model.masks import Fields
from xlingjax.objectives.base import Objective

Batch = Mapping[str, np.ndarray]
TOKENS_HEAD = ("column", "piece", "target", "how", "position", "language", "pack", "side")


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
    special: bool = False
    """No word of a text: what begins, ends or separates it."""

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

    special = vocabulary.special_ids
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
            special=int(one["input_ids"][0, column]) in special,
        )
        tokens.append(token)
    # Only objectives of classes have one.
    label = None
    if "labels" in one:
        label = int(one["labels"][0])
    # The mask itself, as attention evaluates it, and no second account of it.
    fields = Fields.from_batch(one)
    grids = {}
    for name, mask in objective.masks().items():
        whole_BLL = np.asarray(mask(fields, fields))
        grids[name] = whole_BLL[0][np.ix_(used, used)]
    return Row(tokens, grids, label)


def _targets(objective: Objective, one: Batch, vocabulary) -> tuple[dict[int, int], dict[int, str]]:
    """({column: id to predict there}, {column: how the input shows it}) of a batch of one row."""
    ids = one["input_ids"][0]
    # By the fields that an objective reads: none is known by its name here.
    if "decoder_targets" in objective.reads:
        columns = np.flatnonzero(one["decoder_weights"][0]).tolist()
        # The target's columns stand behind the source's.
        targets = {}
        for column in columns:
            targets[ids.size + column] = int(one["decoder_targets"][0, column])
        fates = dict.fromkeys(targets, "next")
        if "run_offsets" in objective.reads:
            _, hidden = _slots(with_slots(one), vocabulary)
            fates |= hidden
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
        columns = np.arange(one["start_positions"][0], one["end_positions"][0] + 1)
        if "beside_start_positions" in objective.reads:
            beside = np.arange(one["beside_start_positions"][0], one["beside_end_positions"][0] + 1)
            columns = np.concatenate([columns, beside])
        return _at(columns, ids[columns], "answer")
    if objective.attention().causal:
        packs = one["pack_ids"][0]
        # The last token of an example predicts nothing: the next one is another example's.
        has_next = (packs[:-1] > 0) & (packs[:-1] == packs[1:])
        columns = np.flatnonzero(has_next)
        return _at(columns, ids[columns + 1], "next")
    return {}, {}


def _at(
    columns: np.ndarray, targets: np.ndarray, fate: str
) -> tuple[dict[int, int], dict[int, str]]:
    """What `_targets` gives where all targets have one fate."""
    places = columns.tolist()
    by_column = dict(zip(places, targets.tolist(), strict=True))
    return by_column, dict.fromkeys(places, fate)


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


def facts(objective: Objective, source: BatchSource, view: Row) -> str:
    """A line of an objective's masks, the shapes of what it reads, and the row's label."""
    masks = ", ".join(f"{use} {mask.name}" for use, mask in objective.masks().items())
    shapes = []
    for name in objective.reads:
        sizes = "×".join(map(str, source.shapes[name]))
        shapes.append(f"{name} {sizes}")
    text = f"{masks}; {', '.join(shapes)}"
    if view.label is not None:
        text += f"; label {view.label}"
    return text

"""Tiny seeded batches in NumPy, one builder for every objective (used by fixtures and by the scripts that tests start
as processes)."""

import numpy as np

ROWS, LENGTH, SLOTS, VOCAB, LANGUAGES = 8, 16, 3, 96, ("de", "en", "zh")
BOS, EOS, PAD, MASK = 0, 0, 2, 5
FIRST_PIECE = 14
OBJECTIVES = ("clm", "mlm", "tlm", "veco", "camlm", "btmlm", "clwr", "clpc", "cl_mlm")
LABELLED = ("plug_in",)
"""Fine-tuning: a label per row and no `predictions`."""
PAIRS = ("tlm", "veco", "camlm", "clwr", "clpc", "plug_in")
SIDE_BY_SIDE = ("veco", "camlm")
"""Objectives whose prediction slots are those of side 0, then as many of side 1."""
LAYOUTS = {"camlm_slots": "camlm"}
"""Other layouts and the objectives that read them: their masks are worth a test, steps on them are not."""


def batch(
    objective: str, seed: int = 0, rows: int = ROWS, length: int = LENGTH, slots: int = SLOTS, vocab: int = VOCAB
):
    """One batch of `objective`: rows end in padding of unequal width, slots are unequally used."""
    rng = np.random.default_rng([seed, (*OBJECTIVES, *LABELLED).index(objective)])
    fields = {
        name: np.zeros((rows, length), np.int32) for name in ("position_ids", "language_ids", "pack_ids", "sides")
    }
    fields["input_ids"] = np.full((rows, length), PAD, np.int32)
    if objective in ("camlm", "btmlm"):
        fields["is_mask"] = np.zeros((rows, length), np.int32)
    groups = 2 if objective in SIDE_BY_SIDE else 1
    if objective not in ("clm", "clwr", "clpc", "plug_in"):
        fields["masked_positions"] = np.zeros((rows, groups * slots), np.int32)
        fields["masked_targets"] = np.zeros((rows, groups * slots), np.int32)
        fields["masked_weights"] = np.zeros((rows, groups * slots), np.float32)
    if objective == "btmlm":
        fields["pseudo_positions"] = np.zeros((rows, slots), np.int32)
        fields["pseudo_weights"] = np.zeros((rows, slots), np.float32)
    for row in range(rows):
        used = int(rng.integers(length // 2, length + 1)) if row else length
        second = used // 2 if objective in PAIRS else used  # where the second sentence starts
        if objective == "btmlm":
            second = used - int(rng.integers(1, slots + 1))  # where the placeholders start
        language, other = rng.choice(len(LANGUAGES), 2, replace=False)
        fields["input_ids"][row, :used] = rng.integers(FIRST_PIECE, vocab, used)
        fields["input_ids"][row, [0, used - 1]] = EOS
        fields["position_ids"][row, :used] = np.r_[:second, 0 : used - second]
        if objective == "camlm":
            fields["position_ids"][row, :used] = np.arange(used)
        fields["language_ids"][row, :used] = np.where(np.arange(used) < second, language, other)
        if objective == "cl_mlm":  # three sentences, the middle one translated
            fields["language_ids"][row, used // 3 : 2 * used // 3] = other
        fields["sides"][row, second:used] = 1
        fields["pack_ids"][row, :used] = 1
        if objective == "btmlm":
            columns = np.arange(second, used)
            fields["input_ids"][row, columns] = MASK
            fields["is_mask"][row, columns] = 1
            fields["pseudo_positions"][row, : columns.size] = columns
            fields["pseudo_weights"][row, : columns.size] = 1
    if objective == "btmlm":
        fields["original_ids"] = fields["input_ids"].copy()
        fields["special_ids"] = np.resize(np.arange(FIRST_PIECE), (rows, 16)).astype(np.int32)
    for row in range(rows if "masked_positions" in fields else 0):
        ids, sides, real = (fields[name][row] for name in ("input_ids", "sides", "pack_ids"))
        for group in range(groups):
            free = np.flatnonzero(real * (sides == group) if groups == 2 or objective == "btmlm" else real)[1:]
            count = int(rng.integers(1, min(slots, len(free)) + 1))
            into = slice(group * slots, group * slots + count)
            columns = np.sort(rng.choice(free, count, replace=False))
            fields["masked_positions"][row, into] = columns
            fields["masked_targets"][row, into] = ids[columns]
            fields["masked_weights"][row, into] = 1
            ids[columns] = MASK
            if objective == "camlm":
                fields["is_mask"][row, columns] = 1
    if objective == "clwr":
        ordinary = fields["input_ids"] >= FIRST_PIECE
        fields["target_weights"] = (ordinary & (fields["pack_ids"] > 0)).astype(np.float32)
    if objective in ("clpc", "plug_in"):
        fields["labels"] = (np.arange(rows) % (2 if objective == "clpc" else 3)).astype(np.int32)
        fields["example_weights"] = np.r_[np.ones(rows - 1), 0].astype(np.float32)
    return fields


def params(model, seed: int = 0, noise: float = 0.0):
    """Parameters of a model, about as large as its own first ones, and noise on all of them. Drawn by NumPy: to
    compile a model's `init` takes longer than most tests."""
    import jax

    rng, size = np.random.default_rng(seed), model.config.init_std or model.config.dim**-0.5

    def draw(path, leaf):
        name = path[-1].key
        first = 1.0 if name == "scale" else 0.0 if name == "bias" else size * rng.normal(size=leaf.shape)
        return jax.numpy.asarray(first + noise * rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, model.abstract())


def in_slots(batch):
    """A CAMLM batch whose MASKs stand in place -> the layout "slots": whole sentences, and behind them the MASKs, each
    with the position, language, side and pack of the word that it hides."""
    text, columns, used = batch["input_ids"].shape[1], batch["masked_positions"], batch["masked_weights"] > 0
    rows, slots = np.nonzero(used)
    whole = batch["input_ids"].copy()
    whole[rows, columns[rows, slots]] = batch["masked_targets"][rows, slots]
    before = {**batch, "input_ids": whole, "is_mask": np.zeros_like(whole)}
    behind = {
        name: np.where(used, np.take_along_axis(batch[name], columns, axis=1), 0)
        for name in ("position_ids", "language_ids", "pack_ids", "sides", "is_mask")
    }
    behind["input_ids"] = np.where(used, MASK, PAD)
    fields = {name: np.concatenate([before[name], behind[name]], axis=1).astype(np.int32) for name in behind}
    at = np.where(used, text + np.arange(columns.shape[1]), 0).astype(np.int32)
    return {**batch, **fields, "masked_positions": at}


def objective(name: str):
    """The objective of that name, as the tests use it."""
    from xlingjax.objectives import ernie_m, finetuning, unicoder, veco, xlm

    return {
        "clm": xlm.CLM(),
        "mlm": xlm.MLM(),
        "tlm": xlm.TLM(),
        "veco": veco.VECO(tlm=True),
        "camlm": ernie_m.CAMLM(),
        "btmlm": ernie_m.BTMLM(),
        "clwr": unicoder.CLWR(),
        "clpc": unicoder.CLPC(),
        "cl_mlm": unicoder.CLMLM(),
        "plug_in": finetuning.PlugIn(3),
    }[LAYOUTS.get(name, name)]

"""Tiny seeded batches in NumPy, one builder for every objective (used by fixtures and by the
scripts that tests start as processes)."""

import numpy as np

ROWS, LENGTH, SLOTS, VOCAB, LANGUAGES = 8, 16, 3, 96, ("de", "en", "zh")
BOS, EOS, PAD, MASK = 0, 0, 2, 5
FIRST_PIECE = 14
SENTINELS = (13, 12, 11, 10, 9, 8, 7, 6, 4)
"""The special tokens that stand for spans, in their order."""
OBJECTIVES = ("clm", "mlm", "tlm", "veco", "camlm", "btmlm", "clwr", "clpc", "cl_mlm")
GENERATED = ("translation", "back_translation", "xfnp", "span_corruption", "masked_words")
"""Objectives with a decoder."""
LABELLED = ("plug_in",)
"""Fine-tuning: a label per row and no `predictions`."""
PAIRS = ("tlm", "veco", "camlm", "clwr", "clpc", "plug_in")
SIDE_BY_SIDE = ("veco", "camlm")
"""Objectives whose prediction slots are those of side 0, then as many of side 1."""
LAYOUTS = {"camlm_slots": "camlm"}
"""Other layouts and the objectives that read them: their masks are worth a test, steps on them are
not."""


def batch(objective, seed=0, rows=ROWS, length=LENGTH, slots=SLOTS, vocab=VOCAB):
    """One batch of `objective`: rows end in padding of unequal width, slots are unequally used."""
    rng = np.random.default_rng([seed, (*OBJECTIVES, *LABELLED, *GENERATED).index(objective)])
    if objective == "back_translation":
        return restored(rng, rows, length, vocab)
    if objective == "xfnp":
        return hidden_runs(rng, rows, length, vocab)
    if objective == "span_corruption":
        return hidden_spans(rng, rows, length, vocab)
    if objective == "masked_words":
        return hidden_words(rng, rows, length, vocab)
    if objective in GENERATED:
        return decoded(rng, rows, length, vocab)
    fields = {
        name: np.zeros((rows, length), np.int32)
        for name in ("position_ids", "language_ids", "pack_ids", "sides")
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
            free = np.flatnonzero(
                real * (sides == group) if groups == 2 or objective == "btmlm" else real
            )[1:]
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


def decoded(rng, rows, length, vocab):
    """Sources and targets; the row before the last has two examples, the last one none."""
    fields = {
        name: np.zeros((rows, length), np.int32)
        for name in ("position_ids", "language_ids", "pack_ids")
    }
    fields["input_ids"] = np.full((rows, length), PAD, np.int32)
    decoder = {
        f"decoder_{name}": array.copy() for name, array in fields.items() if name != "input_ids"
    }
    decoder |= {
        "decoder_ids": fields["input_ids"].copy(),
        "decoder_targets": np.zeros((rows, length), np.int32),
    }
    decoder["decoder_weights"] = np.zeros((rows, length), np.float32)
    for row in range(rows - 1):
        starts = [0, 0]
        for number in range(1, 3 if row == rows - 2 else 2):
            most = length // 2 if row == rows - 2 else length
            source = target = length
            if row:
                source, target = (int(n) for n in rng.integers(most // 2, most + 1, 2))
            languages = rng.choice(len(LANGUAGES), 2, replace=False)
            text = [EOS, *rng.integers(FIRST_PIECE, vocab, source - 2), EOS]
            at, to = slice(starts[0], starts[0] + source), slice(starts[1], starts[1] + target)
            fields["input_ids"][row, at], fields["position_ids"][row, at] = text, np.arange(source)
            fields["language_ids"][row, at], fields["pack_ids"][row, at] = languages[0], number
            targets = [*rng.integers(FIRST_PIECE, vocab, target - 1), EOS]
            decoder["decoder_ids"][row, to] = [EOS, *targets[:-1]]
            decoder["decoder_position_ids"][row, to] = np.arange(target)
            decoder["decoder_language_ids"][row, to] = languages[1]
            decoder["decoder_pack_ids"][row, to] = number
            decoder["decoder_targets"][row, to], decoder["decoder_weights"][row, to] = targets, 1
            starts = [at.stop, to.stop]
    return fields | decoder


def restored(rng, rows, length, vocab):
    """One text in a row, source and target, the last row empty; and the language that the model
    translates it into."""
    fields = decoded(rng, rows, length, vocab)
    for row in range(rows):
        target = fields["decoder_pack_ids"][row] == 1
        used = min(int(target.sum()), length - 1) * (row < rows - 1)
        ids = fields["decoder_targets"][row, :used].copy()
        language = fields["decoder_language_ids"][row, 0]
        for name in [name for name in fields if name not in ("input_ids", "decoder_ids")]:
            fields[name][row] = 0
        fields["input_ids"][row], fields["decoder_ids"][row] = PAD, PAD
        if used:
            ids[-1] = EOS
            fields["input_ids"][row, : used + 1] = [EOS, *ids]
            fields["decoder_ids"][row, :used] = [EOS, *ids[:-1]]
            fields["decoder_targets"][row, :used] = ids
            for prefix, count in (("", used + 1), ("decoder_", used)):
                fields[f"{prefix}position_ids"][row, :count] = np.arange(count)
                fields[f"{prefix}language_ids"][row, :count] = language
                fields[f"{prefix}pack_ids"][row, :count] = 1
            fields["decoder_weights"][row, :used] = 1
    fields["special_ids"] = np.resize(np.arange(FIRST_PIECE), (rows, 16)).astype(np.int32)
    fields["edge_ids"] = np.resize([BOS, EOS, PAD], (rows, 3)).astype(np.int32)
    own = fields["language_ids"][:, 0]
    fields["pivot_languages"] = (
        (own + rng.integers(1, len(LANGUAGES), rows)) % len(LANGUAGES)
    ).astype(np.int32)
    return fields


def hidden_runs(rng, rows, length, vocab, block=5, span=3):
    """Texts with a hidden run in every full block after their first token, and these runs for the
    decoder; the row before the last has two examples, the last one none."""
    names = ("position_ids", "language_ids", "pack_ids")
    fields = {name: np.zeros((rows, length), np.int32) for name in names}
    fields["input_ids"] = np.full((rows, length), PAD, np.int32)
    width = span * ((length - 1) // block)
    decoder = {f"decoder_{name}": np.zeros((rows, width), np.int32) for name in (*names, "targets")}
    decoder |= {
        "decoder_ids": np.full((rows, width), PAD, np.int32),
        "run_offsets": np.zeros((rows, width), np.int32),
    }
    decoder["decoder_weights"] = np.zeros((rows, width), np.float32)
    for row in range(rows - 1):
        column = used = 0
        for number in range(1, 3 if row == rows - 2 else 2):
            most = length // 2 if row == rows - 2 else length
            size = int(rng.integers(max(most // 2, block + 1), most + 1)) if row else most
            text = np.array([EOS, *rng.integers(FIRST_PIECE, vocab, size - 2), EOS])
            at, language = slice(column, column + size), rng.choice(len(LANGUAGES))
            fields["position_ids"][row, at], fields["pack_ids"][row, at] = np.arange(size), number
            fields["language_ids"][row, at], fields["input_ids"][row, at] = language, text
            for begin in range(1, size - block + 1, block):
                run = begin + rng.integers(block - span + 1) + np.arange(span)
                fields["input_ids"][row, column + run] = MASK
                to = slice(used, used + span)
                values = {
                    "decoder_ids": text[run - 1], "decoder_targets": text[run],
                    "decoder_position_ids": run - 1, "decoder_pack_ids": number,
                    "decoder_language_ids": language, "decoder_weights": 1,
                    "run_offsets": np.arange(span),
                }  # fmt: skip
                for name, value in values.items():
                    decoder[name][row, to] = value
                used += span
            column += size
    return fields | decoder


def hidden_spans(rng, rows, length, vocab, spans=2, longest=2):
    """A text in each row, with spans behind a sentinel each, and for the decoder every sentinel and
    what it hides; the last row empty."""
    sides = {"": length, "decoder_": spans * (1 + longest) + 1}
    fields = {
        f"{side}{name}": np.zeros((rows, columns), np.int32)
        for side, columns in sides.items()
        for name in ("position_ids", "language_ids", "pack_ids")
    }
    fields["input_ids"] = np.full((rows, length), PAD, np.int32)
    fields["decoder_ids"] = np.full((rows, sides["decoder_"]), PAD, np.int32)
    fields["decoder_targets"] = np.zeros((rows, sides["decoder_"]), np.int32)
    fields["decoder_weights"] = np.zeros((rows, sides["decoder_"]), np.float32)
    for row in range(rows - 1):
        # The first row is full on both sides.
        size, count = length - 1, spans
        if row:
            size, count = int(rng.integers(length // 2, length)), int(rng.integers(1, spans + 1))
        columns = np.sort(rng.choice(np.arange(1, size, 2), count, replace=False))
        source = rng.integers(FIRST_PIECE, vocab, size)
        source[columns] = SENTINELS[:count]
        target = []
        for sentinel in SENTINELS[:count]:
            hidden = longest if row == 0 else rng.integers(1, longest + 1)
            target += [sentinel, *rng.integers(FIRST_PIECE, vocab, hidden)]
        target.append(EOS)
        language = rng.choice(len(LANGUAGES))
        for side, used in (("", size + 1), ("decoder_", len(target))):
            fields[f"{side}position_ids"][row, :used] = np.arange(used)
            fields[f"{side}language_ids"][row, :used] = language
            fields[f"{side}pack_ids"][row, :used] = 1
        fields["input_ids"][row, : size + 1] = [*source, EOS]
        fields["decoder_ids"][row, : len(target)] = [EOS, *target[:-1]]
        fields["decoder_targets"][row, : len(target)] = target
        fields["decoder_weights"][row, : len(target)] = 1
    return fields


def hidden_words(rng, rows, length, vocab, most=7):
    """A masked text in each row, and for the decoder its masked words and the end; the last row
    empty."""
    batch = hidden_spans(rng, rows, length, vocab, spans=1, longest=most - 1)
    for row in range(rows - 1):
        # As many as a row of spans has targets: the sentinel, what it hides, the end.
        count = int(batch["decoder_pack_ids"][row].sum()) - 1
        used = int(batch["pack_ids"][row].sum())
        words = rng.integers(FIRST_PIECE, vocab, count)
        source = [EOS, *rng.integers(FIRST_PIECE, vocab, used - 2), EOS]
        batch["input_ids"][row, :used] = source
        batch["input_ids"][row, np.sort(rng.choice(np.arange(1, used - 1), count, False))] = MASK
        batch["decoder_targets"][row, : count + 1] = [*words, EOS]
        batch["decoder_ids"][row, : count + 1] = [EOS, *words]
    return batch


def params(model, seed: int = 0, noise: float = 0.0):
    """Parameters of a model, about as large as its own first ones, and noise on all of them. Drawn
    by NumPy: to
    compile a model's `init` takes longer than most tests."""
    import jax

    rng, size = np.random.default_rng(seed), model.config.init_std or model.config.dim**-0.5

    def draw(path, leaf):
        first = {"scale": 1.0, "bias": 0.0}.get(path[-1].key)
        if first is None:
            first = size * rng.normal(size=leaf.shape)
        return jax.numpy.asarray(first + noise * rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, model.abstract())


def in_slots(batch):
    """A CAMLM batch whose MASKs stand in place -> the layout "slots": whole sentences, and behind
    them the MASKs, each with the position, language, side and pack of the word that it hides."""
    text, columns = batch["input_ids"].shape[1], batch["masked_positions"]
    used = batch["masked_weights"] > 0
    rows, slots = np.nonzero(used)
    whole = batch["input_ids"].copy()
    whole[rows, columns[rows, slots]] = batch["masked_targets"][rows, slots]
    before = {**batch, "input_ids": whole, "is_mask": np.zeros_like(whole)}
    behind = {
        name: np.where(used, np.take_along_axis(batch[name], columns, axis=1), 0)
        for name in ("position_ids", "language_ids", "pack_ids", "sides", "is_mask")
    }
    behind["input_ids"] = np.where(used, MASK, PAD)
    fields = {
        name: np.concatenate([before[name], behind[name]], axis=1).astype(np.int32)
        for name in behind
    }
    at = np.where(used, text + np.arange(columns.shape[1]), 0).astype(np.int32)
    return {**batch, **fields, "masked_positions": at}


def objective(name: str):
    """The objective of that name, as the tests use it."""
    from xlingjax.objectives import (
        back_translation,
        ernie_m,
        plug_in,
        translation,
        unicoder,
        veco,
        xglue,
        xlm,
    )

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
        "plug_in": plug_in.PlugIn(3),
        "translation": translation.Translation(smoothing=0.1),
        "back_translation": back_translation.BackTranslation(),
        "xfnp": xglue.XFNP(smoothing=0.1, alphas=(1.0, 0.5)),
        "span_corruption": translation.Translation("span_corruption"),
        "masked_words": translation.Translation("masked_words"),
    }[LAYOUTS.get(name, name)]

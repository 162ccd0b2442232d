"""Perplexity and accuracy per language on held-out text: of MLM and CLM on running text, of TLM on
pairs with the partner visible and hidden.

Masking is XLM's for validation (XLM code, `mask_out` and `evaluator`): 15 % of the tokens by
independent draws, at least one per row, all shown as MASK; drawn by row number from seed 0, so that
the figure does not depend on the batch. Perplexity is exp(total negative log-likelihood /
predictions); models are selected by the plain mean over languages.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.held_out_pairs import PIVOT, Pairs
from xlingjax.data.texts import Text
from xlingjax.errors import UserError
from xlingjax.inference.encode import on_xla, place, row_multiple
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.training.evaluator import Evaluator

MASK_RATE = 0.15
Rows = dict[str, np.ndarray]


# --- Rows -----------------------------------------------------------------------------------------


def text_rows(
    sentences: Sequence[str], vocabulary, length: int, language_id: int, limit: int = 0
) -> Rows:
    """Held-out text as training sees it: sentences one after the other, each closed by `</s>`, cut
    every `length` tokens; every row opens with `<s>`, but in layout "xlm". The rest that fills no
    row is dropped, unless it is all there is. Blank lines are skipped. `limit` > 0 bounds the rows.
    """
    start = [vocabulary.bos_id] if vocabulary.layout != "xlm" else []
    step = length - len(start)
    stream: list[int] = []
    for sentence in sentences:
        if limit and len(stream) >= limit * step:
            break
        if sentence.strip():
            stream += [*vocabulary.encode(sentence), vocabulary.eos_id]
    count = max(1, min(len(stream) // step, limit or len(stream)))
    chunks = [start + stream[i * step : (i + 1) * step] for i in range(count)]
    return _rows(chunks, None, vocabulary, length, (language_id, 0))


def sentence_rows(
    sentences: Sequence[str], vocabulary, length: int, language_id: int, limit: int = 0
) -> Rows:
    """One sentence a row, `<bos> x </s>`; those too long for a row and blank ones are left out,
    `limit` > 0 bounds
    the rows.
    """
    rows = [
        [vocabulary.bos_id, *vocabulary.encode(text), vocabulary.eos_id]
        for text in sentences
        if text.strip()
    ]
    rows = [row for row in rows if len(row) <= length][: limit or None]
    return _rows(rows, None, vocabulary, length, (language_id, 0))


def pair_rows(
    pairs: Pairs,
    vocabulary,
    length: int,
    language_ids: tuple[int, int],
    limit: int = 0,
    reset_positions: bool = True,
    each_opens: bool = False,
) -> Rows:
    """TLM rows `</s> x </s> </s> y </s>`, English second, `<s> x </s> </s> y </s>` in layout
    "xlmr"; pairs too long for a row are left out.

    reset_positions: positions start from 0 again at y (XLM); must be what the model was trained
    with. each_opens: y too begins with the token that opens a text, as in word recovery.
    """
    first, second = [], []
    for foreign, english in zip(pairs.foreign, pairs.english, strict=True):
        if limit and len(first) >= limit:
            break
        x = [vocabulary.bos_id, *vocabulary.encode(foreign), vocabulary.eos_id]
        y = [
            vocabulary.bos_id if each_opens else vocabulary.eos_id,
            *vocabulary.encode(english),
            vocabulary.eos_id,
        ]
        if foreign and english and len(x) + len(y) <= length:
            first.append(x)
            second.append(y)
    if not first:
        raise UserError(
            f"no {pairs.language}-{PIVOT} pair fits a row of {length} tokens: raise the length"
        )
    return _rows(first, second, vocabulary, length, language_ids, reset_positions)


def _rows(
    first,
    second,
    vocabulary,
    length: int,
    language_ids: tuple[int, int],
    reset_positions: bool = True,
) -> Rows:
    second = [[]] * len(first) if second is None else second
    turn_B1 = np.array([len(x) for x in first], np.int32).reshape(-1, 1)
    end_B1 = turn_B1 + np.array([len(y) for y in second], np.int32).reshape(-1, 1)
    column_L = np.arange(length)
    valid_BL, side_BL = column_L < end_B1, (column_L >= turn_B1) & (column_L < end_B1)
    input_ids = np.full(valid_BL.shape, vocabulary.pad_id, np.int32)
    for row, (x, y) in enumerate(zip(first, second, strict=True)):
        input_ids[row, : len(x) + len(y)] = [*x, *y]
    fields = {
        "position_ids": (column_L - turn_B1 * (side_BL & reset_positions)) * valid_BL,
        "language_ids": np.where(side_BL, language_ids[1], language_ids[0]) * valid_BL,
        "pack_ids": valid_BL,
        "sides": side_BL,
    }
    return {"input_ids": input_ids} | {
        name: values.astype(np.int32) for name, values in fields.items()
    }


def mask_for_validation(
    rows: Rows, mask_id: int, seed: int = 0, side: int | None = None
) -> Rows:
    """The rows with 15 % of their tokens, at least one per row, replaced by MASK, and the
    prediction slots that ask
    for them.

    Column 0 and padding are never chosen; `side` 0 or 1 keeps the choice to that side. Row r draws
    from (seed, r) alone.
    """
    chosen_BL = np.zeros(rows["input_ids"].shape, bool)
    allowed_BL = (rows["pack_ids"] > 0) & (np.arange(chosen_BL.shape[1]) > 0)
    if side is not None:
        allowed_BL &= rows["sides"] == side
    for row in range(len(chosen_BL)):
        candidates = np.flatnonzero(allowed_BL[row])
        if len(candidates) == 0:
            continue
        draws = np.random.default_rng((seed, row)).random(len(candidates))
        chosen_BL[row, candidates[draws < MASK_RATE]] = True
        chosen_BL[row, candidates[draws.argmin()]] = True
    counts_B = chosen_BL.sum(axis=1)
    slots = -(-max(1, counts_B.max()) // 8) * 8
    positions_BM = np.zeros((len(chosen_BL), slots), np.int32)
    for row, columns_L in enumerate(chosen_BL):
        positions_BM[row, : counts_B[row]] = np.flatnonzero(columns_L)
    used_BM = np.arange(slots) < counts_B[:, None]
    targets_BM = np.take_along_axis(rows["input_ids"], positions_BM, axis=1)
    return rows | {
        "input_ids": np.where(chosen_BL, mask_id, rows["input_ids"]).astype(np.int32),
        "masked_positions": positions_BM,
        "masked_targets": np.where(used_BM, targets_BM, 0).astype(np.int32),
        "masked_weights": used_BM.astype(np.float32),
    }


def same_slots(parts: Sequence[Rows]) -> list[Rows]:
    """Each with as many prediction slots as the widest, so that they share batches and
    compilations."""
    if "masked_positions" not in parts[0]:
        return list(parts)
    slots = max(rows["masked_positions"].shape[1] for rows in parts)
    return [
        {
            name: (
                np.pad(values, [(0, 0), (0, slots - values.shape[1])])
                if name.startswith("masked_")
                else values
            )
            for name, values in rows.items()
        }
        for rows in parts
    ]


def hide_partner(rows: Rows) -> Rows:
    """The same rows and predictions, each side an example of its own: attention stays within a
    side, as if the other were not there.
    """
    return rows | {
        "pack_ids": (rows["pack_ids"] * (1 + rows["sides"])).astype(np.int32)
    }


# --- Sums -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def _sums(model, objective, languages: int, mesh):
    model = on_xla(model, mesh)

    def run(params, batch):
        metrics = objective.loss(model, params, batch, None, languages).metrics
        return {
            key: metrics[f"{objective.name}/{key}_by_language"]
            for key in ("loss", "accuracy")
        }

    return jax.jit(
        run,
        out_shardings=NamedSharding(mesh, PartitionSpec())
        if mesh is not None
        else None,
    )


def scores(
    model,
    params,
    objective,
    rows: Rows,
    languages: Sequence[str],
    *,
    batch_size: int = 16,
    mesh=None,
) -> tuple[dict[str, float], dict[str, float]]:
    """{language: exp(NLL / predictions)} and {language: share of predictions that are right}, for
    the languages that the rows predict something in.

    objective: on the Objective contract, with `<name>/loss_by_language` and `accuracy_by_language`
    metrics. The last batch is filled up with empty rows.
    """
    run = _sums(model, objective, len(languages), mesh)
    multiple = row_multiple(mesh)
    size = -(-batch_size // multiple) * multiple
    nll_G, right_G, count_G = np.zeros((3, len(languages)))
    fields = {name: rows[name] for name in (*objective.reads, "sides") if name in rows}
    for start in range(0, len(rows["input_ids"]), size):
        part = {name: values[start : start + size] for name, values in fields.items()}
        missing = size - len(part["input_ids"])
        part = {
            name: np.pad(values, [(0, missing), (0, 0)])
            for name, values in part.items()
        }
        sums = run(params, place(part, mesh))
        nll_G += np.asarray(sums["loss"][0], np.float64)
        right_G += np.asarray(sums["accuracy"][0], np.float64)
        count_G += np.asarray(sums["loss"][1], np.float64)
    predicted = [(i, name) for i, name in enumerate(languages) if count_G[i] > 0]
    # Past e^100 a perplexity says no more than "infinite", and JSON has no infinity.
    perplexities = {
        name: math.exp(min(nll_G[i] / count_G[i], 100.0)) for i, name in predicted
    }
    return perplexities, {name: float(right_G[i] / count_G[i]) for i, name in predicted}


def perplexity(*args, **options) -> dict[str, float]:
    """The perplexities of `scores`."""
    return scores(*args, **options)[0]


def mean(by_language: Mapping[str, float]) -> float:
    """The arithmetic mean over languages; of perplexities it is XLM's selection criterion."""
    return float(np.mean(list(by_language.values())))


# --- Evaluators -----------------------------------------------------------------------------------


@dataclass
class TextPerplexity(Evaluator):
    """MLM (or CLM) perplexity on held-out text, {language: its text}, as an evaluator of the
    training loop.

    Values: {"by_language": {language: perplexity}, "mean": x, "accuracy_by_language": {language:
    share of the masked pieces (CLM: of the next pieces) that are guessed right}, "accuracy_mean":
    x}. `limit` rows of `length` tokens per language bound its cost.
    """

    texts: Mapping[str, Text]
    vocabulary: Any
    languages: Sequence[str]
    length: int = 128
    limit: int = 64
    batch_size: int = 16
    causal: bool = False
    seed: int = 0
    name: str = "perplexity"

    def __post_init__(self):
        parts = []
        for language, text in sorted(self.texts.items()):
            if language not in self.languages:
                raise UserError(
                    f"{text.path}: language {language!r} is not one of the run's"
                    f" ({', '.join(self.languages)})"
                )
            sentences = list(text.lines())
            if not any(sentences):
                raise UserError(f"{text.path}: no sentences to measure perplexity on")
            index = list(self.languages).index(language)
            rows = text_rows(sentences, self.vocabulary, self.length, index, self.limit)
            parts.append(
                rows
                if self.causal
                else mask_for_validation(rows, self.vocabulary.mask_id, self.seed)
            )
        parts = same_slots(parts)
        self._rows = {
            name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]
        }

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        objective = CLM() if self.causal else MLM()
        values, right = scores(
            model,
            params,
            objective,
            self._rows,
            self.languages,
            batch_size=self.batch_size,
            mesh=mesh,
        )
        return {
            "kind": "perplexity",
            "by_language": values,
            "mean": mean(values),
            "accuracy_by_language": right,
            "accuracy_mean": mean(right),
        }


@dataclass
class TranslationPerplexity(Evaluator):
    """TLM perplexity on held-out pairs with the partner sentence visible and hidden, the same
    positions predicted.

    How far `visible` lies below `hidden` is what the model draws from the translation; `hidden` is
    MLM on each side alone. Values: {"visible": {"xx-en": {"xx": ppl, "en": ppl}}, "hidden": the
    same, "visible_mean": x, "hidden_mean": x}.
    """

    pairs: Mapping[str, Pairs]
    vocabulary: Any
    languages: Sequence[str]
    length: int = 128
    limit: int = 128
    batch_size: int = 16
    reset_positions: bool = True
    seed: int = 0
    name: str = "translation_perplexity"

    def __post_init__(self):
        self._rows = {}
        for language, pairs in self.pairs.items():
            for needed in (language, PIVOT):
                if needed not in self.languages:
                    raise UserError(
                        f"{language}-{PIVOT} pairs: {needed!r} is not one of the run's languages "
                        f"({', '.join(self.languages)})"
                    )
            ids = (
                list(self.languages).index(language),
                list(self.languages).index(PIVOT),
            )
            rows = pair_rows(
                pairs,
                self.vocabulary,
                self.length,
                ids,
                self.limit,
                self.reset_positions,
            )
            self._rows[f"{language}-{PIVOT}"] = mask_for_validation(
                rows, self.vocabulary.mask_id, self.seed
            )
        self._rows = dict(
            zip(self._rows, same_slots(list(self._rows.values())), strict=True)
        )

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        out: dict[str, Any] = {"kind": "translation_perplexity"}
        for kind, view in (("visible", lambda rows: rows), ("hidden", hide_partner)):
            out[kind] = {
                name: perplexity(
                    model,
                    params,
                    TLM(),
                    view(rows),
                    self.languages,
                    batch_size=self.batch_size,
                    mesh=mesh,
                )
                for name, rows in self._rows.items()
            }
            out[f"{kind}_mean"] = mean(
                {name: mean(sides) for name, sides in out[kind].items()}
            )
        return out

"""Perplexity and accuracy per language on held-out text: of MLM and CLM on running text, of TLM on
pairs with the partner visible and hidden.

Masking is XLM's for validation (XLM code, `mask_out` and `evaluator`): 15 % of the tokens by
independent draws, at least one per row, all shown as MASK; drawn by row number from seed 0, so that
the figure does not depend on the batch. Perplexity is exp(total negative log-likelihood /
predictions); models are selected by the plain mean over languages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.held_out_pairs import Pairs, held_out
from xlingjax.data.overlap import HeldOut
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError
from xlingjax.inference.encode import rows_of
from xlingjax.inference.forward import by_batch, compiled
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors import finetuning
from xlingjax.training.evaluator import Evaluator

MASK_RATE = 0.15
Rows = dict[str, np.ndarray]


def text_rows(
    sentences: Sequence[str], vocabulary, length: int, language_id: int, limit: int = 0
) -> Rows:
    """Held-out text as training sees it: sentences one after the other, each closed by `</s>`, cut
    every `length` tokens; every row opens with `<s>`, but in layout "xlm". The rest that fills no
    row is dropped, unless it is all there is. Blank lines are skipped. `limit` > 0 bounds the rows.
    """
    start = [] if vocabulary.layout == "xlm" else [vocabulary.bos_id]
    step = length - len(start)
    stream = []
    for sentence in sentences:
        if limit and len(stream) >= limit * step:
            break
        if sentence.strip():
            stream += [*vocabulary.encode(sentence), vocabulary.eos_id]
    # A short text gives one row that is not full, and not nothing.
    count = max(1, min(len(stream) // step, limit or len(stream)))
    chunks = [start + stream[i * step : (i + 1) * step] for i in range(count)]
    return rows_of(chunks, language_id, vocabulary.pad_id, count, length)


def language_id(language: str, languages: Sequence[str], where: Any) -> int:
    """Its number among the run's. Raises UserError where it is none of them."""
    if language not in languages:
        raise UserError(
            f"{where}: language {language!r} is not one of the run's ({', '.join(languages)})"
        )
    return list(languages).index(language)


def rows_of_text(
    text: Text, language: str, languages: Sequence[str], vocabulary, length: int, limit: int
) -> Rows:
    """`text_rows` of a file. Raises UserError: not a language of the run, no sentences."""
    index = language_id(language, languages, text.path)
    sentences = list(text.lines())
    if not any(sentences):
        raise UserError(f"{text.path}: no sentences to measure perplexity on")
    return text_rows(sentences, vocabulary, length, index, limit)


def sentence_rows(
    sentences: Sequence[str], vocabulary, length: int, language_id: int, limit: int = 0
) -> Rows:
    """One sentence a row, `<bos> x </s>`; those too long for a row and blank ones are left out,
    `limit` > 0 bounds the rows."""
    written = filter(str.strip, sentences)
    rows = [[vocabulary.bos_id, *vocabulary.encode(text), vocabulary.eos_id] for text in written]
    # After long ones are left out, so that the limit counts what is measured.
    rows = [row for row in rows if len(row) <= length][: limit or None]
    return rows_of(rows, language_id, vocabulary.pad_id, len(rows), length)


def pair_rows(
    pairs: Pairs,
    vocabulary,
    length: int,
    language_ids: Sequence[int],
    limit: int = 0,
    reset_positions: bool = True,
) -> Rows:
    """TLM rows `</s> x </s> </s> y </s>`, English second, `<s> x </s> </s> y </s>` in layout
    "xlmr"; pairs too long for a row are left out.

    reset_positions: positions start from 0 again at y (XLM); must be what the model was trained
    with.
    """
    both = []
    for foreign, english in zip(pairs.foreign, pairs.english, strict=True):
        if limit and len(both) >= limit:
            break
        sides = vocabulary.encode(foreign), vocabulary.encode(english)
        if foreign and english and sum(map(len, sides)) + 4 <= length:
            both.append(sides)
    if not both:
        raise UserError(
            f"no {pairs.language}-{pairs.pivot} pair fits a row of {length} tokens: raise the"
            " length"
        )
    rows = finetuning.pair_rows(
        *map(finetuning.joined, zip(*both, strict=True)), vocabulary, length, True
    )
    if not reset_positions:
        rows["position_ids"] = np.arange(length, dtype=np.int32) * rows["pack_ids"]
    languages_BL = np.array(language_ids, np.int32)[rows["sides"]]
    return rows | {"language_ids": languages_BL * rows["pack_ids"]}


def mask_for_validation(rows: Rows, mask_id: int, seed: int = 0) -> Rows:
    """The rows with 15 % of their tokens, at least one per row, replaced by MASK, and the
    prediction slots that ask for them.

    Never column 0 or padding. Row r draws from (seed, r).
    """
    chosen_BL = np.zeros(rows["input_ids"].shape, bool)
    allowed_BL = (rows["pack_ids"] > 0) & (np.arange(chosen_BL.shape[1]) > 0)
    for row in range(len(chosen_BL)):
        candidates = np.flatnonzero(allowed_BL[row])
        # By row, so that a row has its masks whatever stands before it.
        draws = np.random.default_rng((seed, row)).random(len(candidates))
        chosen = (draws < MASK_RATE) | (draws == draws.min(initial=1))
        chosen_BL[row, candidates[chosen]] = True
    counts_B = chosen_BL.sum(axis=1)
    slots = -(-max(1, counts_B.max()) // 8) * 8
    positions_BM = np.zeros((len(chosen_BL), slots), np.int32)
    for row, columns_L in enumerate(chosen_BL):
        positions_BM[row, : counts_B[row]] = np.flatnonzero(columns_L)
    # Slots beyond a row's own name column 0, and their weight is 0.
    used_BM = np.arange(slots) < counts_B[:, None]
    targets_BM = np.take_along_axis(rows["input_ids"], positions_BM, axis=1)
    return rows | {
        "input_ids": np.where(chosen_BL, mask_id, rows["input_ids"]).astype(np.int32),
        "masked_positions": positions_BM,
        "masked_targets": np.where(used_BM, targets_BM, 0).astype(np.int32),
        "masked_weights": used_BM.astype(np.float32),
    }


def same_slots(parts: Sequence[Rows]) -> list[Rows]:
    """Each with as many prediction slots as the widest: they share batches and compilations."""
    most = max(rows["masked_weights"].shape[1] for rows in parts)
    wider = []
    for rows in parts:
        more = [(0, 0), (0, most - rows["masked_weights"].shape[1])]
        slots = {name: of for name, of in rows.items() if name.startswith("masked_")}
        wider.append(rows | {name: np.pad(of, more) for name, of in slots.items()})
    return wider


def joined(parts: Sequence[Rows]) -> Rows:
    """All rows, one part after the other."""
    if "masked_weights" in parts[0]:
        parts = same_slots(parts)
    return {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}


def hide_partner(rows: Rows) -> Rows:
    """The same rows, each side an example of its own: attention does not see the other."""
    return rows | {"pack_ids": (rows["pack_ids"] * (1 + rows["sides"])).astype(np.int32)}


def _sums(model, objective, languages: int, params, batch):
    metrics = objective.loss(model, params, batch, None, languages).metrics
    return {key: metrics[f"{objective.name}/{key}_by_language"] for key in ("loss", "accuracy")}


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
    fields = {name: rows[name] for name in (*objective.reads, "sides") if name in rows}
    run = compiled(_sums, model, mesh, objective, len(languages))
    # In double precision on the host: sums over many batches lose digits in float32.
    nll_G, right_G, count_G = np.zeros((3, len(languages)))
    for sums, _ in by_batch(run, params, fields, batch_size, mesh):
        nll_G += np.asarray(sums["loss"][0], np.float64)
        right_G += np.asarray(sums["accuracy"][0], np.float64)
        count_G += np.asarray(sums["loss"][1], np.float64)
    perplexities, accuracies = {}, {}
    for language, nll, right, count in zip(languages, nll_G, right_G, count_G, strict=True):
        if count:
            # Past e^100 a perplexity says no more than "infinite", and JSON has no infinity.
            perplexities[language] = math.exp(min(nll / count, 100.0))
            accuracies[language] = float(right / count)
    return perplexities, accuracies


def mean(by_language: Mapping[str, float]) -> float:
    """The arithmetic mean over languages; of perplexities it is XLM's selection criterion."""
    return float(np.mean(list(by_language.values())))


@dataclass
class TextPerplexity(Evaluator):
    """MLM (or CLM) perplexity on held-out text, {language: its text}, as an evaluator.

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
            rows = rows_of_text(
                text, language, self.languages, self.vocabulary, self.length, self.limit
            )
            if not self.causal:
                rows = mask_for_validation(rows, self.vocabulary.mask_id, self.seed)
            parts.append(rows)
        self._rows = joined(parts)

    def held_out(self) -> list[HeldOut]:
        return [
            HeldOut(str(text.path), (language,), (tuple(text.lines()),))
            for language, text in self.texts.items()
        ]

    def __call__(self, model, params, step: int, mesh=None) -> dict:
        # Made here: a run may have trained by another objective, and figures must compare.
        objective = CLM() if self.causal else MLM()
        of = model, params, objective, self._rows, self.languages
        values, right = scores(*of, batch_size=self.batch_size, mesh=mesh)
        return {
            "kind": "perplexity",
            "by_language": values,
            "mean": mean(values),
            "accuracy_by_language": right,
            "accuracy_mean": mean(right),
        }


@dataclass
class TranslationPerplexity(Evaluator):
    """TLM perplexity on held-out pairs with the partner visible and hidden, at the same positions.

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
        made = {}
        for language, pairs in self.pairs.items():
            name = f"{language}-{pairs.pivot}"
            codes = language, pairs.pivot
            ids = tuple(language_id(code, self.languages, f"{name} pairs") for code in codes)
            of = pairs, self.vocabulary, self.length, ids, self.limit, self.reset_positions
            made[name] = mask_for_validation(pair_rows(*of), self.vocabulary.mask_id, self.seed)
        self._rows = dict(zip(made, same_slots([*made.values()]), strict=True))

    def held_out(self) -> list[HeldOut]:
        return held_out(self.pairs)

    def __call__(self, model, params, step: int, mesh=None) -> dict:
        visible = self._rows
        hidden = {name: hide_partner(rows) for name, rows in self._rows.items()}
        out = {"kind": "translation_perplexity"}
        for kind, parts in (("visible", visible), ("hidden", hidden)):
            # Hidden and visible ask for the same words, so they are compared pair by pair.
            by_pair = {}
            for name, rows in parts.items():
                of = model, params, TLM(), rows, self.languages
                by_pair[name], _ = scores(*of, batch_size=self.batch_size, mesh=mesh)
            out[kind] = by_pair
            out[f"{kind}_mean"] = mean({name: mean(of) for name, of in by_pair.items()})
        return out

"""The sections of a report: each gives its HTML parts, or nothing where the run has nothing to
show."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlingjax.evaluation.alignment import METHODS
from xlingjax.report import drawing, html, intervals, plots, retrieval_plots
from xlingjax.report.alignment import by_layer
from xlingjax.report.run import Run
from xlingjax.training.stages import stage_of

LOSS_NOTE = (
    "Loss: mean negative log-likelihood per prediction, in nats, over the steps since the line"
    " before."
)
ROWS_NOTE = (
    "A row of each objective's first batch, where it is in several languages coloured by them;"
    " every mask once. Tables of the tokens: `xlingjax inspect`."
)
RETRIEVAL_NOTE = (
    "An English sentence finds its translation among the pairs' foreign sentences: cosine of"
    " {pooling}-pooled states, exact search, every figure at the layer best for the mean over"
    " languages, which is chosen on these same pairs. raw: as they are; centred: each side's mean"
    " vector removed first. More pairs make a harder search: compare only equal numbers."
)
SIMILARITY_NOTE = (
    "Cosine between the languages' mean vectors, over the retrieval sentences, at the layer best"
    " for raw retrieval ({layer})."
)
PERPLEXITY_NOTE = (
    "exp(total negative log-likelihood / predictions); 15 % of the tokens masked from a fixed seed,"
    " all shown as MASK; mean: arithmetic over languages. Perplexities compare only under one"
    " vocabulary. Partner hidden and visible: the same positions, attention to the translation"
    " barred or open."
)
INTERVAL_NOTE = (
    "In brackets, of fewer than 1,000 pairs or examples: where 95 % of such samples have the true"
    " value (Wilson)."
)
ALIGNMENT_NOTE = (
    "Alignment error rate against gold links, all of them sure (Och & Ney 2003): 0 is best. Links"
    " from the similarity of states by SimAlign's methods; layer 0 is the embedding output. The"
    " best layer is chosen on these same pairs."
)
TAGGING_NOTE = (
    "Accuracy: share of words; F1: of entities. The mean leaves out the languages that were"
    " trained on."
)
ANSWER_NOTE = (
    "F1 of tokens / exact match, in %, of answers cut out of their contexts. squad: by English"
    " rules in any language, as XQuAD and TyDiQA have it; mlqa: by the rules of each. The mean"
    " leaves out the languages that were trained on."
)
ACCURACY_NOTE = (
    "Accuracy per language of a fine-tuned classifier; the mean leaves out the languages it was"
    " trained on."
)


def rows(run: Run) -> list[str]:
    """What `inspector.first_rows` made after the first step."""
    if not run.rows:
        return []
    return [run.rows, html.note(ROWS_NOTE)]


def training(run: Run, runs: Mapping[str, Run]) -> list[str]:
    rows = []
    for name, one in runs.items():
        for objective in one.objectives:
            # Every objective listed has a line, since the list is made of the lines.
            last = one.lines(objective)[-1]
            figures = _cells(last, ("step", "tokens_seen", "loss", "accuracy"))
            rows.append([name, objective, *figures])
    if not rows:
        return []
    return [
        drawing.drawn(plots.losses(runs), "training loss per objective"),
        html.table(["run", "objective", "last step", "tokens seen", "loss", "accuracy"], rows),
        html.note(LOSS_NOTE),
        drawing.drawn(plots.machinery(run), "over training"),
    ]


def _cells(values: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """Of one row; None, which is shown as a dash, for what it lacks."""
    return [values.get(name) for name in names]


def _row_of(columns: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Of a table by language; None for a column that lacks it."""
    return [column.get(name) for column in columns]


def languages(run: Run) -> list[str]:
    losses = plots.by_language(run)
    accuracies = plots.by_language(run, "accuracy_by_language", "training accuracy (%)", scale=100)
    return [drawing.drawn(losses, "per language"), drawing.drawn(accuracies, "per language")]


def retrieval(run: Run, runs: Mapping[str, Run]) -> list[str]:
    values = run.last("retrieval")
    if values is None:
        return []
    parts = [
        drawing.drawn(retrieval_plots.retrieval_runs(runs), "retrieval of the compared runs"),
        drawing.drawn(retrieval_plots.retrieval_by_layer(run), "retrieval by layer over training"),
    ]
    pairs = values["pairs"]
    columns = {}
    for name, one in runs.items():
        for kind, title in retrieval_plots.KINDS.items():
            column = _best_column(one.last("retrieval"), f"{kind}_en_to_xx")
            if column:
                columns[_of(name, f"{title} (%)", runs)] = column
    # Floors stand in the same table: a figure below them says nothing of alignment.
    floors = run.last("floors") or {}
    titles = {"char_tfidf": "character TF-IDF (%)", "lsi": "LSI on the training pairs (%)"}
    for floor, title in titles.items():
        if floors.get(floor):
            column = {}
            for name, scores in floors[floor].items():
                column[name] = scores["raw_en_to_xx"]
            # Over the languages that the floor was measured
            # on, which may be fewer than the table's.
            column["mean"] = floors["mean"][floor]
            columns[title] = column
    by_chance = {language: 1 / count for language, count in pairs.items()}
    by_chance["mean"] = retrieval_plots.chance(values)
    rows = []
    for language, count in pairs.items():
        cells = [_with_interval(column.get(language), count) for column in columns.values()]
        shown = html.percent(by_chance[language])
        rows.append([language, count, *cells, shown])
    means = _percents(list(columns.values()), "mean")
    rows.append(["mean", "", *means, html.percent(by_chance["mean"])])
    head = ["language", "pairs", *columns, "chance (%)"]
    parts.append(html.table(head, rows, mean_rows=1))
    pooling = next(iter(values["by_layer"]))
    note = RETRIEVAL_NOTE.format(pooling=pooling)
    if min(pairs.values()) < intervals.FEW:
        note += f" {INTERVAL_NOTE}"
    parts.append(html.note(note))
    return parts + retrieval_plots.by_layer_tables(values)


def _of(name: str, column: str, runs: Mapping[str, Any]) -> str:
    """The head of a run's column; one run alone needs no name."""
    if len(runs) == 1:
        return column
    return f"{name}, {column}"


def _with_interval(share: float | None, count: int) -> str | None:
    """In percent; of few cases with what it may be."""
    if share is None or count >= intervals.FEW:
        return html.percent(share)
    low, high = intervals.of_share(share, count)
    return f"{html.percent(share)} ({100 * low:.0f}–{100 * high:.0f})"


def _percents(columns: Sequence[Mapping[str, float]], name: str) -> list[str | None]:
    """As `_row_of`, in percent."""
    return list(map(html.percent, _row_of(columns, name)))


def _best_column(values: Mapping[str, Any] | None, score: str) -> dict[str, float] | None:
    """{language: accuracy} at the layer best for `score`, with the mean over languages as
    "mean"."""
    if values is None:
        return None
    # Of several poolings the first, which the plain figures are of.
    pooling = next(iter(values["by_language"]))
    best = values["best"][pooling][score]
    layer = str(best["layer"])
    column = {}
    for language, layers in values["by_language"][pooling].items():
        column[language] = layers[layer][score]
    column["mean"] = best["value"]
    return column


def similarity(run: Run) -> list[str]:
    values = run.last("retrieval")
    if values is None:
        return []
    return [
        retrieval_plots.similarity_table(values),
        html.note(SIMILARITY_NOTE.format(layer=values["similarity"]["layer"])),
    ]


def perplexity(runs: Mapping[str, Run]) -> list[str]:
    run = next(iter(runs.values()))
    parts = [drawing.drawn(plots.perplexities(run), "held-out perplexity over training")]
    text = _last_of(runs, "perplexity")
    if text:
        by_language = _row_of(text.values(), "by_language")
        rows = []
        for language in _in_order(by_language):
            rows.append([language, *_row_of(by_language, language)])
        rows.append(["mean", *_row_of(text.values(), "mean")])
        guesses = [plots.vocabulary_size(runs[name]) for name in text]
        if any(guesses):
            rows.append(["uniform guess", *guesses])
        mean_rows = 1 + any(guesses)
        parts.append(html.table(["running text", *text], rows, mean_rows=mean_rows))
    pairs = _last_of(runs, "translation_perplexity")
    if pairs:
        parts += ["<h3>Translated pairs</h3>", _table_of_pairs(pairs)]
    if text or pairs:
        parts.append(html.note(PERPLEXITY_NOTE))
    return parts


def _last_of(runs: Mapping[str, Run], kind: str) -> dict[str, Any]:
    """{name of a run: its last values of an evaluator}, of those that have some."""
    last = {}
    for name, run in runs.items():
        values = run.last(kind)
        if values:
            last[name] = values
    return last


def _in_order(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """All keys, in the order in which they are met."""
    names: dict[str, None] = {}
    for table in tables:
        names |= dict.fromkeys(table)
    return list(names)


def _table_of_pairs(pairs: Mapping[str, Any]) -> str:
    """Of each side of each pair, the partner hidden and visible; a column for each run and kind."""
    head = ["side"]
    columns = []
    means = []
    for name, values in pairs.items():
        for kind in ("hidden", "visible"):
            head.append(_of(name, f"partner {kind}", pairs))
            columns.append(values[kind])
            means.append(values[f"{kind}_mean"])
    # In the order in which they are met; a side has a row whichever run measured it.
    sides: dict[tuple[str, str], None] = {}
    for values in pairs.values():
        for pair, by_side in values["visible"].items():
            for side in by_side:
                sides[pair, side] = None
    rows = []
    for pair, side in sides:
        figures = [column.get(pair, {}).get(side) for column in columns]
        rows.append([f"{side} of {pair}", *figures])
    rows.append(["mean", *means])
    return html.table(head, rows, mean_rows=1)


def accuracy(runs: Sequence[Run]) -> list[str]:
    """Classification by language."""
    return _by_language(runs, "accuracy", ACCURACY_NOTE)


def tagging(runs: Sequence[Run]) -> list[str]:
    """Tagging by language."""
    return _by_language(runs, "tagging", TAGGING_NOTE)


def answers(runs: Sequence[Run]) -> list[str]:
    """Span question answering by language."""
    evaluated = _evaluated(runs, "span_qa")
    if not evaluated:
        return []

    def both(f1: float | None, exact: float | None) -> str | None:
        if f1 is None:
            return None
        return f"{html.percent(f1)} / {html.percent(exact)}"

    last = [values for _, values in evaluated]
    f1 = _row_of(last, "by_language")
    exact = _row_of(last, "exact_match_by_language")
    rows = []
    for language in _in_order(f1):
        cells = map(both, _row_of(f1, language), _row_of(exact, language))
        rows.append([language, *cells])
    mean_exact = _row_of(last, "mean_other_exact_match")
    means = map(both, _row_of(last, "mean_other"), mean_exact)
    rows.append(["mean of the others", *means])
    head = ["language"]
    for title, values in evaluated:
        head.append(f"{title} ({values['metric']})")
    return [html.table(head, rows, mean_rows=1), html.note(ANSWER_NOTE)]


def _evaluated(runs: Sequence[Run], kind: str) -> list[tuple[str, Any]]:
    """("RUN: EVALUATOR", its last values) of all evaluators of a kind."""
    last = []
    for run in runs:
        for name, evaluations in run.evaluated(kind).items():
            _, values = evaluations[-1]
            last.append((f"{run.path.name}: {name}", values))
    return last


def _by_language(runs: Sequence[Run], kind: str, note: str) -> list[str]:
    evaluated = _evaluated(runs, kind)
    if not evaluated:
        return []
    units = {"f1": "F1, %", "accuracy": "accuracy, %"}
    others = "mean of the others"
    columns: dict[str, dict[str, str | None]] = {}
    counts: list[int] = []
    for title, values in evaluated:
        unit = "%"
        if "metric" in values:
            unit = units[values["metric"]]
        # Answers come without counts.
        examples = values.get("examples", {})
        column = {}
        for language, share in values["by_language"].items():
            count = examples.get(language, intervals.FEW)
            column[language] = _with_interval(share, count)
        column[others] = html.percent(values.get("mean_other"))
        columns[f"{title} ({unit})"] = column
        if "commonest" in values:
            columns[f"{title}: commonest label (%)"] = {
                language: html.percent(share) for language, share in values["commonest"].items()
            }
        counts += examples.values()
    if counts and min(counts) < intervals.FEW:
        note = f"{note} {INTERVAL_NOTE}"
    rows = []
    for language in _in_order([values["by_language"] for _, values in evaluated]):
        rows.append([language, *_row_of(columns.values(), language)])
    rows.append([others, *_row_of(columns.values(), others)])
    head = ["language", *columns]
    return [html.table(head, rows, mean_rows=1), html.note(note)]


def alignment(run: Run) -> list[str]:
    values = run.last("alignment")
    if values is None:
        return []
    head = ["mean over languages", *(f"{method} (%)" for method in METHODS)]
    rows = []
    for layer, errors in values["by_layer"].items():
        cells = map(html.percent, _cells(errors, METHODS))
        rows.append([drawing.layer_name(layer), *cells])
    return [html.table(head, rows), html.note(ALIGNMENT_NOTE), *by_layer(run)]


def sampling_tables(run: Run) -> dict[str, list[dict[str, Any]]]:
    """{stage of an objective: the sampling table of its data}, epochs added for the steps that it
    took."""
    tables = {}
    data = run.record.get("identity", {}).get("data", {})
    for name, identity in data.items():
        rows = identity.get("sampling_table", [])
        if not rows:
            continue
        objective, start = stage_of(name)
        end = math.inf
        for other, begin in map(stage_of, data):
            if other == objective and begin > start:
                end = min(end, begin)
        # A line is of one stage: training logs where one begins.
        taken = 0
        for line in run.lines(objective):
            if start < line["step"] <= end:
                # By steps and not by the last step: objectives take turns.
                taken += line.get("steps", 0)
        tables[name] = []
        for row in rows:
            epochs = row["epochs_per_1000_steps"] * taken / 1000
            tables[name].append(row | {"epochs": epochs})
    return tables


def sampling(run: Run) -> list[str]:
    head = ["text", "sentences", "tokens", "share of rows (%)", "epochs so far"]
    parts = []
    for objective, rows in sampling_tables(run).items():
        cells = []
        for row in rows:
            share = html.percent(row["share"])
            epochs = round(row["epochs"], 2)
            cells.append([row["name"], row["sentences"], row["tokens"], share, epochs])
        parts += [f"<h3>{html.esc(objective.upper())}</h3>", html.table(head, cells)]
    return parts


def setting(run: Run) -> list[str]:
    parts = []
    versions = run.last_start.get("versions")
    if versions:
        named = [f"{name} {version}" for name, version in versions.items()]
        parts.append(html.note(" · ".join(named)))
    sessions = []
    # A run that was stopped may have gone on elsewhere, with other versions.
    for session in run.record.get("sessions", []):
        sessions.append(_cells(session, ("time", "step", "machine", "weights")))
    if sessions:
        parts.append(html.table(["started", "at step", "machine", "weights from"], sessions))
    if run.config:
        parts.append(html.details("config.gin", run.config))
    settings = {}
    for name in ("model", "optimizer", "objectives", "schedule", "microbatches"):
        if name in run.record:
            settings[name] = run.record[name]
    if settings:
        parts.append(html.details("model, optimizer, objectives", _json(settings)))
    data = {}
    for name, identity in run.record.get("identity", {}).get("data", {}).items():
        data[name] = dict(identity)
        # Sampling tables have a section of their own.
        data[name].pop("sampling_table", None)
    if data:
        parts.append(html.details("data", _json(data)))
    return parts


def _json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False)

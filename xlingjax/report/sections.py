"""The sections of a report: each gives its HTML parts, or nothing where the run has nothing to
show."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.evaluation.alignment import METHODS
from xlingjax.report import html, plots
from xlingjax.report.alignment import by_layer
from xlingjax.report.run import Run
from xlingjax.report.summary import key
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
    " for raw retrieval."
)
PERPLEXITY_NOTE = (
    "exp(total negative log-likelihood / predictions); 15 % of the tokens masked from a fixed seed,"
    " all shown as MASK; mean: arithmetic over languages. Perplexities compare only under one"
    " vocabulary. Partner hidden and visible: the same positions, attention to the translation"
    " barred or open."
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


def tiles(summary: Mapping[str, Any], compared: Sequence[str] = ()) -> str:
    """The headline figures; `compared`: names of the runs beside this one."""
    shown = [
        ("retrieval_mean", "retrieval en→xx, raw cosine, best layer (%)", 100),
        ("retrieval_mean_centred", "retrieval en→xx, language means removed (%)", 100),
        ("nli_en", "NLI, English test (%)", 100),
        ("nli_mean_other", "NLI, mean of other languages (%)", 100),
        ("bleu_mean", "BLEU of generated text, mean over directions", 1),
        ("perplexity_mean", "held-out perplexity, mean over languages", 1),
        ("tokens_per_second", "tokens per second", 1),
        ("tokens_seen", "tokens seen", 1),
        ("parameters", "parameters", 1),
    ]
    entries = [
        (name, round(scale * summary[figure], 1))
        for figure, name, scale in shown
        if summary.get(figure) is not None
    ]
    entries = [(name, int(value) if value >= 1000 else value) for name, value in entries]
    for i, name in enumerate(compared):
        means = [summary.get(f"retrieval_mean_{key(name)}{kind}") for kind in ("", "_centred")]
        if None not in means:
            entries.insert(
                2 + i,
                (f"retrieval of {name}, raw / centred (%)", " / ".join(map(html.percent, means))),
            )
    if summary.get("wall_seconds"):
        entries.append(("minutes, everything included", round(summary["wall_seconds"] / 60, 1)))
    return html.tiles(entries)


def rows(run: Run) -> list[str]:
    """What `inspector.first_rows` made before the first step."""
    return [run.rows, html.note(ROWS_NOTE)] if run.rows else []


def training(run: Run, runs: Mapping[str, Run]) -> list[str]:
    rows = [
        [
            name,
            objective,
            line["step"],
            line.get("tokens_seen"),
            line.get("loss"),
            line.get("accuracy"),
        ]
        for name, one in runs.items()
        for objective in one.objectives
        for line in one.lines(objective)[-1:]
    ]
    if not rows:
        return []
    return [
        plots.drawn(plots.losses(runs), "training loss per objective"),
        plots.drawn(plots.machinery(run), "learning rate, gradient norm and speed"),
        html.table(["run", "objective", "last step", "tokens seen", "loss", "accuracy"], rows),
        html.note(LOSS_NOTE),
    ]


def languages(run: Run) -> list[str]:
    return [
        plots.drawn(plots.by_language(run), "training loss per language"),
        plots.drawn(
            plots.by_language(run, "accuracy_by_language", "training accuracy"),
            "training accuracy per language",
        ),
    ]


def retrieval(run: Run, runs: Mapping[str, Run]) -> list[str]:
    values = run.last("retrieval")
    if values is None:
        return []
    parts = [
        plots.drawn(plots.retrieval_by_layer(run), "retrieval by layer over training"),
        plots.drawn(plots.retrieval_runs(runs), "retrieval of the compared runs"),
        plots.drawn(plots.retrieval_layers(run), "retrieval by language and layer"),
    ]
    head, columns = ["language", "pairs"], []
    for name, one in runs.items():
        for kind in ("raw", "centred"):
            column = _best_column(one.last("retrieval"), f"{kind}_en_to_xx")
            if column:
                head.append(f"{name}, {kind} (%)")
                columns.append(column)
    floors = run.last("floors") or {}
    for floor, title in (
        ("char_tfidf", "character TF-IDF (%)"),
        ("lsi", "LSI on the training pairs (%)"),
    ):
        if floors.get(floor):
            head.append(title)
            columns.append(
                {la: s["raw_en_to_xx"] for la, s in floors[floor].items()}
                | {"mean": floors["mean"][floor]}
            )
    rows = [
        [la, n, *(html.percent(c.get(la)) for c in columns)] for la, n in values["pairs"].items()
    ]
    rows.append(["mean", "", *(html.percent(c.get("mean")) for c in columns)])
    parts.append(html.table(head, rows, mean_rows=1))
    parts.append(html.note(RETRIEVAL_NOTE.format(pooling=next(iter(values["by_layer"])))))
    return parts


def _best_column(values: Mapping[str, Any] | None, score: str) -> dict[str, float] | None:
    """{language: accuracy} at the layer best for `score`, with the mean over languages as
    "mean"."""
    if values is None:
        return None
    pooling = next(iter(values["by_language"]))
    best = values["best"][pooling][score]
    table = {
        language: layers[str(best["layer"])][score]
        for language, layers in values["by_language"][pooling].items()
    }
    return table | {"mean": best["value"]}


def similarity(run: Run) -> list[str]:
    drawn = plots.drawn(plots.similarity(run), "cosine of language means")
    return [drawn, html.note(SIMILARITY_NOTE)] if drawn else []


def perplexity(runs: Mapping[str, Run]) -> list[str]:
    run = next(iter(runs.values()))
    parts = [plots.drawn(plots.perplexities(run), "held-out perplexity over training")]
    text = {name: v for name, one in runs.items() if (v := one.last("perplexity"))}
    if text:
        languages = list(dict.fromkeys(la for v in text.values() for la in v["by_language"]))
        rows = [[la, *(v["by_language"].get(la) for v in text.values())] for la in languages]
        rows.append(["mean", *(v["mean"] for v in text.values())])
        parts += [html.table(["running text", *text], rows, mean_rows=1)]
    pairs = {name: v for name, one in runs.items() if (v := one.last("translation_perplexity"))}
    if pairs:
        names = list(
            dict.fromkeys(
                (pair, side)
                for v in pairs.values()
                for pair in v["visible"]
                for side in v["visible"][pair]
            )
        )
        rows = [
            [
                f"{side} of {pair}",
                *(
                    v[kind].get(pair, {}).get(side)
                    for v in pairs.values()
                    for kind in ("hidden", "visible")
                ),
            ]
            for pair, side in names
        ]
        rows.append(
            ["mean", *(v[f"{kind}_mean"] for v in pairs.values() for kind in ("hidden", "visible"))]
        )
        head = [f"{name}, partner {kind}" for name in pairs for kind in ("hidden", "visible")]
        parts += ["<h3>Translated pairs</h3>", html.table(["side", *head], rows, mean_rows=1)]
    if text or pairs:
        parts.append(html.note(PERPLEXITY_NOTE))
    return parts


def accuracy(runs: Sequence[Run]) -> list[str]:
    """Classification by language."""
    return _by_language(runs, "accuracy", ACCURACY_NOTE)


def tagging(runs: Sequence[Run]) -> list[str]:
    """Tagging by language."""
    return _by_language(runs, "tagging", TAGGING_NOTE)


def answers(runs: Sequence[Run]) -> list[str]:
    """Span question answering by language."""
    found = [
        (one.path.name, name, v[-1][1])
        for one in runs
        for name, v in one.evaluated("span_qa").items()
    ]
    if not found:
        return []

    def both(f1: float | None, exact: float | None) -> str | None:
        return None if f1 is None else f"{html.percent(f1)} / {html.percent(exact)}"

    languages = list(dict.fromkeys(la for _, _, v in found for la in v["by_language"]))
    rows = [
        [
            la,
            *(
                both(v["by_language"].get(la), v["exact_match_by_language"].get(la))
                for _, _, v in found
            ),
        ]
        for la in languages
    ]
    means = (both(v.get("mean_other"), v.get("mean_other_exact_match")) for _, _, v in found)
    rows.append(["mean of the others", *means])
    head = [f"{run}: {name} ({v['metric']})" for run, name, v in found]
    return [html.table(["language", *head], rows, mean_rows=1), html.note(ANSWER_NOTE)]


def _by_language(runs: Sequence[Run], kind: str, note: str) -> list[str]:
    found = [
        (one.path.name, name, v[-1][1]) for one in runs for name, v in one.evaluated(kind).items()
    ]
    if not found:
        return []
    languages = list(dict.fromkeys(la for _, _, v in found for la in v["by_language"]))
    rows = [
        [la, *(html.percent(v["by_language"].get(la)) for _, _, v in found)] for la in languages
    ]
    rows.append(["mean of the others", *(html.percent(v.get("mean_other")) for _, _, v in found)])
    metrics = {"f1": "F1, %", "accuracy": "accuracy, %"}
    head = [
        f"{run}: {name} ({metrics[v['metric']] if 'metric' in v else '%'})"
        for run, name, v in found
    ]
    return [html.table(["language", *head], rows, mean_rows=1), html.note(note)]


def alignment(run: Run) -> list[str]:
    values = run.last("alignment")
    if values is None:
        return []
    table = [
        [
            "embeddings" if layer == "0" else f"layer {layer}",
            *(html.percent(of[method]) for method in METHODS),
        ]
        for layer, of in values["by_layer"].items()
    ]
    return [
        plots.drawn(by_layer(run), "alignment error by language and layer"),
        html.table(["mean over languages", *(f"{method} (%)" for method in METHODS)], table),
        html.note(ALIGNMENT_NOTE),
    ]


def sampling_tables(run: Run) -> dict[str, list[dict[str, Any]]]:
    """{stage of an objective: the sampling table of its data}, epochs added for the steps that it
    took."""
    tables, data = {}, run.record.get("identity", {}).get("data", {})
    for name, identity in data.items():
        objective, start = stage_of(name)
        later = [
            begin for other, begin in map(stage_of, data) if other == objective and begin > start
        ]
        lines = [
            line
            for line in run.lines(objective)
            if start < line["step"] <= min(later, default=math.inf)
        ]
        taken = sum(
            line.get("steps", 0) for line in lines
        )  # a line is of one stage: training logs where one begins
        rows = identity.get("sampling_table", [])
        if rows:
            tables[name] = [
                row | {"epochs": row["epochs_per_1000_steps"] * taken / 1000} for row in rows
            ]
    return tables


def sampling(run: Run) -> list[str]:
    parts = []
    for objective, rows in sampling_tables(run).items():
        cells = [
            [
                r["name"],
                r["sentences"],
                r["tokens"],
                html.percent(r["share"]),
                round(r["epochs"], 2),
            ]
            for r in rows
        ]
        head = ["text", "sentences", "tokens", "share of rows (%)", "epochs so far"]
        parts += [f"<h3>{html.esc(objective.upper())}</h3>", html.table(head, cells)]
    return parts


def setting(run: Run) -> list[str]:
    sessions = [
        [s.get("time"), s.get("step"), s.get("machine"), s.get("weights")]
        for s in run.record.get("sessions", [])
    ]
    data = {name: i for name, i in run.record.get("identity", {}).get("data", {}).items()}
    plain = {
        name: {k: v for k, v in i.items() if k != "sampling_table"} for name, i in data.items()
    }
    shown = {
        k: run.record[k]
        for k in ("model", "optimizer", "objectives", "schedule", "microbatches")
        if k in run.record
    }
    parts = []
    if versions := run.last_start.get("versions"):
        parts.append(
            html.note(" · ".join(f"{name} {version}" for name, version in versions.items()))
        )
    if sessions:
        parts.append(html.table(["started", "at step", "machine", "weights from"], sessions))
    if run.config:
        parts.append(html.details("config.gin", run.config))
    if shown:
        parts.append(
            html.details(
                "model, optimizer, objectives", json.dumps(shown, indent=2, ensure_ascii=False)
            )
        )
    if plain:
        parts.append(html.details("data", json.dumps(plain, indent=2, ensure_ascii=False)))
    return parts

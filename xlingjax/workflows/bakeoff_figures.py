"""The figures of a cell of a bake-off."""

from collections.abc import Mapping
from typing import Any


def summary(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a cell: those of the table, and by layer, language and objective those of the
    pictures."""
    result = cell["pretrain"]
    evaluations = result["evaluations"]
    retrieval = evaluations.get("retrieval", {})
    alignment = evaluations.get("alignment", {})
    perplexity = evaluations.get("perplexity", {})
    figures = {
        "retrieval": retrieval.get("retrieval_mean"),
        "retrieval_centred": retrieval.get("retrieval_mean_centred"),
        "alignment_error": alignment.get("alignment_error"),
        "alignment_error_intersection": alignment.get("alignment_error_intersection"),
        "masked_accuracy": perplexity.get("accuracy_mean"),
    }
    for task, values in cell["tasks"].items():
        # The test set's: the dev set chose the checkpoint.
        (tested,) = [value for name, value in values.items() if name.endswith("_test")]
        # Of texts that are written: BLEU of the languages that were trained on, and of the others.
        english = tested.get("bleu_trained")
        other = tested.get("bleu_others")
        figures[f"{task}_en"] = tested.get("en", english)
        figures[f"{task}_other"] = tested.get("mean_other", other)
        # Of translations: of all directions.
        if english is None and other is None:
            figures[task] = tested.get("bleu_mean")
    figures["tokens"] = result["tokens_seen"]
    figures["tokens_per_second"] = result["tokens_per_second"]
    # Of several poolings the first is shown.
    layers = next(iter(retrieval.get("by_layer", {}).values()), {})
    retrieval_by_layer = {}
    for kind in ("raw", "centred"):
        retrieval_by_layer[kind] = {}
        for layer, scores in layers.items():
            retrieval_by_layer[kind][layer] = scores[f"{kind}_en_to_xx"]
    error_by_layer = {}
    for layer, errors in alignment.get("by_layer", {}).items():
        error_by_layer[layer] = errors["itermax"]
    # What the mix has no evaluation of is no column of the table.
    measured = {}
    for name, value in figures.items():
        if value is not None:
            measured[name] = value
    return {
        "mix": cell["mix"],
        "seed": cell["seed"],
        "figures": measured,
        "retrieval_by_layer": retrieval_by_layer,
        "alignment_error_by_layer": error_by_layer,
        "masked_accuracy_by_language": perplexity.get("accuracy_by_language", {}),
        "tokens_per_second_by_objective": result.get("tokens_per_second_by_objective", {}),
    }

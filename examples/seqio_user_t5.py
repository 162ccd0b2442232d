"""Rows of `seqio_user.py` about benchmarks and T5: small files in the official layouts, as a
mixture that any trainer reads, scored by `seqio.Evaluator` with the metrics of T5; and T5's span
corruption as rows of ours.
"""

import json
from unittest import mock

import numpy as np
import seqio

LENGTHS = {"inputs": 256, "targets": 32}
HEADER = ("id", "sentence1", "sentence2", "label")


# The files, as x-final.tar.gz and XTREME's download folder have them.


def write_benchmarks(folder, pairs):
    """PAWS-X and XQuAD in German and English, a question for each pair of sentences."""
    sides = {"de": [german for german, _ in pairs], "en": [english for _, english in pairs]}
    (folder / "xquad").mkdir(parents=True)
    for language, sentences in sides.items():
        rows = [HEADER]
        articles = []
        for number, sentence in enumerate(sentences):
            # A third are paraphrases.
            label = str(int(number % 3 == 0))
            rows.append((str(number + 1), sentence, sentences[0], label))
            # "... sleeps in the house.": where?
            place = " ".join(sentence.rstrip(".").split()[4:])
            answer = {"text": place, "answer_start": sentence.index(place)}
            question = {"id": str(number), "question": "Where?", "answers": [answer]}
            paragraph = {"context": sentence, "qas": [question]}
            articles.append({"title": str(number), "paragraphs": [paragraph]})
        squad = {"version": "1.1", "data": articles}
        (folder / f"xquad/xquad.{language}.json").write_text(json.dumps(squad))
        (folder / f"x-final/{language}").mkdir(parents=True)
        lines = ["\t".join(row) + "\n" for row in rows]
        (folder / f"x-final/{language}/test_2k.tsv").write_text("".join(lines))


def answer(text):
    """Of a model that knows one label, and takes the last two words for the place."""
    if text.startswith("pawsx"):
        return "1"
    return " ".join(text.rstrip(".").split()[-2:])


# The rows.


def benchmarks(folder, pairs):
    from t5.evaluation import metrics

    from xlingjax.evaluation.metrics.registry import METRICS
    from xlingjax.tasks.registry import register

    write_benchmarks(folder / "xtreme", pairs)
    chosen = ("pawsx", "xquad")
    mixture = register("xtreme", folder / "xtreme", METRICS, tasks=chosen, allow_missing=True)
    bytes_ = seqio.ByteVocabulary()
    # As the mixture gives them, and as T5X takes them.
    whole = seqio.get_mixture_or_task(mixture)
    data = whole.get_dataset(LENGTHS, "test", shuffle=False, num_epochs=1)
    read = {bytes_.decode(one["inputs"].tolist()) for one in data.as_numpy_iterator()}
    written = {f"xquad question: Where? context: {one}" for pair in pairs for one in pair}
    for side in zip(*pairs, strict=True):
        written |= {f"pawsx premise: {one} hypothesis: {side[0]}" for one in side}
    assert len(read) > len(pairs) and read <= written, read - written
    converter = seqio.EncDecFeatureConverter(pack=False)
    data = seqio.get_dataset(mixture, LENGTHS, converter, dataset_split="test", verbose=False)
    example = next(data.as_numpy_iterator())
    assert bytes_.decode(example["encoder_input_tokens"].tolist()) in written
    names = [one.name for one in seqio.get_subtasks(whole)]
    yield (".get_dataset of a benchmark mixture", ", ".join(names))

    def predict_fn(dataset, model_feature_shapes=None):
        numbers, ids = [], []
        for number, example in dataset.as_numpy_iterator():
            text = bytes_.decode(example["encoder_input_tokens"].tolist())
            numbers.append(int(number))
            ids.append(bytes_.encode(answer(text)))
        rows = np.zeros((len(ids), LENGTHS["targets"]), np.int32)
        for row, one in zip(rows, ids, strict=True):
            row[: len(one)] = one
        return list(zip(numbers, rows, strict=True))

    # Watched, not replaced: the scores are what T5's own functions return.
    accuracy = mock.patch.object(metrics, "sequence_accuracy", wraps=metrics.sequence_accuracy)
    squad = mock.patch.object(metrics, "squad", wraps=metrics.squad)
    with accuracy as of_labels, squad as of_answers:
        evaluator = seqio.Evaluator(mixture, converter, eval_split="test")
        found, _ = evaluator.evaluate(compute_metrics=True, predict_fn=predict_fn)
        scores = found.result()
    # A task for each language; F1 and EM are asked for one after the other.
    assert of_labels.call_count == 2 and of_answers.call_count == 4
    share = 100 * sum(number % 3 == 0 for number in range(len(pairs))) / len(pairs)
    expected = {
        "xtreme.pawsx.de": {"accuracy": share},
        "xtreme.pawsx.en": {"accuracy": share},
        "xtreme.xquad.de": {"squad_f1": 100, "squad_em": 100},
        # Without the article one word of two is right.
        "xtreme.xquad.en": {"squad_f1": 200 / 3, "squad_em": 0},
    }
    assert {*scores} == {*expected}, scores
    for name, values in expected.items():
        for metric, value in values.items():
            assert abs(scores[name][metric] - value) < 1e-6, scores
    english = scores["xtreme.xquad.en"]
    yield (
        "seqio.Evaluator on a benchmark mixture",
        f"always `1`: accuracy {share:.1f}; the last two words: F1 {english['squad_f1']:.1f}",
    )
    yield ("t5.evaluation.metrics", "these scores are of its `sequence_accuracy` and `squad`")


def span_corruption(vocabulary, pairs):
    from t5.data import preprocessors

    from xlingjax.preprocessors.t5 import SpanCorruptionFeatures, sentinel_ids
    from xlingjax.tasks.objectives import register_objective

    mask = preprocessors.random_spans_noise_mask
    with mock.patch.object(preprocessors, "random_spans_noise_mask", wraps=mask) as masks:
        given = {"vocabulary": vocabulary, "languages": ["de", "en"]}
        name = register_objective("wiki.de", SpanCorruptionFeatures(), **given)
        task = seqio.get_mixture_or_task(name).tasks[0]
        data = task.get_dataset({"inputs": 64, "targets": 64}, "train", shuffle=False)
        example = next(data.as_numpy_iterator())
    assert masks.call_count
    sentinels = sentinel_ids(vocabulary)
    hidden = {}
    for i in example["targets"].tolist():
        if i in sentinels:
            hidden[i] = span = []
        elif i != vocabulary.eos_id:
            span.append(i)
    assert [*hidden] == sentinels[: len(hidden)] and len(hidden) > 1
    # What each sentinel hides, put back: lines of the text.
    restored = []
    for i in example["inputs"].tolist():
        restored += hidden.get(i, [i])
    text = vocabulary.decode([i for i in restored if i != vocabulary.eos_id])
    # Rows end where they are full, in the middle of a line.
    lines = [f"{line}." for line in text.split(". ")[:-1]]
    assert len(lines) > 1 and {*lines} <= {german for german, _ in pairs}, text
    yield ("t5.data.preprocessors", f"{name}: its masks, {len(hidden)} sentinels in a row of 64")

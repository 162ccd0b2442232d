"""Fine-tuning on questions whose answer is a span of a context."""

from xlingjax.config.corpus import Corpus
from xlingjax.config.evaluators import Files, labelled_files
from xlingjax.config.text import Batches
from xlingjax.data.features import batch_shapes
from xlingjax.data.loader import BatchSource
from xlingjax.data.sources import split_list
from xlingjax.objectives.span_qa import SpanQA
from xlingjax.training.feed import ObjectiveRun


def span_qa(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    batch: int = 32,
    length: int = 384,
    stride: int = 128,
    max_question: int = 64,
    reset_positions: bool = False,
    seed: int = 0,
) -> ObjectiveRun:
    """Answers as spans. files: SQuAD json, a path with {language}. languages: those trained on.
    stride, max_question, reset_positions: see `span_rows`."""
    objective = SpanQA()

    def opened() -> BatchSource:
        from xlingjax.preprocessors.span_qa import span_source

        return span_source(
            labelled_files(files, split_list(languages)),
            corpus.vocabulary,
            corpus.languages,
            length=length,
            stride=stride,
            max_question=max_question,
            batch_size=batch,
            reset_positions=reset_positions,
            seed=seed,
        )

    return ObjectiveRun(
        objective, Batches(batch_shapes(objective.reads, batch=batch, length=length), opened)
    )


BINDABLE = {"span_qa": span_qa}

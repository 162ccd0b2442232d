"""SeqIO tasks for labelled sentence pairs (XNLI, PAWS-X and the embedded corpus share one file format)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import seqio
import tensorflow as tf

from xlingjax.data.seqio_vocabulary import SeqioVocabulary
from xlingjax.preprocessors.finetuning import pair_features_tf, read_labelled_tsv

_INTS = ("input_ids", "position_ids", "language_ids", "pack_ids", "sides")


def add_labelled_pairs(
    name: str,
    splits: Mapping[str, str | Path],
    vocabulary,
    *,
    labels: Sequence[str],
    language: str,
    languages: Sequence[str],
    length: int = 128,
    quoted: bool = False,
) -> seqio.Task:
    """Registers task `name`: one language's files, {split: TSV}, as rows ready for `Classification`.

    The files are read, and their faults raised as UserError, here and not while training. `languages` are the run's,
    sorted.
    """
    examples = {split: read_labelled_tsv(path, labels, quoted=quoted) for split, path in splits.items()}

    def dataset_fn(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        columns = {
            side: [getattr(example, side) for example in examples[split]] for side in ("premise", "hypothesis", "label")
        }
        return tf.data.Dataset.from_tensor_slices(columns)

    encoder = SeqioVocabulary(vocabulary)
    features = {feature: seqio.Feature(encoder, dtype=tf.int32, add_eos=False) for feature in _INTS}
    features["labels"] = seqio.Feature(seqio.PassThroughVocabulary(len(labels)), dtype=tf.int32, rank=0, add_eos=False)
    features["example_weights"] = seqio.Feature(seqio.PassThroughVocabulary(2), dtype=tf.float32, rank=0, add_eos=False)
    return seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(
            dataset_fn, splits=tuple(splits), num_input_examples={split: len(rows) for split, rows in examples.items()}
        ),
        preprocessors=[pair_features_tf(vocabulary, length, labels, list(languages).index(language))],
        output_features=features,
    )

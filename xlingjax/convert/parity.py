"""Is a converted model the one that transformers computes? (extra `interop`)"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.convert.sentences import SENTENCES
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.masks import bidirectional
from xlingjax.runtime import first_line

TOLERANCE = 1e-4
"""Of the largest number, at least of 1: float32 sums in another order."""
_KINDS = {
    "words": ("AutoModelForMaskedLM", "logits of the pieces"),
    "states": ("AutoModel", "last states"),
    "xlmr": ("AutoModelForSequenceClassification", "logits of the classes"),
    "tagging": ("AutoModelForTokenClassification", "logits of the tags"),
    "spans": ("AutoModelForQuestionAnswering", "logits of the spans"),
}
_ROWS = 2  # a batch's logits over 250 002 pieces stay small, and it has padding


@dataclasses.dataclass(frozen=True)
class Parity:
    what: str
    """Is compared."""
    difference: float
    """The largest of two numbers."""
    largest: float
    """Number."""
    sentences: int

    @property
    def same(self) -> bool:
        return self.difference <= TOLERANCE * max(1.0, self.largest)

    def __str__(self) -> str:
        return (
            f"{self.what}: largest difference {self.difference:.1e} (of values up to {self.largest:.1f}), "
            f"{self.sentences} sentences of as many languages, transformers in float32"
        )


def compare(folder: Path, config: ModelConfig, params: Any, vocabulary: Vocabulary, vocabulary_head: bool) -> Parity:
    """Ours beside the model and the tokenizer that transformers opens in `folder`: the logits of its classifier, else
    of its vocabulary head, else the last states. Raises UserError where transformers is not installed, where it cannot
    open the folder, and for ids that differ, with the sentence."""
    try:
        import torch
        import transformers
        from transformers.utils import logging
    except ImportError:
        raise UserError(
            "comparing with transformers needs it: pip install 'xlingjax[interop]', or say --unverified"
        ) from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    kind = config.classifier if config.num_labels else "words" if vocabulary_head else "states"
    auto, what = _KINDS[kind]
    here = dict(local_files_only=True, trust_remote_code=False)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **here)
        theirs = getattr(transformers, auto).from_pretrained(folder, dtype=torch.float32, **here)
    except Exception as error:  # of many kinds
        raise UserError(f"transformers cannot open {folder}: {type(error).__name__}: {first_line(error)}") from None
    most = config.max_positions - config.position_offset
    rows = []
    for sentence in SENTENCES:
        ids = [vocabulary.bos_id, *vocabulary.encode(sentence), vocabulary.eos_id]
        if (found := tokenizer(sentence)["input_ids"]) != ids:
            at = next((i for i, pair in enumerate(zip(ids, found, strict=False)) if pair[0] != pair[1]), 0)
            raise UserError(
                f"{folder}: its tokenizer.json and its SentencePiece model differ on {sentence!r}, from piece {at} on: "
                f"{found[at : at + 3]} and {ids[at : at + 3]}; give files that belong together"
            )
        rows.append(ids[:most])
    model = build_model(config)

    def compute(params, batch):
        h_BLD = model.encode(params, batch, AttentionSpec(bidirectional))
        if kind == "states":
            return h_BLD
        if kind != "words":
            return model.classify(params, h_BLD, batch)
        g, table_VD, bias_V = model.vocab_head(params, h_BLD)
        return (g @ table_VD.T + bias_V)[..., : config.vocab_size]

    run, difference, largest = jax.jit(compute), 0.0, 0.0
    length = max(map(len, rows))
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        ids_BL = np.full((len(some), length), vocabulary.pad_id, np.int32)
        for row, ids in zip(ids_BL, some, strict=True):
            row[: len(ids)] = ids
        valid_BL = np.arange(length) < np.array([[len(ids)] for ids in some])
        batch = {
            "input_ids": ids_BL, "pack_ids": valid_BL.astype(np.int32), "language_ids": np.zeros_like(ids_BL),
            "position_ids": np.broadcast_to(np.arange(length, dtype=np.int32), ids_BL.shape),
        }  # fmt: skip
        ours = np.asarray(run(params, batch))
        with torch.no_grad():
            given = {"input_ids": torch.tensor(ids_BL).long(), "attention_mask": torch.tensor(valid_BL).long()}
            found = theirs.eval()(**given)
            parts = (found.start_logits, found.end_logits) if kind == "spans" else ()
            wanted = (torch.stack(parts, -1) if parts else found[0]).numpy()
        if ours.ndim == 3:
            ours, wanted = ours[valid_BL], wanted[valid_BL]
        difference = float(np.maximum(difference, np.abs(ours - wanted).max()))  # of NaN stays NaN
        largest = float(np.maximum(largest, np.abs(wanted).max()))
    return Parity(what, difference, largest, len(rows))

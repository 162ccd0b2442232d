"""Does transformers write the texts that an exported encoder-decoder writes here? (extra
`interop`)"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.convert.formats import parity
from xlingjax.convert.formats.sentences import SENTENCES
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.inference.forward import compiled
from xlingjax.inference.generate import Generator
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.decoding import Decoding, Ids
from xlingjax.model.generation import generate
from xlingjax.model.masks import bidirectional

LONGEST = 24
"""Tokens of a text that is compared."""
Texts = list[list[int]]


def compare_texts(
    folder: Path,
    config: ModelConfig,
    params: Any,
    vocabulary: Vocabulary,
    starts: Sequence[int],
    languages: Sequence[str] = (),
) -> str:
    """What was found. Every sentence is read by their tokenizer and written to greedily by both,
    begun with `starts` in turn. languages: the names of language tokens, in order. Raises UserError
    where the ids differ, unless the two next tokens are as likely within the tolerance of
    `parity`."""
    transformers = parity.interop()
    tokenizer, theirs = parity.opened(folder, transformers, "decoder")
    _require_tokens(folder, tokenizer, vocabulary, languages)
    model = build_model(config.replace(dtype="float32", attention_backend="xla"))
    longest = min(model.longest_target, LONGEST)
    most = config.max_positions - config.position_offset - bool(config.streams)
    rows = []
    for sentence in SENTENCES:
        ids = [vocabulary.bos_id, *vocabulary.encode(sentence), vocabulary.eos_id]
        found = tokenizer(sentence)["input_ids"]
        if found != ids:
            raise UserError(
                f"{folder}: its tokenizer reads {sentence!r} as {found[:8]}..., and the run as"
                f" {ids[:8]}..."
            )
        rows.append(ids[:most])
    batch = parity.fields_of(rows, max(map(len, rows)), vocabulary.pad_id, 0)
    start_B = np.resize(np.array(starts, np.int32), len(rows))
    params = jax.device_put(params)
    ids = Generator(model, params, vocabulary, ()).ids
    # An accelerator may take fewer bits of float32.
    with jax.default_matmul_precision("highest"):
        run = compiled(_written, model, None, ids, longest)
        ours = _ended(np.asarray(run(params, batch, start_B)), vocabulary)
    wanted = _ended(_theirs(theirs, batch, start_B, longest), vocabulary)
    ties = 0
    for row, (one, other) in enumerate(zip(ours, wanted, strict=True)):
        if one == other:
            continue
        if not _as_likely(model, params, batch, row, start_B, one, other):
            raise UserError(
                f"{folder}: of {SENTENCES[row]!r} transformers writes {other[:8]}..., and the run"
                f" {one[:8]}..."
            )
        ties += 1
    told = f"texts written greedily: the same ids for {len(rows) - ties} of {len(rows)} sentences"
    if ties:
        told += ", for the others until two tokens are as likely"
    return told


def _require_tokens(
    folder: Path, tokenizer: Any, vocabulary: Vocabulary, languages: Sequence[str]
) -> None:
    for number, name in enumerate(languages, vocabulary.size):
        found = tokenizer.convert_tokens_to_ids(name)
        if found != number:
            raise UserError(f"{folder}: transformers has {name} at {found}, not at {number}")


def _written(model: Any, ids: Ids, columns: int, params, batch, start_B):
    """int32 [B, T]"""
    texts = generate(
        model,
        params,
        batch,
        start_B,
        start_B * 0,
        ids,
        Decoding(max_length=(0.0, columns)),
        columns,
    )
    return texts.ids[:, 0]


def _theirs(
    theirs: Any, batch: dict[str, np.ndarray], start_B: np.ndarray, columns: int
) -> np.ndarray:
    """int32 [B, T], as the folder's generation_config.json has it but for the beams."""
    import torch

    with torch.no_grad():
        found = theirs.generate(
            input_ids=torch.tensor(batch["input_ids"]).long(),
            attention_mask=torch.tensor(batch["pack_ids"]).long(),
            decoder_start_token_id=start_B.tolist(),
            num_beams=1,
            max_new_tokens=columns,
        )
    return found.numpy()[:, 1:]


def _ended(ids_BT: np.ndarray, vocabulary: Vocabulary) -> Texts:
    """Each up to its end."""
    texts = []
    for ids in ids_BT.tolist():
        if vocabulary.eos_id in ids:
            ids = ids[: ids.index(vocabulary.eos_id) + 1]
        texts.append(ids)
    return texts


def _as_likely(
    model: Any,
    params: Any,
    batch: dict[str, np.ndarray],
    row: int,
    start_B: np.ndarray,
    one: Sequence[int],
    other: Sequence[int],
) -> bool:
    """Whether the first two tokens that differ have the same logit within rounding: either may then
    be the highest."""
    shorter = min(len(one), len(other))
    # Where one text goes on behind the other's end there are no two tokens.
    if one[:shorter] == other[:shorter]:
        return False
    at = parity.first_difference(one, other)
    alone = {name: values[row : row + 1] for name, values in batch.items()}
    read = [int(start_B[row]), *one[:at]]
    target = parity.fields_of([read], len(read), 0, 0)
    target["ids"] = target.pop("input_ids")
    alone |= {f"decoder_{name}": values for name, values in target.items()}
    run = compiled(_last_logits, model, None)
    with jax.default_matmul_precision("highest"):
        logits_V = np.asarray(run(params, alone))
    difference = abs(float(logits_V[one[at]] - logits_V[other[at]]))
    largest = max(1.0, float(np.abs(logits_V).max()))
    return difference <= parity.TOLERANCE * largest


def _last_logits(model: Any, params, batch):
    h_BLD = model.encode(params, batch, AttentionSpec(bidirectional))
    decoded_BTD = model.decode(params, batch, h_BLD)
    g, table_VD, bias_V = model.decoder_head(params, decoded_BTD)
    return (g @ table_VD.T + bias_V)[0, -1]

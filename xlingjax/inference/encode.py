"""Sentences in, one vector per sentence, layer and pooling out.

Sentences are sorted into a few fixed lengths, so that a whole test set costs one compilation per
length, and all
layers come from one pass.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.loader import to_global
from xlingjax.errors import UserError
from xlingjax.inference.sentences import LONGEST
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.build import build_model
from xlingjax.model.masks import bidirectional
from xlingjax.model.partition import batch_sharding

POOLINGS = ("mean", "mean_no_special", "first")
BUCKETS = (32, 64, 128, 256)


def token_ids(texts: Sequence[str], vocabulary, max_length: int) -> list[list[int]]:
    """`<bos> pieces <eos>` per sentence, the pieces cut so that a row has at most `max_length`
    tokens."""
    return [
        [
            vocabulary.bos_id,
            *vocabulary.encode(text)[: max_length - 2],
            vocabulary.eos_id,
        ]
        for text in texts
    ]


def language_index(language: str, languages: Sequence[str], model) -> int:
    """The id of `language` among the run's; 0 for a stranger when the model has no language
    embedding.

    Raises UserError when the model needs an embedding that the run never trained.
    """
    if language in languages:
        return list(languages).index(language)
    if model.config.has_languages:
        raise UserError(
            f"language {language!r} is not one of the run's ({', '.join(languages)}) and this model"
            " embeds languages: evaluate on the run's languages only"
        )
    return 0


def pooling_weights(
    input_ids_BL: np.ndarray, valid_BL: np.ndarray, special_ids, pooling: str
) -> np.ndarray:
    """Weight of each token in its sentence's vector, rows summing to 1 (0 for a filler row).

    mean              all tokens but padding, separators included (XTREME `utils_retrieve.py`, its
    default) mean_no_special   separators left out (XTREME's `pool_skip_special_token`); a sentence
    of nothing else keeps them first             the first token, `<s>` or XLM's `</s>`
    """
    if pooling == "first":
        weights = valid_BL & (np.arange(valid_BL.shape[1]) == 0)
    elif pooling == "mean_no_special":
        weights = valid_BL & ~np.isin(input_ids_BL, sorted(special_ids))
        weights = np.where(weights.any(axis=1, keepdims=True), weights, valid_BL)
    elif pooling == "mean":
        weights = valid_BL
    else:
        raise UserError(
            f"unknown pooling {pooling!r}: choose from {', '.join(POOLINGS)}"
        )
    weights = weights.astype(np.float32)
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1)


def on_xla(model, mesh):
    """The model with attention backend "xla", on the same parameters: a run's faster backend may
    refuse the packed
    rows of evaluation.
    """
    if model.config.attention_backend == "xla":
        return model
    return _model(model.config.replace(attention_backend="xla"), mesh)


_model = functools.lru_cache(maxsize=8)(build_model)


@functools.lru_cache(maxsize=32)
def _pooled_states(model, mesh, layers: tuple[int, ...] | None = None):
    """jit of (params, batch, weights_PBL) -> float32 [P, N+1, B, D] (or these layers); one per
    model and mesh, so a probe compiles once.
    """
    model = on_xla(model, mesh)
    spec = AttentionSpec(bidirectional, packed=False)

    def run(params, batch, weights_PBL):
        h_NBLD = model.encode(params, batch, spec, rng=None, all_layers=True)
        h_NBLD = h_NBLD if layers is None else h_NBLD[jnp.array(layers)]
        return jnp.einsum("nbld,pbl->pnbd", h_NBLD.astype(jnp.float32), weights_PBL)

    return jax.jit(
        run,
        out_shardings=NamedSharding(mesh, PartitionSpec())
        if mesh is not None
        else None,
    )


def place(batch: dict[str, np.ndarray], mesh):
    """The batch, rows over the mesh's data axes; every process holds all rows and gives its own."""
    if mesh is None:
        return batch
    return to_global(
        batch,
        batch_sharding(mesh),
        {name: array.shape for name, array in batch.items()},
    )


def row_multiple(mesh) -> int:
    """A batch must have a multiple of this many rows."""
    return 1 if mesh is None else mesh.shape["data"] * mesh.shape["fsdp"]


def embed(
    model,
    params,
    sentences: Sequence[Sequence[int]],
    language_id: int,
    vocabulary,
    *,
    poolings: Sequence[str] = ("mean",),
    buckets: Sequence[int] = BUCKETS,
    tokens_per_batch: int = 4096,
    layers: tuple[int, ...] | None = None,
    mesh=None,
) -> np.ndarray:
    """float32 [P, N+1, S, D]: every sentence under every pooling at every layer, the embedding
    output first; `layers`: at these only, [P, len(layers), S, D].

    `sentences` are rows of token ids in one language, none longer than the last bucket. A batch has
    about `tokens_per_batch` tokens whatever its length, the last one filled up with empty rows.
    """
    buckets = sorted(buckets)
    lengths = np.array([len(s) for s in sentences], np.int32)
    if len(lengths) and lengths.max() > buckets[-1]:
        raise ValueError(
            f"a sentence of {lengths.max()} tokens does not fit the longest bucket, {buckets[-1]}"
        )
    bucket_of = np.searchsorted(buckets, lengths)
    run = _pooled_states(model, mesh, layers)
    out = None
    for index, length in enumerate(buckets):
        members = np.flatnonzero(bucket_of == index)
        multiple = row_multiple(mesh)
        rows = max(1, tokens_per_batch // length // multiple) * multiple
        for start in range(0, len(members), rows):
            chosen = members[start : start + rows]
            batch = rows_of(
                [sentences[i] for i in chosen],
                language_id,
                vocabulary.pad_id,
                rows,
                length,
            )
            weights_PBL = np.stack(
                [
                    pooling_weights(
                        batch["input_ids"],
                        batch["pack_ids"] > 0,
                        vocabulary.special_ids,
                        pooling,
                    )
                    for pooling in poolings
                ]
            )
            pooled = np.asarray(run(params, place(batch, mesh), weights_PBL))
            if out is None:
                out = np.zeros(
                    (*pooled.shape[:2], len(sentences), pooled.shape[3]), np.float32
                )
            out[:, :, chosen] = pooled[:, :, : len(chosen)]
    if out is None:
        raise UserError("no sentences to embed: the evaluation files are empty")
    return out


def embed_texts(
    model,
    params,
    texts: Sequence[str],
    language: str,
    languages: Sequence[str],
    vocabulary,
    poolings: Sequence[str] = ("mean",),
    layers: tuple[int, ...] | None = None,
    mesh=None,
    prefix: str = "",
    max_length: int = LONGEST,
) -> np.ndarray:
    """`embed` of sentences in one language, each with the text `prefix` before it; cut at
    `max_length` tokens or at the model's positions. languages: the run's."""
    longest = min(max_length, model.config.max_positions - model.config.position_offset)
    return embed(
        model,
        params,
        token_ids([prefix + text for text in texts], vocabulary, longest),
        language_index(language, languages, model),
        vocabulary,
        poolings=poolings,
        buckets=sorted({*(length for length in BUCKETS if length < longest), longest}),
        layers=layers,
        mesh=mesh,
    )


@functools.lru_cache(maxsize=32)
def _states(model, mesh, layers: tuple[int, ...]):
    """jit of (params, batch) -> float32 [B, layers, L, D]."""
    model, spec = on_xla(model, mesh), AttentionSpec(bidirectional, packed=False)

    def run(params, batch):
        h_NBLD = model.encode(params, batch, spec, all_layers=True)
        return jnp.swapaxes(h_NBLD[jnp.array(layers)], 0, 1).astype(jnp.float32)

    return jax.jit(
        run,
        out_shardings=NamedSharding(mesh, PartitionSpec())
        if mesh is not None
        else None,
    )


def token_states(
    model,
    params,
    sentences: Sequence[Sequence[int]],
    language_id: int,
    vocabulary,
    *,
    layers: Sequence[int],
    buckets: Sequence[int] = BUCKETS,
    tokens_per_batch: int = 4096,
    mesh=None,
) -> list[np.ndarray]:
    """float32 [layers, tokens, D] per sentence: the states of some layers (0: the embedding
    output). Sentences, rows of ids in one language, are cut at the last bucket or at the model's
    positions."""
    longest = min(
        max(buckets), model.config.max_positions - model.config.position_offset
    )
    buckets = sorted({min(length, longest) for length in buckets})
    sentences = [list(ids[:longest]) for ids in sentences]
    bucket_of = np.searchsorted(buckets, [len(ids) for ids in sentences])
    run = _states(model, mesh, tuple(layers))
    found: list[np.ndarray] = [np.zeros(0)] * len(sentences)
    for index, length in enumerate(buckets):
        members, multiple = np.flatnonzero(bucket_of == index), row_multiple(mesh)
        rows = max(1, tokens_per_batch // length // multiple) * multiple
        for start in range(0, len(members), rows):
            chosen = members[start : start + rows]
            batch = rows_of(
                [sentences[i] for i in chosen],
                language_id,
                vocabulary.pad_id,
                rows,
                length,
            )
            states_BNLD = np.asarray(run(params, place(batch, mesh)))
            for i, h_NLD in zip(chosen.tolist(), states_BNLD, strict=False):
                found[i] = h_NLD[:, : len(sentences[i])]
    return found


def rows_of(
    sentences, language_id: int, pad_id: int, rows: int, length: int
) -> dict[str, np.ndarray]:
    """One sentence per row as the features an encoder reads; rows past the last sentence are
    padding."""
    lengths = np.zeros(rows, np.int32)
    input_ids = np.full((rows, length), pad_id, np.int32)
    for row, sentence in enumerate(sentences):
        input_ids[row, : len(sentence)] = sentence
        lengths[row] = len(sentence)
    columns = np.arange(length, dtype=np.int32)
    valid = columns < lengths[:, None]
    return {
        "input_ids": input_ids,
        "position_ids": np.where(valid, columns, 0).astype(np.int32),
        "language_ids": np.where(valid, language_id, 0).astype(np.int32),
        "pack_ids": valid.astype(np.int32),
        "sides": np.zeros((rows, length), np.int32),
    }

"""Sentences in, one vector per sentence, layer and pooling out.

Sentences are sorted by length and padded to a few fixed ones, so that a whole test set costs one
compilation per length, and all layers come from one pass.
"""

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.data.text.given import require_list
from xlingjax.errors import UserError
from xlingjax.inference.forward import compiled, place, row_multiple
from xlingjax.inference.sentences import LONGEST
from xlingjax.model.encoder import seen_fields
from xlingjax.model.masks import bidirectional

POOLINGS = ("mean", "mean_no_special", "first")
BUCKETS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
ON_CPU = 1024  # tokens of a batch at most: the states of more leave its caches, and take longer


def token_ids(
    texts: Sequence[str], vocabulary, max_length: int, cut: list[int] | None = None
) -> list[list[int]]:
    """`<bos> pieces <eos>` per sentence, the pieces cut so that a row has at most `max_length`
    tokens. cut: gets the places, from 0, of the sentences that were."""
    require_list(texts, "texts")
    rows = []
    for place_of_text, text in enumerate(texts):
        # The pieces are cut and not the row: its end must stay the end.
        pieces = vocabulary.encode(text)
        if cut is not None and len(pieces) > max_length - 2:
            cut.append(place_of_text)
        pieces = pieces[: max_length - 2]
        rows.append([vocabulary.bos_id, *pieces, vocabulary.eos_id])
    return rows


def longest_row(model, max_length: int) -> int:
    """Tokens of a row of at most `max_length` that has room in the model's positions."""
    config = model.config
    return min(max_length, config.max_positions - config.position_offset)


def require_room(prefix: str, vocabulary, longest: int) -> None:
    """Raises UserError for a prefix that leaves no token of a row of `longest` for the sentence."""
    room = longest - 2
    pieces = len(vocabulary.encode(prefix))
    if prefix and pieces >= room:
        raise UserError(
            f"--prefix has {pieces} tokens, and a sentence with its prefix at most {room}: none is"
            " left for the sentence; give a shorter one"
        )


def language_index(language: str, run) -> int:
    """The id of `language` among those of a `TrainedRun`; 0 for a stranger to a model that embeds
    none.

    Raises UserError when the model needs an embedding that the run never trained.
    """
    if language in run.languages:
        return list(run.languages).index(language)
    if run.model.config.has_languages:
        raise UserError(
            f"language {language!r} is not one of the run's ({', '.join(run.languages)}) and this"
            " model embeds languages: evaluate on the run's languages only"
        )
    return 0


def pooling_weights(
    input_ids_BL: np.ndarray, valid_BL: np.ndarray, special_ids, pooling: str
) -> np.ndarray:
    """Weight of each token in its sentence's vector, rows summing to 1 (0 for a filler row).

    - mean: all tokens but padding, separators included (XTREME `utils_retrieve.py`, its default)
    - mean_no_special: separators left out (XTREME's `pool_skip_special_token`); a sentence of
      nothing else keeps them
    - first: the first token, `<s>` or XLM's `</s>`
    """
    if pooling == "first":
        weights = valid_BL.any(axis=1, keepdims=True) & (np.arange(valid_BL.shape[1]) == 0)
    elif pooling == "mean_no_special":
        weights = valid_BL & ~np.isin(input_ids_BL, sorted(special_ids))
        # An empty sentence would have no weight at all, and its vector no meaning.
        weights = np.where(weights.any(axis=1, keepdims=True), weights, valid_BL)
    elif pooling == "mean":
        weights = valid_BL
    else:
        raise UserError(f"unknown pooling {pooling!r}: choose from {', '.join(POOLINGS)}")
    weights = weights.astype(np.float32)
    # A row that fills a batch up has no token: its vector is 0, and no NaN.
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1)


def _pooled_states(model, layers: tuple[int, ...] | None, params, batch, weights_PBL):
    """float32 [P, N+1, B, D], or of these layers."""
    # Pooled on the device, so that vectors come back and not the states of all tokens.
    h_NBLD = _states_of(model, layers, params, batch)
    # Sums over tokens are float32 whatever the layers compute in.
    return jnp.einsum("nbld,pbl->pnbd", h_NBLD.astype(jnp.float32), weights_PBL)


def embed_texts(
    run,
    texts: Sequence[str],
    language: str,
    poolings: Sequence[str] = ("mean",),
    layers: tuple[int, ...] | None = None,
    prefix: str = "",
    max_length: int = LONGEST,
    cut: list[int] | None = None,
    tokens_per_batch: int = 4096,
    done: Callable[[int], None] | None = None,
) -> np.ndarray:
    """float32 [P, N+1, S, D]: every sentence of one language under every pooling at every layer,
    the embedding output first; `layers`: at these only, [P, len(layers), S, D].

    run: a `TrainedRun`. Each sentence has the text `prefix` before it, and is cut at `max_length`
    tokens or at the model's positions. cut: see `token_ids`; done: is told, after each batch, how
    many sentences it had. tokens_per_batch: see `_batches`. Raises UserError where there are no
    texts, and for a prefix that leaves no token for the sentence.
    """
    require_list(texts, "texts")
    model, vocabulary, mesh = run.model, run.vocabulary, run.mesh
    longest = longest_row(model, max_length)
    require_room(prefix, vocabulary, longest)
    sentences = token_ids([prefix + text for text in texts], vocabulary, longest, cut)
    if not sentences:
        raise UserError("no sentences to embed: the evaluation files are empty")
    # The longest bucket is the limit itself, which need not be one of the usual lengths.
    buckets = [length for length in BUCKETS if length < longest] + [longest]
    of_batch = language_index(language, run), vocabulary.pad_id, buckets
    pooled = compiled(_pooled_states, model, mesh, layers)
    out = None
    for members, batch in _batches(sentences, *of_batch, tokens_per_batch, mesh):
        ids, valid = batch["input_ids"], seen_fields(model.config, batch).valid
        weights_PBL = np.stack(
            [pooling_weights(ids, valid, vocabulary.special_ids, pooling) for pooling in poolings]
        )
        pooled_PNBD = np.asarray(pooled(run.params, place(batch, mesh), weights_PBL))
        if run.dense:
            pooled_PNBD = np.asarray(run.dense(pooled_PNBD))
        if out is None:
            P, N, _, D = pooled_PNBD.shape
            out = np.zeros((P, N, len(sentences), D), np.float32)
        out[:, :, members] = pooled_PNBD[:, :, : len(members)]
        if done:
            done(len(members))
    return out


def _batches(
    sentences, language_id: int, pad_id: int, buckets: Sequence[int], tokens_per_batch: int, mesh
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """(numbers of sentences, the batch of them), from the shortest on, each padded to one of
    `buckets`.

    A batch has about `tokens_per_batch` tokens, on CPUs `ON_CPU` at most, so that memory is used
    alike at every length. What does not fill one goes with the next longer sentences: a length has
    one program, the last of them a second one of fewer rows.
    """
    lengths = np.array([len(ids) for ids in sentences])
    order = np.argsort(lengths, kind="stable")
    multiple = row_multiple(mesh)
    if jax.default_backend() == "cpu":
        tokens_per_batch = min(tokens_per_batch, ON_CPU)
    start = 0
    for length in buckets:
        rows = max(1, tokens_per_batch // length // multiple) * multiple
        end = np.searchsorted(lengths[order], length, side="right")
        # Empty rows cost as much as others, and each number of rows a compilation.
        few = max(1, rows // 8 // multiple) * multiple
        while end - start >= rows or start < end == len(order):
            if end - start <= few:
                rows = few
            part = order[start : start + rows]
            chosen = [sentences[i] for i in part]
            yield part, rows_of(chosen, language_id, pad_id, rows, length)
            start += len(part)


def _states(model, layers: tuple[int, ...], params, batch):
    """float32 [B, layers, L, D]."""
    h_NBLD = _states_of(model, layers, params, batch)
    return jnp.swapaxes(h_NBLD, 0, 1).astype(jnp.float32)


def _states_of(model, layers: tuple[int, ...] | None, params, batch):
    """[layers, B, L, D]; None: of all, the embedding output first."""
    if layers == (model.config.layers,):
        # The states of the others are not kept.
        return model.encode(params, batch, bidirectional)[None]
    h_NBLD = model.encode(params, batch, bidirectional, all_layers=True)
    return h_NBLD if layers is None else h_NBLD[jnp.array(layers)]


def token_states(
    run,
    sentences: Sequence[Sequence[int]],
    language: str,
    layers: Sequence[int],
    tokens_per_batch: int = 4096,
) -> list[np.ndarray]:
    """float32 [layers, tokens, D] per sentence: the states of some layers (0: the embedding
    output) of a `TrainedRun`. Sentences, rows of ids in one language, are cut at the last of
    `BUCKETS` or at the model's positions."""
    longest = longest_row(run.model, BUCKETS[-1])
    buckets = sorted({min(length, longest) for length in BUCKETS})
    # Cut, since each token is asked for by itself: what is left is as it would be.
    sentences = [list(ids[:longest]) for ids in sentences]
    states = compiled(_states, run.model, run.mesh, tuple(layers))
    found: list[np.ndarray] = [np.zeros(0)] * len(sentences)
    of_batch = language_index(language, run), run.vocabulary.pad_id, buckets, tokens_per_batch
    for members, batch in _batches(sentences, *of_batch, run.mesh):
        states_BNLD = np.asarray(states(run.params, place(batch, run.mesh)))
        for i, h_NLD in zip(members.tolist(), states_BNLD, strict=False):
            found[i] = h_NLD[:, : len(sentences[i])]
    return found


def rows_of(
    sentences, language_id: int, pad_id: int, rows: int, length: int
) -> dict[str, np.ndarray]:
    """One sentence per row, as an encoder's features; rows past the last are padding."""
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
        # Models with a segment embedding read it, also of a text alone.
        "sides": np.zeros((rows, length), np.int32),
    }

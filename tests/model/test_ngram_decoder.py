"""The n-stream decoder is ProphetNet's: its numbers, what each stream sees, and stream 0 as an
ordinary decoder."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlingjax.model.config import preset
from xlingjax.model.ngram_decoder import NgramSeq2Seq, bucket
from xlingjax.model.partition import MeshConfig, make_mesh, param_shardings

VOCAB = 40
CONFIG = preset(
    "tiny",
    layers=2,
    decoder_layers=2,
    dim=16,
    heads=2,
    ffn=32,
    vocab_size=VOCAB,
    vocab_multiple=8,
    max_positions=64,
    position_offset=1,
    norm_eps=1e-5,
    head="plain",
    decoder_embeddings="shared_tokens",
    streams=2,
    dropout=0.0,
    unroll=1,
)


@functools.cache
def random_params(config):
    """No parameter at 0 or 1, so that each one counts."""
    rng, abstract = np.random.default_rng(0), NgramSeq2Seq(config).abstract()
    draw = lambda path, leaf: (path[-1].key == "scale") + 0.4 * rng.normal(size=leaf.shape)  # noqa: E731
    return jax.tree.map(np.float32, jax.tree_util.tree_map_with_path(draw, abstract))


def make_batch(targets, sources, length, width, seed=0):
    """Random tokens; `targets` and `sources`: for each row the numbers of tokens of its
    examples."""
    rng, rows = np.random.default_rng(seed), len(targets)
    batch = {}
    for prefix, parts, columns in (("", sources, width), ("decoder_", targets, length)):
        fields = {
            name: np.zeros((rows, columns), np.int32)
            for name in ("position_ids", "pack_ids", "language_ids")
        }
        for row, sizes in enumerate(parts):
            used = sum(sizes)
            fields["position_ids"][row, :used] = np.concatenate([np.arange(size) for size in sizes])
            fields["pack_ids"][row, :used] = np.repeat(np.arange(len(sizes)) + 1, sizes)
        ids = rng.integers(3, VOCAB, (rows, columns)) * (fields["pack_ids"] > 0)
        batch |= {prefix + name: values for name, values in fields.items()}
        batch["decoder_ids" if prefix else "input_ids"] = ids.astype(np.int32)
    return batch


def random_memory(batch, dim=CONFIG.dim):
    return np.random.default_rng(7).normal(size=(*batch["input_ids"].shape, dim)).astype(np.float32)


def streams(config, params, batch, memory_BSD, **options):
    model = NgramSeq2Seq(config)
    return np.asarray(
        jax.jit(lambda p, b, m: model.decode_streams(p, b, m, **options))(params, batch, memory_BSD)
    )


PACKED = make_batch([[4, 5], [3, 2]], [[3, 2], [1, 4]], length=10, width=6)


# --- Parity with Hugging Face's ProphetNet ---


# --- What each stream sees ---


@pytest.mark.parametrize("n", [1, 3])
def test_stream_sees_all_words_but_the_last_and_nothing_of_others(n):
    """The gradient of a logit is not 0 for columns 0 to max(t-i, 0) of its example, and exactly 0
    for every other."""
    config = CONFIG.replace(streams=n)
    model, params, memory_BSD = NgramSeq2Seq(config), random_params(config), random_memory(PACKED)
    rows, length = PACKED["decoder_ids"].shape
    vocabulary_V = np.random.default_rng(3).normal(size=VOCAB)

    def logits(shift_BTD, memory_BSD):
        h_NBTD = model.decode_streams(params, PACKED, memory_BSD, shift_BTD=shift_BTD)
        g, table_VD, bias_V = model.decoder_head(params, h_NBTD)
        # Rows see nothing of each other: their sum has the gradients of each.
        return (g @ table_VD.T + bias_V).sum(1) @ vocabulary_V

    shift_BTD = jnp.zeros((rows, length, config.dim))
    to_words, to_source = jax.jit(jax.jacrev(logits, (0, 1)))(shift_BTD, memory_BSD)
    seen_NTBT, seen_NTBS = (np.asarray(g != 0).any(-1) for g in (to_words, to_source))
    pack, source = PACKED["decoder_pack_ids"], PACKED["pack_ids"]
    for row in range(rows):
        for t in np.flatnonzero(pack[row]):
            first = np.flatnonzero(pack[row] == pack[row, t])[0]
            for i in range(n):
                assert np.flatnonzero(seen_NTBT[i, t, row]).tolist() == list(
                    range(first, max(t - i, first) + 1)
                )
                np.testing.assert_array_equal(seen_NTBS[i, t, row], source[row] == pack[row, t])


def test_rows_see_nothing_of_each_other():
    params, memory_BSD = random_params(CONFIG), random_memory(PACKED)
    other = {name: np.concatenate([ids[:1], ids[:1]]) for name, ids in PACKED.items()}
    h_NBTD = streams(CONFIG, params, PACKED, memory_BSD)
    np.testing.assert_array_equal(h_NBTD[:, 0], streams(CONFIG, params, other, memory_BSD)[:, 0])


@pytest.mark.long
def test_packed_examples_equal_those_alone():
    params, memory_BSD = random_params(CONFIG), random_memory(PACKED)
    packed = streams(CONFIG, params, PACKED, memory_BSD)
    for row, pack in ((0, 1), (0, 2), (1, 1), (1, 2)):
        words, source = PACKED["decoder_pack_ids"][row] == pack, PACKED["pack_ids"][row] == pack
        alone = {
            name: ids[row : row + 1, words if name.startswith("decoder") else source]
            for name, ids in PACKED.items()
        }
        alone |= {name: ids * 0 + 1 for name, ids in alone.items() if name.endswith("pack_ids")}
        want_NBTD = streams(CONFIG, params, alone, memory_BSD[row : row + 1, source])
        np.testing.assert_allclose(packed[:, row, words], want_NBTD[:, 0], atol=2e-5)
    assert np.isfinite(packed).all()


def test_distances_are_those_of_the_positions_given():
    """As in pretraining, where the words of a target keep their positions in the document."""
    params, memory_BSD = jax.tree.map(np.copy, random_params(CONFIG)), random_memory(PACKED)
    params["decoder_embeddings"]["positions"]["embedding"][1:] = 1.0  # leaves distances alone
    h_NBTD = streams(CONFIG, params, PACKED, memory_BSD)

    def moved(by_T):
        batch = {
            **PACKED,
            "decoder_position_ids": PACKED["decoder_position_ids"] + np.asarray(by_T),
        }
        return np.abs(streams(CONFIG, params, batch, memory_BSD) - h_NBTD)[:, 0].max(-1)

    assert moved([20] * 10).max() < 1e-5
    apart_NT = moved([0, 0, 20, 20, 0, 0, 0, 0, 0, 0])
    assert apart_NT[:, [0, 1, 4, 5, 6, 7, 8]].max() < 1e-5
    assert min(apart_NT[0, 2], apart_NT[:, 3].min()) > 1e-2


def test_buckets():
    distances = np.arange(-3, 300)
    want = [
        max(n, 0) if n < 16 else min(16 + int(16 * math.log(n / 16) / math.log(8)), 31)
        for n in distances
    ]
    np.testing.assert_array_equal(bucket(CONFIG, jnp.asarray(distances)), want)
    assert bucket(
        CONFIG.replace(relative_buckets=4, relative_max_distance=8), jnp.arange(10)
    ).tolist() == ([0, 1, 2, 2, 3, 3, 3, 3, 3, 3])


# --- Stream 0 as a decoder ---


@pytest.mark.parametrize(
    "change",
    [
        dict(),
        dict(streams=1, norm_order="pre", decoder_embeddings="separate", num_languages=3, unroll=0),
        dict(
            streams=3,
            decoder_embeddings="shared",
            relative_buckets=6,
            relative_max_distance=9,
            head="tied",
            attention_backend="chunked",
        ),
    ],
    ids=["post", "pre", "shared"],
)
def test_steps_equal_the_teacher_forced_stream_0(change):
    config = CONFIG.replace(**change)
    model, params = NgramSeq2Seq(config), random_params(config)
    batch = make_batch([[12], [12], [12]], [[6], [2], [4]], 12, 6)
    batch["decoder_language_ids"] = np.repeat([[0], [2], [1]], 12, axis=1).astype(np.int32)
    memory_BSD = random_memory(batch)
    h_NBTD = streams(config, params, batch, memory_BSD)
    assert h_NBTD.shape == (config.streams, 3, 12, 16)
    decode = jax.jit(lambda p: model.decode(p, batch, memory_BSD))
    np.testing.assert_allclose(decode(params), h_NBTD[0], atol=2e-5)
    cache = jax.jit(lambda p: model.start(p, batch, memory_BSD, 14))(params)
    step = jax.jit(model.step)
    for column in range(12):
        languages_B = batch["decoder_language_ids"][:, column]
        h_BD, cache = step(params, cache, batch["decoder_ids"][:, column], languages_B)
        np.testing.assert_allclose(h_BD, h_NBTD[0, :, column], atol=2e-5)


# --- Parameters, switches, errors ---


def value_and_grad(config, params, mesh=None, **jit):
    model, memory_BSD = NgramSeq2Seq(config, mesh), random_memory(PACKED)
    loss = lambda p: jnp.square(model.decode_streams(p, PACKED, memory_BSD)[..., :3]).mean()  # noqa: E731
    return jax.jit(jax.value_and_grad(loss), **jit)(params)


@pytest.mark.long
def test_unrolled_rematerialised_and_sharded_decoders_equal_the_scanned_one():
    params = random_params(CONFIG)
    value, grads = value_and_grad(CONFIG, params)
    assert all(g.any() for g in jax.tree.leaves((grads["decoder"], grads["decoder_embeddings"])))
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    model = NgramSeq2Seq(CONFIG, mesh)
    shardings = param_shardings(mesh, model.logical_axes(), model.abstract())
    for change, options in (
        (dict(unroll=0, remat="dots"), {}),
        ({}, dict(mesh=mesh, in_shardings=(shardings,))),
    ):
        other, other_grads = value_and_grad(CONFIG.replace(**change), params, **options)
        np.testing.assert_allclose(other, value, rtol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), other_grads, grads)

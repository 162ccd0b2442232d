"""Decoding: with a cache as without, beams beside transformers' search, and what is forbidden is
not written."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import foreign
from tests.helpers import tiny
from xlingjax.model.config import preset
from xlingjax.model.decoding import Decoding, Ids
from xlingjax.model.generation import generate
from xlingjax.model.masks import bidirectional
from xlingjax.model.seq2seq import Seq2Seq

PAD, END, START, VOCAB = 1, 2, 0, 40
IDS = Ids(end=END, pad=PAD)
ROWS, SOURCE, COLUMNS = 8, 9, 14


def sources(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    pack = (np.arange(SOURCE) < rng.integers(3, SOURCE + 1, rows)[:, None]).astype(np.int32)
    return {
        "input_ids": (
            np.where(pack > 0, rng.integers(4, VOCAB, (rows, SOURCE)), PAD).astype(np.int32)
        ),
        "position_ids": (np.arange(SOURCE) * pack).astype(np.int32),
        "language_ids": np.zeros((rows, SOURCE), np.int32),
        "pack_ids": pack,
    }


@pytest.fixture(scope="module")
def made():
    """A model whose random words are not all alike."""
    config = preset(
        "tiny",
        layers=2,
        decoder_layers=2,
        dim=16,
        heads=2,
        ffn=32,
        vocab_size=VOCAB,
        vocab_multiple=16,
        max_positions=32,
        num_languages=2,
        dropout=0.0,
        init_std=1.0,
        norm_order="pre",
    )
    model = Seq2Seq(config)
    params = tiny.params(model, 1)
    params["embeddings"]["tokens"]["embedding"] *= 0.2
    params["head"]["bias"] = params["head"]["bias"].at[END].set(1.5)
    return model, params


def found_by(made, batch=None, columns=COLUMNS, start=START, ids=IDS, **options):
    model, params = made
    key = options.pop("key", None)
    batch = sources() if batch is None else batch
    rows = len(batch["input_ids"])

    @jax.jit
    def run(params, batch):
        start_B, languages_B = jnp.full(rows, start), jnp.ones(rows, jnp.int32)
        return generate(
            model, params, batch, start_B, languages_B, ids, Decoding(**options), columns, key=key
        )

    return jax.tree.map(np.asarray, run(params, batch))


def teacher_forced(made, batch, texts_BT):
    """log-probabilities [B, T, V] without a cache."""
    model, params = made
    rows, length = texts_BT.shape
    inputs = np.concatenate([np.full((rows, 1), START), texts_BT[:, :-1]], axis=1).astype(np.int32)
    ones = np.ones((rows, length), np.int32)
    target = {
        "decoder_ids": inputs,
        "decoder_position_ids": ones * np.arange(length, dtype=np.int32),
    }
    batch = {**batch, **target, "decoder_language_ids": ones, "decoder_pack_ids": ones}
    return np.array(log_probabilities(model, params, batch))


@functools.partial(jax.jit, static_argnums=0)
def log_probabilities(model, params, batch):
    memory_BSD = model.encode(params, batch, bidirectional)
    g, table_VD, bias_V = model.decoder_head(params, model.decode(params, batch, memory_BSD))
    logits = g @ table_VD.T + bias_V
    return jax.nn.log_softmax(jnp.where(jnp.arange(logits.shape[-1]) < VOCAB, logits, -jnp.inf))


def greedy_without_cache(made, batch, limit_B):
    texts = np.full((len(limit_B), COLUMNS), PAD)
    done = np.zeros(len(limit_B), bool)
    for column in range(COLUMNS):
        log = teacher_forced(made, batch, texts)[:, column]
        log[:, PAD] = -np.inf
        texts[:, column] = np.where(done, PAD, log.argmax(-1))
        done |= (texts[:, column] == END) | (column + 1 >= limit_B)
    return texts


@pytest.mark.long
def test_greedy_with_a_cache_is_greedy_without_on_200_inputs(made):
    batch = sources(rows=200, seed=1)
    found = found_by(made, batch, max_length=(1.0, 3))
    limit = batch["pack_ids"].sum(1) + 3
    np.testing.assert_array_equal(found.ids[:, 0], greedy_without_cache(made, batch, limit))
    ended = (found.ids[:, 0] == END).any(1)
    assert 10 < ended.sum() < 190  # some end by themselves, some are cut
    np.testing.assert_array_equal(found.lengths[:, 0], (found.ids[:, 0] != PAD).sum(1))
    assert len(np.unique(found.ids[:, 0], axis=0)) > 50


def test_one_beam_is_greedy(made):
    from xlingjax.model import generation

    greedy = found_by(made)
    try:
        one = generation.one_by_one
        generation.one_by_one = lambda *given: generation.beam_search(*given[:-1])
        beam = found_by(made)
    finally:
        generation.one_by_one = one
    np.testing.assert_array_equal(beam.ids, greedy.ids)
    np.testing.assert_allclose(beam.scores, greedy.scores, atol=1e-5)


def test_scores_are_those_of_teacher_forcing(made):
    batch = sources()
    found = found_by(made, beams=4, n_best=4, length_penalty=0.7)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    for beam in range(4):
        texts, lengths = found.ids[:, beam], found.lengths[:, beam]
        log = np.take_along_axis(teacher_forced(made, batch, texts), texts[:, :, None], axis=2)[
            :, :, 0
        ]
        total = (log * (np.arange(COLUMNS) < lengths[:, None])).sum(1)
        np.testing.assert_allclose(found.scores[:, beam], total / lengths**0.7, atol=1e-4)
        behind = np.arange(COLUMNS) >= lengths[:, None] - 1
        assert not (texts == END)[~behind].any() and (texts[:, 1:][behind[:, :-1]] == PAD).all()
    assert (found.lengths > 1).any() and (found.ids == END).any(-1).sum() > 5
    assert all(len(np.unique(found.ids[row], axis=0)) == 4 for row in range(ROWS))


@pytest.mark.parametrize("beams", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("option", [{"min_length": 8}, {"no_repeat_ngram": 1}], ids=str)
def test_what_is_not_allowed_still_counts_in_the_scores(made, option, beams):
    """Each is a share of all words, of those too that may not be written."""
    ids = dataclasses.replace(IDS, banned=(5, 6, 6, 9, PAD))
    found = found_by(made, beams=beams, length_penalty=2.0, ids=ids, **option)
    texts, lengths = found.ids[:, 0], found.lengths[:, 0]
    log = np.take_along_axis(teacher_forced(made, sources(), texts), texts[:, :, None], axis=2)[
        :, :, 0
    ]
    total = (log * (np.arange(COLUMNS) < lengths[:, None])).sum(1)
    np.testing.assert_allclose(found.scores[:, 0], total / lengths**2.0, atol=1e-4)
    assert (lengths > 1).any()


@pytest.mark.parametrize("beams", [1, pytest.param(4, marks=pytest.mark.long)])
def test_what_is_forbidden_is_not_written(made, beams):
    repeated = found_by(made, beams=beams, max_length=(0, COLUMNS), min_length=10)
    found = found_by(made, beams=beams, max_length=(0, COLUMNS), min_length=10, no_repeat_ngram=2)

    def bigrams(text):
        text = [i for i in text.tolist() if i != PAD]
        return list(zip(text, text[1:], strict=False))

    assert any(len(set(bigrams(text))) < len(bigrams(text)) for text in repeated.ids[:, 0])
    assert all(len(set(bigrams(text))) == len(bigrams(text)) for text in found.ids[:, 0])
    assert (found.lengths >= 10).all() and (found.ids[:, 0, :9] != END).all()
    banned = dataclasses.replace(IDS, banned=tuple(range(4, 30)))
    other = found_by(made, beams=beams, max_length=(0, 5), min_length=4, ids=banned)
    assert not np.isin(other.ids[:, 0], banned.banned).any() and (other.ids[:, 0] >= 30).any()
    lengths = {*other.lengths[:, 0].tolist()}  # from the least, which is reached, to the most
    assert 4 in lengths and lengths <= {4, 5}


@pytest.mark.long
def test_drawn_tokens_follow_the_softmax(made):
    batch = {name: np.repeat(field[:1], 4000, axis=0) for name, field in sources().items()}
    expected = np.exp(teacher_forced(made, sources(), np.full((ROWS, 1), PAD))[0, 0])
    draws = {}
    for options in ({}, {"top_k": 3}, {"temperature": 0.5}):
        found = found_by(
            made, batch, columns=1, **{"temperature": 1.0, **options}, key=jax.random.key(0)
        )
        draws[tuple(options)] = np.bincount(found.ids[:, 0, 0], minlength=VOCAB) / 4000
    expected[PAD] = 0
    expected = expected[:VOCAB] / expected.sum()
    np.testing.assert_allclose(draws[()], expected, atol=0.03)
    assert set(np.flatnonzero(draws["top_k",])) == set(np.argsort(expected)[-3:])
    sharp = expected**2 / (expected**2).sum()
    np.testing.assert_allclose(draws["temperature",], sharp, atol=0.03)


@pytest.mark.parametrize("kind", ["Bart", pytest.param("MBart", marks=pytest.mark.long)])
def test_transformers_give_the_same_logits_and_the_same_beams(kind):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCAB,
        d_model=24,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=30,
        init_std=0.3,
        scale_embedding=kind == "MBart",
        bos_token_id=START,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=END,
        forced_eos_token_id=None,
        forced_bos_token_id=None,
    )
    theirs = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    ours = Seq2Seq(
        preset(
            "xlmr_base",
            layers=2,
            decoder_layers=3,
            dim=24,
            heads=4,
            ffn=32,
            vocab_size=VOCAB,
            vocab_multiple=1,
            max_positions=32,
            head="tied",
            decoder_embeddings="separate",
            embedding_scale=kind == "MBart",
            norm_order="pre" if kind == "MBart" else "post",
            unroll=0,
        )
    )
    with torch.no_grad():
        theirs.model.shared.weight *= 0.3  # or every text says one word again and again
        theirs.final_logits_bias[:, END] = 1.0  # some texts end early
    params = foreign.bart(theirs)
    assert jax.tree.map(np.shape, params) == jax.tree.map(lambda x: x.shape, ours.abstract())
    batch = sources()
    texts = np.random.default_rng(5).integers(4, VOCAB, (ROWS, COLUMNS))
    inputs = torch.tensor(batch["input_ids"]).long(), torch.tensor(batch["pack_ids"]).long()
    with torch.no_grad():
        start = torch.full((ROWS, 1), START)
        logits = theirs(
            *inputs, decoder_input_ids=torch.cat([start, torch.tensor(texts[:, :-1])], 1)
        ).logits
        expected = torch.log_softmax(logits, -1).numpy()
    np.testing.assert_allclose(teacher_forced((ours, params), batch, texts), expected, atol=1e-4)
    penalty, ngram = {"Bart": (1.0, 0), "MBart": (0.3, 2)}[kind]
    with torch.no_grad():
        searched = theirs.generate(
            inputs[0],
            attention_mask=inputs[1],
            num_beams=5,
            max_new_tokens=COLUMNS,
            do_sample=False,
            num_return_sequences=5,
            return_dict_in_generate=True,
            output_scores=True,
            length_penalty=penalty,
            no_repeat_ngram_size=ngram,
        )
    ids = searched.sequences[:, 1:].numpy().reshape(ROWS, 5, -1)
    ways = dict(
        beams=5, n_best=5, length_penalty=penalty, no_repeat_ngram=ngram, max_length=(0, COLUMNS)
    )
    found = found_by((ours, params), batch, start=END, **ways)
    np.testing.assert_allclose(
        found.scores, searched.sequences_scores.numpy().reshape(ROWS, 5), atol=1e-4
    )
    np.testing.assert_array_equal(np.asarray(found.ids)[:, :, : ids.shape[2]], ids)
    assert (
        (ids == END).any(-1).mean() > 0.1
        and (found.lengths < COLUMNS).any()
        and len(np.unique(ids)) > 4
    )

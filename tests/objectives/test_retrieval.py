"""Fine-tuning of sentence vectors on translations, against NumPy."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from tests.helpers import made, tiny
from tests.helpers import numpy_transformer as transformer
from tests.helpers.leaks import visibility
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, random_model
from xlingjax.errors import UserError
from xlingjax.inference.encode import pooling_weights
from xlingjax.inference.sentences import Dense
from xlingjax.objectives.retrieval import Distillation, HardestNegative, TranslationRanking
from xlingjax.preprocessors.retrieval import DistillationFeatures, SentencePairFeatures
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.run_record import run_identity


@functools.cache
def model():
    return random_model()


def pairs(rows=6, seed=0, name="clwr"):
    """Row 3 only fills the batch; row 4's second text is row 1's."""
    batch = tiny.batch(name, seed, rows=rows, length=12, vocab=90)
    batch["pack_ids"][3] = 0
    for field in ("input_ids", "position_ids", "language_ids", "sides", "pack_ids"):
        batch[field][4] = batch[field][1]
    # The first text alone differs.
    batch["input_ids"][4, 1] += 1
    return {field: batch[field] for field in HardestNegative().reads}


def vectors(batch, pooling="mean"):
    """Each text on its own, in a row of its own, without padding: of the last states."""
    config, params = CONFIG, model()[1]
    found = np.zeros((2, len(batch["input_ids"]), config.dim))
    for side, row in np.ndindex(found.shape[:2]):
        there = (batch["pack_ids"][row] > 0) & (batch["sides"][row] == side)
        if there.any():
            alone = {name: values[row : row + 1, there] for name, values in batch.items()}
            alone = {**alone, "sides": np.zeros_like(alone["sides"])}
            h_LD = transformer.encode(config, params, alone)[0]
            ids = alone["input_ids"]
            weights = pooling_weights(ids, np.ones_like(ids) > 0, (), pooling)
            found[side, row] = weights[0] @ h_LD
    return found


def test_the_loss_is_that_of_the_definition():
    batch = pairs()
    u, v = vectors(batch)
    real = [0, 1, 2, 4, 5]
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    total, hits = 0.0, 0
    scale, bias = 5.0, -2.0
    for row in real:
        same_y = {1, 4} if row in (1, 4) else {row}
        to_y = max(scale * cosine(u[row], v[j]) + bias for j in real if j not in same_y)
        to_x = max(scale * cosine(u[j], v[row]) + bias for j in real if j != row)
        positive = scale * cosine(u[row], v[row]) + bias
        for negative in (to_y, to_x):
            total -= 0.5 * (np.log(sigmoid(positive)) + np.log(1 - sigmoid(negative)))
        hits += positive > max(to_y, to_x)
    objective = HardestNegative(scale=scale, bias=bias)
    loss = loss_of(objective, *model(), batch)
    np.testing.assert_allclose(loss.terms["hardest_negative"], total, rtol=1e-4)
    np.testing.assert_allclose(loss.metrics["hardest_negative/accuracy"], (hits, 5))
    assert float(objective.weights(batch)["hardest_negative"]) == 5
    counts = np.bincount(batch["language_ids"][real, 0], minlength=LANGUAGES)
    found = loss.metrics["hardest_negative/loss_by_language"][1]
    np.testing.assert_array_equal(found, counts)


def test_ranking_is_a_softmax_over_all_translations_of_the_batch():
    batch = pairs()
    u, v = vectors(batch)
    real = [0, 1, 2, 4, 5]
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    scale, margin, total = 7.0, 0.3, 0.0
    for row in real:
        positive = scale * (cosine(u[row], v[row]) - margin)
        # Rows 1 and 4 have one second text, which is no negative of either.
        same_y = {1, 4} if row in (1, 4) else {row}
        for others in (
            [scale * cosine(u[row], v[j]) for j in real if j not in same_y],
            [scale * cosine(u[j], v[row]) for j in real if j != row],
        ):
            total -= positive - np.log(np.exp([positive, *others]).sum())
    objective = TranslationRanking(scale=scale, margin=margin)
    loss = loss_of(objective, *model(), batch)
    np.testing.assert_allclose(loss.terms["translation_ranking"], total, rtol=1e-4)
    assert float(objective.weights(batch)["translation_ranking"]) == 5
    # In parts the same.
    parts = loss_of(objective.in_parts(3), *model(), batch)
    np.testing.assert_allclose(parts.terms["translation_ranking"], total, rtol=1e-4)


def test_each_text_is_read_alone():
    batch = pairs()
    seen = visibility(*model(), batch, HardestNegative().attention())
    assert not len(seen.leaks) and not len(seen.blocked)
    sides = batch["sides"]
    beside = seen.moved & (sides[:, :, None] != sides[:, None, :])
    assert not beside[[0, 1, 2]].any()


def test_a_lower_layer_is_that_of_a_shorter_model_and_the_ones_above_stay_as_they_are():
    encoder, params = model()
    batch = pairs()

    def loss(params):
        return (
            HardestNegative(layer=1)
            .loss(encoder, params, batch, None, LANGUAGES)
            .terms["hardest_negative"]
        )

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    layers = jax.tree.map(np.asarray, gradient["encoder"]["layers"])
    for leaf in jax.tree.leaves(layers):
        # Layers are the first axis: the first learns, those above do not.
        assert np.isfinite(leaf).all() and not leaf[1:].any()
    assert any(leaf[0].any() for leaf in jax.tree.leaves(layers))
    last = loss_of(HardestNegative(), encoder, params, batch).terms["hardest_negative"]
    assert float(value) != pytest.approx(float(last), rel=1e-3)


def test_rows_are_each_text_as_sentence_retrieval_reads_it():
    before, after = made.batch(SentencePairFeatures())
    np.testing.assert_array_equal(after["input_ids"], before["input_ids"])
    for row in range(len(after["input_ids"])):
        assert {*after["pack_ids"][row].tolist()} <= {0, 1}  # one pair
        for side in (0, 1):
            there = (after["pack_ids"][row] > 0) & (after["sides"][row] == side)
            if there.any():
                ids = after["input_ids"][row, there]
                assert (ids[0], ids[-1]) == (made.Xlmr.bos_id, made.Xlmr.eos_id)
                assert after["position_ids"][row, there].tolist() == list(range(len(ids)))


def test_any_layer_from_the_embeddings_on():
    assert HardestNegative(layer=0).layer == 0


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_both_texts_are_drawn_to_the_vector_of_the_teacher(pooling, normalize):
    batch = pairs()
    rng = np.random.default_rng(1)
    kernel, bias = rng.normal(size=(CONFIG.dim, 5)), rng.normal(size=5)
    dense = Dense(("tanh",), ((np.float32(kernel), np.float32(bias)),))
    t = np.float32(rng.normal(size=(6, 5)))
    batch["language_ids"] = np.int32(np.where(batch["sides"] == 1, 2, 1))
    objective = Distillation(pooling=pooling, dense=dense, normalize=normalize)
    loss = loss_of(objective, *model(), batch | {"teacher_vectors": t[:, None]})
    real = [0, 1, 2, 4, 5]
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    both = np.tanh(vectors(batch, pooling) @ kernel + bias)
    squares = ((unit(both) - unit(t)) ** 2 if normalize else (both - t) ** 2).sum(axis=-1)
    np.testing.assert_allclose(loss.terms["distillation"], squares[:, real].sum(), rtol=1e-4)
    cosines = (unit(both) * unit(t)).sum(axis=-1)[:, real].sum(axis=1)
    of_language = loss.metrics["distillation/cosine_by_language"]
    np.testing.assert_allclose(of_language[0], [0, *cosines], rtol=1e-4)
    np.testing.assert_allclose(of_language[1], [0, 5, 5])


def test_a_run_tells_dense_layers_by_their_numbers():
    """Arrays are none of JSON; a run that goes on must find the same ones."""

    def switches(scale):
        layer = np.full((CONFIG.dim, 2), scale, np.float32), np.zeros(2, np.float32)
        objective = HardestNegative(dense=Dense(("tanh",), (layer,)))
        return run_identity(CONFIG, {}, {"x": objective}, 0, OptimizerConfig())["switches"]["x"]

    assert switches(1) == switches(1) != switches(2)


def test_a_teacher_of_other_width_is_refused():
    batch = pairs() | {"teacher_vectors": np.zeros((6, 1, CONFIG.dim + 1), np.float32)}
    with pytest.raises(UserError, match="choose a teacher of as many"):
        loss_of(Distillation(), *model(), batch)


class Prefixed(made.Xlmr):
    """Texts are words of numbers."""

    sha256 = "numbers"

    def encode(self, text):
        return [int(word) for word in text.split()]

    def encode_lines(self, texts, threads=1):
        rows = [self.encode(text) for text in texts]
        return np.array(sum(rows, []), np.int32), np.array([len(row) for row in rows], np.int32)


def test_a_prefix_stands_before_each_text():
    plain, _ = made.batch(SentencePairFeatures(), length=24)
    _, after = made.batch(SentencePairFeatures(prefix="70 71"), length=28, vocabulary=Prefixed())
    assert len(plain["input_ids"]) == len(after["input_ids"]) > 20
    for row, side in np.ndindex(len(after["input_ids"]), 2):
        bare, there = (
            {name: of[name][row, (of["pack_ids"][row] > 0) & (of["sides"][row] == side)]
             for name in HardestNegative.reads}
            for of in (plain, after)
        )  # fmt: skip
        first, *text = bare["input_ids"].tolist()
        assert there["input_ids"].tolist() == [first, 70, 71, *text]
        assert there["position_ids"].tolist() == list(range(len(text) + 3))
        assert {*there["language_ids"].tolist()} == {side}


@pytest.mark.parametrize("prefix", ["", "70 71"])
def test_each_row_has_the_vector_of_the_line_that_the_teacher_read(tmp_path, prefix):
    text = made.records(2)
    lines = sorted(made.texts(text, 1))
    shuffled = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))]
    vectors = np.arange(3 * len(lines) + 9, dtype=np.float32).reshape(-1, 3)
    file, array = tmp_path / "en.txt", tmp_path / "en.npy"
    # Lines that no pair has do not matter, nor do those that stand there twice.
    extra = [(40, 41), (), shuffled[0]]
    file.write_text("".join(" ".join(map(str, line)) + "\n" for line in [*shuffled, *extra]))
    np.save(array, vectors)
    features = DistillationFeatures(
        prefix=prefix, teacher_text=str(file), teacher_vectors=str(array)
    )
    assert features.shapes(2, 8)["teacher_vectors"] == (2, 1, 3)
    before, after = made.batch(features, vocabulary=Prefixed())
    for row in range(len(before["input_ids"])):
        of_side = (before["pack_ids"][row] > 0) & (before["sides"][row] == 1)
        _, *line, _ = before["input_ids"][row, of_side].tolist()
        expected = vectors[shuffled.index(tuple(line))]
        np.testing.assert_array_equal(after["teacher_vectors"][row, 0], expected)
    np.save(array, vectors[1:])
    with pytest.raises(UserError, match=f"{len(vectors)} lines: a vector of each is needed"):
        made.batch(dataclasses.replace(features, teacher="x"), vocabulary=Prefixed())
    np.save(array, np.where(vectors == 4, np.nan, vectors))
    with pytest.raises(UserError, match="1 vectors have numbers .* first is that of line 2; "):
        made.batch(dataclasses.replace(features, teacher="z"), vocabulary=Prefixed())
    file.write_text("40 41\n")
    np.save(array, vectors[:1])
    with pytest.raises(UserError, match="34 pairs of de-en have no side among the lines of"):
        made.batch(dataclasses.replace(features, teacher="y"), vocabulary=Prefixed())


@pytest.mark.parametrize("prefix", ["", "70 71"])
def test_packed_pairs_have_the_loss_of_a_row_each(tmp_path, prefix):
    """Of the same pairs: who shares a row makes no difference."""
    lines = sorted(made.texts(made.records(2), 1))
    (tmp_path / "en.txt").write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
    rng = np.random.default_rng(0)
    np.save(tmp_path / "en.npy", rng.normal(size=(len(lines), CONFIG.dim)).astype(np.float32))
    given = {name: str(tmp_path / f"en.{end}") for name, end in
             (("teacher_text", "txt"), ("teacher_vectors", "npy"))}  # fmt: skip
    losses = []
    for packing in (False, True):
        features = DistillationFeatures(prefix=prefix, packing=packing, **given)
        _, batch = made.batch(features, vocabulary=Prefixed())
        assert batch["teacher_vectors"].shape[1] == (8 if packing else 1)
        for kind in (Distillation, HardestNegative):
            read = {name: batch[name] for name in kind.reads}
            objective = kind(packing=packing)
            loss = loss_of(objective, *random_model(CONFIG.replace(max_positions=48)), read)
            # 34 pairs; packed in less than half the rows.
            assert float(objective.weights(read)[kind.name]) == 34
            losses.append(loss.terms[kind.name])
        assert len(batch["input_ids"]) <= (16 if packing else 34)
    np.testing.assert_allclose(losses[:2], losses[2:], rtol=1e-4)

"""One SGD step of our MLM loss is one of transformers' on the same batch, dropout 0."""

import numpy as np
import pytest

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

RATE = 0.1


def test_a_step_of_sgd_is_theirs(tmp_path):
    import jax

    from xlingjax.convert.formats.hugging_face import read
    from xlingjax.convert.formats.names import places, to_theirs
    from xlingjax.convert.formats.xlm_roberta import XLM_ROBERTA
    from xlingjax.model.build import build_model
    from xlingjax.objectives.xlm import MLM

    off = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    theirs = small_xlmr.save(tmp_path, layer_norm_eps=1e-5, **off).train()
    found, rng = read(tmp_path), np.random.default_rng(0)
    vocab, lengths, columns, slots = found.config.vocab_size, [20, 7, 13], 20, 5
    valid_BL = np.arange(columns) < np.array(lengths)[:, None]
    ids_BL = np.where(valid_BL, rng.integers(4, vocab, valid_BL.shape), 1)
    batch = {
        "input_ids": ids_BL.astype(np.int32),
        "pack_ids": valid_BL.astype(np.int32),
        "position_ids": np.broadcast_to(np.arange(columns, dtype=np.int32), ids_BL.shape),
        "language_ids": np.zeros(ids_BL.shape, np.int32),
        "masked_positions": np.zeros((3, slots), np.int32),
        "masked_targets": np.zeros((3, slots), np.int32),
        "masked_weights": np.zeros((3, slots), np.float32),
    }
    labels_BL = np.full(ids_BL.shape, -100)
    for row, (length, count) in enumerate(zip(lengths, [5, 1, 3], strict=True)):
        chosen = rng.choice(length, count, replace=False)
        targets = rng.integers(4, vocab, count)
        labels_BL[row, chosen] = targets
        batch["masked_positions"][row, :count] = chosen
        batch["masked_targets"][row, :count] = targets
        batch["masked_weights"][row, :count] = 1

    model, objective = build_model(found.config), MLM(chunk=0)

    def loss(params):
        sums = objective.loss(model, params, batch, None, 1).terms["mlm"]
        return sums / objective.weights(batch)["mlm"]

    value, gradient = jax.value_and_grad(loss)(found.params)
    after = jax.tree.map(
        lambda weight, slope: np.asarray(weight - RATE * slope), found.params, gradient
    )

    given = {"input_ids": ids_BL, "attention_mask": valid_BL, "labels": labels_BL}
    wanted = theirs(**{name: torch.tensor(one).long() for name, one in given.items()}).loss
    wanted.backward()
    before = {name: weight.numpy().copy() for name, weight in theirs.state_dict().items()}
    torch.optim.SGD(theirs.parameters(), RATE).step()

    assert abs(float(value) - wanted.item()) < 1e-5 * wanted.item()
    placed, _ = places(XLM_ROBERTA.written_names(found.config), found.config, found.params)
    ours = to_theirs(placed, after)
    # They keep a second sum in every position: the row of the segment, which ours has in the
    # positions.
    others = (XLM_ROBERTA.segments, "lm_head.decoder.weight", "lm_head.decoder.bias")  # tied
    moved = {
        name: weight.numpy() for name, weight in theirs.state_dict().items() if name not in others
    }
    assert {*ours} == {*moved}
    segment = before[XLM_ROBERTA.segments][0]
    for name, weight in moved.items():
        folded = segment if name.endswith("position_embeddings.weight") else 0
        change, wanted_change = ours[name] - (before[name] + folded), weight - before[name]
        size = np.linalg.norm(wanted_change)
        # It shifts all scores of a row alike: its gradient is 0 but for rounding.
        if name.endswith("key.bias"):
            assert size < 1e-6 and np.linalg.norm(change) < 1e-6
            continue
        assert size > 1e-4, name
        assert np.linalg.norm(weight + folded - ours[name]) < 1e-5 * np.linalg.norm(weight), name
        # Of numbers that were rounded at the weights.
        assert np.linalg.norm(change - wanted_change) < 1e-4 * size, name

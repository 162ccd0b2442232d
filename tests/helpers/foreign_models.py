"""Random models of other programs, the batches they are compared on, and the comparisons."""

import json
import shutil

import numpy as np
import pytest

from xlingjax.errors import UserError

TOLERANCE = 1e-4
BART = dict(vocab_size=50, d_model=24, max_position_embeddings=37)
"""What BART and mBART are made of here: 3 layers, 2 of the decoder."""
BART |= {f"{side}_layers": n for side, n in (("encoder", 3), ("decoder", 2))}
BART |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
BART |= {f"{side}_ffn_dim": 40 for side in ("encoder", "decoder")}
SIDES = dict(input_ids="input_ids", attention_mask="pack_ids", decoder_input_ids="decoder_ids")
"""The fields of a batch of both sides, by their arguments."""


def randomised(model, std=0.3):
    """The model in evaluation, its weights N(0, std), those of LayerNorm around 1."""
    import torch

    torch.manual_seed(0)
    norms = {
        id(module.weight) for module in model.modules() if isinstance(module, torch.nn.LayerNorm)
    }
    for weight in model.parameters():
        torch.nn.init.normal_(weight, mean=float(id(weight) in norms), std=std)
    return model.eval()


def batch_of(vocab, columns, pad, ends, languages=1, prefix=""):
    """Our fields of three rows: all columns, a single sentence, a pair, each sentence with `ends`
    after it."""
    rng = np.random.default_rng(columns)
    lengths = np.array([columns, max(columns // 5, 2), columns * 3 // 4])
    valid_BL = np.arange(columns) < lengths[:, None]
    ids_BL = np.where(valid_BL, rng.integers(6, vocab, valid_BL.shape), pad).astype(np.int32)
    languages_BL = np.zeros_like(ids_BL)
    for row, length in enumerate(lengths):
        ids_BL[row, length - 1] = ends
        languages_BL[row] = row % languages
    ids_BL[2, lengths[2] // 2 : lengths[2] // 2 + 2] = ends
    languages_BL[2, lengths[2] // 2 :] = languages - 1  # another language for its second sentence
    positions_BL = np.broadcast_to(np.arange(columns, dtype=np.int32), ids_BL.shape)
    return {
        f"{prefix}{'ids' if prefix else 'input_ids'}": ids_BL,
        f"{prefix}pack_ids": valid_BL.astype(np.int32),
        f"{prefix}position_ids": positions_BL,
        f"{prefix}language_ids": languages_BL,
    }


def both_sides(vocab, source=37, target=23, pad=1, ends=2, languages=1):
    batch = batch_of(vocab, source, pad, ends, languages)
    return batch | batch_of(vocab, target, pad, ends, languages, prefix="decoder_")


def tensors(batch, **names):
    """{their argument: the field as a tensor}."""
    import torch

    return {theirs: torch.tensor(batch[ours]).long() for theirs, ours in names.items()}


def states_and_logits(found, batch):
    """([N+1, B, L, D], [B, L, V]) of our encoder and its vocabulary head."""
    import jax

    from xlingjax.model.build import build_model
    from xlingjax.model.masks import bidirectional

    model = build_model(found.config)

    def compute(params, batch):
        h_NBLD = model.encode(params, batch, bidirectional, all_layers=True)
        g, table_VD, bias_V = model.vocab_head(params, h_NBLD[-1])
        return h_NBLD, (g @ table_VD.T + bias_V)[..., : found.config.vocab_size]

    return jax.tree.map(np.asarray, jax.jit(compute)(found.params, batch))


def states_and_logits_of_both_sides(found, batch, decode="decode"):
    """(the encoder's states of every layer, the decoder's of its first layer, the first two and so
    on, logits). decode: the model's method."""
    import jax

    from xlingjax.model.build import build_model
    from xlingjax.model.masks import bidirectional

    model, config, decoded = build_model(found.config), found.config, []
    h_NBLD = jax.jit(lambda params: model.encode(params, batch, bidirectional, all_layers=True))(
        found.params
    )
    for n in range(1, config.decoder_layers + 1):
        decoder = {**found.params["decoder"]}
        decoder["layers"] = jax.tree.map(lambda x, n=n: x[:n], decoder["layers"])
        params = {**found.params, "decoder": decoder}
        shorter = build_model(config.replace(decoder_layers=n))
        decoded.append(jax.jit(getattr(shorter, decode))(params, batch, h_NBLD[-1]))
    g, table_VD, bias_V = model.decoder_head(found.params, decoded[-1])
    logits = (g @ table_VD.T + bias_V)[..., : config.vocab_size]
    return jax.tree.map(np.asarray, (h_NBLD, decoded, logits))


def class_logits(found, batch):
    """Of our encoder's classifier."""
    from xlingjax.model.build import build_model
    from xlingjax.model.masks import bidirectional

    model = build_model(found.config)
    states = model.encode(found.params, batch, bidirectional)
    return np.asarray(model.classify(found.params, states, batch))


def assert_states_are(ours, theirs, valid_BL):
    """Every layer's, in every real column."""
    assert len(ours) == len(theirs)
    for n, (state, wanted) in enumerate(zip(ours, theirs, strict=True)):
        wanted = wanted.detach().numpy()
        assert wanted[valid_BL].std() > 0.5
        np.testing.assert_allclose(
            state[valid_BL], wanted[valid_BL], atol=TOLERANCE, err_msg=f"layer {n}"
        )


def weights(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def back(family, found):
    """{their name: array}, each of our parameters taken."""
    from xlingjax.convert.formats.names import places, to_theirs

    there, without = places(family.names_of(found.config), found.config, found.params)
    assert without == []
    return to_theirs(there, found.params)


def assert_same_bits(ours, theirs):
    assert {*ours} == {*theirs}
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def changed(**values):
    """Changes config.json in a folder; None takes an option away."""

    def change(folder):
        path = folder / "config.json"
        found = {**json.loads(path.read_text()), **values}
        kept = {name: value for name, value in found.items() if value is not None}
        path.write_text(json.dumps(kept))

    return change


def reweighted(change):
    """Changes the table of weights in a folder."""

    def write(folder):
        from safetensors.numpy import save_file

        found = weights(folder)
        change(found)
        save_file(found, folder / "model.safetensors")

    return write


def assert_refused(read, folder, spoil, message, tmp_path):
    """A copy of the folder, spoilt, is not read."""
    copy = shutil.copytree(folder, tmp_path / "hf")
    spoil(copy)
    with pytest.raises(UserError, match=message):
        read(copy)


def relative_scores(
    self, hidden_states, attn_weights, position_ids, predict_relative_position_buckets
):
    """The bias of predicting streams as ProphetNet's own code has it, each query's of its state.
    transformers 5.23 permutes it to (rows, T, n, heads) and reads it as (rows, n, heads, T): unless
    there is but one column, or one stream of one head, queries get the biases of others, those of
    later columns too."""
    import torch

    r_BNTE = self.relative_pos_embeddings(hidden_states.transpose(1, 2))
    r_BNHTU = r_BNTE.unflatten(-1, (self.num_buckets, self.num_attn_heads)).permute(0, 1, 4, 2, 3)
    buckets = predict_relative_position_buckets[:, None, None].expand(*r_BNHTU.shape[:4], -1)
    return torch.gather(r_BNHTU, -1, buckets.long())

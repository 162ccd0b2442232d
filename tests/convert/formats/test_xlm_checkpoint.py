"""Checkpoints of XLM's own code: an encoder is that of transformers, a decoder that of a reference
in PyTorch."""

import argparse

import pytest

from xlingjax.convert.formats import checkpoints
from xlingjax.convert.formats.xlm import XLM_SEQ2SEQ
from xlingjax.errors import UserError

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch

PARAMS = dict(emb_dim=24, n_layers=3, n_heads=4, n_words=50, n_langs=3, exp_name="x", bptt=256)
PARAMS |= dict(lang2id={"ar": 0, "de": 1, "zh": 2}, dropout=0.1, attention_dropout=0.2)
PARAMS |= dict(gelu_activation=True, sinusoidal_embeddings=False, asm=False)


def encoder(seed=0, **changes):
    """(transformers' model, the table of XLM's own code)"""
    config = dict(emb_dim=24, n_layers=3, n_heads=4, vocab_size=50, n_langs=3)
    config = transformers.XLMConfig(**config | {"max_position_embeddings": 37} | changes)
    model = foreign.randomised(transformers.XLMWithLMHeadModel(config))
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn(weight.shape, generator=generator)
    table = {
        name.removeprefix("transformer."): value.clone()
        for name, value in model.state_dict().items()
    }
    return model, table


@pytest.mark.parametrize("kind", ["published", "of several devices", "of a Namespace"])
def test_states_and_logits_of_an_encoder_are_those_of_transformers(kind, tmp_path):
    theirs, table = encoder()
    made = {"model": table, "params": PARAMS, "dico_id2word": {0: "<s>"}}
    if kind == "of several devices":
        parts = {f"module.{name}": value for name, value in table.items()}
        made = {"encoder": parts, "params": PARAMS, "epoch": 3}
    if kind == "of a Namespace":
        made["params"] = argparse.Namespace(**PARAMS)
    torch.save(made, tmp_path / "mlm.pth")
    found = checkpoints.params_of(tmp_path / "mlm.pth")
    config = found.config
    assert (config.num_languages, config.ffn, config.attention_dropout) == (3, 96, 0.2)
    batch = foreign.batch_of(50, 37, pad=2, ends=1, languages=3)
    states, logits = foreign.states_and_logits(found, batch)
    given = foreign.tensors(
        batch, input_ids="input_ids", attention_mask="pack_ids", langs="language_ids"
    )
    with torch.no_grad():
        wanted = theirs(**given, output_hidden_states=True)
    valid_BL = batch["pack_ids"] > 0
    foreign.assert_states_are(states, wanted.hidden_states, valid_BL)
    foreign.assert_states_are([logits], [wanted.logits], valid_BL)


def with_decoder(path):
    """(the encoder's table, the decoder's)"""
    _, source = encoder(1)
    _, target = encoder(2)
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape):
        return 0.3 * torch.randn(*shape, generator=generator)

    for n in range(3):
        for part in ("q", "k", "v", "out"):
            target[f"encoder_attn.{n}.{part}_lin.weight"] = drawn(24, 24)
            target[f"encoder_attn.{n}.{part}_lin.bias"] = drawn(24)
        target[f"layer_norm15.{n}.weight"] = 1 + drawn(24)
        target[f"layer_norm15.{n}.bias"] = drawn(24)
    torch.save({"encoder": source, "decoder": target, "params": PARAMS}, path)
    return source, target


def reference_decoder(table, n):
    """Layer n as PyTorch's own, which is the same arithmetic in other code."""
    layer = torch.nn.TransformerDecoderLayer(
        24, 4, 96, 0.0, torch.nn.functional.gelu, 1e-12, batch_first=True
    )
    for own, theirs in (
        (layer.self_attn, f"attentions.{n}"),
        (layer.multihead_attn, f"encoder_attn.{n}"),
    ):
        for part in ("weight", "bias"):
            getattr(own, f"in_proj_{part}").data = torch.cat(
                [table[f"{theirs}.{p}_lin.{part}"] for p in "qkv"]
            )
            getattr(own.out_proj, part).data = table[f"{theirs}.out_lin.{part}"]
    for own, theirs in (
        (layer.norm1, f"layer_norm1.{n}"),
        (layer.norm2, f"layer_norm15.{n}"),
        (layer.norm3, f"layer_norm2.{n}"),
        (layer.linear1, f"ffns.{n}.lin1"),
        (layer.linear2, f"ffns.{n}.lin2"),
    ):
        own.weight.data, own.bias.data = table[f"{theirs}.weight"], table[f"{theirs}.bias"]
    return layer.eval()


def test_a_decoder_has_its_own_tables_and_its_logits_are_the_references(tmp_path):
    source, target = with_decoder(tmp_path / "mt.pth")
    found = checkpoints.params_of(tmp_path / "mt.pth")
    assert found.config.decoder_layers == 3 and found.config.decoder_embeddings == "separate"
    batch = foreign.both_sides(50, 30, 21, pad=2, ends=1, languages=3)
    (*_, memory_BLD), _, ours = foreign.states_and_logits_of_both_sides(found, batch)
    given = foreign.tensors(
        batch, ids="decoder_ids", langs="decoder_language_ids", positions="decoder_position_ids"
    )
    x = target["embeddings.weight"][given["ids"]]
    x = x + target["lang_embeddings.weight"][given["langs"]]
    x = x + target["position_embeddings.weight"][given["positions"]]
    with torch.no_grad():
        x = torch.nn.functional.layer_norm(
            x, (24,), target["layer_norm_emb.weight"], target["layer_norm_emb.bias"], 1e-12
        )
        for n in range(3):
            x = reference_decoder(target, n)(
                x, torch.tensor(memory_BLD), torch.ones(21, 21).triu(1).bool(),
                tgt_is_causal=True, memory_key_padding_mask=torch.tensor(batch["pack_ids"] == 0),
            )  # fmt: skip
        wanted = x @ target["embeddings.weight"].T + target["pred_layer.proj.bias"]
    foreign.assert_states_are([ours], [wanted], batch["decoder_pack_ids"] > 0)
    names = {
        f"{side}.{name}": value.numpy()
        for side, table in (("encoder", source), ("decoder", target))
        for name, value in table.items()
        if name != "pred_layer.proj.weight"
    }
    foreign.assert_same_bits(foreign.back(XLM_SEQ2SEQ, found), names)


def test_what_is_not_computed_and_what_is_something_else_is_refused(tmp_path):
    table = encoder()[1]
    untied = {**table, "pred_layer.proj.weight": table["embeddings.weight"] + 1}
    for made, message in (
        (
            {"model": table, "params": {**PARAMS, "sinusoidal_embeddings": True}},
            "sinusoidal_embeddings=True is not something",
        ),
        ({"model": untied, "params": PARAMS}, "is not transf"),
        ({"model": table}, "it needs params, and model or encoder"),
        ({"model": {"a": torch.ones(2)}, "params": PARAMS}, "has no position_embeddings.weight"),
    ):
        torch.save(made, tmp_path / "x.pth")
        with pytest.raises(UserError, match=message):
            checkpoints.params_of(tmp_path / "x.pth")


@pytest.mark.parametrize("words", ["of the file", "of the checkpoint"])
def test_a_file_beside_codes_is_imported(words, tmp_path, capsys):
    from tests.helpers import small_fastbpe
    from xlingjax.cli.main import main
    from xlingjax.convert.formats.parity import SENTENCES
    from xlingjax.data.vocabulary.sentencepiece import XLM_SPECIAL_PIECES, Vocabulary
    from xlingjax.inference.run import open_run

    size = small_fastbpe.write(tmp_path / "hf", SENTENCES)
    folder = tmp_path / "xlm"
    folder.mkdir()
    (folder / "codes_xnli_15").write_bytes((tmp_path / "hf" / "codes").read_bytes())
    made = {"model": encoder(vocab_size=size)[1], "params": {**PARAMS, "n_words": size}}
    lines = (tmp_path / "hf" / "vocab").read_text().splitlines()
    if words == "of the file":
        (folder / "vocab_xnli_15").write_text("".join(f"{line}\n" for line in lines))
    else:
        names = [*XLM_SPECIAL_PIECES, *(line.split()[0] for line in lines)]
        made["dico_word2id"] = {name: i for i, name in enumerate(names)}
        (folder / "vocab_xnli_15").write_text("another 1\n")
    torch.save(made, folder / "mlm.pth")
    run = ["import", str(folder), "--to", str(tmp_path / "run"), "--unverified"]
    assert main(run) == 0
    opened = open_run(tmp_path / "run")
    assert opened.vocabulary == Vocabulary.load(tmp_path / "hf") and opened.vocabulary.lowercase
    assert opened.languages == ("ar", "de", "zh")
    made["params"]["n_words"] = size + 1
    made.pop("dico_word2id", None)
    (folder / "vocab_xnli_15").write_text("".join(f"{line}\n" for line in lines))
    torch.save({**made, "model": encoder(vocab_size=size + 1)[1]}, folder / "mlm.pth")
    with pytest.raises(
        UserError, match=f"its tokenizer has {size} pieces .layout xlm., the model {size + 1}"
    ):
        checkpoints.read(folder / "mlm.pth")

"""Checkpoints of XLM's own code: an encoder is that of transformers, a decoder that of a reference
in PyTorch."""

import argparse

import numpy as np
import pytest

from xlingjax.convert.formats import checkpoints
from xlingjax.convert.formats.xlm import XLM_SEQ2SEQ
from xlingjax.errors import UserError

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch

PARAMS = dict(
    emb_dim=24,
    n_layers=3,
    n_heads=4,
    n_words=50,
    n_langs=3,
    lang2id={"ar": 0, "de": 1, "zh": 2},
    dropout=0.1,
    attention_dropout=0.2,
    gelu_activation=True,
    sinusoidal_embeddings=False,
    asm=False,
    exp_name="x",
    bptt=256,
)


def encoder(seed=0, **changes):
    """(transformers' model, the table of XLM's own code)"""
    config = dict(
        emb_dim=24, n_layers=3, n_heads=4, vocab_size=50, n_langs=3, max_position_embeddings=37
    )
    model = foreign.randomised(
        transformers.XLMWithLMHeadModel(transformers.XLMConfig(**{**config, **changes}))
    )
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
    made = {
        "model": table,
        "params": PARAMS,
        "dico_id2word": {0: "<s>"},
        "dico_word2id": {"<s>": 0},
    }
    if kind == "of several devices":
        made = {
            "encoder": {f"module.{name}": value for name, value in table.items()},
            "params": PARAMS,
            "epoch": 3,
        }
    if kind == "of a Namespace":
        made["params"] = argparse.Namespace(**PARAMS)
    torch.save(made, tmp_path / "mlm.pth")
    found = checkpoints.params_of(tmp_path / "mlm.pth")
    assert (
        found.config.num_languages == 3
        and found.config.ffn == 96
        and found.config.attention_dropout == 0.2
    )
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


def with_decoder(tmp_path, **changes):
    """(the file, the encoder's table, the decoder's)"""
    _, source = encoder(1)
    _, target = encoder(2)
    generator = torch.Generator().manual_seed(3)
    for n in range(3):
        for part in ("q", "k", "v", "out"):
            target[f"encoder_attn.{n}.{part}_lin.weight"] = 0.3 * torch.randn(
                24, 24, generator=generator
            )
            target[f"encoder_attn.{n}.{part}_lin.bias"] = 0.3 * torch.randn(24, generator=generator)
        target[f"layer_norm15.{n}.weight"] = 1 + 0.3 * torch.randn(24, generator=generator)
        target[f"layer_norm15.{n}.bias"] = 0.3 * torch.randn(24, generator=generator)
    made = {"encoder": source, "decoder": target, "params": {**PARAMS, **changes}}
    torch.save(made, tmp_path / "mt.pth")
    return tmp_path / "mt.pth", source, target


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
    from xlingjax.model.attention import AttentionSpec
    from xlingjax.model.masks import bidirectional
    from xlingjax.model.seq2seq import Seq2Seq

    path, source, target = with_decoder(tmp_path)
    found = checkpoints.params_of(path)
    assert found.config.decoder_layers == 3 and found.config.decoder_embeddings == "separate"
    batch = foreign.batch_of(50, 30, pad=2, ends=1, languages=3)
    batch |= foreign.batch_of(50, 21, pad=2, ends=1, languages=3, prefix="decoder_")
    model = Seq2Seq(found.config)
    memory_BLD = model.encode(found.params, batch, AttentionSpec(bidirectional))
    g, table_VD, bias_V = model.decoder_head(
        found.params, model.decode(found.params, batch, memory_BLD)
    )
    ours = np.asarray(g @ table_VD.T + bias_V)[..., :50]
    given = foreign.tensors(
        batch, ids="decoder_ids", langs="decoder_language_ids", positions="decoder_position_ids"
    )
    x = sum(
        target[f"{name}.weight"][given[key]]
        for name, key in (
            ("embeddings", "ids"),
            ("lang_embeddings", "langs"),
            ("position_embeddings", "positions"),
        )
    )
    with torch.no_grad():
        x = torch.nn.functional.layer_norm(
            x, (24,), target["layer_norm_emb.weight"], target["layer_norm_emb.bias"], 1e-12
        )
        for n in range(3):
            x = reference_decoder(target, n)(
                x, torch.tensor(np.asarray(memory_BLD)), torch.ones(21, 21).triu(1).bool(),
                tgt_is_causal=True, memory_key_padding_mask=torch.tensor(batch["pack_ids"] == 0),
            )  # fmt: skip
        wanted = x @ target["embeddings.weight"].T + target["pred_layer.proj.bias"]
    foreign.assert_states_are([ours], [wanted], batch["decoder_pack_ids"] > 0)
    names = {f"encoder.{name}": value for name, value in source.items()}
    names |= {f"decoder.{name}": value for name, value in target.items()}
    names = {
        name: value.numpy()
        for name, value in names.items()
        if not name.endswith("pred_layer.proj.weight")
    }
    foreign.assert_same_bits(foreign.back(XLM_SEQ2SEQ, found), names)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (dict(sinusoidal_embeddings=True), "sinusoidal_embeddings=True is not something"),
        (dict(use_memory=True), "use_memory=True is not something"),
        (dict(use_lang_emb=False), "lang_embeddings.weight: wanted none, found 3 x 24"),
    ],
)
def test_what_is_not_computed_is_said(params, message, tmp_path):
    torch.save({"model": encoder()[1], "params": {**PARAMS, **params}}, tmp_path / "x.pth")
    with pytest.raises(UserError, match=message):
        checkpoints.params_of(tmp_path / "x.pth")


def test_untied_heads_tables_of_something_else_and_lost_vocabularies_are_refused(tmp_path):
    table = encoder()[1]
    for made, message in (
        (
            {
                "model": {**table, "pred_layer.proj.weight": table["embeddings.weight"] + 1},
                "params": PARAMS,
            },
            "is not transf",
        ),
        ({"model": table}, "it needs params, and model or encoder"),
        ({"model": {"a": torch.ones(2)}, "params": PARAMS}, "has no position_embeddings.weight"),
        ({"model": [1], "params": PARAMS}, "is no table of names and tensors"),
    ):
        torch.save(made, tmp_path / "x.pth")
        with pytest.raises(UserError, match=message):
            checkpoints.params_of(tmp_path / "x.pth")
    torch.save({"model": table, "params": PARAMS}, tmp_path / "x.pth")
    with pytest.raises(UserError, match="no sentencepiece.bpe.model in .*, and no other tokenizer"):
        checkpoints.read(tmp_path / "x.pth")


@pytest.mark.parametrize("words", ["of the file", "of the checkpoint"])
def test_a_file_beside_codes_is_imported(words, tmp_path, capsys):
    pytest.importorskip("sacremoses")
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

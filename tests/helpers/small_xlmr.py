"""A small XLM-R of random weights in a folder, as transformers saves it, with a tokenizer of its
own."""

import json

import sentencepiece

from xlingjax.convert.formats.parity import SENTENCES

CONFIG = dict(
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=70,
    layer_norm_eps=1e-5,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=2,
    type_vocab_size=1,
)


def tokenizer_model(path, size=340):
    """A SentencePiece model as XLM-R's: <unk> 0, <s> 1, </s> 2."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4),
        model_prefix=str(path / "spm"),
        vocab_size=size,
        character_coverage=1.0,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (path / "spm.model").rename(path / "sentencepiece.bpe.model")
    (path / "spm.vocab").unlink()
    return sentencepiece.SentencePieceProcessor(
        model_file=str(path / "sentencepiece.bpe.model")
    ).get_piece_size()


def save(path, kind="XLMRobertaForMaskedLM", **changes):
    """The model, written into `path`."""
    import torch
    import transformers

    path.mkdir(parents=True, exist_ok=True)
    pieces = tokenizer_model(path)
    torch.manual_seed(0)
    kind = getattr(transformers, kind)
    model = kind(kind.config_class(**{**CONFIG, "vocab_size": pieces + 2, **changes})).eval()
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(
            weight, mean=float("LayerNorm.weight" in name or "layer_norm.weight" in name), std=0.3
        )
    model.save_pretrained(path)
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "XLMRobertaTokenizer"})
    )
    return model

"""A small XLM-R of random weights in a folder, as transformers saves it, with a tokenizer of its
own."""

import io

import sentencepiece

from xlingjax.convert.formats.parity import SENTENCES

ODD = (
    "", " ", " \t\u3000a  b ▁ ", "▁ a", "a▁▁b ▁▁", "\x01", "  leading", "trailing  ", "dou  ble",
    "tab\tnew\nline\r\nx", "no\u00a0break", "\u200bzero\u200dwidth\ufeff\u200c", "\u202eabc",
    "haaaaaaaah .......", "👨\u200d👩\u200d👧 👩🏽\u200d💻 🇩🇪🇫🇷 1️⃣ 🦄🦄 ꙮ ꙮ",
    "ﬁ ﬂ Ａｂｃ ①② ½ ㎞ ｶﾞ ﷺ 𝕳𝖊𝖑𝖑𝖔", "\u0301a", "क\u093c न\u093c\u094d ो", "\u1112\u1161\u11ab",
)  # fmt: skip
"""Texts that a tokenizer may cut otherwise than SentencePiece does."""
CONFIG = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40)
CONFIG |= dict(max_position_embeddings=70, layer_norm_eps=1e-5, type_vocab_size=1)
CONFIG |= dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)


def sentencepiece_model(sentences=SENTENCES, size=340, **options):
    """The bytes of a SentencePiece model with XLM-R's ids: <unk> 0, <s> 1, </s> 2."""
    model = io.BytesIO()
    ids = dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    options = {**ids, "character_coverage": 1.0, "hard_vocab_limit": False, **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sentences] * 4),
        model_writer=model,
        vocab_size=size,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def tokenizer_model(path, size=340, sentences=SENTENCES):
    """Writes sentencepiece.bpe.model; returns how many pieces it has."""
    file = path / "sentencepiece.bpe.model"
    file.write_bytes(sentencepiece_model(sentences, size))
    return sentencepiece.SentencePieceProcessor(model_file=str(file)).get_piece_size()


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
        norm = name.endswith(("LayerNorm.weight", "layer_norm.weight"))
        torch.nn.init.normal_(weight, mean=float(norm), std=0.3)
    model.save_pretrained(path)
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    return model


def there_and_back(folder, languages=None):
    """(what was said, config.json of the export) of a model that goes in and out, compared with
    transformers both ways. languages: tokens of its tokenizer behind the pieces."""
    import contextlib
    import json

    from xlingjax.cli.main import main
    from xlingjax.convert.formats.tokenizer_json import tokenizer_files
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary

    # Not each class of theirs makes its tokenizer of the SentencePiece model.
    vocabulary = Vocabulary.load(folder / "sentencepiece.bpe.model", "xlmr")
    for name, content in tokenizer_files(vocabulary, 68, languages).items():
        (folder / name).write_bytes(content)
    run, out = folder.with_name("run"), folder.with_name("out")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["import", str(folder), "--to", str(run)]) == 0
        assert main(["export", str(run), "--to", str(out)]) == 0
    assert said.getvalue().count("largest difference") == 2
    return said.getvalue(), json.loads((out / "config.json").read_text())

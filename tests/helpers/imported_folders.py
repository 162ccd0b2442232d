"""Folders of small random models as other programs publish them, one per family that is
imported."""

import json
import unicodedata

from tests.helpers import small_fastbpe, small_xlmr
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.data.vocabulary.tokenizer_files import PROPHETNET

XLM_CODES = ("ar", "de", "en", "ru")
WITHOUT_COMPARISON = "ernie_m"
"""transformers 5 has its code no longer."""


def letters():
    text = "".join(unicodedata.normalize("NFC", sentence) for sentence in SENTENCES)
    return sorted(
        {letter for letter in text if not letter.isspace()} | {*"abcdefghijklmnopqrstuvwxyz.?"}
    )


def xlm_roberta(path, kind="XLMRobertaForMaskedLM", **changes):
    return small_xlmr.save(path, kind, **changes)


def bert(path, kind="BertForMaskedLM", **changes):
    import transformers

    from tests.helpers import foreign_models as foreign

    path.mkdir(parents=True)
    going_on = [f"##{letter}" for letter in letters()]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters(), *going_on]
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    told = {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "strip_accents": False}
    (path / "tokenizer_config.json").write_text(json.dumps(told))
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
    sizes |= dict(vocab_size=len(pieces), max_position_embeddings=90)
    config = transformers.BertConfig(**sizes, **changes)
    model = foreign.randomised(getattr(transformers, kind)(config))
    model.save_pretrained(path)
    return model


def xlm(path, kind="XLMWithLMHeadModel", **changes):
    import transformers

    from tests.helpers import foreign_models as foreign

    sizes = dict(emb_dim=24, n_layers=2, n_heads=4, n_langs=len(XLM_CODES))
    sizes |= dict(lang2id={code: i for i, code in enumerate(XLM_CODES)})
    sizes |= dict(vocab_size=small_fastbpe.write(path, SENTENCES), max_position_embeddings=90)
    config = transformers.XLMConfig(**sizes, **changes)
    model = foreign.randomised(getattr(transformers, kind)(config))
    model.save_pretrained(path)
    return model


def mbart(path):
    from tests.convert.formats import test_mbart

    test_mbart.save(path, test_mbart.OF_25)


def prophetnet(path):
    from tests.convert.formats import test_prophetnet_tokenizer

    path.mkdir(parents=True)
    words = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[X_SEP]", *letters()]
    words = [*dict.fromkeys([*words, *(f"##{letter}" for letter in letters())])]
    (path / PROPHETNET).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "ProphetNetTokenizer"}')
    test_prophetnet_tokenizer.model(path, len(words), bos_token_id=4, eos_token_id=4)


def mt5(path):
    from tests.convert.formats import test_t5

    test_t5.save(path, "MT5", True)


def ernie_m(path):
    from tests.convert.formats import test_ernie_m
    from tests.helpers import foreign_models as foreign

    path.mkdir(parents=True)
    rows = small_xlmr.tokenizer_model(path) + 2
    model = foreign.randomised(test_ernie_m.Reference(rows))
    test_ernie_m.published(path, model, test_ernie_m.CONFIG | {"vocab_size": rows})


FAMILIES = {
    made.__name__: made for made in (xlm_roberta, bert, xlm, mbart, prophetnet, mt5, ernie_m)
}


def at_hand(monkeypatch, cache):
    """Models are imported in this process, not in one of their own, below the folder `cache`, and
    compared on two sentences."""
    from xlingjax.convert import import_model

    monkeypatch.setenv("XLINGJAX_CACHE", str(cache))
    monkeypatch.setattr("xlingjax.convert.formats.parity.SENTENCES", SENTENCES[9:11])
    monkeypatch.setattr(
        import_model,
        "import_apart",
        lambda folder, run, verify: print(import_model.import_model(str(folder), str(run), verify)),
    )

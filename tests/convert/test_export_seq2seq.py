"""An encoder-decoder as a Hugging Face folder: AutoModelForSeq2SeqLM and AutoTokenizer open it and
write what the run writes, and the way back gives the same bits."""

import json

import pytest

from tests.helpers.exported import command, require_equal, run_of
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import open_run
from xlingjax.model.decoding import Decoding

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

LANGUAGES = ("de", "en", "ru")
LINES = ["The lake is cold.", "Das Wasser", "сегодня"]
SIZES = dict(decoder_layers=2, max_positions=90, unroll=1)


def our_texts(run, source, target, beams):
    opened = open_run(run)
    decoding = Decoding(beams=beams, max_length=(0, 20))
    generator = Generator(
        opened.model, opened.params, opened.vocabulary, opened.languages, decoding
    )
    return [list(best.ids) for (best, *_) in generator.generate(LINES, source, target)]


def their_texts(folder, beams, start=None):
    """By the folder's own conventions, but for the width and the length of the search."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    more = {}
    if start:
        more["decoder_start_token_id"] = tokenizer.convert_tokens_to_ids(start)
    texts = []
    for line in LINES:
        given = tokenizer(line, return_tensors="pt")
        found = model.generate(**given, num_beams=beams, max_new_tokens=20, **more)
        texts.append(found[0, 1:].tolist())
    return texts, model, tokenizer


def some_long(cases, *quick):
    """All but these are of `make test-long`."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in cases]


PLAIN = dict(head="plain", embedding_scale=True)
STREAMS = dict(head="plain", streams=3, decoder_embeddings="shared")
SHAPES = {
    # of the recipes xdae_tiny, mt_text, xlm_mt_tiny, xlm_unmt, xfnp
    "pre-LN": ("mini", "xlm", dict(language_tokens=3), "MBart"),
    "post-LN": ("tiny", "xlm", dict(language_tokens=3, tied_self_attention=True), "Bart"),
    "a direction": ("mini", "xlm", dict(num_languages=3), "MBart"),
    "two tables": ("tiny", "xlm", dict(num_languages=3, decoder_embeddings="separate"), "Bart"),
    "XLM-R's pieces": ("xlmr_base", "xlmr", PLAIN | dict(language_tokens=3), "Bart"),
    "streams": ("xfnp", "xlmr", dict(ffn=96, language_tokens=3), "ProphetNet"),
    "three streams": ("tiny", "xlm", STREAMS | dict(layers=3, ffn=24), "ProphetNet"),
}


@pytest.mark.parametrize("shape", some_long(SHAPES, "a direction"))
def test_their_classes_write_what_the_run_writes(shape, vocabularies, tmp_path, capsys):
    name, layout, options, architecture = SHAPES[shape]
    vocabulary = vocabularies[layout]
    config, params = run_of(tmp_path / "run", vocabulary, LANGUAGES, name=name, **SIZES | options)
    more = ["--language", "de-en"] if config.has_languages else []
    assert command("export", tmp_path / "run", tmp_path / "hf", *more) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert f"{architecture}ForConditionalGeneration" in told
    assert "logits of the next piece: largest difference" in told
    start = "__en__" if config.language_tokens else None
    ours = our_texts(tmp_path / "run", "de", "en", 4)
    theirs, model, tokenizer = their_texts(tmp_path / "hf", 4, start)
    assert ours == [[i for i in ids if i != vocabulary.pad_id] for ids in theirs]
    assert len({tuple(ids) for ids in ours}) > 1
    assert type(model).__name__ == f"{architecture}ForConditionalGeneration"
    # And back.
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    again = open_run(tmp_path / "again")
    assert again.vocabulary == vocabulary and again.languages == LANGUAGES
    if not config.has_languages:
        assert again.model.config == config
        require_equal(again.params, params, config)
    # A second time nothing changes.
    assert command("export", tmp_path / "again", tmp_path / "twice", "--unverified") == 0
    for path in sorted((tmp_path / "hf").iterdir()):
        if path.name != "README.md":
            assert path.read_bytes() == (tmp_path / "twice" / path.name).read_bytes(), path.name
    if config.language_tokens:
        with pytest.raises(ValueError, match="decoder_start_token_id"):
            model.generate(**tokenizer("a", return_tensors="pt"))


def original(path, family, **changes):
    """A random model of transformers' own, in a folder with XLM-R's tokenizer; 6 texts long."""
    path.mkdir()
    pieces = small_xlmr.tokenizer_model(path)
    sizes = {**foreign.BART, "encoder_layers": 1}
    if family == "ProphetNet":
        sizes = dict(hidden_size=24, encoder_ffn_dim=40, decoder_ffn_dim=40)
        sizes |= dict(num_encoder_layers=2, num_decoder_layers=1)
        sizes |= dict(num_encoder_attention_heads=4, num_decoder_attention_heads=4)
    sizes |= dict(vocab_size=pieces + 2, max_position_embeddings=90)
    config = getattr(transformers, f"{family}Config")(**{**sizes, **changes})
    made = getattr(transformers, f"{family}ForConditionalGeneration")(config)
    model = foreign.randomised(made)
    if family == "Bart":
        bias_1V = torch.linspace(-0.3, 0.3, config.vocab_size)[None]
        model.final_logits_bias = torch.nn.Buffer(bias_1V)
    if not config.tie_word_embeddings:
        model.lm_head.weight.data = model.model.decoder.embed_tokens.weight.data.clone()
    model.save_pretrained(path)
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    return model


ORIGINALS = {
    "mBART": ("MBart", dict(scale_embedding=True)),
    "BART": ("Bart", {}),
    "BART, nothing tied": ("Bart", dict(tie_word_embeddings=False)),
    "ProphetNet": ("ProphetNet", dict(ngram=2, pad_token_id=0)),
}


def of_our_folder(folder):
    """The model, and a batch of three sources and of what a decoder reads."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    given = tokenizer(list(SENTENCES[:3]), padding=True, return_tensors="pt")
    return model, {**given}


def compare_generation(model, theirs, given, **more):
    """Their original, told to search as the folder says, and the model of the folder."""
    # Its own config would have the end forced at the longest length.
    theirs.generation_config = model.generation_config
    for beams in (1, 4):
        options = dict(num_beams=beams, max_new_tokens=12, **more)
        found = model.generate(**given, **options)
        wanted = theirs.generate(**given, **options)
        assert found.tolist() == wanted.tolist()
    assert len({tuple(ids) for ids in found[:, 1:].tolist()}) > 1


@pytest.mark.parametrize("name", some_long(ORIGINALS, "mBART", "ProphetNet"))
def test_their_own_models_come_back_the_same(name, tmp_path, capsys):
    family, changes = ORIGINALS[name]
    theirs = original(tmp_path / "theirs", family, **changes)
    assert command("import", tmp_path / "theirs", tmp_path / "run", "--unverified") == 0
    assert command("export", tmp_path / "run", tmp_path / "hf", "--unverified") == 0
    model, given = of_our_folder(tmp_path / "hf")
    assert type(model) is type(theirs)
    compare_generation(model, theirs, given)
    # A column at a time, as they compute ProphetNet rightly.
    given["decoder_input_ids"] = torch.full((3, 1), 2)
    with torch.no_grad():
        found, wanted = model(**given).logits, theirs(**given).logits
    assert wanted.std() > 0.5
    torch.testing.assert_close(found, wanted, atol=0, rtol=0)
    # Every weight of theirs is the same bits.
    weights = dict(model.named_parameters())
    for key, value in theirs.named_parameters():
        if "position" in key or (key == "model.shared.weight" and "nothing" in name):
            continue  # rows before the first; a table that nothing reads
        torch.testing.assert_close(weights[key], value, atol=0, rtol=0, msg=key)


def test_mbart_keeps_its_language_codes(tmp_path, capsys):
    """Their rows are in another order here; the tokenizer of the folder knows them by name."""
    from tests.convert.formats import test_mbart

    before = test_mbart.save(tmp_path / "theirs", test_mbart.OF_25)
    assert command("import", tmp_path / "theirs", tmp_path / "run", "--unverified") == 0
    more = ["--unverified", "--language", "en-ro"]
    assert command("export", tmp_path / "run", tmp_path / "hf", *more) == 0
    assert "`generate` begins with ro_RO" in capsys.readouterr().out
    theirs = transformers.MBartForConditionalGeneration.from_pretrained(tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    model, given = of_our_folder(tmp_path / "hf")
    code = tokenizer.convert_tokens_to_ids("ro_RO")
    assert model.generation_config.decoder_start_token_id == code
    pieces = tokenizer.convert_tokens_to_ids("<mask>")
    assert pieces == len(tokenizer) - 26
    read = {**given, "decoder_input_ids": torch.tensor([[code]] * 3)}
    with torch.no_grad():
        found = model(**read).logits
        read["decoder_input_ids"] = torch.full((3, 1), before.convert_tokens_to_ids("ro_RO"))
        wanted = theirs.eval()(**read).logits
    torch.testing.assert_close(found[..., :pieces], wanted[..., :pieces], atol=0, rtol=0)
    assert (found[..., pieces + 1 :] < -1e8).all()
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    records = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("run", "again")]
    assert records[0]["languages"] == records[1]["languages"]
    assert records[0]["model"]["language_tokens"] == records[1]["model"]["language_tokens"] == 25


def test_a_tokenizer_of_words_comes_back_to_the_byte(tmp_path, capsys):
    """ProphetNet's own puts nothing before a source, and ours stands between [CLS] and [SEP]."""
    from tests.helpers import imported_folders

    imported_folders.prophetnet(tmp_path / "theirs")
    assert command("import", tmp_path / "theirs", tmp_path / "run", "--unverified") == 0
    assert command("export", tmp_path / "run", tmp_path / "hf", "--unverified") == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    vocabulary = open_run(tmp_path / "run").vocabulary
    ids = tokenizer(SENTENCES[0]).input_ids
    assert ids == [vocabulary.bos_id, *vocabulary.encode(SENTENCES[0]), vocabulary.eos_id]
    before = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert before(SENTENCES[0]).input_ids == ids[1:]
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    assert open_run(tmp_path / "again").vocabulary.sha256 == vocabulary.sha256


REFUSED = {
    "norm_eps=1e-06": ("tiny", dict(norm_eps=1e-6), []),
    "norm_order='pre'": ("mini", dict(streams=2, head="plain"), []),
    "decoder_layers=3 above layers=2": ("tiny", STREAMS | dict(decoder_layers=3), []),
    "with --language CODE (an encoder-decoder: FROM-TO)": ("mini", dict(num_languages=3), []),
    "give one of them, or two as en-de": ("mini", dict(num_languages=3), ["--language", "de-fr"]),
    "embeds no languages; leave it out": ("mini", dict(), ["--language", "de"]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_class_computes_is_refused_by_its_setting(message, vocabularies, tmp_path, capsys):
    name, options, more = REFUSED[message]
    run_of(tmp_path / "run", vocabularies["xlm"], LANGUAGES, name=name, **SIZES | options)
    assert command("export", tmp_path / "run", tmp_path / "hf", *more) == 2
    told = capsys.readouterr().err
    assert message in told and len(told.splitlines()) == 1
    assert not (tmp_path / "hf").exists()

"""An encoder-decoder as a Hugging Face folder: AutoModelForSeq2SeqLM and AutoTokenizer open it and
write what the run writes, and the way back gives the same bits."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.convert.formats.sentences import SENTENCES
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.decoding import Decoding
from xlingjax.model.params import flattened
from xlingjax.training.workdir import write_trained

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

LANGUAGES = ("de", "en", "ru")
LINES = ["The lake is cold.", "Das Wasser", "сегодня"]
SIZES = dict(layers=2, decoder_layers=2, dim=24, heads=4, ffn=40, max_positions=90, init_std=0.3)


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    from xlingjax.data.vocabulary.training import train_vocabulary

    folder = tmp_path_factory.mktemp("vocabularies")
    small_xlmr.tokenizer_model(folder)
    (folder / "text.en.txt").write_text("\n".join(SENTENCES * 4) + "\n", encoding="utf-8")
    train_vocabulary(
        folder / "xlm", mono=[f"en={folder / 'text.en.txt'}"], size=270, character_coverage=1.0
    )
    xlmr = Vocabulary.load(folder / "sentencepiece.bpe.model", "xlmr")
    return {"xlmr": xlmr, "xlm": Vocabulary.load(folder / "xlm")}


def run_of(folder, vocabulary, name, **options):
    """A workdir of a model of that preset with random weights that write different texts."""
    tokens = options.get("language_tokens", 0)
    config = preset(name).replace(
        **{"vocab_size": vocabulary.size + tokens, **SIZES, "unroll": 1, **options}
    )
    rng = np.random.default_rng(0)
    params = build_model(config).init(jax.random.key(0))
    params = jax.tree.map(lambda x: np.array(x + rng.normal(0, 0.1, x.shape), np.float32), params)
    record = {
        "identity": {
            "model": dataclasses.asdict(config),
            "data": {"x": {"vocabulary": vocabulary.sha256}},
        },
        "languages": list(LANGUAGES),
        "model": dataclasses.asdict(config),
        "labels": [],
    }
    write_trained(str(folder), record, 7, params, vocabulary.files())
    return config, params


def command(verb, source, output, *more):
    return main([verb, "--from", str(source), "--to", str(output), *more])


def rows_of_text(name, config):
    """The rows of a parameter that some text reads or predicts."""
    pieces = config.vocab_size - config.language_tokens
    if name.endswith("head/bias"):
        return slice(pieces)
    if name.endswith("positions/embedding"):
        return slice(config.position_offset, None)
    return slice(config.vocab_size if name.endswith("tokens/embedding") else None)


def require_equal(found, wanted, config):
    found, wanted = flattened(found), flattened(wanted)
    assert {*found} == {*wanted}
    for name, value in wanted.items():
        rows = rows_of_text(name, config)
        np.testing.assert_array_equal(
            np.asarray(found[name])[rows], np.asarray(value)[rows], err_msg=name
        )


def our_texts(run, source, target, beams):
    from xlingjax.inference.generate import Generator
    from xlingjax.inference.run import open_run

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


SHAPES = {
    # of the recipes xdae_tiny, mt_text, xlm_mt_tiny, xlm_unmt, xfnp
    "pre-LN": ("mini", "xlm", dict(language_tokens=3), "MBart"),
    "post-LN": ("tiny", "xlm", dict(language_tokens=3, tied_self_attention=True), "Bart"),
    "a direction": ("mini", "xlm", dict(num_languages=3), "MBart"),
    "two tables": ("tiny", "xlm", dict(num_languages=3, decoder_embeddings="separate"), "Bart"),
    "XLM-R's pieces": (
        "xlmr_base",
        "xlmr",
        dict(head="plain", language_tokens=3, embedding_scale=True),
        "Bart",
    ),
    "streams": ("xfnp", "xlmr", dict(ffn=96, language_tokens=3), "ProphetNet"),
    "three streams": (
        "tiny",
        "xlm",
        dict(head="plain", streams=3, layers=3, decoder_embeddings="shared", ffn=24),
        "ProphetNet",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_their_classes_write_what_the_run_writes(shape, vocabularies, tmp_path, capsys):
    from xlingjax.inference.run import open_run

    name, layout, options, architecture = SHAPES[shape]
    vocabulary = vocabularies[layout]
    config, params = run_of(tmp_path / "run", vocabulary, name, **options)
    more = ["--language", "de-en"] if config.has_languages else []
    assert command("export", tmp_path / "run", tmp_path / "hf", *more) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert f"{architecture}ForConditionalGeneration" in told
    assert "logits of the next piece: largest difference" in told
    assert "the same ids for 16 of 16 sentences" in told
    start = "__en__" if config.language_tokens else None
    ours = our_texts(tmp_path / "run", "de", "en", 4)
    theirs, model, tokenizer = their_texts(tmp_path / "hf", 4, start)
    assert ours == [[i for i in ids if i != vocabulary.pad_id] for ids in theirs]
    assert len({tuple(ids) for ids in ours}) == len(LINES)
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
        if path.name not in ("README.md",):
            assert path.read_bytes() == (tmp_path / "twice" / path.name).read_bytes(), path.name
    if config.language_tokens:
        with pytest.raises(ValueError, match="decoder_start_token_id"):
            model.generate(**tokenizer("a", return_tensors="pt"))

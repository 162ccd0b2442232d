"""Vocabulary surgery: every row moves with its meaning, what stays computes the same, and what is
new is spelt."""

import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.helpers import exported, small_corpus, small_xlmr, tiny_run
from tests.helpers import foreign_models as foreign
from xlingjax.cli import main
from xlingjax.convert.vocabulary import extend, transplant, trim
from xlingjax.convert.vocabulary_rows import NOISE
from xlingjax.data.vocabulary import surgery
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import texts_by_language
from xlingjax.errors import UserError
from xlingjax.inference.run import open_run
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import preset


def invented(letters, seed=0, words=20, lines=150):
    """Sentences of a language that has so many words."""
    rng = np.random.default_rng(seed)
    lexicon = ["".join(rng.choice([*letters], rng.integers(2, 6))) for _ in range(words)]
    return [" ".join(rng.choice(lexicon, 6)) for _ in range(lines)]


LETTERS = "აბგდევზთიკლმნოპრსტუფქყშცძწხჯღჟჩჭჰ"
GEORGIAN = invented(LETTERS[:-5])
OLD = small_corpus.ENGLISH + small_corpus.GERMAN


def config(**changes):
    sizes = dict(layers=1, dim=16, heads=2, ffn=32, max_positions=64, vocab_multiple=8)
    sizes |= dict(num_languages=0, dropout=0.0, attention_dropout=0.0)
    return preset("tiny", **sizes | changes)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("surgery")
    small_corpus.build(root)
    small_corpus.write(root / "new" / "ka" / "a.txt", GEORGIAN)
    small_corpus.write(root / "same" / "nl" / "a.txt", invented("adehiklnorstu", seed=1))
    return root


def bpe(path):
    pieces = small_xlmr.sentencepiece_model(OLD * 2, 130, model_type="bpe")
    (path / "spm.model").write_bytes(pieces)
    return Vocabulary(pieces, "xlmr")


@pytest.fixture(scope="module", params=["xlm", "xlmr"])
def vocabulary(request, corpus, tmp_path_factory):
    """Of each layout; none has a Georgian letter."""
    if request.param == "xlm":
        return Vocabulary.load(corpus / "vocab")
    folder = tmp_path_factory.mktemp(request.param)
    sentences = [line for line in small_xlmr.SENTENCES if not {*line} & {*LETTERS}]
    small_xlmr.tokenizer_model(folder, sentences=[*sentences, *OLD])
    return Vocabulary.load(folder / "sentencepiece.bpe.model", "xlmr")


def run_of(folder, vocabulary, model=None, languages=("de", "en")):
    """A workdir of random weights, no two alike."""
    model = model or config()
    model = model.replace(vocab_size=vocabulary.size + model.language_tokens)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), build_model(model).abstract()
    )
    exported.written(folder, vocabulary, model, params, languages)
    return str(folder)


def names(vocabulary):
    return vocabulary.pieces(range(vocabulary.size))


def by_name(run):
    """{piece: its row of the token table}"""
    opened = open_run(run)
    table = np.asarray(opened.params["embeddings"]["tokens"]["embedding"])
    return dict(zip(names(opened.vocabulary), table, strict=False))


def unknown(vocabulary, lines):
    ids, _ = vocabulary.encode_lines(lines)
    return np.mean(ids == vocabulary.unk_id)


def logits(run, text):
    """{piece: its logits [L]} of a text."""
    opened = open_run(run)
    vocabulary = opened.vocabulary
    ids = np.array([[vocabulary.bos_id, *vocabulary.encode(text), vocabulary.eos_id]], np.int32)
    batch = {"input_ids": ids, "pack_ids": np.ones_like(ids)}
    batch["position_ids"] = np.arange(ids.size)[None]
    _, found = foreign.states_and_logits(
        SimpleNamespace(config=opened.model.config, params=opened.params), batch
    )
    return dict(zip(names(vocabulary), found[0].T, strict=False))


# --- extend ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def extended(vocabulary, corpus, tmp_path_factory):
    """(the run before, the run after)"""
    root = tmp_path_factory.mktemp("extended")
    run = run_of(root / "run", vocabulary)
    extend(run, str(root / "new"), mono=[f"{corpus}/new"], pieces=45, character_coverage=1.0)
    return run, str(root / "new")


def test_a_script_that_was_unknown_is_spelt_and_old_text_is_cut_as_before(extended, vocabulary):
    new = open_run(extended[1]).vocabulary
    assert unknown(vocabulary, GEORGIAN) > 0.3 and unknown(new, GEORGIAN) == 0
    assert (new.size, new.layout) == (vocabulary.size + 45, vocabulary.layout)
    for line in OLD:
        assert new.pieces(new.encode(line)) == vocabulary.pieces(vocabulary.encode(line))
    for line in GEORGIAN[:5]:
        assert new.decode(new.encode(line)) == line
        assert len(new.encode(line)) < len(line) - 3  # pieces, not letters


def test_every_old_row_is_where_its_piece_is(extended, vocabulary):
    run, output = extended
    before, after, new = by_name(run), by_name(output), open_run(output).vocabulary
    assert len(before) == vocabulary.size and {*before} < {*after}
    for piece, row in before.items():
        np.testing.assert_array_equal(after[piece], row, err_msg=piece)
    assert new.mask_id == (5 if new.layout == "xlm" else new.size - 1)
    source = surgery.source_rows(vocabulary, new)
    assert source[new.mask_id] == vocabulary.mask_id and sorted(source[source >= 0]) == [
        *range(vocabulary.size)
    ]
    assert names(new)[new.mask_id] == "<mask>" and (source < 0).sum() == 45
    bias = [np.asarray(open_run(each).params["head"]["bias"]) for each in (run, output)]
    np.testing.assert_array_equal(bias[1][: new.size][source >= 0], bias[0][source[source >= 0]])
    assert not np.asarray(bias[1])[new.size :].any()


def test_logits_of_old_pieces_on_old_text_are_the_same_bits(extended):
    before, after = (logits(each, OLD[1]) for each in extended)
    for piece, values in before.items():
        np.testing.assert_allclose(after[piece], values, atol=1e-6, rtol=0, err_msg=piece)


def test_a_new_row_is_the_mean_of_the_pieces_that_spell_it(vocabulary, corpus, tmp_path):
    """Dutch: its letters are known, its words are not pieces."""
    run = run_of(tmp_path / "run", vocabulary)
    extend(run, str(tmp_path / "new"), mono=[f"{corpus}/same"], pieces=8)
    before, after, count = by_name(run), by_name(tmp_path / "new"), 0
    for piece in {*after} - {*before}:
        word = vocabulary.pieces(vocabulary.encode(piece.lstrip(surgery.SPACE)))
        word = word if piece[0] == surgery.SPACE else [word[0].lstrip(surgery.SPACE), *word[1:]]
        spelt = "".join(word) == piece and {*word} <= {*before}
        if surgery.SPACE in piece and spelt:
            mean = np.mean([before[part] for part in word], axis=0)
            np.testing.assert_allclose(after[piece], mean, atol=1e-6)
            count += len(word) > 1
    assert count >= 2


def test_a_new_row_that_nothing_spells_lies_near_the_mean_of_all(extended, vocabulary):
    before, after = (by_name(each) for each in extended)
    special = vocabulary.pieces(vocabulary.special_ids)
    ordinary = np.array([row for piece, row in before.items() if piece not in special])
    made = np.array([after[piece] for piece in {*after} - {*before} if {*piece} & {*LETTERS}])
    assert len(made) > 30
    distance = (made - ordinary.mean(axis=0)) / ordinary.std(axis=0)
    assert abs(distance.std() - NOISE) < NOISE / 4 and abs(distance.mean()) < NOISE / 4


def test_text_of_the_old_languages_keeps_pieces_out_that_it_would_use(corpus, tmp_path, capsys):
    """Pieces learnt on German text that the vocabulary has read already would change how German is
    cut."""
    vocabulary = Vocabulary.load(corpus / "vocab")
    run = run_of(tmp_path / "run", vocabulary)
    mono = ["--mono", f"nl={corpus}/mono/de/a.txt", f"{corpus}/same", "--pieces", "20"]
    assert main.main(["vocab", "extend", run, "--to", str(tmp_path / "free"), *mono]) == 0

    def cut(of):
        return [of.pieces(of.encode(line)) for line in small_corpus.GERMAN]

    assert cut(Vocabulary.load(tmp_path / "free")) != cut(vocabulary)
    old = ["--old-mono", f"{corpus}/mono/de"]
    assert main.main(["vocab", "extend", run, "--to", str(tmp_path / "kept"), *mono, *old]) == 0
    assert cut(Vocabulary.load(tmp_path / "kept")) == cut(vocabulary)


# --- trim -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trimmed(vocabulary, corpus, tmp_path_factory):
    root = tmp_path_factory.mktemp("trimmed")
    run = run_of(root / "run", vocabulary)
    trim(run, str(root / "new"), mono=[f"{corpus}/mono/en"])
    return run, str(root / "new")


def test_trimming_leaves_text_and_logits_as_they_were(trimmed, vocabulary):
    run, output = trimmed
    new = open_run(output).vocabulary
    assert new.size < vocabulary.size and new.layout == vocabulary.layout
    for line in small_corpus.ENGLISH:
        assert new.pieces(new.encode(line)) == vocabulary.pieces(vocabulary.encode(line))
    before, after = logits(run, line), logits(output, line)
    assert {*after} < {*before}
    for piece, values in after.items():
        np.testing.assert_allclose(values, before[piece], atol=1e-6, rtol=0, err_msg=piece)
    if new.layout == "xlmr":
        assert new.mask_id == new.size - 1
    assert {piece for piece in names(vocabulary) if len(piece) == 1} <= {*names(new)}


def test_size_keeps_the_most_frequent_pieces_and_what_must_stay(vocabulary, corpus, tmp_path):
    texts = [text for of in texts_by_language(f"{corpus}/mono").values() for text in of]
    full = surgery.trim(vocabulary, texts)
    smaller = surgery.trim(vocabulary, texts, size=full.size - 4)
    assert full.size - 9 <= smaller.size <= full.size - 4
    lost = {*names(full)} - {*names(smaller)}
    assert all(len(piece) > 1 for piece in lost)
    bare = surgery.trim(vocabulary, texts, characters=False)
    assert bare.size <= full.size


def test_merges_are_not_operated_on(tmp_path):
    text = small_corpus.write(tmp_path / "en" / "a.txt", ["sleeps Bruder Milch"])
    with pytest.raises(UserError, match="pieces of SentencePiece's unigram models alone"):
        surgery.trim(bpe(tmp_path), texts_by_language(text)["en"])


# --- transplant -----------------------------------------------------------------------------------


def test_back_on_its_old_vocabulary_a_model_is_what_it_was(extended, vocabulary, tmp_path):
    run, output = extended
    for name, content in vocabulary.files().items():
        (tmp_path / name).write_bytes(content)
    told = transplant(output, str(tmp_path / "back"), str(tmp_path))
    assert f"{vocabulary.size:,} rows copied" in told and "0 drawn" in told
    before, after = (tiny_run.flat(open_run(each).params) for each in (run, tmp_path / "back"))
    for name, value in before.items():
        rows = slice(vocabulary.size if "tokens" in name or name == "head/bias" else None)
        np.testing.assert_array_equal(after[name][rows], value[rows], err_msg=name)


def test_special_rows_go_to_what_does_the_same_in_another_layout(corpus, tmp_path):
    xlm = Vocabulary.load(corpus / "vocab")
    (tmp_path / "xlmr").mkdir()
    xlmr = bpe(tmp_path / "xlmr")
    run = run_of(tmp_path / "run", xlm)
    told = transplant(run, str(tmp_path / "new"), str(tmp_path / "xlmr" / "spm.model"))
    assert "layout xlm -> xlmr" in told
    before, after = by_name(tmp_path / "run"), by_name(tmp_path / "new")
    np.testing.assert_array_equal(after["<s>"], before["</s>"])
    for piece in ("</s>", "<pad>", "<unk>", "<mask>"):
        np.testing.assert_array_equal(after[piece], before[piece], err_msg=piece)
    shared = {piece for piece in {*before} & {*after} if piece not in xlmr.pieces(xlmr.special_ids)}
    assert len(shared) > 20
    for piece in shared:
        np.testing.assert_array_equal(after[piece], before[piece], err_msg=piece)


# --- every model ----------------------------------------------------------------------------------


def test_both_sides_their_heads_and_the_tokens_of_languages_move(corpus, tmp_path):
    vocabulary = Vocabulary.load(corpus / "vocab")
    model = config(
        decoder_layers=1, decoder_embeddings="separate", language_tokens=2, num_languages=2
    )
    run = run_of(tmp_path / "run", vocabulary, model, languages=("de", "tr"))
    told = extend(run, str(tmp_path / "new"), mono=[f"{corpus}/new"], pieces=45, seed=1)
    assert "languages: de ka tr; ka new" in told
    before, after = (tiny_run.flat(open_run(each).params) for each in (run, tmp_path / "new"))
    record = json.loads((tmp_path / "new" / "run.json").read_text())
    size, made = vocabulary.size, record["model"]
    assert made["vocab_size"] == record["identity"]["model"]["vocab_size"] == size + 45 + 3
    assert made["language_tokens"] == made["num_languages"] == 3
    assert record["languages"] == ["de", "ka", "tr"]
    assert record["parameters"] == count_parameters(open_run(tmp_path / "new").model.config)
    moved = 0
    for name, value in before.items():
        found = after[name]
        if name.endswith("tokens/embedding") or name in ("head/bias", "decoder_head/bias"):
            np.testing.assert_array_equal(found[:size], value[:size], err_msg=name)
            tokens, new = value[size : size + 2], found[size + 45 : size + 48]
            wanted = [tokens[0], tokens.mean(axis=0), tokens[1]]
            np.testing.assert_allclose(new, wanted, rtol=1e-6, err_msg=name)
            moved += 1
        elif name.endswith("languages/embedding"):
            wanted = [value[0], value.mean(axis=0), value[1]]
            np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=name)
            moved += 1
        else:
            np.testing.assert_array_equal(found, value, err_msg=name)
    assert moved == 6


# --- from the command line, and on ----------------------------------------------------------------


@pytest.mark.long
def test_training_goes_on_with_the_rows_alone_and_then_with_everything(corpus, tmp_path, capsys):
    assert small_corpus.pretrain(corpus, tmp_path / "run", LANGUAGE_EMBEDDING=True) == 0
    line = ["vocab", "extend", str(tmp_path / "run"), "--to", str(tmp_path / "new")]
    line += ["--mono", f"{corpus}/new"]
    capsys.readouterr()
    assert main.main([*line, "--pieces", "45", "--old-mono", f"{corpus}/heldout"]) == 0
    told = capsys.readouterr().out
    assert "80 -> 125 pieces" in told and "80 rows copied" in told and "fresh optimizer" in told
    assert "languages: de en ka; ka new" in told
    (row,) = (line.split() for line in told.splitlines() if line.startswith("ka"))
    assert float(row[5].rstrip("%")) > 30 and float(row[7].rstrip("%")) == 0
    given = {"VOCABULARY": tmp_path / "new", "INIT_FROM": tmp_path / "new"}
    given |= {"MONO": f"{corpus}/mono {corpus}/new", "LANGUAGE_EMBEDDING": True}
    given |= {"WARMUP_STEPS": 0, "LEARNING_RATE": 0.01}
    first = "--gin-file", "gin/runs/embeddings_first.gin", "--gin.EMBEDDINGS_ONLY=2"
    run = tmp_path / "continued"
    assert small_corpus.pretrain(corpus, run, *first, **given) == 0
    new, rows, all_ = (
        tiny_run.flat(open_run(each).params) for each in (tmp_path / "new", f"{run}@2", f"{run}@4")
    )
    still = {path for path, value in new.items() if np.array_equal(rows[path], value)}
    trained = {"embeddings/tokens/embedding", "embeddings/languages/embedding", "head/bias"}
    assert still == {*new} - trained
    assert not any(np.array_equal(all_[path], value) for path, value in rows.items())


NEW, MONO = ["--mono", "{corpus}/new"], ["--mono", "{corpus}/mono"]


@pytest.mark.parametrize(
    ("verb", "more", "message"),
    [
        ("extend", [*NEW, "--pieces", "9"], "--pieces 9: the text has .* characters that the"),
        ("extend", [*NEW, "--pieces", "9999"], "--pieces 9999: the text gives .* ask for fewer"),
        ("extend", ["--pieces", "9"], "no text to read"),
        ("trim", [*MONO, "--size", "20"], "--size 20: .* rows are special pieces"),
        ("transplant", ["--vocabulary", "{corpus}/vocab"], "is the one that .* has; give another"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_written(
    verb, more, message, corpus, tmp_path, capsys
):
    run = run_of(tmp_path / "run", Vocabulary.load(corpus / "vocab"))
    more = [word.format(corpus=corpus) for word in more]
    assert main.main(["vocab", verb, run, "--to", str(tmp_path / "new"), *more]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.search(message, error), error
    assert not (tmp_path / "new").exists() and not (tmp_path / "new.partial").exists()

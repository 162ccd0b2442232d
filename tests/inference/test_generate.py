"""Lines in, lines out: order, batches, devices, scores; and the evaluator of generated text."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.helpers import toy
from tests.helpers.files import write
from xlingjax.config import evaluators
from xlingjax.errors import UserError
from xlingjax.inference.generate import LENGTHS, Generator
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.decoding import Decoding
from xlingjax.model.partition import MeshConfig, make_mesh

BEAMS = Decoding(beams=3, n_best=2, length_penalty=0.6, max_length=(0.5, 6))


def made(**overrides):
    """An encoder-decoder whose words are not all alike, and that ends some texts by itself."""
    size = toy.ToyVocabulary().size
    options = dict(
        layers=1,
        decoder_layers=1,
        dim=16,
        heads=2,
        ffn=32,
        vocab_size=size,
        vocab_multiple=16,
        max_positions=40,
        num_languages=len(toy.LANGUAGES),
        dropout=0.0,
        init_std=1.0,
        norm_order="pre",
        head="tied",
    )
    model = build_model(preset("tiny", **options | overrides))
    params = jax.jit(model.init)(jax.random.key(3))
    params["embeddings"]["tokens"]["embedding"] *= 0.2
    if "bias" in params.get("head", {}):
        params["head"]["bias"] = params["head"]["bias"].at[toy.ToyVocabulary().eos_id].set(1.5)
    return model, params


@pytest.fixture(scope="module")
def model():
    return made()


def writer(model, decoding=BEAMS, **options):
    return Generator(*model, toy.ToyVocabulary(), toy.LANGUAGES, decoding, **options)


@pytest.mark.parametrize("layout", ["xlm", "xlmr"])
def test_sources_begin_as_in_training(model, layout):
    v = toy.ToyVocabulary(layout)
    generator = Generator(*model, v, toy.LANGUAGES, BEAMS)
    assert generator.tokens(["a b", ""]) == [[v.bos_id, *v.encode("a b"), v.eos_id], []]


@pytest.mark.long
def test_an_import_that_names_no_language_writes_and_one_that_marks_them_does_not(model):
    plain = made(num_languages=0)
    alone = Generator(*plain, toy.ToyVocabulary(), (), BEAMS).generate(["a b c"], "xx", "yy")
    assert alone[0][0].ids == writer(plain).generate(["a b c"], "de", "en")[0][0].ids
    for of, languages in ((plain, toy.LANGUAGES), (model, ())):
        with pytest.raises(UserError, match="language 'xx' is not one of the run's"):
            Generator(*of, toy.ToyVocabulary(), languages, BEAMS).language("xx")


LINES = [*toy.sentences(20, longest=9), "", " ", *toy.sentences(12, seed=1, longest=28)]
SHORT = LINES[:22]


@pytest.fixture(scope="module")
def written(model):
    return writer(model).generate(LINES, "de", "en")


def test_order_and_empty_lines(model, written):
    assert len(written) == len(LINES) and all(len(best) == 2 for best in written)
    assert [not best[0].ids for best in written] == [not line.strip() for line in LINES]
    assert written[20][0].text == "" and written[20][0].score == 0
    alone = writer(model).generate(LINES[5:6], "de", "en")[0]  # in a batch of one row
    assert [best.ids for best in alone] == [best.ids for best in written[5]]
    np.testing.assert_allclose(
        [best.score for best in alone], [best.score for best in written[5]], atol=1e-5
    )
    assert len({best[0].text for best in written}) > 15
    ended = [
        one
        for best in written
        for one in best
        if one.ids and one.ids[-1] == toy.ToyVocabulary().eos_id
    ]
    assert len(ended) > 5 and all(
        toy.ToyVocabulary().encode(one.text) == [*one.ids[:-1]] for one in ended if one.text
    )
    for best, line in zip(written, LINES, strict=True):
        assert len(best[0].ids) <= 0.5 * (len(line.split()) + 2) + 6


def test_nothing_special_is_written(model):
    v = toy.ToyVocabulary()
    drawn = writer(model, Decoding(temperature=5.0, max_length=(0, 12))).generate(SHORT, "de", "en")
    ids = {i for best in drawn for i in best[0].ids}
    assert ids & v.special_ids == {v.eos_id} and max(ids) < v.size and len(ids) > 20


@pytest.mark.long
def test_drawn_tokens_depend_on_the_line_and_the_seed(model):
    config = Decoding(temperature=1.0, top_k=5)
    found = [best[0].ids for best in writer(model, config, seed=1).generate(SHORT, "de", "en")]
    small = writer(model, config, seed=1, tokens_per_batch=64)
    assert [best[0].ids for best in small.generate(SHORT[3:], "de", "en", first=4)] == found[3:]
    assert [
        best[0].ids for best in writer(model, config, seed=2).generate(SHORT, "de", "en")
    ] != found


def test_scores_of_the_search_are_those_of_teacher_forcing(model, written):
    for n in range(2):
        ids = [best[n].ids for best in written]
        forced = writer(model).score(LINES, ids, "de", "en")
        for name in ("score", "log_probability"):
            found, expected = (
                [getattr(one, name) for one in side] for side in (forced, [b[n] for b in written])
            )
            np.testing.assert_allclose(found, expected, atol=2e-4)
    v = toy.ToyVocabulary()
    (text,) = writer(model).score(LINES[:1], ["a b"], "de", "en")
    assert text.ids == (*v.encode("a b"), v.eos_id) and text.text == "a b"
    (other,) = writer(model).score(LINES[:1], ["a b"], "de", "fr")
    assert other.score != text.score  # the target's language is read


def test_eight_devices_write_what_one_does(model, written):
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    over = build_model(model[0].config, mesh), model[1]
    found = writer(over, mesh=mesh).generate(SHORT, "de", "en")
    assert [[one.ids for one in best] for best in found] == [
        [one.ids for one in best] for best in written[:22]
    ]
    scores = [[[one.score for one in best] for best in side] for side in (found, written[:22])]
    np.testing.assert_allclose(*scores, atol=1e-4)
    forced = writer(over, mesh=mesh).score(
        SHORT, [best[0].ids for best in written[:22]], "de", "en"
    )
    np.testing.assert_allclose(
        [one.score for one in forced], [best[0].score for best in written[:22]], atol=2e-4
    )


def test_short_lines_come_in_larger_batches(model):
    generator = writer(model, tokens_per_batch=3 * 64)
    batches = list(generator._batches([5, 0, 10, 30, 12, 16, 3, 33], beams=3))
    assert batches == [([5, 4, 2, 0], 16, 4), ([6], 16, 4), ([3], 32, 1), ([7], 40, 1)]
    assert [rows for _, _, rows in generator._batches([3], beams=3)] == [4]  # no further shape
    assert LENGTHS[0] == 16


@pytest.mark.long
def test_language_tokens_begin_what_is_written():
    size = toy.ToyVocabulary().size
    model = made(num_languages=0, language_tokens=3, vocab_size=size + 3)
    generator = writer(model)
    german, english = (generator.generate(LINES[:8], "fr", code) for code in ("de", "en"))
    assert [best[0].ids for best in german] != [best[0].ids for best in english]
    assert max(i for best in german for one in best for i in one.ids) < size
    forced = generator.score(LINES[:8], [best[0].ids for best in german], "fr", "de")
    np.testing.assert_allclose(
        [one.score for one in forced], [best[0].score for best in german], atol=2e-4
    )


@pytest.mark.long
def test_a_decoder_of_streams():
    model = made(streams=2, head="plain", position_offset=1)
    generator = writer(model, Decoding(max_length=(0, 99)))
    found = generator.generate(LINES[:8], "de", "en")
    assert max(len(best[0].ids) for best in found) == 40 - 1 - 1  # a stream reads a position ahead
    forced = generator.score(LINES[:8], [best[0].ids for best in found], "de", "en")
    np.testing.assert_allclose(
        [one.score for one in forced], [best[0].score for best in found], atol=1e-3
    )


def test_refusals(model):
    generator = writer(model)
    for codes in (("xx", "en"), ("en", "xx")):
        with pytest.raises(UserError, match="language 'xx' is not one of the run's: de, en, fr"):
            generator.generate(["a"], *codes)
    long = " ".join("a" * 39)
    with pytest.raises(
        UserError, match=r"line 8: 41 tokens, and the model's position table takes 40: .*--truncate"
    ):
        generator.generate(["a", long], "de", "en", first=7)
    cut = writer(model, truncate=True)
    assert (
        cut.score([long], ["a"], "de", "en")[0].score
        == cut.score([long[:75]], ["a"], "de", "en")[0].score
    )
    with pytest.raises(UserError, match="reference 2: 41 tokens"):
        generator.score(["a", "b"], ["a", f"{long} a"], "de", "en")
    with pytest.raises(UserError, match="1 lines but 2 references"):
        generator.score(["a"], ["a", "b"], "de", "en")
    with pytest.raises(UserError, match="has no decoder"):
        writer(toy.model())


CORPUS = SimpleNamespace(languages=toy.LANGUAGES, vocabulary=toy.ToyVocabulary())


def evaluator(**options):
    (found,) = evaluators.generation_score(CORPUS, **options)()
    return found


@pytest.mark.long
def test_the_evaluator_of_translations(model, tmp_path):
    german, english, french = (toy.sentences(9, seed) for seed in range(3))
    for stem, sides in (("de-en", (german, english)), ("en-fr", (english, french))):
        for code, lines in zip(stem.split("-"), sides, strict=True):
            write(tmp_path / f"{stem}.{code}", "\n".join([*lines[:4], "", *lines[4:]]) + "\n")
    given = dict(pairs=str(tmp_path), max_length=(0, 9))
    values = evaluator(**given, limit=6, trained_on="de-en en-fr")(*model, 0)
    names = ["de-en", "en-de", "en-fr", "fr-en"]
    for metric in ("bleu", "chrf", "rouge_l", "wrong_language_rate", "tokenised_bleu"):
        assert sorted(values[metric]) == names
        assert values[f"{metric}_mean"] == pytest.approx(np.mean([*values[metric].values()]))
        assert values[f"{metric}_trained"] == pytest.approx(
            np.mean([values[metric][n] for n in ("de-en", "en-fr")])
        )
        assert values[f"{metric}_others"] == pytest.approx(
            np.mean([values[metric][n] for n in ("en-de", "fr-en")])
        )
    assert (
        values["lines"] == dict.fromkeys(names, 6)
        and "tok:13a" in values["signatures"]["de-en"]["bleu"]
    )
    sample = values["samples"][0]
    assert (sample["direction"], sample["source"], sample["reference"]) == (
        "de-en",
        german[0],
        english[0],
    )
    greedy = writer(model, Decoding(max_length=(0, 9))).generate(german[:1], "de", "en")
    assert sample["output"] == greedy[0][0].text and len(values["samples"]) == 4 * 3
    one = evaluator(**given, directions="fr-en", beams=2)(*model, 0)
    assert list(one["bleu"]) == ["fr-en"] and "bleu_trained" not in one
    with pytest.raises(UserError, match="none for 'de-fr'; there are de-en, en-de, en-fr, fr-en"):
        evaluator(**given, directions="de-fr")
    CHINESE = SimpleNamespace(languages=("zh", "ja"), vocabulary=toy.ToyVocabulary())
    with pytest.raises(UserError, match="in the run's languages, zh, ja"):
        evaluators.generation_score(CHINESE, **given)()


def test_the_evaluator_reads_one_text_in_several_languages(model, tmp_path):
    texts = {code: toy.sentences(5, seed) for seed, code in enumerate(("de", "en", "fr", "it"))}
    for code, lines in texts.items():
        write(tmp_path / f"test_2016.{code}", "\n".join(lines))
    values = evaluator(pairs=str(tmp_path / "test_2016"), max_length=(0, 9), samples=1)(*model, 0)
    assert sorted(values["bleu"]) == ["de-en", "de-fr", "en-de", "en-fr", "fr-de", "fr-en"]
    sample = next(one for one in values["samples"] if one["direction"] == "fr-de")
    assert (sample["source"], sample["reference"]) == (texts["fr"][0], texts["de"][0])
    with pytest.raises(UserError, match="no parallel file matches .*test_2017"):
        evaluator(pairs=str(tmp_path / "test_2017"))


def test_the_evaluator_within_languages(model, tmp_path):
    stories, titles = toy.sentences(5, 4), toy.sentences(5, 5, longest=3)
    for code in ("de", "en"):
        write(
            tmp_path / f"dev-{code}.tsv",
            "".join(f"{a}\t{b}\n" for a, b in zip(stories, titles, strict=True)),
        )
        write(tmp_path / f"xglue.ntg.{code}.src.dev", "\n".join(stories))
        write(tmp_path / f"xglue.ntg.{code}.tgt.dev", "\n".join(titles))
    given = dict(max_length=(0, 9), trained_on="en", samples=1)
    values = evaluator(files=f"{tmp_path}/dev-{{language}}.tsv", **given)(*model, 0)
    assert sorted(values["bleu"]) == ["de", "en"] and values["bleu_trained"] == values["bleu"]["en"]
    assert [one["reference"] for one in values["samples"]] == [titles[0]] * 2
    same = evaluator(files=f"{tmp_path}/xglue.ntg.{{language}}.src.dev", languages="de", **given)(
        *model, 0
    )
    assert same["chrf"] == {"de": values["chrf"]["de"]}
    assert evaluators.generation_score(CORPUS)() == []

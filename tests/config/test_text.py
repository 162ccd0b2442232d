"""What objectives read, bound once: files, SeqIO mixtures; and how they draw."""

import contextlib

import pytest
import sentencepiece

from tests.helpers import small_corpus
from xlingjax.config import gin_files
from xlingjax.config import recipe as recipes
from xlingjax.config.corpus import corpus as make_corpus
from xlingjax.config.text import TextSource
from xlingjax.data.features import batch_hash
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors.xlm import ClmFeatures, TlmFeatures
from xlingjax.tasks.xlm import register_source
from xlingjax.training.feed import in_stages

LINES = {
    "de": ["Der Hund liest.", "Milch schläft im Haus.", "Die Katze regnet ein Buch."] * 9,
    "en": ["The dog reads.", "Milk sleeps in the house.", "The cat rains a book."] * 9,
}
OF_TEXT = ("mlm", "clm", "veco_text", "btmlm", "xfnp", "denoising", "back_translation")
OF_TEXT += ("span_corruption", "masked_words")
OF_PAIRS = ("tlm", "clwr", "clpc", "camlm", "veco", "translation", "generation")
OF_PAIRS += ("masked_translation",)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLINGJAX_CACHE", str(root / "cache"))
        small_corpus.build(root)
        yield root


@pytest.fixture(scope="module")
def not_ours(corpus):
    """Tasks over sources of SeqIO, whose string features have names of their own."""
    import seqio
    import tensorflow as tf

    from xlingjax.data.seqio.vocabulary import SeqioVocabulary

    def source(columns):
        def dataset_fn(split, shuffle_files, seed=None):
            return tf.data.Dataset.from_tensor_slices(columns)

        return seqio.FunctionDataSource(dataset_fn, splits=["train"])

    vocabulary = Vocabulary.load(corpus / "vocab")
    for code, lines in LINES.items():
        name = f"not_ours.{code}"
        register_source(name, source({"said": lines}), [code], vocabulary, keys={"text": "said"})
    keys = {"first": "de", "second": "en"}
    register_source("not_ours.pairs", source(LINES), ["de", "en"], vocabulary, keys=keys)
    # Documents of nine lines, each followed by an example that is empty on both sides.
    documents = {code: [] for code in LINES}
    for code, lines in LINES.items():
        for begin in range(0, len(lines), 9):
            documents[code] += [*lines[begin : begin + 9], ""]
    register_source("not_ours.documents", source(documents), ["de", "en"], vocabulary, keys=keys)
    wrong = {"no": LINES["en"][1:] + LINES["en"][:1]}
    register_source(
        "not_ours.triples",
        source({**LINES, **wrong}),
        ["de", "en", "en"],
        vocabulary,
        keys={**keys, "third": "no"},
    )
    plain = {"targets": seqio.Feature(SeqioVocabulary(vocabulary), add_eos=False)}
    seqio.TaskRegistry.add(
        "not_ours_plain", source({"targets": LINES["de"]}), preprocessors=[], output_features=plain
    )
    rates = [("not_ours.de", 1.0), ("not_ours.en", 1.0)]
    seqio.MixtureRegistry.add("not_ours.text", rates)
    seqio.MixtureRegistry.add("not_ours.rated", [("not_ours.de", 9.0), ("not_ours.en", 1.0)])
    yield
    # A worker that is given tests of this file twice sets up twice.
    for name in ("not_ours.text", "not_ours.rated"):
        seqio.MixtureRegistry.remove(name)
    for name in ("de", "en", "pairs", "documents", "triples"):
        seqio.TaskRegistry.remove(f"not_ours.{name}")
    seqio.TaskRegistry.remove("not_ours_plain")


def read(files, corpus, **given):
    """{name: its batches} of the objectives of a recipe."""
    bound = {**small_corpus.options(corpus), **given}
    files = ["recipes/xlm_text.gin", *files]
    recipe = recipes.read_recipe(files, [f"{name}={value}" for name, value in bound.items()])
    return {run.objective.name: run.source for run in recipe.bound["objectives"]}


def rows_of(batch):
    """The ids of each row of text, hidden tokens put back."""
    ids = batch["input_ids"].copy()
    if "masked_positions" in batch:
        for row in range(len(ids)):
            real = batch["masked_weights"][row] > 0
            ids[row, batch["masked_positions"][row][real]] = batch["masked_targets"][row][real]
    found = []
    for row, pack in zip(ids, batch["pack_ids"], strict=True):
        found.append(row[pack > 0].tolist())
    return found


def spelled(ids):
    return " ".join(map(str, ["", *ids, ""]))


def test_a_mixture_that_is_not_ours_feeds_objectives_on_text(corpus, not_ours):
    """Every row is a slice of what SentencePiece itself makes of the sentences, `</s>` (1) between
    them."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(corpus / "vocab/vocab.model"))
    streams = {}
    for language, lines in LINES.items():
        stream = [1]
        for ids in processor.encode(lines):
            stream += [*ids, 1]
        streams[language] = spelled(stream)
    files = ["objectives/mlm.gin", "objectives/clm.gin"]
    given = {"MONO": None, "PARALLEL": None, "LANGUAGES": "de en"}
    given |= {"text.mixture": "not_ours.text", "text.seed": 5, "HELDOUT_TEXT": None}
    given["train.objectives"] = "[@mlm(), @clm()]"
    found = read(files, corpus, **given)
    assert [*found] == ["mlm", "clm"]
    texts = []
    for batches in found.values():
        source = batches()
        read_languages = set()
        for _ in range(6):
            batch = source.next()
            for row, languages in zip(rows_of(batch), batch["language_ids"], strict=True):
                language = source.languages[languages[0]]
                read_languages.add(language)
                assert spelled(row) in streams[language]
        assert read_languages == {"de", "en"} and source.identity["seed"] == 5
        texts.append(source.identity["text"])
        source.close()
    assert texts[0] == texts[1]


def texts_of(found):
    """{objective: the hash of each text that it reads}."""
    text = {}
    for name, batches in found.items():
        with contextlib.closing(batches()) as source:
            text[name] = source.identity["text"]
    return text


@pytest.mark.long
def test_mixtures_take_the_place_of_text_pairs_documents_and_tables(corpus, not_ours, tmp_path):
    """Of any recipe, with no file of settings added, and not of the files that are named beside."""
    for code, lines in {"de": small_corpus.GERMAN, "en": small_corpus.ENGLISH}.items():
        small_corpus.write(tmp_path / f"documents/de-en.{code}", [*lines, "", *lines])
    given = {
        "TASKS": "json",
        "MIXTURE_OR_TASK_NAME": "not_ours.text",
        "TLM_MIXTURE": "not_ours.pairs",
    }
    given |= {"DOCUMENTS": f"{tmp_path}/documents", "CLPC_LENGTH": 64}
    files = ["objectives/unicoder.gin"]
    text = texts_of(read(files, corpus, **given))
    assert text["tlm"] == text["clwr"] == text["clpc"] and {*text["mlm"]} == {"de", "en"}
    assert text["tlm"] != text["cl_mlm"]
    alone = texts_of(read([*files, "runs/mixture.gin"], corpus, **given, LANGUAGES="de en"))
    assert alone == text
    given |= {"DOCUMENTS_MIXTURE": "not_ours.documents", "NEGATIVES_MIXTURE": "not_ours.triples"}
    more = texts_of(read(files, corpus, **given))
    assert {name for name in text if text[name] != more[name]} == {"clpc", "cl_mlm"}
    with pytest.raises(UserError, match="de-en of 'not_ours.pairs' has no example that is empty"):
        texts_of(read(files, corpus, **given | {"DOCUMENTS_MIXTURE": "not_ours.pairs"}))
    # Tables in files go before the mixture of pairs, which has no wrong partners.
    table = [
        "de\ten\tnegative",
        *(f"{a}\t{b}\t{b} nicht" for a, b in zip(*LINES.values(), strict=True)),
    ]
    small_corpus.write(tmp_path / "negatives/de-en.tsv", table)
    given |= {"NEGATIVES_MIXTURE": None, "NEGATIVES": f"{tmp_path}/negatives/*.tsv"}
    assert texts_of(read(files, corpus, **given))["clpc"] not in (text["clpc"], more["clpc"])


def test_one_objective_has_a_mixture_of_its_own(corpus, not_ours):
    given = {"tlm.text": "@pairs/mine/text()", "pairs/mine/text.mixture": "not_ours.pairs"}
    files = texts_of(read([], corpus))
    own = texts_of(read([], corpus, LANGUAGES="de en", **given))
    assert own["mlm"] == files["mlm"] and own["tlm"] != files["tlm"]


def test_languages_are_those_of_the_mixtures(corpus, not_ours):
    def languages(**given):
        given |= {"HELDOUT_TEXT": None, "HELDOUT_PAIRS": None}
        bound = {**small_corpus.options(corpus), **given}
        overrides = [f"{name}={value}" for name, value in bound.items()]
        return recipes.read_recipe(["recipes/xlm_text.gin"], overrides).corpus.languages

    assert languages(MIXTURE_OR_TASK_NAME="not_ours.de", TLM_MIXTURE="not_ours.de") == ("de",)
    assert languages(MIXTURE_OR_TASK_NAME="not_ours.de") == ("de", "en")  # of the pairs, in files
    with pytest.raises(UserError, match="LANGUAGES is not set, and task not_ours_plain of 'not_ou"):
        languages(MIXTURE_OR_TASK_NAME="not_ours_plain", TLM_MIXTURE="not_ours.de")


def test_a_mixture_is_drawn_by_its_rates_as_they_are_or_smoothed(corpus, not_ours):
    """9 : 1; 27 sentences of each language."""

    def shares(**given):
        found = read(["objectives/mlm.gin"], corpus, MIXTURE_OR_TASK_NAME="not_ours.rated", **given)
        with contextlib.closing(found["mlm"]()) as source:
            table = source.identity["sampling_table"]
            return {row["name"]: row["share"] for row in table}

    assert shares(ALPHA=None) == {"de": 0.9, "en": 0.1}
    assert shares() == {"de": 0.5, "en": 0.5}
    smoothed = shares(ALPHA=0.5, **{"sampling.counts": "mixture"})
    assert smoothed == {"de": 0.75, "en": 0.25}
    weights = {"sampling.weights": '{"de": 1, "en": 3}'}
    assert shares(ALPHA=None, **weights) == {"de": 0.25, "en": 0.75}


def test_the_languages_that_btmlm_writes_in_are_those_of_the_mixtures_pairs(corpus, not_ours):
    given = {
        "MIXTURE_OR_TASK_NAME": "not_ours.text",
        "TLM_MIXTURE": "not_ours.pairs",
        "LANGUAGES": "de en ru",
    }
    given["LANGUAGE_EMBEDDING"] = True
    files = ["objectives/btmlm.gin"]
    with contextlib.closing(read(files, corpus, **given)["btmlm"]()) as source:
        assert source.identity["options"]["targets"] == [[0, 0.5], [1, 0.5]]
    # Of pairs that are there as files too; and of none.
    given |= {"TLM_MIXTURE": None}
    with contextlib.closing(read(files, corpus, **given)["btmlm"]()) as source:
        assert len(source.identity["options"]["targets"]) == 2
    with pytest.raises(UserError, match="btmlm: no parallel data, .* give pairs"):
        read(files, corpus, **given | {"PARALLEL": None})["btmlm"]()


def test_text_may_be_of_languages_without_pairs(corpus, tmp_path):
    """ERNIE-M, appendix A: text of 96 languages, pairs of 14 of them with English."""
    for name, lines in {"de-en": 81, "en-fr": 9}.items():
        file = tmp_path / "pairs" / f"{name}.tsv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("Der Hund liest.\tThe dog reads.\n" * lines, encoding="utf-8")
    for code in ("en", "ru"):
        file = tmp_path / "mono" / code / "a.txt"
        file.parent.mkdir(parents=True)
        file.write_text("Milk sleeps in the house.\n" * 40, encoding="utf-8")
    given = {"MONO": tmp_path / "mono/*/*.txt", "PARALLEL": tmp_path / "pairs/*"}
    given |= {"LANGUAGES": "de en fr ru", "LANGUAGE_EMBEDDING": True, "ALPHA": 0.5}
    with contextlib.closing(read(["objectives/btmlm.gin"], corpus, **given)["btmlm"]()) as source:
        targets = dict(source.identity["options"]["targets"])
        # By the roots of 81, 90 and 9 pairs; none in Russian.
        assert targets == pytest.approx({0: 9 / 21.487, 1: 9.487 / 21.487, 2: 3 / 21.487}, rel=1e-3)
        rows = source.next()
    # The languages of the text and, behind it, of the pseudo tokens.
    own, written = (
        {*rows["language_ids"][kind].tolist()}
        for kind in ((rows["is_mask"] == 0) & (rows["pack_ids"] > 0), rows["is_mask"] > 0)
    )
    assert own <= {1, 3} and written <= {0, 1, 2} and not own & written


def test_files_that_a_mixture_replaces_need_not_be_named(corpus, not_ours):
    bound = small_corpus.options(corpus) | {"MIXTURE_OR_TASK_NAME": "not_ours.text"}
    bound["TLM_MIXTURE"] = "not_ours.pairs"
    del bound["MONO"], bound["PARALLEL"]
    overrides = [f"{name}={value}" for name, value in bound.items()]
    recipe = recipes.read_recipe(["recipes/xlm_text.gin"], overrides)
    assert recipe.corpus.mono == recipe.corpus.parallel == ()
    del overrides[-1]
    with pytest.raises(UserError, match="PARALLEL is not set and this recipe needs it"):
        recipes.read_recipe(["recipes/xlm_text.gin"], overrides)


def test_a_setting_of_text_holds_for_pairs_that_have_none_of_their_own(corpus):
    def shares(**given):
        found = {}
        for name, batches in read([], corpus, **given).items():
            source = batches()
            table = source.identity["sampling_table"]
            found[name] = sum(row["sentences"] for row in table)
            source.close()
        return found

    whole = shares()
    held = shares(**{"text.holdout": 0.5})
    assert held["mlm"] < whole["mlm"] and held["tlm"] < whole["tlm"]
    apart = shares(**{"text.holdout": 0.5, "pairs/text.holdout": 0.0})
    assert apart == {"mlm": held["mlm"], "tlm": whole["tlm"]}


@pytest.mark.parametrize("name", [*OF_TEXT, *OF_PAIRS])
def test_the_file_of_an_objective_binds_its_text(name):
    file = {"masked_words": "mbart", "masked_translation": "mbart"}.get(name, name)
    file = file.removesuffix("_text")
    scope = ""
    if name in OF_PAIRS:
        scope = "pairs/"
    written = gin_files.find_gin(f"objectives/{file}.gin").read_text(encoding="utf-8")
    assert f"\n{name}.text = @{scope}text()\n" in written


def test_a_stage_draws_anew(corpus):
    made = make_corpus(f"{corpus}/mono", vocabulary=f"{corpus}/vocab")

    def hashes(text):
        source = text.batches(ClmFeatures(), 2, 16)()
        found = [batch_hash(source.next()) for _ in range(4)]
        source.close()
        return found

    text = TextSource(made, seed=3)
    assert not {*hashes(text)} & {*hashes(text.of_stage(70))}
    assert hashes(text.of_stage(70)) == hashes(TextSource(made, seed=73))
    assert text.of_stage(70) != text and text.of_stage(0) == text


def test_sampling_in_stages_makes_stages_of_the_objectives_that_read_it(corpus):
    given = small_corpus.options(corpus) | {
        "TRAIN_STEPS": 200,
        "sampling.alpha": "{0: 0.7, 50: 0.2}",
        "TLM_BATCH": "{0: 8, 90: 4}",
    }
    recipe = recipes.read_recipe(["recipes/xlm_text.gin"], [f"{k}={v}" for k, v in given.items()])
    mlm, tlm = map(in_stages, recipe.bound["objectives"])
    assert [*mlm] == [0, 50] and [*tlm] == [0, 50, 90]
    alphas = [run.source.settings["sampling"]["alpha"] for run in tlm.values()]
    assert alphas == [0.7, 0.2, 0.2]


def test_sources_have_weights_and_stages(corpus, tmp_path):
    """Each source is drawn by its weight, whatever its size; languages are those of all stages."""
    lines = (corpus / "mono/de/a.txt").read_text("utf-8").splitlines(keepends=True)
    for name, count in (("small/de.txt", 12), ("large/de.txt", len(lines))):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("".join(lines[:count]), "utf-8")
    small, large = f"de={tmp_path}/small/*", f"de={tmp_path}/large/*"
    mono = {0: {small: 3, large: 1}, 40: f"{corpus}/mono/en"}
    given = small_corpus.options(corpus) | {"TRAIN_STEPS": 80, "MONO": mono, "LANGUAGES": None}
    given["sampling.same_language"] = False
    recipe = recipes.read_recipe(["recipes/xlm_text.gin"], [f"{k}={v}" for k, v in given.items()])
    assert recipe.corpus.mono == (small, large, f"{corpus}/mono/en")
    mlm, tlm = map(in_stages, recipe.bound["objectives"])
    assert ([*mlm], [*tlm]) == ([0, 40], [0])
    tables = []
    for run in mlm.values():
        source = run.source()
        tables.append({one["name"]: one["share"] for one in source.identity["sampling_table"]})
        source.close()
    assert tables == [{f"de of {large}": 0.25, f"de of {small}": 0.75}, {"en": 1.0}]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("train.objectives = [@mlm()]\nmlm.text = @text()", "text"),
        # Python 3.12 has other words for an argument that is given by its name alone.
        ("train.evaluators = [@translation_perplexity()]", "translation_perplexity"),
    ],
)
def test_a_recipe_without_a_corpus_says_where_it_is_bound(tmp_path, written, name):
    file = tmp_path / "mine.gin"
    file.write_text(written + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"the recipe does not bind {name}.corpus"):
        recipes.read_recipe([str(file)], [])


def test_pairs_that_an_objective_names_are_no_mixtures(corpus, not_ours):
    text = TextSource(
        make_corpus(vocabulary=f"{corpus}/vocab", languages="de en"), mixture="not_ours.pairs"
    )
    count = {}
    for where, files in {"mixture": None, "files": [f"{corpus}/pairs/*"]}.items():
        with contextlib.closing(text.batches(TlmFeatures(), 4, 64, parallel=files)()) as source:
            (row,) = source.identity["sampling_table"]
            count[where] = row["sentences"]
    assert count == {"mixture": 27, "files": 120}


def test_a_share_of_lines_is_not_left_out_of_a_mixture_in_silence(corpus, not_ours):
    text = TextSource(
        make_corpus(vocabulary=f"{corpus}/vocab", languages="de en"),
        mixture="not_ours.pairs",
        holdout=0.1,
    )
    with pytest.raises(UserError, match=r"text\.holdout=0\.1 .* tlm reads the mixture"):
        text.batches(TlmFeatures(), 4, 64)()

"""Every recipe parses, builds, fits its own shapes and means what it meant, where none of its files
exist.

The operative configurations stand in golden/configs;
`XLINGJAX_GOLDEN=write pytest tests/config/test_recipes.py` writes them.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests.helpers import toy
from xlingjax.config import gin_files
from xlingjax.config import recipe as recipes
from xlingjax.config.corpus import Corpus
from xlingjax.config.ernie_m import OBJECTIVES
from xlingjax.config.text import TextSource
from xlingjax.data.features import FIELDS
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import preset
from xlingjax.model.partition import check_rows, make_mesh
from xlingjax.training import schedule
from xlingjax.training.feed import Feed, in_stages
from xlingjax.training.optimizer import learning_rate_schedule
from xlingjax.training.run_record import check_length
from xlingjax.workflows.bakeoff import runs as bakeoff
from xlingjax.workflows.bakeoff.runs import Bakeoff

GOLDEN = Path(__file__).parents[1] / "golden" / "configs"
GIN = gin_files.gin_folder()
XNLI = "ar bg de el en es fr hi ru sw th tr ur vi zh"
TEXT = {"MONO": "text/*/*.txt", "VOCABULARY": "vocab"}
PAIRS = {"PARALLEL": "pairs/*"}
NOWHERE = Corpus((), (), "vocab", ())
TINY = {"VOCABULARY_SIZE": 4000, "LANGUAGES": "de en es fr hi ru tr zh"}
GIVEN = {"INIT_ENCODER": "run"}
PAIR_SIZE = {"VOCABULARY_SIZE": 64_500}

# What a user must give, and how many parameters (in millions) the model then has; spec figures of
# the papers.
RECIPES = {
    "xlm_tiny": (TINY, 0.8),
    "xlm_tiny_mlm": (TINY, 0.8),
    "xlm_text": (TEXT | PAIRS | TINY, 0.8),
    "own_text": (TEXT | PAIRS | TINY, 0.8),
    "own_text_tiny": (TINY, 0.8),
    "static_text": (PAIRS | TINY | {"VOCABULARY": "vocab"}, 1.89),
    "adapt": (TEXT | {"INIT_FROM": "run", "LANGUAGES": TINY["LANGUAGES"]}, 2.65),
    "xlm_15_mlm": (TEXT, 249.1),
    "xlm_15_mlm_tlm": (TEXT | PAIRS, 249.1),
    "xlm_clm": (TEXT, 249.1),
    "xlmr_base": (TEXT | {"LANGUAGES": XNLI}, 278.3),
    "xlmr_large": (TEXT | {"LANGUAGES": XNLI}, 560.1),
    "mmbert_base": (TEXT | {"LANGUAGES": XNLI}, 307.79),
    "mmbert_small": (TEXT | {"LANGUAGES": XNLI}, 140.9),
    "mmbert_tiny": (TINY, 2.06),
    "modernbert_base": (TEXT | {"LANGUAGES": XNLI}, 149.66),
    "modernbert_tiny": (TINY, 2.06),
    "eurobert_210m": (TEXT | {"LANGUAGES": XNLI}, 310.27),
    "eurobert_tiny": (TINY, 3.31),
    "nli_tiny": ({"INIT_FROM": "run"}, 2.95),
    "nli_plug_in_tiny": ({"INIT_FROM": "run"}, 3.32),
    "pos_tiny": ({"INIT_FROM": "run"}, 2.65),
    "ner_tiny": ({"INIT_FROM": "run"}, 2.65),
    "qa_tiny": ({"INIT_FROM": "run"}, 2.65),
    "unicoder": (
        TEXT | PAIRS | {"INIT_FROM": "run", "DOCUMENTS": "documents", "NEGATIVES": "n/*.tsv"},
        249.1,
    ),
    "unicoder_lc": (TEXT | PAIRS | {"INIT_FROM": "run", "LANGUAGES": XNLI}, 278.3),
    "unicoder_lc_tiny": (TINY, 0.8),
    "unicoder_tiny": (TINY, 0.8),
    "veco_large": (TEXT | PAIRS | {"INIT_FROM": "run", "LANGUAGES": XNLI}, 660.95),
    "veco_small": (TEXT | PAIRS | {"LANGUAGES": XNLI}, 250.0),
    "veco_tiny": (TINY, 0.9),
    "mbart_small": (TEXT | PAIRS | {"LANGUAGES": XNLI}, 292.5),
    "mbart_tiny": (TINY, 1.2),
    "ernie_m_base": (TEXT | PAIRS | {"INIT_FROM": "run", "LANGUAGES": XNLI}, 278.3),
    "ernie_m_large": (TEXT | PAIRS | {"INIT_FROM": "run", "LANGUAGES": XNLI}, 560.16),
    "ernie_m_15": (TEXT | PAIRS | {"INIT_FROM": "run"}, 278.3),
    "ernie_m_tiny": (TINY, 0.8),
    "ernie_m_tatoeba": (
        PAIRS
        | {
            "INIT_FROM": "run",
            "VOCABULARY": "vocab",
            "LANGUAGES": TINY["LANGUAGES"],
            "RETRIEVAL_LAYER": 3,
        },
        2.65,
    ),
    "xfnp": (TEXT | {"LANGUAGES": XNLI}, 616.1),
    "xfnp_tiny": (TINY, 1.2),
    "xdae": (TEXT | GIVEN, 349.9),
    "xdae_tiny": (TINY, 1.2),
    "titles_tiny": ({"INIT_FROM": "run"}, 3.2),
    "questions_tiny": ({"INIT_FROM": "run"}, 3.2),
    "xlm_unmt_en_fr": (TEXT | GIVEN | PAIR_SIZE, 309.6),
    "xlm_unmt_en_de": (TEXT | GIVEN | PAIR_SIZE, 309.6),
    "xlm_unmt_en_ro": (TEXT | GIVEN | PAIR_SIZE, 309.6),
    "xlm_unmt_tiny": (TINY | {"LANGUAGES": "de en"}, 1.2),
    "xlm_mt_ro_en": (TEXT | PAIRS | GIVEN | PAIR_SIZE, 309.6),
    "xlm_mt_tiny": (TINY | {"LANGUAGES": "de en"}, 1.2),
    "veco_mt_en_de": (PAIRS | GIVEN | {"VOCABULARY": "vocab"}, 862.5),
    "veco_mt_en_fr": (PAIRS | GIVEN | {"VOCABULARY": "vocab"}, 862.5),
    "veco_mt_iwslt14_de_en": (PAIRS | GIVEN | {"VOCABULARY": "vocab"}, 292.5),
    "veco_mt_tiny": (TINY, 1.2),
    "mt_text": (PAIRS | TINY | {"VOCABULARY": "vocab"}, 4.4),
}

MORE = {"cl_mlm": {"DOCUMENTS": "documents"}, "xfnp": {"DECODER_LAYERS": 2}}
"""What an objective's file needs besides text and pairs."""
PARTS = {"xfnp": ["gin/models/ngram_decoder.gin"]}
"""The files of the model's parts that it needs."""


def write_record(folder, **options):
    model = preset("tiny", vocab_size=4000, num_languages=8, **options)
    record = {
        "model": dataclasses.asdict(model),
        "languages": TINY["LANGUAGES"].split(),
        "config": {"vocabulary": "vocab"},
    }
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(record))


@pytest.fixture(params=RECIPES)
def recipe(request, tmp_path, monkeypatch):
    """(name, recipe) in an empty folder but for the run.json that fine-tuning starts from."""
    monkeypatch.chdir(tmp_path)
    generates = request.param in ("titles_tiny", "questions_tiny")
    decoder = {"decoder_layers": 1, "language_tokens": 8} if generates else {}
    write_record(tmp_path / "run", cross_attention="plug_in" in request.param, **decoder)
    return request.param, built(request.param)


def test_the_table_above_is_complete():
    names = [name for name in gin_files.recipes() if not name.startswith("bakeoff")]
    assert sorted(RECIPES) == names


@pytest.mark.parametrize(
    "given, refused",
    [
        (
            [],
            (
                "writes several languages, and nothing tells the decoder which: set"
                " LANGUAGE_TOKENS=True"
            ),
        ),
        (["DIRECTIONS=de-en en-de"], "writes several languages, and nothing tells"),
        (["DIRECTIONS=de-en fr-en"], None),
        (["LANGUAGE_EMBEDDING=True"], None),
    ],
)
def test_a_decoder_that_is_told_no_language_is_refused(given, refused):
    files = [
        "gin/recipes/mt_text.gin",
        "gin/models/mini_decoder.gin",
    ]  # which has no tokens of languages
    options = PAIRS | TINY | {"VOCABULARY": "vocab"}
    bound = recipes.read_recipe(files, [*(f"{k}={v}" for k, v in options.items()), *given]).bound
    with pytest.raises(UserError, match=refused) if refused else contextlib.nullcontext():
        Feed(bound["objectives"], build_model(bound["model"]), make_mesh(bound["mesh"]), 1)


@pytest.mark.long
@pytest.mark.parametrize(
    "beside, streams", [("xdae", 0), ("xfnp", 2)]
)  # the file alone says what a run of xFNP needs
def test_pretraining_can_go_on_beside_fine_tuning_for_generation(
    beside, streams, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_record(
        tmp_path / "run", decoder_layers=1, streams=streams, language_tokens=0 if streams else 8
    )
    files = ["gin/recipes/titles_tiny.gin", f"gin/objectives/generation_{beside}.gin"]
    recipe = recipes.read_recipe(files, ["INIT_FROM=run", "MONO=text"])
    names = [run.objective.name for run in recipe.bound["objectives"]]
    assert names == ["generation", beside] and recipe.corpus.mono == ("text",)
    Feed(
        recipe.bound["objectives"],
        build_model(recipe.bound["model"]),
        make_mesh(recipe.bound["mesh"]),
        1,
    )
    as_there = ["INIT_FROM=run", f"GENERATION_STREAMS={streams}", f"LANGUAGE_TOKENS={not streams}"]
    alone = recipes.read_recipe(files[:1], as_there).bound
    assert recipe.bound["objectives"][0].source.shapes == alone["objectives"][0].source.shapes
    assert len(recipe.bound["evaluators"]) == len(alone["evaluators"]) == 2


@pytest.mark.parametrize("given, rows", [("None", 8), ("False", 0)])
def test_fine_tuning_can_leave_the_language_embedding_behind(given, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_record(tmp_path / "run")
    built = recipes.read_recipe(
        ["gin/recipes/nli_tiny.gin"], ["INIT_FROM=run", f"LANGUAGE_EMBEDDING={given}"]
    )
    model = built.bound["model"]
    assert (model.num_languages, model.vocab_size) == (rows, 4000)


LOSSES = {}


def loss_of(config, objective, shapes, languages):
    """What the objective's loss is made of, by shapes alone; recipes of one paper share it."""
    key = repr((config, objective, shapes, languages))
    if key in LOSSES:
        return LOSSES[key]
    encoder = build_model(config)
    batch = {name: jax.ShapeDtypeStruct(shape, FIELDS[name].dtype) for name, shape in shapes}

    def loss(params, batch, rng):
        return objective.loss(encoder, params, batch, rng, languages)

    rng = jax.eval_shape(lambda: jax.random.key(0))
    LOSSES[key] = jax.eval_shape(loss, encoder.abstract(), batch, rng)
    return LOSSES[key]


def test_recipe_builds_and_fits_its_shapes(recipe):
    name, built = recipe
    bound = built.bound
    languages = len(built.corpus.languages)
    assert count_parameters(bound["model"]) / 1e6 == pytest.approx(RECIPES[name][1], abs=0.05)
    mesh = make_mesh(bound["mesh"])
    for run in [run for entry in bound["objectives"] for run in in_stages(entry).values()]:
        shapes = run.source.shapes
        check_rows(mesh, shapes["input_ids"][0], bound["microbatches"], name)
        read = tuple((field, shapes[field]) for field in run.objective.reads)
        made = loss_of(bound["model"], run.objective, read, languages)
        assert set(made.terms) == set(run.objective.coefficients)
        assert all(term.shape == () and term.dtype == jnp.float32 for term in made.terms.values())
        by_language, weight = made.metrics[f"{next(iter(made.terms))}/loss_by_language"]
        assert by_language.shape == weight.shape == (languages,)
    rate = learning_rate_schedule(bound["optimizer"], bound["steps"])
    peak = bound["optimizer"].learning_rate
    warmup = bound["optimizer"].warmup(bound["steps"])
    assert float(rate(warmup)) == pytest.approx(peak, rel=1e-3)


def test_operative_configuration_is_the_golden_one(recipe):
    name, built = recipe
    golden = GOLDEN / f"{name}.gin"
    if os.environ.get("XLINGJAX_GOLDEN") == "write":
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(built.config, encoding="utf-8")
    assert built.config == golden.read_text(encoding="utf-8")


# --- what the papers say --------------------------------------------------------------------------


def built(name: str):
    return recipes.read_recipe(
        [f"gin/recipes/{name}.gin"], [f"{k}={v}" for k, v in RECIPES[name][0].items()]
    )


def test_xlm_15_is_the_papers():
    recipe = built("xlm_15_mlm_tlm")
    mlm, tlm = recipe.bound["objectives"]
    model, optimizer = recipe.bound["model"], recipe.bound["optimizer"]
    assert (model.layers, model.dim, model.heads, model.ffn, model.num_languages) == (
        12,
        1024,
        8,
        4096,
        15,
    )
    assert (model.dropout, model.attention_dropout, model.head, model.activation) == (
        0.1,
        0.1,
        "tied",
        "gelu",
    )
    assert mlm.source.shapes["input_ids"] == (64, 256) and mlm.source.shapes[
        "masked_positions"
    ] == (64, 39)
    assert tlm.source.shapes["input_ids"] == (16, 256)  # about 4000 tokens
    assert (optimizer.name, optimizer.schedule, optimizer.learning_rate) == (
        "adam",
        "inverse_sqrt",
        1e-4,
    )
    assert (optimizer.warmup_steps, optimizer.warmup_from, optimizer.b2, optimizer.clip_norm) == (
        4000,
        1e-7,
        0.98,
        5.0,
    )
    assert "sampling.alpha = %ALPHA" in recipe.config and "ALPHA = 0.7" in recipe.config
    assert recipe.bound["schedule"] == "alternate" and mlm.weight == tlm.weight


def test_xlmr_is_the_papers():
    for name, layers, dim in (("xlmr_base", 12, 768), ("xlmr_large", 24, 1024)):
        recipe = built(name)
        (mlm,) = recipe.bound["objectives"]
        model = recipe.bound["model"]
        assert (model.layers, model.dim, model.vocab_size, model.num_languages) == (
            layers,
            dim,
            250_002,
            0,
        )
        assert (model.position_offset, model.max_positions, model.head) == (2, 514, "transform")
        assert mlm.source.shapes["input_ids"] == (8192, 512) and recipe.bound["steps"] == 1_500_000
        assert "ALPHA = 0.3" in recipe.config and "SAME_LANGUAGE = False" in recipe.config


def test_unicoder_is_the_papers():
    recipe = built("unicoder")
    runs, optimizer = (
        {run.objective.name: run for run in recipe.bound["objectives"]},
        recipe.bound["optimizer"],
    )
    assert (
        list(runs) == ["mlm", "tlm", "clwr", "clpc", "cl_mlm"]
        and recipe.bound["schedule"] == "alternate"
    )
    assert {run.source.shapes["input_ids"] for run in runs.values()} == {(512, 256)}
    assert len({run.weight for run in runs.values()}) == 1
    assert {run.source.settings["sampling"]["alpha"] for run in runs.values()} == {
        0.0
    }  # with equal probability
    of_batches = [run.source.settings["sampling"]["same_language"] for run in runs.values()]
    assert of_batches == [False] * 5
    documents = runs["cl_mlm"].source.settings
    assert documents["truncate"] and not documents["alone"]
    assert {runs[name].source.settings["max_pieces"] for name in ("tlm", "clwr", "clpc")} == {126}
    assert (optimizer.name, optimizer.schedule, optimizer.learning_rate) == (
        "adam",
        "inverse_sqrt",
        1e-5,
    )


def test_the_published_figures_of_unicoders_tiny_recipes_are_of_their_settings():
    for name in ("unicoder_tiny", "unicoder_lc_tiny"):
        for run in built(name).bound["objectives"]:
            settings = run.source.settings
            assert settings["sampling"]["same_language"]
            if run.objective.name == "cl_mlm":
                assert settings["alone"] and not settings["truncate"]


def test_veco_is_the_papers():
    for name, rate, b2, layers, dim in (
        ("veco_large", 2e-4, 0.98, 24, 1024),
        ("veco_small", 3e-4, 0.999, 6, 768),
    ):
        recipe = built(name)
        stages = [list(in_stages(entry).values()) for entry in recipe.bound["objectives"]]
        assert [len(entry) for entry in stages] == (
            [2, 2] if name == "veco_large" else [1, 1]
        )  # a first phase
        text, pairs = (entry[-1] for entry in stages)
        model, optimizer = recipe.bound["model"], recipe.bound["optimizer"]
        assert (model.layers, model.dim, model.num_languages, model.cross_attention) == (
            layers,
            dim,
            0,
            True,
        )
        # Table 8: 4,096 pairs of 128 tokens, a pair to a row.
        assert text.source.shapes["input_ids"] == (1024, 512)
        assert pairs.source.shapes["input_ids"] == (4096, 128)
        assert not pairs.source.settings["packing"]
        assert (
            text.source.settings["masking"]["rate"],
            pairs.source.settings["masking"]["rate"],
        ) == (0.15, 0.25)
        assert (
            pairs.source.settings["max_pieces"] == 126
            and pairs.objective.tlm
            and not text.objective.tlm
        )
        assert {run.source.settings["sampling"]["alpha"] for run in (text, pairs)} == {0.5}
        assert (optimizer.schedule, optimizer.learning_rate, optimizer.warmup_steps) == (
            "linear",
            rate,
            12_000,
        )
        assert (
            optimizer.b2 == b2 and recipe.bound["steps"] == 240_000 and text.weight == pairs.weight
        )


@pytest.mark.parametrize(
    "name, given, length, max_pieces, packing",
    [
        # Table 8: a sequence of 512 or 128 tokens is a pair, of which a batch has 1,024 or 4,096.
        ("veco_large", [], 128, 126, False),
        ("veco_large", ["VECO_LENGTH=256", "PACKING=True"], 256, 126, True),
        ("veco_small", [], 128, 126, False),
    ],
)
def test_a_batch_of_veco_as_table_8_is_read(name, given, length, max_pieces, packing):
    options = [f"{k}={v}" for k, v in RECIPES[name][0].items()]
    recipe = recipes.read_recipe([f"gin/recipes/{name}.gin"], [*options, *given])
    text, pairs = (list(in_stages(one).values())[-1] for one in recipe.bound["objectives"])
    assert text.source.shapes["input_ids"] == (1024, 512)
    assert pairs.source.shapes["input_ids"] == (4096, length)
    assert pairs.source.settings["max_pieces"] == max_pieces
    assert [run.source.settings["packing"] for run in (text, pairs)] == [packing, packing]


@pytest.mark.parametrize("name", ["veco_large", "veco_tiny"])
def test_the_first_phase_of_veco_is_paid_for_the_cross_attention_alone(name):
    """TLM does not pass through it: in the first phase it would be computed and train nothing."""
    text, pairs = (list(in_stages(one).values()) for one in built(name).bound["objectives"])
    terms = [[*run.objective.coefficients] for run in (*text, *pairs)]
    plugged_in = ["veco_plug_in_x", "veco_plug_in_y"]
    plugged_out = ["veco_plug_out_x", "veco_plug_out_y"]
    of_text = [name.replace("veco", "veco_text") for name in (*plugged_out, *plugged_in)]
    assert terms == [of_text[2:], of_text, plugged_in, [*plugged_out, *plugged_in, "veco_tlm"]]


def test_a_factor_of_what_is_left_out_is_refused():
    """It would change nothing, and nobody would learn of it."""
    options = [f"{k}={v}" for k, v in RECIPES["veco_small"][0].items()]
    options += ["VECO_TLM=False", "VECO_FACTORS={'tlm': 4}"]
    with pytest.raises(UserError, match="VECO_TLM=False leaves it out: drop one"):
        recipes.read_recipe(["gin/recipes/veco_small.gin"], options)


@pytest.mark.parametrize("restart", [True, False])
def test_positions_of_vecos_tlm_are_those_of_what_is_measured_on_pairs(restart):
    options = [f"{k}={v}" for k, v in RECIPES["veco_small"][0].items()]
    options += [f"VECO_RESET_POSITIONS={restart}", "HELDOUT_PAIRS=held"]
    recipe = recipes.read_recipe(["gin/recipes/veco_small.gin"], options)
    pairs = in_stages(recipe.bound["objectives"][1])[0]
    assert pairs.objective.reset_positions == restart
    assert recipe.config.count("reset_positions = %VECO_RESET_POSITIONS") == 2


@pytest.mark.parametrize(
    "name, tokens, rate, dropout, tied",
    [
        ("veco_mt_en_de", 1 << 16, 1e-4, 0.3, True),
        ("veco_mt_en_fr", 1 << 18, 2e-4, 0.1, True),
        ("veco_mt_iwslt14_de_en", 1 << 12, 5e-4, 0.3, False),
    ],
)
def test_vecos_translation_is_the_papers(name, tokens, rate, dropout, tied):
    recipe = built(name)
    (translation,), optimizer = recipe.bound["objectives"], recipe.bound["optimizer"]
    assert math.prod(translation.source.shapes["decoder_ids"]) == tokens
    assert (optimizer.schedule, optimizer.learning_rate) == ("linear", rate)
    assert recipe.bound["model"].dropout == dropout
    assert recipe.bound["model"].tied_self_attention == tied
    if tied:
        assert (recipe.bound["steps"], optimizer.warmup_steps) == (100_000, 16_000)
        assert translation.objective.smoothing == 0.2


def test_mbart_is_trained_as_veco_small_is():
    """VECO §7: "the same datasets and parameter settings"."""
    ours, veco = built("mbart_small"), built("veco_small")
    words, translation = ours.bound["objectives"]
    text, pairs = veco.bound["objectives"]
    assert words.source.shapes["input_ids"] == text.source.shapes["input_ids"]
    rows, length = pairs.source.shapes["input_ids"]
    # Every pair that has room in a row of VECO's, its sides each in a row of their own.
    for side in ("input_ids", "decoder_ids"):
        assert translation.source.shapes[side] == (rows, length)
    assert not translation.source.settings["packing"] and not pairs.source.settings["packing"]
    for one, other in ((words, text), (translation, pairs)):
        assert one.weight == other.weight
        assert one.source.settings["sampling"] == other.source.settings["sampling"]
        shown = one.source.settings["masking"]
        assert shown["rate"] == other.source.settings["masking"]["rate"]
        assert (shown["mask"], shown["random"]) == (1.0, 0.0)
    assert translation.source.settings["max_pieces"] == pairs.source.settings["max_pieces"]
    assert ours.bound["optimizer"] == veco.bound["optimizer"]
    assert ours.bound["steps"] == veco.bound["steps"]
    model, encoder = ours.bound["model"], veco.bound["model"]
    assert (model.layers, model.decoder_layers, model.dim) == (6, 6, encoder.dim)


def test_xfnp_is_the_papers():
    recipe = built("xfnp")
    (xfnp,), model = recipe.bound["objectives"], recipe.bound["model"]
    assert (model.layers, model.decoder_layers, model.dim, model.heads, model.ffn) == (
        12,
        12,
        1024,
        16,
        4096,
    )
    assert (model.vocab_size, model.num_languages, model.streams, model.norm_order) == (
        250_012,
        0,
        2,
        "post",
    )
    assert (model.head, model.decoder_embeddings, model.dropout) == ("plain", "shared_tokens", 0.1)
    assert xfnp.source.shapes["input_ids"] == (1024, 512) and xfnp.source.shapes["decoder_ids"] == (
        1024,
        71,
    )
    settings = xfnp.source.settings
    assert (settings["block"], settings["span"], settings["random_range"]) == (64, 9, "ordinary")
    assert xfnp.objective.alphas == (1.0, 1.0) and xfnp.objective.skip == "target"
    assert (recipe.bound["steps"], recipe.bound["optimizer"].learning_rate) == (120_000, 1e-4)
    check_length("xfnp", 512, model)


def test_what_is_measured_on_pairs_follows_the_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in ("de", "en"):
        (tmp_path / f"de-en.{code}").write_text("x\n" * 4)
        (tmp_path / f"{code}.txt").write_text("x\n")
    given = TEXT | {
        "VOCABULARY_SIZE": 4000,
        "PARALLEL": "de-en.*",
        "LANGUAGES": "de en",
        "HELDOUT_PAIRS": ".",
    }
    given |= {"HELDOUT_TEXT": "??.txt", "FLOORS": True, "PROBE_PAIRS": 3}
    given |= {"LENGTH": 96, "TLM_LENGTH": 48, "RESET_POSITIONS": False}
    recipe = recipes.read_recipe(
        ["gin/recipes/xlm_text.gin"], [f"{k}={v}" for k, v in given.items()]
    )
    monkeypatch.setattr(Vocabulary, "load", lambda path: toy.ToyVocabulary())
    made = {made.name: made for make in recipe.bound["evaluators"] for made in make()}
    assert (
        made["retrieval_floors"].test == made["retrieval"].pairs
        and len(made["retrieval"].pairs["de"]) == 3
    )
    translation, samples = made["translation_perplexity"], made["masked_samples"]
    assert (translation.length, translation.reset_positions) == (48, False)
    assert samples.length == 96


@pytest.mark.parametrize(
    "name, updates", [("xlm_unmt_tiny", 1), ("xlm_unmt_en_fr", 4), ("xlm_unmt_en_ro", 4)]
)
def test_the_weight_of_denoising_falls_as_xlms_lambda(name, updates):
    """1 to 0.1 over 100,000 of XLM's iterations, 0 from 300,000 on; one of the papers' runs is four
    updates."""
    denoising, translation = (in_stages(entry)[0] for entry in built(name).bound["objectives"])
    assert translation.objective.coefficients == {"back_translation": 1.0}
    (weight,) = denoising.objective.coefficients.values()
    found = [
        float(weight.at(updates * step)) for step in (0, 50_000, 100_000, 200_000, 300_000, 10**6)
    ]
    assert found == pytest.approx([1, 0.55, 0.1, 0.05, 0, 0], abs=1e-6)


@pytest.mark.parametrize(
    "file", ["clm", "mlm", "tlm", "clwr", "clpc", "cl_mlm", "camlm", "btmlm", "xfnp"]
)
def test_an_objectives_file_makes_a_recipe_its_own(file):
    given = TEXT | PAIRS | TINY | MORE.get(file, {})
    files = ["gin/recipes/xlm_text.gin", *PARTS.get(file, ()), f"gin/objectives/{file}.gin"]
    recipe = recipes.read_recipe(files, [f"{k}={v}" for k, v in given.items()])
    assert [run.objective.name for run in recipe.bound["objectives"]] == [file]


@pytest.mark.parametrize(
    "file, given, arrives",
    [
        ("clwr", {"CLWR_RAW": True, "MAX_PIECES": 9}, {"raw": True, "max_pieces": 9}),
        (
            "clpc",
            {"CLPC_NEGATIVES": 3, "RESET_POSITIONS": False},
            {"negatives": 3, "reset_positions": False},
        ),
        (
            "cl_mlm",
            {"PARITY": "odd", "PACKING": False, "CL_MLM_TRUNCATE": True, "CL_MLM_ALONE": True},
            {"parity": "odd", "packing": False, "truncate": True, "alone": True},
        ),
        (
            "camlm",
            {"CAMLM_LAYOUT": "slots", "OWN_MASKS": "self"},
            {"layout": "slots", "own_masks": "self"},
        ),
        ("camlm", {"CAMLM_RESET_POSITIONS": True}, {"reset_positions": True}),
        (
            "btmlm",
            {"PSEUDO_DECODE": "sample", "PSEUDO_MASKS": "all"},
            {"decode": "sample", "own_masks": "all"},
        ),
        (
            "btmlm",
            {"PSEUDO_RATE": 0.3, "PSEUDO_RESET_POSITIONS": True},
            {"proportion": 0.3, "reset_positions": True},
        ),
        ("veco", {"STOP_GRADIENT": False}, {"stop_gradient": False}),
        ("veco", {"CROSS_ATTENTION_QUERY": "input"}, {"query": "input"}),
        ("veco", {"VECO_FACTORS": {"tlm": 4.0}}, {"factors": (("tlm", 4.0),)}),
        (
            "xfnp",
            {"XFNP_BLOCK": 32, "XFNP_SPAN": 5, "PACKING": False},
            {"block": 32, "span": 5, "packing": False},
        ),
        (
            "xfnp",
            {"STREAMS": 3, "LABEL_SMOOTHING": 0.1},
            {"alphas": (1.0, 1.0, 1.0), "smoothing": 0.1},
        ),
        (
            "xfnp",
            {"XFNP_ALPHAS": "(2, 1)", "RANDOM_RANGE": "all", "XFNP_SKIP": "runs"},
            {"alphas": (2.0, 1.0), "random_range": "all", "skip": "runs"},
        ),
    ],
)
def test_switches_arrive_in_every_objective_of_their_file(file, given, arrives):
    given = TEXT | PAIRS | TINY | given | MORE.get(file, {})
    files = ["gin/recipes/xlm_text.gin", *PARTS.get(file, ()), f"gin/objectives/{file}.gin"]
    recipe = recipes.read_recipe(files, [f"{k}={v}" for k, v in given.items()])
    for entry in recipe.bound["objectives"]:
        for run in in_stages(entry).values():
            found = vars(run.objective) | run.source.settings
            assert {name: found[name] for name in arrives} == arrives, run.objective.name


def test_pseudo_tokens_have_positions():
    """Theirs run on behind the text: XLM-R's 512 are enough for the recipes' rows and too few for
    rows of 512."""
    for name in ("ernie_m_base", "ernie_m_large", "ernie_m_15"):
        recipe = built(name)
        positions = max(
            run.source.positions
            for entry in recipe.bound["objectives"]
            for run in in_stages(entry).values()
        )
        assert positions == 512
        check_length("btmlm", 512, recipe.bound["model"], positions)
    btmlm = OBJECTIVES["btmlm"]
    # Scattered ones have places as far behind the text as it is long.
    source = btmlm(TextSource(NOWHERE), 8, 512, placement="scattered").source
    with pytest.raises(UserError, match="use 890 positions.*lower LENGTH .*BTMLM_LENGTH"):
        check_length("btmlm", 512, recipe.bound["model"], source.positions)
    assert btmlm(TextSource(NOWHERE), 8, 512, reset_positions=True).source.positions == 445


def test_mixes_of_the_bakeoff_read_pairs_four_times_in_five():
    config, shares, models = (
        recipes.read_part("bakeoff", Bakeoff, ["gin/recipes/bakeoff.gin"], []),
        {},
        set(),
    )
    for mix, words in config.mixes.items():
        words = [*config.base, *words, "LANGUAGES=de en", "VOCABULARY_SIZE=4000"]
        line = bakeoff.command("pretrain", words, Path("x"), 3000)
        files = [value for flag, value in pairwise(line) if flag == "--gin-file"]
        bound = recipes.read_recipe(
            files, [word.removeprefix("--gin.") for word in line if "--gin." in word]
        ).bound
        assert bound["model"].layers == 3 and (bound["seed"], bound["optimizer"].learning_rate) == (
            0,
            4e-3,
        )
        added = dict(cross_attention=False, word_recovery=False, paraphrase=False)
        # ERNIE-M's table of languages begins at 0 and so changes nothing at first.
        assert bound["model"].has_languages == (mix in ("ERNIE-M", "all"))
        assert not bound["model"].has_languages or bound["model"].language_init == "zero"
        models.add(bound["model"].replace(num_languages=0, language_init="random", **added))
        stages = [in_stages(entry) for entry in bound["objectives"]]
        names, weights = [of[0].objective.name for of in stages], [of[0].weight for of in stages]
        turns = Counter(names[i] for step in range(3000) for i in schedule.turns(step, 0, weights))
        assert set(turns) == set(names), mix
        shares[mix] = 1 - sum(turns[name] for name in ("mlm", "btmlm", "veco_text")) / 3000
    assert len(models) == 1  # so that the weights they share begin equal
    assert len(shares) == 8 and shares.pop("MLM") == shares.pop("MLM, unsampled") == 0
    assert shares == pytest.approx(dict.fromkeys(shares, 0.8), abs=0.01)


def test_noise_is_of_words_but_where_figures_were_published_with_pieces():
    """XGLUE §4.1 drops "words"; XLM has the setting of Lample et al. (2018b), whose code drops,
    hides and moves "entire words"."""
    units = {}
    for name in ("xdae", "xlm_unmt_en_fr", "xdae_tiny", "xlm_unmt_tiny"):
        run = in_stages(built(name).bound["objectives"][0])[0]
        units[name] = run.source.settings["noise"]["unit"]
    assert [*units.values()] == ["words", "words", "pieces", "pieces"]
    assert built("xfnp_tiny").bound["objectives"][0].objective.skip == "runs"


# --- how recipes are written ----------------------------------------------------------------------


def bindings(path: Path) -> list[str]:
    return re.findall(r"^([\w./]+)\s*=", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_a_recipe_is_includes_and_few_bindings_and_says_what_it_is():
    for path in (GIN / "recipes").glob("*.gin"):
        assert len(bindings(path)) <= 16, path
    for path in GIN.rglob("*.gin"):
        assert path.read_text(encoding="utf-8").startswith("# "), path


def test_a_file_sets_nothing_twice_and_no_macro_that_nothing_reads():
    read = {
        name
        for path in GIN.rglob("*.gin")
        for name in re.findall(r"%([A-Z][A-Z0-9_]*)", path.read_text("utf-8"))
    }
    swept = GIN / "runs" / "task.gin"
    read |= {
        "EPOCHS",
        *(bindings(swept) if swept.is_file() else ()),
    }  # those of a sweep, which sets TRAIN_STEPS
    if not (GIN / "runs" / "span_qa.gin").is_file():
        read |= {"STRIDE", "MAX_QUESTION", "LONGEST_ANSWER"}
    for path in GIN.rglob("*.gin"):
        names = bindings(path)
        assert len(names) == len(set(names)), path
        assert {name for name in names if name.isupper()} <= read, path


def test_knobs_are_macros_and_each_is_explained_where_it_is_introduced():
    layers = [path for path in GIN.rglob("*.gin") if path.parent.name not in ("recipes", "tables")]
    explained, used = set(), set()
    for path in layers:
        text = path.read_text(encoding="utf-8")
        explained |= set(re.findall(r"^([A-Z][A-Z0-9_]*)\s*=.*#", text, re.MULTILINE))
        used |= set(re.findall(r"^([A-Z][A-Z0-9_]*)\s*=", text, re.MULTILINE))
    for path in (GIN / "recipes").glob("*.gin"):
        assert set(bindings(path)) <= used, path
    unexplained = used - explained
    assert unexplained == set()

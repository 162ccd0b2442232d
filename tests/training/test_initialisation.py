"""What a new encoder-decoder gets from trained runs, what it says of it, and what it refuses."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.helpers import tiny, tiny_run, written_run
from xlingjax.config import recipe as recipes
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.masks import bidirectional
from xlingjax.model.partition import MeshConfig, make_mesh, param_shardings
from xlingjax.training.initialisation import (
    Initialisation,
    Plan,
    first_weights,
    numbers_of,
    require_labels,
)
from xlingjax.training.loop import ADDED, CheckpointConfig
from xlingjax.training.optimizer import OptimizerConfig

# A step that moves nothing far.
STILL = OptimizerConfig(learning_rate=1e-7, warmup_steps=0, schedule="constant")
XLMR = {"head": "transform", "position_offset": 2, "num_languages": 0, "norm_eps": 1e-5}


def config(**changes):
    sizes = dict(layers=3, dim=16, heads=2, ffn=32, vocab_size=tiny.VOCAB, max_positions=32)
    options = dict(vocab_multiple=1, num_languages=3, init_std=0.1, unroll=1)
    plain = dict(dropout=0.0, attention_dropout=0.0)
    return preset("tiny", **{**sizes, **options, **plain, **changes})


def pair(**changes):
    """XLM's: each side has its own of everything."""
    return config(**{"decoder_layers": 2, "decoder_embeddings": "separate", **changes})


@functools.cache
def shapes(model):
    """(abstract parameters, logical axes)"""
    built = build_model(model)
    return built.abstract(), built.logical_axes()


@functools.cache
def made(model, seed):
    """Parameters of which no two are equal, in NumPy."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(0, 0.1, x.shape).astype(np.float32), shapes(model)[0])


@pytest.fixture(scope="session")
def donor(tmp_path_factory):
    """donor(NAME, seed, model) -> (workdir of a run with these parameters, {path: array}), written
    once."""
    root = tmp_path_factory.mktemp("donors")

    def write(name, seed, model, languages=tiny.LANGUAGES):
        params, folder = made(model, seed), root / name
        if not folder.exists():
            written_run.write(folder, model, params, languages=languages)
        return str(folder), tiny_run.flat(params)

    return write


@pytest.fixture(scope="session")
def clm(donor):
    return donor("clm", 1, config())


@pytest.fixture(scope="session")
def mlm(donor):
    return donor("mlm", 2, config())


@pytest.fixture(scope="session")
def veco(donor):
    return donor("veco", 3, config(cross_attention=True))


@pytest.fixture(scope="session")
def xlmr(donor):
    return donor("xlmr", 4, config(**XLMR))


def load(model, mesh=(1, 1, 1), languages=tiny.LANGUAGES, vocabulary=None, **options):
    """({path: array}, {path: array} before, lines) of what these donors make of a random model."""
    abstract, axes = shapes(model)
    shardings = param_shardings(make_mesh(MeshConfig(*mesh)), axes, abstract)
    plan = Plan(Initialisation(**options), model, abstract)
    before = jax.tree.map(jax.device_put, made(model, 0), shardings)
    params, _, lines = plan.load(before, languages, {"data": {"mlm": {"vocabulary": vocabulary}}})
    assert jax.tree.map(lambda x: x.sharding, params) == shardings
    return tiny_run.flat(params), tiny_run.flat(before), lines


def run(workdir, model, init_from, **options):
    last = CheckpointConfig(every=0)
    defaults = dict(steps=1, objectives=("translation",), optimizer=STILL, checkpoint=last)
    return tiny_run.run(workdir, model=model, init_from=init_from, **{**defaults, **options})


def renamed(name):
    """What a decoder's parameter is called in an encoder."""
    return name.replace("decoder_", "").replace("decoder/", "encoder/")


def expected(before, of_encoder, of_decoder, layers=slice(1, None)):
    """{path: array} of a model of two separate sides, `layers` of the donor's for the decoder."""
    made = {}
    for name, random in before.items():
        side = of_decoder if name.startswith("decoder") else of_encoder
        made[name] = side.get(renamed(name), random)
        if name.startswith("decoder/layers/") and renamed(name) in side:
            made[name] = made[name][layers]
    return made


def assert_same(found, wanted, atol=0.0):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=atol, rtol=0, err_msg=name)


GRID = [*itertools.product((None, "clm", "mlm"), repeat=2)]


@pytest.mark.parametrize("encoder, decoder", GRID[1:], ids=lambda name: name or "random")
def test_xlms_grid(encoder, decoder, clm, mlm):
    donors = {"clm": clm, "mlm": mlm, None: (None, {})}
    (first, of_encoder), (second, of_decoder) = donors[encoder], donors[decoder]
    found, before, lines = load(pair(), encoder=first, decoder=second)
    assert_same(found, expected(before, of_encoder, of_decoder))
    # Every mesh holds the same.
    if first and second:
        assert_same(load(pair(), (2, 2, 2), encoder=first, decoder=second)[0], found)
    told = {"embeddings: random", "encoder: random", "head: random"}
    if first:
        told = {f"encoder: encoder layers 0..2 of {first}", f"head: {first}"}
        told.add(f"embeddings/languages: {first} (de, en, zh)")
    assert told <= {*lines}
    told = {"decoder: random", "decoder_embeddings: random"}
    if second:
        told = {"decoder/layers/cross_attention: random", f"decoder_head: {second}"}
        told.add(f"decoder/layers/attention: encoder layers 1..2 of {second}")
    assert told <= {*lines}


@pytest.mark.long
def test_a_run_starts_from_several_and_goes_on_without_them(
    clm, mlm, tmp_path, capsys, monkeypatch
):
    (first, of_encoder), (second, of_decoder) = mlm, clm
    init = Initialisation(encoder=first, decoder=second)
    random = tiny_run.flat(run(tmp_path / "random", pair(), Initialisation()).params)
    found = run(tmp_path / "run", pair(), init)
    assert_same(tiny_run.flat(found.params), expected(random, of_encoder, of_decoder), atol=1e-5)
    said = capsys.readouterr().out
    (session,) = json.loads((tmp_path / "run" / "run.json").read_text())["sessions"]
    weights = f"encoder of {first} (checkpoint 7), decoder of {second} (checkpoint 7)"
    assert session["weights"] == weights and f"weights: {weights}" in said
    assert "decoder/layers/cross_attention: random" in session["given"]
    assert all(line in said for line in session["given"])

    monkeypatch.setattr("xlingjax.training.initialisation.Donor", None)
    gone = Initialisation(encoder=f"{tmp_path}/gone", decoder=f"{tmp_path}/gone")
    run(tmp_path / "run", pair(), gone)  # has its step: nothing to do
    assert f"weights: checkpoint 1 of {tmp_path / 'run'}" in capsys.readouterr().out


def test_lookup_tables_alone(mlm, clm):
    found, before, lines = load(pair(), embeddings=mlm[0])
    tables = {name: value for name, value in mlm[1].items() if name.startswith("embeddings/")}
    assert_same(found, expected(before, tables, tables))
    for part in ("decoder", "decoder_head", "encoder", "head"):
        assert f"{part}: random" in lines
    # A side's own donor comes first.
    found, before, _ = load(pair(), embeddings=mlm[0], encoder=clm[0])
    assert_same(found, expected(before, clm[1], tables))


def test_veco_gives_its_cross_attention(veco, mlm):
    slot = "decoder/layers/cross_attention/"
    found, before, lines = load(pair(), encoder=veco[0], decoder=veco[0])
    assert_same(found, expected(before, veco[1], veco[1]))
    moved = [name for name in found if name.startswith(slot)]
    assert moved and not any(np.array_equal(found[name], before[name]) for name in moved)
    assert f"decoder: encoder layers 1..2 of {veco[0]}" in lines
    found, _, lines = load(pair(), decoder=veco[0], cross_attention=False)
    assert all(np.array_equal(found[name], before[name]) for name in moved)
    assert f"{slot[:-1]}: random" in lines
    with pytest.raises(UserError, match="^INIT_CROSS_ATTENTION=True: .*mlm has no cross-attention"):
        load(pair(), decoder=mlm[0], cross_attention=True)


def test_xlm_r_in_both_sides(xlmr):
    """Its positions from row 2 on, the head with a transform; one table for both, language tokens
    behind the pieces."""
    options = dict(language_tokens=3, vocab_size=tiny.VOCAB + 3, vocab_multiple=8)
    shared = pair(**XLMR, **options, decoder_embeddings="shared")
    found, before, lines = load(shared, encoder=xlmr[0], decoder=xlmr[0])
    for name, value in expected(before, xlmr[1], xlmr[1]).items():
        if name.endswith("tokens/embedding") or name == "head/bias":
            value = np.concatenate([value, before[name][tiny.VOCAB :]])
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert found["embeddings/tokens/embedding"].shape == (104, 16)
    assert f"head: {xlmr[0]}" in lines


@pytest.mark.parametrize(
    "chosen, layers, told",
    [("last", [1, 2], "layers 1..2"), ("first", [0, 1], "layers 0..1"), ("0,2", [0, 2], "0, 2")],
)
def test_which_layers(chosen, layers, told, mlm):
    found, before, lines = load(pair(), decoder=mlm[0], decoder_layers=chosen)
    assert_same(found, expected(before, {}, mlm[1], layers))
    assert any(line.endswith(f"{told} of {mlm[0]}") for line in lines)
    found, _, _ = load(pair(layers=2), encoder=mlm[0], encoder_layers=chosen)
    ours = [name for name in found if name.startswith("encoder/layers/")]
    assert ours
    for name in ours:
        np.testing.assert_array_equal(found[name], mlm[1][name][np.array(layers)])


def test_the_encoder_gives_the_givers_states(veco):
    """H exactly (VECO §3.3), through the layers and embeddings together."""
    fields = ("input_ids", "position_ids", "pack_ids", "language_ids")
    rows = {name: tiny.batch("mlm")[name] for name in fields}

    def states(model, params):
        built = build_model(model)
        return jax.jit(lambda p: built.encode(p, rows, bidirectional))(params)

    ours = pair(cross_attention=True)
    plan = Plan(Initialisation(encoder=veco[0]), ours, shapes(ours)[0])
    random = jax.tree.map(jax.numpy.asarray, made(ours, 0))
    params, *_ = plan.load(random, tiny.LANGUAGES, {"data": {}})
    theirs = states(config(cross_attention=True), made(config(cross_attention=True), 3))
    np.testing.assert_array_equal(states(ours, params), theirs)


def test_what_a_decoder_shares_or_lacks(mlm, clm):
    tied = pair(tied_self_attention=True, decoder_embeddings="shared")
    found, before, lines = load(tied, decoder=mlm[0])
    assert "decoder/layers/attention: the encoder's (tied_self_attention)" in lines
    assert not any(name.startswith("decoder/layers/attention/") for name in found)
    for name in ("embeddings/tokens/embedding", "head/bias"):  # shared, and no other gives them
        np.testing.assert_array_equal(found[name], mlm[1][name])
    shared = pair(decoder_embeddings="shared_tokens")
    found, before, lines = load(shared, encoder=mlm[0], decoder=clm[0])
    for name, (_, given) in (("embeddings/tokens", mlm), ("decoder_embeddings/positions", clm)):
        name = f"{name}/embedding"
        np.testing.assert_array_equal(found[name], given[renamed(name)])


def test_an_n_stream_decoder(mlm):
    model = pair(streams=2, relative_buckets=4, relative_max_distance=8)
    found, before, _ = load(model, decoder=mlm[0])
    of_decoder = [name for name in found if name.startswith("decoder")]
    new = {name for name in of_decoder if np.array_equal(found[name], before[name])}
    wanted = {name for name in of_decoder if "/cross_attention/" in name or "/relative/" in name}
    assert new == wanted | {"decoder/streams/embedding"}


def test_an_encoder_decoder_gives_its_decoder(donor):
    theirs = pair(language_tokens=3, vocab_size=tiny.VOCAB + 3)
    run, given = donor("pair", 5, theirs, languages=("de", "en", "fr"))
    found, before, lines = load(theirs, encoder=run, decoder=run)
    ours = [name for name in found if name.startswith("decoder/") or name.startswith("encoder/")]
    assert all(np.array_equal(found[name], given[name]) for name in ours)
    assert f"decoder: decoder layers 0..1 of {run}" in lines
    name, pieces = "decoder_embeddings/tokens/embedding", tiny.VOCAB
    np.testing.assert_array_equal(found[name][: pieces + 2], given[name][: pieces + 2])
    np.testing.assert_array_equal(found[name][pieces + 2], before[name][pieces + 2])
    assert any("(de, en; random: zh)" in line for line in lines)


def test_language_rows_are_found_by_their_codes(donor):
    run, given = donor("others", 6, config(num_languages=4), languages=("bg", "de", "fr", "zh"))
    found, before, lines = load(pair(), encoder=run)
    theirs, name = given["embeddings/languages/embedding"], "embeddings/languages/embedding"
    np.testing.assert_array_equal(found[name], np.stack([theirs[1], before[name][1], theirs[3]]))
    assert f"embeddings/languages: {run} (de, zh; random: en)" in lines
    found, _, lines = load(pair(), encoder=run, languages=("cs", "nl", "pl"))
    np.testing.assert_array_equal(found[name], before[name])
    assert "embeddings/languages: random" in str(lines)


def test_a_position_table_grows_by_its_own_rows(mlm, xlmr):
    name = "embeddings/positions/embedding"
    found, _, lines = load(pair(max_positions=70), encoder=mlm[0])
    np.testing.assert_array_equal(found[name], mlm[1][name][np.arange(70) % 32])
    assert f"embeddings/positions: the 32 rows of {mlm[0]}, again and again" in lines


def test_a_larger_model_is_tiled_from_the_middle(mlm):
    """By hand: 16 numbers to 20, the first two are the donor's last; layers 0 1 1 2 2 of 3."""
    found, _, _ = load(pair(layers=5, dim=20, ffn=50, decoder_layers=0), encoder=mlm[0], tiled=True)
    wide = [14, 15, *range(16), 0, 1]
    before = mlm[1]
    tokens = "embeddings/tokens/embedding"
    np.testing.assert_array_equal(found[tokens], before[tokens][:, wide])
    hidden = [*range(23, 32), *range(32), *range(9)]
    stretched = [0, 1, 1, 2, 2]
    name = "encoder/layers/ffn/in/kernel"
    np.testing.assert_array_equal(found[name], before[name][stretched][:, wide][:, :, hidden])
    with pytest.raises(UserError, match="INIT_TILED=True changes nothing without INIT_ENCODER"):
        Initialisation(embeddings="x", tiled=True)


def test_a_longer_position_table_is_cut(mlm):
    found, _, lines = load(pair(max_positions=20), encoder=mlm[0])
    name = "embeddings/positions/embedding"
    np.testing.assert_array_equal(found[name], mlm[1][name][:20])
    assert f"embeddings/positions: the first 20 rows of {mlm[0]}" in lines


REFUSED = [
    (dict(dim=24), dict(decoder="mlm"), r"key/bias has shape \(2, 2, 12\), .*sizes of the model"),
    (dict(ffn=48), dict(encoder="mlm"), r"ffn/in/bias has shape \(3, 48\), .* \(3, 32\); set the"),
    (dict(ffn=16), dict(encoder="mlm", tiled=True), r"bias has shape \(3, 16\), .* \(3, 32\); set"),
    (dict(norm_order="pre"), dict(encoder="mlm"), "pre here and post there; set model.norm_order"),
    (dict(embedding_scale=True), dict(embeddings="mlm"), "set model.embedding_scale=False"),
    (dict(position_offset=1), dict(encoder="xlmr"), "position_offset is 1 here and 2 there; set"),
    (dict(vocab_size=90), dict(embeddings="mlm"), "96 pieces, the model 90; set VOCABULARY="),
    (dict(decoder_layers=0), dict(decoder="mlm"), "has no decoder; leave it out, or set model.dec"),
    (dict(decoder_layers=4), dict(decoder="mlm"), "has 3 layers, the new decoder 4: set DECODER_L"),
    ({}, dict(decoder="mlm", decoder_layers="0,3"), "_FROM to 2 numbers from 0 to 2"),
    ({}, dict(decoder="mlm", decoder_layers="top"), "DECODER_LAYERS_FROM=top: give first, last"),
    ({}, dict(run="a", decoder="mlm"), "INIT_FROM=a gives all weights, and INIT_DECODER=.*; leave"),
    ({}, dict(encoder="mlm", cross_attention=False), "changes nothing without INIT_DECODER"),
    ({}, dict(encoder="nowhere"), "missing file: nowhere/run.json"),
]


@pytest.mark.parametrize("model, options, message", REFUSED, ids=lambda value: str(value)[:40])
def test_refusals(model, options, message, mlm, xlmr):
    names = {"mlm": mlm[0], "xlmr": xlmr[0]}
    options = {name: names.get(value, value) for name, value in options.items()}
    with pytest.raises(UserError, match=message):
        Plan(Initialisation(**options), pair(**model), shapes(pair(**model))[0])


def test_another_vocabulary_is_refused(mlm):
    with pytest.raises(UserError, match="was trained on another vocabulary .*set VOCABULARY"):
        load(pair(), encoder=mlm[0], vocabulary={"sha256": "xyz"})


def test_recipes_bind_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ["gin/recipes/xlm_tiny.gin", "gin/runs/init_seq2seq.gin"]

    def read(**given):
        bindings = {"VOCABULARY_SIZE": 90, "LANGUAGES": "de en", **given}
        recipe = recipes.read_recipe(files, [f"{k}={v}" for k, v in bindings.items()])
        return recipe.bound["init_from"]

    assert read() == Initialisation() and read(INIT_FROM="a") == Initialisation(run="a")
    for layers in ("0,2", "0 2", "[0, 2]"):
        given = {"INIT_ENCODER": "runs/mlm", "INIT_DECODER": "b", "DECODER_LAYERS_FROM": layers}
        found = read(**given, INIT_CROSS_ATTENTION="False")
        assert numbers_of(found.decoder_layers, "") == [0, 2]
        asked = Initialisation(encoder="runs/mlm", decoder="b", cross_attention=False)
        assert dataclasses.replace(found, decoder_layers="last") == asked


def test_a_tied_giver_gives_the_self_attention_of_its_last_layers(donor):
    run, given = donor("tied", 8, pair(tied_self_attention=True))
    found, _, lines = load(pair(), decoder=run)
    name = "layers/attention/query/kernel"
    np.testing.assert_array_equal(found[f"decoder/{name}"], given[f"encoder/{name}"][1:])
    assert f"decoder/layers/attention: encoder layers 1..2 of {run} (tied there)" in lines


def test_a_whole_run_keeps_its_language_tokens_where_they_are(donor):
    """Of other languages, or another order, a row would become another's."""
    model = pair(language_tokens=3, vocab_size=tiny.VOCAB + 3, num_languages=0)
    run, theirs = donor("tokens", 7, model)
    load = first_weights(str(run), model, shapes(model)[0], ())
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes(model)[0])
    for languages in ([*tiny.LANGUAGES[1:]], [*reversed(tiny.LANGUAGES)], [*tiny.LANGUAGES, "zz"]):
        with pytest.raises(UserError, match='numbered otherwise; set LANGUAGES="de en zh"'):
            load(zeros, languages, {"data": {}})
    unlike = first_weights(str(run), model.replace(language_tokens=0), shapes(model)[0], ())
    for give, languages in ((load, tiny.LANGUAGES), (load, tiny.LANGUAGES[:2]), (unlike, ["zz"])):
        found = give(jax.tree.map(jax.numpy.asarray, zeros), languages, {"data": {}})[0]
        np.testing.assert_array_equal(
            found["embeddings"]["tokens"]["embedding"], theirs["embeddings/tokens/embedding"]
        )


def test_an_encoder_without_languages_begins_a_run_that_embeds_them(donor):
    """As XLM-R begins ERNIE-M: an import has no list of languages."""
    run, theirs = donor("imported", 9, config(num_languages=0), languages=())
    model = config()
    give = first_weights(run, model, shapes(model)[0], ADDED)
    zeros = jax.tree.map(lambda x: jax.numpy.zeros(x.shape), shapes(model)[0])
    found, weights, _ = give(zeros, tiny.LANGUAGES, {"data": {}})
    assert weights.endswith("new and random: embeddings/languages/embedding")
    given = found["embeddings"]["tokens"]["embedding"]
    np.testing.assert_array_equal(given, theirs["embeddings/tokens/embedding"])


def test_a_head_of_other_labels_is_refused(donor):
    """As many labels are not the same ones, nor are these in another order."""
    model = config(num_labels=2)
    run, theirs = donor("labelled", 8, model)
    load = first_weights(run, model, shapes(model)[0], ())
    zeros = jax.tree.map(lambda x: jax.numpy.zeros(x.shape), shapes(model)[0])
    record = json.loads((Path(run) / "run.json").read_text())

    def tells(**more):
        (Path(run) / "run.json").write_text(json.dumps(record | more))

    def given(labels):
        return load(zeros, tiny.LANGUAGES, {"data": {"classification": {"labels": labels}}})[0]

    assert given(["0", "1"])  # a run that does not tell its labels
    tells(labels=["bad", "good"])
    found = tiny_run.flat(given(["bad", "good"]))
    np.testing.assert_array_equal(found["classifier/out/kernel"], theirs["classifier/out/kernel"])
    for other in (["0", "1"], ["good", "bad"]):
        told = f"a head for the labels bad, good, and those to learn are {', '.join(other)}: start"
        with pytest.raises(UserError, match=told):
            given(other)
    # Of several heads each is told by its task; one that is new, or the only one, is none of them.
    labels = {"nc": ["a", "b"], "qam": ["0", "1"]}
    heads = {f"classification_{task}": {"labels": own} for task, own in labels.items()}
    tells(identity={"data": heads}, model=record["model"] | {"num_labels": 0})
    for task in ("qam", "wpr", None):
        require_labels("RUN", run, ["0", "1"], task)
    with pytest.raises(UserError, match="RUN has a head of nc for the labels a, b, and those to"):
        require_labels("RUN", run, ["0", "1"], "nc")


def test_the_token_table_begins_with_the_vectors_that_are_given(tmp_path):
    asked = []

    def vectors(texts, width):
        asked.append(width)
        rows = np.zeros((4, width), np.float32)
        rows[1, 0] = rows[3, 1] = 1.0
        return rows, "token table by hand"

    options = dict(steps=1, optimizer=STILL, objectives=("mlm",))
    plain = tiny_run.run(tmp_path / "plain", **options)
    made = tiny_run.run(tmp_path / "made", token_vectors=vectors, **options)
    before = np.asarray(plain.params["embeddings"]["tokens"]["embedding"])
    after = np.asarray(made.params["embeddings"]["tokens"]["embedding"])
    length = np.linalg.norm(before, axis=1).mean()
    assert asked == [before.shape[1]]
    np.testing.assert_allclose(after[1, :2], [length, 0], atol=1e-4)
    np.testing.assert_allclose(after[3, :2], [0, length], atol=1e-4)
    # Rows that are 0, and those beyond, stay random; so does all else.
    others = [0, 2, *range(4, len(before))]
    np.testing.assert_allclose(after[others], before[others], atol=1e-5)
    positions = [run.params["embeddings"]["positions"]["embedding"] for run in (made, plain)]
    np.testing.assert_allclose(*positions, atol=1e-5)
    assert "random (seed 3); token table by hand;" in (tmp_path / "made/log.txt").read_text()
    # Another run's weights are that run's, all of them.
    tiny_run.run(tmp_path / "child", token_vectors=vectors, init_from=tmp_path / "plain", **options)
    assert len(asked) == 1

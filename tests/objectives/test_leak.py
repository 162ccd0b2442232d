"""Who moves when a token changes: exactly those whom the mask lets see it, on two layers and
more."""

from functools import partial

import jax
import numpy as np
import pytest

from tests.helpers import tiny
from tests.helpers.leaks import reachable, visibility
from tests.helpers.reference import CONFIG, GENERATOR, NGRAM, make_batch, random_model
from xlingjax.model import attention, chunked
from xlingjax.model.attention import Refused
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import (
    Mask,
    bidirectional,
    camlm,
    camlm_alone,
    causal,
    full,
    mask_keys,
    mask_queries,
    own_side,
    valid_keys,
)
from xlingjax.objectives.ernie_m import CAMLM
from xlingjax.objectives.leak import prediction_visibility
from xlingjax.objectives.xlm import TLM

PACKED = [[1, 1, 1, 2, 2, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0, 0]]
UNPACKED = [[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
SPECS = {
    "bidirectional": bidirectional,
    "causal": (causal & bidirectional),
}


@pytest.fixture(scope="module")
def model():
    return Encoder(
        preset(
            "tiny",
            layers=2,
            dim=16,
            heads=2,
            ffn=32,
            vocab_size=40,
            max_positions=8,
            dropout=0.0,
            unroll=1,
        )
    )


@pytest.fixture(scope="module")
def params(model):
    return tiny.params(model)


def batch_of(packs):
    packs = np.array(packs, np.int32)
    ids = np.random.default_rng(0).integers(0, 40, packs.shape).astype(np.int32)
    positions = np.broadcast_to(np.arange(packs.shape[1], dtype=np.int32), packs.shape)
    return {"input_ids": ids, "position_ids": positions, "pack_ids": packs}


@pytest.mark.parametrize("packs", [PACKED, UNPACKED], ids=["packed", "unpacked"])
@pytest.mark.parametrize("name", SPECS)
def test_states_move_with_the_tokens_they_see_and_no_other(model, params, name, packs):
    seen = visibility(model, params, batch_of(packs), SPECS[name])
    assert seen.leaks.tolist() == []
    assert seen.blocked.tolist() == []
    real = np.array(packs) > 0
    want = (np.array(packs)[:, :, None] == np.array(packs)[:, None, :]) & real[:, :, None]
    if name == "causal":
        want &= np.tri(8, dtype=bool)
    want |= np.eye(8, dtype=bool)
    np.testing.assert_array_equal(seen.moved, want)


def test_a_mask_that_forgets_packs_is_caught(model, params):
    """The instrument itself: an attention that ignores packs moves states that the declared mask
    forbids."""
    batch = batch_of(PACKED)
    seen = visibility(model, params, batch, valid_keys)
    forbidden = ~reachable(SPECS["bidirectional"], batch, 2)
    assert (seen.moved & forbidden)[0].any()
    assert [0, 0, 3] in np.argwhere(seen.moved & forbidden).tolist()


def test_layers_relay_what_one_mask_alone_hides(model, params):
    """Each token sees its left neighbour: after two layers the state depends on two to the left,
    not three."""
    neighbour = Mask(
        "neighbour", lambda q, k: (q.position - k.position) * (q.position - k.position - 1) == 0
    )
    seen = visibility(model, params, batch_of([[1] * 8]), (neighbour & full))
    np.testing.assert_array_equal(
        seen.moved[0], np.tri(8, dtype=bool) & ~np.tri(8, k=-3, dtype=bool)
    )
    np.testing.assert_array_equal(seen.moved, seen.allowed)


def test_values_that_are_not_finite_stop_the_test(model, params):
    broken = jax.tree.map(lambda x: x * np.nan, params)
    with pytest.raises(FloatingPointError, match="same_pack & valid_keys"):
        visibility(model, broken, batch_of(UNPACKED), SPECS["bidirectional"])


# --- what objectives promise of their predictions -------------------------------------------------

NUMPY_EVIDENCE = {
    "mlm": lambda f, q, k: True,
    "tlm": lambda f, q, k: True,
    "cl_mlm": lambda f, q, k: True,
    "clpc": lambda f, q, k: True,
    "clm": lambda f, q, k: k <= q,
    "clwr": lambda f, q, k: f["sides"][q] != f["sides"][k],
    "camlm_x": lambda f, q, k: f["is_mask"][k] == (f["sides"][q] == f["sides"][k]),
    "camlm_y": lambda f, q, k: f["is_mask"][k] == (f["sides"][q] == f["sides"][k]),
    "veco_plug_out_x": lambda f, q, k: f["sides"][k] == 0,
    "veco_plug_out_y": lambda f, q, k: f["sides"][k] == 1,
    "veco_plug_in_x": lambda f, q, k: True,
    "veco_plug_in_y": lambda f, q, k: True,
    "veco_tlm": lambda f, q, k: True,
    "btmlm": lambda f, q, k: True,
    "btmlm_pseudo": lambda f, q, k: not f["is_mask"][k] or q == k,
    "translation": lambda f, q, k: f["sides"][k] == 0 or k <= q,
    "back_translation": lambda f, q, k: f["sides"][k] == 0 or k <= q,
    "span_corruption": lambda f, q, k: f["sides"][k] == 0 or k <= q,
    "masked_words": lambda f, q, k: f["sides"][k] == 0 or k <= q,
    "xfnp_0": lambda f, q, k: f["sides"][k] == 0 or k <= q,
    "xfnp_1": lambda f, q, k: f["sides"][k] == 0 or k < q,
}
"""Entry of `predictions` -> (row's fields, query, key) -> may it, in words of the papers; inside a
pack."""


@pytest.fixture(scope="module")
def random_parameters():
    return random_model()


MODERN = CONFIG.replace(
    positions="rotary",
    num_languages=0,
    window=4,
    norm_order="pre",
    first_norm=False,
    norm_bias=False,
    attention_bias=False,
    gated=True,
    ffn_bias="none",
    head="transform",
)


@pytest.fixture(scope="module")
def modern():
    return random_model(MODERN)


@pytest.fixture(scope="module")
def generators():
    ordinary = random_model(GENERATOR)
    return {name: random_model(NGRAM) if name == "xfnp" else ordinary for name in tiny.GENERATED}


@pytest.mark.parametrize(
    "packed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["packed", "unpacked"]
)
@pytest.mark.parametrize(
    "name",
    [
        *tiny.OBJECTIVES,
        *tiny.LAYOUTS,
        *(name for name in tiny.GENERATED if name != "back_translation"),
        pytest.param("back_translation", marks=pytest.mark.long),
    ],
)
def test_predictions_move_with_the_words_that_the_objective_allows_and_no_other(
    random_parameters, generators, name, packed
):
    model = generators[name] if name in tiny.GENERATED else random_parameters
    objective, batch = tiny.objective(name).as_read(*model, make_batch(name, packed))
    batch = {field: np.asarray(values) for field, values in batch.items()}
    found = prediction_visibility(objective, *model, batch)
    batch = {field: np.asarray(values) for field, values in objective.words(batch).items()}
    assert set(found) >= set(objective.coefficients)
    for term, seen in found.items():
        assert seen.leaks.tolist() == [] and seen.blocked.tolist() == [], term
        want = np.zeros_like(seen.allowed)
        for row, slot in np.argwhere(seen.columns >= 0).tolist():
            fields = {field: values[row] for field, values in batch.items()}
            q = seen.columns[row, slot]
            for k in np.flatnonzero(fields["pack_ids"] == fields["pack_ids"][q]):
                want[row, slot, k] = NUMPY_EVIDENCE[term](fields, q, k)
        np.testing.assert_array_equal(seen.allowed, want, err_msg=term)
        made = seen.columns >= 0
        assert made.sum() > 1 and (~want[made]).any()


@pytest.mark.parametrize("name", [*tiny.OBJECTIVES, *tiny.LAYOUTS])
def test_local_layers_hide_nothing_that_global_ones_show_and_leak_nothing(modern, name):
    found = prediction_visibility(tiny.objective(name), *modern, make_batch(name))
    for term, seen in found.items():
        assert seen.leaks.tolist() == [] and seen.blocked.tolist() == [], term
        assert (seen.columns >= 0).sum() > 1


def test_a_local_layer_sees_its_window_alone():
    # The first layer, which is global, sees nothing here.
    model = Encoder(MODERN.replace(window=2))
    params = tiny.params(model)
    out = params["encoder"]["layers"]["attention"]["out"]
    out["kernel"] *= np.array([0, 1])[:, None, None, None]
    seen = visibility(model, params, batch_of([[1] * 8]), bidirectional)
    columns = np.arange(8)
    np.testing.assert_array_equal(seen.moved[0], abs(columns[:, None] - columns) <= 1)


@pytest.mark.parametrize("name", [*tiny.OBJECTIVES, *tiny.LAYOUTS])
def test_a_backend_without_its_device_refuses_every_objective(random_parameters, name):
    model = Encoder(CONFIG.replace(attention_backend="flash", dtype="bfloat16"))
    with pytest.raises(Refused, match=r"flash needs .* this is cpu"):
        prediction_visibility(tiny.objective(name), model, random_parameters[1], make_batch(name))


@pytest.mark.parametrize(
    "name",
    [
        "camlm",
        pytest.param("btmlm", marks=pytest.mark.long),
        pytest.param("veco", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("backend", ["flash", "chunked"])
def test_blocks_leak_nothing_under_the_masks_of_pairs(name, backend, monkeypatch):
    """The kernel interpreted on CPU, and blocks of queries, over two layers."""
    monkeypatch.setattr(chunked, "BLOCK", 32)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    monkeypatch.setattr(attention, "_platform", lambda mesh: "tpu")
    interpreted = partial(attention._flash, interpret=True)
    monkeypatch.setitem(attention._BACKENDS, "flash", (attention._prepare_flash, interpreted))
    model, params = random_model(CONFIG.replace(max_positions=256, attention_backend=backend))
    batch = tiny.batch(name, rows=3, length=128, vocab=90)
    for term, seen in prediction_visibility(tiny.objective(name), model, params, batch).items():
        assert seen.leaks.tolist() == [] and seen.blocked.tolist() == [], term
        made = seen.columns >= 0
        assert made.any() and seen.moved[made].any(-1).all() and (~seen.moved[made]).any()


class TLMThatPromisesCAMLM(TLM):
    """Attention of TLM, on batches of CAMLM, with CAMLM's promise."""

    def evidence(self):
        return {self.name: CAMLM().evidence()["camlm_x"]}


class CAMLMWhoseContextSeesMasks(CAMLM):
    def attention(self):
        return (own_side & ~mask_queries) | camlm


class CAMLMWhoseContextSeesTheOtherSide(CAMLM):
    def attention(self):
        return (bidirectional & ~mask_queries & ~mask_keys) | camlm


class BlindCAMLM(CAMLM):
    def attention(self):
        return camlm_alone


@pytest.mark.parametrize(
    "wrong", [TLMThatPromisesCAMLM, CAMLMWhoseContextSeesMasks, CAMLMWhoseContextSeesTheOtherSide]
)
def test_a_mask_that_lets_a_side_see_itself_again_is_caught(random_parameters, wrong):
    found = prediction_visibility(wrong(), *random_parameters, make_batch("camlm"))
    assert any(seen.leaks.size for seen in found.values())


def test_a_mask_that_hides_too_much_is_caught(random_parameters):
    found = prediction_visibility(BlindCAMLM(), *random_parameters, make_batch("camlm"))
    assert any(seen.blocked.size for seen in found.values()) and not any(
        seen.leaks.size for seen in found.values()
    )

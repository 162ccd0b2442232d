"""ModernBERT, EuroBERT and GTE: in and out with transformers' numbers, by the names of every
version, and what is not computed is refused."""

import json

import jax
import numpy as np
import pytest

from xlingjax.convert.formats.hugging_face import read
from xlingjax.errors import UserError

pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

MODERN = dict(num_hidden_layers=4, global_attn_every_n_layers=3, local_attention=8)
ROPE = {"full_attention": 5000.0, "sliding_attention": 70.0}
MODERN |= dict(
    rope_parameters={
        kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in ROPE.items()
    }
)
GTE = dict(rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
CASES = {
    "ModernBertForMaskedLM": MODERN,
    "ModernBertForSequenceClassification": MODERN | dict(num_labels=3, classifier_pooling="cls"),
    "ModernBertForSequenceClassification of the mean": MODERN
    | dict(num_labels=3, classifier_pooling="mean"),
    "ModernBertForTokenClassification": MODERN | dict(num_labels=5),
    "ModernBertModel": MODERN,
    "EuroBertForMaskedLM": {},
    "EuroBertForMaskedLM tied": dict(num_key_value_heads=2, tie_word_embeddings=True),
    "EuroBertForTokenClassification": dict(num_key_value_heads=2, num_labels=4),
    "EuroBertForSequenceClassification": dict(num_labels=3),
    "EuroBertForSequenceClassification of the first": dict(
        num_labels=3, classifier_pooling="bos", tie_word_embeddings=True
    ),
    "GteForMaskedLM": GTE,
    "GteForSequenceClassification": GTE | dict(num_labels=3),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[pytest.mark.long] * ("For" not in name)) for name in CASES],
)
def test_the_numbers_are_theirs_in_and_out(case, tmp_path):
    kind = case.split()[0]
    small_xlmr.save(tmp_path / "hf", kind, **CASES[case])
    _, written = small_xlmr.there_and_back(tmp_path / "hf")
    assert written["architectures"] == [kind]
    # Tables of positions, not rows of them: no run has room for more.
    assert written["max_position_embeddings"] == 70


def test_older_names_of_modernbert_mean_the_same(tmp_path):
    small_xlmr.save(tmp_path, "ModernBertForMaskedLM", **MODERN)
    new = read(tmp_path)
    assert (new.config.rotary_theta, new.config.local_theta) == tuple(ROPE.values())
    assert (new.config.window, new.config.global_every) == (8, 3)
    theta = ROPE["full_attention"]
    older = dict(global_rope_theta=theta, local_rope_theta=70.0, global_attn_every_n_layers=3)
    foreign.changed(rope_parameters=None, layer_types=None, **older)(tmp_path)
    assert read(tmp_path).config == new.config
    path = tmp_path / "config.json"
    null = json.loads(path.read_text()) | {"local_rope_theta": None}
    path.write_text(json.dumps(null))
    assert read(tmp_path).config.local_theta == theta


def test_the_names_of_the_code_beside_gte_mean_the_same(tmp_path):
    """NewModel stretches positions by `ntk`."""
    small_xlmr.save(tmp_path, "GteForMaskedLM", **GTE)
    plain = read(tmp_path)
    size, factor = plain.config.head_dim, 2.0

    scaling = dict(rope_theta=5000.0, rope_scaling={"type": "ntk", "factor": factor})
    older = dict(model_type="new", architectures=["NewForMaskedLM"], rope_parameters=None)
    foreign.changed(**older, **scaling)(tmp_path)
    scaled = read(tmp_path)
    assert scaled.config.rotary_theta == 5000.0 * factor
    # The longest wave is `factor` times as long as it was.
    assert scaled.config.rotary_scale == pytest.approx(factor ** (2 / size))
    jax.tree.map(np.testing.assert_array_equal, scaled.params, plain.params)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("ModernBert", dict(layer_types=["sliding_attention"] * 4), "layer_types="),
        ("ModernBert", dict(mlp_bias=True), "mlp_bias=True is not something"),
        ("ModernBert", dict(norm_bias=True), "norm_bias=True is not something"),
        ("EuroBert", dict(head_dim=12), "head_dim=12 is not something"),
        (
            "EuroBert",
            dict(rope_parameters={"rope_type": "yarn"}),
            "rope_type='yarn'",
        ),
        ("Gte", dict(logn_attention_scale=True), "logn_attention_scale=True is not something"),
    ],
)
def test_what_is_not_computed_is_refused(kind, changes, message, tmp_path):
    shape = MODERN if kind == "ModernBert" else GTE
    small_xlmr.save(tmp_path, f"{kind}ForMaskedLM", **shape)
    foreign.changed(**changes)(tmp_path)
    with pytest.raises(UserError, match=message):
        read(tmp_path)

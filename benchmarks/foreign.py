"""Random Hugging Face models (extra `interop`) and their weights as our parameters."""

import numpy as np


def linear(weights, name, shape=None):
    kernel = weights[f"{name}.weight"].T
    if shape is not None:
        kernel = kernel.reshape(shape)
    return {"kernel": kernel, "bias": weights[f"{name}.bias"]}


def norm(weights, name):
    return {"scale": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}


def attention(weights, name, heads):
    """Kernels [D, H, K]; that of `out` [H, K, D]."""
    found = {}
    for ours, theirs in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        kernel = weights[f"{name}.{theirs}.weight"].T
        size = kernel.shape[0]
        found[ours] = {
            "kernel": kernel.reshape(size, heads, -1),
            "bias": weights[f"{name}.{theirs}.bias"].reshape(heads, -1),
        }
    out = weights[f"{name}.out_proj.weight"].T
    found["out"] = {
        "kernel": out.reshape(heads, -1, out.shape[1]),
        "bias": weights[f"{name}.out_proj.bias"],
    }
    return found


def stacked(layers):
    if isinstance(layers[0], dict):
        found = {}
        for name in layers[0]:
            found[name] = stacked([layer[name] for layer in layers])
        return found
    return np.stack(layers)


def bart(model):
    """Parameters of a `BartForConditionalGeneration` or `MBartForConditionalGeneration` (as
    `Seq2Seq`, separate
    tables but for the words)."""
    c = model.config
    weights = {name: value.detach().numpy() for name, value in model.model.state_dict().items()}

    def layer(side, i):
        at = f"{side}.layers.{i}"
        heads = getattr(c, f"{side}_attention_heads")
        found = {
            "attention": attention(weights, f"{at}.self_attn", heads),
            "attention_norm": norm(weights, f"{at}.self_attn_layer_norm"),
            "ffn": {"in": linear(weights, f"{at}.fc1"), "out": linear(weights, f"{at}.fc2")},
            "ffn_norm": norm(weights, f"{at}.final_layer_norm"),
        }
        if side == "decoder":
            found["cross_attention"] = {
                "attention": attention(weights, f"{at}.encoder_attn", heads),
                "norm": norm(weights, f"{at}.encoder_attn_layer_norm"),
            }
        return found

    bias = model.final_logits_bias[0].numpy()
    params = {"head": {"bias": np.zeros_like(bias)}, "decoder_head": {"bias": bias}}
    for side, tables in (("encoder", "embeddings"), ("decoder", "decoder_embeddings")):
        params[tables] = {
            "tokens": {"embedding": weights["shared.weight"]},
            "positions": {"embedding": weights[f"{side}.embed_positions.weight"]},
            "norm": norm(weights, f"{side}.layernorm_embedding"),
        }
        params[side] = {
            "layers": stacked([layer(side, i) for i in range(getattr(c, f"{side}_layers"))])
        }
        if f"{side}.layer_norm.weight" in weights:
            params[side]["final_norm"] = norm(weights, f"{side}.layer_norm")
    return params

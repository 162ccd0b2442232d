"""A transformer encoder, an n-stream decoder and their losses in plain NumPy float64, row by row:
the arithmetic to compare with."""

import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[float])


def layer_norm(x, p, eps):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * p["scale"] + p["bias"]


def gelu(x, kind):
    if kind == "gelu":
        return x * 0.5 * (1 + erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(x, p, allowed, memory=None):
    """One row: x [L, D], allowed(l, s) -> bool. Keys and values come from memory [L, D], by default
    x."""
    heads = p["query"]["kernel"].shape[1]
    out = p["out"]["bias"].copy() * np.ones_like(x)
    seen = x if memory is None else memory
    sources = {"query": x, "key": seen, "value": seen}
    for head in range(heads):
        q, k, v = (
            y @ p[name]["kernel"][:, head] + p[name]["bias"][head] for name, y in sources.items()
        )
        for i in range(len(x)):
            keys = [s for s in range(len(k)) if allowed(i, s)]
            if not keys:
                continue
            score = np.array([q[i] @ k[s] / math.sqrt(len(q[i])) for s in keys])
            weight = np.exp(score - score.max())
            weight /= weight.sum()
            mixed = sum(w * v[s] for w, s in zip(weight, keys, strict=True))
            out[i] += mixed @ p["out"]["kernel"][head]
    return out


def encode(config, params, batch, causal=False, sees=None, memory=None, words=None):
    """h [B, L, D]; the states of padding tokens are 0.

    sees(row's fields, query column, key column): who sees whom in a pack; default: everybody, or
    `causal` what is left. memory: (states [B, L, D], sees) of the cross-attention. words [B, L, D]:
    instead of the word embeddings.
    """
    params = _float64(params)
    embeddings, states = params["embeddings"], []
    for row in range(len(batch["input_ids"])):
        pack = batch["pack_ids"][row]
        used = np.flatnonzero(pack)
        positions = batch["position_ids"][row][used] + config.position_offset
        x = (
            embeddings["tokens"]["embedding"][batch["input_ids"][row][used]]
            if words is None
            else words[row][used]
        )
        x = x + embeddings["positions"]["embedding"][positions]
        if "languages" in embeddings:
            x = x + embeddings["languages"]["embedding"][batch["language_ids"][row][used]]
        x = layer_norm(x, embeddings["norm"], config.norm_eps)

        fields = {name: values[row] for name, values in batch.items()}

        def allowed(i, s, fields=fields, used=used, sees=sees):
            same = fields["pack_ids"][used[i]] == fields["pack_ids"][used[s]]
            return (
                same and (not causal or s <= i) and (sees is None or sees(fields, used[i], used[s]))
            )

        def across(i, s, allowed=allowed):
            return allowed(i, s, sees=memory[1])

        def cross(x, p, used=used, row=row, across=across):
            if memory is None:
                return x
            p, seen = p["cross_attention"], np.float64(memory[0])[row][used]
            x = x + attention(x, p["attention"], across, seen)
            return layer_norm(x, p["norm"], config.norm_eps)

        for layer in range(config.layers):
            p = _layer(params["encoder"]["layers"], layer)

            def feed_forward(y, p=p["ffn"]):
                hidden = gelu(y @ p["in"]["kernel"] + p["in"]["bias"], config.activation)
                return hidden @ p["out"]["kernel"] + p["out"]["bias"]

            if config.norm_order == "post":
                if memory is None or config.cross_attention_query == "self_attention":
                    x = x + attention(x, p["attention"], allowed)
                    x = layer_norm(x, p["attention_norm"], config.norm_eps)
                x = cross(x, p)
                x = layer_norm(x + feed_forward(x), p["ffn_norm"], config.norm_eps)
            else:
                y = layer_norm(x, p["attention_norm"], config.norm_eps)
                x = x + attention(y, p["attention"], allowed)
                x = x + feed_forward(layer_norm(x, p["ffn_norm"], config.norm_eps))
        if config.norm_order == "pre":
            x = layer_norm(x, params["encoder"]["final_norm"], config.norm_eps)
        full = np.zeros((len(pack), config.dim))
        full[used] = x
        states.append(full)
    return np.stack(states)


def decode(config, params, batch, memory):
    """h [B, T, D] of a decoder with the encoder's tables, memory [B, L, D] its states; those of
    padding are 0."""
    params = _float64(params)
    embeddings, states = params["embeddings"], []
    for row in range(len(batch["decoder_ids"])):
        packs, sources = batch["decoder_pack_ids"][row], batch["pack_ids"][row]
        used, source = np.flatnonzero(packs), np.flatnonzero(sources)
        x = embeddings["tokens"]["embedding"][batch["decoder_ids"][row][used]]
        positions = batch["decoder_position_ids"][row][used] + config.position_offset
        x = x + embeddings["positions"]["embedding"][positions]
        x = x + embeddings["languages"]["embedding"][batch["decoder_language_ids"][row][used]]
        x = layer_norm(x, embeddings["norm"], config.norm_eps)
        past = lambda t, k, packs=packs[used]: packs[t] == packs[k] and k <= t  # noqa: E731
        of_pack = lambda t, s, packs=packs[used], own=sources[source]: packs[t] == own[s]  # noqa: E731
        for layer in range(config.decoder_layers):
            p = _layer(params["decoder"]["layers"], layer)
            x = x + attention(x, p["attention"], past)
            x = layer_norm(x, p["attention_norm"], config.norm_eps)
            across, h = p["cross_attention"], np.float64(memory[row])[source]
            x = x + attention(x, across["attention"], of_pack, h)
            x = layer_norm(x, across["norm"], config.norm_eps)
            hidden = gelu(x @ p["ffn"]["in"]["kernel"] + p["ffn"]["in"]["bias"], config.activation)
            x = x + hidden @ p["ffn"]["out"]["kernel"] + p["ffn"]["out"]["bias"]
            x = layer_norm(x, p["ffn_norm"], config.norm_eps)
        full = np.zeros((len(packs), config.dim))
        full[used] = x
        states.append(full)
    return np.stack(states)


def decode_streams(config, params, batch, memory):
    """h [n, B, T, D] of the predicting streams of a post-LN model that shares its embeddings,
    example by example; the states of padding are 0. memory: the encoder's states [B, S, D]."""
    params = _float64(params)
    embeddings, layers, n = params["embeddings"], params["decoder"]["layers"], config.streams
    h = np.zeros((n, *batch["decoder_ids"].shape, config.dim))
    for row, packs in enumerate(batch["decoder_pack_ids"]):
        for pack in range(1, packs.max() + 1):
            at = np.flatnonzero(packs == pack)
            source = np.flatnonzero(batch["pack_ids"][row] == pack)
            position = batch["decoder_position_ids"][row][at]
            x = []
            for stream in range(-1, n):  # -1 is the main one
                words = embeddings["tokens"]["embedding"][batch["decoder_ids"][row][at]]
                if stream >= 0:
                    own = params["decoder"]["streams"]["embedding"][(stream - 1) % n]
                    words = np.tile(own, (len(at), 1))
                where = position + (stream >= 0) + config.position_offset
                words = words + embeddings["positions"]["embedding"][where]
                if "languages" in embeddings:
                    languages = batch["decoder_language_ids"][row][at]
                    words = words + embeddings["languages"]["embedding"][languages]
                x.append(layer_norm(words, embeddings["norm"], config.norm_eps))
            for layer in range(config.decoder_layers):
                p = _layer(layers, layer)
                x = [
                    y + stream_attention(x, stream - 1, position, p["attention"])
                    for stream, y in enumerate(x)
                ]
                x = [layer_norm(y, p["attention_norm"], config.norm_eps) for y in x]
                cross = p["cross_attention"]
                seen = np.float64(memory)[row][source]
                x = [y + attention(y, cross["attention"], lambda i, s: True, seen) for y in x]
                x = [layer_norm(y, cross["norm"], config.norm_eps) for y in x]
                feed, out = p["ffn"]["in"], p["ffn"]["out"]
                x = [
                    y
                    + gelu(y @ feed["kernel"] + feed["bias"], config.activation) @ out["kernel"]
                    + out["bias"]
                    for y in x
                ]
                x = [layer_norm(y, p["ffn_norm"], config.norm_eps) for y in x]
            h[:, row, at] = x[1:]
    return h


def stream_attention(x, stream, position, p):
    """What stream `stream` (-1: the main one) of x, [T, D] each, takes from the main one and from
    itself."""

    def project(name, state, head):
        return state @ p[name]["kernel"][:, head] + p[name]["bias"][head]

    def bucket(distance):
        n = max(distance, 0)
        return n if n < 16 else min(16 + int(16 * math.log(n / 16) / math.log(8)), 31)

    out = np.tile(p["out"]["bias"], (len(position), 1))
    for t, state in enumerate(x[stream + 1]):
        keys = [
            (x[0][s], position[t] + (stream >= 0) - position[s])
            for s in range(max(t - max(stream, 0), 0) + 1)
        ]
        keys += [(state, 0)] * (stream >= 0)
        relative = np.einsum("D,DUH->UH", state, p["relative"]["kernel"]) + p["relative"]["bias"]
        for head in range(p["query"]["kernel"].shape[1]):
            q = project("query", state, head)
            score = [
                q @ project("key", y, head) / math.sqrt(len(q)) + relative[bucket(distance), head]
                for y, distance in keys
            ]
            weight = np.exp(np.array(score) - max(score))
            mixed = sum(
                w * project("value", y, head)
                for w, (y, _) in zip(weight / weight.sum(), keys, strict=True)
            )
            out[t] += mixed @ p["out"]["kernel"][head]
    return out


def log_probabilities(config, params, h):
    params = _float64(params)
    if config.head == "transform":
        head = params["head"]
        h = gelu(h @ head["dense"]["kernel"] + head["dense"]["bias"], config.activation)
        h = layer_norm(h, head["norm"], config.norm_eps)
    table = params["embeddings"]["tokens"]["embedding"][: config.vocab_size]
    logits = h @ table.T + params["head"]["bias"][: config.vocab_size]
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def _layer(tree, index):
    return {k: _layer(v, index) for k, v in tree.items()} if isinstance(tree, dict) else tree[index]


def _float64(tree):
    if isinstance(tree, dict):
        return {k: _float64(v) for k, v in tree.items()}
    return np.asarray(tree, np.float64)

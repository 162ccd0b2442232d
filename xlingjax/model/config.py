"""Model shapes: the configuration, and the presets of the papers.

Shape letters everywhere in this package: B rows, L tokens, S keys, M prediction slots, D model, H
heads, K head dim, F feed-forward, V vocabulary, N layers, G languages, C classes. `x_BLD` is an
array of those axes.
"""

import dataclasses
import tomllib
from importlib import resources
from typing import Any

from xlingjax.errors import UserError, require_choice, require_numbers, require_whole

MOST = {
    "dim": 1 << 20,
    "ffn": 1 << 24,
    "layers": 1 << 12,
    "decoder_layers": 1 << 12,
    "streams": 1 << 6,
    "num_labels": 1 << 20,
}
"""More is no model, and would be a table of as many names before it is found out."""
WHOLE = {
    "[1, inf)": "heads head_size kv_heads vocab_size table_rows max_positions vocab_multiple"
    " segments global_every relative_buckets relative_max_distance",
    "[0, inf)": "num_languages dan language_tokens position_offset unroll window lora unseen",
}
"""Interval -> other fields whose whole numbers lie in it."""
WITH_STREAMS = ("xla", "chunked")
"""Attention backends that know distances."""
CHOICES: dict[str, tuple[str, ...]] = {
    "positions": (
        "learned",
        "rotary",
        "sinusoidal",
        "disentangled",
        "relative",
        "relative_by_layer",
    ),
    "norm_order": ("post", "pre"),
    "norm": ("layer", "rms"),
    "ffn_bias": ("both", "out", "none"),
    "activation": ("gelu", "gelu_tanh", "silu", "relu"),
    "head": ("tied", "transform", "plain"),
    "decoder_embeddings": ("shared", "shared_tokens", "separate"),
    "classifier": (
        "xlm",
        "xlmr",
        "pooler",
        "relu",
        "gelu",
        "difference",
        "decoder",
        "tagging",
        "spans",
        "plug_in",
        "plug_in_tagging",
        "plug_in_spans",
        "mean",
        "late",
    ),
    "language_init": ("random", "zero"),
    "dtype": ("float32", "bfloat16", "float16"),
    "remat": ("none", "full", "dots"),
    "attention_backend": ("xla", "chunked", "flash"),
    "cross_attention_query": ("self_attention", "input"),
}


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """One transformer encoder. Raises `UserError` at construction when the values do not fit
    together.

    Parameters are always float32; `dtype` is what the matrix products run in. Softmax, LayerNorm
    and cross-entropy are computed in float32 in every case. "float16" is for GPUs without bfloat16
    and trains with a loss scale.
    """

    name: str
    layers: int
    dim: int
    heads: int
    ffn: int
    vocab_size: int
    positions: str = "learned"
    """"learned": a table of positions is added to the embeddings; "sinusoidal": waves are
    (Vaswani et al. 2017, in the order of tensor2tensor); "rotary": queries and keys are turned by
    their positions (Su et al. 2021); "disentangled": scores depend on distances, in
    `relative_buckets` of either sign (DeBERTa); "relative": each of `relative_buckets` of distances
    adds a number of each head to the scores, which are not scaled (T5); "relative_by_layer": and of
    each layer (umT5)."""
    rotary_theta: float = 10_000.0
    """Of "rotary": wavelengths go from 2 pi tokens to 2 pi times this."""
    rotary_scale: float = 1.0
    """Positions are divided by it."""
    local_theta: float | None = None
    """`rotary_theta` of local layers; None = the same."""
    window: int = 0
    """In local layers a token sees those that are at most half as many columns away; 0 = no layer
    is local."""
    global_every: int = 3
    """Of a `window`: of so many layers the first is global (ModernBERT §2.1.1)."""
    max_positions: int = 512
    """Rows of the position table, the offset's rows included (XLM 512, XLM-R 514); of "rotary" the
    tokens of the longest row."""
    position_offset: int = 0
    """Row of the first token's position (XLM 0; XLM-R 2, where padding has row 1)."""
    num_languages: int = 0
    """Rows of the language embedding; it exists only for more than one language (XLM §3.1)."""
    segments: int | None = None
    """Rows of the segment embedding: each side of a pair has its own (BERT), or all tokens one;
    None = there is none."""
    norm_order: str = "post"
    """"post": LayerNorm after each residual sum (the papers); "pre": before each sublayer, and once
    at the end."""
    norm: str = "layer"
    """"layer": LayerNorm; "rms": without a mean and a bias (EuroBERT)."""
    norm_eps: float = 1e-12
    norm_bias: bool = True
    """Biases of norms, and of the dense layer of a "transform" (ModernBERT has neither)."""
    embedding_norm: bool = True
    first_norm: bool = True
    """Of "pre": whether the first layer has a norm before its attention (ModernBERT has that of
    the embeddings)."""
    head_size: int | None = None
    """Width of a head; None = `dim` / `heads`."""
    kv_heads: int | None = None
    """Heads of keys and values, each read by equally many of the queries'; None = `heads`."""
    attention_bias: bool = True
    activation: str = "gelu"
    gated: bool = False
    """Whether the feed-forward layer's inner states are multiplied with a second projection
    (Shazeer 2020)."""
    ffn_bias: str = "both"
    head: str = "tied"
    """"tied": projection + bias (XLM); "transform": dense, activation, norm, then projection + bias
    (XLM-R); "plain": projection alone (BART, ProphetNet)."""
    tied: bool = True
    """Whether the head projects on the embeddings' token table, or on its own (EuroBERT)."""
    head_scale: bool = False
    """The head reads states times 1/sqrt(D) (umT5 in transformers)."""
    embedding_scale: bool = False
    """Word embeddings are read times sqrt(D) (fairseq's translation models)."""
    decoder_layers: int = 0
    """Layers of a decoder with cross-attention to the encoder's final states; 0 = no decoder."""
    decoder_embeddings: str = "shared"
    """"shared": encoder and decoder have one table of each kind, and one vocabulary head;
    "shared_tokens": one token table and head, and each its own positions, languages and norm (BART,
    ProphetNet); "separate": each its own (XLM's translation models)."""
    language_tokens: int = 0
    """The last so many rows of the vocabulary are no pieces but languages: with its target's a
    decoder begins (XGLUE §4.1). 0 = it begins with `</s>` (XLM §4.2)."""
    source_tokens: bool = False
    """Of `language_tokens`: sources begin with their language's, too, and a decoder reads `</s>`
    before its target's (NLLB)."""
    unseen: int | None = None
    """Id of a token that no other token sees: T5 has no `<s>`, and its padding opens rows here."""
    tied_self_attention: bool = False
    """The decoder's self-attention has the encoder's parameters, those of its last `decoder_layers`
    layers (VECO)."""
    streams: int = 0
    """Predicting streams of the decoder (ProphetNet §3.2; xFNP: 2): stream i predicts from the
    words that stand more than i before its target. 0 = an ordinary decoder."""
    relative_buckets: int = 32
    """Buckets of distances between words that an n-stream decoder or T5 tells apart: the first half
    of one distance each, the others wider and wider; in T5's encoder half of them for each sign."""
    relative_max_distance: int = 128
    """Distances from this on share the last bucket."""
    classifier: str = "xlm"
    """"xlm": dropout, linear on the first state; "xlmr": dropout, dense, tanh, dropout, linear;
    "pooler": dense, tanh, dropout, linear (BERT, ERNIE-M); "relu": dense, ReLU, dropout, linear
    (DistilBERT); "gelu": dropout, dense, GELU, dropout, linear (DeBERTa); "difference": compares
    the mean states of the two texts of a pair, of which the encoder sees each alone; "tagging":
    dropout, linear on every state; "spans": the same, with two outputs, where an answer begins and
    ends; "plug_in": as "xlmr", on [H; S] of a side of a pair (VECO); "plug_in_tagging",
    "plug_in_spans": as these, on [H; S] of every token; "mean": as "xlm", on the mean of the
    states; "late": the mean of what "gelu" gives of each state (EuroBERT)."""
    classifier_transform: bool = False
    """Give "xlm", "mean", "tagging" and "spans" a dense layer, activation and norm before all else
    (ModernBERT)."""
    num_labels: int = 0
    """Classes of the classification head; 0 = no such head."""
    task_labels: tuple[tuple[str, int], ...] | None = None
    """(task, classes) of each further head, for several tasks on one encoder; may be given as
    {task: classes}."""
    classifier_dropout: float | None = None
    """Dropout of the classification head; None = `dropout`."""
    lora: int = 0
    """Rank of what is added to each product of the layers, x A B * `lora_scale` (Hu et al. 2021);
    0 = nothing."""
    lora_scale: float = 2.0
    dropout: float = 0.1
    attention_dropout: float = 0.1
    init_std: float | None = None
    """Standard deviation of every weight; None = XLM's: embeddings N(0, 1/D), other kernels
    U(+-1/sqrt(fan in))."""
    language_init: str = "random"
    """"zero": the language embedding begins at 0, for one that is only used in training (ERNIE-M
    §3.1)."""
    dtype: str = "float32"
    table_rows: int | None = None
    """Rows of a released model's embedding table, where they are more than the pieces of its
    vocabulary: kept and exported as they are, never read or predicted. None = `vocab_size`."""
    vocab_multiple: int = 128
    """Embedding rows are padded to a multiple of this, for sharding; padding rows get probability
    0."""
    unroll: int = 1
    """Layers per iteration of the scan over layers; 0 = all, no loop at all (faster on CPU, slower
    to compile)."""
    remat: str = "none"
    """What the backward pass recomputes: "none"; "full": each layer; "dots": each layer but its
    weight products."""
    attention_backend: str = "xla"
    cross_attention: bool = False
    """Give each block its cross-attention slot (parameters `cross_attention/*` and nothing else).
    """
    cross_attention_query: str = "self_attention"
    """What asks in it: "self_attention": the states after self-attention (VECO's prose); "input":
    those of the layer before, self-attention left out (VECO's equations 6-9)."""
    word_recovery: bool = False
    """Give the model the attention of Unicoder's word recovery (`word_recovery/kernel`)."""
    paraphrase: bool = False
    """Give the model the binary head of Unicoder's paraphrase classification (`paraphrase/*`)."""
    dan: int = 0
    """Width of a deep averaging network on the word embeddings (`dan/*`); 0 = none."""

    def __post_init__(self):
        where = f"model {self.name}: "
        for field, allowed in CHOICES.items():
            require_choice(self, allowed, field, where)
        for field, most in MOST.items():
            require_whole(self, f"[{int(field in ('dim', 'ffn'))}, {most}]", field, where)
        for interval, fields in WHOLE.items():
            require_whole(self, interval, fields, where)
        require_numbers(self, "[0, inf)", "init_std", where)
        require_numbers(
            self, "(0, inf)", "norm_eps rotary_theta rotary_scale local_theta lora_scale", where
        )
        require_numbers(self, "[0, 1)", "dropout attention_dropout classifier_dropout", where)
        if self.task_labels is not None:
            # In one order, as tuples: a configuration is compared and hashed. JSON gives lists.
            pairs = dict(self.task_labels)
            if len(pairs) < len(self.task_labels):
                raise UserError(f"{where}task_labels={self.task_labels!r}: name each task once")
            require_whole({"task_labels": pairs}, "[1, inf)", "task_labels", where)
            for task in pairs:
                if not task.isidentifier():
                    raise UserError(
                        f"{where}task {task!r}: a task is a word of letters, digits and _"
                    )
            object.__setattr__(self, "task_labels", tuple(sorted(pairs.items())) or None)
        needs_decoder = self.classifier == "decoder" or self.language_tokens or self.streams
        rotary = self.positions == "rotary"
        exact = self.relative_buckets // (4 if self.has_biases else 2)
        apart = self.positions == "disentangled"
        distant = self.streams or apart or self.has_biases
        for wrong, fault in (
            (
                self.heads % (self.kv_heads or 1),
                f"kv_heads={self.kv_heads} does not divide heads={self.heads}",
            ),
            (
                rotary and (self.head_dim % 2 or self.position_offset),
                "positions='rotary' needs heads of an even size, and no position_offset",
            ),
            (
                (rotary or apart or self.window or not self.first_norm) and self.decoder_layers,
                f"positions={self.positions!r}, window and first_norm=False have no decoder",
            ),
            (
                apart and (self.window or self.kv_heads),
                "positions='disentangled' has neither window nor kv_heads",
            ),
            (self.true_rows < self.vocab_size, "table_rows must be vocab_size or more"),
            (
                not self.head_size and self.dim % self.heads,
                f"heads={self.heads} does not divide dim={self.dim}",
            ),
            (
                self.position_offset >= self.max_positions,
                f"max_positions={self.max_positions} leaves no row above position_offset",
            ),
            (
                self.tied_self_attention and not 0 < self.decoder_layers <= self.layers,
                f"tied_self_attention needs decoder_layers from 1 to layers={self.layers}",
            ),
            (
                needs_decoder and not self.decoder_layers,
                "classifier='decoder', language_tokens and streams need a decoder: set"
                " decoder_layers",
            ),
            (
                self.streams and (self.lora or self.has_biases),
                "streams has no lora and no positions='relative'",
            ),
            (
                distant and self.attention_backend not in WITH_STREAMS,
                "streams and positions='disentangled' and 'relative' need"
                f" attention_backend={' or '.join(WITH_STREAMS)}",
            ),
            (
                self.streams and self.tied_self_attention,
                "streams has no tied_self_attention: the encoder's knows no distances",
            ),
            (
                distant and not 0 < exact < self.relative_max_distance,
                "distances need relative_buckets of 2 or more (positions='relative': 4), and"
                " relative_max_distance over half of them",
            ),
        ):
            if wrong:
                raise UserError(f"{where}{fault}")

    def labels_of(self, task: str | None = None) -> int:
        """Classes of a task's head, None: of the one that stands alone; 0 = no such head."""
        if task is None:
            return self.num_labels
        return dict(self.task_labels or ()).get(task, 0)

    @property
    def head_dim(self) -> int:
        return self.head_size or self.dim // self.heads

    @property
    def has_biases(self) -> bool:
        """Whether distances add to scores (T5)."""
        return self.positions.startswith("relative")

    @property
    def padded_vocab_size(self) -> int:
        """V, the rows of the token table."""
        # So that it divides by the devices that the vocabulary is spread over.
        return -(-self.true_rows // self.vocab_multiple) * self.vocab_multiple

    @property
    def true_rows(self) -> int:
        """Rows of the token table without those of padding."""
        return self.table_rows or self.vocab_size

    @property
    def plugged_in(self) -> bool:
        """Whether the classifier reads [H; S] of an example in two languages."""
        return self.classifier.startswith("plug_in")

    @property
    def has_languages(self) -> bool:
        return self.num_languages > 1

    def tells_languages(self, embedding: bool | None = None) -> bool:
        """Whether ids of languages stand for parameters: rows of a language embedding, or tokens of
        languages. embedding: False: the embedding is left behind."""
        return bool(self.language_tokens) or (self.has_languages and embedding is not False)

    def replace(self, **overrides: Any) -> "ModelConfig":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **overrides)


def _presets() -> dict[str, ModelConfig]:
    text = resources.files(__package__).joinpath("presets.toml").read_text("utf-8")
    found: dict[str, ModelConfig] = {}
    for name, fields in tomllib.loads(text).items():
        like = fields.pop("like", None)
        make: Any = found[like].replace if like else ModelConfig
        found[name] = make(name=name, **fields)
    return found


PRESETS = _presets()


def preset(name: str, **overrides: Any) -> ModelConfig:
    """The preset of that name with some fields changed. Raises `UserError` for an unknown name or
    field."""
    require_choice({"MODEL": name}, PRESETS, "MODEL")
    return PRESETS[name].replace(**overrides)

"""XLM-R of fairseq (`RobertaModel`), under the names of its newest versions."""

from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names
from xlingjax.convert.formats.reading import renamed, unfused
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

BODY, HEAD = "encoder.sentence_encoder.", "encoder.lm_head."
WORDS, POSITIONS = f"{BODY}embed_tokens.weight", f"{BODY}embed_positions.weight"
TIED = {f"{HEAD}weight": WORDS}
WITHOUT_MEANING = (f"{BODY}version", "encoder.version")
LEFT = ("classification_heads.",)
OFFSET = 2

_LAYER = BODY + "layers.{n}"
MODULES = {
    "embeddings/tokens": f"{BODY}embed_tokens",
    "embeddings/positions": f"{BODY}embed_positions",
    "embeddings/norm": f"{BODY}layernorm_embedding",
    "encoder/layers/attention/query": f"{_LAYER}.self_attn.q_proj",
    "encoder/layers/attention/key": f"{_LAYER}.self_attn.k_proj",
    "encoder/layers/attention/value": f"{_LAYER}.self_attn.v_proj",
    "encoder/layers/attention/out": f"{_LAYER}.self_attn.out_proj",
    "encoder/layers/attention_norm": f"{_LAYER}.self_attn_layer_norm",
    "encoder/layers/ffn/in": f"{_LAYER}.fc1",
    "encoder/layers/ffn/out": f"{_LAYER}.fc2",
    "encoder/layers/ffn_norm": f"{_LAYER}.final_layer_norm",
    "head": HEAD.removesuffix("."),
    "head/dense": f"{HEAD}dense",
    "head/norm": f"{HEAD}layer_norm",
}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that `args` describe; words and positions are those of the tables. Raises UserError
    for what is not computed here."""
    return ModelConfig(
        name=name,
        layers=fields.count("encoder_layers"),
        dim=fields.count("encoder_embed_dim"),
        heads=fields.count("encoder_attention_heads"),
        ffn=fields.count("encoder_ffn_embed_dim"),
        vocab_size=fields.count("words"),
        max_positions=fields.count("positions"),
        position_offset=OFFSET,
        # `args` do not name it: PyTorch's default of LayerNorm.
        norm_eps=1e-5,
        gelu=fields.one_of("activation_fn", {"gelu": "exact"}, "gelu"),
        head="transform",
        classifier="xlmr",
        dropout=fields.rate("dropout", 0.1),
        attention_dropout=fields.rate("attention_dropout", 0.1),
        init_std=0.02,
    )


def names_of(config: ModelConfig) -> Names:
    return Names(MODULES)


def usual(tensors: Tensors) -> Tensors:
    """Raises UserError for a head that is not tied."""

    def rename(name: str) -> str:
        # So before fairseq 0.10, though it is an encoder.
        if name.startswith("decoder."):
            name = "encoder." + name.removeprefix("decoder.")
        return name.replace(".emb_layer_norm.", ".layernorm_embedding.")

    return renamed(unfused(tensors), rename, TIED)

"""mBART and BART of fairseq (`BARTModel`): the names of Hugging Face's are these with "model."
before them."""

from xlingjax.convert.formats import bart
from xlingjax.convert.formats.bart import HEAD, LEFT, OFFSET, names_of
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.reading import renamed, unfused
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

__all__ = ["HEAD", "LEFT", "WITHOUT_MEANING", "config_of", "names_of", "usual"]

BODY = bart.BODY
WORDS = bart.WORDS
POSITIONS = f"{BODY}encoder.embed_positions.weight"
TIED = {**bart.TIED, f"{BODY}decoder.output_projection.weight": WORDS}
WITHOUT_MEANING = bart.WITHOUT_MEANING


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that `args` describe; words and positions are those of the tables. Raises UserError
    for what is not computed here."""
    pre = fields.one_of("encoder_normalize_before", {True: True, False: False}, False)
    norm_order = "post"
    if pre:
        norm_order = "pre"
    fields.only("decoder_normalize_before", pre)
    fields.only("share_all_embeddings", True)
    fields.only("encoder_learned_pos", True)
    fields.only("decoder_learned_pos", True)
    fields.only("layernorm_embedding", True)
    dim = fields.same("encoder_embed_dim", "decoder_embed_dim")
    return ModelConfig(
        name=name,
        layers=fields.count("encoder_layers"),
        decoder_layers=fields.count("decoder_layers"),
        decoder_embeddings="shared_tokens",
        dim=dim,
        heads=fields.same("encoder_attention_heads", "decoder_attention_heads"),
        ffn=fields.same("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
        vocab_size=fields.count("words"),
        max_positions=fields.count("positions"),
        position_offset=OFFSET,
        norm_order=norm_order,
        norm_eps=1e-5,
        gelu=fields.one_of("activation_fn", {"gelu": "exact"}, "gelu"),
        head="plain",
        # fairseq multiplies embeddings by the root of their width unless it is told not to.
        embedding_scale=not fields.one_of("no_scale_embedding", {True: True, False: False}, False),
        classifier="xlmr",
        dropout=fields.rate("dropout", 0.1),
        attention_dropout=fields.rate("attention_dropout", 0.0),
        init_std=0.02,
    )


def usual(tensors: Tensors) -> Tensors:
    """With the names of `MBartForConditionalGeneration`. Raises UserError for a head that is not
    tied."""
    return renamed(unfused(tensors), lambda name: BODY + name, TIED)

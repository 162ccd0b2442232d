"""Hugging Face RoBERTa-PreLayerNorm and XLM-R XL: XLM-R's layout with LayerNorm before sublayers
and at the end.

A model whose vocabulary head has no transform is written without it: the class of that has one.
"""

from xlingjax.convert.formats.family import Modules, Values, differing, moved
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.xlm_roberta import XlmRoberta, architectures
from xlingjax.model.config import ModelConfig

_BODY = "roberta_prelayernorm."
_RENAMED = ("roberta.", _BODY)


class RobertaPreLayerNorm(XlmRoberta):
    types = ("roberta-prelayernorm",)
    architectures = architectures("RobertaPreLayerNorm", "Model", "ForMaskedLM")
    bare = "RobertaPreLayerNormModel"
    computed = {
        "norm_order": "pre",
        "embedding_scale": False,
        "decoder_layers": 0,
    }
    body = _BODY
    positions = moved(XlmRoberta.positions, *_RENAMED)
    segments = moved(XlmRoberta.segments, *_RENAMED)
    tied = moved(XlmRoberta.tied, *_RENAMED)
    ignored = moved(XlmRoberta.ignored, *_RENAMED)
    modules = {
        **moved(XlmRoberta.modules, *_RENAMED),
        "encoder/layers/attention_norm": f"{_BODY}encoder.layer.{{n}}.attention.LayerNorm",
        "encoder/layers/ffn_norm": f"{_BODY}encoder.layer.{{n}}.intermediate.LayerNorm",
        "encoder/final_norm": f"{_BODY}LayerNorm",
    }

    def tell(self, fields: Fields, ours: Values) -> None:
        super().tell(fields, ours)
        bare = fields.values.get("architectures") == [self.bare]
        ours["head"] = "tied" if bare else "transform"

    def unfit(self, config: ModelConfig) -> str:
        others = super().unfit(config)
        if not others and config.head != "tied":
            others = differing(config, head="transform")
        return others

    def is_bare(self, config: ModelConfig) -> bool:
        return config.head == "tied" and not self.kind_of(config)

    def architecture(self, config: ModelConfig) -> str:
        return self.bare if self.is_bare(config) else super().architecture(config)

    def written_names(self, config: ModelConfig) -> Modules:
        if self.is_bare(config):
            return self.modules_without_head()
        return super().written_names(config)


class XlmRobertaXl(RobertaPreLayerNorm):
    types = ("xlm-roberta-xl",)
    architectures = architectures("XLMRobertaXL", "Model", "ForMaskedLM")
    bare = "XLMRobertaXLModel"
    settings = {**XlmRoberta.settings, "norm_eps": ("layer_norm_eps", 1e-5)}
    computed = {**RobertaPreLayerNorm.computed, "embedding_norm": False}
    body = XlmRoberta.body
    positions, segments = XlmRoberta.positions, XlmRoberta.segments
    tied, ignored = XlmRoberta.tied, XlmRoberta.ignored
    modules = {
        **XlmRoberta.modules,
        "encoder/layers/attention_norm": "roberta.encoder.layer.{n}.attention.self_attn_layer_norm",
        "encoder/layers/ffn_norm": "roberta.encoder.layer.{n}.LayerNorm",
        "encoder/final_norm": "roberta.encoder.LayerNorm",
    }


ROBERTA_PRELAYERNORM = RobertaPreLayerNorm()
XLM_ROBERTA_XL = XlmRobertaXl()

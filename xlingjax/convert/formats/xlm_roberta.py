"""XLM-R, of Hugging Face (`XLMRoberta*`) and of fairseq (`RobertaModel`), and what has its layout:
RoBERTa, InfoXLM, XLM-V, AfroXLMR and other continued ones; RoBERTa-PreLayerNorm and XLM-R XL with
LayerNorm before sublayers and at the end; ERNIE-M under the names that transformers published it
with (`ErnieM*`; it has the code no longer), and under Paddle's."""

from xlingjax.convert.formats.family import Family, Modules, Values, differing, renamed, split
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig


class XlmRoberta(Family):
    offset: int | None = None
    """The row of the first position; None: that behind padding."""

    def tell(self, fields: Fields, ours: Values) -> None:
        ours["position_offset"] = self.offset
        if self.offset is None:
            ours["position_offset"] = fields.index("pad_token_id") + 1
        if ours["num_labels"] and fields.values.get("classifier_dropout") is not None:
            ours["classifier_dropout"] = fields.rate("classifier_dropout", 0.1)

    def rows_before(self, pad_id: int) -> int:
        return pad_id + 1 if self.offset is None else self.offset

    def more_fields(self, config: ModelConfig) -> Values:
        fields: Values = {"type_vocab_size": config.segments or self.segment_rows}
        if self.kind_of(config) and config.classifier_dropout is not None:
            fields["classifier_dropout"] = config.classifier_dropout
        return fields


class RobertaPreLayerNorm(XlmRoberta):
    """A model whose vocabulary head has no transform is written without it: the class of that has
    one."""

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


class FairseqXlmRoberta(Family):
    def usual(self, tensors: Tensors) -> Tensors:
        def rename(name: str) -> str:
            # So before fairseq 0.10, though it is an encoder.
            if name.startswith("decoder."):
                name = "encoder." + name.removeprefix("decoder.")
            return name.replace(".emb_layer_norm.", ".layernorm_embedding.")

        return renamed(split(tensors, self.fused), rename, self.tied)


XLM_ROBERTA = XlmRoberta("xlm_roberta")
ROBERTA_PRELAYERNORM = RobertaPreLayerNorm("xlm_roberta", "roberta_prelayernorm")
XLM_ROBERTA_XL = RobertaPreLayerNorm("xlm_roberta", "xlm_roberta_xl")
ERNIE_M = XlmRoberta("ernie_m")
PADDLE_ERNIE_M = XlmRoberta("ernie_m", "paddle_ernie_m")
FAIRSEQ_XLM_ROBERTA = FairseqXlmRoberta("fairseq_xlm_roberta")

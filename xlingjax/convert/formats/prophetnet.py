"""Hugging Face ProphetNet and XLM-ProphetNet (XGLUE's Unicoder with xFNP): an encoder and an
n-stream decoder with one table of words. Positions begin at the row after that of padding."""

from xlingjax.convert.formats.family import Family, Values, counted
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.tensors import Arrays
from xlingjax.model.config import ModelConfig

CROSS_LINGUAL = "xlm-prophetnet"


class ProphetNet(Family):
    def tell(self, fields: Fields, ours: Values) -> None:
        # The class counts positions from the row after that of padding.
        ours["position_offset"] = fields.index("pad_token_id", 0) + 1
        ours |= {"decoder_embeddings": "shared_tokens", "norm_eps": 1e-5}

    def unfit(self, config: ModelConfig) -> str:
        others = [super().unfit(config)]
        if config.decoder_embeddings == "separate":
            others.append("decoder_embeddings='separate'")
        # transformers has room for the keys of as many layers as the encoder has.
        if config.decoder_layers > config.layers:
            others.append(f"decoder_layers={config.decoder_layers} above layers={config.layers}")
        return ", ".join(filter(None, others))

    def rows_before(self, pad_id: int) -> int:
        return 1

    def unfold(self, theirs: Arrays, config: ModelConfig, pad_id: int) -> None:
        for side in ("encoder", "decoder"):
            name = f"prophetnet.{side}.position_embeddings.weight"
            theirs[name] = counted(theirs[name], config.position_offset, 1)

    def more_fields(self, config: ModelConfig) -> Values:
        # Padding is not the vocabulary's: the class counts positions from it on, and its decoder
        # counts distances rightly from 0 alone.
        return {"activation_dropout": 0.0, "pad_token_id": 0}


PROPHETNET = ProphetNet("prophetnet")

"""mT5 and umT5: encoder-decoders whose scores know distances alone.

A text is `x </s>`, without `<s>`, and a decoder begins with padding. Rows here are opened by
padding that nobody sees (`ModelConfig.unseen`), so that all columns compute what they do there.
"""

import dataclasses
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from xlingjax.convert.formats.family import Family, Values
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.data.vocabulary.tokenizer_files import T5 as T5_ROLES
from xlingjax.data.vocabulary.tokenizer_files import read_object
from xlingjax.model.config import ModelConfig

PIECES = "spiece.model"
_HEAD, _WORDS = "lm_head.weight", "shared.weight"


class T5(Family):
    def tell(self, fields: Fields, ours: Values) -> None:
        ours["unseen"] = fields.index("pad_token_id", 0)

    def prepared(self, config: ModelConfig, tensors: Tensors) -> tuple[ModelConfig, Tensors]:
        """transformers ties the head where it is not there, or is the table of words."""
        tensors = self.within(tensors, self.tied)
        shapes = dict(tensors.shapes)
        tied = _HEAD not in shapes
        if not tied and np.array_equal(tensors.fetch(_HEAD), tensors.fetch(_WORDS)):
            tied = True
            del shapes[_HEAD]
        return config.replace(tied=tied), dataclasses.replace(tensors, shapes=shapes)

    def more_fields(self, config: ModelConfig) -> Values:
        return {"bos_token_id": None, "tie_word_embeddings": config.tied}


MT5 = T5("t5", "mt5")
UMT5 = T5("t5", "umt5")


def tokenizer_of(folder: Path) -> bytes:
    """tokenizer.json of `PIECES`, as transformers makes a T5Tokenizer of it: of pieces, scores and
    normalization table alone, words at white space; behind them the sentinels that
    tokenizer_config.json counts."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    proto = ModelProto.FromString((folder / PIECES).read_bytes())
    count = read_object(folder / "tokenizer_config.json").get("extra_ids", 100)
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(count))]
    words = pre_tokenizers.Metaspace(prepend_scheme="always")
    made = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], 2))
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        made.normalizer = normalizers.Precompiled(charsmap)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words])
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    made.add_special_tokens([*T5_ROLES.values(), *sentinels])
    return made.to_str().encode()

"""ERNIE-M under the names that transformers published it with (`ErnieM*`; it has the code no
longer), and under Paddle's. No vocabulary head was released. Its own tokenizer also rewrites curly
quotes and dashes and cuts commas off digits; here text stays as it is."""

from xlingjax.convert.formats.family import TAGS_AND_SPANS, moved
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import below
from xlingjax.convert.formats.xlm_roberta import XlmRoberta, architectures


class ErnieM(XlmRoberta):
    types = ("ernie_m",)
    architectures = architectures("ErnieM", "Model")
    bare = "ErnieMModel"
    settings = {**XlmRoberta.settings, "norm_eps": ("layer_norm_eps", 1e-5)}
    body, head = "ernie_m.", None
    beside = ("classifier.", "qa_outputs.")
    positions = segments = ""
    tied = {}
    ignored = ("ernie_m.embeddings.position_ids", "ernie_m.pooler.")
    modules = {
        "embeddings/tokens": "ernie_m.embeddings.word_embeddings",
        "embeddings/positions": "ernie_m.embeddings.position_embeddings",
        "embeddings/norm": "ernie_m.embeddings.layer_norm",
        **below(
            "encoder/layers/",
            "ernie_m.encoder.layers.{n}.",
            {
                "attention/query": "self_attn.self_attn.q_proj",
                "attention/key": "self_attn.self_attn.k_proj",
                "attention/value": "self_attn.self_attn.v_proj",
                "attention/out": "self_attn.out_proj",
                "attention_norm": "norm1",
                "ffn/in": "linear1",
                "ffn/out": "linear2",
                "ffn_norm": "norm2",
            },
        ),
    }
    classifiers = {
        "xlmr": {"classifier/dense": "ernie_m.pooler.dense", "classifier/out": "classifier"},
        **TAGS_AND_SPANS,
    }

    def offset_of(self, fields: Fields) -> int:
        # They add 2 to any position they are given.
        return 2


class PaddleErnieM(ErnieM):
    """As PaddleNLP publishes it."""

    transposed = False
    modules = moved(ErnieM.modules, ".self_attn.self_attn.", ".self_attn.")


ERNIE_M = ErnieM()
PADDLE_ERNIE_M = PaddleErnieM()

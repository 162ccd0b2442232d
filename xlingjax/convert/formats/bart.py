"""BART, mBART and NLLB, of Hugging Face (`Bart*`, `MBart*`, `M2M100*`) and of fairseq
(`BARTModel`).

Encoder-decoders with one table of words, each side its own positions (from row 2 on) and norms.
BART is post-LN, mBART pre-LN. fairseq's names are Hugging Face's without "model." before them.
A run whose sides have tables of words of their own is written as a model that ties none. The last
part is language codes: rows of a table before or behind `<mask>`. In ours they are the last ones,
in the order of a run's languages (`ModelConfig.language_tokens`).
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert.formats.family import SWITCH, Converted, Family, Values, counted
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.tensors import Arrays, Tensors
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer_files import read_object
from xlingjax.model.config import ModelConfig

WORDS, BIAS = "model.shared.weight", "final_logits_bias"
_OF_ENCODER = "model.encoder.embed_tokens"
_OF_DECODER = "model.decoder.embed_tokens"
_PROJECTION = "lm_head.weight"
# Under the name that our table of names makes of it.
_BIAS_OF_HEAD = f"{BIAS}.bias"
OUT = -1e9  # bias of rows that no text has: languages, spare rows; a search must leave them out too
# fairseq's positions begin behind the index of padding, 1, and transformers kept its rows.
OFFSET = 2

_LIKE_BART = {"norm_eps": 1e-5, "position_offset": OFFSET, "head": "plain"}


class Bart(Family):
    has_bias = True
    """Of the head, as a buffer."""

    def tell(self, fields: Fields, ours: Values) -> None:
        pre = fields.values["model_type"] == "mbart"
        # Older files say in fields of their own what the class computes in any case.
        for field in ("normalize_before", "add_final_layer_norm"):
            fields.only(field, pre)
        fields.only("normalize_embedding", True)
        ours |= _LIKE_BART | {"norm_order": "pre" if pre else "post"}
        ours["max_positions"] += OFFSET

    def names_of(self, config: ModelConfig) -> dict[str, str]:
        names = dict(self.modules)
        head = "head"
        if config.decoder_embeddings == "separate":
            names["embeddings/tokens"] = _OF_ENCODER
            names["decoder_embeddings/tokens"] = _OF_DECODER
            # The encoder's own head has no place there.
            head = "decoder_head"
        if config.head == "tied":
            names[head] = BIAS
        return names

    def prepared(self, config: ModelConfig, tensors: Tensors) -> tuple[ModelConfig, Tensors]:
        """Raises UserError for a head that is not tied to the words that the decoder reads."""
        separate = config.decoder_embeddings == "separate"
        tied = {_PROJECTION: f"{_OF_DECODER}.weight"} if separate else self.tied
        tensors = self.within(tensors, tied)
        shapes = dict(tensors.shapes)
        if separate:
            shapes.pop(WORDS, None)
        bias_V = np.zeros(config.true_rows, np.float32)
        # A buffer of zeros in the class of transformers, which saves it with the weights.
        if BIAS in shapes:
            del shapes[BIAS]
            bias_V = tensors.read(BIAS).reshape(-1).copy()
            bias_V[bias_V == OUT] = 0
        if bias_V.any():
            config = config.replace(head="tied")
            shapes[_BIAS_OF_HEAD] = bias_V.shape

        def fetch(name: str) -> np.ndarray:
            return bias_V if name == _BIAS_OF_HEAD else tensors.fetch(name)

        return config, dataclasses.replace(tensors, shapes=shapes, fetch=fetch)

    def unfit(self, config: ModelConfig) -> str:
        head = "head='transform'" if config.head == "transform" else ""
        return ", ".join(filter(None, [super().unfit(config), head]))

    def unfold(self, theirs: Arrays, config: ModelConfig, pad_id: int) -> None:
        """Positions from row 2 on, a bias of the head in any case, and of tables that are not tied
        the decoder's by its other names."""
        for side in ("encoder", "decoder"):
            name = f"model.{side}.embed_positions.weight"
            if name in theirs:
                theirs[name] = counted(theirs[name], config.position_offset, OFFSET)
        bias_V = theirs.pop(_BIAS_OF_HEAD, np.zeros(config.true_rows, np.float32)).copy()
        bias_V[config.vocab_size - config.language_tokens :] = OUT
        if self.has_bias:
            theirs[BIAS] = bias_V[None]
        if config.decoder_embeddings == "separate":
            words_VD = theirs[f"{_OF_DECODER}.weight"]
            theirs[_PROJECTION] = words_VD.copy()
            # The class wants it, and reads nothing of it.
            theirs[WORDS] = words_VD.copy()

    def more_fields(self, config: ModelConfig) -> Values:
        kind = {"post": "Bart", "pre": "MBart"}[config.norm_order]
        return {
            "architectures": [f"{kind}ForConditionalGeneration"],
            "model_type": kind.lower(),
            "activation_dropout": 0.0,
            # BART's would be forced at the longest length.
            "forced_eos_token_id": None,
        }


class M2M100(Bart):
    def tell(self, fields: Fields, ours: Values) -> None:
        ours |= _LIKE_BART
        ours["max_positions"] += OFFSET

    def more_fields(self, config: ModelConfig) -> Values:
        return {"activation_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}


class FairseqBart(Bart):
    def tell(self, fields: Fields, ours: Values) -> None:
        pre = fields.one_of("encoder_normalize_before", SWITCH, False)
        fields.only("decoder_normalize_before", pre)
        ours |= _LIKE_BART | {"norm_order": "pre" if pre else "post"}

    def prepared(self, config: ModelConfig, tensors: Tensors) -> tuple[ModelConfig, Tensors]:
        return config, self.usual(tensors)


BART = Bart("bart")
M2M_100 = M2M100("bart", "m2m_100")
FAIRSEQ_BART = FairseqBart("bart", "fairseq_bart")

_CC25 = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT"
    " lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
_MORE_OF_50 = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF"
    " pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
CODES = {
    "MBartTokenizer": tuple(_CC25.split()),
    "MBart50Tokenizer": (*_CC25.split(), *_MORE_OF_50.split()),
}
"""By transformers' tokenizer, in the order of their rows."""
NLLB = re.compile("[a-z]{3}_[A-Z][a-z]{3}")
"""A code of its tokenizer."""
NOTES = {
    False: "(LANGUAGE_TOKENS=True); sources are read between <s> and </s>, without the code that"
    " mBART has there",
    True: "(LANGUAGE_TOKENS='both'): sources begin with theirs, targets with </s> and theirs",
}


@dataclasses.dataclass(frozen=True)
class LanguageRows:
    """codes: {code: row}; pieces: of the vocabulary, which ends with `<mask>`; mask: its row there;
    of_sources: whether sources have one, too."""

    codes: Mapping[str, int]
    pieces: int
    mask: int
    of_sources: bool = False

    @property
    def languages(self) -> tuple[str, ...]:
        """Of the run, index = id: `en` of `en_XX`, since runs have no regions, but `ace_Arab`."""
        whole = sorted(self.codes)
        return tuple(code if NLLB.fullmatch(code) else code.partition("_")[0] for code in whole)

    def reordered(self, model: Converted) -> Converted:
        """With the rows of its table of words as ours are."""
        # Ours: pieces, <mask>, codes.
        codes = sorted(self.codes)
        theirs = [*range(self.pieces - 1), self.mask, *(self.codes[code] for code in codes)]
        config = model.config.replace(language_tokens=len(codes), source_tokens=self.of_sources)
        embeddings: dict[str, Any] = model.params["embeddings"]
        table_VD = embeddings["tokens"]["embedding"].copy()
        table_VD[: config.vocab_size] = table_VD[theirs]
        params = {**model.params, "embeddings": {**embeddings, "tokens": {"embedding": table_VD}}}
        note = f"{len(codes)} language codes, {codes[0]} to {codes[-1]}, are the language tokens"
        note += f" {NOTES[self.of_sources]}"
        return dataclasses.replace(model, config=config, params=params, notes=(*model.notes, note))


def language_rows(rows: int, vocabulary: Vocabulary, folder: Path) -> LanguageRows | None:
    """None where a table of so many rows is that of the vocabulary alone, or of none of theirs."""
    last = vocabulary.size - 1
    tokens = read_object(folder / "tokenizer.json").get("added_tokens") or ()
    found = {token["content"]: token["id"] for token in tokens}
    codes = {code: row for code, row in found.items() if NLLB.fullmatch(code)}
    if codes and vocabulary.layout == "xlmr":
        return LanguageRows(codes, vocabulary.size, found.get("<mask>", last), True)
    # config.json does not name the codes: how many rows stand behind the pieces tells which.
    for tokenizer, of_tokenizer in CODES.items():
        mask = last + len(of_tokenizer)
        if vocabulary.layout == "xlmr" and mask == rows - 1:
            between = dict(zip(of_tokenizer, range(last, mask), strict=True))
            # mBART has the code behind a source, where ours have none.
            of_sources = tokenizer == "MBart50Tokenizer"
            return LanguageRows(between, vocabulary.size, mask, of_sources)
    return None

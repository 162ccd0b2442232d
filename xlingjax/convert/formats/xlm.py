"""Hugging Face XLM (`XLM*`: `xlm-mlm-*`), language embeddings included; its FFN is always 4 D wide.
And the translation models of XLM's own code: an encoder and a decoder, each with tables, languages
and a head of its own, whose names begin with "encoder." and "decoder." here."""

from collections.abc import Sequence

from xlingjax.convert.formats.family import SWITCH, Family, Values, differing
from xlingjax.convert.formats.fields import Fields
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig

_SUMMARY = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
}


class Xlm(Family):
    def tell(self, fields: Fields, ours: Values) -> None:
        languages = fields.count("n_langs", 1) if fields.one_of("use_lang_emb", SWITCH, True) else 0
        # The first releases have XLM's own name, transformers writes the other.
        words = "vocab_size" if "vocab_size" in fields.values else "n_words"
        ours |= {
            "ffn": 4 * ours["dim"],
            "vocab_size": fields.count(words),
            # The class makes no table for a single one.
            "num_languages": languages if languages > 1 else 0,
        }
        if ours["num_labels"] and ours["classifier"] == "xlm":
            for field, value in _SUMMARY.items():
                fields.only(field, value)
            # XLM's class has a rate of its own before the classifier.
            ours["classifier_dropout"] = fields.rate("summary_first_dropout", 0.1)

    def languages_of(self, fields: Fields) -> tuple[str, ...]:
        """The codes of its language embedding, index = id. Raises UserError where config.json does
        not name them all, in the order that runs have."""
        count = fields.count("n_langs", 1)
        named = fields.values.get("lang2id")
        codes = sorted(named) if isinstance(named, dict) else []
        if [named[code] for code in codes] != list(range(count)):
            raise UserError(
                f"{fields.path}: lang2id={named!r} does not number n_langs={count} languages in"
                " alphabetical order, as those of a run are; mend it, and the rows of"
                " lang_embeddings with it"
            )
        return tuple(codes)

    def unfit(self, config: ModelConfig) -> str:
        return ", ".join(
            filter(None, [super().unfit(config), differing(config, ffn=4 * config.dim)])
        )

    def described(
        self,
        config: ModelConfig,
        vocabulary: Vocabulary,
        labels: Sequence[str] = (),
        languages: Sequence[str] = (),
    ) -> Values:
        fields = super().described(config, vocabulary, labels)
        if config.has_languages:
            unnamed = range(len(languages), config.num_languages)
            codes = [*languages, *(f"language {number}" for number in unnamed)]
            fields["lang2id"] = {code: i for i, code in enumerate(codes)}
            fields["id2lang"] = {str(i): code for i, code in enumerate(codes)}
        return fields

    def more_fields(self, config: ModelConfig) -> Values:
        fields: Values = {
            "n_langs": max(config.num_languages, 1),
            "use_lang_emb": config.has_languages,
        }
        if self.kind_of(config) == "xlm":
            rate = config.classifier_dropout
            fields |= _SUMMARY | {"summary_first_dropout": config.dropout if rate is None else rate}
        return fields


XLM = Xlm("xlm")
XLM_SEQ2SEQ = Family("xlm_seq2seq")

"""mBART's language codes: rows of its table between the last piece and `<mask>`. In ours they are
the last ones, in the order of a run's languages (`ModelConfig.language_tokens`): the code of a
target's language is what its decoder begins with."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert.formats.reading import Converted
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

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
NOTE = (
    "{count} language codes, {first} to {last}, are the language tokens (LANGUAGE_TOKENS=True);"
    " sources are read between <s> and </s>, without the code that mBART has there"
)


@dataclasses.dataclass(frozen=True)
class LanguageRows:
    """codes: in the order of their rows; pieces: of the vocabulary, which ends with `<mask>`."""

    codes: tuple[str, ...]
    pieces: int

    @property
    def languages(self) -> tuple[str, ...]:
        """Of the run, index = id: `en` of `en_XX`."""
        # Without the region: runs name languages by the code alone.
        return tuple(code.partition("_")[0] for code in self._sorted)

    @property
    def theirs(self) -> np.ndarray:
        """int32 [V]: the row there of each of ours."""
        # Theirs: pieces, codes, <mask>. Ours: pieces, <mask>, codes.
        last = self.pieces - 1
        codes = [last + self.codes.index(code) for code in self._sorted]
        return np.array([*range(last), last + len(self.codes), *codes], np.int32)

    @property
    def _sorted(self) -> list[str]:
        return sorted(self.codes)

    def reordered(self, model: Converted) -> Converted:
        """With the rows of its table of words as ours are."""
        config = model.config.replace(language_tokens=len(self.codes))
        embeddings: dict[str, Any] = model.params["embeddings"]
        # A copy, since `model` keeps its own.
        table_VD = embeddings["tokens"]["embedding"].copy()
        table_VD[: config.vocab_size] = table_VD[self.theirs]
        params = {**model.params, "embeddings": {**embeddings, "tokens": {"embedding": table_VD}}}
        note = NOTE.format(count=len(self.codes), first=self._sorted[0], last=self._sorted[-1])
        return dataclasses.replace(model, config=config, params=params, notes=(*model.notes, note))


def language_rows(folder: Path, rows: int, vocabulary: Vocabulary) -> LanguageRows | None:
    """None where a table of so many rows is that of the vocabulary alone, or of none of mBART's.
    Raises UserError where the tokenizer that the folder names has other codes."""
    # config.json does not name the codes: how many rows
    # stand behind the pieces tells which they are.
    count = rows - vocabulary.size
    by_count = {len(codes): name for name, codes in CODES.items()}
    if vocabulary.layout != "xlmr" or count not in by_count:
        return None
    fitting = by_count[count]
    options = _options(folder / "tokenizer_config.json")
    named = options.get("tokenizer_class") or fitting
    # The fast tokenizer has the codes of the other one.
    named = named.removesuffix("Fast")
    if named in CODES and named != fitting:
        raise UserError(
            f"{folder}: config.json has vocab_size={rows}, {count} rows behind the pieces, and the"
            f" languages of its {named} are {len(CODES[named])}; give files that belong together"
        )
    return LanguageRows(CODES[fitting], vocabulary.size)


def _options(path: Path) -> dict[str, Any]:
    """Of a file that a folder need not have."""
    if not path.is_file():
        return {}
    try:
        options = parsed_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}); fetch it again") from None
    if not isinstance(options, dict):
        return {}
    return options

"""What Moses' scripts, and those around them, make of a line before tokenised BLEU: by sacremoses.

Each paper has its own: fairseq's IWSLT14 tokenises and lowercases, its WMT14 en-de splits hyphens
and then compounds, XLM's en-ro normalises punctuation and Romanian and removes diacritics.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence

from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.text import tokenised_bleu

STEPS = ("punctuation", "romanian", "diacritics", "tokenise", "hyphens", "compounds", "lowercase")
"""In the order in which they are taken. punctuation: normalize-punctuation.perl; romanian,
diacritics: normalise-romanian.py and remove-diacritics.py of WMT16's scripts; tokenise:
tokenizer.perl, hyphens: its -a; compounds: fairseq's compound_split_bleu.sh; lowercase:
lowercase.perl."""

# With a cedilla, as old keyboards write them, and with the comma below that is right.
_ROMANIAN = str.maketrans("ŞşŢţ", "ȘșȚț")
_DIACRITICS = str.maketrans("ȘșȚțĂăÂâÎî", "SsTtAaAaIi")


def moses_steps(steps: Iterable[str], language: str) -> Callable[[str], str]:
    """The map of a line by these of `STEPS`. Raises UserError for a step that there is not and for
    hyphens without tokenise."""
    import sacremoses

    wanted = {*steps}
    unknown = sorted(wanted - {*STEPS})
    if unknown:
        raise UserError(f"Moses has no step {unknown[0]!r} here: choose among {', '.join(STEPS)}")
    if "hyphens" in wanted and "tokenise" not in wanted:
        raise UserError("the step hyphens is an option of Moses' tokeniser: add tokenise")
    makers = {
        "punctuation": lambda: sacremoses.MosesPunctNormalizer(lang=language).normalize,
        "romanian": lambda: lambda line: line.translate(_ROMANIAN),
        "diacritics": lambda: lambda line: line.translate(_DIACRITICS),
        "tokenise": lambda: functools.partial(
            sacremoses.MosesTokenizer(lang=language).tokenize,
            return_str=True,
            aggressive_dash_splits="hyphens" in wanted,
        ),
        "compounds": lambda: _compounds_split,
        "lowercase": lambda: str.lower,
    }
    chosen = [make() for step, make in makers.items() if step in wanted]
    return lambda line: functools.reduce(lambda text, step: step(text), chosen, line)


def _compounds_split(line: str) -> str:
    # As Perl's s///g: what one match has taken begins no other, so "a-b-c" is split once.
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)


def moses_bleu(
    hypotheses: Sequence[str], references: Sequence[str], steps: Iterable[str], language: str
) -> tuple[float, str]:
    """(BLEU in 0..100 as multi-bleu.perl computes it after these steps on both sides, a signature
    that names them and sacreBLEU's). Raises UserError as `moses_steps` and `tokenised_bleu`."""
    chosen = [step for step in STEPS if step in {*steps}]
    taken = moses_steps(steps, language)
    value, signature = tokenised_bleu(
        [taken(line) for line in hypotheses], [taken(line) for line in references]
    )
    told = "+".join(chosen) or "as-is"
    return value, f"moses:{told}|language:{language}|{signature}"

"""What the name of a file of text tells: its language, the languages of its pairs, its format."""

from __future__ import annotations

import re
from pathlib import Path

from xlingjax.data.text.files import plain_name
from xlingjax.errors import UserError

# ISO 639-1, and longer codes only with script or region: three letters alone may be a word.
_ISO_639_1 = frozenset(
    re.findall(
        "..",
        "aaabaeafakamanarasavayazbabebgbhbibmbnbobrbscacechcocrcscucvcydadedvdzeeeleneoeseteufafffifjfofrfygagdglgngugv"
        "hahehihohrhthuhyhziaidieigiiikioisitiujajvkakgkikjkkklkmknkokrkskukvkwkylalblglilnloltlulvmgmhmimkmlmnmrmsmtmy"
        "nanbndnengnlnnnonrnvnyocojomorospapiplpsptqurmrnrorurwsascsdsesgsiskslsmsnsosqsrssstsusvswtatetgthtitktltntotr"
        "tstttwtyugukuruzvevivowawoxhyiyozazhzu",
    )
)
_QUALIFIED = re.compile(r"[a-z]{2,3}[_-]([A-Z][a-z]{3}|[A-Z]{2}|\d{3}|[A-Z][a-z]{3}[_-][A-Z]{2})")
# Behind a dash only a script or a region, written as such: en-zh-TW is en and zh-TW.
CODE = r"[A-Za-z]{2,3}(?:_[A-Za-z0-9]{2,8}|-[A-Z][a-z]{3}|-[A-Z]{2}|-\d{3})*"
# The codes of a pair need not be known ones: the dash between them tells enough.
PAIR_STEM = re.compile(
    rf"^(?:(?P<name>.+)\.)?(?P<src>{CODE})-(?P<tgt>{CODE})\.(?P<end>{CODE}|tsv|jsonl)$"
)


def _side(path: Path) -> re.Match[str] | None:
    match = PAIR_STEM.match(plain_name(path))
    return match if match and match["end"] in (match["src"], match["tgt"]) else None


def pair_side(path: Path) -> str:
    """Which side of which pairs a file's lines are, "de-en.de", by its name; "" of other text."""
    if match := _side(path):
        # Sorted, so that de-en.de and en-de.de are the same side.
        codes = sorted((match["src"], match["tgt"]))
        return f"{'-'.join(codes)}.{match['end']}"
    for side in ("src", "tgt"):
        if f".{side}." in path.name:
            return side
    return ""


def file_format(path: Path) -> str:
    """ "tsv", "jsonl" or "lines", which is any other ending."""
    ending = plain_name(path).rpartition(".")[2]
    return ending if ending in ("tsv", "jsonl") else "lines"


def is_language_code(text: str) -> bool:
    """Whether `text` is an ISO 639-1 code, or a longer one with script or region (`swh_Latn`)."""
    return text in _ISO_639_1 or bool(_QUALIFIED.fullmatch(text))


def language_from_path(path: Path) -> str:
    """The language a path names: its folder, else the last part of the file name that is a code.
    Raises UserError, also where the two differ: "to/news.de.txt" is hardly Tongan."""
    folder = path.parent.name
    # A folder may be of all pairs with its language: "sw/en-sw.en".
    if (match := _side(path)) and folder in (match["src"], match["tgt"]):
        return match["end"]
    # Corpora with a folder for each language have anything in their file names.
    parts = plain_name(path).split(".")
    codes = [part for part in (folder, *reversed(parts)) if is_language_code(part)]
    ending = parts[-1]
    if not is_language_code(ending):
        # "news.de.txt": the code is before the ending.
        ending = "".join(parts[-2:-1])
    # Only the ending contradicts a folder: other parts ("no", "is") may be words like codes.
    if codes and folder == codes[0] != ending and is_language_code(ending):
        raise UserError(
            f"language of {path}: the folder says {folder}, the file name {ending}: "
            f"write the right one before the pattern, like {ending}=path"
        )
    if codes:
        return codes[0]
    if match:
        return match["end"]
    raise UserError(
        f"cannot tell the language of {path}: put it in a folder named by its code, name it like"
        " news.de.txt, or write the code before the pattern, like lin=path"
    )

"""SentencePiece's text normalization as the `normalizer` of a tokenizer.json, giving the same
string for every text.

SentencePiece walks the text from the left and replaces the longest rule of its
`precompiled_charsmap` that begins there. The `Precompiled` step of tokenizers has the same table
and another walk: it looks a whole grapheme of fewer than 6 bytes up, takes the shortest rule and
drops the rest of the grapheme ("¼" with a variation selector), and looks longer ones up by
character (a decomposed "が" or "한" stays as it is). So `Precompiled` is given single characters:
those that stand before a combining character are cut off by a code point that no text has, the
rules of several characters are found by a regular expression, and composed by NFC, which is what
these rules do.
"""

import base64
import functools
import json
import re
import struct
import unicodedata
from typing import Any

import numpy as np

from xlingjax.errors import UserError

OUTER, INNER = "\U000e0000", "\U000e0002"
"""Code points that are not assigned, that end a grapheme and that NFC leaves alone: between the
places where a rule applies, and inside one."""
SPACE = "▁"
UNLIKE_NFC = frozenset(
    "\u0307\u0345\U00011930\U000113b8\U000113bb\U000113c2\U000113c9\U0001611e\U0001611f\U00016120\U00016129\U00016d67"
)
"""The last characters of the rules that NFC of the single characters does not give: scripts newer
than Unicode 15, and, where case is folded, U+0307 after a styled I and the iota subscript of
decomposed Greek. These are not the same."""
JOINING = (
    ("\u200c", "\u200d"),
    ("\u1160", "\u11ff"),
    ("\ud7b0", "\ud7ff"),
    ("\uff9e", "\uff9f"),
    ("\u1ab0", "\u1aff"),
    ("\U0001f3fb", "\U0001f3ff"),
    ("\U000e0020", "\U000e007f"),
)


def rules(charsmap: bytes) -> dict[str, str]:
    """{text: what it becomes} of a `precompiled_charsmap`: the size of a double array of bytes
    (darts-clone), the array, and the replacements, each ended by a zero byte. Raises UserError when
    it is no such thing.
    """
    try:
        (size,) = struct.unpack_from("<I", charsmap)
        array, texts = (
            np.frombuffer(charsmap, "<u4", size // 4, 4),
            charsmap[4 + size :],
        )
        return dict(_walk(array, texts))
    except (struct.error, ValueError, IndexError):
        raise UserError(
            "the normalization table of the SentencePiece model is damaged; take the model anew"
        ) from None


def _walk(array: np.ndarray, texts: bytes):
    offsets = (array >> 10) << ((array & 0x200) >> 6)
    # A unit stands at its parent's base xor its own byte, so that every unit tells its parent's
    # base.
    units = np.nonzero((array & 0x80000000 == 0) & (array & 0xFF != 0))[0].astype(
        np.uint32
    )
    parents = units ^ (array[units] & 0xFF)
    order = np.argsort(parents, kind="stable")
    units, parents = units[order], parents[order]
    keys, bases = [b""], offsets[:1]
    while keys:
        begins, ends = (
            np.searchsorted(parents, bases, "left"),
            np.searchsorted(parents, bases, "right"),
        )
        node = np.repeat(np.arange(len(keys)), ends - begins)
        first = np.cumsum(ends - begins) - (ends - begins)
        places = units[np.arange(len(node)) - first[node] + begins[node]]
        keys = [
            keys[n] + bytes([b])
            for n, b in zip(node.tolist(), (array[places] & 0xFF).tolist(), strict=True)
        ]
        bases = places ^ offsets[places]
        rules = np.nonzero(array[places] & 0x100)[0]
        for i, begin in zip(
            rules.tolist(), (array[bases[rules]] & 0x7FFFFFFF).tolist(), strict=True
        ):
            yield keys[i].decode(), texts[begin : texts.index(b"\0", begin)].decode()


def _class(characters) -> str:
    """A character class of the regular expressions of tokenizers (Oniguruma)."""
    codes, spans = sorted({*map(ord, characters)}), []
    for code in codes:
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return (
        "["
        + "".join(
            rf"\x{{{a:x}}}" if a == b else rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in spans
        )
        + "]"
    )


def _pattern(texts) -> str:
    """The longest of `texts`: their trie, with equal subtrees as one."""
    trie: dict = {}
    for text in texts:
        node = trie
        for character in text:
            node = node.setdefault(character, {})
        node[""] = True

    def written(node) -> str:
        groups: dict[str, list[str]] = {}
        for character, child in node.items():
            if character:
                groups.setdefault(written(child), []).append(character)
        told = "|".join(
            _class(characters) + tail for tail, characters in sorted(groups.items())
        )
        return f"(?:{told})" + "?" * ("" in node) if told else ""

    return written(trie)


@functools.lru_cache(maxsize=4)
def _steps(charsmap: bytes) -> str:
    """The steps that do what the table does, as JSON."""
    table = rules(charsmap)
    single = {text: made for text, made in table.items() if len(text) == 1}
    several = {text: made for text, made in table.items() if len(text) > 1}
    for text, made in several.items():
        if (
            unicodedata.normalize("NFC", "".join(single.get(c, c) for c in text))
            != made
            and text[-1] not in UNLIKE_NFC
        ):
            raise UserError(
                f"the SentencePiece model rewrites {text!r} as {made!r}, which is no composition of"
                " characters: tokenizer.json cannot say it; train with normalization nmt_nfkc,"
                " nfkc or identity"
            )
    seconds = {character for text in several for character in text[1:]}
    joining, ordered, composing = set(), set(), set(seconds)
    for code in (*range(0x80, 0x20000), *range(0xE0100, 0xE01F0)):
        character = chr(code)
        canonical = unicodedata.decomposition(character).split()
        if len(canonical) == 2 and canonical[0][0] != "<":
            composing.add(chr(int(canonical[1], 16)))
        if unicodedata.category(character)[0] == "M":
            joining.add(character)
        if unicodedata.combining(character):
            ordered.add(character)
    joining.update(chr(code) for a, b in JOINING for code in range(ord(a), ord(b) + 1))
    joining |= composing
    for group in (composing, joining, ordered):
        group.update(
            character for character, made in single.items() if made[:1] in group
        )
    composing, ordered = _class(composing), _class(ordered)
    places = [
        (
            rf"(?=[{_class({text[0] for text in several})}]{_class(seconds)}){_pattern(several)}"
            if several
            else ""
        ),
        rf"(?m:.)(?={composing})",
        rf"{ordered}(?={ordered})",
        rf"{_class(single)}(?={_class(joining)})" if single else "",
        r"\r(?=\n)",
    ]
    outer, inner = rf"\x{{{ord(OUTER):x}}}", rf"\x{{{ord(INNER):x}}}"
    steps = [
        replace(rf"(?>{'|'.join(filter(None, places))})\K", OUTER),
        replace(rf"(?<!\A|{outer})(?={composing})", INNER),
        {
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(charsmap).decode(),
        },
        replace(inner, ""),
        {"type": "NFC"},
        replace(outer, ""),
    ]
    return json.dumps(steps)


def replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def normalizer(
    charsmap: bytes, prefix: bool, collapse: bool, escape: bool
) -> dict[str, Any] | None:
    """The normalizer for the fields of SentencePiece's NormalizerSpec: `precompiled_charsmap`,
    `add_dummy_prefix`, `remove_extra_whitespaces`, `escape_whitespaces`. Raises UserError for a
    table it cannot say."""
    space = SPACE if escape else " "
    steps = [{"type": "Prepend", "prepend": space}] if prefix else []
    steps += json.loads(_steps(charsmap)) if charsmap else []
    if collapse:
        steps += [
            replace(rf"(?<=\A{re.escape(space)}) +" if prefix else r"\A +", ""),
            replace(" {2,}", " "),
            replace(rf"[{space} ]+\z", ""),
        ]
    if escape:
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    return {"type": "Sequence", "normalizers": steps} if steps else None

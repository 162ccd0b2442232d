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
# Of a grapheme with what stands before, though no marks to Unicode: joiners, vowels and finals of
# Hangul, half-width voice marks, skin tones, tags.
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
        # Little-endian by name: SentencePiece writes the table so on every machine.
        array = np.frombuffer(charsmap, "<u4", size // 4, 4)
        return dict(_walk(array, charsmap[4 + size :]))
    except (struct.error, ValueError, IndexError):
        raise UserError(
            "the normalization table of the SentencePiece model is damaged; take the model anew"
        ) from None


def _walk(array: np.ndarray, texts: bytes):
    """The rules, the shortest first: all nodes of one depth at a time, since a table has some
    100,000 of them."""
    # A unit of darts-clone: its byte (bits 0 to 7), whether a rule ends below it (8), a longer
    # shift of the offset (9), the offset (10 to 30), whether it is a value (31).
    offsets = (array >> 10) << ((array & 0x200) >> 6)
    is_unit = (array & 0x80000000 == 0) & (array & 0xFF != 0)
    units = np.flatnonzero(is_unit).astype(np.uint32)
    # A unit stands at its parent's base xor its own byte, so that every unit tells its parent's
    # base.
    parents = units ^ (array[units] & 0xFF)
    # Sorted once by parent, so that children are found by a search.
    order = np.argsort(parents, kind="stable")
    units = units[order]
    parents = parents[order]
    keys = [b""]
    bases = offsets[:1]
    while keys:
        begins = np.searchsorted(parents, bases, "left")
        counts = np.searchsorted(parents, bases, "right") - begins
        # Of each child: its node, and which of that node's children it is.
        nodes = np.repeat(np.arange(len(keys)), counts)
        first = np.cumsum(counts) - counts
        places = units[np.arange(len(nodes)) - first[nodes] + begins[nodes]]
        labels = array[places] & 0xFF
        children = zip(nodes.tolist(), labels.tolist(), strict=True)
        keys = [keys[node] + bytes([label]) for node, label in children]
        bases = places ^ offsets[places]
        ends = np.flatnonzero(array[places] & 0x100)
        begins_of_texts = array[bases[ends]] & 0x7FFFFFFF
        for child, begin in zip(ends.tolist(), begins_of_texts.tolist(), strict=True):
            replacement = texts[begin : texts.index(b"\0", begin)]
            yield keys[child].decode(), replacement.decode()


def _class(characters) -> str:
    """A character class of the regular expressions of tokenizers (Oniguruma)."""
    spans: list[list[int]] = []
    for code in sorted({*map(ord, characters)}):
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    written = []
    for first, last in spans:
        written.append(_code_point(first))
        if first != last:
            written += ["-", _code_point(last)]
    return f"[{''.join(written)}]"


def _code_point(code: int) -> str:
    return rf"\x{{{code:x}}}"


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
        if not groups:
            return ""
        branches = [_class(characters) + tail for tail, characters in sorted(groups.items())]
        group = f"(?:{'|'.join(branches)})"
        if "" in node:
            # One of the texts ends here, and others go on.
            group += "?"
        return group

    return written(trie)


@functools.lru_cache(maxsize=4)
def _steps(charsmap: bytes) -> str:
    """The steps that do what the table does, as JSON."""
    table = rules(charsmap)
    single = {text: made for text, made in table.items() if len(text) == 1}
    several = {text: made for text, made in table.items() if len(text) > 1}
    for text, made in several.items():
        one_by_one = "".join(single.get(character, character) for character in text)
        composed = unicodedata.normalize("NFC", one_by_one)
        if composed != made and text[-1] not in UNLIKE_NFC:
            raise UserError(
                f"the SentencePiece model rewrites {text!r} as {made!r}, which is no composition of"
                " characters: tokenizer.json cannot say it; train with normalization nmt_nfkc,"
                " nfkc or identity"
            )
    firsts = {text[0] for text in several}
    seconds = set().union(*(text[1:] for text in several))
    joining_set, ordered_set, composing_set = _combining(single, seconds)
    composing = _class(composing_set)
    ordered = _class(ordered_set)
    places = []
    if several:
        places.append(rf"(?=[{_class(firsts)}]{_class(seconds)}){_pattern(several)}")
    places += [rf"(?m:.)(?={composing})", rf"{ordered}(?={ordered})"]
    if single:
        places.append(rf"{_class(single)}(?={_class(joining_set)})")
    places.append(r"\r(?=\n)")
    outer = _code_point(ord(OUTER))
    inner = _code_point(ord(INNER))
    steps = [
        # \K keeps what was matched, so that the code point comes behind it; the group is atomic, or
        # a shorter rule would be tried at a place where the longer one fails.
        replace(rf"(?>{'|'.join(places)})\K", OUTER),
        replace(rf"(?<!\A|{outer})(?={composing})", INNER),
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
        replace(inner, ""),
        {"type": "NFC"},
        replace(outer, ""),
    ]
    return json.dumps(steps)


def _combining(single: dict[str, str], seconds: set[str]) -> tuple[set[str], set[str], set[str]]:
    """(what stands in one grapheme with the character before it, what Unicode orders, what NFC may
    compose with the character before it), those of `single` that become one of them included.
    seconds: what follows the first character of a rule of several."""
    joining = set()
    ordered = set()
    composing = set(seconds)
    # No other plane of Unicode has a combining character.
    for code in (*range(0x80, 0x20000), *range(0xE0100, 0xE01F0)):
        character = chr(code)
        canonical = unicodedata.decomposition(character).split()
        # One that begins with "<" is of compatibility alone, which NFC leaves as it is.
        if len(canonical) == 2 and canonical[0][0] != "<":
            composing.add(chr(int(canonical[1], 16)))
        if unicodedata.category(character)[0] == "M":
            joining.add(character)
        if unicodedata.combining(character):
            ordered.add(character)
    for first, last in JOINING:
        joining.update(map(chr, range(ord(first), ord(last) + 1)))
    joining |= composing
    for group in (composing, joining, ordered):
        for character, made in single.items():
            if made[:1] in group:
                group.add(character)
    return joining, ordered, composing


def replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def normalizer(
    charsmap: bytes, prefix: bool, collapse: bool, escape: bool
) -> dict[str, Any] | None:
    """The normalizer for the fields of SentencePiece's NormalizerSpec: `precompiled_charsmap`,
    `add_dummy_prefix`, `remove_extra_whitespaces`, `escape_whitespaces`. Raises UserError for a
    table it cannot say."""
    space = SPACE if escape else " "
    steps: list[dict[str, Any]] = []
    if prefix:
        steps.append({"type": "Prepend", "prepend": space})
    if charsmap:
        steps += json.loads(_steps(charsmap))
    if collapse:
        leading = r"\A +"
        if prefix:
            # The prepended space stays.
            leading = rf"(?<=\A{re.escape(space)}) +"
        steps.append(replace(leading, ""))
        # After leading spaces are gone, which are removed and not joined.
        steps.append(replace(" {2,}", " "))
        steps.append(replace(rf"[{space} ]+\z", ""))
    if escape:
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    return None if not steps else {"type": "Sequence", "normalizers": steps}

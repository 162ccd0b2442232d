"""How much of a corpus a run would read: sentences, tokens and rows of each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xlingjax.data.rows.left_out import LeftOut
from xlingjax.data.rows.plan import Rows, pair_rows, stream_rows
from xlingjax.data.rows.planned import side_bases
from xlingjax.data.store.blocks import pair_blocks, text_blocks
from xlingjax.data.texts import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

if TYPE_CHECKING:
    from xlingjax.data.findings import Findings


def text_sizes(
    texts: Sequence[Text], vocabulary: Vocabulary, length: int
) -> dict[str, dict[str, Any]]:
    """{language: sentences, tokens and rows} of a run on the texts."""
    # As the rows of a run: in layout "xlm" the `</s>`
    # before a text opens it, and no column is needed.
    bos = vocabulary.bos_id != vocabulary.eos_id
    by_language: dict[str, list[Text]] = {}
    for text in texts:
        by_language.setdefault(text.language, []).append(text)
    sizes = {}
    for language, of_language in sorted(by_language.items()):
        text = text_blocks(of_language, vocabulary)
        rows = [
            # The ids of a block begin with a `</s>`, hence 1.
            stream_rows(records, 1, length, bos=bos)
            for records in text.each()
        ]
        sizes[language] = _total(rows)
    return sizes


def _total(rows: Sequence[Rows]) -> dict[str, Any]:
    """The sizes of all blocks of a text."""
    total: Counter[str] = Counter()
    for of_block in rows:
        total.update(of_block.sizes)
    return dict(total)


def pair_sizes(
    pairs: Sequence[Pair], vocabulary: Vocabulary, findings: Findings, length: int, max_pieces: int
) -> dict[str, dict[str, Any]]:
    """{pair of languages: sentences, tokens and rows} of a run on the pairs; pairs that no row has
    room for are a finding."""
    by_languages: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        by_languages.setdefault(pair.languages, []).append(pair)
    sizes = {}
    for languages in sorted(by_languages):
        of_languages = by_languages[languages]
        # All files of two languages together, as a run reads them.
        text = pair_blocks(of_languages, vocabulary)
        rows = []
        for records in text.each():
            of_block = pair_rows(records, side_bases(records), length, max_pieces=max_pieces)
            rows.append(of_block)
        sizes[text.name] = _total(rows)
        # Lines empty on a side have a finding of their own and are not counted again.
        left_out = sum((of_block.left_out for of_block in rows), LeftOut())
        if not left_out.left:
            continue
        severity = "note"
        if left_out.left == left_out.pairs:
            severity = "error"
        message = (
            f"{left_out.left:,} of {left_out.pairs:,} {text.name} pairs are longer than"
            f" {max_pieces} pieces a side or {length} tokens and are left out"
        )
        findings.add(severity, of_languages[0].first.path, None, message)
    return sizes

"""More pieces for a tokenizer.json of BPE or WordPiece: the commonest neighbours among the old
pieces of a text become one piece, again and again, as byte-pair encoding does (Sennrich et al.
2016) from where the old vocabulary ends. Of BPE the new merges come behind the old ones."""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from xlingjax.data.vocabulary.tokenizer import MARKERS, TokenizerVocabulary
from xlingjax.data.vocabulary.tokenizer_files import CONTINUED
from xlingjax.errors import UserError

BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
"""What a character without a piece becomes by `byte_fallback` (Gemma, mmBERT). Two of them are
never joined: no decoder reads bytes out of such a piece."""
Pair = tuple[str, str]
Word = tuple[str, ...]


def extend(
    old: TokenizerVocabulary,
    lines: Sequence[str],
    pieces: int,
    *,
    old_lines: Sequence[str] = (),
    character_coverage: float = 0.9995,
) -> TokenizerVocabulary:
    """`old` with `pieces` more, of the text of `lines`; what `old_lines` would use is left out.
    Characters that `old` lacks come first. Raises UserError for another kind of model, and for text
    that gives fewer pieces or has more characters."""
    kind = _kind(old)
    if kind not in ("BPE", "WordPiece"):
        raise UserError(
            f"the vocabulary is a tokenizer.json of {kind}; pieces are added to BPE, WordPiece and"
            " SentencePiece's unigram models: import the model with its sentencepiece.bpe.model"
            " beside it"
        )
    characters = _lacking(old, lines, character_coverage)
    if len(characters) > pieces:
        raise UserError(
            f"--pieces {pieces}: the text has {len(characters)} characters that the vocabulary"
            " lacks (of WordPiece, each at the begin of a word and within); give at least so many,"
            " or lower --character-coverage"
        )
    spelt = _appended(old, characters, [])
    words = _words(spelt, lines)
    # A pair of old text is never merged, so that of BPE this text is cut as before.
    mark = CONTINUED if kind == "WordPiece" else ""
    left_out = {
        _joined(*pair, mark)
        for word in _words(spelt, old_lines)
        for pair in itertools.pairwise(word)
    }
    known = {*old.pieces(range(old.size)), *characters}
    wanted = pieces - len(characters)
    while True:
        merges = _merged(words, wanted, left_out | known, mark)
        made = [*dict.fromkeys(merges.values())]
        if len(made) < wanted:
            raise UserError(
                f"--pieces {pieces}: the text gives {len(made) + len(characters)} pieces that the"
                " vocabulary lacks; ask for fewer, or give more text"
            )
        extended = _appended(old, [*characters, *made], merges if kind == "BPE" else ())
        # WordPiece takes the longest piece that fits, of whatever parts it was made.
        used = {piece for word in _words(extended, old_lines) for piece in word} - known
        if not used:
            return extended
        left_out |= used


def spellings(old: TokenizerVocabulary, pieces: Sequence[str]) -> list[list[int]]:
    """The rows of the old pieces that spell each as it stands; none where one is unknown."""
    tokenizer = old.tokenizer
    if _kind(old) != "WordPiece":
        cuts = [[token.id for token in tokenizer.model.tokenize(piece)] for piece in pieces]
        return [[] if old.unk_id in ids else ids for ids in cuts]
    rows = []
    for piece in pieces:
        ids: list[int] = []
        mark = CONTINUED if piece.startswith(CONTINUED) else ""
        rest = piece.removeprefix(CONTINUED)
        while rest:
            ends = (end for end in range(len(rest), 0, -1))
            found = ((end, tokenizer.token_to_id(mark + rest[:end])) for end in ends)
            end, row = next((one for one in found if one[1] is not None), (len(rest), None))
            if row is None:
                ids = []
                break
            ids.append(row)
            rest, mark = rest[end:], CONTINUED
        rows.append(ids)
    return rows


def _merged(
    words: Mapping[Word, int], wanted: int, left_out: Collection[str], mark: str
) -> dict[Pair, str]:
    """{pair: piece}, in order, until `wanted` pieces are made or no pair stands twice. A piece that
    old pieces make in another way is among those `left_out`. mark: of pieces within a word."""
    cuts, counts = [*words], [*words.values()]
    total: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for number, (cut, count) in enumerate(zip(cuts, counts, strict=True)):
        for pair in itertools.pairwise(cut):
            total[pair] += count
            where[pair].add(number)
    heap = [(-count, pair) for pair, count in total.items()]
    heapq.heapify(heap)
    found: dict[Pair, str] = {}
    made: set[str] = set()
    while heap and len(made) < wanted:
        count, pair = heapq.heappop(heap)
        piece = _joined(*pair, mark)
        # Of an entry whose count has changed since there is a newer one.
        if -count != total[pair] or piece in left_out:
            continue
        if count > -2:
            break
        found[pair] = piece
        made.add(piece)
        changed = set()
        for number in sorted(where[pair]):
            before = cuts[number]
            cuts[number] = _joined_in(before, pair, piece)
            for sign, cut in ((-1, before), (1, cuts[number])):
                for one in itertools.pairwise(cut):
                    total[one] += sign * counts[number]
                    where[one].add(number)
                    changed.add(one)
        for one in changed - {pair}:
            heapq.heappush(heap, (-total[one], one))
    return found


def _joined(first: str, second: str, mark: str) -> str:
    return first + second.removeprefix(mark)


def _joined_in(cut: Word, pair: Pair, piece: str) -> Word:
    joined: list[str] = []
    place = 0
    while place < len(cut):
        if cut[place : place + 2] == pair:
            joined.append(piece)
            place += 2
        else:
            joined.append(cut[place])
            place += 1
    return tuple(joined)


def _lacking(old: TokenizerVocabulary, lines: Iterable[str], coverage: float) -> list[str]:
    """Pieces of one character that the text needs, by frequency; of WordPiece one at a word's begin
    and one within."""
    counts: Counter[str] = Counter()
    cuts_words = old.tokenizer.pre_tokenizer
    for line in lines:
        text = old.normalized(line)
        # Where words are cut, bytes become the characters that stand for them.
        words = cuts_words.pre_tokenize_str(text) if cuts_words else [(text, None)]
        for word, _ in words:
            counts.update("".join(word.split()))
    marks = ("", CONTINUED) if _kind(old) == "WordPiece" else ("",)
    covered = coverage * counts.total()
    pieces = []
    for character, count in counts.most_common():
        if covered <= 0:
            break
        covered -= count
        pieces += [mark + character for mark in marks]
    return [piece for piece in pieces if old.tokenizer.token_to_id(piece) is None]


def _words(vocabulary: TokenizerVocabulary, lines: Sequence[str]) -> Counter[Word]:
    """How often each word of the text stands there, as its pieces; added tokens, unknown ones and
    bytes part words."""
    counts: Counter[Word] = Counter()
    known = vocabulary.tokenizer.get_vocab(with_added_tokens=False)
    added = {token.content for token in vocabulary.tokenizer.get_added_tokens_decoder().values()}
    joined = known.keys() - BYTES - added - {vocabulary.special["unk"]}
    opens = MARKERS.values()
    for encoding in vocabulary.tokenizer.encode_batch(list(lines), add_special_tokens=False):
        word: list[str] = []
        number = None
        for piece, of_piece in zip(encoding.tokens, encoding.word_ids, strict=True):
            # A tokenizer without a step that cuts words marks where they begin.
            if of_piece != number or piece[0] in opens or piece not in joined:
                counts[tuple(word)] += 1
                word = []
            number = of_piece
            if piece in joined:
                word.append(piece)
        counts[tuple(word)] += 1
    return counts


def _kind(vocabulary: TokenizerVocabulary) -> str:
    return type(vocabulary.tokenizer.model).__name__


def _appended(
    old: TokenizerVocabulary, pieces: Sequence[str], merges: Iterable[Pair]
) -> TokenizerVocabulary:
    config = json.loads(old.content)
    model = config["model"]
    # An added token keeps its id only among the model's own pieces, or as the last of all.
    model["vocab"] |= {one["content"]: one["id"] for one in config.get("added_tokens") or ()}
    model["vocab"] |= {piece: old.size + i for i, piece in enumerate(pieces)}
    # Old files write a pair as one word, with a space between.
    as_word = isinstance((model.get("merges") or [[]])[0], str)
    for pair in merges:
        model["merges"].append(" ".join(pair) if as_word else list(pair))
    content = json.dumps(config, ensure_ascii=False).encode()
    return TokenizerVocabulary(content, old.special)

"""A small vocabulary of XLM's byte pair codes, learnt from a few lines, in the files of XLM's own
code and in those of transformers."""

import collections
import json
import unicodedata

import sacremoses

from xlingjax.data.vocabulary.sentencepiece import XLM_SPECIAL_PIECES


def words_of(lines, fold):
    moses = sacremoses.MosesTokenizer(lang="en")
    words = (word for line in lines for word in moses.tokenize(line, escape=False))
    return collections.Counter(filter(None, (folded(word) if fold else word for word in words)))


def folded(word):
    return "".join(
        c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn"
    )


def learnt(counts, merges):
    """[(a, b, count)]: the pair of pieces that is the most frequent, again and again (Sennrich et
    al. 2016)."""
    cut, found = {word: [*word[:-1], f"{word[-1]}</w>"] for word in counts}, []
    for _ in range(merges):
        pairs = collections.Counter()
        for word, pieces in cut.items():
            for pair in zip(pieces, pieces[1:], strict=False):
                pairs[pair] += counts[word]
        if not pairs:
            break
        best = max(sorted(pairs), key=pairs.__getitem__)
        found.append((*best, pairs[best]))
        for word, pieces in cut.items():
            cut[word] = merged(pieces, best)
    return found, cut


def merged(pieces, pair):
    made, i = [], 0
    while i < len(pieces):
        both = tuple(pieces[i : i + 2]) == pair
        made.append("".join(pair) if both else pieces[i])
        i += 1 + both
    return made


def write(folder, lines, merges=150, fold=True, without="", suffix=""):
    """codes and vocab as fastBPE writes them, vocab.json and merges.txt as transformers has them.
    without: pieces with one of these characters are in the codes alone. Returns how many pieces
    there are, special ones included.
    """
    counts = words_of(lines, fold)
    pairs, cut = learnt(counts, merges)
    pieces = collections.Counter()
    for word, own in cut.items():
        for piece in own:
            pieces[piece] += counts[word]
        pieces.update([*word[:-1], f"{word[-1]}</w>"])
    kept = [
        (piece, n)
        for piece, n in pieces.most_common()
        if not set(without) & set(piece.removesuffix("</w>"))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    own = [(p.removesuffix("</w>") if p.endswith("</w>") else f"{p}@@", n) for p, n in kept]
    codes, vocab = folder / f"codes{suffix}", folder / f"vocab{suffix}"
    codes.write_text("".join(f"{a} {b} {n}\n" for a, b, n in pairs), encoding="utf-8")
    vocab.write_text("".join(f"{word} {n}\n" for word, n in own), encoding="utf-8")
    names = [*XLM_SPECIAL_PIECES, *(piece for piece, _ in kept)]
    (folder / "vocab.json").write_text(
        json.dumps({p: i for i, p in enumerate(names)}), encoding="utf-8"
    )
    (folder / "merges.txt").write_text(
        "".join(f"{a} {b} {n}\n" for a, b, n in pairs), encoding="utf-8"
    )
    config = {"tokenizer_class": "XLMTokenizer", "do_lowercase_and_remove_accent": fold}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(names)

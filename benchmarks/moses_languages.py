"""How often the words of Moses's English rules, which XLM's byte pair codes are given here, differ
from those of the language's own rules.

    python -m benchmarks.moses_languages DATA [--sentences 300]

DATA: a folder of one folder of .txt files per language. Prints Markdown: share of the sentences,
and of the words.
"""

import argparse
import difflib
from pathlib import Path

import sacremoses


def sentences(folder: Path, count: int) -> list[str]:
    """Evenly spaced over all files."""
    lines = []
    for file in sorted(folder.glob("*.txt")):
        lines += filter(None, file.read_text("utf-8").splitlines())
    return lines[:: max(1, len(lines) // count)][:count]


def differing(text: list[str], language: str) -> tuple[float, float]:
    """Of sentences with another word, of words of the own rules that the English ones do not make,
    in percent."""
    normalizer = sacremoses.MosesPunctNormalizer(lang="en", pre_replace_unicode_punct=True)
    english, own = (sacremoses.MosesTokenizer(lang=code) for code in ("en", language))
    others, words, missing = 0, 0, 0
    for line in map(normalizer.normalize, text):
        theirs, made = (own.tokenize(line, escape=False), english.tokenize(line, escape=False))
        same = sum(
            block.size
            for block in difflib.SequenceMatcher(
                None, theirs, made, autojunk=False
            ).get_matching_blocks()
        )
        others += theirs != made
        words, missing = words + len(theirs), missing + len(theirs) - same
    return 100 * others / len(text), 100 * missing / max(words, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--sentences", type=int, default=300)
    args = parser.parse_args()
    print("| | sentences that differ | words that differ |\n|---|---|---|")
    for folder in sorted(path for path in args.data.iterdir() if path.is_dir()):
        of_sentences, of_words = differing(sentences(folder, args.sentences), folder.name)
        print(f"| {folder.name} | {of_sentences:.0f} % | {of_words:.1f} % |")


if __name__ == "__main__":
    main()

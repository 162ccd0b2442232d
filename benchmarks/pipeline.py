"""Tokens of text that a core makes batches of in a second, by objective and number of languages:
rows drawn, read and masked, no model.

python -m benchmarks.pipeline [--languages 1 15 100] [--batches 60] [--same_language]
"""

import argparse
import itertools
import json
import os
import string
import tempfile
import time
from pathlib import Path

import numpy as np

from xlingjax.data.batches.loader import BatchSettings, file_batches
from xlingjax.data.sampling import Sampling
from xlingjax.data.text.names import is_language_code
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.preprocessors.ernie_m import BtmlmFeatures
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.translation import DenoisingFeatures
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures

WORDS = 3000
NOISE = Noise(infill=0.2, poisson=3.0, shuffle=3.0, drop=0.1, mask=0.1)


def cases(languages: list[str]) -> list[tuple]:
    """(name, features, rows, tokens of a row)."""
    return [
        ("mlm 64x128", MlmFeatures(), 64, 128),
        ("mlm 16x512", MlmFeatures(), 16, 512),
        ("tlm 32x256", TlmFeatures(), 32, 256),
        ("btmlm 32x256", BtmlmFeatures(targets=((0, 0.5), (1, 0.5))), 32, 256),
        ("xdae 16x512", DenoisingFeatures(NOISE, languages=tuple(languages)), 16, 512),
    ]


def write_text(root: Path, codes: list[str], lines: int) -> None:
    """Words by Zipf's law: text of each language in documents, and pairs with English."""
    rng = np.random.default_rng(0)
    letters = list("abdefgiklmnoprstuvz")
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(WORDS)]
    shares = 1 / np.arange(1, WORDS + 1)
    shares /= shares.sum()

    def text(count: int, document: int = 0) -> str:
        drawn = rng.choice(words, (count, 15), p=shares)
        ends = rng.integers(5, 16, count)
        made = []
        for number, (sentence, end) in enumerate(zip(drawn, ends, strict=True)):
            made.append(" ".join(sentence[:end]))
            if document and number % document == document - 1:
                made.append("")
        return "\n".join(made) + "\n"

    for code in codes:
        folder = root / "mono" / code
        folder.mkdir(parents=True)
        (folder / "text.txt").write_text(text(lines, 12))
        (root / "pairs").mkdir(exist_ok=True)
        first, second = sorted(("en", code))
        if first != second:
            for side in (first, second):
                (root / "pairs" / f"{first}-{second}.{side}").write_text(text(lines // 2))


def measure(
    languages: tuple[int, ...] = (1,), batches: int = 60, same_language: bool = False
) -> str:
    """JSON: tokens per second of processor time (of all threads), the best of three times."""
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["XLINGJAX_CACHE"] = str(root / "cache")
        two = map("".join, itertools.product(string.ascii_lowercase, repeat=2))
        others = [code for code in two if is_language_code(code) and code != "en"]
        codes = ["en", *others[: max(*languages, 2) - 1]]
        write_text(root, codes, 5000)
        vocabulary = train_vocabulary(root / "vocab", size=8000, mono=str(root / "mono/en/*.txt"))
        for count in languages:
            read = sorted({*codes[:count], *codes[:2]})
            files = {
                "mono": [f"{root}/mono/{code}/*.txt" for code in codes[:count]],
                "parallel": [f"{root}/pairs/*{code}*" for code in read if code != "en"],
            }
            for name, features, rows, length in cases(read):
                sampling = Sampling(same_language=same_language)
                settings = BatchSettings(sampling=sampling, languages=read)
                source = file_batches(features, vocabulary, rows, length, settings, **files)
                for _ in range(10):
                    source.next()
                best = 0.0
                for _ in range(3):
                    begun = time.process_time()
                    tokens = sum(int((source.next()["pack_ids"] > 0).sum()) for _ in range(batches))
                    best = max(best, tokens / (time.process_time() - begun))
                source.close()
                rates[f"{name}, {count} languages"] = best
    return json.dumps(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--languages", type=int, nargs="+", default=[1, 15, 100])
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--same_language", action="store_true", help="one language to a batch")
    args = parser.parse_args()
    rates = json.loads(measure(tuple(args.languages), args.batches, args.same_language))
    for name, tokens in rates.items():
        print(f"{name:<28} {tokens / 1e6:6.2f} M tokens/s")


if __name__ == "__main__":
    main()

"""Sentences a second of `encode` and `evaluate --tasks tatoeba` beside sentence-transformers, of an
imported encoder on one core.

pip install sentence-transformers
xlingjax import FOLDER --to RUN
taskset -c 1 python -m benchmarks.sentences RUN FOLDER TEXT --tatoeba DATA    # FOLDER: the original
"""

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from xlingjax.data.held_out_pairs import lines_of
from xlingjax.inference.run import open_run
from xlingjax.runtime import machine
from xlingjax.workflows.files.encode import encode
from xlingjax.workflows.tasks.measure import Measurement, measure


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """(of the processor, by the clock): the first are what other work on the machine leaves."""
    began = time.process_time(), time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        run()
    return time.process_time() - began[0], time.perf_counter() - began[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("original")
    parser.add_argument("text", help="a sentence a line, in any languages")
    parser.add_argument("--tatoeba", help="a folder of XX-en.XX and XX-en.en, one pair a line")
    parser.add_argument("--languages", nargs="+", default=["de", "zh"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    machine.start()
    torch.set_num_threads(1)
    states = Transformer(args.original, max_seq_length=256)
    pooling = Pooling(states.get_embedding_dimension())
    theirs = SentenceTransformer(modules=[states, pooling], device="cpu")
    layers = open_run(args.run).model.config.layers
    with tempfile.TemporaryDirectory() as folder:
        ours = f"{folder}/vectors.npy"
        lines = lines_of(args.text)
        works = {
            "encode": (
                len(lines),
                lambda: encode(args.run, args.text, "en", ours, layers, "mean"),
                lambda: theirs.encode(lines, batch_size=32),
            )
        }
        if args.tatoeba:
            data = Path(folder, "data", "tatoeba")
            data.mkdir(parents=True)
            stems = [f"{language}-en" for language in args.languages]
            sides = [f"{stem}.{end}" for stem in stems for end in (stem[:-3], "en")]
            for side in sides:
                (data / side).write_bytes(Path(args.tatoeba, side).read_bytes())
            how = Measurement(
                "xtreme", args.run, str(data.parent), f"{folder}/out", ["tatoeba"],
                allow_missing=True, layers=[layers], poolings=["mean"],
            )  # fmt: skip

            def search() -> list[float]:
                found = []
                for pair in zip(sides[::2], sides[1::2], strict=True):
                    texts = [lines_of(str(data / side)) for side in pair]
                    foreign, english = (
                        theirs.encode(text, batch_size=32, normalize_embeddings=True)
                        for text in texts
                    )
                    right = (english @ foreign.T).argmax(1) == np.arange(len(english))
                    found.append(float(right.mean()))
                return found

            count = sum(len(lines_of(str(data / side))) for side in sides)
            works["tatoeba"] = count, lambda: measure(how), search
        for name, (count, *contestants) in works.items():
            first = [seconds(run) for run in contestants]  # compiles
            rounds = [[seconds(run) for run in contestants] for _ in range(args.rounds)]
            for which, contestant in enumerate(("xlingjax", "sentence-transformers")):
                row = {"work": name, "of": contestant, "sentences": count}
                for kind, timed in enumerate(("cpu", "wall")):
                    each = [took[which][kind] for took in rounds]
                    row[f"per_second_{timed}"] = round(count / median(each), 1)
                    row[f"seconds_{timed}"] = [round(took, 1) for took in each]
                    row[f"first_{timed}"] = round(first[which][kind], 1)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

"""XLM-R large, 250 002 pieces and random weights, through `xlingjax import`, `export` and `import`
again: time, and the most memory of each.

    python -m benchmarks.round_trip OUT [--preset xlmr_large] [--unverified]

The folder OUT/hf is made first (2.2 GB). At the end both imports are compared, bit by bit.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from xlingjax.convert.formats.parity import SENTENCES

ROWS = 250_002


def vocabulary_of(folder: Path):
    """A SentencePiece model of as many pieces as XLM-R's: those of a few sentences, and invented
    words."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    from xlingjax.data.vocabulary.sentencepiece import Vocabulary

    stem = str(folder / "few")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4),
        model_prefix=stem,
        vocab_size=300,
        character_coverage=1.0,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    proto = sentencepiece_model_pb2.ModelProto.FromString(Path(stem + ".model").read_bytes())
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    made = ("\u2581q" + "".join(parts) for parts in itertools.product(syllables, repeat=3))
    lowest = min(piece.score for piece in proto.pieces)
    for piece in itertools.islice(made, ROWS - 2 - len(proto.pieces)):
        proto.pieces.add(piece=piece, score=lowest)
    return Vocabulary(proto.SerializeToString(), "xlmr")


def make(folder: Path, name: str) -> None:
    """The Hugging Face folder, in another process so that its memory is not counted."""
    import numpy as np
    from safetensors.numpy import save_file

    from xlingjax.convert.formats.names import places
    from xlingjax.convert.formats.tokenizer_json import tokenizer_files
    from xlingjax.convert.formats.xlm_roberta import XLM_ROBERTA
    from xlingjax.model.build import build_model
    from xlingjax.model.config import preset

    partial = folder.with_name("hf.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    vocabulary, config = vocabulary_of(partial), preset(name)
    found, _ = places(XLM_ROBERTA.written_names(config), config, build_model(config).abstract())
    rng = np.random.default_rng(0)
    tensors = {}
    for place in found:
        for theirs in place.theirs:
            values = rng.normal(0, 0.05, place.shape)
            tensors[theirs] = values.astype(np.float32)
    XLM_ROBERTA.unfold(tensors, config, vocabulary.pad_id)
    save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
    for file, content in tokenizer_files(vocabulary, 512).items():
        (partial / file).write_bytes(content)
    (partial / "config.json").write_text(json.dumps(XLM_ROBERTA.described(config, vocabulary)))
    partial.rename(folder)


def measured(*line: object) -> tuple[float, float]:
    """(seconds, GiB at most) of an `xlingjax` process, which must end well."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "xlingjax", *map(str, line)])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(
            f"xlingjax {' '.join(map(str, line))} ended with {os.waitstatus_to_exitcode(status)}"
        )
    return time.perf_counter() - began, used.ru_maxrss / 2**20


def same(a: Path, b: Path) -> bool:
    import jax
    import numpy as np

    from xlingjax.inference.run import open_run

    first, second = open_run(a).params, open_run(b).params
    return all(
        jax.tree.leaves(jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), first, second))
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="xlmr_large")
    parser.add_argument("--unverified", action="store_true")
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    hf, first, back, again = (args.out / name for name in ("hf", "imported", "exported", "again"))
    if args.make:
        return make(hf, args.preset)
    if not hf.is_dir():
        line = [
            sys.executable,
            "-m",
            "benchmarks.round_trip",
            args.out,
            "--preset",
            args.preset,
            "--make",
        ]
        subprocess.run(line, check=True)
    for folder in (first, back, again):
        shutil.rmtree(folder, ignore_errors=True)
    more = ["--unverified"] * args.unverified
    rows = [
        ("import", *measured("import", hf, "--to", first, *more)),
        ("export", *measured("export", first, "--to", back, *more)),
        ("import", *measured("import", back, "--to", again, *more)),
    ]
    how = "compared with transformers"
    if args.unverified:
        how = "unverified"
    print(f"| {args.preset}, {how} | seconds | GiB at most |")
    print("|---|---|---|")
    for name, seconds, most in rows:
        print(f"| {name} | {seconds:.0f} | {most:.1f} |")
    print(f"the same bits: {same(first, again)}")


if __name__ == "__main__":
    main()

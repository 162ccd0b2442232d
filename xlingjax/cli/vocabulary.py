"""What `xlingjax vocab` and its verbs do."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from xlingjax.errors import UserError


def vocab(args: Namespace) -> int:
    from xlingjax.data.vocabulary.training import format_report, train_vocabulary

    if not args.output:
        raise UserError("the following arguments are required: --output (see xlingjax vocab --help)")
    train_vocabulary(
        args.output,
        mono=args.mono,
        parallel=args.parallel,
        size=args.size,
        alpha=args.alpha,
        sentences=args.sentences,
        character_coverage=args.character_coverage,
        model_type=args.model_type,
        byte_fallback=args.byte_fallback,
        normalization=args.normalization,
        seed=args.seed,
    )
    report = json.loads((Path(args.output) / "vocab.json").read_text(encoding="utf-8"))
    print(format_report(report["languages"]))
    print(f"vocabulary in {args.output}: {report['size']} pieces")
    return 0


def extend(args: Namespace) -> int:
    from xlingjax.convert.vocabulary import extend as write

    print(
        write(
            args.source, args.output, mono=args.mono, parallel=args.parallel, pieces=args.pieces,
            old_mono=args.old_mono, initialise=args.initialise, seed=args.seed, alpha=args.alpha,
            sentences=args.sentences, character_coverage=args.character_coverage,
        )
    )  # fmt: skip
    return 0


def trim(args: Namespace) -> int:
    from xlingjax.convert.vocabulary import trim as write

    print(
        write(
            args.source, args.output, mono=args.mono, parallel=args.parallel, min_count=args.keep_min_count,
            size=args.size, characters=not args.drop_characters,
        )
    )  # fmt: skip
    return 0


def transplant(args: Namespace) -> int:
    from xlingjax.convert.vocabulary import transplant as write

    print(
        write(
            args.source, args.output, args.vocabulary, mono=args.mono, parallel=args.parallel,
            initialise=args.initialise, seed=args.seed,
        )
    )  # fmt: skip
    return 0


VERBS: dict[str, Callable[[Namespace], int]] = {
    "vocab": vocab,
    "vocab extend": extend,
    "vocab trim": trim,
    "vocab transplant": transplant,
}

"""What the verbs about benchmarks do."""

import sys
from argparse import Namespace
from collections.abc import Callable


def score(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.evaluation.scoring import footnotes, score_files, score_table, write_scores
    from xlingjax.tasks import suite_tasks

    told = score_files(suite_tasks(args.suite), args.predictions, args.gold, args.split, args.allow_missing)
    title = f"{args.suite}, {args.split}: {args.predictions}"
    Console(width=None if sys.stdout.isatty() else 160).print(score_table(told, title))
    for line in footnotes(told):
        print(line)
    if args.output:
        told = {"suite": args.suite, "predictions": args.predictions, "gold": args.gold, **told}
        print(f"scores: {write_scores(told, args.output)}")
    return 0


VERBS: dict[str, Callable[[Namespace], int]] = {"score": score}

"""The verbs that make a trained model of another one: imported, exported, averaged, with cross-attention or without."""

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Iterable
from typing import Any

from xlingjax.errors import UserError


def require_unread(args: Namespace, names: tuple[str, ...], why: str) -> None:
    """Raises UserError where one of these options is given."""
    flags = {"run": "run", "source": "--from", "output": "--to"} if hasattr(args, "data") else {"run": "run"}
    if given := [flags.get(name, f"--{name}") for name in names if getattr(args, name) is not None]:
        raise UserError(f"{', '.join(given)}: {why}; leave it out")


def sentences_kept(workdir: str, init_from: Any, evaluators: Iterable[Any]) -> dict[str, Any]:
    """{"sentences": how sentence vectors are made} of the run in `workdir`, if it goes on, else of the one that
    pretraining starts from; {}: it does not tell. Says where retrieval is measured without their prefix."""
    from xlingjax.evaluation.retrieval import RetrievalProbe
    from xlingjax.inference.sentences import sentences_of
    from xlingjax.training.run_record import read_run_record, run_and_checkpoint

    runs = [workdir, init_from] if isinstance(init_from, str) else [workdir]
    records = [read_run_record(run) for run in runs if (run_and_checkpoint(run)[0] / "run.json").is_file()]
    own = sentences_of(records[0]) if records else None
    if own is None:
        return {}
    if own.prefix and any(isinstance(probe, RetrievalProbe) and not probe.prefix for probe in evaluators):
        told = f"retrieval is measured without the prefix {own.prefix!r} of the model's own sentence vectors"
        print(f'{told}; --gin.retrieval.prefix="{own.prefix!r}" sets it')
    return {"sentences": dataclasses.asdict(own)}


def plug(args: Namespace) -> int:
    from xlingjax.convert.cross_attention import plug_in, plug_out

    if args.direction == "out":
        require_unread(args, ("source", "seed"), "only plug in reads this")
        print(plug_out(args.run, args.output))
    else:
        if args.source:
            require_unread(args, ("seed",), "the cross-attention of --source is not drawn")
        print(plug_in(args.run, args.output, args.source, args.seed or 0))
    return 0


def average(args: Namespace) -> int:
    from xlingjax.convert.average import average as write

    print(write(args.run, args.output, args.last, args.steps))
    return 0


def import_(args: Namespace) -> int:
    from xlingjax.convert.import_model import import_model

    print(import_model(args.source, args.output, not args.unverified, args.layer, args.pooling, args.prefix))
    return 0


def export(args: Namespace) -> int:
    from xlingjax.convert.export_model import export_model

    told = (args.language, args.license, args.base)
    print(export_model(args.source, args.output, not args.unverified, *told, head=args.head))
    return 0


MODELS: dict[str, Callable[[Namespace], int]] = {
    "plug": plug,
    "average": average,
    "import": import_,
    "export": export,
}

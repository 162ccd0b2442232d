"""The verbs that make a trained model of another one: imported, exported, averaged, with cross-attention or without."""

from argparse import Namespace
from collections.abc import Callable

from xlingjax.errors import UserError


def require_unread(args: Namespace, names: tuple[str, ...], why: str) -> None:
    """Raises UserError where one of these options is given."""
    flags = {"run": "run", "source": "--from", "output": "--to"} if hasattr(args, "data") else {"run": "run"}
    if given := [flags.get(name, f"--{name}") for name in names if getattr(args, name) is not None]:
        raise UserError(f"{', '.join(given)}: {why}; leave it out")


def plug(args: Namespace) -> int:
    from xlingjax.plug import plug_in, plug_out

    if args.direction == "out":
        require_unread(args, ("source", "seed"), "only plug in reads this")
        print(plug_out(args.run, args.output))
    else:
        if args.source:
            require_unread(args, ("seed",), "the cross-attention of --source is not drawn")
        print(plug_in(args.run, args.output, args.source, args.seed or 0))
    return 0


def average(args: Namespace) -> int:
    from xlingjax.average import average as write

    print(write(args.run, args.output, args.last, args.steps))
    return 0


def import_(args: Namespace) -> int:
    from xlingjax.importing import import_model

    print(import_model(args.source, args.output, not args.unverified))
    return 0


def export(args: Namespace) -> int:
    from xlingjax.exporting import export_model

    told = (args.language, args.license, args.base)
    print(export_model(args.source, args.output, not args.unverified, *told, head=args.head))
    return 0


MODELS: dict[str, Callable[[Namespace], int]] = {
    "plug": plug,
    "average": average,
    "import": import_,
    "export": export,
}

"""The verbs that make a trained model of another one: imported, exported, adapted, averaged, with cross-attention or
without."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError


def require_unread(args: Namespace, names: tuple[str, ...], why: str) -> None:
    """Raises UserError where one of these options is given."""
    if given := [name if name == "run" else f"--{name}" for name in names if getattr(args, name) is not None]:
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

    print(export_model(args.source, args.output, not args.unverified, args.language, args.license, args.base))
    return 0


def adapt(args: Namespace, read_recipe: Callable[..., Any], overrides: Sequence[str]) -> int:
    from xlingjax import verbs
    from xlingjax.adapting import Asked, Tools
    from xlingjax.adapting import adapt as run
    from xlingjax.runtime import start

    asked = Asked(
        args.source, tuple(args.mono), tuple(args.parallel), tuple(args.objectives.replace(",", " ").split()),
        args.hours, args.steps, args.batch, args.length, args.gold, tuple(args.gin_file), tuple(overrides),
    )  # fmt: skip
    start(verbs.runtime(args))

    def at(folder: Path, name: str) -> Namespace:
        return Namespace(**{**vars(args), "workdir": str(folder), "name": name})

    tools = Tools(
        read_recipe,
        lambda folder, recipe: verbs.train(at(folder, "pretrain"), recipe),
        lambda folder, recipe: verbs.evaluate(at(folder, "evaluate"), recipe),
    )
    return run(asked, args.output, tools, not args.unverified, args.license)


MODELS: dict[str, Callable[[Namespace], int]] = {
    "plug": plug,
    "average": average,
    "import": import_,
    "export": export,
}

"""What each verb does, once the command line is parsed. No gin here: a recipe arrives as plain objects.

Each function returns the exit status. Heavy imports stand inside, so that `xlingjax --help` answers at once.
"""

import json
import logging
import os
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

from xlingjax.cli import scores
from xlingjax.cli import vocabulary as verbs_vocabulary
from xlingjax.cli.models import MODELS, require_unread, sentences_kept
from xlingjax.errors import UserError


@dataclass(frozen=True)
class Recipe:
    """A recipe with everything bound: `plan` is train() not yet called, `config` its operative gin configuration."""

    plan: partial
    corpus: Any
    config: str

    @property
    def bound(self) -> dict[str, Any]:
        return self.plan.keywords


def prepare_machine(args: Namespace) -> None:
    """Before JAX starts: libraries that log only errors, and as many CPU devices as asked for."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("absl").setLevel(logging.ERROR)
    if not args.devices:
        return
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", args.devices)
    except RuntimeError:  # JAX runs already, as it does in tests
        if jax.local_device_count() != args.devices:
            raise UserError(
                f"--devices {args.devices}: JAX runs already on {jax.local_device_count()} devices"
            ) from None


def runtime(args: Namespace):
    from xlingjax.runtime.machine import RuntimeConfig

    return RuntimeConfig(
        platform=args.platform or "",
        coordinator=getattr(args, "coordinator", ""),
        num_processes=getattr(args, "num_processes", 0),
        process_id=getattr(args, "process_id", -1),
    )


# --- runs -------------------------------------------------------------------------------------------------------------


def train(args: Namespace, recipe: Recipe) -> int:
    """Both `pretrain` and `finetune`: what differs stands in the recipe."""
    from xlingjax.config.model import check_vocabulary
    from xlingjax.report.negatives import read

    corpus = recipe.corpus
    check_vocabulary(recipe.bound["model"], corpus.vocabulary, corpus.vocabulary_path)
    evaluators = [evaluator for make in recipe.bound.get("evaluators", ()) for evaluator in make()]
    vocabulary = {"vocabulary": os.path.abspath(corpus.vocabulary_path), "vocabulary_sha256": corpus.vocabulary.sha256}
    negatives = {"negatives": read(corpus.negatives)} if corpus.negatives else {}
    kept = sentences_kept(args.workdir, recipe.bound.get("init_from"), evaluators) if args.name == "pretrain" else {}
    objectives, opened = watched(recipe.bound["objectives"])
    result = recipe.plan(
        objectives=objectives,
        workdir=args.workdir,
        evaluators=evaluators,
        runtime=runtime(args),
        extra_config={"verb": args.name, **vocabulary, **negatives, **kept},
        on_start=partial(first_report, args.workdir, opened, corpus.vocabulary),
        files={"config.gin": recipe.config.encode(), **corpus.vocabulary.files()},
    )
    return result.exit_code


def watched(objectives: Sequence[Any]) -> tuple[list[Any], dict[str, tuple[Any, Any]]]:
    """The objectives of a run, and {stage: (objective, source)} of the sources as they are opened: their first batches
    can be looked at without reading the text again."""
    from xlingjax.data.loader import Peekable
    from xlingjax.training.feed import in_stages
    from xlingjax.training.stages import stage_name

    opened: dict[str, tuple[Any, Any]] = {}

    def watch(run: Any, start: int) -> Any:
        @wraps(run.source)  # with its shapes and settings
        def source() -> Any:
            peekable = Peekable(run.source())
            opened[stage_name(run.objective.name, start)] = run.objective, peekable
            return peekable

        return replace(run, source=source)

    return [{start: watch(run, start) for start, run in in_stages(entry).items()} for entry in objectives], opened


def first_report(workdir: str, opened: Mapping[str, tuple[Any, Any]], vocabulary: Any) -> None:
    """report.html before the first step: the schedule, the setting, what will be sampled, what the objectives read."""
    from xlingjax.report.build import build_report
    from xlingjax.report.inspector import first_rows

    folder = Path(workdir)
    if not (folder / "report.html").exists():
        (folder / "rows.html").write_text(first_rows(opened, vocabulary), encoding="utf-8")
        build_report(folder)


def evaluate(args: Namespace, recipe: Recipe) -> int:
    """The recipe's evaluators on the newest checkpoint; values also go to evaluations.jsonl."""
    import jax

    from xlingjax.model.build import build_model
    from xlingjax.model.partition import make_mesh, param_shardings
    from xlingjax.runtime.machine import is_primary, start
    from xlingjax.training.checkpoint import find_checkpoint, load_params
    from xlingjax.training.run_record import run_and_checkpoint
    from xlingjax.training.tracker import finite, scalars

    start(runtime(args))
    checkpoint = find_checkpoint(args.workdir)
    evaluators = [evaluator for make in recipe.bound.get("evaluators", ()) for evaluator in make()]
    if not evaluators:
        raise UserError("the recipe has nothing to evaluate: set HELDOUT_TEXT or HELDOUT_PAIRS")
    mesh = make_mesh(recipe.bound["mesh"])
    encoder = build_model(recipe.bound["model"], mesh)
    abstract = encoder.abstract()
    shardings = param_shardings(mesh, encoder.logical_axes(), abstract)
    abstract = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, shardings)
    params, _ = load_params(checkpoint, abstract, vocabulary=recipe.corpus.vocabulary.sha256)
    step = int(checkpoint.name) if checkpoint.name.isdigit() else 0
    for evaluator in evaluators:
        values = finite(evaluator(encoder, params, step, mesh))
        print(f"step {step}: {evaluator.name}: " + ", ".join(f"{k} {v:.4f}" for k, v in scalars(values).items()))
        if is_primary():
            with open(run_and_checkpoint(args.workdir)[0] / "evaluations.jsonl", "a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"step": step, "name": evaluator.name, "values": values}, ensure_ascii=False) + "\n"
                )
    return 0


def stages_of(recipe: Recipe) -> list[tuple[str, Any]]:
    """Every objective of a recipe at each of its stages, and what that is called."""
    from xlingjax.training.feed import in_stages
    from xlingjax.training.stages import stage_name

    entries = [in_stages(entry) for entry in recipe.bound["objectives"]]
    return [(stage_name(run.objective.name, start), run) for entry in entries for start, run in entry.items()]


def planned_course(recipe: Recipe) -> dict[str, Any]:
    """What run.json would say of the run's schedule. Raises UserError for one that `train` refuses."""
    from xlingjax.training.feed import in_stages
    from xlingjax.training.optimizer import OptimizerConfig
    from xlingjax.training.run_record import schedule_record
    from xlingjax.training.schedule import check

    bound = recipe.bound
    first = [in_stages(entry)[0] for entry in bound["objectives"]]
    weights = {run.objective.name: run.weight for run in first}
    mode, optimizer = bound.get("schedule", "alternate"), bound.get("optimizer", OptimizerConfig())
    check([*weights.values()], mode, bound["steps"])
    return schedule_record(dict(stages_of(recipe)), weights, bound["steps"], mode, optimizer)


def inspect(args: Namespace, recipe: Recipe) -> int:
    from xlingjax.report.inspector import inspect as show
    from xlingjax.report.negatives import read
    from xlingjax.runtime.machine import start

    start(runtime(args))
    tables = read(recipe.corpus.negatives)
    objectives: dict[str, tuple[Any, Any]] = {}
    try:
        for name, run in stages_of(recipe):
            objectives[name] = run.objective, run.source()
        show(
            objectives, recipe.corpus.vocabulary, record=planned_course(recipe), tables=tables, rows=args.rows,
            output=args.output or None,
        )  # fmt: skip
    finally:
        for _, source in objectives.values():
            source.close()
    return 0


def verify(args: Namespace, recipe: Recipe) -> int:
    from rich.console import Console

    from xlingjax.model.build import build_model
    from xlingjax.objectives.verify import table
    from xlingjax.objectives.verify import verify as examine
    from xlingjax.runtime.machine import start

    stages = stages_of(recipe)
    for name, run in stages:
        if not hasattr(run.objective, "evidence"):
            raise UserError(
                f"verify tests pretraining objectives; {name} is fine-tuning and promises nothing of its predictions: "
                "give a recipe of pretraining"
            )
    machine, config = start(runtime(args)), recipe.bound["model"]
    objectives: dict[str, tuple[Any, Any]] = {}
    try:
        for name, run in stages:
            objectives[name] = run.objective, run.source()
        findings = list(examine(objectives, build_model(config), args.rows))
    finally:
        for _, source in objectives.values():
            source.close()
    Console().print(table(findings, f"{config.attention_backend} attention, {config.dtype}, {machine}"))
    return 0 if all(found.verdict == "ok" for found in findings) else 1


def freeze(args: Namespace, recipe: Recipe) -> int:
    """OBJECTIVE.frozen for every objective, and the vocabulary, in one folder: all that training needs elsewhere."""
    from xlingjax.data.frozen import write_frozen
    from xlingjax.runtime.machine import start

    start(runtime(args))
    folder = Path(args.output)
    for name, run in stages_of(recipe):
        source = run.source()
        try:
            path = write_frozen(source, folder / f"{name}.frozen", args.batches)
        finally:
            source.close()
        print(f"{path}: {args.batches} batches, {path.stat().st_size / 2**20:.1f} MiB")
    for name, content in recipe.corpus.vocabulary.files().items():
        (folder / name).write_bytes(content)
    return 0


def bakeoff(args: Namespace, config: Any, read_recipe: Callable[..., Recipe]) -> int:
    from rich.console import Console

    from xlingjax.workflows.bakeoff import run
    from xlingjax.workflows.bakeoff_page import table, write

    arguments = ["--platform", args.platform] if args.platform else []
    arguments += ["--devices", str(args.devices)] if args.devices else []

    def read(line: Sequence[str]) -> str:
        files = [value for flag, value in pairwise(line) if flag == "--gin_file"]
        return read_recipe(files, [word.removeprefix("--gin.") for word in line if word.startswith("--gin.")]).config

    found = run(config, args.workdir, read, arguments=arguments)
    Console(width=240).print(table(found))
    print(f"report: {write(found, Path(args.workdir))}")
    return 0


def table(args: Namespace, config: Any) -> int:
    from xlingjax.workflows.paper_tables import run

    arguments = ["--platform", args.platform] if args.platform else []
    arguments += ["--devices", str(args.devices)] if args.devices else []
    run(config, args.data, args.output, arguments)
    print(scores.show(*config.folders(args.output), output=args.output))
    return 0


def adapt(
    args: Namespace, parse: Callable[..., dict[str, str]], read_recipe: Callable[..., Recipe], overrides: Sequence[str]
) -> int:
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.adapt import Asked, Tools
    from xlingjax.workflows.adapt import adapt as run

    asked = Asked(
        args.source, tuple(args.mono), tuple(args.parallel), tuple(args.objectives.replace(",", " ").split()),
        args.hours, args.steps, args.batch, args.length, args.gold, tuple(args.gin_file), tuple(overrides),
    )  # fmt: skip
    start(runtime(args))

    def at(folder: Path, name: str) -> Namespace:
        return Namespace(**{**vars(args), "workdir": str(folder), "name": name})

    tools = Tools(
        parse,
        read_recipe,
        lambda folder, recipe: train(at(folder, "pretrain"), recipe),
        lambda folder, recipe: evaluate(at(folder, "evaluate"), recipe),
    )
    return run(asked, args.output, tools, not args.unverified, args.language, args.license, args.base)


# --- data -------------------------------------------------------------------------------------------------------------


def tinyworld(args: Namespace) -> int:
    from xlingjax.data.tinyworld import write

    size: Any = args.size
    if "=" in size:
        try:
            size = {name: int(count) for name, count in (entry.split("=") for entry in size.split(","))}
        except ValueError:
            raise UserError(f"--size {size!r}: write demo, full, or counts like mono=2000,pairs=1000") from None
    languages = {
        name: tuple(value.replace(",", " ").split())
        for name in ("languages", "train_languages")
        if (value := getattr(args, name))
    }
    try:
        told = write(Path(args.folder), seed=args.seed, size=size, skew=args.skew, workers=args.workers, **languages)
    except OSError as error:
        raise UserError(f"{args.folder} cannot be written: {error.strerror or error}; choose another folder") from None
    print(f"tinyworld in {args.folder}: {', '.join(told['languages'])}; {len(told['files'])} files")
    return 0


def data(args: Namespace) -> int:
    from xlingjax.data.check import check
    from xlingjax.data.sampling import Sampling
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary

    found = check(
        args.mono,
        args.parallel,
        Vocabulary.load(args.vocabulary) if args.vocabulary else None,
        batch=args.batch,
        length=args.length,
        steps=args.steps,
        sampling=Sampling(alpha=args.alpha),
    )
    print(found.text())
    return 1 if found.errors else 0


# --- looking at a run -------------------------------------------------------------------------------------------------


def report(args: Namespace) -> int:
    from xlingjax.report.build import build_report

    if (made := scores.card(args)) is not None:
        print(made)
        return 0
    (args.workdir,) = args.workdir
    compare = {}
    for entry in args.compare:
        name, equals, path = entry.partition("=")
        compare[name if equals else Path(entry).name] = path if equals else entry
    page = build_report(args.workdir, compare, args.finetuned, args.output or None, args.pictures or None)
    summary = json.loads(page.with_name("report.json").read_text(encoding="utf-8"))["summary"]
    for name, value in summary.items():
        print(f"{name:<36} {shown(value)}")
    print(f"report: {page}")
    return 0


def encode(args: Namespace) -> int:
    from xlingjax.cli import encoders

    how = {"layer": args.layer, "pooling": args.pooling, "prefix": args.prefix}
    print(encoders.encode(args.run, args.input, args.language, args.output, **how))
    return 0


def align(args: Namespace) -> int:
    from xlingjax.cli import encoders

    print(
        encoders.align(
            args.run, args.stem, tuple(args.languages), args.output, layer=args.layer, method=args.method,
            picture=args.picture,
        )
    )  # fmt: skip
    return 0


OF_RUN = ("run", "languages", "files", "layer", "pooling", "prefix", "margin", "threshold")
OF_NEGATIVES = ("parallel", "vocabulary", "steps", "random_share", "seed", "platform")


def mine(args: Namespace) -> int:
    if args.negatives:
        from xlingjax.data.vocabulary.sentencepiece import Vocabulary
        from xlingjax.inference.negatives import NegativesConfig, write_negatives

        require_unread(args, OF_RUN, "mine --negatives reads pairs and no RUN")
        if not args.parallel or not args.vocabulary:
            raise UserError("mine --negatives reads --parallel pairs by a --vocabulary; give both")
        given = {"steps": args.steps, "k": args.neighbours, "random_share": args.random_share, "seed": args.seed}
        config = NegativesConfig(**{name: value for name, value in given.items() if value is not None})
        vocabulary = Vocabulary.load(args.vocabulary)
        write_negatives(args.parallel, vocabulary, Path(args.output), config, runtime=runtime(args))
        return 0
    from xlingjax.cli import encoders

    if not args.run or not args.files or not args.languages:
        raise UserError("mine needs RUN, --files SRC_FILE TGT_FILE and --languages SRC TGT (or --negatives)")
    require_unread(args, OF_NEGATIVES, "only mine --negatives reads this")
    print(
        encoders.mine(
            args.run, tuple(args.files), tuple(args.languages), args.output, layer=args.layer,
            pooling=args.pooling, prefix=args.prefix, k=args.neighbours or 4, margin=args.margin or "ratio",
            threshold=args.threshold,
        )
    )  # fmt: skip
    return 0


def words(args: Namespace) -> int:
    from xlingjax.cli.words import words as measure

    print(measure(args.run, args.dictionary, args.similarity, args.pieces, args.output))
    return 0


OF_DRAWING = ("top_k", "seed")
OF_SEARCH = ("beams", "no_repeat_ngram", "min_length", "max_length", "n_best", "temperature", *OF_DRAWING, "references")


def translate(args: Namespace) -> int:
    """Both `translate` and `generate`: one language may be another, or not."""
    from xlingjax.runtime.machine import start

    language = getattr(args, "language", None)
    source, target = args.source or language, args.to or language
    if target is None:
        raise UserError("generate: which language? Give --language, or --to and --from")
    if args.name == "translate" and source == target:
        raise UserError(f"--from {source} --to {target}: name two languages; within one, `xlingjax generate` writes")
    if args.score:
        require_unread(args, OF_SEARCH, "--score searches for nothing")
    if not args.temperature:
        require_unread(args, OF_DRAWING, "only drawn tokens read this, see --temperature")
    start(runtime(args))
    from xlingjax.cli.translate import Job, write
    from xlingjax.model.decoding import Decoding

    names = ("length_penalty", "no_repeat_ngram", "min_length", "max_length", "n_best", "temperature", "top_k")
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    beams = args.beams or (1 if args.temperature or args.score else 5)
    write(
        Job(
            args.run, source, target, Decoding(beams=beams, **given), args.input, args.output, args.score,
            args.references, args.batch_tokens or 4096, args.truncate, args.seed or 0,
        )
    )  # fmt: skip
    return 0


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(one)}" for name, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def doctor(args: Namespace) -> int:
    from xlingjax.cli.doctor import doctor as examine

    return examine()


VERBS: dict[str, Callable[..., int]] = {
    "pretrain": train,
    "finetune": train,
    "evaluate": evaluate,
    "inspect": inspect,
    "verify": verify,
    "freeze": freeze,
    "tinyworld": tinyworld,
    **verbs_vocabulary.VERBS,
    **scores.VERBS,
    "data": data,
    "report": report,
    "encode": encode,
    "align": align,
    "mine": mine,
    "words": words,
    "translate": translate,
    "generate": translate,
    "doctor": doctor,
    **MODELS,
}

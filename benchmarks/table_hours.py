"""`python -m benchmarks.table_hours`: what the tables of the papers cost, counted from their
recipes without any data: trainings, floating-point operations, hours on one H100.

Trainings by recipes are counted as they are bound (`xlingjax/workflows/tables/flops.py`),
fine-tuning from the published sizes of training sets below. Evaluations, translation and
measurements are not counted.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.flops import decoder_flops_per_token, flops_per_token
from xlingjax.config.gin_files import gin_folder
from xlingjax.config.recipe import Recipe, bindings, read_part, read_recipe
from xlingjax.data.text.sources import split_list
from xlingjax.model.config import ModelConfig, preset
from xlingjax.tasks import task_named
from xlingjax.workflows.tables.flops import H100, UTILISATION, gpu_hours, training_flops
from xlingjax.workflows.tables.jobs import RECIPE, SWEEP, TableJob
from xlingjax.workflows.tables.table import Table
from xlingjax.workflows.tasks.request import FILES, MULTI_TASK, values_of

ENGLISH = {
    "xnli/xnli": 392_702,
    "xtreme/xnli": 392_702,
    "xglue/xnli": 392_702,
    "xtreme/pawsx": 49_401,
    "xglue/pawsx": 49_401,
    "xtreme/udpos": 21_253,
    "xtreme/panx": 20_000,
    "xtreme/xquad": 87_599,
    "xtreme/mlqa": 87_599,
    "xglue/mlqa": 87_599,
    "xtreme/tydiqa": 3_696,
    "xglue/ner": 14_987,
    "xglue/pos": 25_376,
    "xglue/nc": 100_000,
    "xglue/qadsm": 100_000,
    "xglue/wpr": 99_997,
    "xglue/qam": 100_000,
    "xglue/qg": 100_000,
    "xglue/ntg": 300_000,
    "applications/conll": 14_041,
    "applications/xqa": 1_000_000,
    "applications/summarisation": 500_000,
}
"""Training examples in English, as released; of XQA and of summaries, which are not, about what
their papers say ("millions"; Gigaword's 500 thousand)."""
TRANSLATED = {
    "xnli/xnli": 14,
    "xtreme/xnli": 14,
    "xtreme/pawsx": 6,
    "xtreme/xquad": 10,
    "xtreme/mlqa": 6,
    "xtreme/tydiqa": 8,
    "xtreme/udpos": 32,
    "xtreme/panx": 39,
    "applications/xqa": 2,
}
"""Languages that the training set is translated into."""
OF_A_RUN = "ernie_m_5_tuned"
"""Counted by `xlingjax table --dry-run`, which sees that run."""
ALL_GOLD = {
    # 14,041 in English, 12,152 in German, 8,323 in Spanish, 15,806 in Dutch.
    "applications/conll": 14_041 + 12_152 + 8_323 + 15_806,
    # As in English, in each of five languages.
    "xglue/ntg": 5 * 300_000,
}
"""Training examples in all languages that have a set of their own."""
PRESETS = {
    "ernie_m": {"base": "xlmr_base", "large": "xlmr_large"},
    "ernie_m_5": {"ernie_m": "xlmr_large"},
    "ernie_m_7": {"ernie_m": "xlmr_large", "xlmr": "xlmr_large"},
    "ernie_m_13": {"ernie_m_15": "xlmr_base"},
    "unicoder": {"unicoder": "xlm_15"},
    "veco": {"veco": "xlmr_large"},
    "xglue": {"unicoder": "xlmr_base"},
    "xglue_4_generation": {"xdae": "xdae", "xfnp": "xfnp"},
    "xglue_6": {"xdae": "xdae"},
    "xglue_8": {"xdae": "xdae"},
    "xglue_12": {"xdae": "xdae"},
    "xlm": {"xlm": "xlm_15"},
}
"""Table, or paper -> the encoders that its rows start from, one for each row of the paper's own
model, and their shape."""
ENCODERS = (
    "xlm_clm",
    "xlm_15_mlm",
    "xlm_15_mlm_tlm",
    "unicoder",
    "xlmr_base",
    "xlmr_large",
    "unicoder_lc",
    "xdae",
    "xfnp",
    "veco_large",
    "ernie_m_base",
    "ernie_m_15",
    "ernie_m_large",
)
"""Recipes of what tables start from."""
JOINT = 60_000
"""Pieces of a vocabulary that a recipe would look for in files: XLM's of two languages."""
OF_NEPALI = 100_000


@dataclass(frozen=True)
class Cost:
    encoders: int
    """Encoders that are trained by recipes."""
    rows: int
    """Rows that are."""
    cells: int
    """Fine-tunings: settings of a grid x seeds x languages."""
    commands: int
    """Commands after a training."""
    pretraining: float
    """Floating-point operations of the trainings by recipes."""
    finetuning: float


def required(path: Path) -> list[str]:
    """The macros that a table leaves to its user."""
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^([A-Z_]+) = (?:%gin\.REQUIRED|None)\b", text, re.MULTILINE)


def table_at(path: Path) -> Table:
    """The table, everything given."""
    overrides = [f"{name}=given/{name.lower()}" for name in required(path)]
    if "\nENCODERS" not in path.read_text(encoding="utf-8"):
        runs = {name: f"given/{name}" for name in shapes_of(path.stem)}
        overrides.append(f"ENCODERS={runs!r}")
    return read_part("table", Table, [str(path)], overrides)


def shapes_of(name: str) -> Mapping[str, str]:
    """{encoder: its shape} of those that a table is given."""
    paper = name.rsplit("_", 1)[0]
    return PRESETS.get(name) or PRESETS.get(paper, {})


def cost(path: Path) -> Cost:
    """What a table computes."""
    table = table_at(path)
    models: dict[str, ModelConfig] = {}
    for encoder, shape in shapes_of(path.stem).items():
        models[encoder] = model_of(shape)
    jobs = table.jobs("data", "output")
    pieces = JOINT
    if path.stem == "xlm_4":
        pieces = OF_NEPALI
    pretraining = 0.0
    finetuning = 0.0
    cells = 0
    for job in jobs:
        if job.kind == RECIPE:
            recipe = bound(job, pieces)
            pretraining += training_flops(recipe)
            if not job.row:
                models[job.encoder] = recipe.bound["model"]
        elif job.kind == SWEEP:
            # What is given and not trained has the shape of what starts from it.
            model = models.get(job.encoder)
            if model is None:
                model = next(iter(models.values()))
            row = table.rows[job.row]
            for flops in trainings(row, job, model):
                cells += table.seeds
                finetuning += table.seeds * flops
    trained = [job for job in jobs if job.kind == RECIPE]
    rows = sum(bool(job.row) for job in trained)
    commands = sum(job.printed is not None for job in jobs)
    return Cost(len(trained) - rows, rows, cells, commands, pretraining, finetuning)


def model_of(shape: str) -> ModelConfig:
    if shape == "xdae":
        files = ["recipes/xdae.gin"]
        given = ["MONO=m", "VOCABULARY=v", "INIT_ENCODER=given/xlm"]
        return read_recipe(files, given).bound["model"]
    if shape == "xfnp":
        files = ["recipes/xfnp.gin"]
        given = ["MONO=m", "VOCABULARY=v", "LANGUAGES=de en"]
        return read_recipe(files, given).bound["model"]
    words = {"xlm_15": 95_000, "xfnp": 250_012}.get(shape, 250_002)
    return preset(shape, vocab_size=words)


def bound(job: TableJob, pieces: int) -> Recipe:
    """The recipe of a training, with sizes in place of what files would tell."""
    files, overrides = job.recipe()
    macros = bindings(files, overrides)
    if macros.get("VOCABULARY_SIZE") == "None":
        overrides = [word for word in overrides if not word.startswith("VOCABULARY_SIZE=")]
        overrides.append(f"VOCABULARY_SIZE={pieces}")
    if macros["LANGUAGES"] == "None":
        overrides.append("LANGUAGES=de en")
    return read_recipe(files, overrides)


def trainings(row: Mapping[str, Any], job: TableJob, model: ModelConfig) -> Iterator[float]:
    """The floating-point operations of each training of a sweep."""
    grid = row.get("grid", {})
    settings = itertools.product(*(one.split(",") for one in grid.values()))
    for values in settings:
        chosen = dict(zip(grid, values, strict=True))
        for examples in variants(row):
            yield training(row, job, model, chosen, examples)


def variants(row: Mapping[str, Any]) -> list[int]:
    """Training examples of each variant of a row's strategy."""
    tasks = split_list(row["task"])
    strategy = row.get("strategy", "transfer")
    task = tasks[0]
    english = ENGLISH[task]
    if strategy == MULTI_TASK:
        english = sum(ENGLISH[one] for one in tasks)
    if strategy == "all_gold":
        return [ALL_GOLD[task]]
    if strategy in ("translate_train", "pivot"):
        languages = split_list(row.get("languages"))
        count = len(languages)
        if not languages and task == "xglue/ntg":
            count = 5
        elif not languages:
            count = TRANSLATED[task] + (strategy == "pivot")
        return [english] * count
    if strategy == "plug_in_teacher":
        # The teacher first, from English.
        return [english, 2 * TRANSLATED[task] * english]
    if strategy in ("multi_language", "plug_in"):
        sets = split_list(row.get("languages"))
        if sets:
            return [english * (1 + one.count("+")) for one in sets]
        translated = TRANSLATED[task] * english
        if strategy == "plug_in":
            # Each translation with the English one beside it.
            return [2 * translated]
        return [english + translated]
    return [english]


def training(
    row: Mapping[str, Any],
    job: TableJob,
    model: ModelConfig,
    chosen: Mapping[str, str],
    examples: int,
) -> float:
    files, overrides = job.recipe()
    values = {
        "INIT_FROM": "given",
        "TASK": split_list(row["task"])[0],
        "DATA": "data",
        "TRAIN_STEPS": "1",
        **chosen,
    }
    placed = [f"{name}={value}" for name, value in values.items()]
    read = values_of(bindings([*FILES, *files], [*overrides, *placed]))
    length = read["LENGTH"]
    steps = math.ceil(read["EPOCHS"] * examples / read["BATCH"])
    if task_named(values["TASK"]).kind == "generation":
        columns = 2 * length
        per_token = decoder_flops_per_token(model, length, length)
    else:
        columns = length
        per_token = flops_per_token(model, length, 0.0)
    return steps * read["BATCH"] * columns * per_token


def recipe_flops(name: str) -> float:
    file = f"recipes/{name}.gin"
    path = gin_folder() / file
    text = path.read_text(encoding="utf-8")
    given = ["MONO=given", "VOCABULARY=given", "LANGUAGES=de en"]
    for macro in re.findall(r"^([A-Z_]+) = %gin", text, re.MULTILINE):
        given.append(f"{macro}=given")
    if "ernie_m" in name:
        given += ["INIT_FROM=given", "PARALLEL=given"]
    return training_flops(read_recipe([file], given))


def shown(hours: float) -> str:
    if hours < 10:
        return f"{hours:.1f}"
    return f"{hours:,.0f}"


def main() -> None:
    print(f"One H100, {UTILISATION:.0%} of {H100 / 1e12:.0f} TFLOP/s in bfloat16.\n")
    head = "table | encoders trained | rows trained | fine-tunings | commands"
    head += " | pretraining, FLOPs | fine-tuning, FLOPs | H100-hours"
    print(f"| {head} |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for path in sorted((gin_folder() / "recipes" / "tables").glob("*.gin")):
        # Its model is that of the run that it is given.
        if path.stem == OF_A_RUN:
            continue
        one = cost(path)
        hours = gpu_hours(one.pretraining + one.finetuning)
        cells = [
            path.stem,
            str(one.encoders),
            str(one.rows),
            str(one.cells),
            str(one.commands),
            f"{one.pretraining:.2g}",
            f"{one.finetuning:.2g}",
            shown(hours),
        ]
        print(f"| {' | '.join(cells)} |")
    print("\n| encoder | FLOPs | H100-hours |\n|---|--:|--:|")
    for name in ENCODERS:
        flops = recipe_flops(name)
        print(f"| {name} | {flops:.2g} | {shown(gpu_hours(flops))} |")


if __name__ == "__main__":
    main()

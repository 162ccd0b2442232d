"""The runs behind the papers' tables."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import table_hours
from xlingjax.cli.main import parser
from xlingjax.config import gin_files
from xlingjax.config import recipe as recipes
from xlingjax.data.labelled.task import part_of
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.partition import make_mesh
from xlingjax.training.feed import Feed
from xlingjax.workflows.tables import jobs as table_jobs
from xlingjax.workflows.tables import run
from xlingjax.workflows.tables.table import Table

TABLES = sorted((gin_files.gin_folder() / "recipes" / "tables").glob("*.gin"))
ENCODERS = {name: f"runs/{name}" for name in ("base", "large", "xdae", "xfnp", "veco")}
ROW = {"task": "xnli/xnli", "settings": ["finetuning/veco.gin", "LENGTH=64"]}
MERGED = {"task": ["xglue/xnli", "xglue/pawsx"], "strategy": "multi_task"}
TATOEBA = {"task": "xtreme/tatoeba"}


def read(name, encoders=ENCODERS):
    path = gin_files.gin_folder() / f"recipes/tables/{name}.gin"
    given = [f"{macro}=given/{macro.lower()}" for macro in table_hours.required(path)]
    if "\nENCODERS" not in path.read_text("utf-8"):
        given.append(f"ENCODERS={json.dumps(encoders)}")
    return recipes.read_part("table", Table, [str(path)], given)


def test_the_papers_rows():
    assert read("ernie_m_1").seeds == read("ernie_m_2").seeds == 5
    tasks = [split_list(row["task"]) for row in read("veco_2").rows.values()]
    assert {name.split("/")[1] for names in tasks for name in names} == {
        "xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa", "bucc2018", "tatoeba"
    }  # fmt: skip
    sizes = []
    for number in (4, 6):
        row, *_ = read(f"unicoder_{number}").rows.values()
        sizes.append(Counter(name.count("+") + 1 for name in split_list(row["languages"])))
    assert sizes == [{1: 6, 2: 5, 6: 1, 15: 1}, {1: 1, 2: 14}]
    # Whose papers say so.
    of_xglue = ("4", "4_generation", "6", "7", "8", "9", "11", "12")
    by_mean = {path.stem for path in TABLES if read(path.stem).select == "mean"}
    assert by_mean == {"veco_2", *(f"xglue_{number}" for number in of_xglue)}
    together = read("xglue_9").rows["mt"]["task"]
    assert sorted(together) == [f"xglue/{name}" for name in ("nc", "pawsx", "qadsm", "qam", "xnli")]


TRAINS = [path for path in TABLES if '"recipe":' in path.read_text("utf-8")]
TRAINS = [path for path in TRAINS if path.stem != table_hours.OF_A_RUN]
"""Tables with trainings by recipes, of which none reads the run that it starts from."""
FITTED = set()
"""Mixes and models of all tables that were tried."""


@pytest.mark.long
@pytest.mark.parametrize("path", TRAINS, ids=lambda path: path.stem)
def test_every_recipe_of_a_table_fits_its_shapes(path):
    """All that a training would be refused for before it opens a file."""
    names, kinds = set(), set()
    for job in read(path.stem).jobs("data", "out"):
        assert {*job.needs} <= names, "what comes first stands first"
        names.add(job.name)
        if job.kind == "then":
            assert parser().parse_args(job.line[3:]).name == job.verb
            assert "{" not in str(job.line[3:])
        if job.kind != table_jobs.RECIPE:
            continue
        files, overrides = job.recipe()
        # Those of one kind differ in the names of what they are given.
        kind = (*files, *(re.sub("=given.*|=out.*", "", word) for word in overrides))
        if kind not in kinds:
            bound = table_hours.bound(job, 64_000).bound
            key = repr(bound["objectives"]) + repr(bound["model"])
            if key not in FITTED:
                Feed(bound["objectives"], build_model(bound["model"]), make_mesh(bound["mesh"]), 1)
            FITTED.add(key)
        kinds.add(kind)


def objectives_of(job):
    return [
        run.objective.name
        for entry in table_hours.bound(job, 64_000).bound["objectives"]
        for run in [entry[0] if isinstance(entry, dict) else entry]
        if run.weight
    ]


@pytest.mark.long
def test_ablations_leave_out_what_the_papers_leave_out():
    jobs = {job.name: job for job in read("unicoder_2_ablation").jobs("data", "out")}
    assert {
        name: {*objectives_of(jobs[f"encoder {name}"])}
        for name in ("unicoder", "w_o word recovery", "w_o cross-lingual language model")
    } == {
        "unicoder": {"mlm", "tlm", "clwr", "clpc", "cl_mlm"},
        "w_o word recovery": {"mlm", "tlm", "clpc", "cl_mlm"},
        "w_o cross-lingual language model": {"mlm", "tlm", "clwr", "clpc"},
    }
    assert all(not job.needs for name, job in jobs.items() if name.startswith("encoder"))
    jobs = {job.name: job for job in read("ernie_m_6").jobs("data", "out")}
    wanted = {
        "exp1 MMLM": ["mlm"],
        "exp2 MMLM TLM": ["mlm", "tlm"],
        "exp3 MMLM CAMLM": ["mlm", "camlm"],
        "exp4 MMLM BTMLM CAMLM": ["mlm", "camlm", "btmlm"],
    }
    for name, objectives in wanted.items():
        assert objectives_of(jobs[f"encoder {name}"]) == objectives
        bound = table_hours.bound(jobs[f"encoder {name}"], 64_000).bound
        assert (bound["steps"], bound["init_from"]) == (50_000, "given/init_from")
    jobs = {job.name: job for job in read("veco_5").jobs("data", "out")}
    for name, objectives, plugged in (
        ("xlm mono", ["mlm"], False),
        ("veco mono", ["veco_text"], True),
        ("xlm mono bili", ["mlm", "tlm"], False),
        ("veco mono bili", ["veco_text", "veco"], True),
        ("mbart mono", ["masked_words"], False),
        ("mbart mono bili", ["masked_words", "masked_translation"], False),
    ):
        assert objectives_of(jobs[f"encoder {name}"]) == objectives
        bound = table_hours.bound(jobs[f"encoder {name}"], 64_000).bound
        assert bound["model"].cross_attention == plugged and bound["model"].layers == 6
        assert bound["optimizer"].learning_rate == 3e-4 and bound.get("init_from") is None
        assert jobs[f"{name}, iwslt14 de-en"].needs == (f"encoder {name}",)
        # An encoder-decoder is classified by its decoder (footnote 10).
        assert (f"{name}, xnli, decoder" in jobs) == name.startswith("mbart")
        assert (f"{name}, xnli" in jobs) == (not name.startswith("mbart"))


@pytest.mark.parametrize(
    ("table", "encoders", "rows", "most", "packing"),
    [
        # VECO's table 8; of mBART each side has a row of its own.
        ("veco_5", ("xlm", "veco", "mbart"), (4096, 128), 126, False),
        ("ernie_m_6", ("exp2", "exp3", "exp4"), (2048, 512), 510, True),
    ],
)
def test_encoders_of_an_ablation_read_pairs_alike(table, encoders, rows, most, packing):
    read_pairs = set()
    for job in read(table).jobs("data", "out"):
        bound = {}
        if job.name.startswith("encoder"):
            bound = table_hours.bound(job, 64_000).bound
        for entry in bound.get("objectives", ()):
            source = entry.source
            if "max_pieces" in source.settings:
                read_pairs.add(job.name.split()[1])
                found = [source.settings[name] for name in ("max_pieces", "packing")]
                assert found == [most, packing], job.name
                assert source.shapes["input_ids"] == rows, job.name
    assert read_pairs == set(encoders)


@pytest.mark.long
def test_hours_in_the_documentation_are_those_that_the_command_counts(capsys):
    table_hours.main()
    counted = re.findall(r"^\| (\w+) \|.* ([\d.,]+) \|$", capsys.readouterr().out, re.MULTILINE)
    text = Path("docs/tables.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"`xlingjax table (\w+) .*\| ([\d.,–]+) \|$", text, re.MULTILINE))
    said |= dict(re.findall(r"^\| `(\w+)` \|.*\| ([\d.,]+) \|$", text, re.MULTILINE))
    assert len(counted) == len(said) > 40
    for name, hours in counted:
        # What is measured costs no training.
        assert said[name] == hours or (said[name], hours) == ("–", "0.0"), name


def test_unsupervised_translation_starts_from_each_of_the_papers_grid():
    jobs = [job for job in read("xlm_2").jobs("data", "out") if job.verb == "pretrain" and job.row]
    starts = Counter()
    for job in jobs:
        said = dict(word.split("=", 1) for word in job.recipe()[1])
        donors = [said[f"INIT_{name}"] for name in ("ENCODER", "DECODER")]
        donors.append(said.get("INIT_EMBEDDINGS", "None"))
        pair = job.row.partition(",")[0].replace("-", "_")
        assert {"None"} >= {donor for donor in donors if not donor.endswith(pair)}
        starts[tuple(Path(donor).name[:3] for donor in donors)] += 1
    kinds = ("Non", "clm", "mlm")
    grid = {(a, b, "Non") for a in kinds for b in kinds}
    assert starts == dict.fromkeys(grid | {("Non", "Non", "mlm")}, 3)


def test_what_is_not_given_is_left_out_and_not_trained():
    rows = {
        "mt": {"recipe": "recipes/xlm_mt_ro_en.gin", "settings": ["INIT_ENCODER={mlm}"]},
        "other": {"recipe": "recipes/xlm_clm.gin", "settings": ["MONO={TEXT}"]},
    }
    encoders = {
        "mlm": {"recipe": "recipes/xlm_15_mlm.gin", "settings": ["MONO={NONE}"]},
        "spare": {"recipe": "recipes/xlm_clm.gin"},
    }
    table = Table(rows, encoders, given={"NONE": None, "TEXT": "a b"})
    assert table.left_out() == {"mt": "NONE is not set"}
    (job,) = table.jobs("data", "out")
    words = "pretrain --to out/rows/other/run --gin-file recipes/xlm_clm.gin"
    assert job.line[3:] == [*words.split(), "--gin.MONO=a b"]
    with pytest.raises(UserError, match="no row can be run: NONE is not set"):
        Table({"mt": rows["mt"]}, encoders, given={"NONE": None})


def test_vecos_rows():
    rows = read("veco_2").rows
    assert rows["xnli"]["grid"]["LEARNING_RATE"] == "5e-6,8e-6,1e-5,2e-5,3e-5"
    plugged = {}
    for name, row in rows.items():
        if row.get("strategy", "").startswith("plug_in"):
            plugged[name.partition(",")[0]] = row
    # Table 2's row of VECO, plugged in: all but the retrieval of sentences.
    assert [*plugged] == ["xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa"]
    assert {row["encoders"] for row in plugged.values()} == {"veco"}
    # §5.1: tags of translations are those of a model that was trained on English.
    taught = [name for name, row in plugged.items() if row["strategy"] == "plug_in_teacher"]
    assert taught == ["udpos", "panx"]
    translated = [row for name, row in rows.items() if name.endswith("-all")]
    grids = [row["grid"] for row in (*translated, *plugged.values()) if "grid" in row]
    assert len(translated) == 5 and len(grids) == 11
    assert {grid["LEARNING_RATE"] for grid in grids} == {"5e-6,6e-6,7e-6,8e-6,9e-6"}
    line = read("veco_2").command("veco", "tatoeba", "data", "out")
    assert line[-2:] == ["--layer", "19"]  # index 18 of the layers' outputs


def test_where_translations_lack_rows_nothing_is_chosen_and_dev_is_not_trained_on():
    """TyDiQA's are fewer than its English rows, in their order: which were lost cannot be told."""
    line = read("veco_2").command("veco", "tydiqa, translate-train-all", "data", "out")
    given = dict(
        word.removeprefix("--gin.").split("=", 1) for word in line if word.startswith("--gin.")
    )
    assert "--grid" not in line and line.index("--gin.SELECT='mean'") < line.index(
        '--gin.SELECT="last"'
    )
    assert given["SELECT"] == '"last"' and given["DEV_LANGUAGES"] == '"en"'
    trained, dev = (part_of(given[f"{name}_SPLIT"].strip('"'))[1] for name in ("TRAIN", "DEV"))
    for lost in (
        (),
        range(100),
        range(3400, 3696),
        range(0, 3696, 12),
    ):  # first, last and scattered rows
        rows = [row for row in range(3696) if row not in {*lost}]
        assert not {*rows[trained(len(rows))]} & {*range(3696)[dev(3696)]}


def test_a_row_becomes_a_sweep():
    more = {"strategy": "pivot", "languages": "de fr", "grid": {"BATCH": "16,32", "EPOCHS": "3"}}
    rows = {"Row 1 (x)": ROW | more}
    cell = ("My encoder", "Row 1 (x)", "data", "out")
    line = Table(rows, {"My encoder": "runs/x"}, seeds=3).command(*cell)
    words = "finetune runs/x --task xnli/xnli --data data --to out/my_encoder/row_1_x"
    words += " --strategy pivot --seeds 3 --languages de fr --grid BATCH=16,32 EPOCHS=3"
    own = ["--gin-file", "finetuning/veco.gin", "--gin.LENGTH=64"]
    assert line == [sys.executable, "-m", "xlingjax", *words.split(), *own]
    chosen = Table(rows, {"My encoder": "runs/x"}, select="mean").command(*cell)
    assert chosen[-4:] == ["--gin.SELECT='mean'", *own]
    plain = Table({"x": {"task": "xnli/xnli"}}, {"e": "runs/x"}).command("e", "x", "data", "out")
    assert plain[-4:] == ["--strategy", "transfer", "--seeds", "1"]


def test_several_tasks_and_a_layer_stand_in_the_command():
    table = Table({"mt": MERGED, "layer": TATOEBA | {"layer": 19}}, {"e": "runs/x"})
    line = table.command("e", "mt", "data", "out")
    words = "finetune runs/x --task xglue/xnli xglue/pawsx --data data --to out/e/mt"
    assert line[3:] == f"{words} --strategy multi_task --seeds 1".split()
    line = table.command("e", "layer", "data", "out")
    assert line[3:9] == ["evaluate", "runs/x", "--mixture", "xtreme", "--tasks", "tatoeba"]
    assert parser().parse_args(line[3:]).layer == [19] and "--allow-missing" in line


def test_rows_are_for_their_encoders():
    rows = {"a": ROW, "b": ROW | {"encoders": "large"}, "c": ROW | {"encoders": "base small"}}
    table = Table(rows, {"base": "runs/b", "other": "runs/o"})
    assert table.cells() == [("base", "a"), ("base", "c"), ("other", "a")]
    assert [*table.left_out()] == ["b"]


@pytest.mark.parametrize(
    "row, encoders, message",
    [
        (ROW | {"stratgy": "pivot"}, {"e": "r"}, "row 'x': 'stratgy' is not one of enc"),
        ({"task": "xnli/xnil"}, {"e": "r"}, "no task 'xnli/xnil'; there are xnli/xnli"),
        ({"then": {"a": "rm -r {run}"}}, {"e": "r"}, "row 'x': 'rm' is not one of align"),
        ({"then": {"../a": "words {run}"}}, {"e": "r"}, "'../a' in \"then\" names a file"),
        ({"recipe": "r", "verb": "train"}, {}, "row 'x': \"verb\" is one of pretrain"),
        ({"recipe": "r", "settings": ["MONO={TEXT}"]}, {"e": "r"}, "{TEXT} is not one of e, data"),
        (ROW, {"e": 3}, "encoder 'e': give a run, or"),
        (ROW, {"e": {"recipe": "r", "from": "e"}}, "e from e: none can begin"),
        (ROW, {}, "give {name: pretrained run}"),
        (
            ROW | {"encoders": "large"},
            {"e": "r"},
            "no row can be run: ENCODERS does not name large",
        ),
    ],
)
def test_refusals(row, encoders, message):
    with pytest.raises(UserError, match=message):
        Table({"x": row}, encoders)
    with pytest.raises(UserError, match="would share a folder"):
        Table({"x y": ROW, "x-y": ROW}, {"e": "r"})


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """A sweep is a line in a file; "bad" fails."""
    script = "import sys; a = sys.argv; open(a[1], 'a').write(' '.join(a[2:]) + chr(10));"
    script += "sys.exit(2 * (a[2] == 'bad'))"

    def command(self, encoder, name, data, output):
        return [sys.executable, "-c", script, str(tmp_path / "ran"), name]

    monkeypatch.setattr(Table, "command", command)
    return lambda: (tmp_path / "ran").read_text().splitlines()


def test_sweeps_run_one_after_another_and_a_failure_ends_the_table(commands):
    said = []
    rows = {"one": ROW, "two": ROW | {"encoders": "large"}, "bad": ROW, "three": ROW}
    with pytest.raises(UserError, match="table: e, bad ended with status 2"):
        run.run(Table(rows, {"e": "r"}), "data", "out", ["--platform", "cpu"], said.append)
    shared = "--platform cpu --leave"
    assert commands() == [f"one {shared}", f"bad {shared}"]
    assert said[0] == "left out, since ENCODERS does not name large: two"

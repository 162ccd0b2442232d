"""`xlingjax plan`: on the devices of this machine, whose compiler is here, and what is said without
a compiler. Those of accelerators: tests/test_tpu.py, tests/test_cuda.py."""

import json

import pytest

from xlingjax.cli import main
from xlingjax.config.recipe import read_recipe
from xlingjax.errors import UserError
from xlingjax.model.config import preset
from xlingjax.model.partition import MeshConfig
from xlingjax.workflows.plan import machines as compilers
from xlingjax.workflows.plan import plan
from xlingjax.workflows.plan import programs as plan_programs
from xlingjax.workflows.plan import search as plan_search
from xlingjax.workflows.plan.machines import machine_named
from xlingjax.workflows.plan.plan import Planned, stand_ins, text_of
from xlingjax.workflows.plan.roofline import bound_of, sent_of

SMALL = {"MODEL": "mini", "BATCH": 16, "LENGTH": 64, "TRAIN_STEPS": 100, "WARMUP_STEPS": 1}
SIZES = {"VOCABULARY_SIZE": 512, "LANGUAGES": "de en"}
GB = 10**9


def words(**settings):
    return [f"--gin.{name}={value}" for name, value in (SMALL | SIZES | settings).items()]


def planned(tmp_path, recipe, *more, **settings):
    """(status, record) of a plan for the eight devices of the tests."""
    output = tmp_path / "plan.json"
    argv = ["plan", "--gin-file", recipe, "--on", "here", "--to", str(output)]
    status = main.main([*argv, *words(**settings), *more])
    [record] = json.loads(output.read_text(encoding="utf-8"))
    return status, record


def test_a_plan_on_this_machine(tmp_path, capsys):
    status, record = planned(tmp_path, "xlm_15_mlm_tlm", DTYPE="float32", REMAT="full", UNROLL=1)
    said = capsys.readouterr().out
    assert status == 0 and "MONO=not-given" in said and "PARALLEL=not-given" in said
    programs = {one["program"]: one for one in record["programs"]}
    assert {*programs} == {"mlm", "tlm"}
    assert record["mesh"] == {"data": 8, "fsdp": 1, "tensor": 1} and record["fits"]
    assert sum(one["steps"] for one in programs.values()) == 100
    for name, one in programs.items():
        # All gradients are summed over the devices, once.
        parameters = one["bytes"]["parameters"]
        assert one["bytes"]["moments"] >= 2 * parameters
        assert one["sent"]["8"] == pytest.approx(2 * 7 / 8 * parameters, rel=0.01)
        # What is recomputed is a forward pass of the layers: a third, less the vocabulary's part.
        assert 1.1 < one["flops"] / one["useful"] < 1.4
        # Parameters and moments are read and written, and all that is between them.
        assert one["moved"] >= 6 * parameters + 2 * one["temporaries"]
        assert f"{name}: fits" in said


def test_parameters_that_are_shared_out(tmp_path):
    settings = {"MESH_DATA": 1, "MESH_FSDP": 8, "DTYPE": "float32"}
    _, record = planned(tmp_path, "xlmr_base", **settings)
    [mlm] = record["programs"]
    _, whole = planned(tmp_path, "xlmr_base", DTYPE="float32")
    assert mlm["bytes"]["parameters"] < whole["programs"][0]["bytes"]["parameters"] / 4
    # Nothing is recomputed here.
    assert mlm["flops"] == pytest.approx(mlm["useful"], rel=0.1)


def test_without_its_compiler_a_machine_is_refused_with_the_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(compilers, "folder_of", lambda compiler: tmp_path / compiler)
    monkeypatch.setattr(compilers, "_is_installed", lambda module: False)
    for machine, wheel in (("v5e:2x4", "libtpu"), ("H100:8", "jax-cuda12-plugin==")):
        assert main.main(["plan", "--gin-file", "xlm_tiny_mlm", "--on", machine, *words()]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "-m pip install --no-deps --target" in line and wheel in line


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--on", "here", "--platform", "cpu"], "leave --platform and --devices out"),
        (["--on", "here", "--gin.BATCH=9"], "set its BATCH"),
        (["--on", "here", "--gin.MESH_DATA=3"], "multiple of 3"),
        (["--on", "here", "--search"], "--search needs a machine by its name"),
        (["--on", "H100:8", "--tries", "3"], "--tries: it is of --search"),
        (["--on", "here", "--on", "bogus:3"], "no device 'bogus'"),
        (["--on", "here", "--gin.VOCABULARY=/no/vocab", "--gin.VOCABULARY_SIZE=None"], "/no/vocab"),
    ],
)
def test_what_is_refused_is_one_line(more, said, capsys):
    given = {word.partition("=")[0] for word in more}
    own = [word for word in words() if word.partition("=")[0] not in given]
    assert main.main(["plan", "--gin-file", "xlm_tiny_mlm", *own, *more]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and said in line


def test_stand_ins_are_of_what_is_not_given(tmp_path):
    text = ["VOCABULARY=not-given", "MONO=not-given"]
    assert stand_ins(["xlmr_base"], []) == [*text, f"LANGUAGES={plan.LANGUAGES}"]
    size = f"VOCABULARY_SIZE={plan.VOCABULARY_SIZE}"
    assert stand_ins(["xlm_text"], ["PARALLEL=pairs"]) == [*text, size]
    # What a user's own file gives.
    own = tmp_path / "own.gin"
    own.write_text('include "recipes/xlmr_base.gin"\nMONO = "a"\nVOCABULARY = "b"\n')
    assert stand_ins([str(own)], []) == []


PROGRAM = {
    "program": "mlm",
    "error": "",
    "options": {},
    "steps": 100.0,
    "tokens": 8192,
    "flops": 2e12,
    "peak": 10 * GB,
    "moved": 335 * GB,
    "sent": {8: 4.5 * GB},
}


def test_a_bound_is_the_longest_of_three():
    bound = bound_of(machine_named("H100:8"), "bfloat16", 2e12, 335 * GB, {8: 4.5 * GB})
    assert bound.matrix == pytest.approx(2e12 / 989e12)
    assert bound.memory == pytest.approx(335 / 3352)
    assert bound.links == pytest.approx(0.01)
    assert bound.seconds == bound.memory
    # Between two machines.
    sixteen = machine_named("H100:16")
    assert bound_of(sixteen, "bfloat16", 0, 0, {16: 4.0 * GB}).links == pytest.approx(0.01)
    # Its matrix units do not know that type.
    assert bound_of(machine_named("V100:8"), "bfloat16", 1, 1, {}) is None


def a_plan(machine, **program):
    mesh = {"data": 8, "fsdp": 1, "tensor": 1}
    one = {**PROGRAM, **program}
    one["bound"] = bound_of(
        machine_named(machine), "bfloat16", one["flops"], one["moved"], one["sent"]
    )
    room = machine_named(machine).accelerator.room
    return Planned(machine, mesh, "bfloat16", room, 100, [one])


def test_the_likely_hours_are_those_of_useful_products_at_a_fifth_of_the_peak():
    told = {"bytes": {}, "temporaries": 0, "seconds": 1.0, "options": {}}
    text = text_of(a_plan("H100:8", steps=1e6, useful=2e12, **told))
    hours = 1e6 * 2e12 / (989e12 / 5) / 3600
    assert f"about {hours:,.1f} hours at a fifth of the peak" in text


def test_the_run_at_its_bound():
    record = a_plan("H100:8").record()
    seconds = 100 * 335 / 3352
    assert record["days"] == pytest.approx(seconds / 86400)
    assert record["device_hours"] == pytest.approx(8 * seconds / 3600)
    assert record["tokens_per_second"] == pytest.approx(100 * 8192 / seconds)
    assert record["fits"] and not a_plan("H100:8", peak=70 * GB).record()["fits"]


@pytest.mark.parametrize(
    ("fixed", "tries", "chosen"),
    [
        # Rows of 128 are such as flash takes. Of 20 GB, 180 grow with the rows.
        (2, 8, {"MESH_FSDP": 1, "MICROBATCHES": 4, "REMAT": "none", "ATTENTION": "flash"}),
        # Parameters and moments alone are too much for a device.
        (80, 8, {"MESH_FSDP": 8, "MICROBATCHES": 4, "REMAT": "none", "ATTENTION": "flash"}),
        (2, 1, None),
        (1000, 8, None),
    ],
)
def test_the_search_cuts_batches_until_they_fit(monkeypatch, fixed, tries, chosen):
    """A compiler that is made up: `fixed` GB are shared out, 180 cut into microbatches."""
    asked = []

    def measured(files, overrides, on):
        values = dict(one.split("=") for one in overrides)
        asked.append(values)
        own = fixed * GB // int(values["MESH_FSDP"])
        plan = a_plan(on, peak=own + 180 * GB // int(values["MICROBATCHES"]))
        plan.programs[0]["bytes"] = {"parameters": own // 4, "moments": own // 2}
        plan.programs[0]["options"] = {"xla_gpu_enable_triton_gemm": False}
        return plan

    monkeypatch.setattr(plan_search, "measured", measured)
    given = [word.removeprefix("--gin.") for word in words(BATCH=256, LENGTH=128)]
    said = []
    best, tried = plan_search.search(["xlm_tiny_mlm"], given, "H100:8", tries, said.append)
    assert len(asked) == len(tried) <= tries and all(one["BATCH"] == "256" for one in asked)
    if chosen:
        assert best.settings == chosen | {"MESH_DATA": 8 // chosen["MESH_FSDP"]}
        assert said[-1] == f"best: {best.flags}"
        assert said[-2].endswith(", xla_gpu_enable_triton_gemm=false")
    else:
        assert not best and f"none of {len(tried)} settings fits" in said[-1]


@pytest.mark.parametrize(
    ("recipe", "on", "given", "attentions"),
    [
        ("xlm_tiny_mlm", "H100:8", (), ["flash"]),
        ("xlm_tiny_mlm", "v5e:2x4", (), ["flash"]),
        ("xlm_tiny_mlm", "V100:8", (), ["xla", "chunked"]),
        ("xlm_tiny_mlm", "v5e:2x4", ("DTYPE=float16",), ["xla", "chunked"]),
        ("xlm_tiny_mlm", "H100:8", ("LENGTH=100",), ["xla", "chunked"]),
        ("xlm_tiny_mlm", "H100:8", ("ATTENTION=chunked",), ["chunked"]),
        # What predicting streams need.
        ("xfnp", "H100:8", (), ["xla", "chunked"]),
    ],
)
def test_what_the_search_has_compute_attention(recipe, on, given, attentions):
    settings = {"BATCH": 256, "LENGTH": 128, **SIZES}
    overrides = [f"{name}={value}" for name, value in settings.items()]
    overrides += given
    bound = read_recipe([recipe], [*overrides, *stand_ins([recipe], overrides)])
    assert plan_search.attentions(bound, machine_named(on)) == attentions


@pytest.mark.parametrize(
    ("name", "devices", "written"),
    [
        ("h100:16", 16, "H100:16"),
        ("v5e:1", 1, "v5e:1x1"),
        ("V5P:2x2x4", 16, "v5p:2x2x4"),
    ],
)
def test_machines_are_found_by_their_names(name, devices, written):
    machine = machine_named(name)
    assert machine.devices == devices and machine.name == written


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("H10O:8", "no device 'H10O'; did you mean 'H100'"),
        ("H100", "give "),
        ("H100:²", "give "),
        ("H100:12", "multiple of 8"),
        ("v4:2x2", "3 directions"),
        ("v5e:3x5", "1 or even numbers in the first two: v5e:4x4"),
    ],
)
def test_others_are_refused_in_a_line(name, said):
    with pytest.raises(UserError, match=said):
        machine_named(name)


def test_links_of_a_machine_and_between_machines():
    assert machine_named("H100:8").link(8) == 450e9
    # A ring over several machines crosses between two of them by the network of all eight.
    assert machine_named("H100:16").link(16) == 400e9
    assert machine_named("H100:16").link(8) == 450e9
    assert machine_named("v5e:8x8").link(64) == 200e9


def test_a_mesh_takes_all_devices_and_gradients_are_sent_for_each_microbatch():
    plan_programs.require_all(MeshConfig(-1, 1, 2), 8)
    with pytest.raises(UserError, match="a mesh of 4 devices .MESH_DATA=4, .* machine of 8"):
        plan_programs.require_all(MeshConfig(4, 1, 1), 8)
    mesh = {"data": 8, "fsdp": 1, "tensor": 1}
    once, four = (sent_of(preset("xlmr_base"), 256 * 512, mesh, parts) for parts in (1, 4))
    assert four[8] == 4 * once[8]

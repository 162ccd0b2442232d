"""`xlingjax plan`: on the devices of this machine, whose compiler is here, and what is said without
a compiler. Those of accelerators: tests/test_tpu.py, tests/test_cuda.py."""

import functools
import json

import pytest

from xlingjax.cli import main
from xlingjax.config.recipe import Recipe, read_recipe
from xlingjax.errors import UserError
from xlingjax.model.config import preset
from xlingjax.model.partition import MeshConfig
from xlingjax.workflows.plan import machines as compilers
from xlingjax.workflows.plan import plan
from xlingjax.workflows.plan import programs as plan_programs
from xlingjax.workflows.plan import search as plan_search
from xlingjax.workflows.plan.machines import machine_named
from xlingjax.workflows.plan.plan import Planned, bound_of, stand_ins

SMALL = {"MODEL": "mini", "BATCH": 16, "LENGTH": 64, "TRAIN_STEPS": 100, "WARMUP_STEPS": 1}
SIZES = {"VOCABULARY_SIZE": 512, "LANGUAGES": "de en"}
GB = 10**9


def words(**settings):
    return [f"--gin.{name}={value}" for name, value in (SMALL | SIZES | settings).items()]


def planned(tmp_path, recipe, *more, **settings):
    """(status, record) of a plan for the eight devices of the tests."""
    output = tmp_path / "plan.json"
    argv = ["plan", "--gin_file", recipe, "--on", "here", "--output", str(output)]
    status = main.main([*argv, *words(**settings), *more])
    [record] = json.loads(output.read_text(encoding="utf-8"))
    return status, record


def test_a_plan_on_this_machine(tmp_path, capsys):
    status, record = planned(
        tmp_path, "xlm_15_mlm_tlm", "--evaluations", DTYPE="float32", REMAT="full", UNROLL=1
    )
    said = capsys.readouterr().out
    assert status == 0 and "MONO=not-given" in said and "PARALLEL=not-given" in said
    programs = {one["program"]: one for one in record["programs"]}
    assert {*programs} == {"mlm", "tlm", "first state", "evaluation of mlm", "evaluation of tlm"}
    assert record["mesh"] == {"data": 8, "fsdp": 1, "tensor": 1} and record["fits"]
    steps = {name: one["steps"] for name, one in programs.items() if one["kind"] == "step"}
    assert sum(steps.values()) == 100
    for name in steps:
        one = programs[name]
        # All gradients are summed over the devices, once.
        parameters = one["bytes"]["parameters"]
        assert one["bytes"]["moments"] >= 2 * parameters
        summed = one["collectives"]["all-reduce"]["bytes"]
        assert parameters <= summed < 1.5 * parameters
        assert one["collectives"].keys() == {"all-reduce"}
        # What is recomputed is a forward pass of the layers: a third, less the vocabulary's part.
        useful, computed = one["flops"]["useful"], one["flops"]["computed"]
        assert 1.1 < computed / useful < 1.4
        assert 0 < one["estimated"]["activations"] < one["temporaries"]
        assert f"{name}: fits" in said


def test_parameters_that_are_shared_out_are_gathered(tmp_path):
    settings = {"MESH_DATA": 1, "MESH_FSDP": 8, "DTYPE": "float32"}
    _, record = planned(tmp_path, "xlmr_base", **settings)
    [mlm] = record["programs"]
    _, whole = planned(tmp_path, "xlmr_base", DTYPE="float32")
    assert mlm["bytes"]["parameters"] < whole["programs"][0]["bytes"]["parameters"] / 4
    assert "all-gather" in mlm["collectives"]
    # Nothing is recomputed here.
    assert mlm["flops"]["computed"] == pytest.approx(mlm["flops"]["useful"], rel=0.1)


def test_a_decoders_search_is_planned(tmp_path):
    """What a run of an encoder-decoder writes texts with, beside what measures its losses."""
    small = {"LAYERS": 1, "DECODER_LAYERS": 1, "MESH_DATA": 2}
    status, record = planned(tmp_path, "xdae_tiny", "--evaluations", **small)
    programs = {one["program"]: one for one in record["programs"]}
    assert status == 0 and {*programs} == {
        "xdae",
        "first state",
        "evaluation of xdae",
        "decoding as in xdae",
    }
    found = programs["decoding as in xdae"]
    # Keys and values of each beam, and no moments.
    assert found["bytes"].keys() == {"parameters"} and found["temporaries"] > 0
    assert found["peak"] < programs["xdae"]["peak"]


def test_without_its_compiler_a_machine_is_refused_with_the_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(compilers, "folder_of", lambda compiler: tmp_path / compiler)
    monkeypatch.setattr(compilers, "_is_installed", lambda module: False)
    for machine, wheel in (("v5e:2x4", "libtpu"), ("H100:8", "jax-cuda12-plugin==")):
        assert main.main(["plan", "--gin_file", "xlm_tiny_mlm", "--on", machine, *words()]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "-m pip install --no-deps --target" in line and wheel in line


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--on", "H1000:8"], "no device 'H1000'"),
        (["--on", "here", "--platform", "cpu"], "leave --platform and --devices out"),
        (["--on", "here", "--gin.BATCH=9"], "set its BATCH"),
        (["--on", "here", "--gin.MESH_DATA=3"], "multiple of 3"),
        (["--on", "here", "--search"], "--search needs a machine by its name"),
        (["--on", "H100:8", "--tries", "3"], "--tries is of --search: add it"),
        (["--on", "here", "--on", "bogus:3"], "no device 'bogus'"),
        (["--on", "here", "--gin.VOCABULARY=/no/vocab", "--gin.VOCABULARY_SIZE=None"], "/no/vocab"),
    ],
)
def test_what_is_refused_is_one_line(more, said, capsys):
    given = {word.partition("=")[0] for word in more}
    own = [word for word in words() if word.partition("=")[0] not in given]
    assert main.main(["plan", "--gin_file", "xlm_tiny_mlm", *own, *more]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and said in line


def test_stand_ins_are_of_what_is_not_given(tmp_path):
    assert stand_ins(["xlmr_base"], []) == [
        "VOCABULARY=not-given",
        "MONO=not-given",
        f"LANGUAGES={plan.LANGUAGES}",
    ]
    given = ["MONO=a", "VOCABULARY=b"]
    assert stand_ins(["xlmr_base"], given) == []
    # What a user's own file gives.
    own = tmp_path / "own.gin"
    own.write_text('include "recipes/xlmr_base.gin"\nMONO = "a"\nVOCABULARY = "b"\n')
    assert stand_ins([str(own)], []) == []
    assert stand_ins(["xlm_text"], ["PARALLEL=pairs"]) == [
        "VOCABULARY=not-given",
        "MONO=not-given",
        f"VOCABULARY_SIZE={plan.VOCABULARY_SIZE}",
    ]
    # A task is no text.
    assert not [
        one for one in stand_ins(["gin/finetuning/xglue_paper.gin"], []) if one.startswith("TASK=")
    ]


PROGRAM = {
    "program": "mlm",
    "kind": "step",
    "error": "",
    "options": {},
    "steps": 100.0,
    "tokens": 8192,
    "flops": {"useful": 1e12, "computed": 2e12},
    "peak": 10 * GB,
    "moved": 335 * GB,
    "sent": 4.5 * GB,
    "sent_in_groups": {"8": 4.5 * GB},
}


def test_a_bound_is_the_longest_of_three():
    bound = bound_of(PROGRAM, machine_named("H100:8"), "bfloat16")
    assert bound.matrix == pytest.approx(2e12 / 989e12)
    assert bound.memory == pytest.approx(335 / 3352)
    assert bound.links == pytest.approx(0.01)
    assert bound.seconds == bound.memory and bound.limit == "memory"
    # Within one of two machines, and between them.
    sixteen = machine_named("H100:16")
    assert bound_of(PROGRAM, sixteen, "bfloat16").links == pytest.approx(0.01)
    between = {**PROGRAM, "sent_in_groups": {"16": 4.0 * GB}}
    assert bound_of(between, sixteen, "bfloat16").links == pytest.approx(0.01)
    # A kernel that does not say what it costs takes no less than what is useful.
    silent = {**PROGRAM, "flops": {"useful": 1e12, "computed": 5e11}}
    assert bound_of(silent, sixteen, "bfloat16").matrix == pytest.approx(1e12 / 989e12)
    # Its matrix units do not know that type.
    assert bound_of(PROGRAM, machine_named("V100:8"), "bfloat16") is None
    # How often a decoder's loop turns is not known.
    assert bound_of({**PROGRAM, "kind": "decoding"}, sixteen, "bfloat16") is None


def a_plan(machine, **program):
    mesh = {"data": 8, "fsdp": 1, "tensor": 1}
    one = {**PROGRAM, **program}
    bound = bound_of(one, machine_named(machine), "bfloat16")
    room = machine_named(machine).accelerator.room
    return Planned(machine, mesh, "bfloat16", room, 100, [one], [bound])


def test_the_run_at_its_bound():
    record = a_plan("H100:8").record()
    seconds = 100 * 335 / 3352
    assert record["days"] == pytest.approx(seconds / 86400)
    assert record["device_hours"] == pytest.approx(8 * seconds / 3600)
    assert record["tokens_per_second"] == pytest.approx(100 * 8192 / seconds)
    assert record["fits"] and not a_plan("H100:8", peak=70 * GB).record()["fits"]


def test_the_search_takes_the_fastest_that_fits(monkeypatch):
    """A compiler that is made up: what fits is what recomputes all, or has four microbatches."""
    asked = []

    def measured(files, overrides, on, evaluations):
        values = dict(one.split("=") for one in overrides)
        asked.append(values)
        parts = int(values["MICROBATCHES"])
        fits = values["REMAT"] == "full" or parts >= 4
        if values["MESH_TENSOR"] != "1":
            raise UserError("does not divide")
        plan = a_plan(on, peak=(1 if fits else 100) * GB, moved=335 * GB + parts)
        plan.programs[0]["options"] = {"xla_gpu_enable_triton_gemm": False}
        return plan

    monkeypatch.setattr(plan_search, "measured", measured)
    given = [word.removeprefix("--gin.") for word in words(BATCH=256, LENGTH=128)]
    said = []
    found = plan_search.search(["xlm_tiny_mlm"], given, "H100:8", 8, said.append)
    assert found.best.fits
    # No chunk that holds all predictions of 256 rows of 128.
    assert "0" in {one["LOSS_CHUNK"] for one in asked} <= {"0", "1024", "8192"}
    # Rows of 128 are such as it takes, and some of its settings fit before any of `xla` is tried.
    assert {one["ATTENTION"] for one in asked} == {"flash"}
    assert found.best.settings.attention == "flash"
    assert len(asked) <= 8 and all(one["BATCH"] == "256" for one in asked)
    # No settings twice, and none that the recipe had beside them.
    chosen = [one.settings for one in found.tried]
    assert len({*chosen}) == len(chosen)
    assert said[-1] == f"best: {found.best.settings.flags()}"
    assert said[-2].endswith(", compiled with xla_gpu_enable_triton_gemm=false")
    for one in found.tried:
        settings = one.settings
        assert settings.data * settings.fsdp * settings.tensor == 8
        assert not 256 % (settings.data * settings.fsdp * settings.microbatches)
    monkeypatch.setattr(plan_search, "measured", lambda *_, **__: a_plan("H100:8", peak=99 * GB))
    found = plan_search.search(["xlm_tiny_mlm"], given, "H100:8", 3, said.append)
    assert not found.best and len(found.tried) == 3 and "none of 3 settings fits" in said[-1]


def test_a_backend_that_is_refused_is_not_tried_again(monkeypatch):
    """TPUs' `flash` knows no float16; what is refused before it is compiled is no try."""

    def measured(files, overrides, on, evaluations):
        if "ATTENTION=flash" in overrides:
            raise UserError("attention backend flash does not compute in float16")
        return a_plan(on, peak=GB)

    monkeypatch.setattr(plan_search, "measured", measured)
    given = [word.removeprefix("--gin.") for word in words(BATCH=256, LENGTH=128)]
    said = []
    found = plan_search.search(["xlm_tiny_mlm"], given, "v5e:2x4", 1, said.append)
    assert [one.settings.attention for one in found.tried] == ["xla"] and found.best
    assert "refused: attention backend flash" in said[0] and len(said) == 3


def test_the_search_keeps_what_streams_need():
    """xFNP's model refuses every backend but these."""
    config = preset("tiny", decoder_layers=2, streams=2)
    recipe = Recipe(functools.partial(print, model=config, objectives=()), None, "")
    for on in ("H100:8", "v5e:2x4", "V100:8"):
        assert plan_search._attentions(recipe, machine_named(on)) == ["xla", "chunked"]


def test_gradients_are_sent_for_each_microbatch():
    config = preset("xlmr_base")
    of = functools.partial(plan_search.Settings, 8, 1, 1, remat="none", attention="xla")
    for one, four in zip(
        plan_search._sent(config, (256, 512), of(microbatches=1)),
        plan_search._sent(config, (256, 512), of(microbatches=4)),
        strict=True,
    ):
        assert four == (one[0], 4 * one[1])


@pytest.mark.parametrize(
    ("on", "given", "attentions"),
    [
        ("H100:8", (), ["flash", "xla"]),
        ("v5e:2x4", (), ["flash", "xla"]),
        ("V100:8", (), ["xla", "chunked"]),
        ("H100:8", ("LENGTH=100",), ["xla", "chunked"]),
        ("H100:8", ("ATTENTION=cudnn", "ATTENTION_DROPOUT=0.0"), ["cudnn"]),
    ],
)
def test_what_the_search_has_compute_attention(on, given, attentions):
    settings = [word.removeprefix("--gin.") for word in words(BATCH=256, LENGTH=128)]
    recipe = read_recipe(["xlm_tiny_mlm"], [*settings, *given])
    assert plan_search._attentions(recipe, machine_named(on)) == attentions


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v4", "v4"),
        ("TPU v6 lite", "v6e"),
        # Other peaks, and none that are known.
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("cpu", None),
    ],
)
def test_devices_that_are_there_by_what_they_call_themselves(kind, name):
    machine = compilers.machine_of(kind, 8)
    assert (machine and machine.accelerator.name) == name
    assert machine is None or machine.devices == 8


def test_a_mesh_takes_all_devices_of_a_machine():
    plan_programs.require_all(MeshConfig(-1, 1, 2), 8)
    with pytest.raises(UserError, match="a mesh of 4 devices .MESH_DATA=4, .* machine of 8"):
        plan_programs.require_all(MeshConfig(4, 1, 1), 8)

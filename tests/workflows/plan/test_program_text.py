"""What is read of compiled programs: of XLA's own, for eight devices, and of lines as the compilers
of TPUs and GPUs write them."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.model.partition import MeshConfig, make_mesh
from xlingjax.workflows.plan.program_text import Program, by_kind

LAYERS, ROWS, SIZE = 5, 16, 64


def compiled(mesh, rows, weights):
    """A scan over layers, their weights and the rows as they lie on the mesh; the result whole."""

    def run(w_NDD, x_BD):
        def layer(x_BD, w_DD):
            return jnp.tanh(x_BD @ w_DD), None

        return jax.lax.scan(layer, x_BD, w_NDD)[0]

    def like(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    arguments = like((LAYERS, SIZE, SIZE), weights), like((ROWS, SIZE), rows)
    made = jax.jit(run, out_shardings=NamedSharding(mesh, PartitionSpec()))
    return Program(made.lower(*arguments).compile().as_text())


def test_a_loops_collectives_count_as_often_as_it_turns():
    mesh = make_mesh(MeshConfig(1, 1, 8))
    # Each device has a part of what is summed over: the sum of all, in each layer.
    program = compiled(mesh, PartitionSpec(), PartitionSpec(None, "tensor", None))
    found = by_kind(program.collectives())
    size = 4 * ROWS * SIZE
    assert found["all-reduce"]["count"] == LAYERS
    assert found["all-reduce"]["bytes"] == LAYERS * size
    # A ring: to the next, once to sum and once to tell.
    assert found["all-reduce"]["sent"] == LAYERS * size * 2 * 7 // 8


def test_what_is_gathered_counts_whole():
    mesh = make_mesh(MeshConfig(1, 8, 1))
    program = compiled(mesh, PartitionSpec("fsdp"), PartitionSpec())
    found = by_kind(program.collectives())
    assert found == {
        "all-gather": {"count": 1, "bytes": 4 * ROWS * SIZE, "sent": 4 * ROWS * SIZE * 7 // 8}
    }


def test_results_of_loops_are_moved_as_often_as_they_turn():
    one = compiled(make_mesh(MeshConfig(1, 1, 1)), PartitionSpec(), PartitionSpec())
    # Of each layer its states at least, written and read.
    assert one.moved_bytes() >= LAYERS * 2 * 4 * ROWS * SIZE
    # Not the whole stack of weights at each turn.
    assert one.moved_bytes() < LAYERS * 2 * 4 * (ROWS * SIZE + 3 * SIZE * SIZE)


# As libtpu 0.0.42 and jaxlib 0.10.2 for CUDA write them, with other names.
TPU = """\
HloModule jit_run, is_scheduled=true

%fused (p.1: bf16[8,64]) -> bf16[8,64] {
  %p.1 = bf16[8,64]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  ROOT %t.1 = bf16[8,64]{1,0:T(8,128)(2,1)S(1)} tanh(%p.1)
}

%updates (u.1: bf16[8,64], u.2: bf16[8,1]) -> (bf16[8,64], bf16[8,64]) {
  %u.1 = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(0)
  %u.2 = bf16[8,1]{1,0:T(8,128)(2,1)} parameter(1)
  %i.1 = s32[]{:T(128)} constant(0)
  %d.1 = bf16[8,64]{1,0:T(8,128)(2,1)} dynamic-update-slice(%u.1, %u.2, %i.1, %i.1)
  %d.2 = bf16[8,64]{1,0:T(8,128)(2,1)} dynamic-update-slice(%u.1, %u.2, %i.1, %i.1)
  %d.3 = bf16[8,64]{1,0:T(8,128)(2,1)} bitcast(%d.2)
  ROOT %t.9 = (bf16[8,64]{1,0}, bf16[8,64]{1,0}) tuple(%d.1, %d.3)
}

%body (a.1: (s32[], bf16[8,64])) -> (s32[], bf16[8,64]) {
  %a.1 = (s32[]{:T(128)}, bf16[8,64]{1,0:T(8,128)(2,1)}) parameter(0)
  %g.1 = bf16[8,64]{1,0:T(8,128)(2,1)} get-tuple-element(%a.1), index=1
  %fusion.3 = bf16[8,64]{1,0:T(8,128)(2,1)} fusion(%g.1), kind=kLoop, calls=%fused, \
backend_config={"flag_configs":[],"estimated_cycles":"100"}
  %g.2 = s32[]{:T(128)} get-tuple-element(%a.1), index=0
  ROOT %r.1 = (s32[]{:T(128)}, /*index=1*/bf16[8,64]{1,0:T(8,128)(2,1)}) tuple(%g.2, %fusion.3)
}

%cond (b.1: (s32[], bf16[8,64])) -> pred[] {
  %b.1 = (s32[]{:T(128)}, bf16[8,64]{1,0:T(8,128)(2,1)}) parameter(0)
  %g.3 = s32[]{:T(128)} get-tuple-element(%b.1), index=0
  %c.1 = s32[]{:T(128)} constant(7)
  ROOT %l.1 = pred[]{:T(512)} compare(%g.3, %c.1), direction=LT
}

ENTRY %main.9 (x.1: bf16[8,64]) -> bf16[8,64] {
  %x.1 = bf16[8,64]{1,0:T(8,128)(2,1)} parameter(0)
  %zero.1 = s32[]{:T(128)} constant(0)
  %t.2 = (s32[]{:T(128)}, bf16[8,64]{1,0:T(8,128)(2,1)}) tuple(%zero.1, %x.1)
  %while.1 = (s32[]{:T(128)}, bf16[8,64]{1,0:T(8,128)(2,1)}) while(%t.2), condition=%cond, \
body=%body, backend_config={"known_trip_count":{"n":"7"}}
  %g.4 = bf16[8,64]{1,0:T(8,128)(2,1)} get-tuple-element(%while.1), index=1
  %reduce-scatter.1 = bf16[8,8]{1,0:T(8,128)(2,1)} reduce-scatter(%g.4), channel_id=1, \
replica_groups=[4,8]<=[32], dimensions={1}, to_apply=%fused
  %all-gather-start.1 = (bf16[8,8]{1,0}, bf16[8,64]{1,0}) all-gather-start(%reduce-scatter.1), \
replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={1}
  %on_chip.1 = bf16[8,64]{1,0:T(8,128)(2,1)S(1)} copy(%g.4)
  %room.1 = bf16[8,64]{1,0} custom-call(), custom_call_target="AllocateBuffer"
  %both.1 = (bf16[8,64]{1,0}, bf16[8,64]{1,0}) fusion(%g.4, %x.1), kind=kLoop, calls=%updates
  %permute.1 = bf16[8,8]{1,0} collective-permute(%reduce-scatter.1), \
source_target_pairs={{0,1},{1,0}}
  ROOT %all-gather-done.1 = bf16[8,64]{1,0} all-gather-done(%all-gather-start.1)
}
"""


SAID = ', backend_config={"known_trip_count":{"n":"7"}}'


@pytest.mark.parametrize("text", [TPU, TPU.replace(SAID, "")], ids=["said", "by the condition"])
def test_lines_of_other_compilers(text):
    program = Program(text)
    assert program.estimated_cycles() == 700
    found = {one.kind: one for one in program.collectives()}
    size = 2 * 8 * 64
    assert found["reduce-scatter"].bytes == found["all-gather"].bytes == size
    assert found["reduce-scatter"].devices == found["all-gather"].devices == 8
    assert found["all-gather"].sent == pytest.approx(size * 7 / 8)
    assert found["collective-permute"].sent == size / 8
    # Seven times the fusion and the comparison, then the others once; of a start what it makes.
    others = size // 8 + size + size // 8
    # Two updates in place, of a column each.
    updates = 2 * 2 * 8
    assert program.moved_bytes() == 2 * (7 * (size + 1) + others + updates)


def turns(text):
    """Of the loop, by the bytes that it moves."""
    size = 2 * 8 * 64
    once = size // 8 + size + size // 8 + 2 * 2 * 8
    return (Program(text).moved_bytes() / 2 - once) / (size + 1)


def test_a_loop_that_counts_by_twos_turns_half_as_often():
    """As TPUs' compiler makes of what is gathered part by part."""
    old = "tuple(%g.2, %fusion.3)"
    assert old in TPU
    text = TPU.replace(SAID, "").replace(old, "tuple(%n.1, %fusion.3)")
    by_twos = "  %s.1 = s32[]{:T(128)} constant(2)\n  %n.1 = s32[]{:T(128)S(1)} add(%g.2, %s.1)\n"
    assert turns(text.replace("  ROOT %r.1", f"{by_twos}  ROOT %r.1")) == 4


@pytest.mark.parametrize(
    ("old", "new"), [("direction=LT", "direction=EQ"), ("(%g.3, %c.1)", "(%c.1, %g.3)")]
)
def test_a_loop_that_is_no_scan_counts_once(old, new):
    assert old in TPU
    assert turns(TPU.replace(SAID, "").replace(old, new)) == 1


@pytest.mark.parametrize(
    ("written", "devices"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", 4),
        ("replica_groups=[2,4]<=[8]", 4),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", 4),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}", 8),
        ("replica_groups=mesh['axis_0'=8] {'axis_0':(2)4}", 4),
    ],
)
def test_groups_of_devices_as_they_are_written(written, devices):
    line = f"  ROOT %a.1 = f32[4]{{0}} all-reduce(%p.1), {written}, to_apply=%add"
    text = f"ENTRY %m (p.1: f32[4]) -> f32[4] {{\n  %p.1 = f32[4]{{0}} parameter(0)\n{line}\n}}\n"
    [found] = Program(text).collectives()
    assert found.devices == devices and found.bytes == 16

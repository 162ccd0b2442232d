"""Bytes of kernels, counted by hand in a program of a few lines."""

from xlingjax.workflows.plan.traffic import Moved, traffic

PROGRAM = """\
HloModule jit_run, is_scheduled=true

%updated (param_0: f32[4,8], param_1: s32[], param_2: f32[4,8]) -> f32[4,8] {
  %param_0 = f32[4,8]{1,0} parameter(0)
  %param_2 = f32[4,8]{1,0} parameter(2)
  %param_1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,8]{1,0} dynamic-slice(%param_2, %param_1, %zero), dynamic_slice_sizes={1,8}
  ROOT %out = f32[4,8]{1,0} dynamic-update-slice(%param_0, %row, %param_1, %zero)
}

%product (param_0: bf16[4,8], param_1: bf16[8,2]) -> bf16[4,2] {
  %param_0 = bf16[4,8]{1,0} parameter(0)
  %param_1 = bf16[8,2]{1,0} parameter(1)
  ROOT %dot = bf16[4,2]{1,0} dot(%param_0, %param_1), lhs_contracting_dims={1}
}

%both (param_0: f32[4,8]) -> (f32[4,8], pred[4]) {
  %param_0 = f32[4,8]{1,0} parameter(0)
  %twice = f32[4,8]{1,0} add(%param_0, %param_0)
  %odd = pred[4]{0} custom-call(%twice)
  ROOT %all = (f32[4,8]{1,0}, pred[4]{0}) tuple(%twice, %odd)
}

%body (state: (s32[], f32[4,8], f32[4,8])) -> (s32[], f32[4,8], f32[4,8]) {
  %state = (s32[], f32[4,8]{1,0}, /*index=2*/f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %to = f32[4,8]{1,0} get-tuple-element(%state), index=1
  %of = f32[4,8]{1,0} get-tuple-element(%state), index=2
  %fusion.1 = f32[4,8]{1,0} fusion(%to, %i, %of), kind=kLoop, calls=%updated, \
metadata={op_name="jit(run)/jvp(encode)/encoder/while/body/add"}
  ROOT %next = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%i, %fusion.1, %of)
}

%twofold (param_0: f32[4,8]) -> f32[4,8] {
  %param_0 = f32[4,8]{1,0} parameter(0)
  ROOT %sum = f32[4,8]{1,0} add(%param_0, %param_0), metadata={op_name="jit(run)/embeddings/add"}
}

%kept (param_0: f32[4,8]) -> f32[4,8] {
  ROOT %param_0 = f32[4,8]{1,0} parameter(0)
}

ENTRY %main (a: bf16[4,8], b: bf16[8,2], c: f32[4,8]) -> f32[4,8] {
  %a = bf16[4,8]{1,0} parameter(0)
  %b = bf16[8,2]{1,0} parameter(1)
  %c = f32[4,8]{1,0} parameter(2)
  %gemm = bf16[4,2]{1,0} fusion(%a, %b), kind=kCustom, calls=%product, \
metadata={op_name="jit(run)/encoder/layers/attention/query/dot_general"}
  %scores = (bf16[4,2]{1,0}, f32[4]{0}) custom-call(%a, %gemm), custom_call_target="triton", \
metadata={op_name="jit(run)/encoder/layers/attention/flash_forward/pallas_call"}
  %logits = bf16[4,2]{1,0} fusion(%a, %b), kind=kCustom, calls=%product, \
metadata={op_name="jit(run)/transpose(jvp(head))/dense/dot_general"}
  %moments = (f32[4,8]{1,0}, pred[4]{0}) fusion(%c), kind=kLoop, calls=%both, \
metadata={op_name="jit(run)/optimizer/add"}
  %start = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%c, %c, %c)
  %loop = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) while(%start), condition=%more, body=%body, \
backend_config={"known_trip_count":{"n":"3"}}
  %either = f32[4,8]{1,0} conditional(%odd, %c, %c), true_computation=%twofold, \
false_computation=%kept, metadata={op_name="jit(run)/encoder/cond"}
  %chosen = f32[4,8]{1,0} conditional(%i, %c, %c), branch_computations={%twofold, %kept}
  ROOT %last = f32[4,8]{1,0} copy(%c), metadata={op_name="jit(run)/embeddings/convert"}
}
"""


def test_each_part_by_hand():
    assert traffic(PROGRAM) == {
        # Three turns: a row of 8 is read and one written, and the number of the row is read.
        "between the layers' products": Moved(3 * (32 + 4 + 32), 3),
        "layers' products": Moved(64 + 32 + 16, 1),
        "attention": Moved(64 + 16 + 16 + 16, 1),
        "vocabulary": Moved(64 + 32 + 16, 1),
        "optimizer and norm": Moved(128 + 128 + 4, 1),
        # And two branches, each taken half the time.
        "embeddings, casts": Moved(128 + 128 + 3 * 128, 2),
    }

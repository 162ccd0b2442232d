"""Which tests stand for a file of `benchmarks.mutants`, beside those of the same name."""

LEAK = (
    "tests/objectives/test_leak.py::"
    "test_predictions_move_with_the_words_that_the_objective_allows_and_no_other"
)
FLOPS = "tests/training/test_cost.py"
PAIRED = (
    "tests/workflows/test_lost_translations.py::test_plug_in_and_a_teacher_keep_the_pairing_by_row"
)
LOST = (
    "tests/workflows/test_lost_translations.py::test_a_lost_row_keeps_its_place_and_is_not_learnt"
)
ALL = (
    "tests/objectives/test_defaults.py",
    "tests/preprocessors/test_defaults.py",
    "tests/preprocessors/test_padding.py",
)
"""Of every file of objectives and preprocessors."""
OF_ROOM = {
    "objectives": (
        "tests/objectives/test_bounds.py",
        "tests/objectives/test_by_hand.py",
        "tests/objectives/test_keys.py",
    ),
    "preprocessors": (
        "tests/preprocessors/test_bounds.py",
        "tests/preprocessors/test_golden_batches.py",
    ),
}
"""Of every file of one of the two."""
TESTS = {
    "xlingjax/model/masks.py": ("tests/objectives/test_bounds.py", "tests/objectives/test_leak.py"),
    "xlingjax/data/sampling.py": ("tests/config/test_text.py",),
    "xlingjax/objectives/back_translation.py": (
        "tests/objectives/test_translation.py",
        LEAK,
        FLOPS,
    ),
    "xlingjax/objectives/base.py": (
        "tests/objectives/test_xlm.py",
        "tests/objectives/test_finetuning.py",
        "tests/objectives/test_veco.py",
        LEAK,
        FLOPS,
    ),
    "xlingjax/objectives/ernie_m.py": (LEAK, FLOPS),
    "xlingjax/objectives/finetuning.py": (
        "tests/objectives/test_multi_task.py",
        "tests/objectives/test_plug_in.py",
        FLOPS,
    ),
    "xlingjax/objectives/plug_in.py": ("tests/evaluation/test_plug_in.py",),
    "xlingjax/objectives/plugged.py": (
        "tests/objectives/test_plug_in.py",
        "tests/objectives/test_plug_in_tokens.py",
    ),
    "xlingjax/objectives/ramp.py": ("tests/objectives/test_translation.py",),
    "xlingjax/objectives/span_qa.py": (FLOPS,),
    "xlingjax/objectives/summed.py": ("tests/training/test_step_by_hand.py",),
    "xlingjax/objectives/translation.py": ("tests/objectives/test_xglue.py", LEAK, FLOPS),
    "xlingjax/objectives/unicoder.py": (LEAK, FLOPS),
    "xlingjax/objectives/veco.py": (LEAK, FLOPS),
    "xlingjax/objectives/xglue.py": (LEAK,),
    "xlingjax/objectives/xlm.py": (LEAK, FLOPS),
    "xlingjax/preprocessors/beside.py": (
        PAIRED,
        "tests/workflows/test_plug_in_tasks.py::test_what_stands_beside_which",
    ),
    "xlingjax/preprocessors/finetuning.py": (
        "tests/evaluation/test_tagging.py",
        "tests/preprocessors/test_plug_in_rows.py",
        "tests/preprocessors/test_span_qa.py",
    ),
    "xlingjax/preprocessors/plug_in.py": ("tests/evaluation/test_plug_in.py",),
    "xlingjax/preprocessors/noise.py": ("tests/preprocessors/test_translation.py",),
    "xlingjax/preprocessors/row_batches.py": (
        "tests/preprocessors/test_finetuning.py",
        "tests/preprocessors/test_plug_in.py",
        "tests/preprocessors/test_task.py",
        "tests/preprocessors/test_task_rows.py",
    ),
    "xlingjax/preprocessors/span_qa.py": (
        "tests/preprocessors/test_plug_in_rows.py",
        "tests/preprocessors/test_task_rows.py",
    ),
    "xlingjax/preprocessors/stored_parts.py": (
        "tests/preprocessors/test_training_set.py",
        PAIRED,
        LOST,
    ),
    "xlingjax/preprocessors/task.py": (
        "tests/preprocessors/test_plug_in.py",
        "tests/preprocessors/test_span_qa.py",
        "tests/preprocessors/test_training_set.py",
        PAIRED,
    ),
    "xlingjax/preprocessors/task_rows.py": (
        "tests/preprocessors/test_plug_in.py",
        "tests/preprocessors/test_row_batches.py",
        "tests/preprocessors/test_stored_parts.py",
    ),
    "xlingjax/preprocessors/training_set.py": (
        "tests/preprocessors/test_finetuning.py",
        "tests/preprocessors/test_plug_in.py",
        PAIRED,
        LOST,
        "tests/preprocessors/test_task.py",
        "tests/preprocessors/test_row_batches.py",
    ),
}
